"""`holdfast switch`: throw, lift and list; exit codes, and nothing left behind by bad input."""

from __future__ import annotations

import pytest

from holdfast.store import Declared, open_store
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
    assert run(ledger, "throw", "operation:nop", "--anyway", *ANN).json["operation_known"] is False
    assert "operation_known" not in run(ledger, "throw", "my-own", "--anyway", *ANN).json
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
def test_a_missing_grant_is_refused_where_one_is_needed(empty_url: str) -> None:
    assert holdfast("init", "--env", "prod", "--db", empty_url).code == 0
    assert run(empty_url, "throw", "replay", *ANN).code == 0  # throwing a switch needs no grant
    refused = run(empty_url, "lift", "replay", *ANN)
    assert (refused.code, refused.error_code) == (3, "REJECT_AUTH_MISSING")
    assert refused.json["context"]["target"] == "switch:replay"
    assert [switch["state"] for switch in run(empty_url, "list").json] == ["on"]


def test_the_text_output(sqlite_ledger: str) -> None:
    assert run(sqlite_ledger, "list", json=False).tells("o switch")
    assert run(sqlite_ledger, "throw", "operation:x", "--anyway", *ANN, json=False).tells("operation:x", "on", "note")
    again = run(sqlite_ledger, "throw", "operation:x", "--reason", "y", json=False)
    assert again.tells("operation:x", "already", "ann", "it eats disks")
    assert run(sqlite_ledger, "list", json=False).out.splitlines()[0].split() == [
        "NAME", "STATE", "THROWN", "BY", "REASON",
    ]  # fmt: skip
    assert run(sqlite_ledger, "lift", "operation:x", *ANN, json=False).tells("operation:x", "off", "grant 1")
    assert run(sqlite_ledger, "lift", "operation:x", *ANN, json=False).tells("operation:x", "already", "off")


NAMES = ["operation:echo", "operation:noop", "replay", "replay:default", "replay:slow", "REGISTRATION_HOLD"]


@pytest.mark.req("K-55", "G-25")
def test_an_unknown_switch_is_refused_with_the_known_names(ledger: str) -> None:
    with open_store(ledger) as store, store.transaction() as transaction:
        transaction.operations.declare({"echo": Declared(queue="slow")})
    for slip, near in (("operation:noob", "operation:noop"), ("replays", "replay"), ("replay:slo", "replay:slow")):
        refused = run(ledger, "throw", slip, *ANN)
        assert (refused.code, refused.error_code) == (2, "bad_input")
        answer = refused.json
        assert answer["context"]["switch"] == slip
        assert answer["context"]["switches"] == NAMES
        assert answer["context"]["next_step"].startswith(f"Use one of {near}, ")
        assert all(name in answer["context"]["next_step"] for name in NAMES)
    assert run(ledger, "list", "--all").json == []
    for name in NAMES:
        assert run(ledger, "throw", name, *ANN).json["changed"] is True
    # A name of the user's own needs --anyway the first time; then it is known.
    assert run(ledger, "throw", "my-own", "--anyway", *ANN).json["changed"] is True
    assert run(ledger, "throw", "my-own", *ANN).json["changed"] is False
    assert run(ledger, "lift", "my-own", *ANN).json["changed"] is True
    assert run(ledger, "throw", "my-own", *ANN).json["changed"] is True


def test_a_queue_with_jobs_can_be_switched_off(sqlite_ledger: str) -> None:
    assert holdfast("submit", "noop", "--queue", "goes", "--db", sqlite_ledger).code == 0
    assert run(sqlite_ledger, "throw", "replay:goes", *ANN).code == 0


def test_of_many_known_names_the_nearest_are_listed(sqlite_ledger: str) -> None:
    with open_store(sqlite_ledger) as store, store.transaction() as transaction:
        transaction.operations.declare({f"op{n:03}": Declared() for n in range(100)})
    said = run(sqlite_ledger, "throw", "operation:op77", *ANN, json=False).err
    step = said.splitlines()[1]
    assert step.startswith("next:  Use one of operation:op077, ")
    assert step.count("operation:") == 20
    assert " and 84 more; or give --anyway " in step


@pytest.mark.parametrize(
    "arguments, code, error_code",
    [
        (["throw", "replay"], 2, "bad_input"),
        (["throw", "replay", "--reason", " "], 2, "bad_input"),
        (["throw", "a*", "--reason", "x"], 2, "bad_input"),
        (["throw", "a*", "--anyway", "--reason", "x"], 2, "bad_input"),
        (["throw", "my-own", "--reason", "x"], 2, "bad_input"),
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
        assert (reading.switches.page(), reading.grants.page()) == ([], [])
