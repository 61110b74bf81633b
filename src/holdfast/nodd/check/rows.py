"""The rows that `nodd check` tests: units, items, observations and rejected bodies, page by page.

Invariants: all rows of a page come from one read transaction; memory use is bounded by the page, not by the ledger; a
JSON text that cannot be read is None and never raises.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.nodd import observations, provenance, stac
from holdfast.nodd.dataset import Datasets
from holdfast.nodd.observations import ObservationFile
from holdfast.nodd.statements import run_statement
from holdfast.nodd.units import OPERATION
from holdfast.store.statements import encoded

if TYPE_CHECKING:
    from holdfast.store.transaction import Reading


class UnitRow(msgspec.Struct, frozen=True, gc=False):
    """A row of nodd_units with its job, if that exists."""

    wal_id: str
    job_id: int
    dataset: str
    source_uri: str
    object_uri: str
    generation: int
    etag: str | None
    size: int | None
    sequencer: str | None
    version_id: str | None
    provider: str
    queue: str
    event_time: str | None
    time_range_start: str
    time_range_end: str | None
    attempts_before: int
    version_before: int
    created_before: str | None
    integrity_status: str | None
    metadata_status: str | None
    stac_status: str | None
    provenance_status: str | None
    stac_item_id: str | None
    stac_collection_id: str | None
    stac_item_href: str | None
    ingest_run_id: str | None
    operation: str | None  # of the job; None if the job does not exist
    client: str | None
    key: str | None
    replaces: int | None
    payload: str | None
    result: str | None
    committed: bool | None

    @property
    def is_ingest(self) -> bool:
        """Whether its job exists and is of the operation nodd.ingest."""
        return self.operation == OPERATION

    @property
    def has_succeeded(self) -> bool:
        """Whether its job has committed, even if it is not yet done."""
        return self.is_ingest and bool(self.committed)

    @property
    def item_id(self) -> str:
        """Return the expected id of its item."""
        return stac.item_id_of(self.dataset, key_of(self.source_uri), self.time_range_start)


class ProvenanceRow(msgspec.Struct, frozen=True, gc=False):
    """A row of nodd_provenance."""

    record_id: str
    kind: str
    content: str


class CataloguedItem(msgspec.Struct, frozen=True, gc=False):
    """An item, its unit, and its path in the catalogue."""

    item_id: str
    wal_id: str
    generation: int
    collection_id: str
    href: str
    source_uri: str | None  # of that unit; None if the unit does not exist


class UnitCase(msgspec.Struct, frozen=True, gc=False):
    """A unit with its provenance and its item."""

    unit: UnitRow
    provenance: Sequence[ProvenanceRow]
    item: CataloguedItem | None


class ItemRow(msgspec.Struct, frozen=True, gc=False):
    """A row of nodd_items with its unit, if that exists."""

    item_id: str
    collection_id: str
    dataset: str
    wal_id: str
    generation: int
    href: str
    item: str
    content: str
    created: str
    updated: str
    unit_dataset: str | None
    source_uri: str | None
    time_range_start: str | None
    unit_generation: int | None
    size: int | None
    etag: str | None


class ItemCase(msgspec.Struct, frozen=True, gc=False):
    """An item, what provenance states about its object, and the observation that must list it."""

    item: ItemRow
    document: dict[str, Any] | None  # None if it cannot be read
    sources: Sequence[Mapping[str, Any]]
    observation: str | None = None  # None if its dataset has no `same_observation`
    listed: bool = False


class ObservedUnit(msgspec.Struct, frozen=True, gc=False):
    """The unit of a file of an observation."""

    wal_id: str
    dataset: str
    source_uri: str
    time_range_start: str
    generation: int
    supersedes: str | None


class ObservationCase(msgspec.Struct, frozen=True, gc=False):
    """A row of nodd_observations, and the items and units of its files."""

    name: str
    version: int
    files: Sequence[ObservationFile] | None  # None if they cannot be read
    items: Mapping[str, tuple[str, dict[str, Any] | None]]  # href and content by id
    units: Mapping[str, ObservedUnit]


class RejectedRow(msgspec.Struct, frozen=True, gc=False):
    """A row of nodd_rejected."""

    sha256: str
    body: str
    times: int
    first_at: str
    last_at: str
    replayed_at: str | None
    fate: str | None


def key_of(source_uri: str) -> str:
    """Return the key of an object, without scheme and bucket."""
    return source_uri.removeprefix("s3://").partition("/")[2]


def decoded(text: str | None) -> Any:
    """Return the value of a JSON text; None if there is no text, or it cannot be read."""
    try:
        return None if text is None else msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None


def statements_of(record: ProvenanceRow) -> Iterator[tuple[str, Mapping[str, Mapping[str, Any]]]]:
    """Yield the statements of a PROV record by kind."""
    content = decoded(record.content)
    for kind, statements in content.items() if isinstance(content, dict) else ():
        if isinstance(statements, dict) and all(isinstance(one, dict) for one in statements.values()):
            yield kind, statements


def sources_of(wal_id: str, records: Sequence[ProvenanceRow]) -> list[Mapping[str, Any]]:
    """Return what provenance states about the object of a unit."""
    name = f"unit:{wal_id}-object"
    return [
        statements[name]
        for record in records
        if record.kind == provenance.PROV
        for kind, statements in statements_of(record)
        if kind == "entity" and name in statements
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Pages

Page = Callable[["Reading", str, int, Datasets], tuple[Sequence[Any], str | None]]
"""Reads up to n rows after a key, and returns them with the key of the last one; None if there are no more."""


def unit_cases(reading: Reading, after: str, n: int, _datasets: Datasets) -> tuple[list[UnitCase], str | None]:
    """Return the next units with their jobs, their provenance and their items."""
    found = [UnitRow(*row) for row in run_statement(reading, "units_to_check", after=after, n=n)]
    provenance_of = _provenance(reading, [unit.wal_id for unit in found])
    ids = {unit.item_id for unit in found}
    rows = run_statement(reading, "catalogued_items", rows=encoded(sorted(ids))) if ids else []
    items = {row[0]: CataloguedItem(*row) for row in rows}
    cases = [UnitCase(unit, provenance_of.get(unit.wal_id, ()), items.get(unit.item_id)) for unit in found]
    return cases, found[-1].wal_id if found else None


def _provenance(reading: Reading, wal_ids: Sequence[str]) -> dict[str, list[ProvenanceRow]]:
    found: dict[str, list[ProvenanceRow]] = defaultdict(list)
    for wal_id, *record in run_statement(reading, "provenance_to_check", rows=encoded(wal_ids)) if wal_ids else ():
        found[wal_id].append(ProvenanceRow(*record))
    return found


def item_cases(reading: Reading, after: str, n: int, datasets: Datasets) -> tuple[list[ItemCase], str | None]:
    """Return the next items with their units, the provenance of their objects, and their observations."""
    found = [ItemRow(*row) for row in run_statement(reading, "items_to_check", after=after, n=n)]
    provenance_of = _provenance(reading, sorted({item.wal_id for item in found}))
    named = {item.item_id: _observation_of(item, datasets) for item in found}
    wanted = sorted({name for name in named.values() if name is not None})
    rows = run_statement(reading, "observations_named", rows=encoded(wanted)) if wanted else []
    listing = {name: {file.item_id for file in _files(text) or ()} for name, text in rows}
    cases = [
        ItemCase(
            item,
            _object(item.item),
            sources_of(item.wal_id, provenance_of.get(item.wal_id, ())),
            named[item.item_id],
            item.item_id in listing.get(named[item.item_id] or "", ()),
        )
        for item in found
    ]
    return cases, found[-1].item_id if found else None


def _observation_of(item: ItemRow, datasets: Datasets) -> str | None:
    if item.source_uri is None or item.dataset not in datasets:
        return None
    dataset = datasets[item.dataset]
    match = dataset.match(key_of(item.source_uri)) if dataset.spec.policy.same_observation else None
    return None if match is None else observations.observation_name(dataset, match.fields)


def observation_cases(
    reading: Reading, after: str, n: int, _datasets: Datasets
) -> tuple[list[ObservationCase], str | None]:
    """Return the next observations with the items and units of their files."""
    rows = [
        (name, version, _files(text))
        for name, text, version in run_statement(reading, "observations_to_check", after=after, n=n)
    ]
    files = [file for _, _, listed in rows for file in listed or ()]
    item_ids = encoded(sorted({file.item_id for file in files}))
    there = {
        item_id: (href, _object(text))
        for item_id, href, text in run_statement(reading, "observed_items", rows=item_ids)
    }
    wal_ids = encoded(sorted({file.wal_id for file in files}))
    carried = {row[0]: ObservedUnit(*row) for row in run_statement(reading, "observed_units", rows=wal_ids)}
    cases = [ObservationCase(name, version, listed, there, carried) for name, version, listed in rows]
    return cases, rows[-1][0] if rows else None


def rejected_rows(reading: Reading, after: str, n: int, _datasets: Datasets) -> tuple[list[RejectedRow], str | None]:
    found = [RejectedRow(*row) for row in run_statement(reading, "rejected_to_check", after=after, n=n)]
    return found, found[-1].sha256 if found else None


def _object(text: str) -> dict[str, Any] | None:
    content = decoded(text)
    return content if isinstance(content, dict) else None


def _files(text: str) -> list[ObservationFile] | None:
    try:
        return msgspec.json.decode(text, type=list[ObservationFile])
    except (msgspec.DecodeError, UnicodeError):
        return None
