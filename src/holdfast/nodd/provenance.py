"""provenance-emit: the origin of an item as W3C PROV-JSON and as OpenLineage events.

Invariants: the id of a record is the digest of its content, so a replay adds no second edge; records are never removed:
a later generation is derived from the last one that was catalogued, and a replay is an activity of its own, informed by
the unit's activity; ids are qualified names, never bare URIs; provenance that does not identify the write of the object
is not recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid5

import msgspec

from holdfast.core.digest import canonical, sha256
from holdfast.core.records import time_from
from holdfast.nodd.dataset import Dataset
from holdfast.nodd.notices import NAMESPACE
from holdfast.nodd.replays import REDELIVERY, ReplayOf
from holdfast.nodd.units import Operator, OperatorVerdict, Unit

PROV, OPENLINEAGE = "prov", "openlineage"
PRODUCER = "urn:holdfast:nodd"
PREFIXES = {"nodd": "urn:holdfast:nodd:", "unit": "urn:holdfast:unit:", "item": "urn:holdfast:item:"}
AGENT = "nodd:ingest"

OK, PARTIAL, FAILED = "ok", "partial", "failed"
FAILED_CODE = "provenance_failed"
UNIDENTIFIED, INVALID, NOT_EMITTED = "prov_source_unidentified", "prov_invalid", "openlineage_emit_failed"
CHECKS = ("source", "prov", "openlineage")
NAME = re.compile(rf"(?:{'|'.join(PREFIXES)}):[A-Za-z0-9._-]+")
NODES = ("entity", "activity", "agent")

Statement = dict[str, Any]  # PROV: {kind: {name: attributes}}


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the run that makes an item."""

    job_id: int
    attempt: int
    replay: ReplayOf | None = None  # the replay that it is part of; None for a first run
    follows: int | None = None  # the earlier generation whose item is replaced
    software: Mapping[str, str]
    at: str


class ProvenanceRecord(msgspec.Struct, frozen=True):
    """One PROV node or edge, or one OpenLineage event, as JSON text."""

    record_id: str
    kind: str
    content: str


def emitted(
    unit: Unit,
    dataset: Dataset,
    verdicts: Mapping[Operator, OperatorVerdict],
    item: Mapping[str, Any],
    *,
    run: RunFacts,
) -> tuple[OperatorVerdict, list[ProvenanceRecord]]:
    """Return the verdict on the provenance of one ingest, and the records to write.

    The status is failed if the PROV records are not valid, and partial if only the OpenLineage event is not.
    """
    statements, event = described(unit, dataset, verdicts, item, run=run)
    found = {
        UNIDENTIFIED: []
        if _is_identified(unit, verdicts)
        else ["the object has no ETag, version or sequencer that identifies its write"],
        INVALID: list(_prov_problems(_merged(statements))),
        NOT_EMITTED: list(_event_problems(event)),
    }
    issues = tuple(issue for issue, problems in found.items() if problems)
    status = OK if not issues else PARTIAL if issues == (NOT_EMITTED,) else FAILED
    detail = {"problems": [problem for problems in found.values() for problem in problems]} if issues else {}
    verdict = OperatorVerdict(
        operator=Operator.PROVENANCE, status=status, issues=issues, checks_run=CHECKS, data=detail
    )
    made = {OK: (statements, event), PARTIAL: (statements, None)}.get(status)
    return verdict, records_of(*made) if made else []


def _is_identified(unit: Unit, verdicts: Mapping[Operator, OperatorVerdict]) -> bool:
    etag = verdicts[Operator.INTEGRITY].data.get("actual_etag") or unit.notice.content_etag
    return bool(etag or unit.notice.version_id or unit.notice.sequencer)


def _prov_problems(merged: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    named = {name for kind in NODES for name in merged.get(kind, {})}
    for kind, statements in merged.items():
        for name, ends in statements.items():
            if not NAME.fullmatch(name):
                yield f"{kind} {name!r} is not a qualified name"
            for role, end in ends.items() if kind not in NODES else ():
                # The item of an earlier generation is described in the records of its own unit.
                if role != "prov:type" and end not in named and not end.startswith("item:"):
                    yield f"{kind} refers to {end!r}, which is not described"
            if "prov:startTime" in ends and not _is_time(ends["prov:startTime"]):
                yield f"{kind} {name!r} has an invalid start time"


def _event_problems(event: Statement) -> Iterator[str]:
    if not _is_time(event["eventTime"]):
        yield "the event has no valid time"
    try:
        UUID(event["run"]["runId"])
    except ValueError:
        yield "the run has no valid id"
    for thing in (event["job"], *event["inputs"], *event["outputs"]):
        if not (thing["namespace"] and thing["name"]):
            yield "a job or a dataset has no name"


def _is_time(text: str) -> bool:
    try:
        return time_from(text).tzinfo is not None
    except ValueError:
        return False


def described(
    unit: Unit,
    dataset: Dataset,
    verdicts: Mapping[Operator, OperatorVerdict],
    item: Mapping[str, Any],
    *,
    run: RunFacts,
) -> tuple[list[Statement], Statement]:
    """Return the PROV statements of one ingest, and its OpenLineage event."""
    statements = [*_nodes(unit, dataset, verdicts, item, run), *_edges(unit, item, run), *_of_replay(unit, run)]
    return statements, _event(unit, dataset, item, run)


def records_of(statements: Sequence[Statement], event: Statement | None) -> list[ProvenanceRecord]:
    records = [_record(PROV, statement) for statement in statements]
    return [*records, _record(OPENLINEAGE, event)] if event is not None else records


def _record(kind: str, content: Statement) -> ProvenanceRecord:
    text = canonical(content)
    return ProvenanceRecord(f"{kind}:{sha256(text)}", kind, text)


def _nodes(
    unit: Unit, dataset: Dataset, verdicts: Mapping[Operator, OperatorVerdict], item: Mapping[str, Any], run: RunFacts
) -> list[Statement]:
    integrity = verdicts[Operator.INTEGRITY]
    source = {
        "prov:type": "nodd:Object",
        "prov:location": unit.source_uri,
        "nodd:etag": integrity.data.get("actual_etag"),
        "nodd:size": integrity.data.get("actual_size_bytes"),
        "nodd:generation": unit.generation,
    }
    versions = {f"nodd:{name}": version for name, version in run.software.items()}
    made = {"prov:type": "stac:Item", "nodd:collection": item["collection"], "nodd:id": item["id"]}
    activity = {"prov:type": "nodd:Ingest", "nodd:wal_id": unit.wal_id, "prov:startTime": run.at}
    return [
        _statement("entity", _source(unit), source),
        _statement("entity", _item(unit, item), made),
        _statement("activity", _activity(unit), activity),
        _statement("agent", AGENT, {"prov:type": "prov:SoftwareAgent", **versions}),
        _statement("entity", f"nodd:plan-{dataset.name}", {"prov:type": "prov:Plan", "nodd:dataset": dataset.name}),
    ]


def _edges(unit: Unit, item: Mapping[str, Any], run: RunFacts) -> list[Statement]:
    activity, source, made = _activity(unit), _source(unit), _item(unit, item)
    edges = [
        _edge("used", {"prov:activity": activity, "prov:entity": source}),
        _edge("wasGeneratedBy", {"prov:entity": made, "prov:activity": activity}),
        _edge("wasDerivedFrom", {"prov:generatedEntity": made, "prov:usedEntity": source}),
        _edge("wasAssociatedWith", {
            "prov:activity": activity, "prov:agent": AGENT, "prov:plan": f"nodd:plan-{unit.dataset}",
        }),
    ]  # fmt: skip
    if run.follows is not None:
        before = f"item:{item['id']}-{run.follows}"
        edges.append(
            _edge(
                "wasDerivedFrom",
                {"prov:generatedEntity": made, "prov:usedEntity": before, "prov:type": "prov:Revision"},
            )
        )
    return edges


def _of_replay(unit: Unit, run: RunFacts) -> list[Statement]:
    """Return the statements that a replay adds: its own activity, linked to the unit's activity."""
    if run.replay is None:
        return []
    activity = f"{_activity(unit)}-{_replay_name(run)}"
    attributes = {
        "prov:type": "nodd:Replay",
        "nodd:wal_id": unit.wal_id,
        "nodd:replay_mode": run.replay.mode,
        "nodd:replay_reason": run.replay.reason,
        "nodd:replay_run_id": run.replay.run_id,
        "nodd:original_run": run.replay.original_run,
    }
    return [
        _statement("activity", activity, attributes),
        _edge("wasInformedBy", {"prov:informed": activity, "prov:informant": _activity(unit)}),
        _edge("used", {"prov:activity": activity, "prov:entity": _source(unit)}),
    ]


def _replay_name(run: RunFacts) -> str:
    # A second notice, and a drain by an earlier version, have no run id, so the job and attempt identify them.
    if run.replay and run.replay.run_id:
        return run.replay.run_id
    kind = REDELIVERY if run.replay and run.replay.mode == REDELIVERY else "drain"
    return f"{kind}-{run.job_id}-{run.attempt}"


def _statement(kind: str, name: str, attributes: dict[str, Any]) -> Statement:
    return {kind: {name: {key: value for key, value in attributes.items() if value is not None}}}


def _edge(kind: str, ends: dict[str, str]) -> Statement:
    # The id of an edge is computed from its ends, so the same edge is stored once.
    return {kind: {f"nodd:{kind}-{uuid5(NAMESPACE, canonical(ends))}": ends}}


def _source(unit: Unit) -> str:
    return f"unit:{unit.wal_id}-object"


def _activity(unit: Unit) -> str:
    return f"unit:{unit.wal_id}"


def _item(unit: Unit, item: Mapping[str, Any]) -> str:
    return f"item:{item['id']}-{unit.generation}"


def _event(unit: Unit, dataset: Dataset, item: Mapping[str, Any], run: RunFacts) -> Statement:
    """Return the OpenLineage event of the ingest: one run per unit and one per replay, for any number of attempts."""
    facets: dict[str, Any] = {}
    first = run_id = str(uuid5(NAMESPACE, f"run|{unit.wal_id}"))
    if run.replay is not None:
        run_id = str(uuid5(NAMESPACE, f"run|{unit.wal_id}|{_replay_name(run)}"))
        facets["nodd_replay"] = {
            "_producer": PRODUCER,
            "_schemaURL": f"{PRODUCER}:replay",
            "reason": run.replay.reason,
            "mode": run.replay.mode,
            "replay_run_id": run.replay.run_id,
            "of": first,
        }
    return {
        "eventType": "COMPLETE",
        "eventTime": run.at,
        "producer": PRODUCER,
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": run_id, "facets": facets},
        "job": {"namespace": "nodd", "name": f"nodd.ingest.{dataset.name}"},
        "inputs": [{"namespace": f"s3://{unit.notice.bucket}", "name": unit.notice.key}],
        "outputs": [{"namespace": "stac", "name": f"{item['collection']}/{item['id']}"}],
    }


def document(records: list[ProvenanceRecord]) -> dict[str, Any]:
    """Return the PROV document of some records."""
    statements = [msgspec.json.decode(record.content) for record in records if record.kind == PROV]
    return {"prefix": dict(PREFIXES), **_merged(statements)}


def _merged(statements: Iterable[Statement]) -> dict[str, dict[str, Any]]:
    """Return statements by kind and name."""
    merged: dict[str, dict[str, Any]] = {}
    for statement in statements:
        for kind, named in statement.items():
            merged.setdefault(kind, {}).update(named)
    return merged
