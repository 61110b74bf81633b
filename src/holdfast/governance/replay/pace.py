"""The pace of a replay: its rates, the load on the queues, and errors that come back.

Invariants: the rate holds across stops and continuations, because it is measured from the last recorded batch; every
measurement is read from the ledger, by the ledger's clock.
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

QUEUE_AGE, LATENCY, RATE, OUTCOME = "queue_age", "latency", "rate", "outcome"
OUTCOME_POLL = timedelta(seconds=0.5)
RECENT = timedelta(minutes=15)
FEW = 10  # fewer attempts give no P90 latency
MINUTE_S = 60.0


class Strain(NamedTuple):
    """A measure of the queues that is above its threshold."""

    measure: str
    seconds: float
    threshold: float

    def __str__(self) -> str:
        what = {QUEUE_AGE: "the oldest due job has waited", LATENCY: "the P90 latency of recent attempts is"}
        return f"{what[self.measure]} {self.seconds:.0f} s; the limit is {self.threshold:g} s"


def records_per_second(mode: ReplayMode, policy: ReplayPolicy) -> float:
    """Return how many jobs a run of a mode may replay per second."""
    if mode is ReplayMode.BACKFILL:
        return min(policy.backfill_records_per_second, policy.max_records_per_second)
    return policy.max_records_per_second


def seconds_after(records: int, mode: ReplayMode, policy: ReplayPolicy) -> float:
    """Return how long a run waits after a batch of so many jobs."""
    return max(records / records_per_second(mode, policy), MINUTE_S / policy.max_batches_per_minute)


def seconds_in_all(batches: Iterable[int], mode: ReplayMode, policy: ReplayPolicy) -> float:
    """Return how long batches of these sizes take at least; there is no wait after the last."""
    waits = [seconds_after(records, mode, policy) for records in batches]
    return round(sum(waits[:-1]), 3)


def strain(reading: Reading, queues: Sequence[str], policy: ReplayPolicy) -> Strain | None:
    """Return the measure of these queues that is above its threshold, or None."""
    now = reading.now()
    due = reading.jobs.outlook(queues)[0] if queues else None
    age_s = 0.0 if due is None else (now - due).total_seconds()
    if age_s > policy.queue_age_s:
        return Strain(QUEUE_AGE, age_s, policy.queue_age_s)
    p90_s = latency_p90(reading, queues, now)
    if p90_s is not None and p90_s > policy.latency_p90_s:
        return Strain(LATENCY, p90_s, policy.latency_p90_s)
    return None


def latency_p90(reading: Reading, queues: Sequence[str], now: datetime) -> float | None:
    """Return the P90 latency of recent attempts, or None if there were fewer than 10."""
    attempts = reading.replay.recent_attempts(queues, since=now - RECENT) if queues else []
    took = sorted(((ended or now) - begun).total_seconds() for begun, ended in attempts)
    return took[-(-9 * len(took) // 10) - 1] if len(took) >= FEW else None


class ReturnedJobs(NamedTuple):
    """Replayed jobs: how many have ended again, and how many of those with the same error."""

    ended: int
    same_error: int

    def too_many(self, policy: ReplayPolicy) -> bool:
        """Return whether so many failed with the same error again that the run stops."""
        return self.same_error >= policy.same_error_min and self.same_error > policy.same_error_share * self.ended


def returned(reading: Reading, replayed: Mapping[int, int], errors: frozenset[str]) -> ReturnedJobs:
    """Count what became of replayed jobs, which are given with their versions before; `errors` are their old errors."""
    ended = same = 0
    for job in reading.jobs.get_many(replayed):
        # Replayed, claimed, ended: three edges. With fewer, no worker has finished it yet.
        if job.version < replayed[job.job_id] + 3 or job.state in (JobState.PENDING, JobState.RUNNING):
            continue
        ended += 1
        same += job.state is not JobState.SUCCEEDED and job.last_error_code in errors
    return ReturnedJobs(ended, same)
