"""The built-in procedure `registry.build`: what each of its states does, verifies and undoes.

S0_PREFLIGHT reads; S1_RESERVED takes the lease and the grant; S2_SCHEMA stages the collection and S3_VERIFY_SCHEMA
compares its digest; S4_VALUES admits every value through one gateway and S5_VERIFY_VALUES compares digest, count and
guards; S6_EVIDENCE stores the evidence for reviewers and reads it back; S7_FINALIZE puts everything in force.

Invariants: nothing is in force before S7, everything after it; what was in force before the build stays in force in
every case; nothing is deleted: undone values are withheld, and staged again when the run continues; a run stops at its
next state if registration is put on hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import TypeVar

import msgspec

from holdfast.core.authority import Act
from holdfast.core.digest import Json
from holdfast.core.errors import RegistryError
from holdfast.core.governed import Collection, RegistryValue
from holdfast.core.machines import GrantState
from holdfast.core.manifest import Manifest, read_manifest
from holdfast.core.vocabulary import RegistryCode, RegistryStatus, Value, refusal
from holdfast.governance.approval import environment_of
from holdfast.governance.registry.build_proof import (
    keep_failure,
    manifest_of,
    measure_schema,
    measure_values,
    summary,
    target,
    verify_evidence,
    verify_schema,
    verify_values,
    void_evidence,
    write_evidence,
)
from holdfast.governance.registry.preflight import (
    NO_GO,
    Gate,
    PreflightRequest,
    all_values,
    displaced,
    owned_elsewhere,
    preflight,
    reconcilable,
    registration_hold,
    verdict_of,
)
from holdfast.governance.runs.steps import Procedure, Step, StepContext, StepFailed
from holdfast.governance.switches import REGISTRATION_HOLD

NAME = "registry.build"
VERSION = "1.0.0"

Watcher = Callable[[tuple[Gate, ...]], object]
_Result = TypeVar("_Result")


def build_procedure(*, grant_id: int | None = None, judged: bool = True, watcher: Watcher | None = None) -> Procedure:
    """Return the procedure. With the named grant its preflight can judge that grant too."""
    check = partial(_preflight, grant_id=grant_id, judged=judged, watcher=watcher)
    return Procedure(
        name=NAME,
        version=VERSION,
        checks=(Step("S0_PREFLIGHT", check, stop="ABORT_PREFLIGHT", compensate=keep_failure),),
        steps=_STEPS,
        act=Act.BUILD,
        target=_target_of,
        manifest=_digest_of,
    )


def _target_of(params: Mapping[str, Json]) -> str:
    return target(read_manifest(dict(params)).collection)


def _digest_of(params: Mapping[str, Json]) -> str:
    return read_manifest(dict(params)).digest


def _coded(step: Callable[[StepContext], _Result]) -> Callable[[StepContext], _Result]:
    """Put the registry's code into the failure of a step: a run stores only text."""

    @wraps(step)
    def coded(at: StepContext) -> _Result:
        try:
            return step(at)
        except RegistryError as error:
            raise StepFailed(f"{error.code}: {error.message}") from error

    return coded


# ---------------------------------------------------------------------------------------------------------------------
# Before anything is written, and before each step


def _preflight(at: StepContext, *, grant_id: int | None, judged: bool, watcher: Watcher | None) -> Json:
    reading, manifest = at.transaction, manifest_of(at)
    wanted = BUILD.wanted(at.params, environment_of(reading), at.actor)
    if wanted is None:  # never: a build always needs a grant
        raise StepFailed(NAME)
    gates = preflight(reading, manifest, PreflightRequest(at.root, wanted, not at.dry, grant_id, judged))
    if watcher is not None:
        watcher(gates)
    for gate in gates:
        if gate.verdict == NO_GO:
            raise StepFailed(f"{gate.code}: {gate.detail}")
    return {
        "verdict": verdict_of(gates),
        "gates": [msgspec.to_builtins(gate) for gate in gates],
        "before": summary(reading, manifest.collection),
    }


def _after(step: str) -> Callable[[StepContext], None]:
    """Return a guard: the previous step was performed, and registration was not put on hold since."""

    def guard(at: StepContext) -> None:
        if step not in at.outcomes:
            raise StepFailed(f"{step} was not performed.")
        if not at.dry and registration_hold(at.transaction):
            raise StepFailed(f"{RegistryCode.REAL_RUN_BLOCKED}: {REGISTRATION_HOLD} was thrown during the build.")

    return guard


def _after_reservation(at: StepContext) -> None:
    grant = at.transaction.grants.get(at.grant_id) if at.grant_id is not None else None
    if grant is None or grant.state != GrantState.CONSUMED:
        raise StepFailed("No grant was consumed for this run.")
    _after("S0_PREFLIGHT")(at)


# ---------------------------------------------------------------------------------------------------------------------
# S2: the collection


def _stage_collection(at: StepContext) -> Json:
    manifest = manifest_of(at)
    known = at.transaction.registry.collection(manifest.collection)
    if known is None:
        at.transaction.registry.stage_collection(
            manifest.collection, manifest.schema_text, manifest.schema_digest, run_id=at.run_id
        )
    elif known.status == RegistryStatus.WITHHELD:
        _place(at, known, RegistryStatus.STAGED)
    return {
        "collection": manifest.collection,
        "schema_digest": manifest.schema_digest,
        "was": known.status if known else None,
    }


def _withhold_collection(at: StepContext) -> None:
    staged = at.outcomes["S2_SCHEMA"]
    known: Collection | None = at.transaction.registry.collection(staged["collection"])
    if staged["was"] != RegistryStatus.IN_FORCE and known is not None and known.status != RegistryStatus.WITHHELD:
        _place(at, known, RegistryStatus.WITHHELD)


def _place(at: StepContext, known: Collection, status: RegistryStatus, manifest_digest: str | None = None) -> None:
    if not at.transaction.registry.place_collection(known, status, run_id=at.run_id, manifest_digest=manifest_digest):
        raise StepFailed(f"The collection {known.collection} was changed by another run.")


# ---------------------------------------------------------------------------------------------------------------------
# S4: the values


def _admit_values(at: StepContext) -> Json:
    manifest = manifest_of(at)
    staged = [value.name for value in manifest.values if _admit(at, manifest, value)]
    return {"staged": staged, "kept": len(manifest.values) - len(staged)}


def _admit(at: StepContext, manifest: Manifest, value: Value) -> bool:
    """Admit one value through the gateway, once; return False if it was already in force."""
    row: RegistryValue | None = at.transaction.registry.value(*value.key)
    if row is not None and row.collection != manifest.collection:
        raise owned_elsewhere(value, row)
    error = (reconcilable(manifest, value, row) if row else None) or displaced(at.transaction, value)
    if error is not None:
        raise error
    if row is not None:
        at.transaction.registry.place_values([row], RegistryStatus.WITHHELD, RegistryStatus.STAGED)
        return row.status != RegistryStatus.IN_FORCE
    at.transaction.registry.admit(
        manifest.collection,
        value,
        status=RegistryStatus.STAGED,
        run_id=at.run_id,
        grant_id=at.grant_id,
        actor=at.actor,
        reason=at.reason,
    )
    return True


def _staged_rows(at: StepContext) -> list[RegistryValue]:
    """Return the rows of the values that this run has staged, of any status."""
    staged = set(at.outcomes["S4_VALUES"]["staged"])
    rows = (at.transaction.registry.value(*value.key) for value in manifest_of(at).values if value.name in staged)
    return [row for row in rows if row is not None]


def _withhold_values(at: StepContext) -> None:
    # Everything that is staged: only this run stages under the lease, and values past the manifest are undone too.
    rows = all_values(at.transaction, collection=manifest_of(at).collection)
    at.transaction.registry.place_values(rows, RegistryStatus.STAGED, RegistryStatus.WITHHELD)


# ---------------------------------------------------------------------------------------------------------------------
# S7: putting everything in force


def _finalize(at: StepContext) -> Json:
    manifest, rows = manifest_of(at), _staged_rows(at)
    placed = at.transaction.registry.place_values(rows, RegistryStatus.STAGED, RegistryStatus.IN_FORCE)
    known = at.transaction.registry.collection(manifest.collection)
    if known is None or placed != len(rows):
        raise refusal(RegistryCode.VALUE_ABSENT, f"Only {placed} of {len(rows)} staged values could be put in force.")
    _place(at, known, RegistryStatus.IN_FORCE, manifest.digest)
    return {"in_force": placed, "manifest_digest": manifest.digest}


def _verify_in_force(at: StepContext) -> None:
    manifest = manifest_of(at)
    shown = {
        (row.operation_code, row.protocol_version)
        for row in at.transaction.registry.values_in_force(manifest.collection)
    }
    for value in manifest.values:
        if value.key not in shown:
            raise refusal(RegistryCode.VALUE_ABSENT, f"{value.name} is not in force.")


def _withhold_all(at: StepContext) -> None:
    """Undo S7. S7 and the end of the run share a transaction, so a run never needs it; a procedure must define it."""
    at.transaction.registry.place_values(_staged_rows(at), RegistryStatus.IN_FORCE, RegistryStatus.WITHHELD)
    _withhold_collection(at)


# Name, where a failure stops the run, what the step does, verifies and undoes.
_TABLE = (
    ("S2_SCHEMA", "COMP_SCHEMA", _stage_collection, None, _withhold_collection),
    ("S3_VERIFY_SCHEMA", "COMP_SCHEMA", measure_schema, verify_schema, None),
    ("S4_VALUES", "COMP_VALUES", _admit_values, None, _withhold_values),
    ("S5_VERIFY_VALUES", "COMP_VALUES", measure_values, verify_values, None),
    ("S6_EVIDENCE", "COMP_EVIDENCE", write_evidence, verify_evidence, void_evidence),
    ("S7_FINALIZE", "COMP_FINALIZE", _finalize, _verify_in_force, _withhold_all),
)
_GUARDS = (_after_reservation, *(_after(name) for name, *_ in _TABLE))
_STEPS = tuple(
    Step(name, _coded(perform), stop=stop, guard=guard, verify=verify and _coded(verify), compensate=undo)
    for (name, stop, perform, verify, undo), guard in zip(_TABLE, _GUARDS, strict=False)
)

BUILD = build_procedure(judged=False)
"""The procedure as it is run or resumed by its name."""
