"""`holdfast registry supersede | retire | rollback-check`, and `submit` where a registry governs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.governance import grants
from holdfast.governance.approval import Identity
from holdfast.store import open_store
from tests.cli.commands import Outcome, holdfast, process
from tests.governance.registries import everything
from tests.governance.successions import SHIP_1, SHIP_2, governed, made

WHY = ("--reason", "release 8", "--operator", "ann")


@pytest.fixture
def ledger(empty_url: str) -> str:
    """A governed dev ledger with ship, pack and tax 1.0.0 in force."""
    governed(empty_url).close()
    return empty_url


@pytest.fixture
def sqlite_ledger(sqlite_url: str) -> str:
    governed(sqlite_url).close()
    return sqlite_url


def listed(url: str) -> dict[str, tuple[str, str | None]]:
    rows = holdfast("registry", "list", "--db", url, "--json").json
    return {
        f"{row['operation_code']}@{row['protocol_version']}": (row["state"], row["successor_version"]) for row in rows
    }


@pytest.mark.req("L-16", "L-18")
def test_a_superseding_version_is_submitted_from_then_on(ledger: str) -> None:
    planned = holdfast("registry", "supersede", "ship", "1.0.0", "2.0.0", "--dry-run", *WHY, "--db", ledger, "--json")
    assert planned.code == 0
    assert listed(ledger)["ship@1.0.0"] == ("active", None)
    means = json.dumps(SHIP_2)
    done = holdfast(
        "registry", "supersede", "ship", "1.0.0", "2.0.0", "--semantics", means, *WHY, "--db", ledger, "--json"
    )
    assert done.code == 0
    assert {name: done.json[name] for name in ("value", "successor", "admits", "changed", "verdict", "code")} == {
        "value": "ship@1.0.0", "successor": "ship@2.0.0", "admits": True, "changed": True,
        "verdict": "ROLLBACK_CONTRACT_VALID_FOR_REVIEW", "code": "PASS",
    }  # fmt: skip
    assert done.json["plan"] != planned.json["plan"]  # it means something else
    assert listed(ledger) == {
        "ship@1.0.0": ("superseded", "2.0.0"), "ship@2.0.0": ("active", None), "pack@1.0.0": ("active", None),
        "tax@1.0.0": ("active", None),
    }  # fmt: skip
    [shown] = holdfast("registry", "show", "ship@2.0.0", "--db", ledger, "--json").json
    assert shown["semantics"] == SHIP_2
    assert [(row["event"], row["actor"], row["reason"]) for row in shown["journal"]] == [("admit", "ann", "release 8")]
    assert holdfast("registry", "verify", "--db", ledger, "--json").json["ok"]

    taken = holdfast("submit", "ship", "--db", ledger, "--json")
    assert holdfast("show", str(taken.json["job_id"]), "--db", ledger).out.splitlines()[1].split()[:3] == [
        "operation", "ship", "2.0.0",
    ]  # fmt: skip
    old = holdfast("submit", "ship", "--operation-version", "1.0.0", "--db", ledger, "--json")
    assert (old.code, old.error_code) == (3, "CANONICAL_OPERATION_RETIRED_FOR_NEW_USE")
    assert old.json["context"] == {
        "operation": "ship", "version": "1.0.0", "in_force": "2.0.0", "successor": "ship@2.0.0",
        "next_step": "Submit ship@2.0.0 instead.",
    }  # fmt: skip
    ghost = holdfast("submit", "ghost", "--db", ledger, "--json")
    assert (ghost.code, ghost.error_code) == (3, "CANONICAL_OPERATION_VALUE_ABSENT")
    assert holdfast("submit", "noop", "--db", ledger).code == 0


@pytest.mark.req("L-13")
def test_a_governed_ledger_without_a_registry_refuses_submits(sqlite_url: str) -> None:
    made(sqlite_url).close()
    refused = holdfast("submit", "ship", "--db", sqlite_url, "--json")
    assert (refused.code, refused.error_code) == (3, "CANONICAL_OPERATION_VOCABULARY_REQUIRED_NOT_PRESENT")
    assert holdfast("submit", "noop", "--db", sqlite_url).code == 0


@pytest.mark.req("L-18", "L-20")
def test_a_value_returns_to_an_earlier_meaning_and_is_retired(sqlite_ledger: str) -> None:
    def ran(*arguments: str) -> str:
        done = holdfast("registry", *arguments, *WHY, "--db", sqlite_ledger)
        assert (done.code, done.err) == (0, "")
        return done.out

    assert ran("supersede", "ship", "1.0.0", "2.0.0", "--semantics", '{"description": "by air"}') == (
        "ship@1.0.0 is superseded by ship@2.0.0, under grant 2 (evidence:11).\n"
    )
    assert ran("supersede", "ship", "2.0.0", "2.0.1", "--semantics-of", "1.0.0") == (
        "ship@2.0.0 is superseded by ship@2.0.1, under grant 3 (evidence:12).\n"
    )
    assert (
        ran("supersede", "ship", "2.0.0", "2.0.1") == "ship@2.0.0 was already superseded by ship@2.0.1 (evidence:12).\n"
    )
    assert ran("supersede", "pack", "1.0.0", "2.0.1", "--by", "ship") == (
        "pack@1.0.0 is superseded by ship@2.0.1, under grant 4 (evidence:13).\n"
    )
    assert ran("retire", "ship", "2.0.1", "--dry-run").startswith("ship@2.0.1 would be retired.\nplan ")
    assert ran("retire", "ship", "2.0.1") == "ship@2.0.1 is retired, under grant 5 (evidence:14).\n"
    assert ran("retire", "ship", "2.0.1") == "ship@2.0.1 was already retired (evidence:14).\n"
    shown = holdfast("registry", "show", "ship", "--db", sqlite_ledger, "--json").json
    assert [row["semantics"] for row in shown] == [SHIP_1, SHIP_2, SHIP_1]
    assert {name for name, (state, _) in listed(sqlite_ledger).items() if state == "active"} == {"tax@1.0.0"}


@pytest.mark.req("L-12", "L-18")
def test_outside_dev_a_dry_run_prints_the_request_for_its_grant(empty_url: str) -> None:
    governed(empty_url, environment="stage").close()
    change = ("supersede", "ship", "1.0.0", "2.0.0", *WHY, "--db", empty_url)
    refused = holdfast("registry", *change, "--json")
    assert (refused.code, refused.error_code) == (3, "REJECT_AUTH_MISSING")
    shown = holdfast("registry", *change, "--dry-run")
    assert shown.code == 0
    *lines, ask = shown.out.splitlines()
    assert lines[0] == "ship@1.0.0 would be superseded by ship@2.0.0."
    assert [line.split()[:2] for line in lines[1:]][2:] == [
        ["verdict", "PASS"], ["authority", "REJECT_AUTH_MISSING"],
    ]  # fmt: skip
    command = ask.removeprefix("next: holdfast ").removesuffix(" --rollback-plan TEXT --reason TEXT").split()
    outcome = holdfast(
        *command, "--rollback-plan", "runbook 7", "--reason", "release 8", "--as", "ann", "--db", empty_url, "--json"
    )
    assert outcome.code == 0, outcome
    with open_store(empty_url) as store:
        grants.approve(store, outcome.json["grant_id"], Identity(name="bob"))
    ready = holdfast("registry", *change, "--dry-run", "--json")
    assert (ready.json["authority"], ready.json["grant_id"]) == ("GO", outcome.json["grant_id"])
    done = holdfast("registry", *change, "--grant", str(outcome.json["grant_id"]), "--json")
    assert (done.code, done.json["changed"], done.json["grant_id"]) == (0, True, outcome.json["grant_id"])


BAD: list[tuple[tuple[str, ...], int, str]] = [
    (("supersede", "ship", "1.0.0", "two"), 3, "REJECT_BAD_PROTOCOL_VERSION"),
    (("supersede", "ship", "1.0.0", "0.9.0"), 3, "SUCCESSOR_VERSION_LOWER"),
    (("supersede", "ship", "1.0.0", "1.0.0"), 3, "SUCCESSOR_IS_ITSELF"),
    (("supersede", "ship", "1.0.0", "9.0.0", "--by", "pack"), 3, "SUCCESSOR_UNKNOWN"),
    (("supersede", "ship", "1.0.0", "1.0.0", "--by", "tax"), 3, "ROLLBACK_WEAKENS_AUTHORITY"),
    (("supersede", "ghost", "1.0.0", "2.0.0"), 3, "CANONICAL_OPERATION_VALUE_ABSENT"),
    (("supersede", "ship", "1.0.0", "2.0.0", "--semantics-of", "8.0.0"), 3, "CANONICAL_OPERATION_VALUE_ABSENT"),
    (("supersede", "ship", "1.0.0", "2.0.0", "--grant", "77"), 3, "REJECT_AUTH_NOT_FOUND"),
    (("supersede", "ship", "1.0.0", "2.0.0", "--grant", "0"), 2, "bad_input"),
    (("supersede", "ship", "1.0.0", "2.0.0", "--semantics", "{"), 2, "payload_not_json"),
    (("supersede", "ship", "1.0.0", "2.0.0", "--semantics", "@nowhere.json"), 2, "bad_input"),
    (("supersede", "ship", "1.0.0", "2.0.0", "--semantics", "1", "--semantics-of", "1.0.0"), 2, "bad_input"),
    (("supersede", "ship", "1.0.0", "1.0.0", "--by", "pack", "--semantics", "1"), 2, "bad_input"),
    (("supersede", "ship", "1.0.0"), 2, "bad_input"),
    (("retire", "ship", "latest"), 3, "REJECT_BAD_PROTOCOL_VERSION"),
    (("retire", "ship", "4.0.0"), 3, "CANONICAL_OPERATION_VALUE_ABSENT"),
    (("retire", "", "1.0.0"), 2, "bad_input"),
    (("rollback-check", "nowhere.json"), 2, "bad_input"),
]


@pytest.mark.req("L-13")
def test_bad_input_is_refused_and_leaves_nothing(sqlite_ledger: str) -> None:
    with open_store(sqlite_ledger) as store:
        before = everything(store)
        for given, code, error_code in BAD:
            why = () if given[0] == "rollback-check" else WHY
            refused = holdfast("registry", *given, *why, "--db", sqlite_ledger, "--json")
            assert (refused.code, refused.error_code) == (code, error_code), given
        no_reason = holdfast("registry", "retire", "ship", "1.0.0", "--db", sqlite_ledger, "--json")
        assert (no_reason.code, no_reason.error_code) == (2, "bad_input")
        odd = holdfast("submit", "ship", "--operation-version", "one", "--db", sqlite_ledger, "--json")
        assert (odd.code, odd.error_code) == (2, "bad_input")
        assert everything(store) == before


def checked(url: str, path: Path, contract: Any) -> Outcome:
    path.write_text(json.dumps(contract), encoding="utf-8")
    return holdfast("registry", "rollback-check", str(path), "--db", url, "--json")


@pytest.mark.req("L-18", "L-19")
def test_a_rollback_contract_is_reviewed(ledger: str, tmp_path: Path) -> None:
    path = tmp_path / "contract.json"
    sound = {
        "disposition": "supersede", "target": "ship@1.0.0", "successor": "pack@1.0.0", "plan": "runbook 7",
        "audit": "supersession",
    }  # fmt: skip
    with open_store(ledger) as store:
        before = everything(store)
        passes = checked(ledger, path, sound)
        assert (passes.code, passes.json) == (
            0,
            {
                "verdict": "ROLLBACK_CONTRACT_VALID_FOR_REVIEW", "code": "PASS", "valid_for_review": True,
                "target": "ship@1.0.0", "successor": "pack@1.0.0", "open_jobs": 0, "authorises": None,
            },
        )  # fmt: skip
        for differs, verdict in (
            ({"executes": True}, "RBP-0"),
            ({"plan": ""}, "RBP-1"),
            ({"disposition": "delete"}, "RBP-2"),
            ({"successor": "pack@2.0.0"}, "RBP-3"),
            ({"erases": ["journal"]}, "RBP-4"),
            ({"semantics": "0"}, "RBP-5"),
            ({"authority": "nobody"}, "RBP-6"),
            ({"successor": ""}, "RBP-7"),
            ({"successor": "ship@1.0.0"}, "RBP-8"),
            ({"audit": ""}, "RBP-9"),
            ({"collections": ["words"]}, "RBP-10"),
        ):
            refused = checked(ledger, path, {**sound, **differs})
            assert (refused.code, refused.json["code"], refused.json["valid_for_review"]) == (3, verdict, False)
        for target, versions in (("ship", ["1.0.0"]), ("", []), ("nothing", [])):
            unversioned = checked(ledger, path, {**sound, "target": target})
            assert (unversioned.code, unversioned.error_code) == (3, "ROLLBACK_TARGET_UNVERSIONED")
            assert (unversioned.json["context"]["target"], unversioned.json["context"]["versions"]) == (
                target,
                versions,
            )
        assert everything(store) == before
    path.write_text(json.dumps({**sound, "disposition": "delete"}), encoding="utf-8")
    said = holdfast("registry", "rollback-check", str(path), "--db", ledger)
    assert (said.code, said.out) == (3, "RBP-2 ROLLBACK_DELETES_REFERENCED_IDENTITY\n")


@pytest.mark.req("L-13")
@pytest.mark.parametrize(
    "contract, path",
    [
        ({"disposition": "supersede", "surprise": 1}, "surprise"),
        ({"target": "ship@1.0.0"}, "disposition"),
        ({"disposition": "erase"}, "disposition"),
        ({"disposition": "retire", "erases": "all"}, "erases"),
        ({"disposition": "retire", "executes": "yes"}, "executes"),
        ([], "(document)"),
    ],
)
def test_a_contract_that_cannot_be_read(sqlite_ledger: str, tmp_path: Path, contract: Any, path: str) -> None:
    refused = checked(sqlite_ledger, tmp_path / "c.json", contract)
    assert (refused.code, refused.error_code, refused.json["context"]["path"]) == (2, "spec_invalid", path)


def test_a_contract_may_be_yaml(sqlite_ledger: str, tmp_path: Path) -> None:
    path = tmp_path / "contract.yaml"
    path.write_text("disposition: retire\ntarget: ship@1.0.0\nplan: runbook 7\naudit: retirement\n", encoding="utf-8")
    assert holdfast("registry", "rollback-check", str(path), "--db", sqlite_ledger).out == (
        "PASS ROLLBACK_CONTRACT_VALID_FOR_REVIEW\n"
    )


def test_it_runs_as_a_process(sqlite_ledger: str) -> None:
    done = process("registry", "supersede", "ship", "1.0.0", "1.1.0", *WHY, "--db", sqlite_ledger)
    assert done.tells("ship@1.0.0", "ship@1.1.0", "grant 2", "evidence:11")
    again = process("registry", "supersede", "ship", "1.1.0", "1.0.0", *WHY, "--db", sqlite_ledger)
    assert (again.code, again.error_code) == (3, "SUCCESSOR_CYCLE")
