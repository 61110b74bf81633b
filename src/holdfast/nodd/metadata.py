"""metadata-extract: time, area, product and platform of an object, from its headers and its key.

Invariants: if the header and the key differ, the verdict is suspect; if the area is not known, it is left out and the
verdict names that issue; the result depends only on the object and the unit.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.core.records import time_from, time_text
from holdfast.nodd import area
from holdfast.nodd.area import Point
from holdfast.nodd.dataset import Dataset
from holdfast.nodd.formats import Damaged
from holdfast.nodd.headers import CHECKS, COVERAGE, REGION_MISMATCH, Learned, read_header
from holdfast.nodd.objects import RANGE_MAX, ObjectError, ObjectReader
from holdfast.nodd.stations import circle, place_of
from holdfast.nodd.units import Operator, OperatorVerdict, Unit

MISSING = "missing_geolocation"
KEY_FIELDS = (
    "product", "region", "level", "scene", "channel", "member", "ensemble", "station", "element", "period", "component",
)  # fmt: skip
OVERLAP_MIN = 0.5  # of the smaller one of the area in the header and that of the region in the key


def extract(unit: Unit, dataset: Dataset, source: ObjectReader, integrity: OperatorVerdict) -> OperatorVerdict:
    """Return the verdict on the metadata of an object: its time, area, product and platform."""
    size, etag = int(integrity.data["actual_size_bytes"]), integrity.data.get("actual_etag")
    bucket, key = unit.notice.bucket, unit.notice.key

    def read(start: int, length: int) -> bytes:
        return source.read(bucket, key, start, min(length, RANGE_MAX), etag=etag)

    learned = Learned(unit)
    _from_key(unit, dataset, learned)
    try:
        read_header(unit, dataset, read, size, learned)
    except Damaged as damaged:
        learned.issues.append("incomplete_product_metadata")
        learned.properties["nodd:unreadable"] = damaged.issue
    except ObjectError as trouble:
        return OperatorVerdict(operator=Operator.METADATA, status="failed", issues=(trouble.issue,))
    return _verdict(unit, dataset, learned, _geometry(unit, dataset, learned))


def _verdict(unit: Unit, dataset: Dataset, learned: Learned, geometry: dict[str, Any] | None) -> OperatorVerdict:
    required = dataset.spec.policy.metadata_required
    failed = "bbox" in required and learned.bbox is None
    if learned.bbox is None:
        learned.issues.append(MISSING)
    if learned.end is not None and learned.end < learned.start:
        learned.issues.append("invalid_time_range")
        failed = True
    status = "failed" if failed else "suspect" if learned.issues else "ok"
    data = {
        "geometry": geometry,
        "bbox": [area.plain(bound) for bound in learned.bbox] if learned.bbox else None,
        "properties": dict(sorted(learned.properties.items())),
        "time_range": {"start": time_text(learned.start), "end": time_text(learned.end) if learned.end else None},
        "reference_time": unit.notice.reference_time,
    }
    if learned.projection:
        data["projection"] = learned.projection
    issues = tuple(dict.fromkeys(learned.issues))
    checks = tuple(check for check in CHECKS if check in learned.checks)
    return OperatorVerdict(operator=Operator.METADATA, status=status, issues=issues, checks_run=checks, data=data)


def _from_key(unit: Unit, dataset: Dataset, learned: Learned) -> None:
    fields = unit.notice.fields
    learned.properties["nodd:dataset"] = dataset.name
    for name in KEY_FIELDS:
        if name in fields:
            learned.properties[f"nodd:{name}"] = fields[name]
    if "sat" in fields:
        learned.properties["platform"] = f"goes-{fields['sat']}"
        learned.properties["instruments"] = ["glm" if "GLM" in unit.notice.key else "abi"]
    if unit.notice.reference_time:
        reference = time_from(unit.notice.reference_time)
        learned.properties["forecast:reference_datetime"] = time_text(reference)
        if learned.start >= reference:  # an analysis can be for earlier hours, and a horizon cannot be negative
            learned.properties["forecast:horizon"] = _duration(learned.start - reference)


# ---------------------------------------------------------------------------------------------------------------------
# Place


def _geometry(unit: Unit, dataset: Dataset, learned: Learned) -> dict[str, Any] | None:
    """Return the geometry of the item, and set its bbox: from the header, else from the key."""
    rule = dataset.spec.geometry
    named = unit.notice.fields.get(rule.field or "", "")
    if rule.kind == "station-circle":
        place = learned.place or place_of(named)
        return _within(circle(*place, rule.radius_km or 0), learned) if place is not None else None
    usual = rule.bboxes.get(named, rule.bbox)
    if learned.bbox is None:
        learned.bbox = usual
        if learned.covers_domain:
            learned.properties["nodd:area"] = "domain"
        elif usual is not None and dataset.spec.format != "opaque":
            # The place in the file cannot be read: the area is only that of its region or satellite.
            learned.issues.append(MISSING)
    elif rule.kind == "by-field" and named in rule.bboxes:
        agree = area.overlap(learned.bbox, rule.bboxes[named]) >= OVERLAP_MIN
        learned.compare(COVERAGE, REGION_MISMATCH, agree=agree)
    if learned.outline is not None:
        return area.polygon(learned.outline)
    return area.box(learned.bbox) if learned.bbox is not None else None


def _within(outline: list[Point], learned: Learned) -> dict[str, Any]:
    learned.bbox = area.rounded(area.bbox_of(outline))
    return area.polygon(outline)


def _duration(span: timedelta) -> str:
    """Return a duration in the format of ISO 8601."""
    hours, rest = divmod(int(span.total_seconds()), 3600)
    minutes, seconds = divmod(rest, 60)
    parts = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if n)
    return f"PT{parts or '0H'}"
