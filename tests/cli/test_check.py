"""`holdfast check`."""

from __future__ import annotations

import re

import pytest

from holdfast.audit.check.catalogue import BY_NAME
from tests.cli.commands import at, holdfast, typed
from tests.cli.test_setup import drop_a_trigger, execute
from tests.enforcement.schema import everything_in


def count_wrongly(url: str) -> None:
    execute(url, "INSERT INTO holdfast_counts (operation, queue, state, n) VALUES ('ghost', 'attic', 'pending', 3)")


@pytest.mark.req("G-06", "G-27")
def test_a_sound_ledger_exits_with_0(history: str) -> None:
    before = everything_in(history)
    outcome = holdfast("check", "--db", history, "--json")
    assert outcome.code == 0
    value = outcome.json
    assert (value["ok"], value["violations"], value["more"]) == (True, [], False)
    assert (value["checked"]["jobs"], value["checked"]["executions"]) == (5, 4)
    rows = value["checked"]["journal"]
    said = holdfast("check", "--db", history)
    assert said.tells("5 jobs", "4 executions", f"{rows} journal rows")
    quick = holdfast("check", "--cheap", "--db", history)
    assert (quick.code, quick.err, len(quick.out.splitlines())) == (0, "", 1)
    assert everything_in(history) == before


@pytest.mark.req("G-06", "G-27")
def test_violations_are_listed_and_exit_with_1(history: str) -> None:
    count_wrongly(history)
    outcome = holdfast("check", "--db", history, "--json")
    assert outcome.code == 1
    assert outcome.json["ok"] is False
    [found] = outcome.json["violations"]
    assert "3" in found.pop("detail")
    assert [found] == [
        {
            "invariant": "counts_true",
            "subject": "COUNTS ghost/attic/pending",
            "severity": "error",
            "machine": None,
            "id": None,
            "evidence": {
                "kind": "count", "operation": "ghost", "queue": "attic", "state": "pending", "counted": 3, "found": 0,
            },
        }
    ]  # fmt: skip


def test_the_text_has_a_table_the_meaning_and_the_next_command(history: str) -> None:
    count_wrongly(history)
    said = holdfast("check", "--db", history)
    assert (said.code, said.err) == (1, "")
    head, _, row, *rest = said.out.splitlines()
    assert head.split() == ["SUBJECT", "INVARIANT", "SEVERITY", "DETAIL"]
    *cells, detail = re.split(r" {2,}", row.rstrip())
    assert cells == ["COUNTS ghost/attic/pending", "counts_true", "error"]
    assert "3" in detail
    meaning = BY_NAME["counts_true"]
    assert f"counts_true  {meaning.meaning} Repair: {meaning.remedy}." in [line.rstrip() for line in rest]
    repair = f"holdfast repair {at(history)}"
    assert rest[-1].startswith("next:  ")
    assert f"`{repair}`" in rest[-1]
    assert "recount" in typed(repair).out


def test_only_the_named_invariants_are_checked(history: str) -> None:
    count_wrongly(history)
    assert holdfast("check", "--only", "one_state", "--only", "keys_unique", "--db", history).code == 0
    both = holdfast("check", "--only", "one_state", "--only", "counts_true", "--db", history, "--json")
    assert (both.code, len(both.json["violations"])) == (1, 1)
    unknown = holdfast("check", "--only", "counts_false", "--db", history, "--json")
    assert (unknown.code, unknown.error_code) == (2, "bad_input")
    assert "counts_true" in unknown.json["context"]["next_step"]
    assert holdfast("check", "--limit", "0", "--db", history, "--json").code == 2


@pytest.mark.req("G-27")
def test_a_ledger_that_other_commands_refuse_can_be_checked(history: str) -> None:
    name = drop_a_trigger(history)
    assert holdfast("jobs", "--db", history).error_code == "enforcement_drift"
    for flags in ((), ("--cheap",)):
        outcome = holdfast("check", *flags, "--db", history, "--json")
        assert outcome.code == 1
        assert [(v["invariant"], v["subject"]) for v in outcome.json["violations"]] == [
            ("enforcement", f"TRIGGER {name}")
        ]
    said = holdfast("check", "--db", history)
    assert said.out.endswith(f"`holdfast migrate {at(history)}`.\n")
    assert typed(f"holdfast migrate {at(history)}").code == 0
    assert holdfast("check", "--db", history).code == 0


def test_a_warning_is_shown_and_is_no_error(history: str) -> None:
    execute(
        history,
        "UPDATE holdfast_jobs SET lease_expires_at = '2020-01-01T00:00:00.000000Z' WHERE lease_expires_at IS NOT NULL",
    )
    outcome = holdfast("check", "--db", history, "--json")
    assert outcome.code == 0
    assert outcome.json["ok"] is True
    [found] = outcome.json["violations"]
    assert (found["invariant"], found["subject"], found["severity"]) == (
        "lease_overdue",
        "EXECUTION 4000001",
        "warning",
    )
    said = holdfast("check", "--db", history)
    assert said.code == 0
    assert said.out.endswith(f"next:  Start a worker, or run `holdfast recover {at(history)}`.\n")


def test_more_violations_than_the_limit_are_reported(history: str) -> None:
    count_wrongly(history)
    execute(
        history, "INSERT INTO holdfast_counts (operation, queue, state, n) VALUES ('ghost', 'cellar', 'pending', 1)"
    )
    outcome = holdfast("check", "--limit", "1", "--db", history, "--json")
    assert (outcome.code, len(outcome.json["violations"]), outcome.json["more"]) == (1, 1, True)
    assert "--limit" in holdfast("check", "--limit", "1", "--db", history).out


def test_a_schema_of_its_own(pg_url: str) -> None:
    execute(pg_url, "CREATE SCHEMA work")
    assert holdfast("init", "--db", pg_url, "--schema", "work").code == 0
    assert holdfast("submit", "noop", "--db", pg_url, "--schema", "work").code == 0
    outcome = holdfast("check", "--db", pg_url, "--schema", "work", "--json")
    assert outcome.json["checked"] == {"jobs": 1, "executions": 0, "journal": 1}
    execute(pg_url, "DROP INDEX work.holdfast_calls_key")
    outcome = holdfast("check", "--db", pg_url, "--schema", "work", "--json")
    assert [v["subject"] for v in outcome.json["violations"]] == ["INDEX holdfast_calls_key"]
    missing = holdfast("check", "--db", pg_url, "--json")
    assert (missing.code, missing.error_code) == (4, "not_a_ledger")


def test_a_database_without_a_ledger_is_an_error(sqlite_url: str) -> None:
    missing = holdfast("check", "--db", sqlite_url, "--json")
    assert (missing.code, missing.error_code) == (4, "not_a_ledger")
    none = holdfast("check", "--json")
    assert (none.code, none.error_code) == (2, "url_invalid")
