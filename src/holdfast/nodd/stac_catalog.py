"""The STAC objects around the items: the root, the collections with their extents, and the days of a collection.

Invariants: the same items give the same objects in any order; every link is relative, so a catalogue can be moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import msgspec

from holdfast.nodd.dataset import Dataset
from holdfast.nodd.stac import ROOT, STAC_VERSION, asset_kinds

CATALOG_ID = "nodd"
JSON, GEOJSON = "application/json", "application/geo+json"
_GLOBE = (-180.0, -90.0, 180.0, 90.0)


class Extent(msgspec.Struct, frozen=True):
    """What items cover: a box if their place is known, the first and last time, and the days."""

    bbox: tuple[float, ...] | None
    start: str
    end: str
    days: frozenset[str]

    @classmethod
    def of(cls, item: Mapping[str, Any], day: str) -> Extent:
        """Return the extent of an item in the directory of its day."""
        properties = item["properties"]
        start = properties.get("start_datetime") or properties["datetime"]
        end = properties.get("end_datetime") or properties["datetime"]
        return cls(_flat(item.get("bbox")), start, end, frozenset({day.removeprefix(f"{ROOT}/").partition("/")[2]}))

    @classmethod
    def of_collection(cls, collection: Mapping[str, Any]) -> Extent:
        """Return the extent of a collection that was published."""
        [[start, end]] = collection["extent"]["temporal"]["interval"]
        days = (link["href"] for link in collection["links"] if link["rel"] == "child")
        known = collection["extent"]["spatial"]["bbox"][0] if collection["nodd:located"] else None
        return cls(_flat(known), start, end, frozenset(day[2 : -len("/catalog.json")] for day in days))

    def joined(self, other: Extent) -> Extent:
        boxes = [box for box in (self.bbox, other.bbox) if box is not None]
        return Extent(
            tuple(pick(sides) for pick, sides in zip((min, min, max, max), zip(*boxes, strict=True), strict=True))
            if boxes
            else None,
            min(self.start, other.start),
            max(self.end, other.end),
            self.days | other.days,
        )


def _flat(bbox: Any) -> tuple[float, ...] | None:
    """Return a box as west, south, east, north; all longitudes if it crosses the antimeridian."""
    if not bbox:
        return None
    west, south, east, north = bbox if len(bbox) == 4 else (bbox[0], bbox[1], bbox[3], bbox[4])
    return (-180.0, south, 180.0, north) if west > east else (west, south, east, north)


def root_catalog(children: Sequence[dict[str, str]]) -> dict[str, Any]:
    own = {"rel": "root", "href": "./catalog.json", "type": JSON, "title": "NOAA open data"}
    return {
        "type": "Catalog",
        "stac_version": STAC_VERSION,
        "id": CATALOG_ID,
        "title": "NOAA open data",
        "description": "Objects of NOAA's open data, catalogued by Holdfast.",
        "links": [own, *sorted(children, key=lambda link: link["href"])],
    }


def collection_of(dataset: Dataset, extent: Extent) -> dict[str, Any]:
    spec = dataset.spec
    root = {"href": "../catalog.json", "type": JSON, "title": "NOAA open data"}
    return {
        "type": "Collection",
        "stac_version": STAC_VERSION,
        "stac_extensions": [],
        "id": spec.collection.id,
        "title": spec.title,
        "description": spec.collection.description,
        "license": spec.collection.license,
        "keywords": list(spec.collection.keywords),
        "providers": [{"name": "NOAA", "roles": ["producer", "licensor"], "url": "https://www.noaa.gov/"}],
        "extent": {
            "spatial": {"bbox": [list(extent.bbox or _GLOBE)]},
            "temporal": {"interval": [[extent.start, extent.end]]},
        },
        "nodd:located": extent.bbox is not None,
        "item_assets": asset_kinds(dataset),
        "links": [
            {"rel": "root", **root},
            {"rel": "parent", **root},
            {
                "rel": "license",
                "href": "https://www.noaa.gov/information-technology/open-data-dissemination",
                "title": "NOAA Open Data Dissemination",
            },
            *(child_link(f"./{day}/catalog.json", str(_date(day))) for day in sorted(extent.days)),
        ],
    }


def day_catalog(title: str, day: str) -> dict[str, Any]:
    """Return the catalogue of a day without items; `day` is its directory, and `title` that of its collection."""
    _, name, year_and_day = day.removeprefix(ROOT).split("/", 2)
    number = f"{_date(year_and_day)}"
    return {
        "type": "Catalog",
        "stac_version": STAC_VERSION,
        "id": f"{CATALOG_ID}-{name}-{number}",
        "title": number,
        "description": f"{title}: data of {number} (UTC).",
        "links": [
            {"rel": "root", "href": "../../../catalog.json", "type": JSON, "title": "NOAA open data"},
            {"rel": "parent", "href": "../../collection.json", "type": JSON, "title": title},
        ],
    }


def child_link(href: str, title: str) -> dict[str, str]:
    return {"rel": "child", "href": href, "type": JSON, "title": title}


def item_link(item: Mapping[str, Any]) -> dict[str, str]:
    return {"rel": "item", "href": f"./{item['id']}.json", "type": GEOJSON, "title": item["properties"]["title"]}


def _date(day: str) -> date:
    """Return the date of a year and a day of the year, such as 2026/207."""
    year, _, number = day.partition("/")
    return date(int(year), 1, 1) + timedelta(days=int(number) - 1)
