"""stac-register: the STAC 1.1 item of a unit, and its content digest.

Invariants: an item's id is computed from the dataset, key and start time, so all generations of an object have the same
item; the content digest does not include times, the unit or links; no clock is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote
from uuid import uuid5

from holdfast.core.digest import canonical, sha256
from holdfast.core.records import time_from
from holdfast.nodd.dataset import Dataset
from holdfast.nodd.notices import NAMESPACE
from holdfast.nodd.units import OperatorVerdict, Unit

STAC_VERSION = "1.1.0"
EXTENSIONS = {
    "alternate": "https://stac-extensions.github.io/alternate-assets/v1.2.0/schema.json",
    "proj": "https://stac-extensions.github.io/projection/v2.0.0/schema.json",
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
TITLE_FIELDS = ("model", "product", "element", "level", "region", "scene", "member", "station", "period")
# The centres of the bands of the Advanced Baseline Imager, as its user's guide gives them.
ABI_MICROMETRES = {
    "01": 0.47, "02": 0.64, "03": 0.86, "04": 1.37, "05": 1.6, "06": 2.2, "07": 3.9, "08": 6.2, "09": 6.9, "10": 7.3,
    "11": 8.4, "12": 9.6, "13": 10.3, "14": 11.2, "15": 12.3, "16": 13.3,
}  # fmt: skip
_MD5_MULTIHASH, _SHA256_MULTIHASH = "d50110", "1220"


def item_id(unit: Unit) -> str:
    """Return the id of a unit's item, which is the same for every generation of the object."""
    return item_id_of(unit.dataset, unit.notice.key, unit.time_range_start)


def item_id_of(dataset: str, key: str, time_range_start: str) -> str:
    return str(uuid5(NAMESPACE, f"item|{dataset}|{key}|{time_range_start}"))


def href_of(item: Mapping[str, Any]) -> str:
    """Return the path of an item in the static catalogue: by dataset, year and day of the year."""
    moment = time_from(item["properties"]["datetime"] or item["properties"]["start_datetime"])
    dataset = item["properties"]["nodd:dataset"]
    return f"{ROOT}/{dataset}/{moment:%Y}/{moment:%j}/{item['id']}.json"


def item_of(
    unit: Unit, dataset: Dataset, integrity: OperatorVerdict, metadata: OperatorVerdict, *, created: str, updated: str
) -> dict[str, Any]:
    spec = dataset.spec
    properties = _properties(unit, dataset, integrity, metadata)
    assets = {"data": _asset(unit, dataset, integrity)}
    if "index" in integrity.data:
        assets["index"] = _index_asset(dataset, integrity.data["index"])
    used = {field.partition(":")[0] for fields in (properties, *assets.values()) for field in fields}
    named = dict.fromkeys([*spec.collection.extensions, *(name for name in EXTENSIONS if name in used)])
    item: dict[str, Any] = {
        "type": "Feature",
        "stac_version": STAC_VERSION,
        "stac_extensions": [EXTENSIONS[name] for name in named],
        "id": item_id(unit),
        "collection": spec.collection.id,
        "geometry": metadata.data.get("geometry"),
        "properties": {**properties, "created": created, "updated": updated},
        "assets": assets,
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
        **_projection(metadata.data.get("projection")),
        "title": title_of(unit, dataset, metadata),
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
    channel = unit.notice.fields.get("channel", "")
    asset: dict[str, Any] = {
        "href": unit.source_uri,
        "alternate": _https(unit.source_uri),
        "title": unit.notice.key.rpartition("/")[2],
        "type": dataset.spec.media,
        "roles": ["data"],
        "file:size": integrity.data["actual_size_bytes"],
    }
    if "storage" in dataset.spec.collection.extensions:
        asset["storage:refs"] = ["aws"]
    if channel in ABI_MICROMETRES and "sat" in unit.notice.fields:
        asset["bands"] = [{"name": f"C{channel}", "description": f"{ABI_MICROMETRES[channel]} µm"}]
    checksum = _checksum(integrity)
    if checksum is not None:
        asset["file:checksum"] = checksum
    return asset


def _index_asset(dataset: Dataset, index: Mapping[str, Any]) -> dict[str, Any]:
    asset = {
        **asset_kinds(dataset).get("index", {"roles": ["index"]}),
        "href": index["uri"],
        "alternate": _https(index["uri"]),
    }
    if index["size"] is not None:
        asset["file:size"] = index["size"]
    if "storage" in dataset.spec.collection.extensions:
        asset["storage:refs"] = ["aws"]
    if index["messages"]:
        # offset, length, parameter, level, step
        asset["nodd:messages"] = index["messages"]
    return asset


def _https(uri: str) -> dict[str, dict[str, str]]:
    """Return the address of a public object for clients that do not speak the protocol of S3."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return {"https": {"href": f"https://{bucket}.s3.amazonaws.com/{quote(key)}", "title": "Over HTTPS"}}


def title_of(unit: Unit, dataset: Dataset, metadata: OperatorVerdict) -> str:
    """Return a title for people: what it is, where, and when."""
    fields, name = unit.notice.fields, dataset.spec.title.partition(" (")[0].partition(",")[0]
    satellite = [f"GOES-{fields['sat']}"] if "sat" in fields else []
    channel = [f"band {int(fields['channel'])}"] if fields.get("channel", "").isdecimal() else []
    what = [*satellite, *(fields[part] for part in TITLE_FIELDS if fields.get(part)), *channel]
    start = time_from(metadata.data["time_range"]["start"])
    when = f"{start:%Y-%m-%d %H:%M:%S} UTC" if start.second else f"{start:%Y-%m-%d %H:%M} UTC"
    if unit.notice.reference_time:
        reference = time_from(unit.notice.reference_time)
        lead = round((start - reference).total_seconds() / 60)
        ahead = f"{lead // 60:+d} h" if lead % 60 == 0 else f"{lead:+d} min"
        when = f"run of {reference:%Y-%m-%d %H:%M} UTC, {ahead}"
    return ", ".join((" ".join((name, *what)), when))


def _projection(found: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields of the projection extension for a grid; none if its projection is not known."""
    wkt = None if found is None else _wkt2(found["crs"])
    if found is None or wkt is None:
        return {}
    shape = {"proj:shape": found["shape"]} if len(found["shape"]) == 2 else {}
    # NOAA's grids are on spheres of their own, which have no code.
    return {"proj:code": None, "proj:wkt2": wkt, **shape, "proj:transform": found["transform"]}


@lru_cache(maxsize=256)
def _wkt2(crs: str) -> str | None:
    try:
        from pyproj import CRS  # noqa: PLC0415 - an extra
        from pyproj.exceptions import CRSError  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    try:
        return str(CRS.from_user_input(crs).to_wkt("WKT2_2019"))
    except CRSError:
        return None


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
