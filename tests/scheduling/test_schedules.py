"""Schedules: declared, saved, fired once, missed, overlapping, paused and changed."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Execution, Ledger
from holdfast.core.errors import ArgumentsError, RecordNotFoundError, ScheduleInvalidError
from holdfast.core.machines import JobState
from holdfast.scheduling import Missed, Schedule, Schedules
from holdfast.scheduling.firer import TICKS_KEPT, Firer
from holdfast.scheduling.schedules import save_declared
from holdfast.testing import VirtualClock, drain

START = datetime(2026, 3, 14, 9, 26, 53, 589793, tzinfo=UTC)  # where the virtual clock starts


def jobs(ledger: Ledger) -> list[tuple[str, str]]:
    """Return the keys and states of the jobs that have a key."""
    with ledger.store.reading() as reading:
        found = reading.lists.jobs(limit=100_000)
    return sorted((job.key, job.state.value) for job in found if job.key is not None)


def ticks(ledger: Ledger, name: str) -> list[tuple[str, str]]:
    with ledger.store.reading() as reading:
        found = reading.schedules.ticks(name, limit=100_000)
    return [(tick.tick_at.strftime("%d %H:%M"), tick.outcome) for tick in reversed(found)]


def declared(ledger: Ledger, when: str = "0 * * * *", **settings: Any) -> list[datetime]:
    """Declare an operation on a schedule, and return the list that its attempts add their ticks to."""
    seen: list[datetime] = []

    @ledger.schedule(when, name="hourly", **settings)
    @ledger.operation("hour")
    def hour(run: Execution, tick: datetime) -> None:
        seen.append(tick)

    return seen


def test_each_tick_is_a_job_with_the_key_of_the_schedule_and_the_tick(ledger: Ledger, clock: VirtualClock) -> None:
    seen = declared(ledger)
    assert drain(ledger, until=clock.after(3 * 3600)) == 3
    assert seen == [datetime(2026, 3, 14, hour, tzinfo=UTC) for hour in (10, 11, 12)]
    assert jobs(ledger) == [(f"hourly/2026-03-14T{hour}:00:00.000000Z", "succeeded") for hour in (10, 11, 12)]
    assert ticks(ledger, "hourly") == [("14 10:00", "fired"), ("14 11:00", "fired"), ("14 12:00", "fired")]
    assert ledger.job(1).client == "schedule"


def test_a_schedule_of_the_ledger_fires_without_a_program_that_declares_it(ledger: Ledger, clock: VirtualClock) -> None:
    ledger.submit("noop")
    Schedules(ledger).add(
        "daily", Schedule(when="@daily", operation="noop", payload={"a": 1}, queue="q"), actor="ann", reason="new"
    )
    drain(ledger, until=clock.after(2 * 86400))
    assert [key for key, _ in jobs(ledger)] == [
        "daily/2026-03-15T00:00:00.000000Z",
        "daily/2026-03-16T00:00:00.000000Z",
    ]
    job = ledger.job(2)
    assert (job.queue, job.payload) == ("q", '{"a":1}')


@pytest.mark.parametrize(
    "missed, expected",
    [
        ("once", [("14 15:00", "fired")]),
        ("all", [(f"14 {hour}:00", "fired") for hour in (10, 11, 12, 13, 14, 15)]),
        ("skip", [("14 15:00", "missed")]),
    ],
)
def test_ticks_while_no_worker_ran_follow_the_policy(
    ledger: Ledger, clock: VirtualClock, missed: str, expected: list[tuple[str, str]]
) -> None:
    declared(ledger, missed=missed)
    drain(ledger)
    clock.advance_to(datetime(2026, 3, 14, 15, 10, tzinfo=UTC))
    drain(ledger)
    assert ticks(ledger, "hourly") == expected
    drain(ledger, until=datetime(2026, 3, 14, 16, 5, tzinfo=UTC))
    assert ticks(ledger, "hourly") == [*expected, ("14 16:00", "fired")]


def test_a_tick_less_than_a_minute_late_is_not_missed(ledger: Ledger, clock: VirtualClock) -> None:
    declared(ledger, missed="skip")
    drain(ledger)
    clock.advance_to(datetime(2026, 3, 14, 10, 1, tzinfo=UTC))
    drain(ledger)
    assert ticks(ledger, "hourly") == [("14 10:00", "fired")]


@pytest.mark.parametrize(
    "overlap, expected",
    [
        ("allow", ["fired", "fired", "fired", "fired"]),
        ("skip", ["fired", "overlapped", "overlapped", "fired"]),
        ("queue", ["fired", "fired"]),
    ],
)
def test_overlapping_runs_are_allowed_skipped_or_queued(
    ledger: Ledger, clock: VirtualClock, overlap: str, expected: list[str]
) -> None:
    declared(ledger, overlap=overlap)
    save_declared(ledger, actor="test")
    firer = Firer(ledger)
    for hour in (10, 11, 12):
        clock.advance_to(datetime(2026, 3, 14, hour, tzinfo=UTC))
        firer.turn()  # no worker: the first job stays pending
    ledger.run_until_idle()
    clock.advance_to(datetime(2026, 3, 14, 13, tzinfo=UTC))
    firer.turn()
    assert [outcome for _, outcome in ticks(ledger, "hourly")] == expected
    if overlap == "queue":
        assert ticks(ledger, "hourly")[-1] == ("14 13:00", "fired")  # with missed="once", the last of those that wait


def test_every_queued_tick_fires_one_after_the_other(ledger: Ledger, clock: VirtualClock) -> None:
    seen = declared(ledger, overlap="queue", missed=Missed.ALL)
    save_declared(ledger, actor="test")
    firer = Firer(ledger)
    clock.advance_to(datetime(2026, 3, 14, 12, tzinfo=UTC))
    for n in (1, 2, 3):
        firer.turn()
        assert len(jobs(ledger)) == n
        clock.advance(2)
        firer.turn()
        assert len(jobs(ledger)) == n  # the job before has not ended
        ledger.run_until_idle()
        clock.advance(2)
    assert [tick.hour for tick in seen] == [10, 11, 12]


def test_a_paused_schedule_does_not_fire_and_does_not_make_up_for_it(ledger: Ledger, clock: VirtualClock) -> None:
    declared(ledger, missed=Missed.ALL)
    schedules = Schedules(ledger)
    drain(ledger, until=clock.after(3600))
    assert schedules.pause("hourly", actor="ann", reason="maintenance")
    assert not schedules.pause("hourly", actor="ann", reason="maintenance")
    drain(ledger, until=clock.after(3 * 3600))
    save_declared(ledger, actor="worker")  # a program that starts again does not resume it
    drain(ledger, until=clock.after(3600))
    assert schedules.resume("hourly", actor="ann", reason="done")
    drain(ledger, until=clock.after(3600))
    assert ticks(ledger, "hourly") == [("14 10:00", "fired"), ("14 15:00", "fired")]


def test_changes_are_journalled_with_who_and_why(ledger: Ledger) -> None:
    declared(ledger)
    save_declared(ledger, actor="worker-1")
    save_declared(ledger, actor="worker-2")  # the same: nothing is written
    schedules = Schedules(ledger)
    schedules.pause("hourly", actor="ann", reason="maintenance")
    schedules.remove("hourly", actor="bob", reason="not needed")
    assert schedules.list() == []
    with ledger.store.reading() as reading:
        values = reading.configuration.history("schedule", "hourly")
        rows = [row for setting in values[::-1] for row in reading.journal.of(setting.setting_id, "SETTING")]
    assert [(row.event, row.actor, row.reason) for row in rows] == [
        ("set", "worker-1", "declared by the program"),
        ("replace", "ann", "maintenance"),
        ("set", "ann", "maintenance"),
        ("remove", "bob", "not needed"),
    ]
    with pytest.raises(RecordNotFoundError):
        schedules.remove("hourly", actor="bob", reason="again")


def test_a_changed_schedule_ticks_from_its_change_on(ledger: Ledger, clock: VirtualClock) -> None:
    ledger.submit("noop")
    schedules = Schedules(ledger)
    schedules.add("s", Schedule(when="@hourly", operation="noop", missed=Missed.ALL), actor="ann", reason="new")
    drain(ledger, until=datetime(2026, 3, 14, 10, 30, tzinfo=UTC))
    schedules.add(
        "s", Schedule(when="every 20m", operation="noop", missed=Missed.ALL), actor="ann", reason="more often"
    )
    drain(ledger, until=datetime(2026, 3, 14, 11, 10, tzinfo=UTC))
    assert ticks(ledger, "s") == [("14 10:00", "fired"), ("14 10:40", "fired"), ("14 11:00", "fired")]


def test_a_schedule_is_triggered_beside_its_ticks(ledger: Ledger, clock: VirtualClock) -> None:
    seen = declared(ledger)
    save_declared(ledger, actor="test")
    job_id = Schedules(ledger).trigger("hourly")
    drain(ledger, until=clock.after(3600))
    assert ledger.job(job_id).key == "hourly/manual/2026-03-14T09:26:53.589793Z"
    assert seen == [START, datetime(2026, 3, 14, 10, tzinfo=UTC)]


def test_two_firers_fire_a_tick_once(ledger: Ledger, clock: VirtualClock) -> None:
    declared(ledger)
    save_declared(ledger, actor="test")
    one, two = Firer(ledger), Firer(ledger)
    for _ in range(50):
        assert one.turn() == two.turn()
        clock.advance(3600)
        two.turn()
        one.turn()
    assert len(jobs(ledger)) == 50
    assert Counter(key for key, _ in jobs(ledger)).most_common(1)[0][1] == 1


def test_a_schedule_that_cannot_fire_does_not_hold_up_the_others(ledger: Ledger, clock: VirtualClock) -> None:
    ledger.submit("noop")
    schedules = Schedules(ledger)
    schedules.add("a", Schedule(when="@hourly", operation="unheard"), actor="ann", reason="new")
    schedules.add("b", Schedule(when="@hourly", operation="noop"), actor="ann", reason="new")
    drain(ledger, until=datetime(2026, 3, 14, 10, 5, tzinfo=UTC))
    assert (ticks(ledger, "a"), ticks(ledger, "b")) == ([], [("14 10:00", "fired")])

    @ledger.operation("unheard")
    def unheard(run: Execution) -> None:
        """Exist at last."""

    ledger.submit(unheard.call())
    drain(ledger, until=datetime(2026, 3, 14, 10, 10, tzinfo=UTC))
    assert ticks(ledger, "a") == [("14 10:00", "fired")]


def test_old_ticks_are_forgotten(ledger: Ledger, clock: VirtualClock) -> None:
    ledger.submit("noop")
    Schedules(ledger).add(
        "s", Schedule(when="every 1s", operation="noop", missed=Missed.ALL), actor="ann", reason="new"
    )
    clock.advance(TICKS_KEPT + 150)
    firer = Firer(ledger)
    for _ in range(12):
        firer.turn()
        clock.advance(0.001)
    assert len(ticks(ledger, "s")) == TICKS_KEPT
    assert ledger.counts()[0].n == TICKS_KEPT + 151


@pytest.mark.parametrize(
    "when, settings",
    [
        ("0 0 30 2 *", {}),
        ("@daily", {"tz": "Mars/Olympus"}),
        ("@daily", {"missed": "sometimes"}),
        ("@daily", {"overlap": "never"}),
        ("@daily", {"name": ""}),
        ("@daily", {"name": "\n"}),
    ],
)
def test_a_bad_schedule_is_refused_where_it_is_declared(ledger: Ledger, when: str, settings: Any) -> None:
    @ledger.operation()
    def nothing(run: Execution) -> None:
        """Do nothing."""

    with pytest.raises(ScheduleInvalidError):
        ledger.schedule(when, **settings)(nothing)
    assert ledger.scheduled == {}


def test_arguments_of_a_schedule_are_checked_where_it_is_declared(ledger: Ledger) -> None:
    @ledger.operation()
    def pay(run: Execution, amount: int) -> None:
        """Pay."""

    with pytest.raises(ArgumentsError):
        ledger.schedule("@daily")(pay)
    ledger.schedule("@daily", arguments={"amount": 1})(pay)
    with pytest.raises(ScheduleInvalidError):
        ledger.schedule("@daily", arguments={"amount": 1})(pay)  # the name twice
    with pytest.raises(ScheduleInvalidError):
        ledger.schedule("@daily")(lambda run: None)  # type: ignore[type-var]


def test_a_worker_fires_what_is_due(ledger_url: str) -> None:
    with Ledger(ledger_url) as ledger:
        declared(ledger, when="every 1s")
        from holdfast import Worker

        worker = Worker(ledger, concurrency=1)

        def stop_after_two() -> None:
            with ledger.store.reading() as reading:
                done = [job for job in reading.lists.jobs(limit=100) if job.state is JobState.SUCCEEDED]
            if len(done) >= 2:
                worker.stop()

        ledger.subscribe(lambda _event: stop_after_two())
        worker.run()
        keys = [key for key, _ in jobs(ledger)]
        assert len(keys) == len(set(keys)) >= 2
        assert all(key.startswith("hourly/") for key in keys)
        assert datetime.now(UTC) - datetime.fromisoformat(keys[-1].partition("/")[2]) < timedelta(minutes=5)
