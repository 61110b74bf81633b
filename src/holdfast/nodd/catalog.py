"""The static catalogue: files that clients crawl, written from the rows of nodd_items, the catalogue of record.

    data/stac/nodd/catalog.json                        the root, with a link to each collection
    data/stac/nodd/gfs/collection.json                 a collection: extents, item_assets, a link to each day
    data/stac/nodd/gfs/2026/207/catalog.json           a day of the data, with a link to each item
    data/stac/nodd/gfs/2026/207/ITEM.json              an item: the text of its row

Invariants: a link is written after the file that it leads to; all files can be deleted and written again at any time;
publishing twice writes the same bytes; an item that is published alone and a rebuild give the same files, except that
the extents of a collection shrink only in a rebuild.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast.core.digest import Json, canonical
from holdfast.core.errors import InputError
from holdfast.engine.ledger import Ledger
from holdfast.engine.operations import Call
from holdfast.engine.worker.execution import Execution
from holdfast.nodd import stac, stac_catalog
from holdfast.nodd.catalog_targets import CatalogTarget
from holdfast.nodd.dataset import Datasets
from holdfast.nodd.stac_catalog import Extent
from holdfast.nodd.statements import run_statement
from holdfast.nodd.units import CLIENT
from holdfast.store import Store

PUBLISH = "nodd.publish"
PUBLISH_QUEUE = "nodd-publish"
PAGE = 500
ROOT_FILE = f"{stac.ROOT}/catalog.json"
_BEFORE, _AFTER = '"links":[\n', "\n],"  # around the links of a catalogue of a day: each has a line of its own


class PublishResult(msgspec.Struct, frozen=True):
    """Counts of a publication: items, and the files of items, days and collections that changed."""

    items: int
    written: int
    days: int
    collections: int


class StaticCatalog:
    """Publishes items of a ledger to a target."""

    def __init__(self, store: Store[Any], target: CatalogTarget, datasets: Datasets) -> None:
        self._store, self._target, self._datasets = store, target, datasets
        self._joined = _Joined()

    def publish(self, item_id: str) -> bool:
        """Write the file of one item from its current row, and the links that lead to it; return if it changed."""
        with self._store.reading() as reading:
            rows = run_statement(reading, "item_to_publish", item_id=item_id)
        if not rows:
            return False
        [(name, href, text)] = rows
        changed = self._write_item(item_id, href, text)
        item, day = msgspec.json.decode(text), href.rpartition("/")[0]
        self._joined.add(
            f"{day}/catalog.json", stac_catalog.item_link(item), lambda links: self._link_items(name, day, links)
        )
        extent = Extent.of(item, day)
        self._joined.add(_collection_file(name), extent, lambda found: self._widen(name, found))
        return changed

    def rebuild(self) -> PublishResult:
        """Write all files; raise InputError or StoreUnavailableError if the target cannot be written."""
        items = written = days = collections = 0
        # Written first: a target that cannot be written is found before anything else.
        self._target.change(ROOT_FILE, lambda before: before or _file(canonical(stac_catalog.root_catalog([]))))
        with self._store.reading() as reading:
            names = [name for (name,) in run_statement(reading, "datasets_to_publish")]
        for name in names:
            self._require_known(name)
            extents = []
            for day in sorted(f"{stac.ROOT}/{name}/{day}" for day in self._days(name)):
                extent: Extent | None = None
                for item_id, href, text in self._of_day(name, day):
                    items += 1
                    written += self._write_item(item_id, href, text)
                    own = Extent.of(msgspec.json.decode(text), day)
                    extent = own if extent is None else extent.joined(own)
                days += self._link_day(name, day)
                extents += [extent] if extent is not None else []
            collections += self._write_collection(name, extents)
        return PublishResult(items, written, days, collections)

    # -- files --------------------------------------------------------------------------------------------------------

    def _write_item(self, item_id: str, href: str, text: str) -> bool:
        expected = _file(text)

        def edit(before: bytes | None) -> bytes:
            if before == expected:
                return expected
            # The row is read again: since it was read, another writer may have published a later one.
            with self._store.reading() as reading:
                return _file(run_statement(reading, "item_to_publish", item_id=item_id)[0][2])

        return self._target.change(href, edit)

    def _link_items(self, name: str, day: str, links: Sequence[dict[str, str]]) -> bool:
        return self._target.change(
            f"{day}/catalog.json", lambda before: _with_links(self._day(name, day), before, links)
        )

    def _link_day(self, name: str, day: str) -> bool:
        """Write the catalogue of a day with all of its items."""

        def edit(_before: bytes | None) -> bytes:
            links = (stac_catalog.item_link(msgspec.json.decode(text)) for _, _, text in self._of_day(name, day))
            return _with_links(self._day(name, day), None, list(links))

        return self._target.change(f"{day}/catalog.json", edit)

    def _day(self, name: str, day: str) -> dict[str, Any]:
        return stac_catalog.day_catalog(self._title(name), day)

    def _widen(self, name: str, extents: Sequence[Extent]) -> bool:
        """Extend a collection to items, and link their days."""

        def edit(before: bytes | None) -> bytes:
            known = [Extent.of_collection(msgspec.json.decode(before))] if before else []
            return _file(canonical(self._collection(name, [*known, *extents])))

        changed = self._target.change(_collection_file(name), edit)
        return self._link_collection(name) or changed

    def _write_collection(self, name: str, extents: Sequence[Extent]) -> bool:
        """Write a collection with exactly these extents, and those of days that were added meanwhile."""

        def edit(before: bytes | None) -> bytes:
            known = [Extent.of_collection(msgspec.json.decode(before))] if before else []
            written = frozenset[str]().union(*(extent.days for extent in extents))
            more = known and (known[0].days - written) & self._days(name)
            return _file(canonical(self._collection(name, [*extents, *known] if more else extents)))

        changed = self._target.change(_collection_file(name), edit)
        self._link_collection(name)
        return changed

    def _link_collection(self, name: str) -> bool:
        link = stac_catalog.child_link(f"./{name}/collection.json", self._title(name))

        def edit(before: bytes | None) -> bytes:
            linked = msgspec.json.decode(before)["links"] if before else []
            children = [one for one in linked if one["rel"] == "child" and one["href"] != link["href"]]
            return _file(canonical(stac_catalog.root_catalog([*children, link])))

        return self._target.change(ROOT_FILE, edit)

    def _collection(self, name: str, extents: Sequence[Extent]) -> dict[str, Any]:
        extent = extents[0]
        for other in extents[1:]:
            extent = extent.joined(other)
        return stac_catalog.collection_of(self._datasets[name], extent)

    def _require_known(self, name: str) -> None:
        if name not in self._datasets:
            raise InputError(
                f"Items of the dataset {name!r} are in the ledger, and the dataset is not known here.",
                next_step="Add its directory: --datasets DIR.",
                context={"dataset": name},
            )

    def _days(self, name: str) -> set[str]:
        """Return the days of a dataset with items, such as 2026/207."""
        with self._store.reading() as reading:
            rows = run_statement(reading, "days_to_publish", dataset=name)
        return {day.removeprefix(f"{stac.ROOT}/{name}/") for (day,) in rows}

    def _title(self, name: str) -> str:
        return self._datasets[name].spec.title

    def _of_day(self, name: str, day: str) -> Iterator[tuple[str, str, str]]:
        """Yield the items of a day: id, path and text."""
        after = f"{day}/"
        while True:
            with self._store.reading() as reading:
                # The id of an item is hexadecimal: "g" is after every item of the day in every collation.
                rows = run_statement(reading, "items_of_day", dataset=name, after=after, before=f"{day}/g", n=PAGE)
            for item_id, href, text in rows:
                after = href
                yield item_id, href, text
            if len(rows) < PAGE:
                return


def declare(ledger: Ledger, target: CatalogTarget, datasets: Datasets) -> None:
    """Declare the operation `nodd.publish`, which writes the file of an item and the links to it."""
    catalog = StaticCatalog(ledger.store, target, datasets)

    def publish_one(_run: Execution, item_id: str, dataset: str) -> bool:  # noqa: ARG001 - calls of earlier versions name it
        return catalog.publish(item_id)

    ledger.operations.operation(PUBLISH, version="1.0.0", queue=PUBLISH_QUEUE, max_attempts=10)(publish_one)


def publish_call(item_id: str, dataset: str) -> Call:
    """Return the call of a job that writes an item's file; it reads the row when it runs."""
    payload: dict[str, Json] = {"item_id": item_id, "dataset": dataset}
    return Call(operation=PUBLISH, payload=payload, client=CLIENT, queue=PUBLISH_QUEUE)


def rebuild(store: Store[Any], target: CatalogTarget, datasets: Datasets) -> PublishResult:
    """Write all files of the catalogue; raise InputError or StoreUnavailableError if the target cannot be written."""
    return StaticCatalog(store, target, datasets).rebuild()


class _Joined:
    """Joins what threads want to add to the same file: the first writes it for those that wait."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._waiting: dict[str, list[Any]] = {}

    def add(self, path: str, value: Any, write: Callable[[list[Any]], object]) -> None:
        """Return after `value` was written, by this thread or by another."""
        with self._guard:
            self._waiting.setdefault(path, []).append(value)
            lock = self._locks.setdefault(path, threading.Lock())
        with lock:
            with self._guard:
                values = self._waiting.pop(path, [])
            if not values:
                return  # the thread that held the lock before has written it
            try:
                write(values)
            except BaseException:
                with self._guard:
                    self._waiting.setdefault(path, []).extend(values)  # each waiting thread tries again
                raise


def _file(text: str) -> bytes:
    return text.encode() + b"\n"


def _collection_file(name: str) -> str:
    return f"{stac.ROOT}/{name}/collection.json"


def _with_links(day: dict[str, Any], before: bytes | None, links: Sequence[dict[str, str]]) -> bytes:
    """Return the file of a day with more links.

    Each link is a line, and the lines are in the order of their text, which begins with the address. So a link is
    added to a day of a hundred thousand items without parsing them.
    """
    lines = [canonical(link) for link in day["links"]]
    if before is not None:
        lines = before.decode().partition(_BEFORE)[2].rpartition(_AFTER)[0].split(",\n")
    lines.sort()
    for link in links:
        start, line = canonical({"href": link["href"]})[:-1], canonical(link)
        at = bisect.bisect_left(lines, start)
        if at < len(lines) and lines[at].startswith(start):
            lines[at] = line
        else:
            lines.insert(at, line)
    head, _, tail = canonical({**day, "links": []}).partition('"links":[],')
    return _file(head + _BEFORE + ",\n".join(lines) + _AFTER + tail)
