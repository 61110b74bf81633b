"""The orchestrator of G: runs the jobs of a queue with one handler for each job type.

It is a thin loop over the queue: claim, run the handler, end the attempt. A failed job is put back after `backoff_s`,
at most `max_retries` times, and then quarantined.

Invariants: a job in work is in `_active_jobs_map`, from its claim until its attempt has ended; each attempt ends under
the token of its own claim.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.compat.job_queue import IdempotentJobQueue
from holdfast.compat.jobs import JobRow, LeaseToken
from holdfast.core.errors import LeaseLostError
from holdfast.core.records import time_text
from holdfast.engine.error_texts import short_code

MAX_RETRIES = 3
BACKOFF_S = 60.0

logger = logging.getLogger(__name__)


class IngestionOrchestrator:
    """Runs jobs one after the other in the caller's thread; `_active_jobs_map` has the one in work, by job id."""

    def __init__(
        self,
        queue: IdempotentJobQueue,
        handlers: Mapping[str, Callable[[JobRow], object]],
        *,
        max_retries: int = MAX_RETRIES,
        backoff_s: float = BACKOFF_S,
    ) -> None:
        self._job_queue = queue
        self._handlers = dict(handlers)
        self._max_retries = max_retries
        self._backoff_s = backoff_s
        self._active_jobs_map: dict[str, dict[str, Any]] = {}

    def process_next(self) -> bool:
        """Claim the next due job and run it; return whether there was one."""
        token = self._job_queue.claim()
        if token is None:
            return False
        started = {"job_type": token.job["job_type"], "started_at": time_text(self._job_queue.store.now())}
        self._active_jobs_map[token.job_id] = started
        try:
            self._process(token)
        except LeaseLostError as error:
            logger.warning("The lease was lost", extra={"job_id": token.job_id, "why": str(error)})
        finally:
            del self._active_jobs_map[token.job_id]
        return True

    def run_until_idle(self) -> int:
        """Process jobs until none is due; return how many attempts were made."""
        attempts = 0
        while self.process_next():
            attempts += 1
        return attempts

    def _process(self, token: LeaseToken) -> None:
        handler = self._handlers.get(token.job["job_type"])
        if handler is None:
            self._failed(
                token, "unknown_job_type", f"the orchestrator has no handler for job type {token.job['job_type']!r}"
            )
            return
        try:
            handler(token.job)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is the failure of its job
            self._failed(token, short_code(type(error).__name__), str(error))
        else:
            self._job_queue.mark_completed(token.job_id, token=token, idempotent=False)

    def _failed(self, token: LeaseToken, code: str, message: str) -> None:
        queue = self._job_queue
        queue.mark_failed(token.job_id, error_code=code, error_message=message, token=token, idempotent=False)
        if token.attempt <= self._max_retries:
            queue.reschedule(token.job_id, self._backoff_s)
        else:
            queue.mark_quarantined(token.job_id, code=code, message=message)
