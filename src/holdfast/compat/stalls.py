"""The deadlock detector of G, over leases.

Invariants: only an expired lease is taken over, and with `automatic` also the live one of a job that has run for longer
than the timeout; otherwise a job whose worker sends heartbeats is never taken over; a recovered job passes through
`failed` with its attempt ended, so that its first worker can no longer change it.
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
    """Finds running jobs whose worker has sent no heartbeat for too long, and reopens them.

    With `automatic`, a job that has run for longer than the timeout is stalled whether its worker sends heartbeats or
    not, and its lease is revoked.
    """

    def __init__(
        self, queue: IdempotentJobQueue, timeout_seconds: float = TIMEOUT_S, *, automatic: bool = False
    ) -> None:
        if not timeout_seconds > 0:
            raise InputError(f"timeout_seconds is {timeout_seconds}, and must be more than 0")
        self._queue = queue
        self._timeout_s = timeout_seconds
        self._automatic = automatic

    def detect_stalled_jobs(self) -> list[str]:
        """Return the running jobs, oldest first, with an expired lease or a last heartbeat before the timeout.

        The time of the last heartbeat is computed from the end of the lease and this queue's `lease_s`. With
        `automatic`, the start of the attempt counts instead of the last heartbeat.
        """
        now, lease = self._queue.store.now(), timedelta(seconds=self._queue.lease_s)
        stalled = []
        with self._queue.store.reading() as reading:
            for job in every(reading, JobStatus.RUNNING):
                execution = reading.lists.executions(job.job_id)[-1]
                heard = execution.created_at
                if not self._automatic:
                    heard = max(heard, execution.lease_expires_at - lease)
                silent_s = (now - heard).total_seconds()
                if execution.lease_expires_at <= now or silent_s > self._timeout_s:
                    stalled.append(job.key or "")
                    logger.warning("Stalled job", extra={"job_id": job.key, "silent_seconds": silent_s})
        return stalled[::-1]

    def recover_stalled_job(self, job_id: str) -> JobStatus:
        """Reopen a stalled job, due in a minute, and return its status; raise RefusedError while its lease is live.

        With `automatic`, the live lease of a job that has run for longer than the timeout is revoked.
        """
        logger.info("Recovering a stalled job", extra={"job_id": job_id})
        revoke = self._automatic and job_id in self.detect_stalled_jobs()
        return self._queue.expire(job_id, RETRY_DELAY_S, revoke=revoke)

    def recover_stalled_jobs(self, approve: Callable[[str], bool] | None = None) -> list[str]:
        """Reopen the stalled jobs with an expired lease; with `approve`, only those it accepts. Return their ids."""
        recovered = []
        for job_id in self.detect_stalled_jobs():
            if approve is not None and not approve(job_id):
                logger.info("Left a stalled job alone", extra={"job_id": job_id})
                continue
            try:
                self.recover_stalled_job(job_id)
            except RefusedError:
                continue  # its worker has sent a heartbeat meanwhile, or its lease is still live
            recovered.append(job_id)
        return recovered
