"""Rules that compare the rows of the application's tables with each other and with the jobs.

Invariants: a rule checks the rows that it gets, and reads nothing itself; a finding names the unit, item, observation
or body, and never quotes a payload; `kind` in its evidence is a stable word. A row that cannot be read is a finding,
and does not stop other rules. If retention has deleted payload and result of a job, the remaining fields are checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.audit.check.findings import Finding
from holdfast.core.digest import Json, sha256
from holdfast.nodd import observations, provenance, stac
from holdfast.nodd.check.rows import (
    ItemCase,
    ObservationCase,
    ProvenanceRow,
    RejectedRow,
    UnitCase,
    UnitRow,
    decoded,
    key_of,
    statements_of,
)
from holdfast.nodd.dataset import Datasets
from holdfast.nodd.notices import wal_id as wal_id_of
from holdfast.nodd.observations import ObservationFile
from holdfast.nodd.units import CLIENT, OPERATION, OUTCOME, RUN

# Fields that a unit copies from the payload of its job, and from the notice in it.
_OF_PAYLOAD = (
    "wal_id", "dataset", "source_uri", "object_uri", "generation", "provider", "queue", "event_time",
    "time_range_start", "time_range_end",
)  # fmt: skip
_OF_NOTICE = {"etag": "content_etag", "size": "size", "sequencer": "sequencer", "version_id": "version_id"}
_PASSED = {
    "integrity_status": ("ok", "suspect"),
    "metadata_status": ("ok", "suspect"),
    "stac_status": ("created", "updated", "no-op"),
    "provenance_status": ("ok", "partial", "failed"),
}


def _of_unit(unit: UnitRow, kind: str, detail: str, **evidence: Json) -> Finding:
    facts: dict[str, Json] = {"kind": kind, "job_id": unit.job_id, "object_uri": unit.object_uri, **evidence}
    return Finding(f"UNIT {unit.wal_id}", detail, evidence=facts)


def _of_item(item_id: str, kind: str, detail: str, **evidence: Json) -> Finding:
    return Finding(f"ITEM {item_id}", detail, evidence={"kind": kind, **evidence})


# ---------------------------------------------------------------------------------------------------------------------
# Units


def has_job(case: UnitCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield a unit whose job does not exist, or is of another operation."""
    unit = case.unit
    if unit.operation is None:
        yield _of_unit(unit, "job", f"its job {unit.job_id} does not exist")
    elif not unit.is_ingest:
        yield _of_unit(
            unit, "operation", f"its job {unit.job_id} is of operation {unit.operation!r}, not {OPERATION!r}"
        )


def as_announced(case: UnitCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield differences between a unit and the payload of its job, and an id that is not computed from the unit."""
    unit = case.unit
    if unit.wal_id != wal_id_of(unit.dataset, unit.object_uri, unit.time_range_start):
        yield _of_unit(unit, "id", "its id is not the one computed from its dataset, object and start time")
    source_uri = unit.object_uri if unit.generation == 1 else unit.object_uri.rpartition("#etag=")[0]
    if source_uri != unit.source_uri:
        yield _of_unit(unit, "object", f"its object_uri is not of the object {unit.source_uri}")
    if not unit.is_ingest:
        return
    if unit.replaces is None and (unit.client, unit.key) != (CLIENT, unit.wal_id):
        yield _of_unit(unit, "key", f"its job {unit.job_id} was submitted under another key")
    if unit.payload is None:
        return  # retention has removed it
    payload = decoded(unit.payload)
    notice = payload.get("notice") if isinstance(payload, dict) else None
    if not isinstance(notice, dict):
        yield _of_unit(unit, "payload", f"the payload of its job {unit.job_id} cannot be read")
        return
    given = {name: payload.get(name) for name in _OF_PAYLOAD}
    given |= {name: notice.get(there) for name, there in _OF_NOTICE.items()}
    wrong: list[Json] = [name for name, value in given.items() if getattr(unit, name) != value]
    if wrong:
        names = ", ".join(map(str, wrong))
        yield _of_unit(unit, "differs", f"the payload of its job {unit.job_id} differs in: {names}", fields=wrong)


def carried_on(case: UnitCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield a unit that lacks the counts of the job that its job replaces, or has counts without one."""
    unit = case.unit
    if not unit.is_ingest:
        return
    before = (unit.created_before, unit.attempts_before, unit.version_before)
    if unit.replaces is None and before != (None, 0, 0):
        yield _of_unit(unit, "not_carried", f"has counts of an earlier job, but its job {unit.job_id} replaces none")
    elif unit.replaces is not None and (unit.created_before is None or unit.version_before < 1):
        detail = f"its job {unit.job_id} replaces job {unit.replaces}, whose counts are missing"
        yield _of_unit(unit, "forgotten", detail, replaces=unit.replaces)


def outcome_kept(case: UnitCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield a unit whose outcome is missing, too early, or differs from its job's result or its item."""
    unit, item = case.unit, case.item
    recorded: dict[str, str | None] = {name: getattr(unit, name) for name in (*OUTCOME, RUN)}
    if not unit.is_ingest:
        return
    if not unit.has_succeeded:
        early: list[Json] = [name for name, value in recorded.items() if value is not None]
        if early:
            detail = f"stores an outcome, but its job {unit.job_id} has not committed"
            yield _of_unit(unit, "early", detail, fields=early)
        return
    missing: list[Json] = [name for name in OUTCOME if recorded[name] is None]
    if missing:
        names = ", ".join(map(str, missing))
        yield _of_unit(unit, "outcome", f"succeeded without: {names}", fields=missing)
    result = decoded(unit.result)
    if isinstance(result, dict):
        wrong: list[Json] = [
            name for name, value in recorded.items() if value is not None and value != result.get(name)
        ]
        if wrong:
            names = ", ".join(map(str, wrong))
            yield _of_unit(unit, "differs", f"the result of its job {unit.job_id} differs in: {names}", fields=wrong)
    elif unit.result is not None:
        yield _of_unit(unit, "result", f"the result of its job {unit.job_id} cannot be read")
    if item is None or item.wal_id != unit.wal_id:
        return
    stored = {"stac_collection_id": item.collection_id, "stac_item_href": item.href}
    moved: list[Json] = [name for name, value in stored.items() if recorded[name] not in (None, value)]
    if moved:
        names = ", ".join(map(str, moved))
        yield _of_unit(unit, "moved", f"its item differs in: {names}", fields=moved, item_id=item.item_id)


def is_catalogued(case: UnitCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield a unit that succeeded without passing an operator, or without an item of its generation or a later one."""
    unit, item, expected = case.unit, case.item, case.unit.item_id
    if not unit.has_succeeded:
        return
    for name, allowed in _PASSED.items():
        status = getattr(unit, name)
        if status is not None and status not in allowed:
            yield _of_unit(unit, "status", f"succeeded, but its {name} is {status!r}", field=name)
    if unit.stac_item_id not in (None, expected):
        yield _of_unit(unit, "named", f"names item {unit.stac_item_id}, but its item is {expected}", item_id=expected)
    if item is None:
        yield _of_unit(unit, "item", f"succeeded, but its item {expected} does not exist", item_id=expected)
    elif item.source_uri == unit.source_uri and item.generation < unit.generation:
        detail = f"succeeded, but its item is still of generation {item.generation}"
        yield _of_unit(unit, "older", detail, item_id=expected, generation=item.generation)


def has_provenance(case: UnitCase, datasets: Datasets) -> Iterator[Finding]:
    """Yield a unit that succeeded without its provenance, unless its dataset allows that."""
    unit = case.unit
    if not unit.has_succeeded:
        return
    status = unit.provenance_status
    known = unit.dataset in datasets
    waived = known and datasets[unit.dataset].spec.policy.provenance_may_fail
    if status == provenance.FAILED:
        if known and not waived:
            detail = f"succeeded although its provenance failed, which dataset {unit.dataset} does not allow"
            yield _of_unit(unit, "not_allowed", detail)
        return
    if not case.provenance and status is None and (waived or not known):
        return  # it is unknown whether provenance was required
    wanted = {*_EDGES, "entity", "activity", *({provenance.OPENLINEAGE} if status == provenance.OK else ())}
    missing: list[Json] = sorted(wanted - _kinds(unit.wal_id, case.provenance))
    if missing:
        names = ", ".join(map(str, missing))
        yield _of_unit(unit, "missing", f"succeeded, but its provenance lacks: {names}", missing=missing)


_EDGES = {
    "used": "prov:activity",
    "wasGeneratedBy": "prov:activity",
    "wasAssociatedWith": "prov:activity",
    "wasDerivedFrom": "prov:usedEntity",
}


def _kinds(wal_id: str, records: Sequence[ProvenanceRow]) -> set[str]:
    """Return the kinds of provenance statements about a unit itself."""
    activity, source = f"unit:{wal_id}", f"unit:{wal_id}-object"
    found: set[str] = set()
    for record in records:
        if record.kind == provenance.OPENLINEAGE:
            found.add(record.kind)
            continue
        for kind, statements in statements_of(record):
            role = _EDGES.get(kind)
            ends = set(statements) if role is None else {ends.get(role) for ends in statements.values()}
            if ends & {activity, source}:
                found.add(kind)
    return found


def provenance_unchanged(case: UnitCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield provenance records whose id is not the digest of their content."""
    for record in case.provenance:
        if record.record_id != f"{record.kind}:{sha256(record.content)}":
            evidence: dict[str, Json] = {"kind": "digest", "wal_id": case.unit.wal_id}
            yield Finding(
                f"PROVENANCE {record.record_id}", "its content has changed: another digest", evidence=evidence
            )


# ---------------------------------------------------------------------------------------------------------------------
# Items


def item_whole(case: ItemCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield an item whose text has changed since it was catalogued, or differs from its row or its unit."""
    item, document = case.item, case.document
    if document is None:
        yield _of_item(item.item_id, "unreadable", "its text cannot be read", wal_id=item.wal_id)
        return
    if stac.content_digest(document) != item.content:
        yield _of_item(item.item_id, "digest", "its text has changed: another digest", wal_id=item.wal_id)
    properties = document["properties"]
    wanted: dict[str, tuple[object, object]] = {
        "id": (document["id"], item.item_id),
        "collection": (document["collection"], item.collection_id),
        "created": (properties["created"], item.created),
        "updated": (properties["updated"], item.updated),
        "href": (stac.href_of(document), item.href),
    }
    if item.source_uri is not None and item.time_range_start is not None and item.unit_dataset is not None:
        own = stac.item_id_of(item.unit_dataset, key_of(item.source_uri), item.time_range_start)
        wanted |= {
            "item_id": (item.item_id, own),
            "dataset": (item.dataset, item.unit_dataset),
            "generation": (item.generation, item.unit_generation),
        }
    wrong: list[Json] = [name for name, (one, other) in wanted.items() if one != other]
    if wrong:
        names = ", ".join(map(str, wrong))
        detail = f"its row, its text and its unit differ in: {names}"
        yield _of_item(item.item_id, "differs", detail, wal_id=item.wal_id, fields=wrong)


def item_fits(case: ItemCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield an item whose size or ETag differs from that of its unit or its provenance."""
    item, document = case.item, case.document
    if document is None or item.source_uri is None:
        return
    size = document["assets"]["data"]["file:size"]
    issues = document["properties"].get("nodd:issues", ())
    if item.size is not None and size != item.size and "size_mismatch" not in issues:
        detail = f"has {size} bytes, but {item.size} were announced"
        yield _of_item(item.item_id, "size", detail, wal_id=item.wal_id, size=size, announced=item.size)
    if case.sources and size not in [source.get("nodd:size") for source in case.sources]:
        detail = f"has {size} bytes, but its provenance has another size"
        yield _of_item(item.item_id, "provenance_size", detail, wal_id=item.wal_id, size=size)
    etags = {source["nodd:etag"] for source in case.sources if source.get("nodd:etag") is not None}
    if item.etag is not None and etags and item.etag not in etags:
        detail = "its provenance has another ETag than the notice"
        yield _of_item(item.item_id, "etag", detail, wal_id=item.wal_id, announced=item.etag)


def item_listed(case: ItemCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield an item that its observation does not list."""
    if case.observation is not None and not case.listed:
        detail = f"is not listed in its observation {case.observation}"
        yield _of_item(case.item.item_id, "unlisted", detail, wal_id=case.item.wal_id, observation=case.observation)


# ---------------------------------------------------------------------------------------------------------------------
# Observations, and what was rejected


def observation_agrees(case: ObservationCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield an observation whose list of files is damaged, or differs from its items and units."""
    subject = f"OBSERVATION {case.name}"
    if case.files is None:
        yield Finding(subject, "its list of files cannot be read", evidence={"kind": "unreadable"})
        return
    if list(case.files) != sorted({one.item_id: one for one in case.files}.values()):
        yield Finding(
            subject, "its files are not in the order they were made, or one is listed twice", evidence={"kind": "order"}
        )
    if case.version < len(case.files) or not case.files:
        detail = f"lists {len(case.files)} files, but was written {case.version} times"
        yield Finding(subject, detail, evidence={"kind": "version", "version": case.version})
    for file in case.files:
        yield from _file_agrees(case, file)
    for earlier, later in zip(case.files, case.files[1:], strict=False):
        unit = case.units.get(later.wal_id)
        # A later generation supersedes the one before it.
        if unit is not None and unit.generation == 1 and unit.supersedes != earlier.wal_id:
            detail = f"supersedes {unit.supersedes or 'none'}, but the file before it is of unit {earlier.wal_id}"
            facts: dict[str, Json] = {"kind": "supersedes", "observation": case.name, "expected": earlier.wal_id}
            yield Finding(f"UNIT {later.wal_id}", detail, evidence=facts)


def _file_agrees(case: ObservationCase, file: ObservationFile) -> Iterator[Finding]:
    subject, unit = f"OBSERVATION {case.name}", case.units.get(file.wal_id)
    facts: dict[str, Json] = {"item_id": file.item_id, "wal_id": file.wal_id}
    if unit is None or file.item_id != stac.item_id_of(unit.dataset, key_of(unit.source_uri), unit.time_range_start):
        detail = f"lists item {file.item_id} for unit {file.wal_id}, which makes another item or does not exist"
        yield Finding(subject, detail, evidence={"kind": "unit", **facts})
    if file.item_id not in case.items:
        detail = f"lists item {file.item_id}, which does not exist"
        yield Finding(subject, detail, evidence={"kind": "item", **facts})
        return
    href, document = case.items[file.item_id]
    if href != file.href:
        detail = f"lists item {file.item_id} at {file.href}, but it is at {href}"
        yield Finding(subject, detail, evidence={"kind": "href", **facts})
    elif document is not None and observations.with_marks(dict(document), file, case.files or ()) != document:
        detail = f"does not have the links of its position in observation {case.name}"
        yield _of_item(file.item_id, "marks", detail, wal_id=file.wal_id, observation=case.name)


def body_whole(body: RejectedRow, _datasets: Datasets) -> Iterator[Finding]:
    """Yield a rejected body that has changed, or whose counts and times are not consistent."""
    subject = f"REJECTED {body.sha256}"
    if sha256(body.body) != body.sha256:
        yield Finding(subject, "its body has changed: another digest", evidence={"kind": "digest"})
    if body.times < 1 or body.first_at > body.last_at:
        detail = f"came {body.times} times, first at {body.first_at} and last at {body.last_at}"
        yield Finding(subject, detail, evidence={"kind": "times", "times": body.times})
    if (body.replayed_at is None) != (body.fate is None):
        yield Finding(
            subject, "has a time of replay without a fate, or a fate without a time", evidence={"kind": "fate"}
        )
