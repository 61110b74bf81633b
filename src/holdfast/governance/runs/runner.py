"""One attempt to bring a run of a procedure forward: as a plan, a look, a rehearsal, or for good.

The ledger alone says what comes next: each transaction takes the lease, looks where the run stands, and takes one act.
It performs the first open step, or undoes the last that stands, or stops. A rehearsal takes the same acts in one
transaction that is rolled back.

Invariants: a step's writes, its record and its journal rows are one transaction; what another process did meanwhile is
seen before an act is chosen; whatever a step raises is its failure, and leads to its stop, unless it tells of the
database: then nothing can be said of the step, nothing is undone, and the run stays where it is.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.core.decide import Refused
from holdfast.core.digest import Json, canonical, payload_text
from holdfast.core.errors import (
    InvalidStateTransitionError,
    RecordNotFoundError,
    RuntimeLeaseError,
    StateTransitionRaceError,
    StoreError,
)
from holdfast.core.machines import ProcedureState, StepState
from holdfast.engine.failures import error_message
from holdfast.engine.world import World
from holdfast.governance.runs.lease import NO_LEASE, OvertakenError, Reservation, moved
from holdfast.governance.runs.status import BY_OPERATOR, fates, records_of, stop_cause, told
from holdfast.governance.runs.steps import DONE, GO, Mode, ProcedureReport, RunRequest, Step, StepContext, StepReport

if TYPE_CHECKING:
    from holdfast.core.records import PerformedStep, ProcedureRun
    from holdfast.store import Store
    from holdfast.store.transaction import Reading, Transaction

UNFINISHED = frozenset({ProcedureState.RUNNING, ProcedureState.COMPENSATING})


def required(known: ProcedureRun | None, root: str) -> ProcedureRun:
    """Return a run that must be there, or raise RecordNotFoundError."""
    if known is None:
        raise RecordNotFoundError(f"no run has the root {root!r}", context={"root": root})
    return known


class _RolledBack(Exception):
    """Rolls a dry run back."""


class _Ended(Exception):
    """Somebody else has brought the run to its end, or a compensation has failed: there is nothing more to do."""


class _Act(NamedTuple):
    """What comes next: a step to perform, a record to undo, or, with neither, the stop."""

    point: str
    number: int = 0
    step: Step | None = None
    record: PerformedStep | None = None


class Runner:
    """One attempt to bring one run forward."""

    def __init__(self, store: Store[Any], asked: RunRequest, mode: Mode, world: World) -> None:
        self._store, self._asked, self._mode, self._world = store, asked, mode, world
        self._what, self._root = asked.what, asked.root
        self._reservation = Reservation(store, asked)
        self._stored: ProcedureRun | None = None  # as others see it
        self._here: ProcedureRun | None = None  # as the open transaction, if there is one, sees it
        self._records: list[PerformedStep] = []
        self._before = 0  # the last performance that was on record when this attempt began
        self._outcomes: dict[str, Json] = {}
        self._fates: dict[str, str] = {}  # what the records do not tell

    # -- modes --------------------------------------------------------------------------------------------------------

    def plan(self) -> ProcedureReport:
        """Tell what would be done; the ledger is not even asked."""
        return self._report(GO)

    def verify(self) -> ProcedureReport:
        """Hold the present state against what every step promises; nothing is written."""
        with self._store.reading() as reading:
            known = self._look(reading)
            self._reservation.look(reading, known)
            if known is None or known.state == ProcedureState.STOPPED:
                return self._checked(reading) or self._report(GO)
            at = self._at(reading, known)
            for number, step in self._what.numbered().items():
                if number not in self._standing() or step.verify is None:
                    continue
                try:
                    step.verify(at)
                except Exception as error:  # noqa: BLE001 - a step is anybody's code
                    return self._refused(step, error)
                self._fates[step.name] = "passed"
        return self._report_of(known, otherwise=GO)

    def dry_run(self) -> ProcedureReport:
        """Do everything in one transaction that is then rolled back."""
        with self._store.reading() as reading:
            known = self._look(reading)
            if known is None or known.state == ProcedureState.STOPPED:
                refused = self._checked(reading)
                if refused is not None:
                    return refused
        act: _Act | None = None
        try:
            with contextlib.suppress(_RolledBack, _Ended), self._store.transaction() as transaction:
                here = known
                if here is None or self._reservation.is_due(transaction, here):
                    here = self._reserved(transaction, known)
                while here.state in UNFINISHED:
                    here, act = self._due(transaction)
                    here = self._taken(transaction, here, act)
                self._remember(transaction, here)
                raise _RolledBack
        except OvertakenError:
            return Runner(self._store, self._asked, self._mode, self._world).dry_run()
        except Exception as error:
            failed = self._rehearsed_failure(act, error)
            if failed is None:
                raise
            return failed
        if known is None or known.state == ProcedureState.STOPPED:
            return self._report(GO)
        return self._report_of(known, otherwise=GO)

    def _rehearsed_failure(self, act: _Act | None, error: Exception) -> ProcedureReport | None:
        """Return what a rehearsal has to say of a failure; None if it is none of the procedure's."""
        if act is None:
            held = isinstance(error, RuntimeLeaseError)
            return self._report(NO_LEASE, failure=error_message(error)) if held else None
        if act.step is not None:
            return self._refused(act.step, error)
        if act.record is None or self._here is None:
            return None
        self._raise_if_lost(error)
        self._fates[act.record.name] = "stuck"
        return self._report(self._here.stop_state or "", failure=_trouble(self._here, act.record, error))

    def real_run(self) -> ProcedureReport:
        """Run for good: to the end, or into a stop with everything undone."""
        with self._store.reading() as reading:
            known = self._look(reading)
            if known is None or known.state == ProcedureState.STOPPED:
                self._world.reach("before checks")
                refused = self._checked(reading)
                if refused is not None:
                    return refused
            begins = self._reservation.is_due(reading, known)
        while known is None or begins:
            self._world.reach(f"before {self._what.reserve}")
            try:
                with self._store.transaction() as transaction:
                    known = self._reserved(transaction, known)
                    self._world.reach(f"inside {self._what.reserve}")
            except OvertakenError:
                # Go on with what others have begun; but where they have come to a stop, that is the answer.
                with self._store.reading() as reading:
                    known = required(self._look(reading), self._root)
                    begins = known.state == ProcedureState.RUNNING and self._reservation.is_due(reading, known)
            else:
                begins = False
                self._world.reach(f"after {self._what.reserve}")
        return self._brought_to_end(known)

    def undo(self) -> ProcedureReport:
        """Undo what stands, and stop."""
        with self._store.reading() as reading:
            known = required(self._look(reading), self._root)
        if known.state == ProcedureState.DONE:
            raise InvalidStateTransitionError(
                f"the run {self._root!r} is done: its work stands",
                next_step="What a finished run did is undone by another procedure.",
                context={"root": self._root},
            )
        if known.state == ProcedureState.RUNNING:
            with contextlib.suppress(_Ended):
                self._stopped(BY_OPERATOR, f"{self._asked.actor} had it undone: {self._asked.reason}")
        return self._brought_to_end(known)

    # -- looking ------------------------------------------------------------------------------------------------------

    def _look(self, reading: Reading) -> ProcedureRun | None:
        """Return the run that the root has, if it is the one that is asked for."""
        known = reading.runs.get(self._root)
        self._stored = known
        if known is not None:
            self._asked.require_same(known)
            self._remember(reading, known)
            self._before = self._records[-1].step_id if self._records else 0
        return known

    def _remember(self, reading: Reading, here: ProcedureRun) -> None:
        self._here, self._records = here, records_of(reading, here.run_id)
        self._outcomes = {record.name: msgspec.json.decode(record.outcome) for record in self._standing().values()}
        self._fates.clear()

    def _standing(self) -> dict[int, PerformedStep]:
        return {record.number: record for record in self._records if record.state == StepState.PERFORMED}

    def _at(self, reading: Reading, here: ProcedureRun | None) -> StepContext:
        return StepContext(
            transaction=reading,
            root=self._root,
            params=self._asked.params,
            outcomes=dict(self._outcomes),
            actor=self._asked.actor,
            reason=self._asked.reason,
            run_id=here.run_id if here else None,
            grant_id=here.grant_id if here else None,
            dry=self._mode is not Mode.REAL_RUN,
        )

    # -- beginning ----------------------------------------------------------------------------------------------------

    def _checked(self, reading: Reading) -> ProcedureReport | None:
        """Make the checks, which only read; return a report if one of them says no."""
        for step in self._what.checks:
            try:
                self._carry_out(step, reading, None)
            except Exception as error:  # noqa: BLE001 - a check is anybody's code
                return self._refused(step, error)
            self._fates[step.name] = "passed"
        return None

    def _refused(self, step: Step, error: Exception) -> ProcedureReport:
        """Return the report of a failure that left nothing behind; raise if it is the database that failed."""
        self._raise_if_lost(error)
        self._fates[step.name] = "failed"
        return self._report(step.stop, failure=error_message(error))

    def _reserved(self, transaction: Transaction, known: ProcedureRun | None) -> ProcedureRun:
        here = self._reservation.make(transaction, known, self._outcomes, dry=self._mode is not Mode.REAL_RUN)
        self._remember(transaction, here)
        return here

    # -- acting -------------------------------------------------------------------------------------------------------

    def _brought_to_end(self, known: ProcedureRun) -> ProcedureReport:
        here = known
        with contextlib.suppress(_Ended):
            while here.state in UNFINISHED:
                here = self._advanced()
        with self._store.reading() as reading:
            self._stored = here = required(reading.runs.get(self._root), self._root)
            self._remember(reading, here)
        if here.grant_id is not None:
            self._reservation.authority = GO
        return self._report_of(here, otherwise="RUNNING")

    def _advanced(self) -> ProcedureRun:
        """Take one act in a transaction of its own, and return the run as it then stands."""
        act: _Act | None = None
        try:
            with self._store.transaction() as transaction:
                here, act = self._due(transaction)
                self._world.reach(f"before {act.point}")
                here = self._taken(transaction, here, act)
                self._world.reach(f"inside {act.point}")
        except Exception as error:
            if act is None:
                raise
            self._raise_if_lost(error)
            if act.step is not None:
                return self._stopped(act.step.stop, error_message(error), unless=act.number)
            if act.record is not None:
                self._note_trouble(act.record, error)
            raise
        self._world.reach(f"after {act.point}")
        return here

    def _due(self, transaction: Transaction) -> tuple[ProcedureRun, _Act]:
        """Return the run and what comes next."""
        here = self._held(transaction)
        stands = self._standing()
        if here.state == ProcedureState.RUNNING:
            number, step = next(each for each in self._what.numbered().items() if each[0] not in stands)
            return here, _Act(step.name, number, step=step)
        if not stands:
            return here, _Act("stopping")
        last = stands[max(stands)]
        return here, _Act(f"undoing {last.name}", last.number, record=last)

    def _held(self, transaction: Transaction) -> ProcedureRun:
        """Take the lease, and return the run as it stands now that nobody else can move it."""
        self._unfinished(transaction)  # a run that has ended needs no lease
        self._reservation.hold(transaction)
        here = self._unfinished(transaction)  # and it may have ended while the lease was waited for
        self._remember(transaction, here)
        return here

    def _unfinished(self, transaction: Transaction) -> ProcedureRun:
        here = required(transaction.runs.get(self._root), self._root)
        if here.state not in UNFINISHED:
            raise _Ended
        return here

    def _taken(self, transaction: Transaction, here: ProcedureRun, act: _Act) -> ProcedureRun:
        """Perform a step, undo one, or stop, and record it; return the run as it then stands."""
        if act.step is not None:
            return self._performed(transaction, here, act.number, act.step)
        if act.record is not None:
            self._undone(transaction, here, act.record)
            return here
        cause = stop_cause(here.failure)
        here = moved(transaction, self._asked, here, "stop", stop_state=here.stop_state, failure=cause)
        self._reservation.release(transaction)
        return here

    def _performed(self, transaction: Transaction, here: ProcedureRun, number: int, step: Step) -> ProcedureRun:
        self._carry_out(step, transaction, here)
        outcome = canonical(self._outcomes[step.name])
        who, why = self._asked.actor, self._asked.reason
        transaction.runs.perform_step(here.run_id, number, step.name, outcome, actor=who, reason=why)
        transaction.runs.reach_step(here, number)
        if step is not self._what.steps[-1]:
            self._reservation.hold(transaction)  # once more: however long this step took, the next has the whole time
            return here
        here = moved(transaction, self._asked, here, "finish")
        self._reservation.release(transaction)
        return here

    def _undone(self, transaction: Transaction, here: ProcedureRun, record: PerformedStep) -> None:
        step = self._what.numbered().get(record.number)
        if step is not None and step.compensate is not None:
            step.compensate(self._at(transaction, here))
        answer = transaction.runs.undo_step(record, actor=self._asked.actor, reason=self._asked.reason)
        if isinstance(answer, Refused):
            raise StateTransitionRaceError(answer.message, context={"root": self._root})
        self._reservation.hold(transaction)

    def _carry_out(self, step: Step, reading: Reading, here: ProcedureRun | None) -> None:
        at = self._at(reading, here)
        if step.guard is not None:
            step.guard(at)
        # As it would be read after a crash, so that the next step sees the same either way.
        self._outcomes[step.name] = msgspec.json.decode(payload_text(step.action(at)))
        if step.verify is not None:
            step.verify(self._at(reading, here))

    # -- stopping -----------------------------------------------------------------------------------------------------

    def _stopped(self, stop: str, failure: str, *, unless: int | None = None) -> ProcedureRun:
        """Begin the compensation, unless somebody else has performed the step that failed here."""
        self._world.reach(f"before {stop}")
        with self._store.transaction() as transaction:
            here = self._held(transaction)
            if here.state == ProcedureState.RUNNING and unless not in self._standing():
                # What failed is the reason that the journal gives.
                here = moved(
                    transaction, self._asked, here, "compensate", reason=failure, stop_state=stop, failure=told(failure)
                )
            self._world.reach(f"inside {stop}")
        self._world.reach(f"after {stop}")
        return here

    def _note_trouble(self, record: PerformedStep, error: Exception) -> None:
        """Keep why a step could not be undone, and leave the run where it is: it can be taken up again."""
        with self._store.transaction() as transaction:
            here = self._held(transaction)
            if here.state == ProcedureState.COMPENSATING:
                transaction.runs.reach_step(here, here.step, failure=_trouble(here, record, error))
        raise _Ended from error

    def _raise_if_lost(self, error: Exception) -> None:
        """Raise if it is the database that failed: then nothing can be said of the step, and nothing be undone."""
        for each in (error, error.__cause__):
            known = self._store.translated(each) if isinstance(each, Exception) else None
            if isinstance(known, StoreError):
                raise known from error

    # -- telling ------------------------------------------------------------------------------------------------------

    def _report_of(self, known: ProcedureRun, *, otherwise: str) -> ProcedureReport:
        """Return the report of a run by its state; `otherwise` is the verdict on one that is under way."""
        if known.state == ProcedureState.DONE:
            return self._report(DONE)
        if known.state == ProcedureState.RUNNING:
            return self._report(otherwise)
        return self._report(known.stop_state or "", failure=known.failure)

    def _report(self, verdict: str, *, failure: str | None = None) -> ProcedureReport:
        found = dict.fromkeys(self._what.names, "open")
        if self._here is not None:
            found = fates(self._what.names, self._here, self._records)
            old = {record.name for record in self._standing().values() if record.step_id <= self._before}
            if self._here.state != ProcedureState.COMPENSATING:
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
            plan=self._asked.plan,
            manifest=self._asked.manifest,
            authority=self._reservation.authority,
            persistent_state="RECORDED" if recorded else "NONE",
            seal="JOURNALLED" if recorded else "WITHHELD_DRY_RUN",
            counts=dict(Counter(found.values())),
            target=self._asked.target,
            grant_id=self._stored.grant_id if self._stored else None,
        )


def _trouble(here: ProcedureRun, record: PerformedStep, error: Exception) -> str:
    """Return what a run keeps of its failure where a step could not be undone."""
    return told(stop_cause(here.failure), f"{record.name} could not be undone: {error_message(error)}")
