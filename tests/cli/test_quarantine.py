"""`holdfast quarantine`: its JSON, its text, its exit codes, and nothing left behind by bad input."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.options import actor
from holdfast.core.commands import Cancel
from holdfast.explain.values import JOB_FIELDS
from holdfast.governance.quarantine import add
from holdfast.store import create_store, open_store
from tests.cli.commands import Outcome, at, holdfast, process
from tests.governance.quarantining import quarantined, submitted

MENDED = ("--operator", "ann", "--reason", "mended")


def run(db: str, *arguments: str, json: bool = True) -> Outcome:
    return holdfast("quarantine", *arguments, "--db", db, *(["--json"] if json else []))


@pytest.fixture
def ledger(ledger_url: str) -> str:
    """A ledger with four jobs: 1 to 3 in quarantine as timeout, poison and parse_error, 4 cancelled."""
    with create_store(ledger_url) as store:
        assert submitted(store, operation="noop", n=4) == [1, 2, 3, 4]
        for job_id, code in enumerate(("timeout", "poison", "parse_error"), start=1):
            add(store, job_id, code, operator="ann", reason="looks wrong")
        with store.transaction() as transaction:
            transaction.rulings.rule([(transaction.jobs.get(4), Cancel())], actor="ann")
    return ledger_url


@pytest.fixture(scope="module")
def one_job(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ledger that every test here must leave as it is: one job, which waits."""
    url = f"sqlite:///{tmp_path_factory.mktemp('quarantine') / 'one.db'}"
    with create_store(url) as store:
        submitted(store)
    return url


def ids(outcome: Outcome) -> list[int]:
    assert outcome.code == 0
    return [job["job_id"] for job in outcome.json]


@pytest.mark.req("G-21")
def test_no_release_is_advised_for_a_superseded_job(ledger_url: str) -> None:
    with create_store(ledger_url) as store:
        submitted(store, operation="noop")
        add(store, 1, "superseded", operator="ann", reason="job 7 does it now")
    assert [job["reason"] for job in run(ledger_url, "list", "--because", "superseded").json] == ["superseded"]
    shown = run(ledger_url, "show", "1", json=False).out
    assert len([line for line in shown.splitlines() if line.startswith("after a release")]) == 1
    assert "quarantine release" not in shown
    assert shown.endswith(f"next: holdfast show {at(ledger_url)} 1\n")
    explained = holdfast("explain", "1", "--db", ledger_url).out.splitlines()
    assert explained[0] == "job 1 quarantined: finished"
    assert ": job 7 does it now" in explained[1]
    assert explained[2:] == [f"  next: holdfast show {at(ledger_url)} 1"]


@pytest.mark.req("G-21", "G-25")
def test_list_show_and_statistics(ledger: str) -> None:
    assert ids(run(ledger, "list")) == [3, 2, 1]
    assert ids(run(ledger, "list", "--cancelled")) == [4, 3, 2, 1]
    assert ids(run(ledger, "list", "--reason", "timeout")) == ids(run(ledger, "list", "--because", "timeout")) == [1]
    assert ids(run(ledger, "list", "--code", "poison", "--operation", "noop", "--queue", "default")) == [2]
    assert ids(run(ledger, "list", "--queue", "slow")) == ids(run(ledger, "list", "--older-than", "1h")) == []
    assert ids(run(ledger, "list", "--limit", "1", "--before", "3")) == [2]
    [first] = run(ledger, "list", "--code", "timeout").json
    assert list(first) == [*JOB_FIELDS, "quarantine_code", "replay_attempts", "excused", "replaces", "reason"]
    assert (first["reason"], first["quarantine_code"], first["state"]) == ("timeout", "timeout", "quarantined")

    shown = run(ledger, "show", "2").json
    assert list(shown) == [
        "job", "in_quarantine", "since", "by", "why", "after_release", "moves", "releases", "next",
    ]  # fmt: skip
    assert (shown["in_quarantine"], shown["by"], shown["why"]) == (True, "ann", "looks wrong")
    assert shown["since"] == shown["job"]["updated_at"]
    assert shown["after_release"] == {"attempts": 5, "then": "failed"}
    assert shown["next"] == [f"holdfast quarantine release {at(ledger)} 2 --reason TEXT"]
    assert [(row["event"], row["actor"]) for row in shown["moves"]] == [("quarantine", "ann")]

    counted = run(ledger, "statistics").json
    assert (counted["total"], counted["cancelled"], counted["slimmed"]) == (3, 1, 0)
    assert counted["by_reason"] == {"parse_error": 1, "timeout": 1, "unknown": 1}
    assert run(ledger, "statistics", "--cancelled").json["total"] == 4


@pytest.mark.req("K-17", "G-25")
def test_release_one_and_many_and_the_history_of_both(ledger: str) -> None:
    done = run(ledger, "release", "1", *MENDED, "--run-at", "2099-01-31T12:00:00Z")
    assert (done.code, done.json["state"], done.json["changed"], done.json["grant_id"]) == (0, "pending", True, 1)
    assert done.json["run_at"] == "2099-01-31T12:00:00.000000Z"
    again = run(ledger, "release", "1", *MENDED)
    assert (again.code, again.json["changed"], again.json["grant_id"]) == (0, False, None)

    plan = run(ledger, "release", "--all-matching", "--dry-run").json
    assert (plan["job_ids"], plan["authority"], plan["grant_id"]) == ([2, 3], "OWN", None)
    one = run(ledger, "release", "2", "--dry-run").json
    assert (one["job_ids"], one["target"], one["authority"]) == ([2], "job:2", "OWN")
    stale = run(ledger, "release", "--all-matching", "--expected", "1", *MENDED)
    assert (stale.code, stale.error_code) == (3, "plan_stale")
    assert ids(run(ledger, "list")) == [3, 2]  # nothing has moved
    many = run(ledger, "release", "--all-matching", "--because", "parse_error", "--expected", "1", *MENDED).json
    assert (many["job_ids"], many["grant_id"]) == ([3], 2)
    several = run(ledger, "release", "2", "4", *MENDED).json
    assert (several["job_ids"], several["target"].partition(":")[0]) == ([2, 4], "quarantine")

    answer = run(ledger, "history").json
    assert [(past["job_id"], past["by"], past["under"]) for past in answer] == [
        (4, "ann", 4), (2, "ann", 4), (3, "ann", 2), (1, "ann", None),
    ]  # fmt: skip
    assert [past["job_id"] for past in run(ledger, "history", "--job", "3").json] == [3]
    assert holdfast("check", "--db", ledger).code == 0


@pytest.mark.req("K-17")
def test_a_missing_grant_is_refused_where_one_is_needed(empty_url: str) -> None:
    assert holdfast("init", "--env", "prod", "--db", empty_url).code == 0
    assert holdfast("submit", "noop", "--db", empty_url).code == 0
    assert run(empty_url, "add", "1", "--code", "timeout", *MENDED).code == 0
    for more, code in (([], "REJECT_AUTH_MISSING"), (["--grant", "7"], "REJECT_AUTH_NOT_FOUND")):
        refused = run(empty_url, "release", "1", *MENDED, *more)
        assert (refused.code, refused.error_code) == (3, code)
        assert refused.json["context"]["target"] == "job:1"
    many = run(empty_url, "release", "--all-matching", "--expected", "1", *MENDED)
    assert (many.code, many.error_code) == (3, "REJECT_AUTH_MISSING")
    assert many.json["context"]["target"] == run(empty_url, "release", "--all-matching", "--dry-run").json["target"]
    assert ids(run(empty_url, "list")) == [1]


def test_an_expired_key_in_prod_takes_three_commands(empty_url: str, tmp_path: Path) -> None:
    """Request, approve, run: also if the run is repeated."""
    assert holdfast("init", "--env", "prod", "--db", empty_url).code == 0
    with open_store(empty_url) as store:
        quarantined(store, "http_401", n=5, operation="noop")
        quarantined(store, "poison", operation="noop")
    key = tmp_path / "bob"
    assert holdfast("audit", "keygen", str(key)).code == 0
    add_bob = ("grant", "approvers", "add", "bob", "--public-key", f"{key}.pub", "--reason", "first", "--bootstrap")
    assert holdfast(*add_bob, "--db", empty_url).code == 0
    outcome = run(
        empty_url, "release", "--all-matching", "--code", "http_401", "--request", *MENDED, "--rollback-plan", "undo"
    )
    assert (outcome.code, outcome.json["total"], outcome.json["executor"]) == (0, 5, "ann")
    number = str(outcome.json["grant_id"])
    assert holdfast("grant", "approve", number, "--key", str(key), "--db", empty_url).code == 0
    done = run(empty_url, "release", "--grant", number, "--rate", "50", *MENDED)
    assert (done.code, done.json["released"], done.json["state"], done.json["rate"]) == (0, 5, "done", 50)
    assert run(empty_url, "release", "--grant", number, *MENDED).json == done.json
    assert ids(run(empty_url, "list")) == [6]
    assert holdfast("check", "--db", empty_url).code == 0


def test_a_replay_of_quarantined_jobs_says_which_command_releases_them(empty_url: str) -> None:
    assert holdfast("init", "--env", "prod", "--db", empty_url).code == 0
    chosen = ("--status", "quarantined", "--queue", "default", "--created-after", "2026-01-01T00:00:00Z")
    refused = holdfast("replay", "dry-run", *chosen, "--db", empty_url, "--output", "json")
    assert refused.error_code == "spec_invalid"
    step = refused.json["context"]["next_step"]
    assert step.startswith("Release them: `holdfast quarantine release ")
    assert " --all-matching --queue default --request " in step


@pytest.mark.req("G-21", "G-25")
def test_a_purge_counts_first_and_reports_the_result(ledger: str) -> None:
    assert run(ledger, "purge", "--older-than", "30d").json == {
        "applied": False, "jobs": 0, "older_than_s": 2592000.0,
    }  # fmt: skip
    assert run(ledger, "purge", "--older-than", "0s").json["jobs"] == 4
    without = run(ledger, "purge", "--older-than", "0s", "--apply")
    assert (without.code, without.error_code) == (2, "bad_input")
    done = run(ledger, "purge", "--older-than", "0s", "--apply", *MENDED)
    assert (done.code, done.json["applied"], done.json["jobs"]) == (0, True, 4)
    assert run(ledger, "statistics").json["slimmed"] == 3
    refused = run(ledger, "release", "1", *MENDED)
    assert (refused.code, refused.error_code) == (3, "slimmed")
    shown = run(ledger, "show", "1", json=False)
    assert any(line.startswith("payload ") for line in shown.out.splitlines())
    assert "quarantine release" not in shown.out
    assert shown.out.endswith(f"next: holdfast show {at(ledger)} 1\n")


@pytest.mark.req("G-25")
def test_the_journal_has_the_operator_who_is_named_or_else_the_account(sqlite_ledger: str) -> None:
    account = actor()
    for given, expected in ((("--operator", "ann"), "ann"), ((), account)):
        added = holdfast("submit", "noop", "--db", sqlite_ledger, "--json").json
        job_id = str(added["job_id"])
        assert run(sqlite_ledger, "add", job_id, "--code", "poison", "--reason", "x", *given).code == 0
        assert run(sqlite_ledger, "release", job_id, "--reason", "mended", *given).code == 0
        moves = run(sqlite_ledger, "show", job_id).json["moves"]
        assert {row["event"]: row["actor"] for row in moves} == {"quarantine": expected, "release": expected}


def test_the_text_output(sqlite_ledger: str) -> None:
    nothing = run(sqlite_ledger, "list", json=False)
    assert nothing.tells("quarantined")
    assert run(sqlite_ledger, "list", "--cancelled", json=False) == nothing
    for narrowed in (("--queue", "bogus"), ("--code", "x", "--cancelled"), ("--before", "1"), ("--older-than", "1h")):
        assert run(sqlite_ledger, "list", *narrowed, json=False).tells("match")
    assert run(sqlite_ledger, "history", json=False).tells("o releases")
    assert run(sqlite_ledger, "statistics", json=False).tells(0, 0)
    assert holdfast("submit", "noop", "--db", sqlite_ledger).code == 0
    added = run(sqlite_ledger, "add", "1", "--code", "poison", "--reason", "evil \x1b[31m", json=False)
    assert added.tells(1, "poison")
    listed = run(sqlite_ledger, "list", json=False)
    assert listed.out.splitlines()[0].split() == [
        "ID", "REASON", "CODE", "OPERATION", "QUEUE", "CLIENT", "ATTEMPTS", "SINCE", "LAST", "ERROR",
    ]  # fmt: skip
    assert "\x1b" not in listed.out + run(sqlite_ledger, "show", "1", json=False).out
    again = run(sqlite_ledger, "add", "1", "--code", "timeout", "--reason", "x", json=False)
    assert again.tells(1, "already", "poison")


@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "1", "--code", "Bad Code", "--reason", "x"],
        ["add", "1", "--code", "cancelled", "--reason", "x"],
        ["add", "1", "--code", "timeout"],
        ["add", "1", "--code", "timeout", "--reason", " "],
        ["add", "1", "--reason", "x"],
        ["add", "one", "--code", "timeout", "--reason", "x"],
        ["release", "--reason", "x"],
        ["release", "1"],
        ["release", "1", "--all-matching", "--expected", "1", "--reason", "x"],
        ["release", "1", "--code", "timeout", "--reason", "x"],
        ["release", "--all-matching", "--reason", "x"],
        ["release", "--all-matching", "--expected", "0", "--reason", "x"],
        ["release", "--all-matching", "--code", "nothing_has_this", "--dry-run"],
        ["release", "1", "--reason", "x", "--run-at", "2099-01-31"],
        ["release", "1", "--reason", "x", "--grant", "0"],
        ["release", "1", "--reason", "x", "--operator", ""],
        ["list", "--reason", "bad luck"],
        ["list", "--older-than", "soon"],
        ["list", "--older-than", "0x"],
        ["list", "--older-than", "999999999w"],
        ["list", "--limit", "0"],
        ["list", "--code", ""],
        ["purge"],
        ["purge", "--older-than", "30d", "--apply"],
        ["history", "--job", "0"],
        ["nonsense"],
    ],
)
def test_bad_input_is_exit_2_and_leaves_nothing_behind(one_job: str, arguments: list[str]) -> None:
    said = run(one_job, *arguments)
    assert (said.code, said.error_code) == (2, "bad_input")
    with open_store(one_job) as store, store.reading() as reading:
        assert (reading.jobs.get(1).version, reading.grants.page()) == (1, [])


@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "9", "--code", "timeout", "--reason", "x"], ["show", "9"], ["release", "9", "--reason", "x"],
        ["release", "1", "9", "--reason", "x"],
    ],
)  # fmt: skip
def test_a_job_that_is_not_there(one_job: str, arguments: list[str]) -> None:
    said = run(one_job, *arguments)
    assert (said.code, said.error_code) == (1, "job_not_found")


def test_it_runs_as_a_process(sqlite_ledger: str) -> None:
    said = process("quarantine", "statistics", "--db", sqlite_ledger, "--json")
    assert (said.code, said.json["total"]) == (0, 0)
