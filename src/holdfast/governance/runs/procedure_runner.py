"""One attempt at a run of a procedure: as a plan, as a verification, as a dry run, or for real.

The ledger alone says what comes next: each transaction takes the lease, reads the run, and takes one act. It performs
the first open step, or undoes the last performed one, or stops. A dry run takes the same acts in one transaction that
is rolled back.

Invariants: a step's writes, its record and its journal rows are one transaction; an exception of a step is its failure
and leads to its stop, unless the database failed: then the outcome of the step is unknown, nothing is undone, and the
run stays where it is.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.decide import Refused
from holdfast.core.digest import Json, canonical, payload_text
from holdfast.core.errors import InvalidStateTransitionError, RuntimeLeaseError, StateTransitionRaceError, StoreError
from holdfast.core.machines import ProcedureState, StepState
from holdfast.engine.error_texts import error_message
from holdfast.engine.world import World
from holdfast.governance.runs.lease import NO_LEASE
from holdfast.governance.runs.reservation import Reservation
from holdfast.governance.runs.runner import UNFINISHED, Act, RunEnded, Runner, RunOvertaken
from holdfast.governance.runs.status import BY_OPERATOR, failure_text, fates, records_of, stop_cause
from holdfast.governance.runs.steps import (
    DONE,
    GO,
    Mode,
    ProcedureReport,
    ProcedureRequest,
    Step,
    StepContext,
    StepReport,
)

if TYPE_CHECKING:
    from holdfast.core.governed import PerformedStep, ProcedureRun
    from holdfast.store import Store
    from holdfast.store.transaction import Reading, Transaction


class _RolledBack(Exception):
    """Rolls a dry run back."""


class ProcedureRunner:
    """One attempt to advance one run of a procedure; the work of a `Runner`."""

    def __init__(self, store: Store[Any], request: ProcedureRequest, mode: Mode, world: World) -> None:
        self._store, self._request, self._mode, self._world = store, request, mode, world
        self._what, self._root = request.what, request.root
        self._runner = Runner(store, request, world)
        self._reservation = Reservation(self._runner, request)
        self._stored: ProcedureRun | None = None  # as other processes see it
        self._run: ProcedureRun | None = None  # as the open transaction, if there is one, sees it
        self._records: list[PerformedStep] = []
        self._before = 0  # the last record when this attempt began
        self._outcomes: dict[str, Json] = {}
        self._fates: dict[str, str] = {}  # that the records do not show

    # -- modes --------------------------------------------------------------------------------------------------------

    def plan(self) -> ProcedureReport:
        """Return what would be done, without reading the ledger."""
        return self._report(GO)

    def verify(self) -> ProcedureReport:
        """Check the present state against what every performed step promised; nothing is written."""
        with self._store.reading() as reading:
            run = self._look(reading)
            self._reservation.look(reading, run)
            if run is None or run.state == ProcedureState.STOPPED:
                return self._checked(reading) or self._report(GO)
            context = self._context(reading, run)
            for number, step in self._what.numbered().items():
                if number not in self._performed() or step.verify is None:
                    continue
                try:
                    step.verify(context)
                except Exception as error:  # noqa: BLE001 - a step is the caller's code
                    return self._refused(step, error)
                self._fates[step.name] = "passed"
        return self._report_of(run, otherwise=GO)

    def dry_run(self) -> ProcedureReport:
        """Do everything in one transaction, and roll it back."""
        with self._store.reading() as reading:
            known = self._look(reading)
            if known is None or known.state == ProcedureState.STOPPED:
                refused = self._checked(reading)
                if refused is not None:
                    return refused
        act: Act | None = None
        try:
            with contextlib.suppress(_RolledBack, RunEnded), self._store.transaction() as transaction:
                run = known
                if run is None or self._reservation.is_due(transaction, run):
                    run = self._reserve(transaction, known)
                while run.state in UNFINISHED:
                    run, act = self.due(transaction)
                    run = self.take(transaction, run, act)
                self._remember(transaction, run)
                raise _RolledBack
        except RunOvertaken:
            return ProcedureRunner(self._store, self._request, self._mode, self._world).dry_run()
        except Exception as error:
            failed = self._dry_failure(act, error)
            if failed is None:
                raise
            return failed
        if known is None or known.state == ProcedureState.STOPPED:
            return self._report(GO)
        return self._report_of(known, otherwise=GO)

    def _dry_failure(self, act: Act | None, error: Exception) -> ProcedureReport | None:
        """Return the report of a failure in a dry run, or None if the procedure did not cause it."""
        if act is None:
            held = isinstance(error, RuntimeLeaseError)
            return self._report(NO_LEASE, failure=error_message(error)) if held else None
        if act.step is not None:
            return self._refused(act.step, error)
        if act.record is None or self._run is None:
            return None
        self._raise_if_lost(error)
        self._fates[act.record.name] = "stuck"
        return self._report(self._run.stop_state or "", failure=_not_undone(self._run, act.record, error))

    def real_run(self) -> ProcedureReport:
        """Run to the end, or into a stop with everything undone."""
        with self._store.reading() as reading:
            run = self._look(reading)
            if run is None or run.state == ProcedureState.STOPPED:
                self._world.reach("before checks")
                refused = self._checked(reading)
                if refused is not None:
                    return refused
            reserves = self._reservation.is_due(reading, run)
        while run is None or reserves:
            self._world.reach(f"before {self._what.reserve}")
            try:
                with self._store.transaction() as transaction:
                    run = self._reserve(transaction, run)
                    self._world.reach(f"inside {self._what.reserve}")
            except RunOvertaken:
                # Continue the run that another process has begun; but if that has stopped, its stop is the answer.
                with self._store.reading() as reading:
                    self._look(reading)
                    run = self._runner.run(reading)
                    reserves = run.state == ProcedureState.RUNNING and self._reservation.is_due(reading, run)
            else:
                reserves = False
                self._world.reach(f"after {self._what.reserve}")
        return self._run_to_end(run)

    def undo(self) -> ProcedureReport:
        """Undo every performed step, and stop."""
        with self._store.reading() as reading:
            self._look(reading)
            run = self._runner.run(reading)
        if run.state == ProcedureState.DONE:
            raise InvalidStateTransitionError(
                f"run {self._root!r} is done and cannot be undone",
                next_step="Run another procedure that reverses its work.",
                context={"root": self._root},
            )
        if run.state == ProcedureState.RUNNING:
            with contextlib.suppress(RunEnded):
                self._compensate(BY_OPERATOR, f"undone by {self._request.actor}: {self._request.reason}")
        return self._run_to_end(run)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _look(self, reading: Reading) -> ProcedureRun | None:
        """Return the run of the root, or None; raise if it is not the requested one."""
        run = reading.runs.get(self._root)
        self._stored = run
        if run is not None:
            self._request.require_same(run)
            self._remember(reading, run)
            self._before = self._records[-1].step_id if self._records else 0
        return run

    def _remember(self, reading: Reading, run: ProcedureRun) -> None:
        self._run, self._records = run, records_of(reading, run.run_id)
        self._outcomes = {record.name: msgspec.json.decode(record.outcome) for record in self._performed().values()}
        self._fates.clear()

    def _performed(self) -> dict[int, PerformedStep]:
        return {record.number: record for record in self._records if record.state == StepState.PERFORMED}

    def _context(self, reading: Reading, run: ProcedureRun | None) -> StepContext:
        return StepContext(
            transaction=reading,
            root=self._root,
            params=self._request.params,
            outcomes=dict(self._outcomes),
            actor=self._request.actor,
            reason=self._request.reason,
            run_id=run.run_id if run else None,
            grant_id=run.grant_id if run else None,
            dry=self._mode is not Mode.REAL_RUN,
        )

    # -- beginning ----------------------------------------------------------------------------------------------------

    def _checked(self, reading: Reading) -> ProcedureReport | None:
        """Run the checks, which only read; return a report if one of them fails."""
        for step in self._what.checks:
            try:
                self._carry_out(step, reading, None)
            except Exception as error:  # noqa: BLE001 - a check is the caller's code
                return self._refused(step, error)
            self._fates[step.name] = "passed"
        return None

    def _refused(self, step: Step, error: Exception) -> ProcedureReport:
        """Return the report of a failure that wrote nothing; raise if the database failed."""
        self._raise_if_lost(error)
        self._fates[step.name] = "failed"
        return self._report(step.stop, failure=error_message(error))

    def _reserve(self, transaction: Transaction, seen: ProcedureRun | None) -> ProcedureRun:
        run = self._reservation.make(transaction, seen, self._outcomes, dry=self._mode is not Mode.REAL_RUN)
        self._remember(transaction, run)
        return run

    # -- advancing ----------------------------------------------------------------------------------------------------

    def _run_to_end(self, run: ProcedureRun) -> ProcedureReport:
        with contextlib.suppress(RunEnded):
            while run.state in UNFINISHED:
                run = self._runner.advance(self)
        with self._store.reading() as reading:
            self._stored = run = self._runner.run(reading)
            self._remember(reading, run)
        if run.grant_id is not None:
            self._reservation.authority = GO
        return self._report_of(run, otherwise="RUNNING")

    def due(self, transaction: Transaction) -> tuple[ProcedureRun, Act]:
        """Return the run and what comes next: the first open step, the last one to undo, or the stop."""
        run = self._held(transaction)
        performed = self._performed()
        if run.state == ProcedureState.RUNNING:
            number, step = next(each for each in self._what.numbered().items() if each[0] not in performed)
            return run, Act(step.name, number, step=step)
        if not performed:
            return run, Act("stopping")
        last = performed[max(performed)]
        return run, Act(f"undoing {last.name}", last.number, record=last)

    def _held(self, transaction: Transaction) -> ProcedureRun:
        """Take the lease, and return the run, which no other process can move now."""
        self._unfinished(transaction)  # a run that has ended needs no lease
        self._runner.acquire(transaction)
        run = self._unfinished(transaction)  # it may have ended while this process waited for the lease
        self._remember(transaction, run)
        return run

    def _unfinished(self, transaction: Transaction) -> ProcedureRun:
        run = self._runner.run(transaction)
        if run.state not in UNFINISHED:
            raise RunEnded
        return run

    def take(self, transaction: Transaction, run: ProcedureRun, act: Act) -> ProcedureRun:
        """Perform a step, undo one, or stop; record it, and return the run after it."""
        if act.step is not None:
            return self._perform(transaction, run, act.number, act.step)
        if act.record is not None:
            self._undo(transaction, run, act.record)
            return run
        return self._runner.stop(transaction, run, "stop", run.stop_state, stop_cause(run.failure))

    def committed(self, act: Act) -> None:
        """Do nothing: the next act reads what is durable."""

    def failed(self, act: Act | None, error: Exception) -> ProcedureRun:
        """Compensate for a step that failed, or record a compensation that failed; raise what has another cause."""
        if act is None:
            raise error
        self._raise_if_lost(error)
        if act.step is not None:
            return self._compensate(act.step.stop, error_message(error), unless=act.number)
        if act.record is not None:
            self._record_not_undone(act.record, error)
        raise error

    def _perform(self, transaction: Transaction, run: ProcedureRun, number: int, step: Step) -> ProcedureRun:
        self._carry_out(step, transaction, run)
        self._runner.record(transaction, run, number, step.name, canonical(self._outcomes[step.name]))
        transaction.runs.reach_step(run, number)
        if step is self._what.steps[-1]:
            return self._runner.finish(transaction, run)
        self._runner.acquire(transaction)  # again: the next step has the whole time, however long this one took
        return run

    def _undo(self, transaction: Transaction, run: ProcedureRun, record: PerformedStep) -> None:
        step = self._what.numbered().get(record.number)
        if step is not None and step.compensate is not None:
            step.compensate(self._context(transaction, run))
        answer = transaction.runs.undo_step(record, actor=self._request.actor, reason=self._request.reason)
        if isinstance(answer, Refused):
            raise StateTransitionRaceError(answer.message, context={"root": self._root})
        self._runner.acquire(transaction)

    def _carry_out(self, step: Step, reading: Reading, run: ProcedureRun | None) -> None:
        context = self._context(reading, run)
        if step.guard is not None:
            step.guard(context)
        # Decoded from its JSON, as after a crash, so that the next step sees the same in both cases.
        self._outcomes[step.name] = msgspec.json.decode(payload_text(step.action(context)))
        if step.verify is not None:
            step.verify(self._context(reading, run))

    # -- stopping -----------------------------------------------------------------------------------------------------

    def _compensate(self, stop: str, failure: str, *, unless: int | None = None) -> ProcedureRun:
        """Begin the compensation, unless another process has performed the step that failed here."""
        self._world.reach(f"before {stop}")
        with self._store.transaction() as transaction:
            run = self._held(transaction)
            if run.state == ProcedureState.RUNNING and unless not in self._performed():
                # The failure is the reason in the journal.
                run = self._runner.move(
                    transaction, run, "compensate", reason=failure, stop_state=stop, failure=failure_text(failure)
                )
            self._world.reach(f"inside {stop}")
        self._world.reach(f"after {stop}")
        return run

    def _record_not_undone(self, record: PerformedStep, error: Exception) -> None:
        """Record why a step could not be undone, and leave the run where it is, to be resumed."""
        with self._store.transaction() as transaction:
            run = self._held(transaction)
            if run.state == ProcedureState.COMPENSATING:
                transaction.runs.reach_step(run, run.step, failure=_not_undone(run, record, error))
        raise RunEnded from error

    def _raise_if_lost(self, error: Exception) -> None:
        """Raise if the database failed: then the outcome of the step is unknown, and nothing may be undone."""
        for each in (error, error.__cause__):
            known = self._store.translated(each) if isinstance(each, Exception) else None
            if isinstance(known, StoreError):
                raise known from error

    # -- reporting ----------------------------------------------------------------------------------------------------

    def _report_of(self, run: ProcedureRun, *, otherwise: str) -> ProcedureReport:
        """Return the report of a run by its state; `otherwise` is the verdict of a running one."""
        if run.state == ProcedureState.DONE:
            return self._report(DONE)
        if run.state == ProcedureState.RUNNING:
            return self._report(otherwise)
        return self._report(run.stop_state or "", failure=run.failure)

    def _report(self, verdict: str, *, failure: str | None = None) -> ProcedureReport:
        found = dict.fromkeys(self._what.names, "open")
        if self._run is not None:
            found = fates(self._what.names, self._run, self._records)
            old = {record.name for record in self._performed().values() if record.step_id <= self._before}
            if self._run.state != ProcedureState.COMPENSATING:
                found.update(dict.fromkeys(old & found.keys(), "skipped"))
        found.update(self._fates)
        recorded = self._mode is Mode.REAL_RUN and self._stored is not None
        return ProcedureReport(
            procedure=self._what.name,
            root=self._root,
            mode=self._mode,
            state=str(self._stored.state) if self._stored else "none",
            verdict=verdict,
            stop_state=None if verdict in (GO, DONE) else verdict,
            failure=failure,
            steps=tuple(StepReport(name, fate, self._outcomes.get(name)) for name, fate in found.items()),
            plan=self._request.plan,
            manifest=self._request.manifest,
            authority=self._reservation.authority,
            persistent_state="RECORDED" if recorded else "NONE",
            seal="JOURNALLED" if recorded else "WITHHELD_DRY_RUN",
            counts=dict(Counter(found.values())),
            target=self._request.target,
            grant_id=self._stored.grant_id if self._stored else None,
        )


def _not_undone(run: ProcedureRun, record: PerformedStep, error: Exception) -> str:
    """Return the stored failure of a run in which a step could not be undone."""
    return failure_text(stop_cause(run.failure), f"{record.name} could not be undone: {error_message(error)}")
