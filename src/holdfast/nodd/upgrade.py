"""Tables of version 1 made those of version 2: what came of each unit, written down with it.

Invariants: one transaction makes all of it or nothing, and memory is that of one page; a unit that has not committed
gets nothing; what a result tells is taken as it is. Where retention has taken the result away, what came of the unit is
read from its item and its provenance, which stay; what they cannot tell is given the value that promises least.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.records import time_text
from holdfast.nodd import provenance, stac
from holdfast.nodd.check.rows import decoded, key_of
from holdfast.nodd.statements import records_view, run_statement, statements
from holdfast.nodd.units import OUTCOME, RUN
from holdfast.store.statements import encoded

if TYPE_CHECKING:
    from holdfast.store.transaction import Transaction

PAGE = 500


class _Unit(NamedTuple):
    """A unit, and what is known of its job."""

    wal_id: str
    dataset: str
    source_uri: str
    time_range_start: str
    begun: Any  # when its job came: a time, or the text of one
    result: str | None
    committed: bool | None

    @property
    def item_id(self) -> str:
        return stac.item_id_of(self.dataset, key_of(self.source_uri), self.time_range_start)


class _Item(NamedTuple):
    """The item of a unit's object, whoever wrote it last."""

    item_id: str
    wal_id: str
    collection_id: str
    href: str
    item: str
    created: str
    updated: str


def to_version_2(transaction: Transaction) -> None:
    """Add the columns, fill them in, and make the view anew."""
    for part in statements(transaction.dialect)["add_outcomes"]:
        transaction.execute(part)
    after = ""
    while rows := run_statement(transaction, "units_to_settle", after=after, n=PAGE):
        units = [_Unit(*row) for row in rows]
        after = units[-1].wal_id
        _settle(transaction, [unit for unit in units if unit.committed])
    for part in records_view(transaction.dialect):
        transaction.execute(part)


def _settle(transaction: Transaction, units: Sequence[_Unit]) -> None:
    told = {unit.wal_id: _of_result(unit.result) for unit in units}
    slimmed = [unit for unit in units if told[unit.wal_id] is None]
    if slimmed:
        item_ids = encoded(sorted({unit.item_id for unit in slimmed}))
        items = {row[0]: _Item(*row) for row in run_statement(transaction, "items_left", rows=item_ids)}
        kinds: dict[str, set[str]] = defaultdict(set)
        for wal_id, kind in run_statement(
            transaction, "provenance_left", rows=encoded([unit.wal_id for unit in slimmed])
        ):
            kinds[wal_id].add(kind)
        for unit in slimmed:
            told[unit.wal_id] = _of_what_is_left(unit, items.get(unit.item_id), kinds[unit.wal_id])
    rows = [[wal_id, *(outcome[name] for name in (*OUTCOME, RUN))] for wal_id, outcome in told.items() if outcome]
    if rows:
        run_statement(transaction, "settle_units", rows=encoded(rows))


def _of_result(text: str | None) -> dict[str, str | None] | None:
    result = decoded(text)
    if not isinstance(result, dict) or not all(isinstance(result.get(name), str) for name in OUTCOME):
        return None
    return {name: result.get(name) for name in (*OUTCOME, RUN)}


def _of_what_is_left(unit: _Unit, item: _Item | None, kinds: Collection[str]) -> dict[str, str | None] | None:
    """Return what came of a unit whose result is gone; None if its item is gone too, which `nodd check` reports."""
    if item is None:
        return None
    text = decoded(item.item)
    said = text.get("properties") if isinstance(text, dict) else None
    properties = said if isinstance(said, dict) else {}
    writer = properties.get("nodd:wal_id")
    # An item says how the object was judged that it was written for, and that of a no-op was judged just so.
    own = properties if unit.wal_id in (writer, item.wal_id) else {}
    return {
        "integrity_status": _let_through(own.get("nodd:integrity")),
        "metadata_status": _let_through(own.get("nodd:metadata")),
        "stac_status": _written(unit, item, writer),
        "provenance_status": _emitted(kinds),
        "stac_item_id": item.item_id,
        "stac_collection_id": item.collection_id,
        "stac_item_href": item.href,
        RUN: None,  # nothing else has kept it
    }


def _let_through(status: object) -> str:
    # It succeeded, so it was ok or suspect, and not failed. Where nothing tells which, suspect promises less: whoever
    # wants only what is surely sound leaves it out.
    return "ok" if status == "ok" else "suspect"


def _written(unit: _Unit, item: _Item, writer: object) -> str:
    begun = time_text(unit.begun) if isinstance(unit.begun, datetime) else str(unit.begun)
    if item.created >= begun:
        return "created"  # it was not there when the job came, and the job has written it: nobody was before it
    if item.updated < begun or (item.wal_id == unit.wal_id and writer not in (None, unit.wal_id)):
        return "no-op"  # it is older than the job, or the words of another unit that this one has found right
    # Its own words, or those of a later generation, and then nothing tells whether it had changed any. Whoever follows
    # the catalogue reads an item again for nothing if it had not; told of a no-op, they would miss one that had.
    return "updated"


def _emitted(kinds: Collection[str]) -> str:
    # Events are left out where provenance is partial, and where it failed, which a dataset may allow, nothing is kept.
    if provenance.OPENLINEAGE in kinds:
        return provenance.OK
    return provenance.PARTIAL if kinds else provenance.FAILED
