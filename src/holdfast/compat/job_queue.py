"""The idempotent job queue of G, over the ledger's store.

Each instance is a separate worker. It keeps the fencing tokens of the jobs that it claimed: no other instance can end
their attempts, and this one cannot after it has lost the lease.

Invariants: a job is read, its move is judged, and the move is written only if the row is unchanged since it was read;
the rows that the statement returns decide who won, never a row counter of the connection. A transition is recorded
after its transaction committed, so only transitions that happened are recorded. Requesting the status that a job has
already writes nothing.
"""

import logging
from collections.abc import Callable
from pathlib import Path as FilePath

import msgspec

from holdfast.compat.base_queue import JobQueue
from holdfast.compat.invariants import validate_database_integrity
from holdfast.compat.jobs import CLIENT, QUEUE, LeaseToken, after, find, lease_token, shown_by
from holdfast.compat.states import JobStatus
from holdfast.compat.validator import StateMachineValidator
from holdfast.core.commands import Cancel, Claim, Complete, Expire, Fail, Finish, Quarantine, Retry
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
from holdfast.core.governed import Release
from holdfast.core.machine import Path
from holdfast.core.machines import JOB, ExecutionStatus
from holdfast.core.records import Attempt, Job
from holdfast.core.rulings import Revoke
from holdfast.engine.error_texts import short_code
from holdfast.governance.quarantine import release_commands
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


class IdempotentJobQueue(JobQueue):
    """Jobs under the caller's own ids. Methods are idempotent unless called with `idempotent=False`.

    Idempotent: a move that is not allowed is logged as a warning and changes nothing. Strict: it raises.
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
            raise InputError(
                f"lease_s is {lease_s}, and must be more than 0 and at most {LEASE_S_MAX}",
                next_step=f"Give a lease of up to {LEASE_S_MAX} s.",
            )
        super().__init__(path_or_url, clock=clock, schema=schema)
        self.lease_s = lease_s
        self._validator = validator or StateMachineValidator(clock=self.store.now)
        self._held: dict[str, int] = {}
        self.integrity_issues = validate_database_integrity(self)
        for issue in self.integrity_issues:
            logger.error("The database is damaged", extra={"issue": issue})

    # -- claiming -----------------------------------------------------------------------------------------------------

    def claim(self, job_id: str | None = None) -> LeaseToken | None:
        """Lease the next due job, or the given one if it is due; return its token, or None if nothing was claimed."""
        with self.store.transaction() as transaction:
            if job_id is None:
                won = transaction.executions.claim(self._lease())
            else:
                won = transaction.executions.claim_these([find(transaction, job_id).job_id], self._lease())
            for attempt in won:
                if attempt.job.client != CLIENT:
                    raise InputError(
                        f"job {attempt.job.job_id} in queue {QUEUE!r} belongs to client {attempt.job.client!r}",
                        next_step=f"Submit other jobs to another queue: {QUEUE!r} is only for IdempotentJobQueue.",
                        context={"job_id": attempt.job.job_id, "queue": QUEUE, "client": attempt.job.client},
                    )
        if not won:
            return None
        token = self._keep(won[0])
        self._record(token.job_id, _CLAIM)
        return token

    def heartbeat(self, job_id: str, *, token: LeaseToken | None = None) -> bool:
        """Extend the lease of a claimed job by `lease_s`; return False if this instance no longer holds it."""
        shown = self._shown(job_id, token)
        if shown is None:
            return False
        with self.store.transaction() as transaction:
            held = transaction.lists.current_attempt(find(transaction, job_id).job_id)
            if held is None or held.execution.lease_token != shown:
                return False
            return bool(transaction.executions.extend_leases([(held.execution, self.lease_s)]))

    def _lease(self) -> Lease:
        return Lease(owner=self.worker, seconds=self.lease_s, queues=(QUEUE,))

    def _keep(self, attempt: Attempt) -> LeaseToken:
        won = lease_token(attempt)
        self._held[won.job_id] = won.token
        return won

    def _shown(self, job_id: str, token: LeaseToken | None) -> int | None:
        """Return the number of the token, or None if this instance has none or the token belongs to another job."""
        if token is None:
            return self._held.get(job_id)
        return token.token if token.job_id == job_id else None

    # -- moving jobs --------------------------------------------------------------------------------------------------

    def mark_running(self, job_id: str, *, idempotent: bool = True) -> None:
        """Claim one job for this instance. It returns nothing; `claim` returns whether the claim was won."""

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
        """End the attempt that this instance holds, or that the token names, as succeeded."""
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
        """End the attempt as failed. A job without any attempt left is quarantined."""

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
        """Quarantine a pending or failed job: it no longer runs by itself."""
        rule = self._ruling(lambda _: Quarantine(short_code(code), message), operator, reason)
        self._move(job_id, JobStatus.QUARANTINED, rule, operator=operator, reason=reason, idempotent=idempotent)

    def cancel_job(
        self, job_id: str, *, operator: str | None = None, reason: str | None = None, idempotent: bool = True
    ) -> bool:
        """Cancel a job: quarantine it as cancelled; return whether this call did it."""
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
                # The table lists this move as governed: it needs a grant, which this class cannot give.
                return Release(operator or self.worker, reason or "reschedule", None)
            return Retry(run_at)

        rule = self._ruling(command, operator, reason)
        self._move(job_id, JobStatus.PENDING, rule, operator=operator, reason=reason, idempotent=idempotent)

    def expire(self, job_id: str, retry_delay_seconds: float = 0, *, revoke: bool = False) -> JobStatus:
        """End an attempt whose lease expired, as recovery does, and return the status of the job after that.

        The job is due again after the delay if automatic retry has budget left. A live lease is a RefusedError, or with
        `revoke` it is revoked; a job that is not running is left alone.
        """
        retry_at = after(self.store.now(), retry_delay_seconds)
        with self.store.transaction() as transaction:
            attempt = _current(transaction, job_id)
            if attempt is None:
                return find(transaction, job_id).state
            committed = attempt.execution.status == ExecutionStatus.COMMITTED
            live = revoke and attempt.execution.lease_expires_at > self.store.now()
            command = Finish() if committed else Revoke(retry_at, "stalled") if live else Expire(retry_at)
            [answer] = transaction.executions.move([(attempt, command)], actor=self.worker, reason="stalled")
            if isinstance(answer, Refused) and answer.code != "lease_live":
                # Its worker, or another recovery, has ended the attempt.
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
        """Make a worker's move: the store requires its token and a live lease."""
        shown = self._shown(job_id, token)

        def end(job: Job) -> Path:
            if shown is None:
                whose = (
                    "is not held by this worker" if token is None else f"is not the job of the token, {token.job_id}"
                )
                raise LeaseLostError(f"Job {job_id} {whose}", context={"job_id": job_id})
            with self.store.transaction() as transaction:
                attempt = _attempt_under(transaction, job, shown)
                if attempt is None:
                    raise LeaseLostError(
                        f"The token {shown} does not belong to job {job_id}", context={"job_id": job_id}
                    )
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
        """Return an operator's move: the store requires the state and version that were read."""

        def rule(job: Job) -> Path:
            with self.store.transaction() as transaction:
                [answer] = transaction.rulings.rule([(job, command(job))], actor=operator or self.worker, reason=reason)
                if isinstance(answer, Refused) and answer.code == "grant_required":
                    step = f"Release it: `{release_commands(transaction, job)[0]}`"
                    answer = msgspec.structs.replace(answer, next_step=step)
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
        """Read, judge, act; return whether the job moved. If idempotent, try again while others move the job."""
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
        """Give the edges taken to the validator. The journal has them too, so a failure here is only logged."""
        for edge in path.edges:
            try:
                self._validator.validate_transition(
                    job_id, JobStatus(str(edge.source)), JobStatus(edge.target), operator=operator, reason=reason
                )
            except Exception:
                logger.exception("The audit logger failed", extra={"job_id": job_id})

    def _holds(self, job_id: str) -> bool:
        with self.store.reading() as reading:
            latest = _current(reading, job_id)
        return latest is not None and latest.execution.lease_token == self._held.get(job_id)

    def _forget(self, job_id: str, shown: int | None) -> None:
        if self._held.get(job_id) == shown:
            self._held.pop(job_id, None)

    def _unclaimable(self, reading: Reading, job: Job) -> RefusedError:
        answer = decide(job, Claim(), self.store.now())
        if isinstance(answer, Refused):
            return _error(job.key or "", answer)
        if QUEUE in reading.queues.paused():
            return RefusedError(
                f"Queue {QUEUE!r} is paused",
                next_step=f"Resume it: `holdfast resume --queue {QUEUE}`.",
                context={"paused": QUEUE},
            )
        switch = stopping(reading, job.operation)
        if switch is not None:
            return switched_off_error(job.operation, switch)
        return _error(job.key or "", Refused("race", "it changed state during the transition"))


def _current(reading: Reading, job_id: str) -> Attempt | None:
    """Return a running job with its attempt, or None if the job is not running."""
    return reading.lists.current_attempt(find(reading, job_id).job_id)


def _attempt_under(reading: Reading, job: Job, token: int) -> Attempt | None:
    """Return the attempt of a job that was leased under a token, or None if there is none."""
    found = [each.exec_id for each in reading.lists.executions(job.job_id) if each.lease_token == token]
    return reading.lists.attempt(found[0]) if found else None


def _taken(job_id: str, answer: Move | Refused) -> Path:
    """Return the path that a job took, or raise the error of its refusal."""
    if isinstance(answer, Refused):
        raise _error(job_id, answer)
    paths = [JOB.path(step.event, step.source) for step in answer.steps if step.machine == JOB.name]
    invariant(len(paths) == 1, f"a move with {len(paths)} steps of its job")
    return paths[0]


def _error(job_id: str, refused: Refused) -> RefusedError:
    kind = _ERRORS.get(refused.code, RefusedError)
    context = {"job_id": job_id, "refusal": refused.code}
    step = refused.next_step or (shown_by(job_id) if " ID`" in kind.next_step else None)
    return kind(f"Job {job_id}: {refused.message}", next_step=step, context=context)


def _skipped(job_id: str, refusal: RefusedError) -> None:
    logger.warning(
        "Skipping a transition (idempotent mode)", extra={"job_id": job_id, "code": refusal.code, "why": str(refusal)}
    )
