"""Repair of grants, steps, values and switches: their journal decides, or the state that permits least."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.audit.check.runner import check
from holdfast.audit.repair.repair import RepairReport, plan, repair
from holdfast.core.authority import Act
from holdfast.governance.grants import permission
from holdfast.store import Store, connect
from holdfast.testing import VirtualClock
from tests.audit.knife import LONG_AGO, Knife, unguarded
from tests.audit.rich import Rich

Ledger = tuple[str, Rich]


@contextmanager
def repaired(
    ledger: Ledger, clock: VirtualClock, edit: Callable[[Knife], None]
) -> Iterator[tuple[Store[Any], RepairReport]]:
    """Edit a ledger past its triggers, repair it, and yield the store and the report."""
    url, rich = ledger
    with unguarded(url, rich) as knife:
        edit(knife)
    with connect(url, clock) as store:
        done = carried_out(store)
        assert check(store).violations == ()
        yield store, done


def carried_out(store: Store[Any]) -> RepairReport:
    digest = plan(store).digest
    permit = permission(Act.REPAIR, "ledger", executor="ann", reason="mended", plan=digest)
    return repair(store, operator="ann", reason="mended", expected=digest, permit=permit)


def image(store: Store[Any], table: str, **which: int) -> dict[str, Any]:
    with store.reading() as reading:
        [found] = reading.maintenance.images(table, **which)
    return found


def moved(done: RepairReport) -> list[tuple[str, str, object]]:
    return [(act.kind, act.subject, act.after.get("state")) for act in done.acts]


def without_its_birth(machine: str, subject: int) -> Callable[[Knife], None]:
    def edit(knife: Knife) -> None:
        knife.run("DELETE FROM holdfast_journal WHERE machine = ? AND subject = ? AND version = 1", machine, subject)

    return edit


def test_a_switch_and_a_step_get_the_state_of_their_last_journal_row(
    rich_ledger: Ledger, rich_clock: VirtualClock
) -> None:
    rich = rich_ledger[1]

    def edit(knife: Knife) -> None:
        knife.set("SWITCH", rich.switch, state="off")
        knife.set("STEP", rich.step, state="undone")
        knife.set("SWITCH", rich.lifted_switch, state="lost")

    with repaired(rich_ledger, rich_clock, edit) as (store, done):
        assert moved(done) == [
            ("move", f"STEP {rich.step}", "performed"),
            ("move", f"SWITCH {rich.switch}", "on"),
            ("move", f"SWITCH {rich.lifted_switch}", "off"),
        ]
        assert image(store, "holdfast_switches", switch_id=rich.switch)["state"] == "on"
        assert image(store, "holdfast_switches", switch_id=rich.lifted_switch)["state"] == "off"
        assert image(store, "holdfast_steps", step_id=rich.step)["state"] == "performed"


@pytest.mark.parametrize("state", ["off", "lost"])
def test_a_switch_without_proof_that_it_was_lifted_is_switched_on(
    rich_ledger: Ledger, rich_clock: VirtualClock, state: str
) -> None:
    rich = rich_ledger[1]

    def edit(knife: Knife) -> None:
        without_its_birth("SWITCH", rich.lifted_switch)(knife)
        knife.set("SWITCH", rich.lifted_switch, state=state)

    with repaired(rich_ledger, rich_clock, edit) as (store, done):
        assert moved(done) == [("move", f"SWITCH {rich.lifted_switch}", "on")]
        with store.reading() as reading:
            assert set(reading.switches.on()) == {"registration", "replay"}


def test_a_switch_without_proof_stays_off_if_another_of_its_name_is_on(
    rich_ledger: Ledger, rich_clock: VirtualClock
) -> None:
    url, rich = rich_ledger
    with connect(url, rich_clock) as store, store.transaction() as transaction:
        assert transaction.switches.throw("registration", actor="ann", reason="again")
    with repaired(rich_ledger, rich_clock, without_its_birth("SWITCH", rich.lifted_switch)) as (store, done):
        assert moved(done) == [("tell", f"SWITCH {rich.lifted_switch}", "off")]
        with store.reading() as reading:
            on = reading.switches.on()
        assert {name: switch.switch_id == rich.lifted_switch for name, switch in on.items()} == {
            "registration": False,
            "replay": False,
        }


def test_steps_and_values_with_incomplete_history_stay_unchanged(rich_ledger: Ledger, rich_clock: VirtualClock) -> None:
    rich = rich_ledger[1]

    def edit(knife: Knife) -> None:
        for machine, subject in (("STEP", rich.undone_step), ("VALUE", rich.superseded)):
            without_its_birth(machine, subject)(knife)

    with repaired(rich_ledger, rich_clock, edit) as (store, done):
        assert moved(done) == [
            ("tell", f"STEP {rich.undone_step}", "undone"),
            ("tell", f"VALUE {rich.superseded}", "superseded"),
        ]
        assert image(store, "holdfast_values", value_id=rich.superseded)["successor_code"] == "echo.two"


def test_a_lost_successor_of_a_value_cannot_be_repaired(rich_ledger: Ledger, rich_clock: VirtualClock) -> None:
    url, rich = rich_ledger
    with unguarded(url, rich) as knife:
        knife.set("VALUE", rich.superseded, state="active", successor_code=None, successor_version=None)
        knife.set("JOB", rich.failed, version=9)
    with connect(url, rich_clock) as store:
        done = carried_out(store)
        assert [(act.kind, act.subject) for act in done.acts] == [("mend", f"JOB {rich.failed}")]
        left = [("journal_continuous", f"VALUE {rich.superseded}")]
        assert [(violation.invariant, violation.subject) for violation in done.left] == left
        [given_up] = done.given_up
        assert given_up.subject == f"VALUE {rich.superseded}"
        assert re.findall(r"holdfast_\w+", given_up.restore) == ["holdfast_values", "holdfast_journal"]
        assert check(store).violations == done.left
        assert image(store, "holdfast_values", value_id=rich.superseded)["state"] == "active"


def test_a_value_that_is_active_names_no_successor(rich_ledger: Ledger, rich_clock: VirtualClock) -> None:
    rich = rich_ledger[1]

    def edit(knife: Knife) -> None:
        successor = {"successor_code": "echo", "successor_version": "1.0.0"}
        knife.set("VALUE", rich.value, state="superseded", **successor)

    with repaired(rich_ledger, rich_clock, edit) as (store, done):
        assert moved(done) == [("move", f"VALUE {rich.value}", "active")]
        assert image(store, "holdfast_values", value_id=rich.value)["successor_code"] is None


def test_a_grant_with_incomplete_history_is_revoked(rich_ledger: Ledger, rich_clock: VirtualClock) -> None:
    rich = rich_ledger[1]
    with repaired(rich_ledger, rich_clock, without_its_birth("GRANT", rich.active_grant)) as (store, done):
        assert moved(done) == [("move", f"GRANT {rich.active_grant}", "revoked")]
        with store.reading() as reading:
            assert reading.grants.open_for("registry.retire", "echo.two") == []


def test_a_consumed_grant_gets_its_consumer_back(rich_ledger: Ledger, rich_clock: VirtualClock) -> None:
    rich = rich_ledger[1]

    def edit(knife: Knife) -> None:
        knife.set("GRANT", rich.released_grant, state="lost", consumed_by=None)

    with repaired(rich_ledger, rich_clock, edit) as (store, _):
        grant = image(store, "holdfast_grants", grant_id=rich.released_grant)
        assert (grant["state"], grant["consumed_by"]) == ("consumed", "operator-1")


def test_a_switch_whose_history_is_archived_stays_as_it_is(rich_ledger: Ledger, rich_clock: VirtualClock) -> None:
    url, rich = rich_ledger
    as_retention_does_it = (
        f"DELETE FROM holdfast_journal WHERE machine = 'SWITCH' AND subject = {rich.lifted_switch}",
        f"UPDATE holdfast_switches SET history_from = version + 1 WHERE switch_id = {rich.lifted_switch}",
        f"INSERT INTO holdfast_archives VALUES (1, 1, 1, '1.jsonl', '', 2, 0, '{LONG_AGO}')",
    )
    with (
        connect(url, rich_clock) as store,
        store.transaction() as transaction,
        transaction.maintenance.open(who="keeper", why="retention"),
    ):
        for statement in as_retention_does_it:
            transaction.execute(statement)
    with connect(url, rich_clock) as store:
        assert check(store).violations == ()

    def edit(knife: Knife) -> None:
        knife.set("SWITCH", rich.lifted_switch, updated_at="2020-01-01T00:00:00.000000Z")

    with repaired((url, rich), rich_clock, edit) as (store, done):
        assert [(act.kind, act.subject) for act in done.acts] == [("mend", f"SWITCH {rich.lifted_switch}")]
        assert image(store, "holdfast_switches", switch_id=rich.lifted_switch)["state"] == "off"
