"""`holdfast switch`: throw, lift and list; exit codes, and nothing left behind by bad input."""

from __future__ import annotations

import pytest

from holdfast.store import open_store
from tests.cli.commands import Outcome, holdfast

ANN = ("--operator", "ann", "--reason", "it eats disks")


def run(db: str, *arguments: str, json: bool = True) -> Outcome:
    return holdfast("switch", *arguments, "--db", db, *(["--json"] if json else []))


@pytest.mark.req("K-55", "G-25")
def test_throw_list_and_lift(ledger: str) -> None:
    thrown = run(ledger, "throw", "operation:noop", *ANN)
    assert (thrown.code, thrown.json["state"], thrown.json["changed"]) == (0, "on", True)
    assert (thrown.json["thrown_by"], thrown.json["reason"]) == ("ann", "it eats disks")
    assert thrown.json["operation_known"] is True
    again = run(ledger, "throw", "operation:noop", "--as", "eve", "--reason", "me too").json
    assert (again["changed"], again["thrown_by"]) == (False, "ann")
    assert run(ledger, "throw", "operation:nop", *ANN).json["operation_known"] is False
    assert "operation_known" not in run(ledger, "throw", "my-own", *ANN).json
    assert [switch["name"] for switch in run(ledger, "list").json] == ["my-own", "operation:noop", "operation:nop"]

    lifted = run(ledger, "lift", "operation:noop", "--as", "eve", "--reason", "a larger disk").json
    assert (lifted["state"], lifted["changed"], lifted["grant_id"]) == ("off", True, 1)
    assert run(ledger, "lift", "operation:noop", *ANN).json["changed"] is False
    assert [switch["name"] for switch in run(ledger, "list").json] == ["my-own", "operation:nop"]
    last = run(ledger, "list", "--all").json[-1]
    assert (last["name"], last["thrown_by"], last["reason"]) == ("operation:noop", "ann", "it eats disks")
    assert (last["lifted_by"], last["lifted_reason"], last["grant_id"]) == ("eve", "a larger disk", 1)
    assert len(run(ledger, "list", "--all", "--limit", "2").json) == 2
    assert holdfast("check", "--db", ledger).code == 0


@pytest.mark.req("K-55")
def test_where_a_grant_is_needed_its_absence_is_a_refusal(ledger_url: str) -> None:
    assert holdfast("init", "--env", "prod", "--db", ledger_url).code == 0
    assert run(ledger_url, "throw", "replay", *ANN).code == 0  # to stop needs nobody's leave
    refused = run(ledger_url, "lift", "replay", *ANN)
    assert (refused.code, refused.error_code) == (3, "REJECT_AUTH_MISSING")
    assert refused.json["context"]["target"] == "switch:replay"
    assert [switch["state"] for switch in run(ledger_url, "list").json] == ["on"]


def test_the_words_for_people(sqlite_ledger: str) -> None:
    assert run(sqlite_ledger, "list", json=False).out == "no switch is on\n"
    assert run(sqlite_ledger, "throw", "operation:x", *ANN, json=False).out == (
        "operation:x is on\nnote: no process has declared an operation of that name to this ledger\n"
    )
    again = run(sqlite_ledger, "throw", "operation:x", "--reason", "y", json=False)
    assert again.out.startswith("operation:x was on already, by ann: it eats disks\n")
    assert run(sqlite_ledger, "list", json=False).out.splitlines()[0].split() == [
        "NAME", "STATE", "THROWN", "BY", "WHY",
    ]  # fmt: skip
    assert run(sqlite_ledger, "lift", "operation:x", *ANN, json=False).out == "operation:x is off, under grant 1\n"
    assert run(sqlite_ledger, "lift", "operation:x", *ANN, json=False).out == "operation:x was off already\n"


@pytest.mark.parametrize(
    "arguments, code, error_code",
    [
        (["throw", "replay"], 2, "bad_input"),
        (["throw", "replay", "--reason", " "], 2, "bad_input"),
        (["throw", "a*", "--reason", "x"], 2, "bad_input"),
        (["throw", "operation:", "--reason", "x"], 2, "bad_input"),
        (["throw", "", "--reason", "x"], 2, "bad_input"),
        (["throw", "replay", "--operator", "", "--reason", "x"], 2, "bad_input"),
        (["lift", "replay"], 2, "bad_input"),
        (["lift", "replay", "--reason", "x"], 1, "record_not_found"),
        (["lift", "replay", "--reason", "x", "--grant", "0"], 2, "bad_input"),
        (["list", "--limit", "0"], 2, "bad_input"),
        (["toggle", "replay"], 2, "bad_input"),
    ],
)
def test_bad_input(sqlite_ledger: str, arguments: list[str], code: int, error_code: str) -> None:
    said = run(sqlite_ledger, *arguments)
    assert (said.code, said.error_code) == (code, error_code)
    with open_store(sqlite_ledger) as store, store.reading() as reading:
        assert (reading.switches(), reading.grants()) == ([], [])
