"""Ten thousand jobs of each feature on the virtual clock; limits and the fair order have theirs in other modules."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast import Execution, Ledger
from holdfast.core.machines import JobState
from holdfast.scheduling import Missed, Overlap, Schedule, Schedules
from holdfast.testing import VirtualClock, drain

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
JOBS = 10_000


@pytest.fixture
def ran(ledger: Ledger) -> Counter[str]:
    """Declare `step`, which counts how often it has run under each name; return the counts."""
    counts: Counter[str] = Counter()

    @ledger.operation("step")
    def step(run: Execution, name: str) -> None:
        counts[name] += 1

    return counts


def call(name: str, **settings: object) -> dict[str, object]:
    return {"operation": "step", "payload": {"name": name}, **settings}


def test_each_of_ten_thousand_ticks_is_one_job(ledger: Ledger, clock: VirtualClock, ran: Counter[str]) -> None:
    schedule = Schedule(
        when="every 1m", operation="step", payload={"name": "tick"}, missed=Missed.ALL, overlap=Overlap.ALLOW
    )
    Schedules(ledger).add("every minute", schedule, actor="test", reason="simulation")
    for _ in range(100):
        clock.advance(60 * JOBS / 100)
        drain(ledger)
    assert JOBS - 1 <= ran["tick"] <= JOBS
    with ledger.store.reading() as reading:
        keys = [job.key for job in reading.lists.jobs(limit=JOBS + 1)]
    assert len(set(keys)) == len(keys) == ran["tick"]


def test_ten_thousand_jobs_follow_each_other(ledger: Ledger, ran: Counter[str]) -> None:
    """A thousand chains of ten, submitted link by link; no link runs before the one that it follows."""
    links = ledger.submit_many([call("0") for _ in range(JOBS // 10)])
    for link in range(1, 10):
        links = ledger.submit_many([call(str(link), after=[one]) for one in links])
    for link in range(10):
        drain(ledger)
        assert ran == {str(n): JOBS // 10 for n in range(10)}, link
    with ledger.store.reading() as reading:
        began = {job.job_id: job.last_attempt_at for job in reading.jobs.get_many(range(1, JOBS + 1))}
        pairs = reading.execute(
            "SELECT w.job_id, a.parent_id FROM holdfast_waits w JOIN holdfast_after a USING (wait_id)"
        )
    assert len(pairs) == JOBS * 9 // 10
    assert all(began[job_id] >= began[parent] for job_id, parent in pairs)  # type: ignore[operator]  # all have run


def test_a_batch_of_ten_thousand_has_one_callback(ledger: Ledger, ran: Counter[str]) -> None:
    batch = ledger.batch([call("part") for _ in range(JOBS)], then=call("then"))  # type: ignore[arg-type]  # by name
    drain(ledger)
    assert ran == {"part": JOBS, "then": 1}
    assert batch.progress().ended


def test_of_ten_thousand_submits_of_a_hundred_scopes_a_hundred_run(
    ledger: Ledger, clock: VirtualClock, ran: Counter[str]
) -> None:
    for _ in range(10):
        ledger.submit_many([call(str(n % 100), unique={"window_s": 60}) for n in range(JOBS // 10)])
        clock.advance(5)
        drain(ledger)
    assert ran == {str(n): 1 for n in range(100)}
    clock.advance(60)
    ledger.submit_many([call(str(n), unique={"window_s": 60}) for n in range(100)])
    drain(ledger)
    assert ran == {str(n): 2 for n in range(100)}


def test_of_ten_thousand_jobs_those_that_are_late_do_not_run(
    ledger: Ledger, clock: VirtualClock, ran: Counter[str]
) -> None:
    calls = [call("late", run_at=clock.after(40), deadline_s=50) if n % 2
             else call("in time", run_at=clock.after(100), deadline_s=200) for n in range(JOBS)]  # fmt: skip
    ledger.submit_many(calls)
    clock.advance(120)
    drain(ledger)
    assert ran == {"in time": JOBS // 2}
    states = {(count.state, count.n) for count in ledger.counts() if count.n}
    assert states == {(JobState.SUCCEEDED, JOBS // 2), (JobState.QUARANTINED, JOBS // 2)}
