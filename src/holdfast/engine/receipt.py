"""Receipt: what a caller gets for work that the ledger has recorded.

Invariants: a receipt is a snapshot; `wait` follows the job and returns a new one; reading it never changes the job.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic

from holdfast.core.machines import JobState
from holdfast.core.typevars import R_co

if TYPE_CHECKING:
    from holdfast.core.records import Job
    from holdfast.engine.ledger import Ledger

ENDED = frozenset({JobState.SUCCEEDED, JobState.QUARANTINED})


def ended(state: JobState | None, *, until_failed: bool) -> bool:
    """Return whether a wait for a job in this state ends."""
    return state in ENDED or (until_failed and state is JobState.FAILED)


class Receipt(Generic[R_co]):
    """A job as it was when this receipt was made; typed by what the handler of its operation returns."""

    state = JobState.PENDING
    error_code: str | None = None
    result_expired = False
    _result: str | None = None

    def __init__(self, ledger: Ledger, job_id: int, *, is_new: bool, job: Job | None = None) -> None:
        self._ledger = ledger
        self.job_id = job_id
        self.is_new = is_new
        if job is not None:
            self.state, self.error_code, self._result = job.state, job.last_error_code, job.result
            self.result_expired = job.slimmed

    def __repr__(self) -> str:
        return f"Receipt(job_id={self.job_id}, is_new={self.is_new}, state={self.state.value!r})"

    @property
    def result(self) -> R_co:
        """The stored result of a job that has succeeded; None while the job waits or runs.

        Raise JobUnsuccessfulError if the job is failed or quarantined, ResultExpiredError once retention has deleted
        the result.
        """
        if self.result_expired or self.state in (JobState.FAILED, JobState.QUARANTINED):
            from holdfast.engine.waiting import no_result  # noqa: PLC0415 - most jobs succeed

            raise no_result(self)
        value: Any = None if self._result is None else json.loads(self._result)
        return value  # type: ignore[no-any-return]  # the type is the caller's: what the handler returned, as JSON

    def wait(self, timeout: float | None = None, *, until_failed: bool = True) -> Receipt[R_co]:
        """Return a receipt of the job once it has ended: succeeded, failed without another attempt, or quarantined.

        With `until_failed=False`, a failed job does not end the wait, because it may be retried or replayed. Raise
        WaitTimeoutError after `timeout` seconds.
        """
        return self._ledger.wait(self, timeout, until_failed=until_failed)

    async def wait_async(self, timeout: float | None = None, *, until_failed: bool = True) -> Receipt[R_co]:
        """Wait without blocking the event loop, and without a thread for each wait."""
        return await self._ledger.wait_async(self, timeout, until_failed=until_failed)
