"""Upgrade of the tables from version 1 to version 2, which stores the outcome of each unit with it.

Invariants: the upgrade is one transaction, and memory use is bounded by a page; a unit that has not committed gets no
outcome; the outcome is copied from the job's result. If retention has removed the result, the outcome is derived from
the item and the provenance, and a value that they do not determine becomes the most cautious one.
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
    """A unit with the facts about its job."""

    wal_id: str
    dataset: str
    source_uri: str
    time_range_start: str
    begun: Any  # when its job was submitted: a datetime, or its text on SQLite
    result: str | None
    committed: bool | None

    @property
    def item_id(self) -> str:
        return stac.item_id_of(self.dataset, key_of(self.source_uri), self.time_range_start)


class _Item(NamedTuple):
    """The item of a unit's object, which a later generation may have written."""

    item_id: str
    wal_id: str
    collection_id: str
    href: str
    item: str
    created: str
    updated: str


def to_version_2(transaction: Transaction) -> None:
    """Add the columns, fill them, and replace the view."""
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
    outcomes = {unit.wal_id: _from_result(unit.result) for unit in units}
    slimmed = [unit for unit in units if outcomes[unit.wal_id] is None]
    if slimmed:
        item_ids = encoded(sorted({unit.item_id for unit in slimmed}))
        items = {row[0]: _Item(*row) for row in run_statement(transaction, "items_left", rows=item_ids)}
        kinds: dict[str, set[str]] = defaultdict(set)
        for wal_id, kind in run_statement(
            transaction, "provenance_left", rows=encoded([unit.wal_id for unit in slimmed])
        ):
            kinds[wal_id].add(kind)
        for unit in slimmed:
            outcomes[unit.wal_id] = _from_item(unit, items.get(unit.item_id), kinds[unit.wal_id])
    rows = [[wal_id, *(outcome[name] for name in (*OUTCOME, RUN))] for wal_id, outcome in outcomes.items() if outcome]
    if rows:
        run_statement(transaction, "settle_units", rows=encoded(rows))


def _from_result(text: str | None) -> dict[str, str | None] | None:
    result = decoded(text)
    if not isinstance(result, dict) or not all(isinstance(result.get(name), str) for name in OUTCOME):
        return None
    return {name: result.get(name) for name in (*OUTCOME, RUN)}


def _from_item(unit: _Unit, item: _Item | None, kinds: Collection[str]) -> dict[str, str | None] | None:
    """Return the outcome of a unit whose result was removed; None without an item, which `nodd check` reports."""
    if item is None:
        return None
    text = decoded(item.item)
    raw = text.get("properties") if isinstance(text, dict) else None
    properties = raw if isinstance(raw, dict) else {}
    writer = properties.get("nodd:wal_id")
    # The item has the statuses of the unit that wrote it; a no-op means that this unit had the same ones.
    own = properties if unit.wal_id in (writer, item.wal_id) else {}
    return {
        "integrity_status": _let_through(own.get("nodd:integrity")),
        "metadata_status": _let_through(own.get("nodd:metadata")),
        "stac_status": _written(unit, item, writer),
        "provenance_status": _emitted(kinds),
        "stac_item_id": item.item_id,
        "stac_collection_id": item.collection_id,
        "stac_item_href": item.href,
        RUN: None,  # stored nowhere else
    }


def _let_through(status: object) -> str:
    # The unit succeeded, so the status was ok or suspect. If it is not known which, suspect is the cautious value:
    # users who want only sound objects skip it.
    return "ok" if status == "ok" else "suspect"


def _written(unit: _Unit, item: _Item, writer: object) -> str:
    begun = time_text(unit.begun) if isinstance(unit.begun, datetime) else str(unit.begun)
    if item.created >= begun:
        return "created"  # the item is newer than the job's submission, so this job created it
    if item.updated < begun or (item.wal_id == unit.wal_id and writer not in (None, unit.wal_id)):
        return "no-op"  # the item is older than the job, or has the text of another unit that this one confirmed
    # The item has the text of this unit or of a later generation, so it is not known whether this unit changed it.
    # "updated" is the cautious value: readers of the catalogue may read an item again, but miss no change.
    return "updated"


def _emitted(kinds: Collection[str]) -> str:
    # Partial provenance has no OpenLineage event, and failed provenance, which a dataset may allow, has no records.
    if provenance.OPENLINEAGE in kinds:
        return provenance.OK
    return provenance.PARTIAL if kinds else provenance.FAILED
