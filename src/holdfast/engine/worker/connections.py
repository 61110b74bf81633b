"""Other connections of a worker: two write its turns while there is a backlog, one the ends that have effects.

Invariants: an end with effects is written without a claim and without ends that have none, so that a lock that it waits
for holds up no other job; the worker's own thread decides what is written and handles the answers; these threads only
wait for the database; while a subscriber listens nothing is claimed here, and what is published from here comes before
the events of what the worker claims because of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import StoreError
from holdfast.engine.committer import Committer, Written
from holdfast.engine.tasks import Task
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.turn import Turn
from holdfast.store import Transaction

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger


class Twin(Committer):
    """A committer beside another one of the same store: what the two write is not gathered.

    A job that this one submits can be claimed by the other as soon as it is committed. So the lock that the other needs
    to publish is held here from before COMMIT until the events of this transaction are published.
    """

    def __init__(self, other: Committer) -> None:
        super().__init__(other.store, other.world, other.on_commit)
        self.order = other.order

    def _write(self, tasks: Sequence[Task[Any]], body: Callable[..., None], *, lone: bool = False) -> StoreError | None:
        with ExitStack() as held:

            def in_order(transaction: Transaction, written: Written) -> None:
                body(transaction, written)
                held.enter_context(self.order)

            return super()._write(tasks, body if lone else in_order, lone=lone)


class OtherConnection:
    """A thread with a committer of its own, which writes one turn at a time."""

    name: str
    patience_s: float | None = None  # how long `close` waits

    def __init__(self, ledger: Ledger, on_written: Callable[[], None]) -> None:
        self._ledger = ledger
        self._committer = ledger.second_committer()
        self._on_written = on_written
        self._given: SimpleQueue[Turn | None] = SimpleQueue()
        self._error: BaseException | None = None
        self._written = False
        self.turn: Turn | None = None  # given and not taken back
        self._thread = threading.Thread(target=self._run, name=f"holdfast-{self.name}", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> Sequence[HeldAttempt]:
        """The attempts whose end is written here."""
        turn = self.turn
        return () if turn is None else turn.ended

    def take(self) -> Turn | None:
        """Return the turn if it was written, and be free for another; raise what stopped the thread."""
        if self._error is not None:
            raise self._error
        if self.turn is None or not self._written:
            return None
        turn, self.turn = self.turn, None
        return turn

    def close(self) -> None:
        """End the thread once the present turn is written; wait for that."""
        self._given.put(None)
        self._thread.join(self.patience_s)

    def begin(self, turn: Turn) -> None:
        """Write this turn; the one before was taken back."""
        self.turn, self._written = turn, False
        self._given.put(turn)

    def _run(self) -> None:
        while (turn := self._given.get()) is not None:
            try:
                self._committer.perform(turn.tasks)
            except BaseException as error:  # noqa: BLE001 - such as a planned crash: it is the worker's
                self._error = error
            self._written = True
            self._on_written()


class TurnConnection(OtherConnection):
    """Writes a whole turn."""

    name = "turns"


class TurnConnections:
    """Two connections that write one turn after the other: handlers of one turn run while another one is written."""

    def __init__(self, ledger: Ledger, on_written: Callable[[], None]) -> None:
        self._both = [TurnConnection(ledger, on_written) for _ in range(2)]

    @property
    def turns(self) -> list[Turn]:
        """The turns that were given and not taken back."""
        return [turn for each in self._both if (turn := each.turn) is not None]

    @property
    def ended(self) -> Sequence[HeldAttempt]:
        """The attempts whose end is written here."""
        return [running for turn in self.turns for running in turn.ended]

    @property
    def room(self) -> int:
        """How many attempts are claimed here."""
        return sum(turn.room for turn in self.turns)

    def give(self, turn: Turn) -> bool:
        """Write this turn; return whether a connection was free for it."""
        free = next((each for each in self._both if each.turn is None), None)
        if free is None:
            return False
        free.begin(turn)
        return True

    def take(self) -> Iterator[Turn]:
        """Yield the turns that were written, each once; raise what stopped a thread."""
        for each in self._both:
            turn = each.take()
            if turn is not None:
                yield turn

    def close(self) -> None:
        """End the threads once their present turns are written; wait for that."""
        for each in self._both:
            each.close()


class EffectConnection(OtherConnection):
    """Writes the ends that have effects; what is given while a turn is being written goes into the next one."""

    name = "effects"
    patience_s = 10.0  # effects that wait for locks may take longer: then their leases expire

    def __init__(self, ledger: Ledger, on_written: Callable[[], None]) -> None:
        self._waiting: list[HeldAttempt] = []
        super().__init__(ledger, on_written)

    @property
    def ended(self) -> Sequence[HeldAttempt]:
        """The attempts whose end is written here, or waits for that."""
        return [*super().ended, *self._waiting]

    def give(self, ended: Sequence[HeldAttempt]) -> None:
        """Write these ends, now or after the present turn."""
        self._waiting += ended
        if self.turn is None and self._waiting:
            self.begin(Turn(self._waiting, None))
            self._waiting = []

    def take(self) -> Turn | None:
        """Return the turn if it was written, and begin the next one."""
        turn = super().take()
        if turn is not None:
            self.give(())
        return turn
