"""Turns rows into records.

Invariants: the fields of a record have the order of the columns that a statement returns; a row with a value that
Holdfast never writes raises StoreDamagedError.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from holdfast.core.errors import StoreDamagedError

_Record = TypeVar("_Record", bound=msgspec.Struct)
Reader = Callable[[Sequence[Any], Callable[[Any], datetime]], _Record]


def unreadable(what: str) -> StoreDamagedError:
    """Return the error for a record with a value that Holdfast never writes."""
    return StoreDamagedError(
        f"the record {what} has a value that Holdfast never writes",
        next_step="To see the damage, run `holdfast check`; to plan its repair, run `holdfast repair`.",
    )


def reader(record: type[_Record]) -> Reader[_Record]:
    """Return a function that turns a row into a record; the first row determines which columns to convert."""

    @cache
    def columns() -> tuple[list[int], list[int], list[tuple[int, dict[Any, Enum]]]]:
        kinds = [
            next(kind for kind in (*get_args(hint), hint) if kind is not type(None))
            for hint in get_type_hints(record).values()
        ]
        names = [
            (index, {member.value: member for member in kind})
            for index, kind in enumerate(kinds)
            if isinstance(kind, type) and issubclass(kind, Enum)
        ]
        times = [index for index, kind in enumerate(kinds) if kind is datetime]
        return times, [index for index, kind in enumerate(kinds) if kind is bool], names

    def read(row: Sequence[Any], moment: Callable[[Any], datetime]) -> _Record:
        values = list(row)
        times, flags, names = columns()
        try:
            for index in times:
                if values[index] is not None:
                    values[index] = moment(values[index])
            for index, members in names:
                values[index] = members[values[index]]
        except (KeyError, TypeError, ValueError):
            raise unreadable(f"{record.__name__} {values[0]}") from None
        for index in flags:
            values[index] = bool(values[index])
        return record(*values)

    return read
