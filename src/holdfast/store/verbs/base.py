"""The base classes of all groups of verbs: they run the statements of one connection, and turn rows into records.

Invariants: a write that changes zero rows is a refusal; all writers write the rows of a batch in the same order, so
that two batches cannot deadlock.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from os import urandom
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.core.decide import Move, Refused
from holdfast.core.errors import invariant
from holdfast.core.records import Attempt, Execution, Job
from holdfast.store.rows import Reader, reader
from holdfast.store.statements import encoded

if TYPE_CHECKING:
    from holdfast.store.transaction import Reading, Transaction

# The values that moves of a batch share, each with a number; a row of the batch refers to its shape by that number.
Shapes = dict[tuple[object, ...], int]

_URL_SAFE = str.maketrans("+/", "-_")
_EXECUTION_WIDTH = len(Execution.__struct_fields__)
T = TypeVar("T", bound=msgspec.Struct)
_read_job = reader(Job)
_read_execution = reader(Execution)


def new_move_id() -> str:
    """Return the id of a new move: 64 random bits, short because every row of the move has it."""
    return b2a_base64(urandom(8), newline=False)[:11].decode().translate(_URL_SAFE)


class Verbs:
    """A group of verbs over one view of the ledger."""

    def __init__(self, session: Reading) -> None:
        self._session = session
        self._store = session.store
        self._run = session.run

    def _time(self, at: datetime | None) -> object:
        """Return the value of `:now`: for the given time, or for the current time if it is None."""
        return self._store.time_parameter() if at is None else self._store.judged_at(at)

    def _all(self, read: Reader[T], statement: str, /, **params: object) -> list[T]:
        """Return the records in the rows of a statement."""
        return [read(row, self._store.moment) for row in self._run(statement, **params)]

    def _one(self, read: Reader[T], statement: str, /, **params: object) -> T | None:
        """Return the record in the first row of a statement; None if it has no row."""
        return next(iter(self._all(read, statement, **params)), None)

    def _job(self, row: Sequence[Any]) -> Job:
        return _read_job(row, self._store.moment)

    def _execution(self, row: Sequence[Any]) -> Execution:
        return _read_execution(row, self._store.moment)

    def _attempt(self, row: tuple[Any, ...]) -> Attempt:
        return Attempt(self._job(row[_EXECUTION_WIDTH:]), self._execution(row[:_EXECUTION_WIDTH]))


class WritingVerbs(Verbs):
    """A group of verbs that write."""

    _session: Transaction

    def _signature(self, actor: str | None, reason: str | None, move_id: str | None = None) -> dict[str, object]:
        return {
            "actor": actor,
            "reason": reason,
            "move_id": move_id or new_move_id(),
            "now": self._store.time_parameter(),
        }

    def _write(self, name: str, rows: list[list[object]], **params: object) -> set[int]:
        """Write a batch of rows, each beginning with the id of its record; return the ids that were written."""
        invariant(len({row[0] for row in rows}) == len(rows), f"{name}: a batch has two moves of one record")
        ordered = encoded(sorted(rows, key=itemgetter(0)))
        return {row[0] for row in self._run(name, rows=ordered, **params)} if rows else set()


def redacted_move(answer: Move | Refused, known: dict[str, str]) -> Move | Refused:
    """Return an answer with its error message redacted, so that no secret is written.

    `known` has the redacted messages of a batch: where many attempts end, most end for the same reason.
    """
    if isinstance(answer, Refused) or (message := answer.error_message) is None:
        return answer
    if message not in known:
        from holdfast.core.redaction import redacted  # noqa: PLC0415 - only a failure has a message

        known[message] = redacted(message)
    return answer if known[message] == message else msgspec.structs.replace(answer, error_message=known[message])
