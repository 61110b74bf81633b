"""Execution: what a handler gets as its first argument.

Invariants: before the commit boundary nothing takes effect: effects and follow-up calls are staged as data; a value
that is checkpointed is kept only under a live lease; once the lease is lost nothing written through here counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.core.decide import Move
from holdfast.core.digest import Json, payload_text
from holdfast.core.errors import EffectError, InputError, LeaseLostError
from holdfast.core.guarded import guarded
from holdfast.core.records import Attempt, Job
from holdfast.engine.operations import Call
from holdfast.store.requests import Effect, Params

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

T = TypeVar("T")


class Staged(msgspec.Struct):
    """What a handler has left to be done at the commit boundary."""

    effects: list[Effect]
    calls: list[Call]


class Execution:
    """One attempt at a job, seen by its handler."""

    # What most attempts never have is a value of the class until it is set.
    _kept: dict[str, str] | None = None
    _unkept: dict[str, str] | None = None  # to be stored with the next checkpoint, or with the end of the attempt
    _cancelled = False
    _staged: Staged | None = None
    _connection: Any = None  # the one that `commit` was given
    committed: Move | None = None  # made in the caller's own transaction, and not known to be durable
    again: Callable[[EffectError], Any] | None = None  # what to do if an effect is refused

    def __init__(self, ledger: Ledger, attempt: Attempt) -> None:
        self._ledger = ledger
        self.record = attempt  # the job and its execution, as the worker holds them

    def __repr__(self) -> str:
        return f"Execution(job_id={self.job.job_id}, attempt={self.attempt})"

    @property
    def job(self) -> Job:
        """The job's record, as it was when it was claimed."""
        return self.record.job

    @property
    def attempt(self) -> int:
        """Which attempt this is, counted from 1."""
        return self.record.execution.attempt

    @property
    def token(self) -> int:
        """The fencing token of this attempt: larger than that of any earlier one. To read it can cost a write."""
        return self.record.token

    @property
    def cancelled(self) -> bool:
        """Whether to stop: a cancellation was requested, the worker is stopping, or the lease is lost.

        Raise Cancel to stop: a job with a requested cancellation is cancelled, any other is given back at no cost.
        """
        return self._cancelled

    @property
    def staged(self) -> Staged:
        """What the handler has staged."""
        if self._staged is None:
            self._staged = Staged([], [])
        return self._staged

    def stop(self) -> None:
        """Ask the handler to stop at its next look at `cancelled`."""
        self._cancelled = True

    @guarded
    def effect(self, sql: str, params: Params | None = None, *, rows: int | None = None) -> None:
        """Stage a statement in the ledger's own database, applied exactly once, when this attempt commits."""
        from holdfast.store.effects import staged  # noqa: PLC0415 - many handlers stage none

        self._refuse_late()
        self.staged.effects.append(staged(sql, params, rows))

    @guarded
    def after_commit(self, call: Call) -> None:
        """Stage a call that becomes a job of its own, submitted when this attempt commits."""
        self._refuse_late()
        if not isinstance(call, Call):
            raise TypeError("not a call")  # refused where it stands, not at the commit
        self.staged.calls.append(call)

    def if_refused(self, again: Callable[[EffectError], Any]) -> None:
        """Call `again` if the commit is refused over an effect, such as one that found other rows than it said.

        What was staged is dropped first. What `again` stages and returns replaces the handler's result, in the same
        attempt. It may raise what a handler may, such as the error that it got.
        """
        self.again = again

    @guarded
    def checkpoint(self, name: str, fn: Callable[[], T], *, with_next: bool = False) -> T:
        """Return the value stored under this name by any attempt; the first time, compute and store it.

        `with_next` stores the value in one write with the next checkpoint, or with the end of the attempt: for values
        that are cheap to compute again.
        """
        if self._kept is None:
            self._kept = self._checkpoints() if self.attempt > 1 else {}
        if name in self._kept:
            kept: T = json.loads(self._kept[name])
            return kept
        text = payload_text(fn())
        self._unkept = {**(self._unkept or {}), name: text}
        if not with_next:
            self.keep_rest()
        self._kept[name] = text
        # From the text, so that the first attempt sees exactly what a later one would.
        value: T = json.loads(text)
        return value

    def handler_ended(self) -> None:
        """Note that nothing more is checkpointed: here the worker stores what waits with the end of the attempt."""

    def keep_rest(self) -> None:
        """Keep the checkpoints that were to be kept with a next one."""
        unkept, self._unkept = self._unkept, None  # first: a value that cannot be stored must not fail the next too
        if unkept:
            self._keep(unkept)

    @guarded
    def progress(self, fraction: float, note: str | None = None) -> None:
        """Note how far the work is, from 0 to 1; written by the next heartbeat, and free in between."""
        if not 0 <= fraction <= 1:
            raise InputError("progress must be between 0 and 1")
        # A note that a database cannot store would make the heartbeat of every job of this worker fail.
        from holdfast.core.redaction import redacted  # noqa: PLC0415 - few handlers note progress

        self._note(float(fraction), None if note is None else redacted(str(note)))

    def commit(self, *, connection: Any, result: Json = None) -> None:
        """Complete this job inside the caller's own transaction; it counts when the caller commits."""
        self._refuse_late()
        if self.staged.effects:
            raise InputError("use staged effects or run.commit, not both", context={"staged": len(self.staged.effects)})
        from holdfast.engine.worker.own_commit import completed_in  # noqa: PLC0415 - few handlers do it themselves

        self._connection = connection
        self.committed = completed_in(connection, self._ledger, self.record, self.staged.calls, result)

    def undo_commit(self) -> None:
        """Roll back the transaction that `commit` was given, if it is still open: its locks would block the ledger."""
        if self._connection is not None:
            with suppress(Exception):  # it was closed, or belongs to another thread
                self._connection.rollback()

    def _refuse_late(self) -> None:
        if self.committed is not None:
            raise InputError("run.commit was called: nothing more can be staged")

    # -- reads and writes of the ledger: an execution in another process overrides them --------------------------------

    def _checkpoints(self) -> dict[str, str]:
        """Return what any attempt at the job has kept, as JSON texts by name."""
        with self._ledger.store.reading() as reading:
            return reading.notes.checkpoints(self.job.job_id)

    def _keep(self, values: dict[str, str]) -> None:
        """Keep values for later attempts, or raise LeaseLostError."""
        if not self._ledger.perform(lambda tx: tx.notes.save_checkpoints(self.record, values)):
            raise LeaseLostError(f"the lease of job {self.job.job_id} was lost; no checkpoint was stored")

    def _note(self, fraction: float, note: str | None) -> None:
        self._ledger.note_progress(self.record, fraction, note)
