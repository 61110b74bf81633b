"""The deadlock detector of G, as a face over leases.

Invariants: only an expired lease is reclaimed; a heartbeat keeps any job alive, however long it runs; a job is put
back through `failed`, with its attempt ended, so that its first worker can no longer touch it.
"""

import logging
from collections.abc import Callable
from datetime import timedelta

from holdfast.compat.job_queue import IdempotentJobQueue
from holdfast.compat.jobs import every
from holdfast.compat.states import JobStatus
from holdfast.core.errors import InputError, RefusedError

TIMEOUT_S = 600.0
RETRY_DELAY_S = 60.0

logger = logging.getLogger(__name__)


class DeadlockDetector:
    """Finds running jobs that nobody has been heard of for too long, and puts them back."""

    def __init__(self, queue: IdempotentJobQueue, timeout_seconds: float = TIMEOUT_S) -> None:
        if not timeout_seconds > 0:
            raise InputError(f"a timeout of {timeout_seconds} s would call every job stalled")
        self._queue = queue
        self._timeout_s = timeout_seconds

    def detect_stalled_jobs(self) -> list[str]:
        """Return the running jobs, oldest first, whose lease ran out or whose worker was silent beyond the timeout.

        When a worker was last heard of follows from the end of its lease, taken to be as long as this queue's.
        """
        now, lease = self._queue.store.now(), timedelta(seconds=self._queue.lease_s)
        stalled = []
        with self._queue.store.reading() as reading:
            for job in every(reading, JobStatus.RUNNING):
                execution = reading.executions.of_job(job.job_id)[-1]
                heard = max(execution.created_at, execution.lease_expires_at - lease)
                silent_s = (now - heard).total_seconds()
                if execution.lease_expires_at <= now or silent_s > self._timeout_s:
                    stalled.append(job.key or "")
                    logger.warning("Stalled job", extra={"job_id": job.key, "silent_seconds": silent_s})
        return stalled[::-1]

    def recover_stalled_job(self, job_id: str) -> JobStatus:
        """Put a stalled job back, due in a minute, and return the status it has then; refused while its lease lives."""
        logger.info("Recovering a stalled job", extra={"job_id": job_id})
        return self._queue.expire(job_id, RETRY_DELAY_S)

    def recover_stalled_jobs(self, approve: Callable[[str], bool] | None = None) -> list[str]:
        """Put back every stalled job whose lease has run out, or only those that somebody approves; return them."""
        recovered = []
        for job_id in self.detect_stalled_jobs():
            if approve is not None and not approve(job_id):
                logger.info("Left a stalled job alone", extra={"job_id": job_id})
                continue
            try:
                self.recover_stalled_job(job_id)
            except RefusedError:
                continue  # its worker was heard of meanwhile, or its lease still lives
            recovered.append(job_id)
        return recovered
