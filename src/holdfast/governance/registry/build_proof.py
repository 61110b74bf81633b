"""What a build must prove: the stored collection and values equal the manifest, and evidence of it is stored.

Invariants: a measure only reads; digests are recomputed from the stored rows, never taken from the outcome of a step;
each kind of evidence is written once per run, and read back before the run continues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.digest import Json, canonical, cser_digest, sha256
from holdfast.core.errors import RegistryError
from holdfast.core.governed import RegistryValue
from holdfast.core.machines import StepState, ValueState
from holdfast.core.manifest import Manifest, read_manifest, several_active
from holdfast.core.rollback import successor_faults
from holdfast.core.vocabulary import RegistryCode, RegistryStatus, ValueName, refusal, stored_value
from holdfast.governance.registry.preflight import all_values
from holdfast.governance.runs.status import records_of
from holdfast.governance.runs.steps import StepContext, StepFailed

if TYPE_CHECKING:
    from holdfast.store.transaction import Reading

EVIDENCE = (
    "before_snapshot",
    "input_hashes",
    "planned_diff",
    "command_log",
    "test_log",
    "rollback_log",
    "after_snapshot",
    "readback",
    "digest_proof",
    "failure_artifact",
)
"""The kinds of evidence that a build stores for its reviewers: one row of each."""


def manifest_of(at: StepContext) -> Manifest:
    """Return the manifest that a run builds."""
    return read_manifest(dict(at.params))


def target(collection: str) -> str:
    """Return the target of the grant for a build, which is also the name of its lease."""
    return f"registry:{collection}"


# ---------------------------------------------------------------------------------------------------------------------
# S3: the collection


def measure_schema(at: StepContext) -> Json:
    """Return the digest of the stored schema, and the digest that the collection records."""
    collection = manifest_of(at).collection
    known = at.transaction.registry.collection(collection)
    if known is None:
        raise refusal(RegistryCode.VOCABULARY_ABSENT, f"The collection {collection} does not exist.")
    return {"schema_digest": schema_digest(known.schema), "noted": known.schema_digest}


def verify_schema(at: StepContext) -> None:
    """Raise RegistryError unless both are the digest of the manifest's schema."""
    manifest, found = manifest_of(at), measure_schema(at)
    if set(found.values()) != {manifest.schema_digest}:
        message = (
            f"The schema of {manifest.collection} has digest {found['schema_digest']}, not {manifest.schema_digest}."
        )
        raise refusal(RegistryCode.WRONG_CARRIER, message)


def schema_digest(text: str) -> str:
    """Return the digest of a stored schema; for text that is not JSON, a digest that no schema has."""
    try:
        return cser_digest(msgspec.json.decode(text, type=dict[str, Json]))
    except msgspec.MsgspecError:
        return sha256(text)


# ---------------------------------------------------------------------------------------------------------------------
# S5: the values


def measure_values(at: StepContext) -> Json:
    """Return the digest of the manifest made from the stored values, and their number."""
    rows = manifest_rows(at.transaction, manifest_of(at))
    return {"manifest_digest": stored_digest(manifest_of(at), rows), "count": len(rows)}


def verify_values(at: StepContext) -> None:
    """Raise RegistryError unless digest and count equal the manifest's and the collection passes all guards."""
    manifest, found = manifest_of(at), measure_values(at)
    if found["count"] != len(manifest.values):
        raise refusal(RegistryCode.VALUE_ABSENT, f"Only {found['count']} of {len(manifest.values)} values are stored.")
    if found["manifest_digest"] != manifest.digest:
        message = f"The stored values have digest {found['manifest_digest']}, not {manifest.digest}."
        raise refusal(RegistryCode.DIGEST_MISMATCH, message)
    for fault in guard_faults(all_values(at.transaction, collection=manifest.collection), manifest):
        raise fault


def manifest_rows(reading: Reading, manifest: Manifest) -> list[RegistryValue]:
    """Return the stored values of a manifest that are not withheld."""
    rows = (reading.registry.value(*value.key) for value in manifest.values)
    return [row for row in rows if row is not None and row.status != RegistryStatus.WITHHELD]


def stored_digest(manifest: Manifest, rows: Iterable[RegistryValue]) -> str:
    """Return the digest of a manifest made from stored values; raise RegistryError if one differs from its digest."""
    values = []
    for row in rows:
        values.append(stored_value(row))
        if values[-1].digest != row.digest:
            raise refusal(RegistryCode.DIGEST_MISMATCH, f"{ValueName.of(row)} does not match its digest.")
    return manifest.with_values(values).digest


def guard_faults(rows: list[RegistryValue], manifest: Manifest | None = None) -> list[RegistryError]:
    """Return the errors in a collection: duplicates, two active versions, bad successors, unlisted staged values."""
    shown = [row for row in rows if row.status != RegistryStatus.WITHHELD]
    active = (stored_value(row) for row in shown if row.state == ValueState.ACTIVE)
    listed = {ValueName(*value.key) for value in manifest.values} if manifest else set()
    staged = [ValueName.of(row) for row in shown if row.status == RegistryStatus.STAGED]
    duplicates = [name for name, n in Counter(map(ValueName.of, rows)).items() if n > 1]
    return [
        *(refusal(RegistryCode.DUPLICATE_VALUE, f"{name} is stored twice.") for name in duplicates),
        *(
            refusal(RegistryCode.WRONG_FOR_EFFECT, f"{one.name} and {other.name} are both active.")
            for one, other in several_active(active)
        ),
        *(refusal(RegistryCode.WRONG_FOR_EFFECT, f"{fault}.") for fault in successor_faults(rows)),
        *(
            refusal(RegistryCode.VALUE_INJECTION, f"{name} is staged, but not in the manifest.")
            for name in staged
            if name not in listed
        ),
    ]


# ---------------------------------------------------------------------------------------------------------------------
# S6: the evidence


def write_evidence(at: StepContext) -> Json:
    """Store one row of each kind, and return the digests as they are read back."""
    subject = target(manifest_of(at).collection)
    for kind, content in _evidence(at):
        # A row that exists stays, such as the failure of an earlier try.
        at.transaction.runs.add_evidence(
            kind, subject, canonical(content), actor=at.actor, run_id=at.run_id, grant_id=at.grant_id
        )
    return {"digests": {kind: digest for kind, (digest, _) in _valid_evidence(at).items()}}


def verify_evidence(at: StepContext) -> None:
    """Raise unless every kind is stored once and unchanged."""
    written, found = at.outcomes["S6_EVIDENCE"]["digests"], _valid_evidence(at)
    missing = sorted(set(EVIDENCE) - set(found))
    if missing:
        raise StepFailed(f"Evidence is missing: {', '.join(missing)}.")
    for kind, (digest, content) in found.items():
        if {digest, sha256(content)} != {written.get(kind)}:
            raise refusal(RegistryCode.DIGEST_MISMATCH, f"The evidence {kind} was changed after it was written.")


def void_evidence(at: StepContext) -> None:
    """Mark the evidence as void: what it describes was undone."""
    at.transaction.runs.void_evidence(at.run_id)


def keep_failure(at: StepContext) -> None:
    """Store why the run stopped: the last step of undoing."""
    run = at.transaction.runs.get(at.root)
    content = canonical({"stop_state": run.stop_state, "failure": run.failure})
    at.transaction.runs.void_evidence(at.run_id)
    at.transaction.runs.add_evidence(
        "failure_artifact", run.lease, content, actor=at.actor, run_id=at.run_id, grant_id=at.grant_id
    )


def summary(reading: Reading, collection: str) -> dict[str, Json]:
    """Return counts and a digest of a collection: short, because the outcome of a step has a size limit."""
    known, rows = reading.registry.collection(collection), _rows(reading, collection)
    return {
        "collection": known.status if known else None,
        "schema": known.schema_digest if known else None,
        "values": dict(Counter(row["status"] for row in rows)),
        "digest": cser_digest({"values": rows}),
    }


def _rows(reading: Reading, collection: str) -> list[dict[str, Json]]:
    return [
        {"value": str(ValueName.of(row)), "digest": row.digest, "status": row.status, "state": str(row.state)}
        for row in all_values(reading, collection=collection)
    ]


def _valid_evidence(at: StepContext) -> dict[str, tuple[str, str]]:
    rows = at.transaction.runs.evidence(at.run_id)
    return {row.kind: (row.digest, row.content) for row in rows if row.voided_at is None}


def _evidence(at: StepContext) -> Iterator[tuple[str, Json]]:
    manifest, outcomes, run = manifest_of(at), at.outcomes, at.transaction.runs.get(at.root)
    steps = records_of(at.transaction, run.run_id)
    yield "before_snapshot", outcomes["S0_PREFLIGHT"]["before"]
    yield "input_hashes", {"manifest": manifest.digest, "params": sha256(run.params)}
    yield "planned_diff", {name: outcomes["S4_VALUES"][name] for name in ("staged", "kept")}
    yield (
        "command_log",
        {
            "procedure": run.procedure,
            "root": at.root,
            "actor": at.actor,
            "steps": [step.name for step in steps if step.state == StepState.PERFORMED],
        },
    )
    yield (
        "test_log",
        {
            "gates": outcomes["S0_PREFLIGHT"]["gates"],
            "schema": outcomes["S3_VERIFY_SCHEMA"],
            "values": outcomes["S5_VERIFY_VALUES"],
        },
    )
    yield "rollback_log", [step.name for step in steps if step.state == StepState.UNDONE]
    yield (
        "after_snapshot",
        {**summary(at.transaction, manifest.collection), "rows": _rows(at.transaction, manifest.collection)},
    )
    yield "readback", measure_values(at)
    yield (
        "digest_proof",
        {
            "plan": run.plan,
            "schema": manifest.schema_digest,
            "manifest": manifest.digest,
            "values": {value.name: value.digest for value in manifest.values},
        },
    )
    yield "failure_artifact", None
