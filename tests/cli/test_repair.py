"""`holdfast repair`: a plan that changes nothing, and its application by a named operator with a reason."""

from __future__ import annotations

import pytest

from holdfast.store import connect, create_store
from holdfast.testing import VirtualClock
from tests.audit.corruptions import corrupt
from tests.audit.knife import unguarded
from tests.audit.rich import Rich, make_rich
from tests.cli.commands import at, holdfast


@pytest.fixture
def rich(empty_url: str) -> Rich:
    clock = VirtualClock()
    with create_store(empty_url, clock) as store:
        return make_rich(store, clock)


def count(url: str) -> int:
    with connect(url) as store, store.reading() as reading:
        [[n]] = reading.execute("SELECT sum(n) FROM holdfast_counts WHERE operation = 'ghost'")
        return int(n or 0)


def test_a_ledger_is_repaired_under_a_reviewed_plan(empty_url: str, rich: Rich) -> None:
    corrupt(empty_url, rich, "a_version_too_many")
    corrupt(empty_url, rich, "counts_of_nothing")
    shown = holdfast("repair", "--db", empty_url, "--json")
    assert shown.code == 1
    planned = shown.json
    assert (planned["ok"], planned["applied"]) == (False, False)
    # A lease of the rich ledger has run out by the real clock: it is recovered with the rest.
    acts = {(act["kind"], act["subject"]) for act in planned["repairs"]} - {
        (act["kind"], act["subject"]) for act in planned["repairs"] if act["kind"] == "recover"
    }
    assert acts == {("mend", f"JOB {rich.failed}"), ("recount", "COUNTS")}
    assert count(empty_url) == 3

    refused = holdfast("repair", "--db", empty_url, "--apply", planned["digest"], "--json")
    assert (refused.code, refused.error_code) == (2, "bad_input")
    stale = holdfast("repair", "--db", empty_url, "--apply", "0" * 64, "--operator", "ann", "--reason", "x", "--json")
    assert (stale.code, stale.error_code) == (3, "plan_stale")
    assert count(empty_url) == 3

    given = ("--operator", "ann", "--reason", "incident 7", "--json")
    done = holdfast("repair", "--db", empty_url, "--apply", planned["digest"], *given)
    assert (done.code, done.json["ok"], done.json["applied"]) == (0, True, True)
    assert done.json["repairs"] == planned["repairs"]
    assert count(empty_url) == 0
    assert holdfast("repair", "--db", empty_url).code == 0


def test_people_see_what_would_be_done_and_how_to_do_it(empty_url: str, rich: Rich) -> None:
    corrupt(empty_url, rich, "a_payload_that_was_edited")
    shown = holdfast("repair", "--db", empty_url)
    assert shown.code == 1
    assert f"JOB {rich.waiting}" in shown.out
    assert "the payload differs from what was submitted" in shown.out
    assert f"holdfast repair {at(empty_url)} --apply " in shown.out
    assert "somebody else" not in shown.out  # no payload reaches a terminal


def test_damage_that_cannot_be_repaired_is_reported(empty_url: str, rich: Rich) -> None:
    corrupt(empty_url, rich, "a_seal_that_was_edited")
    shown = holdfast("repair", "--db", empty_url, "--json")
    assert shown.code == 1
    assert {(v["invariant"], v["subject"]) for v in shown.json["left"]} == {("seals_chained", "SEAL 1")}
    assert "SEAL 1" in holdfast("repair", "--db", empty_url).out


def test_remaining_damage_is_named_and_the_rest_is_repaired(empty_url: str, rich: Rich) -> None:
    with unguarded(empty_url, rich) as knife:
        knife.run("DELETE FROM holdfast_grants WHERE grant_id = ?", rich.draft_grant)
    corrupt(empty_url, rich, "counts_of_nothing")
    name = f"GRANT {rich.draft_grant}"
    planned = holdfast("repair", "--db", empty_url, "--json").json
    given = ("--operator", "ann", "--reason", "incident 7")
    done = holdfast("repair", "--db", empty_url, "--apply", planned["digest"], *given, "--json")
    assert (done.code, done.json["ok"], done.json["applied"]) == (1, False, True)
    assert count(empty_url) == 0
    assert [(v["invariant"], v["subject"]) for v in done.json["left"]] == [("no_orphans", name)]
    [given_up] = done.json["given_up"]
    assert given_up["subject"] == name
    assert "holdfast_grants" in given_up["restore"]
    shown = holdfast("repair", "--db", empty_url)
    assert shown.code == 1
    assert given_up["restore"] in shown.out
    assert "--apply" not in shown.out


def test_a_ledger_without_its_triggers_can_be_repaired(empty_url: str, rich: Rich) -> None:
    corrupt(empty_url, rich, "a_trigger_that_is_gone")
    assert holdfast("jobs", "--db", empty_url, "--json").error_code == "enforcement_drift"
    planned = holdfast("repair", "--db", empty_url, "--json").json
    given = ("--operator", "ann", "--reason", "it was dropped")
    assert holdfast("repair", "--db", empty_url, "--apply", planned["digest"], *given).code == 0
    assert holdfast("jobs", "--db", empty_url, "--json").code == 0


def test_repair_of_a_missing_ledger_is_refused(empty_url: str) -> None:
    assert holdfast("repair", "--db", empty_url, "--json").error_code == "not_a_ledger"
