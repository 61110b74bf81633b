"""A job's stored state is a function of its executions and its rulings, and the counts are the real counts."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.core.commands import Cancel, Commit, Complete, Expire, Finish, GiveBack, Quarantine, Replay, Retry, Start
from holdfast.core.journal import JournalRow
from holdfast.core.machines import EXECUTION, JOB
from holdfast.core.project import project, rulings_of
from holdfast.core.records import Attempt, Execution, Job
from holdfast.core.rulings import Lapse, Revoke
from tests.store.conftest import phases
from tests.store.verbs import Verbs, fail

# What happens next, to which job or execution, how, whether a second choice is taken, and how long after the last.
STEP = st.tuples(
    st.sampled_from(
        ["submit", "claim", "claim", "work", "work", "work", "work", "rule", "rule", "recover", "revoke", "fold"]
    ),
    st.integers(0, 5),
    st.integers(0, 11),
    st.booleans(),
    st.sampled_from([0, 0, 0, 1, 4, 30]),
)
# Mostly what fits the status or the state, or most steps would be refusals.
FITTING = {
    "LEASED": ("start", "start", "start", "fail", "give back", "expire"),
    "IN_PROGRESS": ("commit", "complete", "fail", "fail", "give back", "expire"),
    "COMMITTED": ("finish", "finish", "complete"),
    "DONE": ("complete", "fail", "finish"),
    "ABORTED": ("complete", "fail", "expire"),
    "pending": ("quarantine", "cancel", "retry", "lapse"),
    "running": ("retry", "quarantine"),
    "succeeded": ("retry", "cancel"),
    "failed": ("retry", "replay", "replay", "quarantine", "cancel"),
    "quarantined": ("release", "release", "replay"),
}
# One history that takes every event, so that none is left to chance.
TOUR = [
    ("work", 0, 4, True, 0),  # return the first job
    ("claim", 0, 0, True, 0),
    ("work", 0, 2, True, 0),  # fail with a retry
    ("claim", 0, 0, True, 0),
    ("work", 0, 2, False, 0),  # fail without
    ("rule", 1, 1, True, 0),  # replay
    ("claim", 0, 0, False, 0),
    ("work", 0, 0, True, 0),  # start
    ("work", 0, 0, True, 0),  # commit
    ("work", 0, 0, True, 0),  # finish
    ("rule", 0, 1, True, 0),  # cancel the second job
    ("rule", 0, 0, True, 0),  # release
    ("rule", 0, 0, True, 0),  # quarantine
    ("rule", 0, 0, True, 0),  # release
    ("claim", 0, 0, True, 0),
    ("work", 0, 1, True, 0),  # complete
    ("submit", 0, 1, True, 0),
    ("claim", 0, 0, True, 0),
    ("recover", 0, 0, True, 30),  # its lease has run out
    ("rule", 0, 3, True, 0),  # its deadline has passed
    ("submit", 0, 1, True, 0),
    ("claim", 0, 2, True, 0),
    ("revoke", 0, 0, True, 0),
]


class History:
    """Takes steps on one ledger; a refused step changes nothing."""

    def __init__(self, verbs: Verbs) -> None:
        self.verbs = verbs
        self.jobs = [verbs.submit(max_attempts=2, replay_attempts=1) for _ in range(2)]
        self.executions = [attempt.execution.exec_id for attempt in verbs.claim(seconds=8)]

    def take(self, step: str, index: int, how: int, other: bool, wait_s: int) -> None:
        verbs = self.verbs
        verbs.clock.advance(wait_s)
        if step == "submit":
            self.jobs.append(verbs.submit(max_attempts=1 + how % 2, replay_attempts=how // 2 % 2, priority=index))
        elif step == "claim":
            self.executions += [a.execution.exec_id for a in verbs.claim(1 + how % 3, begin=other, seconds=8)]
        elif step == "recover":
            verbs.recover(n=1 + index)
        elif step == "revoke":
            attempt = verbs.attempt(self.executions[-1 - index % len(self.executions)])
            verbs.work(attempt, Revoke(verbs.clock.after(how - 9), "it hangs"))
        elif step == "fold":
            verbs.fold()
        elif step == "rule":
            self._rule(verbs.job(self.jobs[-1 - index % len(self.jobs)]), how)
        else:
            attempt = verbs.attempt(self.executions[-1 - index % len(self.executions)])
            verbs.work(attempt, self._command(attempt, how, other))

    def _rule(self, job: Job, how: int) -> None:
        choices = FITTING[job.state]
        choice = choices[how % len(choices)]
        if choice == "release":
            self.verbs.release(job, self.verbs.active_grant(job.job_id))
            return
        command = {
            "retry": Retry(self.verbs.clock.after(how - 9)),
            "replay": Replay("backfill"),
            "quarantine": Quarantine("poison"),
            "cancel": Cancel(),
            "lapse": Lapse(self.verbs.clock.after(-1)),
        }[choice]
        self.verbs.rule(job, command)

    def _command(self, attempt: Attempt, how: int, other: bool) -> object:
        choices = FITTING[attempt.execution.status]
        token, now = attempt.execution.lease_token, self.verbs.clock()
        return {
            "start": Start(token),
            "commit": Commit(token, '"r"' if other else "null"),
            "finish": Finish(token if other else None),
            "complete": Complete(token, '"r"'),
            "fail": fail(attempt, retry_at=now if other else None, permanent=how > 9),
            "give back": GiveBack(token, now),
            "expire": Expire(now),
        }[choices[how % len(choices)]]

    def end(self) -> None:
        """Leave no lease open and nothing to claim for the next history."""
        self.verbs.clock.advance(1000)
        self.verbs.recover()
        for attempt in self.verbs.claim(1000):
            self.verbs.work(attempt, fail(attempt, permanent=True))

    def check(self) -> None:
        """Compare the jobs of this history, and the counts of the whole ledger."""
        with self.verbs.store.reading() as reading:
            for job in reading.jobs.get_many(self.jobs):
                self._check_job(job, reading.lists.executions(job.job_id), reading.journal.of(job.job_id))
            real = Counter((job.operation, job.queue, job.state) for job in reading.lists.jobs(limit=1_000_000))
            assert {(c.operation, c.queue, c.state): c.n for c in reading.counts.current()} == dict(real)

    def _check_job(self, job: Job, executions: list[Execution], journal: list[JournalRow]) -> None:
        assert job.state == project(executions, rulings_of(journal))
        assert [row.version for row in journal] == list(range(1, job.version + 1))
        assert [row.source for row in journal] == [None, *(row.target for row in journal[:-1])]
        assert journal[-1].target == job.state
        assert [execution.attempt for execution in executions] == list(range(1, job.attempts + 1))
        assert sum(execution.excused for execution in executions) == job.excused
        assert sum(execution.status in ("COMMITTED", "DONE") for execution in executions) <= 1
        assert sum(execution.status not in ("DONE", "ABORTED") for execution in executions) <= 1


@pytest.mark.req("M-02", "M-04", "M-05", "M-07", "X-06", "X-07", "G-07")
def test_every_history_leaves_the_projected_states_and_the_real_counts(verbs: Verbs) -> None:
    @settings(max_examples=settings().max_examples // 4, phases=phases())
    @example(TOUR)
    @given(st.lists(STEP, max_size=30))
    def holds(steps: list[tuple[str, int, int, bool, int]]) -> None:
        history = History(verbs)
        for step in steps:
            history.take(*step)
        history.check()
        verbs.fold()
        history.check()
        history.end()
        history.check()

    holds()
    events = set(verbs.query("SELECT machine, event FROM holdfast_edges"))
    assert {event for machine, event in events if machine == "JOB"} == set(JOB.events)
    assert {event for machine, event in events if machine == "EXECUTION"} == set(EXECUTION.events)
