"""The fair claim: no priority starves, queues get their shares, and a claim stays a walk of indexes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.core.commands import Complete
from holdfast.core.errors import FlowInvalidError
from holdfast.scheduling.fair import set_step, set_weight, step, weights
from holdfast.store import Declared, Lease, Store, Submission, create_store
from holdfast.store.statements import statements
from holdfast.store.verbs.fair import STEP_S
from holdfast.testing import VirtualClock

JOBS = 10_000
SOURCES = ("a", "b", "c", "d")
LOW, NORMAL, HIGH = 1, 2, 3
WORKER = "w"


@pytest.fixture
def store(ledger_url: str, clock: VirtualClock) -> Iterator[Store[Any]]:
    with create_store(ledger_url, clock) as store:
        with store.transaction() as transaction:
            transaction.operations.declare({"noop": Declared()})
        yield store


def submit(store: Store[Any], jobs: list[tuple[str, int]], run_at: datetime | None = None) -> None:
    with store.transaction() as transaction:
        transaction.jobs.submit(
            [Submission(operation="noop", payload="{}", queue=q, priority=p, run_at=run_at) for q, p in jobs]
        )


def served(store: Store[Any], n: int, queues: tuple[str, ...] = SOURCES) -> list[tuple[str, int, datetime]]:
    """Look, claim up to n jobs and complete them; return queue, priority and due time of each, in the order claimed."""
    with store.reading() as reading:
        reading.executions.any_expired()
    with store.transaction() as transaction:
        attempts = transaction.executions.claim(Lease(owner=WORKER, seconds=60, n=n, queues=queues))
        found = [(a.job.queue, a.job.priority, a.job.run_at) for a in attempts]
        transaction.executions.move([(a, Complete(a.token)) for a in attempts], actor=WORKER)
    return found


def jain(shares: list[float]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def overloaded(store: Store[Any], clock: VirtualClock) -> Iterator[list[tuple[str, int, datetime]]]:
    """Submit 10,000 jobs, more each second than are served, mostly HIGH; yield what each second serves."""
    a_second, capacity = 25, 20
    mix = [HIGH] * 21 + [NORMAL] * 2 + [LOW] * 2
    numbers = count()
    for _ in range(JOBS // a_second):
        jobs = [
            (SOURCES[(n // 2) % 4 if n % 5 else 0], mix[n % a_second]) for n in (next(numbers) for _ in range(a_second))
        ]
        submit(store, jobs)
        yield served(store, capacity)
        clock.advance(1)


@pytest.mark.req("G-24")
def test_no_priority_starves_under_overload_and_few_jobs_overtake_higher_ones(
    store: Store[Any], clock: VirtualClock
) -> None:
    waits: dict[int, list[float]] = {LOW: [], NORMAL: [], HIGH: []}
    started: list[tuple[int, datetime]] = []
    got: Counter[str] = Counter()
    for done in overloaded(store, clock):
        for queue, priority, due in done:
            got[queue] += 1
            waits[priority].append((clock() - due).total_seconds())
            started.append((priority, due))
    offered = {HIGH: JOBS * 21 // 25, NORMAL: JOBS * 2 // 25, LOW: JOBS * 2 // 25}
    share = {priority: len(found) / offered[priority] for priority, found in waits.items()}
    assert min(share.values()) > 0.1, share  # none gets less than a tenth of what it expects
    assert min(share.values()) > 0.5, share
    assert max(waits[LOW]) - max(waits[HIGH]) <= 2 * STEP_S + 2  # later by its steps, and no more
    # An inversion: a job starts before one of a higher priority that was due no later.
    inversions = sum(
        any(priority < later and due >= later_due for later, later_due in started[index + 1 : index + 200])
        for index, (priority, due) in enumerate(started)
    )
    assert inversions < 0.05 * len(started)
    submitted = Counter(SOURCES[(n // 2) % 4 if n % 5 else 0] for n in range(JOBS))
    assert jain([got[queue] / submitted[queue] for queue in SOURCES]) >= 0.8


@pytest.mark.req("G-24")
def test_the_strict_order_would_starve_low_priorities(store: Store[Any], clock: VirtualClock) -> None:
    """The same load by the plain statement: the measures above can fail."""
    low = 0
    for _ in range(40):
        submit(store, [(SOURCES[0], HIGH)] * 21 + [(SOURCES[0], LOW)] * 2)
        store.fair = False
        with store.transaction() as transaction:
            attempts = transaction.executions.claim(Lease(owner=WORKER, seconds=60, n=20, queues=SOURCES))
            low += sum(a.job.priority == LOW for a in attempts)
            transaction.executions.move([(a, Complete(a.token)) for a in attempts], actor=WORKER)
        clock.advance(1)
    assert low == 0


@pytest.mark.req("G-24")
@pytest.mark.parametrize("n", [1, 20])
def test_queues_share_by_their_weights_whatever_they_submit(store: Store[Any], clock: VirtualClock, n: int) -> None:
    with store.transaction() as transaction:
        for queue, weight in (("a", "1"), ("b", "1"), ("c", "1"), ("d", "3")):
            transaction.configuration.set("weight", queue, weight, actor="ann", reason="test")
    noisy = [("a", 0)] * 2000 + [(queue, 0) for queue in "bcd" for _ in range(700)]
    submit(store, noisy)
    clock.advance(1)
    rounds = 45 if n > 1 else 300
    got = Counter(queue for _ in range(rounds) for queue, _, _ in served(store, n))
    shares = [got["a"], got["b"], got["c"], got["d"] / 3]
    assert jain(shares) >= 0.95, got
    assert sum(got.values()) == rounds * n
    while done := served(store, 500):  # a share that no job takes goes to the others
        got.update(queue for queue, _, _ in done)
    assert got == {"a": 2000, "b": 700, "c": 700, "d": 700}


def test_a_higher_priority_overtakes_what_became_due_less_than_a_step_before(
    store: Store[Any], clock: VirtualClock
) -> None:
    start = clock()
    submit(store, [("a", 0)], start - timedelta(seconds=STEP_S + 1))
    submit(store, [("a", 0)], start - timedelta(seconds=STEP_S - 1))
    submit(store, [("a", 1), ("b", -1)], start)
    assert [(q, p) for q, p, _ in served(store, 10)] == [("a", 0), ("a", 1), ("a", 0), ("b", -1)]


def test_the_step_of_a_priority_is_a_journalled_setting(ledger: Ledger, clock: VirtualClock) -> None:
    def order() -> list[int]:
        with ledger.store.transaction() as transaction:
            transaction.store.fair = True
            return transaction.fair.shared(["default"], 10)

    low = ledger.submit("noop", run_at=clock.after(-100)).job_id
    high = ledger.submit("noop", priority=1).job_id
    assert order() == [low, high]  # a minute is less than the 100 seconds that the first one waits
    assert set_step(ledger, 200, actor="ann", reason="urgent")
    assert not set_step(ledger, 200, actor="ann", reason="urgent")
    assert order() == [high, low]
    for wrong in (0, -1, float("nan"), 1e9):
        with pytest.raises(FlowInvalidError) as error:
            set_step(ledger, wrong, actor="ann", reason="x")
        assert error.value.context["refusal"] == "step_out_of_range"
    assert set_step(ledger, None, actor="ann", reason="enough")
    assert order() == [low, high]
    with ledger.store.reading() as reading:
        changes = reading.queues.history("default")
        assert step(reading) == STEP_S
    assert [(one.what, one.before, one.after) for one in changes] == [("fair", "200", None), ("fair", None, "200")]


def test_more_than_sixteen_priorities_are_all_served(store: Store[Any], clock: VirtualClock) -> None:
    submit(store, [("a", p) for p in range(40) for _ in range(2)])
    clock.advance(1)
    got = [p for _ in range(20) for _, p, _ in served(store, 5)]
    assert sorted(got) == sorted(p for p in range(40) for _ in range(2))


def test_one_priority_uses_the_plain_statement(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(ledger_url) as ledger:
        ran: list[str] = []
        run = type(ledger.store).run

        def noted(self: Store[Any], connection: Any, name: str, params: Any) -> list[tuple[Any, ...]]:
            ran.append(name)
            return run(self, connection, name, params)

        monkeypatch.setattr(type(ledger.store), "run", noted)
        ledger.submit_many([{"operation": "noop"} for _ in range(5)])
        ledger.run_until_idle()
        assert "claim_jobs" in ran
        assert "fair_jobs" not in ran
        ledger.submit_many([{"operation": "noop", "priority": p} for p in range(5)])
        ledger.run_until_idle()
        assert "fair_jobs" in ran


def test_the_fair_claim_walks_the_index_of_due_jobs(store: Store[Any]) -> None:
    submit(store, [("a", p % 3) for p in range(3000)])
    plan = explained(store)
    assert "holdfast_jobs_due" in plan
    if store.dialect == "postgres":
        assert "Seq Scan on holdfast_jobs" not in plan
    else:
        assert not re.search(r"SCAN (d|j|holdfast_jobs)\b(?! USING (COVERING )?INDEX)", plan), plan


def explained(store: Store[Any]) -> str:
    """Return the plan of the statement; on PostgreSQL one that was made for no values in particular."""
    [text] = statements(store.dialect)["fair_jobs"]
    with store.transaction() as transaction:
        if store.dialect == "sqlite":
            rows = transaction.query(f"EXPLAIN QUERY PLAN {text}", {"queues": "[]", "n": 5, "step": 60.0, "now": ""})[1]
            return "\n".join(str(row[-1]) for row in rows)
        transaction.execute("ANALYZE holdfast_jobs")
        names = list(dict.fromkeys(re.findall(r"(?<!:):(\w+)", text)))
        numbered = re.sub(r"(?<!:):(\w+)", lambda found: f"${names.index(found[1]) + 1}", text)
        transaction.execute("SET LOCAL plan_cache_mode TO force_generic_plan")
        transaction.execute(f"PREPARE fair AS {numbered}")
        rows = transaction.execute(f"EXPLAIN EXECUTE fair ({', '.join(['NULL'] * len(names))})")
        transaction.execute("DEALLOCATE fair")
        return "\n".join(str(row[0]) for row in rows)


def test_weights_are_journalled_settings_and_wrong_ones_are_refused(ledger: Ledger) -> None:
    ledger.submit("noop")
    assert set_weight(ledger, "default", 2.5, actor="ann", reason="more")
    assert not set_weight(ledger, "default", 2.5, actor="ann", reason="again")
    assert weights(ledger) == {"default": 2.5}
    for wrong in (0, -1, float("nan"), 1e9):
        with pytest.raises(FlowInvalidError) as error:
            set_weight(ledger, "default", wrong, actor="ann", reason="x")
        assert error.value.context["refusal"] == "weight_out_of_range"
    assert set_weight(ledger, "default", None, actor="ann", reason="enough")
    assert weights(ledger) == {}
    with ledger.store.reading() as reading:
        history = reading.configuration.history("weight", "default")
    assert [(setting.state.value, setting.reason) for setting in history] == [("removed", "enough")]
