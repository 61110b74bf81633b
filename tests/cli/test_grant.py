"""`holdfast grant`: request, approve, sign, revoke, list, show; approvers; slips; and commands that need a grant."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.audit.seals.keys import make_keys
from holdfast.core.authority import Act
from holdfast.core.digest import sha256
from holdfast.store import connect, open_store
from tests.cli.commands import Outcome, at, holdfast, process
from tests.support.roles import wait_until

REPAIR = ("ledger.repair", "ledger", "--executor", "ann", "--reason", "incident 7", "--rollback-plan", "restore")
FIELDS = [
    "grant_id", "state", "version", "action", "target", "environment", "executor", "actions", "plan", "manifest",
    "rollback_plan", "requested_by", "approved_by", "approved_via", "consumed_by", "reason", "expires_at",
    "created_at", "updated_at",
]  # fmt: skip
On = Callable[..., Outcome]


def on(url: str) -> On:
    """What runs commands on a ledger."""
    return lambda *arguments: holdfast(*arguments, "--db", url)


@pytest.fixture
def dev(sqlite_ledger: str) -> On:
    return on(sqlite_ledger)


def made(url: str, environment: str) -> On:
    assert holdfast("init", "--db", url, "--env", environment).code == 0
    return on(url)


@pytest.fixture
def stage(sqlite_url: str) -> On:
    return made(sqlite_url, "stage")


@pytest.fixture
def prod(sqlite_url: str) -> On:
    return made(sqlite_url, "prod")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A directory with the keys of bob and eve."""
    for name in ("bob", "eve"):
        make_keys(tmp_path / name)
    return tmp_path


# ---------------------------------------------------------------------------------------------------------------------
# Requesting and approving


@pytest.mark.req("L-12")
def test_a_grant_from_request_to_use(empty_url: str) -> None:
    run = made(empty_url, "stage")
    outcome = run("grant", "request", *REPAIR, "--plan", "ab" * 32, "--ttl", "30m", "--as", "ann", "--json")
    assert (outcome.code, list(outcome.json)) == (0, FIELDS)
    answer = outcome.json
    assert {name: answer[name] for name in FIELDS[:16]} == {
        "grant_id": 1, "state": "draft", "version": 1, "action": "ledger.repair", "target": "ledger",
        "environment": "stage", "executor": "ann", "actions": ["ledger.repair"], "plan": "ab" * 32, "manifest": None,
        "rollback_plan": "restore", "requested_by": "ann", "approved_by": None, "approved_via": None,
        "consumed_by": None, "reason": "incident 7",
    }  # fmt: skip
    assert run("grant", "approve", "1", "--as", "ann", "--json").error_code == "self_approval"
    approved = run("grant", "approve", "1", "--as", "bob", "--reason", "looked")
    assert approved.tells("rant 1", "active")
    shown = run("grant", "show", "1", "--json").json
    assert list(shown) == ["grant", "permits", "jobs", "next", "journal", "approval_text"]
    assert (shown["permits"], shown["jobs"], shown["next"]) == ("repair of the ledger", None, None)
    assert (shown["grant"]["state"], shown["grant"]["approved_by"], shown["grant"]["approved_via"]) == (
        "active", "bob", "claimed",
    )  # fmt: skip
    assert [(row["event"], row["actor"], row["reason"]) for row in shown["journal"]] == [
        ("request", "ann", "incident 7"), ("approve", "bob", "looked"),
    ]  # fmt: skip
    first, text = shown["approval_text"].split("\n")
    assert (first, json.loads(text)["approve"]) == ("holdfast approval v1", 1)
    revoked = run("grant", "revoke", "1", "--as", "eve", "--reason", "over")
    assert revoked.tells("rant 1", "revoked")
    again = run("grant", "revoke", "1", "--reason", "over", "--json")
    assert (again.code, again.error_code) == (3, "wrong_state")


def test_a_grant_says_how_many_jobs_it_releases_and_the_command_that_uses_it(empty_url: str) -> None:
    run = made(empty_url, "stage")
    with Ledger(empty_url, create=False) as ledger:
        for _ in range(3):
            ledger.quarantine(ledger.submit("noop").job_id, "parse_error", reason="no")
    wanted = ("--code", "parse_error", "--executor", "ann", "--rollback-plan", "cancel them")
    asked = run(
        "quarantine", "release", "--all-matching", "--request", *wanted, "--reason", "mended", "--operator", "ann"
    )
    assert asked.code == 0, asked.err
    draft = run("grant", "show", "1", "--json").json
    assert (draft["permits"], draft["jobs"], draft["next"]) == ("release of 3 quarantined jobs", 3, None)
    assert run("grant", "approve", "1", "--as", "bob").code == 0
    command = run("grant", "show", "1", "--json").json["next"]
    used = run(*command.removeprefix("holdfast ").replace("TEXT", "mended").split(), "--operator", "ann", "--json")
    assert (used.code, used.json["released"]) == (0, 3)


def test_people_see_a_grant_and_its_history(dev: On) -> None:
    dev("grant", "request", *REPAIR, "--as", "ann", "--approve")
    shown = dev("grant", "show", "1").out
    assert shown.startswith("grant 1 active\n")
    for words in ("rollback plan  restore", "approved via   self", "request   draft    ann", "approve   active   ann"):
        assert words in shown
    assert "signature" not in shown


def test_in_dev_a_grant_is_requested_and_approved_at_once(dev: On) -> None:
    done = dev("grant", "request", *REPAIR, "--approve", "--as", "ann", "--json").json
    assert (done["state"], done["approved_by"], done["approved_via"]) == ("active", "ann", "self")


@pytest.mark.parametrize("environment", ["stage", "prod"])
def test_outside_dev_approving_at_once_is_refused_and_nothing_is_requested(sqlite_url: str, environment: str) -> None:
    run = made(sqlite_url, environment)
    refused = run("grant", "request", *REPAIR, "--approve", "--json")
    assert (refused.code, refused.error_code) == (3, "self_approval")
    assert run("grant", "list", "--json").json == []


def test_a_draft_prints_the_next_command(stage: On, sqlite_url: str) -> None:
    outcome = stage("grant", "request", *REPAIR)
    approve = f"holdfast grant approve {at(sqlite_url)} 1 --as NAME"
    assert outcome.tells("rant 1", "draft")
    assert outcome.out.endswith(f": {approve}\n")
    again = stage("grant", "request", *REPAIR, "--json")
    assert (again.code, again.error_code, again.json["context"]["grant_id"]) == (3, "grant_exists", 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("ledger.burn", *REPAIR[1:]),
        (*REPAIR, "--ttl", "2 fortnights"),
        (*REPAIR, "--ttl", "0s"),
        (*REPAIR, "--ttl", "31d"),
        (*REPAIR, "--ttl", "h"),
        (*REPAIR, "--ttl", "9" * 12 + "w"),
        (*REPAIR, "--actions", "a,,b"),
        (*REPAIR, "--reason", " "),
        REPAIR[:4],
        ("ledger.repair", " ", *REPAIR[2:]),
    ],
)
def test_an_invalid_request_is_refused(dev: On, arguments: tuple[str, ...]) -> None:
    refused = dev("grant", "request", *arguments, "--json")
    assert (refused.code, refused.error_code) == (2, "bad_input")
    assert dev("grant", "list", "--json").json == []


def test_an_unknown_act_is_refused_with_the_list_of_acts(dev: On) -> None:
    refused = dev("grant", "request", "x", *REPAIR[1:], "--json").json
    assert all(act in refused["context"]["next_step"] for act in Act)


def test_a_wildcard_is_refused_by_its_code(dev: On) -> None:
    refused = dev("grant", "request", "ledger.repair", "*", *REPAIR[2:], "--json")
    assert (refused.code, refused.error_code) == (3, "REJECT_AUTH_GENERIC_SCOPE")


def test_the_exact_set_of_actions_is_kept(dev: On) -> None:
    answer = dev("grant", "request", *REPAIR, "--actions", "b, a,b", "--manifest", "m", "--json").json
    assert (answer["actions"], answer["manifest"]) == (["a", "b"], "m")


@pytest.mark.parametrize("command", ["show", "approve", "sign", "revoke"])
def test_a_grant_that_is_not_there(dev: On, keys: Path, command: str) -> None:
    more = {"sign": ("--key", str(keys / "bob")), "revoke": ("--reason", "x")}.get(command, ())
    refused = dev("grant", command, "7", *more, "--json")
    assert (refused.code, refused.error_code) == (1, "record_not_found")


# ---------------------------------------------------------------------------------------------------------------------
# Prod


@pytest.mark.req("L-12")
def test_in_prod_a_key_approves_here_or_by_a_signature_from_elsewhere(prod: On, keys: Path) -> None:
    run = prod
    bob, eve = str(keys / "bob"), str(keys / "eve")
    for number in (1, 2):
        assert run("grant", "request", *REPAIR, "--plan", str(number), "--as", "ann").code == 0
    approve = ("grant", "approve", "1", "--json")
    assert run(*approve, "--as", "bob").error_code == "approver_not_authenticated"
    assert run(*approve, "--key", bob).error_code == "approver_unknown"
    added = run(
        "grant",
        "approvers",
        "add",
        "bob",
        "--public-key",
        f"{bob}.pub",
        "--reason",
        "first",
        "--as",
        "adm",
        "--bootstrap",
    )
    assert added.tells("bob", "grant 3")
    assert run(*approve, "--as", "ann", "--key", bob).error_code == "self_approval"
    assert run(*approve, "--as", "bob", "--key", eve).error_code == "signature_invalid"
    done = run(*approve, "--key", bob)  # the owner of the key is known
    assert (done.code, done.json["approved_by"], done.json["approved_via"]) == (0, "bob", "key")
    signature = run("grant", "sign", "2", "--key", bob).out.strip()
    assert len(bytes.fromhex(signature)) == 64
    by_signature = ("grant", "approve", "2", "--signature", signature, "--json")
    refused = run(*by_signature)
    assert (refused.code, refused.error_code) == (2, "bad_input")
    assert run(*by_signature, "--as", "eve").error_code == "approver_unknown"
    assert run(*by_signature, "--as", "bob").code == 0
    signed = run("grant", "sign", "2", "--key", bob, "--json").json
    assert list(signed) == ["grant_id", "signature", "public_key"]
    assert signed["signature"] == signature


def test_an_approver_is_identified_by_exactly_one_method(prod: On, keys: Path) -> None:
    refused = prod("grant", "approve", "1", "--key", str(keys / "bob"), "--role", "--json")
    assert (refused.code, refused.error_code) == (2, "bad_input")
    prod("grant", "request", *REPAIR)
    refused = prod("grant", "approve", "1", "--role", "--json")
    assert (refused.code, refused.error_code) == (3, "approver_not_authenticated")


def test_a_role_approves_by_its_session(pg_url: str) -> None:
    run = made(pg_url, "prod")
    assert run("grant", "request", *REPAIR, "--as", "ann").code == 0
    refused = run("grant", "approve", "1", "--role", "--json")
    assert (refused.code, refused.error_code) == (3, "self_approval")  # both are the superuser of the tests


def test_a_file_that_is_no_key(prod: On, keys: Path) -> None:
    prod("grant", "request", *REPAIR)
    for key in (keys / "bob.pub", keys / "missing"):
        refused = prod("grant", "approve", "1", "--key", str(key), "--json")
        assert (refused.code, refused.error_code) == (2, "key_invalid")


def test_approvers_are_added_revoked_and_listed(prod: On, keys: Path) -> None:
    assert prod("grant", "approvers", "list", "--json").json == []
    bob, eve = (("--public-key", str(keys / f"{name}.pub"), "--reason", "x") for name in ("bob", "eve"))
    refused = prod("grant", "approvers", "add", "bob", *bob, "--json")
    assert (refused.code, refused.error_code) == (3, "bootstrap_required")
    assert prod("grant", "approvers", "add", "bob", *bob, "--bootstrap", "--json").json["bootstrap"]
    refused = prod("grant", "approvers", "add", "eve", *eve, "--as", "adm", "--json")
    assert (refused.code, refused.error_code) == (3, "REJECT_AUTH_MISSING")
    manifest = refused.json["context"]["manifest"]
    assert f"--manifest {manifest}" in refused.json["context"]["next_step"]
    given = ("--executor", "adm", "--manifest", manifest, "--reason", "two", "--rollback-plan", "revoke her")
    assert prod("grant", "request", "approver.add", "eve", *given, "--as", "adm").code == 0
    assert prod("grant", "approve", "2", "--key", str(keys / "bob")).code == 0
    assert prod("grant", "approvers", "add", "eve", *eve, "--as", "adm", "--grant", "2").code == 0
    assert prod("grant", "approvers", "revoke", "bob", "--reason", "left").tells("bob", "revoked")
    assert prod("grant", "approvers", "revoke", "bob", "--reason", "left", "--json").error_code == "approver_revoked"
    assert prod("grant", "approvers", "revoke", "zoe", "--reason", "left", "--json").error_code == "record_not_found"
    listed = prod("grant", "approvers", "list", "--json").json
    assert [(one["name"], one["grant_id"], one["revoked_at"] is None) for one in listed] == [
        ("bob", 1, False), ("eve", 2, True),
    ]  # fmt: skip
    assert listed[1]["public_key"] in prod("grant", "approvers", "list").out
    assert sha256(listed[1]["public_key"]) == manifest


# ---------------------------------------------------------------------------------------------------------------------
# Listing


def test_a_list_is_filtered_and_shows_expired_grants(ledger: str) -> None:
    run = on(ledger)
    assert run("grant", "list", "--json").json == []
    given = ("--executor", "ann", "--reason", "x", "--rollback-plan", "y", "--as", "ann")
    for target, *more in (("job:1",), ("job:2", "--approve"), ("job:3",)):
        assert run("grant", "request", "job.release", target, *given, *more).code == 0
    assert run("grant", "request", "job.release", "job:4", *given, "--approve", "--ttl", "1s").code == 0
    with connect(ledger) as store:  # a second later
        wait_until_expired(store)

    def found(*arguments: str) -> list[tuple[int, str]]:
        return [(one["grant_id"], one["state"]) for one in run("grant", "list", *arguments, "--json").json]

    assert found() == [(4, "expired"), (3, "draft"), (2, "active"), (1, "draft")]
    assert found("--state", "expired") == [(4, "expired")]
    assert found("--state", "active") == [(2, "active")]
    assert found("--action", "job.release", "--target", "job:3") == [(3, "draft")]
    assert found("--action", "switch.lift") == []
    assert found("--limit", "2") == [(4, "expired"), (3, "draft")]
    assert found("--before", "3") == [(2, "active"), (1, "draft")]
    assert run("grant", "list", "--limit", "2").out.endswith("--before 3\n")
    assert run("grant", "list", "--state", "gone", "--json").error_code == "bad_input"
    assert run("grant", "list", "--action", "gone", "--json").error_code == "bad_input"
    assert run("grant", "show", "4", "--json").json["grant"]["state"] == "expired"


def wait_until_expired(store: Any) -> None:
    def expired() -> Any:
        with store.reading() as reading:
            return reading.grants.page(state="expired")

    wait_until(expired, 30, "the grant has expired")


# ---------------------------------------------------------------------------------------------------------------------
# What takes a grant


def test_a_repair_in_stage_takes_a_grant_for_its_plan(sqlite_url: str, stage: On) -> None:
    with open_store(sqlite_url) as store, store.transaction() as transaction:
        transaction.execute("INSERT INTO holdfast_counts VALUES ('ghost', 'default', 'pending', 3)")
    shown = stage("repair")
    digest = stage("repair", "--json").json["digest"]
    ask = f"holdfast grant request {at(sqlite_url)} ledger.repair ledger --plan {digest} --executor NAME"
    ask += " --rollback-plan TEXT --reason TEXT"
    repair = f"holdfast repair {at(sqlite_url)} --apply {digest} --operator NAME --reason TEXT --grant ID"
    assert shown.out.endswith(f"  {ask}\n  {repair}\n")
    apply = ("repair", "--apply", digest, "--operator", "ann", "--reason", "incident 7", "--json")
    refused = stage(*apply)
    assert (refused.code, refused.error_code) == (3, "REJECT_AUTH_MISSING")
    assert refused.json["context"]["plan"] == digest
    stage("grant", "request", *REPAIR, "--plan", digest, "--as", "ann")
    refused = stage(*apply, "--grant", "1")
    assert (refused.code, refused.error_code) == (3, "REJECT_AUTH_NOT_ACTIVE")
    stage("grant", "approve", "1", "--as", "bob")
    done = stage(*apply, "--grant", "1")
    assert (done.code, done.json["ok"], done.json["applied"]) == (0, True, True)
    assert stage("grant", "show", "1", "--json").json["grant"]["consumed_by"] == "ann"
    assert stage("check").code == 0


@pytest.mark.req("L-12")
def test_a_prod_snapshot_is_restored_by_a_signed_slip(prod: On, keys: Path) -> None:
    """The slip is printed into a file by one process, and carried to another."""
    run = prod
    run(
        "grant",
        "approvers",
        "add",
        "bob",
        "--public-key",
        str(keys / "bob.pub"),
        "--reason",
        "x",
        "--as",
        "adm",
        "--bootstrap",
    )
    file, slip = str(keys / "prod.snapshot"), keys / "slip.json"
    digest = run("snapshot", "create", file, "--json").json["sha256"]
    given = ("--action", "snapshot.restore", "--target", digest, "--executor", "ann", "--reason", "the disk died",
             "--rollback-plan", "delete the file", "--as", "bob")  # fmt: skip
    restore = ("snapshot", "restore", file, "--db", str(keys / "new.db"), "--operator", "ann", "--json")
    refused = holdfast(*restore)
    assert (refused.code, refused.error_code) == (3, "REJECT_AUTH_MISSING")
    slip.write_text(holdfast("grant", "slip", *given).out)
    refused = holdfast(*restore, "--grant", str(slip))
    assert (refused.code, refused.error_code) == (3, "approver_not_authenticated")
    printed = process("grant", "slip", *given, "--key", str(keys / "bob"), "--ttl", "1d")
    slip.write_text(printed.out)
    assert printed.json["approved_by"] == "bob"
    assert not (keys / "new.db").exists()
    done = holdfast(*restore, "--grant", str(slip))
    assert (done.code, done.json["grant_id"]) == (0, 2)
    there = on(str(keys / "new.db"))
    shown = there("grant", "show", "2", "--json").json["grant"]
    assert (shown["state"], shown["approved_by"], shown["approved_via"], shown["target"]) == (
        "consumed", "bob", "key", digest,
    )  # fmt: skip
    assert there("check").code == 0
    assert there("audit", "verify").code == 0
    said = holdfast(
        "snapshot", "restore", file, "--db", str(keys / "newer.db"), "--operator", "ann", "--grant", str(slip)
    )
    assert said.tells("0 jobs", "prod", "epoch 2", "grant 2")


@pytest.mark.parametrize(
    "given, code, error",
    [
        (("--action", "ledger.repair"), 2, "bad_input"),
        (("--action", "burn"), 2, "bad_input"),
        (("--ttl", "99d"), 2, "bad_input"),
        (("--target", "*"), 3, "REJECT_AUTH_GENERIC_SCOPE"),
        (("--key", "/nowhere"), 2, "key_invalid"),
    ],
)
def test_a_slip_that_cannot_be_written(given: tuple[str, ...], code: int, error: str) -> None:
    sound = ("--action", "snapshot.restore", "--target", "0" * 64, "--executor", "ann", "--reason", "r",
             "--rollback-plan", "p")  # fmt: skip
    refused = holdfast("grant", "slip", *sound, *given, "--json")
    assert (refused.code, refused.error_code) == (code, error)


def test_a_slip_that_cannot_be_read(dev: On, tmp_path: Path) -> None:
    file = str(tmp_path / "a.snapshot")
    assert dev("snapshot", "create", file).code == 0
    (tmp_path / "slip.json").write_text('{"action": 7}')
    done = holdfast(
        "snapshot", "restore", file, "--db", str(tmp_path / "n.db"), "--grant", str(tmp_path / "slip.json"), "--json"
    )
    assert (done.code, done.error_code) == (2, "spec_invalid")
    assert "$.action" in done.json["error_message"]
    assert not (tmp_path / "n.db").exists()
