"""What the application promises of its tables: rules that hold them against each other and against the jobs.

Invariants: a rule judges what it is given, and reads nothing itself; it says which unit, item, observation or body, in
words that hold no payload; `kind` in its evidence is a stable word. What cannot be read is a fault, and keeps no other
from being found. A job whose payload and result were slimmed away is judged by what is left.
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

# What a unit keeps of the payload of its job, and of the notice in it.
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
    told: dict[str, Json] = {"kind": kind, "job_id": unit.job_id, "object_uri": unit.object_uri, **evidence}
    return Finding(f"UNIT {unit.wal_id}", detail, evidence=told)


def _of_item(item_id: str, kind: str, detail: str, **evidence: Json) -> Finding:
    return Finding(f"ITEM {item_id}", detail, evidence={"kind": kind, **evidence})


# ---------------------------------------------------------------------------------------------------------------------
# Units


def has_job(case: UnitCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield that a unit has no job, or one of another kind."""
    unit = case.unit
    if unit.operation is None:
        yield _of_unit(unit, "job", f"there is no job {unit.job_id}")
    elif not unit.is_ingest:
        yield _of_unit(unit, "operation", f"its job {unit.job_id} is no {OPERATION}: it is {unit.operation!r}")


def as_announced(case: UnitCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield what a unit says otherwise than its job was given, and an id that does not follow from what it says."""
    unit = case.unit
    if unit.wal_id != wal_id_of(unit.dataset, unit.object_uri, unit.time_range_start):
        yield _of_unit(unit, "id", "its id does not follow from its dataset, its object and the start of its time")
    told_of = unit.object_uri if unit.generation == 1 else unit.object_uri.rpartition("#etag=")[0]
    if told_of != unit.source_uri:
        yield _of_unit(unit, "object", f"it is of another object than {unit.source_uri}")
    if not unit.is_ingest:
        return
    if unit.replaces is None and (unit.client, unit.key) != (CLIENT, unit.wal_id):
        yield _of_unit(unit, "key", f"its job {unit.job_id} was submitted under another key")
    if unit.payload is None:
        return  # slimmed
    payload = decoded(unit.payload)
    notice = payload.get("notice") if isinstance(payload, dict) else None
    if not isinstance(notice, dict):
        yield _of_unit(unit, "payload", f"what its job {unit.job_id} was given cannot be read")
        return
    given = {name: payload.get(name) for name in _OF_PAYLOAD}
    given |= {name: notice.get(there) for name, there in _OF_NOTICE.items()}
    wrong: list[Json] = [name for name, value in given.items() if getattr(unit, name) != value]
    if wrong:
        words = ", ".join(map(str, wrong))
        yield _of_unit(unit, "differs", f"its job {unit.job_id} was given another {words}", fields=wrong)


def carried_on(case: UnitCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield a record that another job carries on and that does not say so, or says so and is not."""
    unit = case.unit
    if not unit.is_ingest:
        return
    before = (unit.created_before, unit.attempts_before, unit.version_before)
    if unit.replaces is None and before != (None, 0, 0):
        yield _of_unit(unit, "not_carried", f"it counts what was before job {unit.job_id}, which replaces none")
    elif unit.replaces is not None and (unit.created_before is None or unit.version_before < 1):
        detail = f"job {unit.job_id} replaces job {unit.replaces}, and nothing is kept of what was before"
        yield _of_unit(unit, "forgotten", detail, replaces=unit.replaces)


def outcome_kept(case: UnitCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield a unit that does not say what came of it, or otherwise than its job's result and its item do."""
    unit, item = case.unit, case.item
    said: dict[str, str | None] = {name: getattr(unit, name) for name in (*OUTCOME, RUN)}
    if not unit.is_ingest:
        return
    if not unit.has_succeeded:
        early: list[Json] = [name for name, value in said.items() if value is not None]
        if early:
            detail = f"it says what came of it, and its job {unit.job_id} has not committed"
            yield _of_unit(unit, "early", detail, fields=early)
        return
    missing: list[Json] = [name for name in OUTCOME if said[name] is None]
    if missing:
        words = ", ".join(map(str, missing))
        yield _of_unit(unit, "outcome", f"it succeeded, and does not say its {words}", fields=missing)
    result = decoded(unit.result)
    if isinstance(result, dict):
        wrong: list[Json] = [name for name, value in said.items() if value is not None and value != result.get(name)]
        if wrong:
            words = ", ".join(map(str, wrong))
            yield _of_unit(unit, "differs", f"the result of its job {unit.job_id} is another {words}", fields=wrong)
    elif unit.result is not None:
        yield _of_unit(unit, "result", f"the result of its job {unit.job_id} cannot be read")
    if item is None or item.wal_id != unit.wal_id:
        return
    stands = {"stac_collection_id": item.collection_id, "stac_item_href": item.href}
    moved: list[Json] = [name for name, value in stands.items() if said[name] not in (None, value)]
    if moved:
        words = ", ".join(map(str, moved))
        yield _of_unit(unit, "moved", f"its item has another {words}", fields=moved, item_id=item.item_id)


def is_catalogued(case: UnitCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield a unit that succeeded, and that an operator has not let through or that has no item."""
    unit, item, expected = case.unit, case.item, case.unit.item_id
    if not unit.has_succeeded:
        return
    for name, allowed in _PASSED.items():
        status = getattr(unit, name)
        if status is not None and status not in allowed:
            yield _of_unit(unit, "status", f"it succeeded, and its {name} is {status!r}", field=name)
    if unit.stac_item_id not in (None, expected):
        yield _of_unit(unit, "named", "it names another item than its own", item_id=expected)
    if item is None:
        yield _of_unit(unit, "item", f"it succeeded, and its item {expected} is not there", item_id=expected)
    elif item.source_uri == unit.source_uri and item.generation < unit.generation:
        detail = f"it succeeded, and its item is of generation {item.generation} still"
        yield _of_unit(unit, "older", detail, item_id=expected, generation=item.generation)


def has_provenance(case: UnitCase, datasets: Datasets) -> Iterator[Finding]:
    """Yield a unit that succeeded and whose provenance is not there, unless its dataset may do without."""
    unit = case.unit
    if not unit.has_succeeded:
        return
    status = unit.provenance_status
    known = unit.dataset in datasets
    waived = known and datasets[unit.dataset].spec.policy.provenance_may_fail
    if status == provenance.FAILED:
        if known and not waived:
            detail = f"it succeeded though its provenance failed, which {unit.dataset} does not allow"
            yield _of_unit(unit, "not_allowed", detail)
        return
    if not case.provenance and status is None and (waived or not known):
        return  # nothing says whether it was owed
    wanted = {*_EDGES, "entity", "activity", *({provenance.OPENLINEAGE} if status == provenance.OK else ())}
    missing: list[Json] = sorted(wanted - _kinds(unit.wal_id, case.provenance))
    if missing:
        words = ", ".join(map(str, missing))
        yield _of_unit(
            unit, "missing", f"it succeeded, and of its provenance this is missing: {words}", missing=missing
        )


_EDGES = {
    "used": "prov:activity",
    "wasGeneratedBy": "prov:activity",
    "wasAssociatedWith": "prov:activity",
    "wasDerivedFrom": "prov:usedEntity",
}


def _kinds(wal_id: str, told: Sequence[ProvenanceRow]) -> set[str]:
    """Return which kinds of statement provenance has about a unit itself."""
    activity, source = f"unit:{wal_id}", f"unit:{wal_id}-object"
    found: set[str] = set()
    for record in told:
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
    """Yield records of provenance whose id does not follow from what they say."""
    for record in case.provenance:
        if record.record_id != f"{record.kind}:{sha256(record.content)}":
            told: dict[str, Json] = {"kind": "digest", "wal_id": case.unit.wal_id}
            yield Finding(f"PROVENANCE {record.record_id}", "it is not what was recorded under this id", evidence=told)


# ---------------------------------------------------------------------------------------------------------------------
# Items


def item_whole(case: ItemCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield an item that does not say what it was catalogued with, or that its row tells otherwise."""
    item, said = case.item, case.said
    if said is None:
        yield _of_item(item.item_id, "unreadable", "what it says cannot be read", wal_id=item.wal_id)
        return
    if stac.content_digest(said) != item.content:
        yield _of_item(
            item.item_id, "digest", "it is not what was catalogued: its digest is another", wal_id=item.wal_id
        )
    properties = said["properties"]
    wanted: dict[str, tuple[object, object]] = {
        "id": (said["id"], item.item_id),
        "collection": (said["collection"], item.collection_id),
        "created": (properties["created"], item.created),
        "updated": (properties["updated"], item.updated),
        "href": (stac.href_of(said), item.href),
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
        words = ", ".join(map(str, wrong))
        detail = f"its row, its text and its unit do not agree on: {words}"
        yield _of_item(item.item_id, "differs", detail, wal_id=item.wal_id, fields=wrong)


def item_fits(case: ItemCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield an item whose size, or whose object's ETag, is not that of its unit and of its provenance."""
    item, said = case.item, case.said
    if said is None or item.source_uri is None:
        return
    size = said["assets"]["data"]["file:size"]
    issues = said["properties"].get("nodd:issues", ())
    if item.size is not None and size != item.size and "size_mismatch" not in issues:
        detail = f"it tells of {size} bytes, and {item.size} were announced"
        yield _of_item(item.item_id, "size", detail, wal_id=item.wal_id, size=size, announced=item.size)
    if case.sources and size not in [source.get("nodd:size") for source in case.sources]:
        detail = f"it tells of {size} bytes, and its provenance of others"
        yield _of_item(item.item_id, "provenance_size", detail, wal_id=item.wal_id, size=size)
    etags = {source["nodd:etag"] for source in case.sources if source.get("nodd:etag") is not None}
    if item.etag is not None and etags and item.etag not in etags:
        detail = "its provenance is of another write than was announced: the ETag differs"
        yield _of_item(item.item_id, "etag", detail, wal_id=item.wal_id, announced=item.etag)


def item_listed(case: ItemCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield an item that its observation does not list."""
    if case.observation is not None and not case.listed:
        detail = f"it is not listed in its observation {case.observation}"
        yield _of_item(case.item.item_id, "unlisted", detail, wal_id=case.item.wal_id, observation=case.observation)


# ---------------------------------------------------------------------------------------------------------------------
# Observations, and what was rejected


def observation_agrees(case: ObservationCase, _datasets: Datasets) -> Iterator[Finding]:
    """Yield an observation that lists what is not there, or whose items and units say otherwise."""
    subject = f"OBSERVATION {case.name}"
    if case.files is None:
        yield Finding(subject, "its files cannot be read", evidence={"kind": "unreadable"})
        return
    if list(case.files) != sorted({one.item_id: one for one in case.files}.values()):
        yield Finding(subject, "its files are not in the order of their making, each once", evidence={"kind": "order"})
    if case.version < len(case.files) or not case.files:
        detail = f"it lists {len(case.files)} files, and was written {case.version} times"
        yield Finding(subject, detail, evidence={"kind": "version", "version": case.version})
    for file in case.files:
        yield from _file_agrees(case, file)
    for earlier, later in zip(case.files, case.files[1:], strict=False):
        unit = case.units.get(later.wal_id)
        # A later generation supersedes the one before it.
        if unit is not None and unit.generation == 1 and unit.supersedes != earlier.wal_id:
            detail = f"it supersedes {unit.supersedes or 'nothing'}, and the file before it is of {earlier.wal_id}"
            told: dict[str, Json] = {"kind": "supersedes", "observation": case.name, "expected": earlier.wal_id}
            yield Finding(f"UNIT {later.wal_id}", detail, evidence=told)


def _file_agrees(case: ObservationCase, file: ObservationFile) -> Iterator[Finding]:
    subject, unit = f"OBSERVATION {case.name}", case.units.get(file.wal_id)
    told: dict[str, Json] = {"item_id": file.item_id, "wal_id": file.wal_id}
    if unit is None or file.item_id != stac.item_id_of(unit.dataset, key_of(unit.source_uri), unit.time_range_start):
        detail = f"it lists item {file.item_id} as of unit {file.wal_id}, which makes no such item"
        yield Finding(subject, detail, evidence={"kind": "unit", **told})
    if file.item_id not in case.items:
        detail = f"it lists item {file.item_id}, which is not there"
        yield Finding(subject, detail, evidence={"kind": "item", **told})
        return
    href, said = case.items[file.item_id]
    if href != file.href:
        detail = f"it lists item {file.item_id} at another place than it has"
        yield Finding(subject, detail, evidence={"kind": "href", **told})
    elif said is not None and observations.with_marks(dict(said), file, case.files or ()) != said:
        detail = "it is not marked as its place among the files of its observation asks for"
        yield _of_item(file.item_id, "marks", detail, wal_id=file.wal_id, observation=case.name)


def body_whole(body: RejectedRow, _datasets: Datasets) -> Iterator[Finding]:
    """Yield a body that is not what was rejected, or whose row cannot be true."""
    subject = f"REJECTED {body.sha256}"
    if sha256(body.body) != body.sha256:
        yield Finding(subject, "it is not what was rejected: its digest is another", evidence={"kind": "digest"})
    if body.times < 1 or body.first_at > body.last_at:
        detail = f"it came {body.times} times, first at {body.first_at} and last at {body.last_at}"
        yield Finding(subject, detail, evidence={"kind": "times", "times": body.times})
    if (body.replayed_at is None) != (body.fate is None):
        yield Finding(subject, "it was read again, and nothing says what became of it", evidence={"kind": "fate"})
