"""Every transition is published to subscribers, in order and after it is durable; no subscriber affects the engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import msgspec
import pytest

from holdfast import Execution, Ledger, Quarantine, RetryPolicy, Snooze, Strategy
from holdfast.engine import events
from holdfast.engine.events import Transition
from holdfast.engine.tasks import ClaimTask, EndTask, SubmitTask
from holdfast.testing import VirtualClock, begin, crash_at, drain, virtual_world
from tests.engine.database import Database

AT_ONCE = RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=2)

Edge = tuple[str, int, str, str | None, str]  # machine, subject, event, source, target


def edge_of(event: Transition) -> Edge:
    return event.machine, event.subject, event.event, event.source, event.target


def journalled(ledger: Ledger) -> list[Edge]:
    """Return the whole journal, the edges of one move of one record as one path."""
    with ledger.store.reading() as reading:
        rows = ledger.store.execute(
            reading.connection,
            "SELECT machine, subject, move_id, event, source, target FROM holdfast_edges ORDER BY seq, step",
        )
    paths = [list(edges) for _, edges in groupby(rows, key=lambda row: row[:3])]
    return [(edges[0][0], edges[0][1], edges[0][3], edges[0][4], edges[-1][5]) for edges in paths]


class Listener:
    """A subscriber that keeps its events."""

    def __init__(self, ledger: Ledger) -> None:
        self.heard: list[Transition] = []
        self.subscription = ledger.subscribe(self.heard.append)

    def edges(self) -> list[Edge]:
        assert self.subscription.flush(20)
        return [edge_of(event) for event in self.heard]


@pytest.fixture
def listener(ledger: Ledger) -> Iterator[Listener]:
    listener = Listener(ledger)
    yield listener
    listener.subscription.close()


@pytest.mark.req("M-11", "K-60", "G-28")
def test_every_transition_is_published_in_the_order_of_the_journal(
    ledger: Ledger, clock: VirtualClock, database: Database, listener: Listener
) -> None:
    @ledger.operation("child")
    def child(run: Execution) -> None: ...

    @ledger.operation("act", retry=AT_ONCE, lease_s=10)
    def act(run: Execution, how: str) -> None:
        match how, run.attempt:
            case "follow", _:
                run.after_commit(child.call())
                run.after_commit(child.call().keyed("c", "same"))
            case ("fail", _) | ("retry", 1):
                raise ConnectionError(how)
            case "snooze", 1:
                raise Snooze(5)
            case "quarantine", _:
                raise Quarantine("poison")

    receipts = ledger.submit_many([act.call(how=how) for how in ("follow", "fail", "retry", "snooze", "quarantine")])
    ledger.submit(child.call(), client="c", key="same")
    assert not ledger.submit(child.call(), client="c", key="same").is_new  # nothing happens, no event is published
    drain(ledger, until=clock.after(60))
    failed = receipts[1].job_id
    ledger.retry(failed)
    ledger.cancel(failed, actor="ann")
    ledger.cancel(failed)  # nothing happens
    crashed = []
    for point in ("before_commit", "after_commit_before_done"):
        crashed.append(ledger.submit(act.call(how=point)).job_id)
        with crash_at(point):
            drain(ledger)
        drain(ledger, until=clock.after(60))

    assert listener.edges() == journalled(ledger)
    kinds = {(machine, event) for machine, _, event, _, _ in listener.edges()}
    assert kinds == {
        ("JOB", "submit"), ("JOB", "claim"), ("JOB", "succeed"), ("JOB", "fail"), ("JOB", "retry"), ("JOB", "cancel"),
        ("JOB", "quarantine"), ("JOB", "give_back"), ("JOB", "expire"), ("EXECUTION", "begin"),
        ("EXECUTION", "complete"), ("EXECUTION", "abort"), ("EXECUTION", "commit"), ("EXECUTION", "finish"),
    }  # fmt: skip
    assert set(crashed) <= {event.job_id for event in listener.heard if event.event == "succeed"}


def test_an_event_says_who_what_and_when(ledger: Ledger, clock: VirtualClock, listener: Listener) -> None:
    @ledger.operation("act", queue="q", retry=AT_ONCE)
    def act(run: Execution) -> None:
        raise Snooze(5) if run.attempt == 1 else ConnectionError("no")

    receipt = ledger.submit(act.call(), client="web")
    drain(ledger)
    clock.advance(5)
    drain(ledger)
    listener.edges()
    submitted, begun, claimed = listener.heard[:3]
    assert submitted == Transition(
        machine="JOB", subject=receipt.job_id, event="submit", source=None, target="pending", job_id=receipt.job_id,
        operation="act", queue="q", attempt=None, actor="web", error_code=None, excused=False,
        at=VirtualClock()(),
    )  # fmt: skip
    worker = "worker-virtual-0-1"
    assert (begun.target, begun.job_id, begun.attempt, begun.actor) == ("IN_PROGRESS", receipt.job_id, 1, worker)
    assert claimed == msgspec.structs.replace(
        submitted, event="claim", source="pending", target="running", attempt=1, actor=worker, since=submitted.at
    )
    ends = [event for event in listener.heard if event.machine == "JOB" and event.source == "running"]
    assert [(event.event, event.attempt, event.excused, event.error_code) for event in ends] == [
        ("give_back", 1, True, "snoozed"),
        ("retry", 2, False, "connection_error"),
        ("fail", 3, False, "connection_error"),
    ]
    assert [(event.at - submitted.at).total_seconds() for event in ends] == [0, 5, 5]


def test_recovery_and_rulings_name_their_actor(ledger: Ledger, clock: VirtualClock, listener: Listener) -> None:
    noop = ledger.operations.get("noop")
    assert noop is not None
    run = begin(ledger, noop.call(), lease_s=1)
    ledger.quarantine(ledger.submit("noop").job_id, "poison", actor="ann")
    clock.advance(1)
    drain(ledger)
    listener.edges()
    actors = {event.event: event.actor for event in listener.heard if event.machine == "JOB"}
    assert (actors["quarantine"], actors["expire"]) == ("ann", "worker-virtual-0-2")
    assert run.record.execution.lease_owner == "test-virtual-0-1"


def test_no_event_is_published_before_it_is_durable(ledger_url: str, clock: VirtualClock) -> None:
    heard: list[Transition] = []
    before: list[int] = []
    world = msgspec.structs.replace(virtual_world(clock), reach=lambda point: before.append(_so_far(point)))
    with Ledger(ledger_url, world=world) as ledger:
        seen: list[bool] = []

        def listen(event: Transition) -> None:
            heard.append(event)
            with ledger.store.reading() as reading:
                rows = reading.journal.of(event.subject, event.machine)
            seen.append((event.event, event.target) in [(row.event, row.target) for row in rows])

        subscription = ledger.subscribe(listen)

        def _so_far(point: str) -> int:
            assert subscription.flush(20)
            return len(heard) if point.startswith(("during", "before")) else -1

        ledger.submit_many([{"operation": "noop"}, {"operation": "noop"}])
        drain(ledger)
        assert subscription.flush(20)
        subscription.close()
    assert seen == [True] * 10
    assert [n for n in before if n >= 0] == [0, 2, 4, 6, 8, 10]  # submit, claim, end, claim, end, empty claim


def test_events_of_a_callers_transaction_are_published_only_once_its_commit_is_known(
    ledger: Ledger, database: Database, listener: Listener
) -> None:
    @ledger.operation("own", retry=AT_ONCE)
    def own(run: Execution) -> None:
        connection = database.connect()
        connection.execute("BEGIN" if database.is_postgres else "BEGIN IMMEDIATE")
        run.commit(connection=connection)
        connection.execute("COMMIT" if run.attempt == 2 else "ROLLBACK")
        connection.close()
        if run.attempt == 1:
            raise ConnectionError("after the rollback")

    receipt = ledger.submit(own.call())
    drain(ledger)
    assert listener.edges() == journalled(ledger)
    assert [event.event for event in listener.heard if event.machine == "JOB"] == [
        "submit", "claim", "retry", "claim", "succeed",
    ]  # fmt: skip
    connection = database.connect()
    connection.execute("BEGIN" if database.is_postgres else "BEGIN IMMEDIATE")
    ledger.submit("noop", connection=connection)
    connection.execute("ROLLBACK")
    connection.close()
    assert [event.job_id for event in listener.heard if event.event == "submit"] == [receipt.job_id]
    assert listener.edges() == journalled(ledger)


def test_events_of_each_record_are_in_order_when_many_threads_write(ledger_url: str) -> None:
    with Ledger(ledger_url) as ledger:
        listener = Listener(ledger)

        @ledger.operation("flaky", retry=AT_ONCE)
        def flaky(run: Execution, n: int) -> None:
            if n % 3 == 0 and run.attempt == 1:
                raise ConnectionError("again")

        def submit(start: int) -> None:
            for n in range(start, start + 10):
                ledger.submit(flaky.call(n=n))

        threads = [threading.Thread(target=submit, args=(start,)) for start in range(0, 60, 10)]
        for thread in threads:
            thread.start()
        made = ledger.run_until_idle()
        for thread in threads:
            thread.join()
        made += ledger.run_until_idle()
        assert made == 80
        heard, written = listener.edges(), journalled(ledger)
        assert len(heard) == len(written) == 60 + 80 * 4
        assert _by_subject(heard) == _by_subject(written)
        assert (listener.subscription.lost, listener.subscription.broken) == (0, 0)
        listener.subscription.close()


def _by_subject(transitions: list[Edge]) -> dict[tuple[str, int], list[Edge]]:
    found: dict[tuple[str, int], list[Edge]] = {}
    for transition in transitions:
        found.setdefault(transition[:2], []).append(transition)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Bad subscribers


def test_a_slow_subscriber_loses_events_and_delays_no_other(
    ledger: Ledger, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, busy = threading.Event(), threading.Event()
    heard: list[Transition] = []

    def slow(event: Transition) -> None:
        busy.set()
        assert go_on.wait(20)
        heard.append(event)

    subscription = ledger.subscribe(slow)
    ledger.submit("noop")
    assert busy.wait(20)
    listener.edges()
    monkeypatch.setattr(events, "WAITING_MAX", 10)
    receipts = ledger.submit_many([{"operation": "noop"}] * 100)  # returns although the subscriber is blocked
    assert (subscription.lost, subscription.broken) == (90, 0)
    assert not subscription.flush(0.01)
    go_on.set()
    assert subscription.flush(20)
    assert [event.job_id for event in heard[1:]] == [receipt.job_id for receipt in receipts[:10]]
    ledger.submit("noop")
    assert subscription.flush(20)
    assert (len(heard), subscription.lost) == (12, 90)
    subscription.close()


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(1)])
def test_a_failing_subscriber_is_counted_and_affects_no_other(
    ledger: Ledger, listener: Listener, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: Transition) -> None:
        raise error

    subscription = ledger.subscribe(broken)
    ledger.submit("noop")
    assert drain(ledger) == 1
    assert subscription.flush(20)
    assert (subscription.broken, subscription.lost) == (5, 0)
    assert listener.edges() == journalled(ledger)
    assert caplog.text.count("a subscriber failed on JOB submit") == 1
    subscription.close()


def test_a_closed_subscription_gets_no_more_events(ledger: Ledger) -> None:
    listener = Listener(ledger)
    ledger.submit("noop")
    assert len(listener.edges()) == 1
    listener.subscription.close()
    ledger.submit("noop")
    assert len(listener.heard) == 1
    assert not ledger.bus.listening


def test_without_subscribers_no_event_is_created(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(*_: Any) -> Iterator[Transition]:
        raise AssertionError("an event was made")

    for kind in (SubmitTask, ClaimTask, EndTask):
        monkeypatch.setattr(kind, "events", made)
    ledger.submit("noop")
    assert drain(ledger) == 1
