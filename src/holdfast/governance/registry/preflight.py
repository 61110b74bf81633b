"""The preflight of a build: nine gates that only read, and one verdict over them.

PF1 the collection, PF2 its vocabulary, PF3 ownership, PF4 approvals, PF5 the grant, PF6 writes past the gateway, PF7
the real-run gate, PF8 the write fence, PF9 the audit sink.

Invariants: nothing is written; every gate is evaluated, even after one is closed; the first closed gate gives the code;
a gate that only a real run must pass (PF5, PF7) does not stop the other modes, and reports what would be refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.core.authority import Reject, Rejected, Wanted
from holdfast.core.environments import DEV, PROD
from holdfast.core.errors import AuthorityError, GovernanceError, RegistryError
from holdfast.core.governed import RegistryValue
from holdfast.core.machines import SwitchState, ValueState
from holdfast.core.manifest import Manifest
from holdfast.core.vocabulary import RegistryCode, RegistryStatus, Value, ValueName, refusal
from holdfast.governance.approval import environment_of
from holdfast.governance.grants import verdict_on
from holdfast.governance.runs.steps import Mode
from holdfast.governance.switches import REGISTRATION_HOLD
from holdfast.store.migrations import drift

if TYPE_CHECKING:
    from holdfast.store.transaction import Reading

GO, NO_GO, DRY_RUN_ONLY = "GO", "NO_GO", "DRY_RUN_ONLY"


class Gate(msgspec.Struct, frozen=True):
    """The result of one gate: GO, NO_GO, or DRY_RUN_ONLY if only a real run would be refused."""

    gate: str
    name: str
    verdict: str
    detail: str
    code: str | None = None


class PreflightRequest(NamedTuple):
    """What a preflight evaluates: the run, whether it is a real run, and its grant."""

    root: str
    wanted: Wanted
    real: bool
    grant_id: int | None = None
    judged: bool = True  # False: S1_RESERVED alone judges the grant


def require_mode(mode: str) -> None:
    """Raise RegistryError for a mode that no run has."""
    if mode not in set(Mode):
        raise refusal(RegistryCode.BAD_MODE, f"Unknown mode {mode!r}.", field="mode")


def registration_hold(reading: Reading) -> bool:
    """Return whether real builds are on hold: as the switch was last set; by default in a governed prod ledger."""
    newest = reading.switches.last(REGISTRATION_HOLD)
    if newest is not None:
        return newest.state == SwitchState.ON
    meta = reading.settings.read()
    return meta["governed"] == "yes" and meta["environment"] == PROD


def preflight(reading: Reading, manifest: Manifest, request: PreflightRequest) -> tuple[Gate, ...]:
    """Evaluate every gate and return the results."""
    found = {value.key: reading.registry.value(*value.key) for value in manifest.values}
    known = [(value, row) for value in manifest.values if (row := found[value.key]) is not None]
    return (
        _gate("PF1", "collection", _collection(reading, manifest)),
        _gate("PF2", "vocabulary", _vocabulary(reading, manifest, known)),
        _gate("PF3", "ownership", _ownership(manifest, known)),
        _gate("PF4", "approvals", _approvals(reading)),
        _grant_gate(reading, request),
        _gate("PF6", "gateway", _gateway(reading)),
        _gate("PF7", "real run", _real_run(reading), real_only=not request.real),
        _gate("PF8", "write fence", _fence(reading, request)),
        _gate("PF9", "audit sink", _sink(reading)),
    )


def verdict_of(gates: Iterable[Gate]) -> str:
    """Return the verdict over all gates: GO only if every gate is GO."""
    verdicts = {gate.verdict for gate in gates}
    return NO_GO if NO_GO in verdicts else DRY_RUN_ONLY if DRY_RUN_ONLY in verdicts else GO


def closed(gates: Sequence[Gate]) -> GovernanceError | None:
    """Return the error of the first closed gate; None if all are open."""
    gate = next((gate for gate in gates if gate.verdict == NO_GO), None)
    if gate is None or gate.code is None:
        return None
    context = {"gate": gate.gate, "stop_state": "ABORT_PREFLIGHT"}
    if gate.code in set(RegistryCode):
        return refusal(RegistryCode(gate.code), gate.detail, **context)
    return AuthorityError(gate.detail, code=gate.code, context=context)


# ---------------------------------------------------------------------------------------------------------------------
# The gates: each returns the error that closes it, or None


def _gate(number: str, name: str, error: GovernanceError | None, *, real_only: bool = False) -> Gate:
    if error is None:
        return Gate(number, name, GO, "ok")
    return Gate(number, name, DRY_RUN_ONLY if real_only else NO_GO, error.message, error.code)


def _grant_gate(reading: Reading, request: PreflightRequest) -> Gate:
    if not request.judged:
        return Gate("PF5", "grant", GO, "judged by S1_RESERVED")
    return _gate("PF5", "grant", _authority(reading, request), real_only=not request.real)


def _collection(reading: Reading, manifest: Manifest) -> RegistryError | None:
    """PF1: the manifest is for this ledger, and the collection is absent or has the same schema."""
    here = environment_of(reading)
    if here == PROD and manifest.environment != PROD:
        named = manifest.environment or "no environment"
        return refusal(RegistryCode.PRODUCTION_TARGET, f"This is a prod ledger, but the manifest names {named}.")
    if manifest.environment not in (None, here):
        return refusal(
            RegistryCode.WRONG_CARRIER, f"The manifest is for {manifest.environment}, but this is a {here} ledger."
        )
    known = reading.registry.collection(manifest.collection)
    if known is not None and known.schema_digest != manifest.schema_digest:
        return refusal(RegistryCode.WRONG_CARRIER, f"The collection {manifest.collection} exists with another schema.")
    return None


def _vocabulary(
    reading: Reading, manifest: Manifest, known: Sequence[tuple[Value, RegistryValue]]
) -> RegistryError | None:
    """PF2: each value is absent or stored exactly as in the manifest, and no other version of it is active."""
    return next((error for value, row in known if (error := reconcilable(manifest, value, row))), None) or next(
        (error for value in manifest.values if (error := displaced(reading, value))), None
    )


def reconcilable(manifest: Manifest, value: Value, row: RegistryValue) -> RegistryError | None:
    """Return why a stored value differs from the one in the manifest; None if it does not."""
    if row.collection != manifest.collection:
        return None  # PF3 reports this
    if row.digest != value.digest:
        return refusal(RegistryCode.WRITE_ONCE, f"{value.name} exists with other semantics.", value=value.name)
    if row.state != ValueState.ACTIVE:
        return refusal(RegistryCode.RETIRED, f"{value.name} is {row.state} and cannot be used again.", value=value.name)
    return None


def displaced(reading: Reading, value: Value) -> RegistryError | None:
    """Return the error if another version of the code is active for the same act type, and not withheld."""
    for row in all_values(reading, operation_code=value.operation_code, state=ValueState.ACTIVE):
        other = ValueName.of(row) != ValueName(*value.key) and row.act_type == value.act_type
        if other and row.status != RegistryStatus.WITHHELD:
            return refusal(
                RegistryCode.WRONG_FOR_EFFECT,
                f"{value.name} cannot be admitted: {ValueName.of(row)} is {row.status} for {row.act_type}.",
                value=value.name,
            )
    return None


def _ownership(manifest: Manifest, known: Sequence[tuple[Value, RegistryValue]]) -> RegistryError | None:
    """PF3: no value of the manifest belongs to another collection."""
    for value, row in known:
        if row.collection != manifest.collection:
            return owned_elsewhere(value, row)
    return None


def owned_elsewhere(value: Value, row: RegistryValue) -> RegistryError:
    """Return the error for a value that belongs to another collection."""
    return refusal(
        RegistryCode.CROSS_MUTATION, f"{value.name} belongs to the collection {row.collection}.", value=value.name
    )


def _approvals(reading: Reading) -> RegistryError | None:
    """PF4: every value in the registry was approved as this ledger's environment requires."""
    found = reading.registry.values_without_approval(by_another=environment_of(reading) != DEV)
    if found:
        return refusal(RegistryCode.AUTHORITY_ABSENT, f"No valid approval exists for {_listed(found)}.")
    return None


def _authority(reading: Reading, request: PreflightRequest) -> AuthorityError | None:
    """PF5: exactly one grant permits exactly this build."""
    run = reading.runs.get(request.root)
    own = reading.grants.get(run.grant_id) if run and run.grant_id else None
    if own is not None and own.consumed_by == request.wanted.executor and request.grant_id in (None, own.grant_id):
        return None  # the run has consumed its grant and continues under it
    verdict = verdict_on(reading, request.wanted, request.grant_id)
    if not isinstance(verdict, Rejected):
        return None
    if request.grant_id is None and environment_of(reading) == DEV and verdict.code == Reject.MISSING:
        return None  # in dev, an act without a grant gets a new one
    return AuthorityError(verdict.message, code=verdict.code)


def _gateway(reading: Reading) -> RegistryError | None:
    """PF6: the database refuses direct inserts, and no value was inserted past the gateway."""
    # No verb reads this: what the schema enforces is not a row of a table.
    differing = drift(reading.store, reading.connection)
    if differing:
        return refusal(RegistryCode.VALUE_INJECTION, f"The database does not refuse direct inserts: {differing[0]}")
    found = reading.registry.values_without_grant()
    if found:
        return refusal(RegistryCode.VALUE_INJECTION, f"No consumed grant exists for {_listed(found)}.")
    return None


def _real_run(reading: Reading) -> RegistryError | None:
    """PF7: the ledger is governed, and registration is not on hold."""
    if reading.settings.read()["governed"] != "yes":
        return refusal(
            RegistryCode.RUNTIME_OVERCLAIM,
            "This ledger is not governed: operations register themselves, and a registry would have no effect.",
        )
    if registration_hold(reading):
        return refusal(RegistryCode.REAL_RUN_BLOCKED, f"{REGISTRATION_HOLD} is on: real builds are blocked.")
    return None


def _fence(reading: Reading, request: PreflightRequest) -> RegistryError | None:
    """PF8: no other run on this collection is unfinished."""
    other = reading.runs.unfinished(request.wanted.target, request.root)
    if other is not None:
        message = f"Run {other.idempotency_root} on the same collection is {other.state}: resume it first."
        return refusal(RegistryCode.CROSS_MUTATION, message)
    return None


def _sink(reading: Reading) -> RegistryError | None:
    """PF9: the chain of seals ends at the head that the ledger has recorded."""
    last = reading.seals.last()
    noted = reading.settings.read().get("seal_head", "")
    if noted != (last.mark if last else ""):
        return refusal(RegistryCode.AUDIT_SINK_UNSOUND, "The chain of seals does not end at the recorded head.")
    return None


def all_values(
    reading: Reading, *, collection: str | None = None, operation_code: str | None = None, state: str | None = None
) -> list[RegistryValue]:
    """Return all matching values, of every status."""
    found: list[RegistryValue] = []
    while page := reading.registry.values(
        collection=collection,
        operation_code=operation_code,
        state=state,
        after=found[-1].value_id if found else 0,
        limit=1000,
    ):
        found += page
    return found


def _listed(values: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{code}@{version}" for code, version in values)
