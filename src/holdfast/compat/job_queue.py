"""The idempotent job queue of G, as a face over the ledger's store.

Each instance is a worker with an identity of its own. It keeps the fencing tokens of the jobs that it claimed, so no
other instance can end their attempts, and neither can it once the lease is lost.

Invariants: a job is read, its move is judged, and the move is written only if the row is still the one that was read;
which rows were written decides who won, never a counter of the connection. A transition is recorded after its
transaction committed, so nothing is recorded that did not happen. Asking for the status that a job has writes nothing.
"""

import logging
from collections.abc import Callable
from pathlib import Path as FilePath

from holdfast.compat.board import JobBoard
from holdfast.compat.invariants import validate_database_integrity
from holdfast.compat.jobs import CLIENT, QUEUE, LeaseToken, after, find, lease_token
from holdfast.compat.states import JobStatus
from holdfast.compat.validator import StateMachineValidator
from holdfast.core.commands import Cancel, Claim, Complete, Expire, Fail, Finish, Quarantine, Release, Retry
from holdfast.core.decide import Move, Refused, decide
from holdfast.core.errors import (
    InputError,
    InvalidStateTransitionError,
    LeaseLostError,
    RefusedByDatabaseError,
    RefusedError,
    StateTransitionRaceError,
    invariant,
)
from holdfast.core.machine import Path
from holdfast.core.machines import JOB, ExecutionStatus
from holdfast.core.records import Attempt, Job
from holdfast.engine.failures import short_code
from holdfast.governance.switches import stopping, switched_off_error
from holdfast.store import Clock, Lease
from holdfast.store.transaction import Reading

LEASE_S = 600.0
LEASE_S_MAX = 30 * 86_400
_CLAIM = JOB.path("claim", JobStatus.PENDING)
_ERRORS: dict[str, type[RefusedError]] = {
    "race": StateTransitionRaceError,
    "lease_lost": LeaseLostError,
    "lease_expired": LeaseLostError,
    "wrong_state": LeaseLostError,  # of the execution: it has ended
}

logger = logging.getLogger(__name__)


class IdempotentJobQueue(JobBoard):
    """Jobs under the caller's own ids. Verbs are idempotent unless called with `idempotent=False`.

    Idempotent: a move that may not happen is logged as a warning, and nothing changes. Strict: it is an error.
    """

    def __init__(
        self,
        path_or_url: str | FilePath,
        validator: StateMachineValidator | None = None,
        *,
        lease_s: float = LEASE_S,
        clock: Clock | None = None,
        schema: str = "public",
    ) -> None:
        if not 0 < lease_s <= LEASE_S_MAX:
            raise InputError(f"a lease of {lease_s} s", next_step=f"Give a lease of 0 to {LEASE_S_MAX} s.")
        super().__init__(path_or_url, clock=clock, schema=schema)
        self.lease_s = lease_s
        self._validator = validator or StateMachineValidator(clock=self.store.now)
        self._held: dict[str, int] = {}
        self.integrity_issues = validate_database_integrity(self)
        for issue in self.integrity_issues:
            logger.error("The database is damaged", extra={"issue": issue})

    # -- taking work out ----------------------------------------------------------------------------------------------

    def claim(self, job_id: str | None = None) -> LeaseToken | None:
        """Lease the next due job, or the given one if it is due; return its token, or None if nothing was won."""
        with self.store.transaction() as transaction:
            if job_id is None:
                won = transaction.executions.claim(self._lease())
            else:
                won = transaction.executions.claim_these([find(transaction, job_id).job_id], self._lease())
            for attempt in won:
                if attempt.job.client != CLIENT:
                    raise InputError(
                        f"job {attempt.job.job_id} of client {attempt.job.client!r} stands in the queue {QUEUE!r}",
                        next_step="Submit other work to another queue: this one is for the compat face alone.",
                    )
        if not won:
            return None
        token = self._keep(won[0])
        self._record(token.job_id, _CLAIM)
        return token

    def heartbeat(self, job_id: str, *, token: LeaseToken | None = None) -> bool:
        """Hold a job that is being worked on for another lease; return False if it is no longer held."""
        shown = self._shown(job_id, token)
        if shown is None:
            return False
        with self.store.transaction() as transaction:
            return shown in transaction.executions.extend_leases([(shown, shown, self.lease_s)])

    def _lease(self) -> Lease:
        return Lease(owner=self.worker, seconds=self.lease_s, queues=(QUEUE,))

    def _keep(self, attempt: Attempt) -> LeaseToken:
        won = lease_token(attempt)
        self._held[won.job_id] = won.token
        return won

    def _shown(self, job_id: str, token: LeaseToken | None) -> int | None:
        return self._held.get(job_id) if token is None else token.token

    # -- moving jobs --------------------------------------------------------------------------------------------------

    def mark_running(self, job_id: str, *, idempotent: bool = True) -> None:
        """Claim this one job for this instance. It does not tell who won: `claim` does."""

        def take(job: Job) -> Path:
            with self.store.transaction() as transaction:
                won = transaction.executions.claim_these([job.job_id], self._lease())
                if not won:
                    raise self._unclaimable(transaction, job)
            self._keep(won[0])
            return _CLAIM

        moved = self._move(job_id, JobStatus.RUNNING, take, idempotent=idempotent)
        if not moved and not idempotent and not self._holds(job_id):
            raise StateTransitionRaceError(f"Job {job_id} is running under another worker", context={"job_id": job_id})

    def mark_completed(self, job_id: str, *, token: LeaseToken | None = None, idempotent: bool = True) -> None:
        """End the attempt that this instance holds, or that the token names, with success."""
        self._end(job_id, JobStatus.SUCCEEDED, Complete, token, idempotent=idempotent)

    def mark_failed(
        self,
        job_id: str,
        *,
        error_code: str = "failed",
        error_message: str = "",
        token: LeaseToken | None = None,
        idempotent: bool = True,
    ) -> None:
        """End the attempt without success. A job that has spent its whole budget goes on to quarantine."""

        def failure(shown: int) -> Fail:
            return Fail(shown, short_code(error_code), str(error_message))

        self._end(job_id, JobStatus.FAILED, failure, token, idempotent=idempotent)

    def mark_quarantined(
        self,
        job_id: str,
        *,
        code: str = "unknown",
        message: str | None = None,
        operator: str | None = None,
        reason: str | None = None,
        idempotent: bool = True,
    ) -> None:
        """Take a pending or failed job out of automatic flows."""
        rule = self._ruling(lambda _: Quarantine(short_code(code), message), operator, reason)
        self._move(job_id, JobStatus.QUARANTINED, rule, operator=operator, reason=reason, idempotent=idempotent)

    def cancel_job(
        self, job_id: str, *, operator: str | None = None, reason: str | None = None, idempotent: bool = True
    ) -> bool:
        """Quarantine a job that nobody wants any more; return whether this call did it."""
        rule = self._ruling(lambda _: Cancel(), operator, reason)
        return self._move(job_id, JobStatus.QUARANTINED, rule, operator=operator, reason=reason, idempotent=idempotent)

    def reschedule(
        self,
        job_id: str,
        retry_delay_seconds: float = 0,
        *,
        operator: str | None = None,
        reason: str | None = None,
        idempotent: bool = True,
    ) -> None:
        """Put a failed job back, due after the delay, within the budget that the ledger keeps."""
        run_at = after(self.store.now(), retry_delay_seconds)

        def command(job: Job) -> object:
            if job.state == JobStatus.QUARANTINED:
                # The table lists this move as governed: it needs a grant, which this face does not give.
                return Release(operator or self.worker, reason or "reschedule", None)
            return Retry(run_at)

        rule = self._ruling(command, operator, reason)
        self._move(job_id, JobStatus.PENDING, rule, operator=operator, reason=reason, idempotent=idempotent)

    def expire(self, job_id: str, retry_delay_seconds: float = 0) -> JobStatus:
        """End an attempt whose lease ran out, as recovery does, and return the status that the job has then.

        The job is due again after the delay if automatic retry has budget left. A live lease is a RefusedError; a job
        that is not running is left alone.
        """
        retry_at = after(self.store.now(), retry_delay_seconds)
        with self.store.transaction() as transaction:
            attempt = _latest(transaction, job_id)
            if attempt is None:
                return find(transaction, job_id).state
            committed = attempt.execution.status == ExecutionStatus.COMMITTED
            command = Finish() if committed else Expire(retry_at)
            [answer] = transaction.executions.move([(attempt, command)], actor=self.worker, reason="stalled")
            if isinstance(answer, Refused) and answer.code != "lease_live":
                # The attempt has ended, by its worker or by somebody else's recovery.
                return find(transaction, job_id).state
        path = _taken(job_id, answer)
        self._record(job_id, path, reason="stalled")
        return JobStatus(path.target)

    def _end(
        self,
        job_id: str,
        target: JobStatus,
        command: Callable[[int], object],
        token: LeaseToken | None,
        *,
        idempotent: bool,
    ) -> None:
        """Make a worker's move: it shows a token, and the store matches it with a live lease."""
        shown = self._shown(job_id, token)

        def end(job: Job) -> Path:
            if shown is None:
                raise LeaseLostError(f"Job {job_id} is not held by this worker", context={"job_id": job_id})
            with self.store.transaction() as transaction:
                attempt = transaction.executions.attempt(shown)
                if attempt is None or attempt.job.job_id != job.job_id:
                    raise LeaseLostError(f"the token shown is not one of job {job_id}", context={"job_id": job_id})
                [answer] = transaction.executions.move([(attempt, command(shown))], actor=self.worker)
            return _taken(job_id, answer)

        try:
            self._move(job_id, target, end, idempotent=idempotent)
        except RefusedError:
            self._forget(job_id, shown)
            raise
        self._forget(job_id, shown)

    def _ruling(
        self, command: Callable[[Job], object], operator: str | None, reason: str | None
    ) -> Callable[[Job], Path]:
        """Return a move from outside: the store matches the job's state and version with those that were read."""

        def rule(job: Job) -> Path:
            with self.store.transaction() as transaction:
                [answer] = transaction.jobs.rule([(job, command(job))], actor=operator or self.worker, reason=reason)
            return _taken(job.key or "", answer)

        return rule

    def _move(
        self,
        job_id: str,
        target: JobStatus,
        act: Callable[[Job], Path],
        *,
        idempotent: bool,
        operator: str | None = None,
        reason: str | None = None,
    ) -> bool:
        """Read, judge, act; return whether the job was moved. Idempotent: decide anew while others move the job."""
        while True:
            job = self._read(job_id)
            try:
                wanted = self._validator.judge(job_id, job.state, target, operator=operator, reason=reason)
            except InvalidStateTransitionError as refusal:
                if not idempotent:
                    raise
                _skipped(job_id, refusal)
                return False
            if wanted.is_idempotent():
                return False
            try:
                path = act(job)
            except RefusedError as refusal:
                if not idempotent or isinstance(refusal, RefusedByDatabaseError):
                    raise
                if self._read(job_id).version == job.version:
                    _skipped(job_id, refusal)
                    return False
            else:
                self._record(job_id, path, operator=operator, reason=reason)
                return True

    def _record(self, job_id: str, path: Path, *, operator: str | None = None, reason: str | None = None) -> None:
        """Tell the validator which edges were taken. The journal has them, so a failure to tell is only logged."""
        for edge in path.edges:
            try:
                self._validator.validate_transition(
                    job_id, JobStatus(str(edge.source)), JobStatus(edge.target), operator=operator, reason=reason
                )
            except Exception:
                logger.exception("The audit logger failed", extra={"job_id": job_id})

    def _holds(self, job_id: str) -> bool:
        with self.store.reading() as reading:
            latest = _latest(reading, job_id)
        return latest is not None and latest.execution.lease_token == self._held.get(job_id)

    def _forget(self, job_id: str, shown: int | None) -> None:
        if self._held.get(job_id) == shown:
            self._held.pop(job_id, None)

    def _unclaimable(self, reading: Reading, job: Job) -> RefusedError:
        answer = decide(job, Claim(), self.store.now())
        if isinstance(answer, Refused):
            return _error(job.key or "", answer)
        if QUEUE in reading.queues.paused():
            return RefusedError(f"the queue {QUEUE!r} is paused", next_step="Resume the queue, then claim.")
        switch = stopping(reading, job.operation)
        if switch is not None:
            return switched_off_error(job.operation, switch)
        return _error(job.key or "", Refused("race", "it changed state during the transition"))


def _latest(reading: Reading, job_id: str) -> Attempt | None:
    """Return a job with its latest attempt, if there was one: read together, so that they belong together."""
    executions = reading.executions.of_job(find(reading, job_id).job_id)
    return reading.executions.attempt(executions[-1].exec_id) if executions else None


def _taken(job_id: str, answer: Move | Refused) -> Path:
    """Return the path that a job took, or raise what refused it."""
    if isinstance(answer, Refused):
        raise _error(job_id, answer)
    paths = [JOB.path(step.event, step.source) for step in answer.steps if step.machine == JOB.name]
    invariant(len(paths) == 1, f"a move with {len(paths)} steps of its job")
    return paths[0]


def _error(job_id: str, refused: Refused) -> RefusedError:
    kind = _ERRORS.get(refused.code, RefusedError)
    return kind(f"Job {job_id}: {refused.message}", context={"job_id": job_id, "refusal": refused.code})


def _skipped(job_id: str, refusal: RefusedError) -> None:
    logger.warning(
        "Skipping a transition (idempotent mode)", extra={"job_id": job_id, "code": refusal.code, "why": str(refusal)}
    )
