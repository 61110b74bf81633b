"""Receipt: what a caller gets for work that the ledger has recorded.

Invariants: a receipt is a snapshot; `wait` follows the job and returns a new one; reading it never changes the job.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from holdfast.core.digest import Json
from holdfast.core.errors import ResultExpiredError
from holdfast.core.machines import JobState

if TYPE_CHECKING:
    from holdfast.core.records import Job
    from holdfast.engine.ledger import Ledger

ENDED = frozenset({JobState.SUCCEEDED, JobState.QUARANTINED})


class Receipt:
    """A job as it was when this receipt was made."""

    def __init__(self, ledger: Ledger, job_id: int, *, is_new: bool, job: Job | None = None) -> None:
        self._ledger = ledger
        self.job_id = job_id
        self.is_new = is_new
        self.state = JobState.PENDING if job is None else job.state
        self.error_code = None if job is None else job.last_error_code
        self.result_expired = job is not None and job.slimmed
        self._result = None if job is None else job.result

    def __repr__(self) -> str:
        return f"Receipt(job_id={self.job_id}, is_new={self.is_new}, state={self.state.value!r})"

    @property
    def result(self) -> Json:
        """The stored result, once the job has succeeded; ResultExpiredError once retention has dropped it."""
        if self.result_expired:
            raise ResultExpiredError(
                f"job {self.job_id} is {self.state.value}, but retention has dropped its result",
                context={"job_id": self.job_id, "state": self.state.value},
            )
        return None if self._result is None else json.loads(self._result)

    def wait(self, timeout: float | None = None, *, until_failed: bool = False) -> Receipt:
        """Return a receipt of the job once it has succeeded or is quarantined; raise WaitTimeoutError after `timeout`.

        A job that rests in `failed` may still be replayed; `until_failed` stops there too.
        """
        return self._ledger.wait(self, timeout, until_failed=until_failed)

    async def wait_async(self, timeout: float | None = None, *, until_failed: bool = False) -> Receipt:
        """Wait without blocking the event loop."""
        return await self._ledger.wait_async(self, timeout, until_failed=until_failed)
