"""How fast a replay may go, and when it must not: rates, the strain on the queues, and errors that come back.

Invariants: the rate holds over stops and continuations, because it is measured from the last batch on record; what is
measured here is read from the ledger, by the ledger's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.machines import JobState
from holdfast.core.selection import ReplayMode

if TYPE_CHECKING:
    from holdfast.governance.replay.guards import ReplayPolicy
    from holdfast.store.transaction import Reading

QUEUE_AGE, LATENCY, RATE = "queue_age", "latency", "rate"
RECENT = timedelta(minutes=15)
FEW = 10  # attempts that say nothing yet of the latency
MINUTE_S = 60.0


class Strain(NamedTuple):
    """What a queue suffers from: which measure has passed which threshold."""

    measure: str
    seconds: float
    threshold: float

    def __str__(self) -> str:
        told = {QUEUE_AGE: "the oldest job that is due has waited", LATENCY: "nine of ten recent attempts took up to"}
        return f"{told[self.measure]} {self.seconds:.0f} s, and {self.threshold:g} s is the limit"


def records_per_second(mode: ReplayMode, policy: ReplayPolicy) -> float:
    """Return how many records a run of a mode may put back in a second."""
    if mode is ReplayMode.BACKFILL:
        return min(policy.backfill_records_per_second, policy.max_records_per_second)
    return policy.max_records_per_second


def seconds_after(records: int, mode: ReplayMode, policy: ReplayPolicy) -> float:
    """Return how long after a batch of so many records the next one may come."""
    return max(records / records_per_second(mode, policy), MINUTE_S / policy.max_batches_per_minute)


def seconds_in_all(batches: Iterable[int], mode: ReplayMode, policy: ReplayPolicy) -> float:
    """Return how long batches of these sizes take at least: after the last nothing has to wait."""
    waits = [seconds_after(records, mode, policy) for records in batches]
    return round(sum(waits[:-1]), 3)


def strain(reading: Reading, queues: Sequence[str], policy: ReplayPolicy) -> Strain | None:
    """Return what these queues suffer from now; None if they are well."""
    now = reading.now()
    due = reading.jobs.next_due(queues) if queues else None
    age_s = 0.0 if due is None else (now - due).total_seconds()
    if age_s > policy.queue_age_s:
        return Strain(QUEUE_AGE, age_s, policy.queue_age_s)
    p90_s = latency_p90(reading, queues, now)
    if p90_s is not None and p90_s > policy.latency_p90_s:
        return Strain(LATENCY, p90_s, policy.latency_p90_s)
    return None


def latency_p90(reading: Reading, queues: Sequence[str], now: datetime) -> float | None:
    """Return how long nine of ten recent attempts took at most; None if there were too few to say."""
    attempts = reading.replay.recent_attempts(queues, since=now - RECENT) if queues else []
    took = sorted(((ended or now) - begun).total_seconds() for begun, ended in attempts)
    return took[-(-9 * len(took) // 10) - 1] if len(took) >= FEW else None


class ReturnedJobs(NamedTuple):
    """What became of jobs that were replayed: how many have ended, and how many of those with the error they had."""

    ended: int
    same_error: int

    def too_many(self, policy: ReplayPolicy) -> bool:
        """Tell whether it is useless to go on."""
        return self.same_error >= policy.same_error_min and self.same_error > policy.same_error_share * self.ended


def returned(reading: Reading, replayed: Mapping[int, int], errors: frozenset[str]) -> ReturnedJobs:
    """Look what became of jobs, given with the versions they had before, that were put back after these errors."""
    ended = same = 0
    for job in reading.jobs.get_many(replayed):
        # Put back, claimed, ended: three edges. Fewer, and nobody has worked on it.
        if job.version < replayed[job.job_id] + 3 or job.state in (JobState.PENDING, JobState.RUNNING):
            continue
        ended += 1
        same += job.state is not JobState.SUCCEEDED and job.last_error_code in errors
    return ReturnedJobs(ended, same)
