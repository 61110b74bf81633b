"""A second connection for a worker with a backlog: it writes one half of a turn while the worker writes the other.

Invariants: the worker's own thread decides what is written and handles the answers; this thread only waits for the
database; events are not published from here, so it is used only while no subscriber listens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING

from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.turn import Turn
from holdfast.store import Lease

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger


class SecondConnection:
    """A thread with a committer of its own, which writes one turn at a time."""

    def __init__(self, ledger: Ledger, on_written: Callable[[], None]) -> None:
        self._ledger = ledger
        self._committer = ledger.second_committer()
        self._on_written = on_written
        self._given: SimpleQueue[Turn | None] = SimpleQueue()
        self._error: BaseException | None = None
        self._written = False
        self.turn: Turn | None = None  # given and not taken back
        self._thread = threading.Thread(target=self._run, name="holdfast-second", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> Sequence[HeldAttempt]:
        """The attempts whose end is written here."""
        turn = self.turn
        return () if turn is None else turn.ended

    @property
    def room(self) -> int:
        """How many attempts are claimed here."""
        return 0 if self.turn is None else self.turn.room

    def share(self, ended: list[HeldAttempt], room: int, lease: Callable[[int], Lease]) -> int:
        """Take one half of what ended and of the room, if this is free; return the room that is left."""
        if self.turn is not None or room < 2 or self._ledger.listening:
            return room
        here = room // 2
        self.turn, self._written = Turn(ended[len(ended) // 2 :], lease(here)), False
        del ended[len(ended) // 2 :]
        self._given.put(self.turn)
        return room - here

    def take(self) -> Turn | None:
        """Return the turn if it was written, and be free for another; raise what stopped the thread."""
        if self._error is not None:
            raise self._error
        if self.turn is None or not self._written:
            return None
        turn, self.turn = self.turn, None
        return turn

    def close(self) -> None:
        """End the thread once the present turn is written."""
        self._given.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (turn := self._given.get()) is not None:
            try:
                self._committer.perform(turn.tasks)
            except BaseException as error:  # noqa: BLE001 - such as a planned crash: it is the worker's
                self._error = error
            self._written = True
            self._on_written()
