"""`holdfast nodd check`."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.nodd.check.catalogue import BY_NAME
from holdfast.nodd.tables import SETTING
from holdfast.store import open_store
from tests.cli.commands import at, holdfast
from tests.cli.test_setup import drop_a_trigger, execute
from tests.enforcement.schema import everything_in
from tests.nodd.messages import event, record

CHECKED = {"units": 1, "provenance": 0, "items": 0, "observations": 0, "rejected": 1}
WAL_ID = "d1e6671d-0363-5ed1-9595-12646b8bdf50"


def admitted(ledger: str) -> str:
    holdfast("nodd", "admit", "--db", ledger, stdin=b"garbage\n" + event(record()).encode())
    return ledger


def test_a_sound_ledger_exits_with_0(ledger: str) -> None:
    before = everything_in(ledger)
    assert holdfast("nodd", "check", "--db", ledger).tells("nodd")
    assert everything_in(ledger) == before  # no table was made
    assert "nodd" not in holdfast("check", "--db", ledger).out
    admitted(ledger)
    before = everything_in(ledger)
    outcome = holdfast("nodd", "check", "--db", ledger, "--json")
    assert (outcome.code, outcome.json) == (0, {"ok": True, "violations": [], "checked": CHECKED, "more": False})
    people = holdfast("nodd", "check", "--db", ledger)
    assert people.tells("1 units", "0 provenance", "0 items", "0 observations", "1 rejected")
    assert everything_in(ledger) == before
    *_, last = holdfast("check", "--db", ledger).out.splitlines()
    assert last.endswith(f"`holdfast nodd check {at(ledger)}`")


def test_violations_are_listed_and_exit_with_1(ledger: str) -> None:
    execute(admitted(ledger), "UPDATE nodd_units SET attempts_before = 3")
    outcome = holdfast("nodd", "check", "--db", ledger, "--json")
    assert outcome.code == 1
    [found] = outcome.json["violations"]
    assert found == {
        "invariant": "replacements_carry_on",
        "subject": f"UNIT {WAL_ID}",
        "detail": found["detail"],
        "severity": "error",
        "machine": None,
        "id": None,
        "evidence": {"kind": "not_carried", "job_id": 1, "object_uri": found["evidence"]["object_uri"]},
    }
    assert found["evidence"]["object_uri"].startswith("s3://noaa-gfs-bdp-pds/gfs.20260726/")

    said = holdfast("nodd", "check", "--db", ledger)
    assert (said.code, said.err) == (1, "")
    head, _, row, *rest = said.out.splitlines()
    assert head.split() == ["SUBJECT", "INVARIANT", "SEVERITY", "DETAIL"]
    assert re.split(r" {2,}", row.rstrip()) == [found["subject"], found["invariant"], "error", found["detail"]]
    meaning = BY_NAME["replacements_carry_on"]
    explained = f"replacements_carry_on  {meaning.meaning} Remedy: {meaning.remedy}."
    assert explained in [line.rstrip() for line in rest]
    assert rest[-1].startswith("next:  ")
    assert f"`holdfast check {at(ledger)}`" in rest[-1]


def test_a_warning_is_shown_and_is_no_error(ledger: str) -> None:
    execute(admitted(ledger), "UPDATE nodd_counts SET n = 7 WHERE fate = 'admitted'")
    outcome = holdfast("nodd", "check", "--db", ledger, "--json")
    assert (outcome.code, outcome.json["ok"]) == (0, True)
    [found] = outcome.json["violations"]
    assert (found["subject"], found["severity"]) == ("COUNTS gfs/admitted", "warning")
    assert found["evidence"] == {"kind": "count", "dataset": "gfs", "counted": 7, "found": 1}


def test_only_the_named_invariants_are_checked_up_to_the_limit(ledger: str) -> None:
    execute(admitted(ledger), "UPDATE nodd_units SET attempts_before = 3, superseded_by = 'x', etag = 'x'")
    assert holdfast("nodd", "check", "--only", "sequencers_grow", "--only", "tables", "--db", ledger).code == 0
    one = holdfast("nodd", "check", "--only", "replacements_carry_on", "--db", ledger, "--json")
    assert (one.code, [found["invariant"] for found in one.json["violations"]]) == (1, ["replacements_carry_on"])
    some = holdfast("nodd", "check", "--limit", "2", "--db", ledger, "--json")
    assert (some.code, len(some.json["violations"]), some.json["more"]) == (1, 2, True)
    assert "--limit" in holdfast("nodd", "check", "--limit", "2", "--db", ledger).out
    unknown = holdfast("nodd", "check", "--only", "all_well", "--db", ledger, "--json")
    assert (unknown.code, unknown.error_code) == (2, "bad_input")
    assert "sequencers_grow" in unknown.json["context"]["next_step"]
    nowhere = holdfast("nodd", "check", "--datasets", "/nowhere", "--db", ledger, "--json")
    assert (nowhere.code, nowhere.error_code) == (2, "spec_invalid")


def test_a_ledger_that_other_commands_refuse_can_be_checked(ledger: str) -> None:
    drop_a_trigger(admitted(ledger))
    assert holdfast("nodd", "records", "--db", ledger).error_code == "enforcement_drift"
    assert holdfast("nodd", "check", "--db", ledger).code == 0


def test_a_database_without_a_ledger_or_without_the_nodd_tables_is_an_error(ledger: str, tmp_path: Path) -> None:
    missing = holdfast("nodd", "check", "--db", str(tmp_path / "none.db"), "--json")
    assert (missing.code, missing.error_code) == (4, "not_a_ledger")
    file, copy = str(tmp_path / "a.snapshot"), str(tmp_path / "copy.db")
    holdfast("snapshot", "create", file, "--db", admitted(ledger))
    holdfast("snapshot", "restore", file, "--db", copy)
    refused = holdfast("nodd", "check", "--db", copy, "--json")
    assert (refused.code, refused.error_code) == (4, "store_damaged")


def test_tables_of_another_version_are_refused(ledger: str) -> None:
    admitted(ledger)
    with open_store(ledger) as store, store.transaction() as transaction:
        transaction.settings.set(SETTING, "1")
    before = everything_in(ledger)
    for words in (("check",), ("records",)):
        refused = holdfast("nodd", *words, "--db", ledger, "--json")
        assert (refused.code, refused.error_code) == (4, "schema_version")
    assert everything_in(ledger) == before


def test_a_schema_of_its_own(pg_url: str) -> None:
    execute(pg_url, "CREATE SCHEMA work")
    place = ("--db", pg_url, "--schema", "work")
    assert holdfast("init", *place).code == 0
    holdfast("nodd", "admit", *place, stdin=event(record()).encode())
    assert holdfast("nodd", "check", *place, "--json").json["checked"]["units"] == 1
    execute(pg_url, "DROP TABLE work.nodd_observations")
    outcome = holdfast("nodd", "check", *place, "--json")
    assert (outcome.code, [one["subject"] for one in outcome.json["violations"]]) == (1, ["TABLE nodd_observations"])
