"""provenance-emit: where an item comes from, as W3C PROV-JSON and as OpenLineage events.

Invariants: every record's id follows from what it says, so that a replay adds no second edge; what was recorded is
never taken back: a later generation is derived from the earlier one. Ids are qualified names, never bare URIs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid5

import msgspec

from holdfast.core.digest import canonical, sha256
from holdfast.nodd.dataset import Dataset
from holdfast.nodd.notices import NAMESPACE
from holdfast.nodd.units import Operator, Unit, Verdict

PROV, OPENLINEAGE = "prov", "openlineage"
PRODUCER = "urn:holdfast:nodd"
PREFIXES = {"nodd": "urn:holdfast:nodd:", "unit": "urn:holdfast:unit:", "item": "urn:holdfast:item:"}
AGENT = "nodd:ingest"


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the run that makes an item."""

    ingest_run_id: str
    job_id: int
    attempt: int
    replay_reason: str | None
    software: Mapping[str, str]
    at: str


class ProvenanceRecord(msgspec.Struct, frozen=True):
    """One node or edge of PROV, or one event of OpenLineage, as JSON text."""

    record_id: str
    kind: str
    content: str


def records_of(
    unit: Unit, dataset: Dataset, verdicts: Mapping[Operator, Verdict], item: Mapping[str, Any], *, run: RunFacts
) -> list[ProvenanceRecord]:
    """Return everything that is to be recorded of one ingest."""
    statements = [*_nodes(unit, dataset, verdicts, item, run), *_edges(unit, item)]
    records = [_record(PROV, statement) for statement in statements]
    return [*records, _record(OPENLINEAGE, _event(unit, dataset, item, run))]


def _record(kind: str, content: dict[str, Any]) -> ProvenanceRecord:
    text = canonical(content)
    return ProvenanceRecord(f"{kind}:{sha256(text)}", kind, text)


def _nodes(
    unit: Unit, dataset: Dataset, verdicts: Mapping[Operator, Verdict], item: Mapping[str, Any], run: RunFacts
) -> list[dict[str, Any]]:
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


def _edges(unit: Unit, item: Mapping[str, Any]) -> list[dict[str, Any]]:
    activity, source, made = _activity(unit), _source(unit), _item(unit, item)
    edges = [
        _edge("used", {"prov:activity": activity, "prov:entity": source}),
        _edge("wasGeneratedBy", {"prov:entity": made, "prov:activity": activity}),
        _edge("wasDerivedFrom", {"prov:generatedEntity": made, "prov:usedEntity": source}),
        _edge("wasAssociatedWith", {
            "prov:activity": activity, "prov:agent": AGENT, "prov:plan": f"nodd:plan-{unit.dataset}",
        }),
    ]  # fmt: skip
    if unit.supersedes is not None:
        before = f"item:{item['id']}-{unit.generation - 1}"
        edges.append(
            _edge(
                "wasDerivedFrom",
                {"prov:generatedEntity": made, "prov:usedEntity": before, "prov:type": "prov:Revision"},
            )
        )
    return edges


def _statement(kind: str, name: str, told: dict[str, Any]) -> dict[str, Any]:
    return {kind: {name: {key: value for key, value in told.items() if value is not None}}}


def _edge(kind: str, ends: dict[str, str]) -> dict[str, Any]:
    # The id of an edge is its ends: the same edge twice is one edge.
    return {kind: {f"nodd:{kind}-{uuid5(NAMESPACE, canonical(ends))}": ends}}


def _source(unit: Unit) -> str:
    return f"unit:{unit.wal_id}-object"


def _activity(unit: Unit) -> str:
    return f"unit:{unit.wal_id}"


def _item(unit: Unit, item: Mapping[str, Any]) -> str:
    return f"item:{item['id']}-{unit.generation}"


def _event(unit: Unit, dataset: Dataset, item: Mapping[str, Any], run: RunFacts) -> dict[str, Any]:
    """Return the OpenLineage event of the ingest: one run a unit, however often it is attempted."""
    facets: dict[str, Any] = {}
    if run.replay_reason:
        facets["nodd_replay"] = {"_producer": PRODUCER, "_schemaURL": f"{PRODUCER}:replay", "reason": run.replay_reason}
    return {
        "eventType": "COMPLETE",
        "eventTime": run.at,
        "producer": PRODUCER,
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": str(uuid5(NAMESPACE, f"run|{unit.wal_id}")), "facets": facets},
        "job": {"namespace": "nodd", "name": f"nodd.ingest.{dataset.name}"},
        "inputs": [{"namespace": f"s3://{unit.notice.bucket}", "name": unit.notice.key}],
        "outputs": [{"namespace": "stac", "name": f"{item['collection']}/{item['id']}"}],
    }


def document(records: list[ProvenanceRecord]) -> dict[str, Any]:
    """Return the PROV-JSON document that records make together."""
    merged: dict[str, Any] = {"prefix": dict(PREFIXES)}
    for record in records:
        if record.kind == PROV:
            for kind, statements in msgspec.json.decode(record.content).items():
                merged.setdefault(kind, {}).update(statements)
    return merged
