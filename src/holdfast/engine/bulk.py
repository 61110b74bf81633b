"""Bulk: calls that differ only in payload and key are checked, encoded and submitted as columns, not one by one.

Invariants: what is recorded, returned or refused is what one call after the other would be: whatever is not plain here
is left to them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, is_, itemgetter
from typing import TYPE_CHECKING, Any, overload

from holdfast.core.canonical_lines import canonical_lines
from holdfast.core.digest import Json, payload_text
from holdfast.core.errors import InputError
from holdfast.engine.operations import Call, Given
from holdfast.engine.submit import FIELDS, KnownOperations, call_from, prepare
from holdfast.store.verbs.bulk import bulk_of

if TYPE_CHECKING:
    from holdfast.store import Submission

NEEDED = frozenset({"operation", "payload"})
PLAIN: frozenset[object] = frozenset((dict, Given))


class BulkCalls(Sequence[Call]):
    """Calls that differ only in payload and key, as they were given: one is made when it is looked at."""

    def __init__(
        self, given: Sequence[Call | Mapping[str, Any]], payloads: list[dict[str, Json]], keys: list[str | None]
    ) -> None:
        self.given = given
        self.payloads = payloads
        self.keys = keys
        self.patterns = (self[0],)

    @overload
    def __getitem__(self, place: int) -> Call: ...

    @overload
    def __getitem__(self, place: slice) -> list[Call]: ...

    def __getitem__(self, place: int | slice) -> Call | list[Call]:
        return [*map(call_from, self.given[place])] if isinstance(place, slice) else call_from(self.given[place])

    def __len__(self) -> int:
        return len(self.given)


def calls_from(calls: Iterable[Call | Mapping[str, Any]]) -> Sequence[Call]:
    """Return calls that may be given as mappings."""
    given = list(calls)
    return (_as_columns(given) if len(given) > 1 else None) or [call_from(call) for call in given]


def have_keys(calls: Sequence[Call]) -> bool:
    """Return whether each call has a key."""
    return None not in calls.keys if isinstance(calls, BulkCalls) else all(call.key is not None for call in calls)


def _as_columns(given: list[Any]) -> BulkCalls | None:
    """Return calls as columns; None if they differ in more than payload and key, or are not plain."""
    kinds = set(map(type, given))
    names, getter = (set().union(*given), itemgetter) if kinds == {dict} else (FIELDS, attrgetter)
    if kinds not in ({dict}, {Call}) or not NEEDED <= names <= FIELDS:
        return None
    try:
        columns = {name: list(map(getter(name), given)) for name in names}
    except KeyError:
        return None
    payloads, keys = columns.pop("payload"), columns.pop("key", [None] * len(given))
    if not PLAIN.issuperset(map(type, payloads)) or not all(map(_is_one, columns.values())):
        return None
    return BulkCalls(given, payloads, keys)


def _is_one(column: list[Any]) -> bool:
    """Return whether all values are the same one: equal texts are, equal times or numbers need not be."""
    if type(column[0]) is str:
        return set(map(type, column)) == {str} and column.count(column[0]) == len(column)
    return all(map(is_, column, repeat(column[0])))


def prepared(calls: Sequence[Call], known: KnownOperations, confirmed: Collection[object]) -> Sequence[Submission]:
    """Return what the store records for each call."""
    if isinstance(calls, BulkCalls):
        first = prepare(calls[0], known, confirmed)
        texts = _texts(calls, known)
        found = None if texts is None else bulk_of(first, texts, calls.keys)
        if found is not None:
            return found
    return [prepare(call, known, confirmed) for call in calls]


def _texts(calls: BulkCalls, known: KnownOperations) -> list[str] | None:
    """Return the canonical texts of the payloads; None if one of them has to be looked at alone."""
    [call] = calls.patterns
    handler = known.handlers.found(call.operation, call.version)
    declared = known.declared(call.operation) if handler is None else handler.declared
    if declared.flow is not None or known.hinted(call.operation, call.version) not in (None, handler):
        return None  # a limit looks for its key in each payload
    if handler is not None:
        judge = handler._judge  # noqa: SLF001 - nothing else judges arguments without making a call
        return canonical_lines(calls.payloads, judge, size_max=known.size_max)
    try:
        return [payload_text(dict(payload), size_max=known.size_max) for payload in calls.payloads]
    except (InputError, RecursionError):
        return None
