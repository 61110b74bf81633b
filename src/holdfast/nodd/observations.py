"""Files of one observation: some feeds publish an observation again under another key; the later file supersedes.

The policy `same_observation` of a dataset names the key fields that identify an observation. Each file has an item of
its own; items link to the file before and after, and all but the last are `deprecated`.

Invariants: the same files give the same links and marks in any order; the items of an observation change only in a
commit that checks the version of its row, so of two concurrent commits one is refused and tried again in the same
attempt; nothing is deleted.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.core.digest import canonical
from holdfast.core.errors import EffectError
from holdfast.nodd import stac
from holdfast.nodd.dataset import Dataset
from holdfast.nodd.statements import run_statement
from holdfast.nodd.units import Unit

if TYPE_CHECKING:
    from holdfast.store.transaction import Reading

CREATED = "created"  # the key field with the time at which the file was made
BEFORE, AFTER = "predecessor-version", "successor-version"

Item = dict[str, Any]


class ObservationFile(msgspec.Struct, frozen=True, order=True, array_like=True):
    """One file of an observation; files are ordered by the time at which they were made."""

    created: str
    key: str
    item_id: str
    wal_id: str
    href: str


class ObservationWrite(NamedTuple):
    """A statement to stage when a file joins an observation, and the item that it changes, if any."""

    statement: str
    rows: int | None
    params: dict[str, Any]
    item_id: str | None = None


class ObservationFiles:
    """The catalogued files of an observation, as read from the ledger."""

    def __init__(
        self, observation: str, version: int, files: Sequence[ObservationFile], items: Mapping[str, Item]
    ) -> None:
        self._observation, self._version, self._files = observation, version, tuple(files)
        self._items = items  # of the files

    def marked(self, unit: Unit, item: Item) -> Item:
        """Return the item of a unit with the links and marks of its position among the files."""
        own = _file(unit, item)
        return with_marks(item, own, self._with(own))

    def joined(self, unit: Unit, item: Item, now: str) -> Iterator[ObservationWrite]:
        """Yield the statements to stage with a unit's item: the observation, and its neighbours' items and units."""
        own = _file(unit, item)
        files = self._with(own)
        kept = {"observation": self._observation, "files": canonical(msgspec.to_builtins(files))}
        if self._version:
            yield ObservationWrite("follow_observation", 1, {**kept, "version": self._version})
        else:
            yield ObservationWrite("begin_observation", 1, kept)
        at = files.index(own)
        for earlier, later in zip(files[max(at - 1, 0) : at + 1], files[max(at, 1) : at + 2], strict=False):
            yield ObservationWrite("supersede_unit", None, {"wal_id": later.wal_id, "supersedes": earlier.wal_id})
        for neighbour in (*files[max(at - 1, 0) : at], *files[at + 1 : at + 2]):
            before = self._items[neighbour.item_id]
            after = with_marks(before, neighbour, files)
            if after == before:
                continue
            content = stac.content_digest(after)
            if content != stac.content_digest(before):
                after = {**after, "properties": {**after["properties"], "updated": now}}
            row = {"item": canonical(after), "content": content, "updated": after["properties"]["updated"]}
            yield ObservationWrite("mark_item", 1, {"item_id": neighbour.item_id, **row}, neighbour.item_id)

    def _with(self, own: ObservationFile) -> list[ObservationFile]:
        return sorted([*(one for one in self._files if one.item_id != own.item_id), own])


def files_of(reading: Reading, unit: Unit, dataset: Dataset) -> ObservationFiles | None:
    """Return the catalogued files of a unit's observation; None if the dataset has no `same_observation`."""
    if not dataset.spec.policy.same_observation:
        return None
    observation = observation_name(dataset, unit.notice.fields)
    rows = run_statement(reading, "observation", observation=observation)
    if not rows:
        return ObservationFiles(observation, 0, (), {})
    [(text, version)] = rows
    files = msgspec.json.decode(text, type=list[ObservationFile])
    texts = {one.item_id: run_statement(reading, "item_content", item_id=one.item_id)[0][3] for one in files}
    return ObservationFiles(
        observation, version, files, {name: msgspec.json.decode(item) for name, item in texts.items()}
    )


def is_conflict(refused: EffectError) -> bool:
    """Return whether a commit was refused because another file of the observation committed first."""
    return "nodd_observations" in str(refused.context.get("statement", ""))


def observation_name(dataset: Dataset, fields: Mapping[str, str]) -> str:
    values = (f"{name}={fields.get(name, '')}" for name in dataset.spec.policy.same_observation)
    return "|".join([dataset.name, *values])


def _file(unit: Unit, item: Mapping[str, Any]) -> ObservationFile:
    fields = unit.notice.fields
    return ObservationFile(fields.get(CREATED, ""), unit.notice.key, item["id"], unit.wal_id, stac.href_of(item))


def with_marks(item: Item, own: ObservationFile, files: Sequence[ObservationFile]) -> Item:
    """Return an item with the links and marks of its position among the files; other positions' are removed."""
    at = [one.item_id for one in files].index(own.item_id)
    links = [link for link in item["links"] if link["rel"] not in (BEFORE, AFTER)]
    links += [_link(BEFORE, own, files[at - 1])] if at else []
    links += [_link(AFTER, own, files[at + 1])] if at + 1 < len(files) else []
    properties = {name: value for name, value in item["properties"].items() if name != "deprecated"}
    if at + 1 < len(files):
        properties["deprecated"] = True
    return {**item, "properties": properties, "links": links}


def _link(relation: str, own: ObservationFile, other: ObservationFile) -> dict[str, str]:
    href = posixpath.relpath(other.href, posixpath.dirname(own.href))
    return {"rel": relation, "href": f"./{href}", "type": "application/geo+json"}
