"""The static catalogue: one file per item, written from the rows of nodd_items, which are the catalogue of record.

Invariants: a file is complete or does not exist; it has the text of its row; the files can be deleted and written again
at any time; publishing twice writes the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.digest import Json, canonical
from holdfast.core.errors import InputError
from holdfast.engine.ledger import Ledger
from holdfast.engine.operations import Call
from holdfast.engine.worker.execution import Execution
from holdfast.nodd import stac
from holdfast.nodd.dataset import Dataset, Datasets
from holdfast.nodd.statements import run_statement
from holdfast.nodd.units import CLIENT
from holdfast.store import Store
from holdfast.store.files import replace_file

PUBLISH = "nodd.publish"
PUBLISH_QUEUE = "nodd-publish"
PAGE = 500
CATALOG_ID = "nodd"


class PublishResult(msgspec.Struct, frozen=True):
    """Counts of a publication: items, new and changed files, and collections."""

    items: int
    written: int
    collections: int


def declare(ledger: Ledger, directory: Path, datasets: Datasets) -> None:
    """Declare the operation `nodd.publish`, which writes the file of an item."""

    def publish_one(_run: Execution, item_id: str, dataset: str) -> bool:
        publish_collection(directory, datasets[dataset])
        return publish(ledger.store, directory, item_id)

    ledger.operations.operation(PUBLISH, version="1.0.0", queue=PUBLISH_QUEUE, max_attempts=10)(publish_one)


def publish_call(item_id: str, dataset: str) -> Call:
    """Return the call of a job that writes an item's file; it reads the row when it runs."""
    payload: dict[str, Json] = {"item_id": item_id, "dataset": dataset}
    return Call(operation=PUBLISH, payload=payload, client=CLIENT, queue=PUBLISH_QUEUE)


def publish(store: Store[Any], directory: Path, item_id: str) -> bool:
    """Write the file of one item from its current row; return whether the file changed."""
    with store.reading() as reading:
        rows = run_statement(reading, "item_to_publish", item_id=item_id)
    return bool(rows) and write(directory / rows[0][0], rows[0][1])


def publish_collection(directory: Path, dataset: Dataset) -> bool:
    """Write the file of a collection; return whether the file changed."""
    path = directory / stac.ROOT / dataset.name / "collection.json"
    return write(path, canonical(stac.collection_of(dataset)))


def rebuild(store: Store[Any], directory: Path, datasets: Datasets) -> PublishResult:
    """Write all files: the catalogue, its collections and all items; raise InputError if it cannot write."""
    try:
        return _rebuilt(store, directory, datasets)
    except OSError as error:
        raise InputError(
            f"{directory} cannot be written: {error.strerror}",
            next_step="Name a directory that exists or can be created, is writable, and has free space.",
            context={"directory": str(directory)},
        ) from None


def _rebuilt(store: Store[Any], directory: Path, datasets: Datasets) -> PublishResult:
    named = list(datasets)
    links = [{"rel": "root", "href": "./catalog.json", "type": "application/json"}]
    links += [{"rel": "child", "href": f"./{one.name}/collection.json", "type": "application/json"} for one in named]
    root = {
        "type": "Catalog",
        "stac_version": stac.STAC_VERSION,
        "id": CATALOG_ID,
        "title": "NOAA open data",
        "description": "Objects of NOAA's open data, catalogued by Holdfast.",
        "links": links,
    }
    write(directory / stac.ROOT / "catalog.json", canonical(root))
    collections = sum(publish_collection(directory, dataset) for dataset in named)
    items = written = 0
    for href, item in _items(store):
        items += 1
        written += write(directory / href, item)
    return PublishResult(items, written, collections)


def _items(store: Store[Any]) -> Iterator[tuple[str, str]]:
    after = ""
    while True:
        with store.reading() as reading:
            rows = run_statement(reading, "items_to_publish", after=after, n=PAGE)
        if not rows:
            return
        for item_id, href, item in rows:
            after = item_id
            yield href, item


def write(path: Path, text: str) -> bool:
    """Write a file atomically; return False if it already has this text."""
    data = text.encode() + b"\n"
    try:
        if path.read_bytes() == data:
            return False
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data)
    return True
