"""Files of one observation: where a feed makes an observation anew, under another key, the later file supersedes.

A dataset says which fields of a key tell an observation (`same_observation`). Each of its files has an item of its own;
those that another has followed say so: `deprecated`, and links to the version before and after.

Invariants: the same files give the same marks in whatever order they come; the items of a family change only in a
commit that holds the family's version, so that of two at a time one is refused, and makes its own anew in the same
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

CREATED = "created"  # the field of a key that tells when the file was made
BEFORE, AFTER = "predecessor-version", "successor-version"

Item = dict[str, Any]


class ObservationFile(msgspec.Struct, frozen=True, order=True, array_like=True):
    """One file of an observation; the greater is the later."""

    created: str
    key: str
    item_id: str
    wal_id: str
    href: str


class ObservationWrite(NamedTuple):
    """A statement to stage with the commit that makes a family larger, and the item that it changes, if it does."""

    statement: str
    rows: int | None
    params: dict[str, Any]
    item_id: str | None = None


class ObservationFiles:
    """The files of an observation that are catalogued, as they were read."""

    def __init__(
        self, observation: str, version: int, files: Sequence[ObservationFile], items: Mapping[str, Item]
    ) -> None:
        self._observation, self._version, self._files = observation, version, tuple(files)
        self._items = items  # of the files

    def marked(self, unit: Unit, item: Item) -> Item:
        """Return the item of a unit with the marks of its place in the family."""
        own = _file(unit, item)
        return with_marks(item, own, self._with(own))

    def joined(self, unit: Unit, item: Item, now: str) -> Iterator[ObservationWrite]:
        """Yield what is to be written when a unit's item is: the family, and its neighbours' items and records."""
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
            told = {"item": canonical(after), "content": content, "updated": after["properties"]["updated"]}
            yield ObservationWrite("mark_item", 1, {"item_id": neighbour.item_id, **told}, neighbour.item_id)

    def _with(self, own: ObservationFile) -> list[ObservationFile]:
        return sorted([*(one for one in self._files if one.item_id != own.item_id), own])


def files_of(reading: Reading, unit: Unit, dataset: Dataset) -> ObservationFiles | None:
    """Return the files of a unit's observation, as they stand; None if the dataset makes no observation twice."""
    if not dataset.spec.policy.same_observation:
        return None
    observation = observation_name(dataset, unit.notice.fields)
    rows = run_statement(reading, "observation", observation=observation)
    if not rows:
        return ObservationFiles(observation, 0, (), {})
    [(text, version)] = rows
    files = msgspec.json.decode(text, type=list[ObservationFile])
    standing = {one.item_id: run_statement(reading, "item_standing", item_id=one.item_id)[0][3] for one in files}
    return ObservationFiles(
        observation, version, files, {name: msgspec.json.decode(item) for name, item in standing.items()}
    )


def is_conflict(refused: EffectError) -> bool:
    """Tell whether a commit was refused because another has made the family larger meanwhile."""
    return "nodd_observations" in str(refused.context.get("statement", ""))


def observation_name(dataset: Dataset, fields: Mapping[str, str]) -> str:
    """Return the name of the observation that the fields of a key tell of."""
    told = (f"{name}={fields.get(name, '')}" for name in dataset.spec.policy.same_observation)
    return "|".join([dataset.name, *told])


def _file(unit: Unit, item: Mapping[str, Any]) -> ObservationFile:
    fields = unit.notice.fields
    return ObservationFile(fields.get(CREATED, ""), unit.notice.key, item["id"], unit.wal_id, stac.href_of(item))


def with_marks(item: Item, own: ObservationFile, files: Sequence[ObservationFile]) -> Item:
    """Return an item with the marks of its place among the files, and none of another place."""
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
