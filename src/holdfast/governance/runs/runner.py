"""The engine of runs: it begins a run or takes it up, holds its lease, consumes its grant, advances it and records it.

What a run consists of is its `Work`: a procedure has steps and compensations, a replay has batches. The engine asks the
work for one act at a time, and gives each a transaction of its own.

Invariants: lease, grant and the record of a run are taken in one transaction, or none of them; a grant is consumed
once, by the actor that it names; an act, its record and its journal rows are one transaction; the moves of other
processes are seen before an act is chosen.
"""

from __future__ import annotations

import contextlib
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.core.authority import Rejected
from holdfast.core.decide import Refused
from holdfast.core.errors import RecordNotFoundError, StateTransitionRaceError, StoreError
from holdfast.core.machines import ProcedureState
from holdfast.governance.approval import environment_of
from holdfast.governance.grants import authorise, issue, rejection, verdict_on
from holdfast.governance.runs.lease import RunLease

if TYPE_CHECKING:
    from holdfast.core.authority import Wanted
    from holdfast.core.governed import PerformedStep, ProcedureRun
    from holdfast.engine.world import World
    from holdfast.governance.runs.request import RunRequest
    from holdfast.governance.runs.steps import Step
    from holdfast.store import Store
    from holdfast.store.transaction import Reading, Transaction

UNFINISHED = frozenset({ProcedureState.RUNNING, ProcedureState.COMPENSATING})


class RunOvertaken(Exception):
    """Another process has begun or moved the run since it was read."""


class RunEnded(Exception):
    """There is nothing more to do: another process has ended the run, or a compensation has failed."""


class Stop(StrEnum):
    """Why a run stopped that can be continued."""

    OPERATOR = "STOPPED_BY_OPERATOR"
    KILL_SWITCH = "KILL_SWITCH"
    SLO_RISK = "SLO_RISK"
    SAME_ERROR = "SAME_ERROR"
    RUNNER_LOST = "RUNNER_LOST"  # its process crashed; the next process found it


class RunHalted(Exception):
    """Ends a run before anything of a batch is written. Without a reason, another process has stopped the run."""

    def __init__(self, reason: Stop | None, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class Act(NamedTuple):
    """What comes next: a step or a batch to perform, a record to undo, or, with neither, the stop."""

    point: str  # of its crash points: before, inside and after it
    number: int = 0
    step: Step | None = None
    record: PerformedStep | None = None


class Work(Protocol):
    """What a run consists of."""

    def due(self, transaction: Transaction) -> tuple[ProcedureRun, Act]:
        """Hold the lease and return the run and its next act; raise RunEnded if there is none."""

    def take(self, transaction: Transaction, run: ProcedureRun, act: Act) -> ProcedureRun:
        """Take an act, record it, and return the run after it."""

    def committed(self, act: Act) -> None:
        """Continue after an act that is durable."""

    def failed(self, act: Act | None, error: Exception) -> ProcedureRun:
        """Return the run after an act that was rolled back, or raise."""


class Runner:
    """One attempt to advance one run."""

    def __init__(self, store: Store[Any], request: RunRequest, world: World) -> None:
        self.store, self.request, self.world = store, request, world
        self.lease = RunLease(store, request)

    def run(self, reading: Reading) -> ProcedureRun:
        """Return the run, or raise RecordNotFoundError."""
        return required(reading.runs.get(self.request.root), self.request.root)

    # -- beginning ----------------------------------------------------------------------------------------------------

    def acquire(self, transaction: Transaction) -> None:
        """Take the lease, or extend it; raise RuntimeLeaseError if another holder has it, or AuthorityError.

        A fault of the grant is reported first, because waiting for the lease would not mend it.
        """
        if self.lease.acquire(transaction):
            return
        request = self.request
        wanted, run = request.wanted(environment_of(transaction)), transaction.runs.get(request.root)
        own = run is not None and run.grant_id == request.grant_id
        if wanted is not None and request.grant_id is not None and not own:
            verdict = verdict_on(transaction, wanted, request.grant_id)
            if isinstance(verdict, Rejected):
                raise rejection(verdict, wanted)
        raise self.lease.held(transaction.leases.all()[request.target].holder)

    def needs_grant(self, reading: Reading, run: ProcedureRun, *, governed: bool) -> bool:
        """Return whether a run needs another grant: its own works only for the actor who consumed it."""
        own = reading.grants.get(run.grant_id) if run.grant_id else None
        named = self.request.grant_id
        if own is None:
            return governed or named is not None
        return own.consumed_by != self.request.actor or named not in (None, own.grant_id)

    def consume(self, transaction: Transaction, wanted: Wanted, *, dry: bool = False) -> int:
        """Consume a grant that permits `wanted` and return its id, or raise AuthorityError."""
        if dry:
            # The database requires a grant; this one is rolled back with everything else.
            return issue(transaction, wanted, reason=self.request.reason)
        return authorise(transaction, wanted, grant_id=self.request.grant_id, reason=self.request.reason)

    def begin(self, transaction: Transaction, grant_id: int | None) -> ProcedureRun:
        """Record a new run and return it; raise RunOvertaken if the root has a run."""
        request = self.request
        run_id = transaction.runs.begin(
            request.root,
            request.procedure,
            params=request.params_text,
            plan=request.plan,
            lease=request.target,
            grant_id=grant_id,
            actor=request.actor,
            reason=request.reason,
        )
        run = transaction.runs.get(request.root)
        if run_id is None or run is None:
            raise RunOvertaken
        return self.move(transaction, run, "run")

    def move(
        self,
        transaction: Transaction,
        run: ProcedureRun,
        event: str,
        *,
        reason: str | None = None,
        stop_state: str | None = None,
        failure: str | None = None,
        grant_id: int | None = None,
    ) -> ProcedureRun:
        """Move a run and return it; raise StateTransitionRaceError if another process has moved it."""
        request = self.request
        answer = transaction.runs.move(
            run,
            event,
            actor=request.actor,
            reason=reason or request.reason,
            stop_state=stop_state,
            failure=failure,
            grant_id=grant_id,
        )
        after = transaction.runs.get(request.root)
        if isinstance(answer, Refused) or after is None:
            raise StateTransitionRaceError(
                f"run {request.root!r} was moved by another process", context={"root": request.root}
            )
        return after

    def resume(
        self, transaction: Transaction, run: ProcedureRun, permission: Wanted, *, governed: bool
    ) -> ProcedureRun:
        """Continue a run of batches, under another grant if it needs one; one that still runs has crashed."""
        if run.state is ProcedureState.RUNNING:
            failure = "the process that ran it has crashed"
            run = self.move(transaction, run, "abort", stop_state=Stop.RUNNER_LOST, failure=failure)
        fresh = self.consume(transaction, permission) if self.needs_grant(transaction, run, governed=governed) else None
        return self.move(transaction, run, "resume", grant_id=fresh)

    # -- advancing ----------------------------------------------------------------------------------------------------

    def advance(self, work: Work) -> ProcedureRun:
        """Take the next act in a transaction of its own, and return the run after it."""
        act: Act | None = None
        try:
            with self.store.transaction() as transaction:
                run, act = work.due(transaction)
                self.world.reach(f"before {act.point}")
                run = work.take(transaction, run, act)
                self.world.reach(f"inside {act.point}")
        except Exception as error:  # noqa: BLE001 - the work decides
            return work.failed(act, error)
        work.committed(act)
        self.world.reach(f"after {act.point}")
        return run

    def record(self, transaction: Transaction, run: ProcedureRun, number: int, name: str, outcome: str) -> None:
        """Record a step or a batch as performed, with its outcome as JSON."""
        request = self.request
        transaction.runs.perform_step(run.run_id, number, name, outcome, actor=request.actor, reason=request.reason)

    # -- ending -------------------------------------------------------------------------------------------------------

    def finish(self, transaction: Transaction, run: ProcedureRun) -> ProcedureRun:
        """End a run that is done, and release its lease."""
        run = self.move(transaction, run, "finish")
        self.lease.release(transaction)
        return run

    def stop(
        self, transaction: Transaction, run: ProcedureRun, event: str, stop_state: str | None, failure: str | None
    ) -> ProcedureRun:
        """Stop a run under a name, and release its lease; raise StateTransitionRaceError if it cannot be stopped."""
        run = self.move(transaction, run, event, stop_state=stop_state, failure=failure)
        self.lease.release(transaction)
        return run

    def let_go(self) -> None:
        """Release the lease after an error; if that fails too, the lease expires."""
        with contextlib.suppress(StoreError), self.store.transaction() as transaction:
            self.lease.release(transaction)


def required(run: ProcedureRun | None, root: str) -> ProcedureRun:
    """Return a run that must exist, or raise RecordNotFoundError."""
    if run is None:
        raise RecordNotFoundError(
            f"no run has the root {root!r}",
            next_step="List the runs: `holdfast procedure list`.",
            context={"root": root},
        )
    return run
