"""stac-register: the STAC 1.1 item of a unit, and its content digest.

Invariants: an item's id is computed from the dataset, key and start time, so all generations of an object have the same
item; the content digest does not include times, the unit or links; no clock is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid5

from holdfast.core.digest import canonical, sha256
from holdfast.core.records import time_from
from holdfast.nodd.dataset import Dataset
from holdfast.nodd.notices import NAMESPACE
from holdfast.nodd.units import OperatorVerdict, Unit

STAC_VERSION = "1.1.0"
EXTENSIONS = {
    "file": "https://stac-extensions.github.io/file/v2.1.0/schema.json",
    "storage": "https://stac-extensions.github.io/storage/v2.0.0/schema.json",
    "forecast": "https://stac-extensions.github.io/forecast/v0.2.0/schema.json",
    "processing": "https://stac-extensions.github.io/processing/v1.2.0/schema.json",
    "timestamps": "https://stac-extensions.github.io/timestamps/v1.1.0/schema.json",
    "version": "https://stac-extensions.github.io/version/v1.2.0/schema.json",
}
SOFTWARE = {"holdfast": "nodd 1"}
ROOT = "data/stac/nodd"
INDEX_SUFFIX = ".idx"
_MD5_MULTIHASH, _SHA256_MULTIHASH = "d50110", "1220"


def item_id(unit: Unit) -> str:
    """Return the id of a unit's item, which is the same for every generation of the object."""
    return item_id_of(unit.dataset, unit.notice.key, unit.time_range_start)


def item_id_of(dataset: str, key: str, time_range_start: str) -> str:
    """Return the id of the item of an object."""
    return str(uuid5(NAMESPACE, f"item|{dataset}|{key}|{time_range_start}"))


def href_of(item: Mapping[str, Any]) -> str:
    """Return the path of an item in the static catalogue: by dataset, year and day of the year."""
    moment = time_from(item["properties"]["datetime"] or item["properties"]["start_datetime"])
    dataset = item["properties"]["nodd:dataset"]
    return f"{ROOT}/{dataset}/{moment:%Y}/{moment:%j}/{item['id']}.json"


def item_of(
    unit: Unit, dataset: Dataset, integrity: OperatorVerdict, metadata: OperatorVerdict, *, created: str, updated: str
) -> dict[str, Any]:
    """Return the item of a unit."""
    spec = dataset.spec
    properties, asset = _properties(unit, dataset, integrity, metadata), _asset(unit, dataset, integrity)
    used = {field.partition(":")[0] for field in (*properties, *asset)}
    named = dict.fromkeys([*spec.collection.extensions, *(name for name in EXTENSIONS if name in used)])
    item: dict[str, Any] = {
        "type": "Feature",
        "stac_version": STAC_VERSION,
        "stac_extensions": [EXTENSIONS[name] for name in named],
        "id": item_id(unit),
        "collection": spec.collection.id,
        "geometry": metadata.data.get("geometry"),
        "properties": {**properties, "created": created, "updated": updated},
        "assets": {"data": asset},
        "links": _links(spec.collection.id),
    }
    if metadata.data.get("bbox"):
        item["bbox"] = metadata.data["bbox"]
    return item


def _properties(unit: Unit, dataset: Dataset, integrity: OperatorVerdict, metadata: OperatorVerdict) -> dict[str, Any]:
    time_range, named = metadata.data["time_range"], dataset.spec.collection.extensions
    start, end = time_range["start"], time_range["end"]
    times = (
        {"datetime": start}
        if end in (None, start)
        else {"datetime": start, "start_datetime": start, "end_datetime": end}
    )
    properties = {
        **times,
        **metadata.data["properties"],
        "title": unit.notice.key.rpartition("/")[2],
        "nodd:wal_id": unit.wal_id,
        "nodd:generation": unit.generation,
        "nodd:integrity": integrity.status,
        "nodd:metadata": metadata.status,
    }
    if integrity.issues or metadata.issues:
        properties["nodd:issues"] = sorted({*integrity.issues, *metadata.issues})
    if "storage" in named:
        properties["storage:schemes"] = {
            "aws": {
                "type": "aws-s3",
                "platform": "https://{bucket}.s3.{region}.amazonaws.com",
                "bucket": unit.notice.bucket,
                "region": "us-east-1",
                "requester_pays": False,
            }
        }
    if "processing" in named:
        properties["processing:software"] = dict(SOFTWARE)
        properties["processing:lineage"] = f"catalogued from {unit.source_uri}"
    if "timestamps" in named:
        properties["published"] = unit.event_time or unit.time_range_start
    if "version" in named:
        properties["version"] = str(unit.generation)
    return properties


def _asset(unit: Unit, dataset: Dataset, integrity: OperatorVerdict) -> dict[str, Any]:
    asset: dict[str, Any] = {
        "href": unit.source_uri,
        "title": unit.notice.key.rpartition("/")[2],
        "type": dataset.spec.media,
        "roles": ["data"],
        "file:size": integrity.data["actual_size_bytes"],
    }
    if "storage" in dataset.spec.collection.extensions:
        asset["storage:refs"] = ["aws"]
    checksum = _checksum(integrity)
    if checksum is not None:
        asset["file:checksum"] = checksum
    return asset


def _checksum(integrity: OperatorVerdict) -> str | None:
    """Return the multihash of an object that was read as a whole, or whose ETag is a verified MD5; else None."""
    if "sha256" in integrity.data:
        return _SHA256_MULTIHASH + str(integrity.data["sha256"])
    etag = str(integrity.data.get("actual_etag") or "")
    if "md5" in integrity.checks_run and "-" not in etag:
        return _MD5_MULTIHASH + etag
    return None


def _links(collection: str) -> list[dict[str, str]]:
    return [
        {"rel": "collection", "href": "../../collection.json", "type": "application/json", "title": collection},
        {"rel": "parent", "href": "./catalog.json", "type": "application/json"},
        {"rel": "root", "href": "../../../catalog.json", "type": "application/json"},
    ]


def asset_kinds(dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Return the assets that items of a dataset have, without what differs from item to item."""
    kinds: dict[str, dict[str, Any]] = {"data": {"title": "Data", "type": dataset.spec.media, "roles": ["data"]}}
    if INDEX_SUFFIX in dataset.spec.sidecars:
        kinds["index"] = {"title": "Index of the messages", "type": "text/plain", "roles": ["index"]}
    return kinds


# ---------------------------------------------------------------------------------------------------------------------
# Change

_NOT_CONTENT = ("created", "updated", "processing:datetime", "nodd:wal_id", "nodd:generation", "version", "published")


def content_digest(item: Mapping[str, Any]) -> str:
    """Return the digest of an item's content without its times, its unit and its links."""
    properties = {name: value for name, value in item["properties"].items() if name not in _NOT_CONTENT}
    return sha256(canonical({**{k: v for k, v in item.items() if k != "links"}, "properties": properties}))
