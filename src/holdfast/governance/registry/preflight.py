"""The preflight of a build: nine gates that only read, and one verdict.

PF1 the collection, PF2 its vocabulary, PF3 ownership, PF4 approvals, PF5 the grant, PF6 no way round the gateway, PF7
the real-run gate, PF8 the write fence, PF9 the audit sink.

Invariants: nothing is written; every gate is asked, also after one has said no; the first that says no gives the code;
a gate that only a real run has to pass (PF5, PF7) lets every other mode go on, and says what would be refused.
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
from holdfast.governance.grants import environment_of, verdict_on
from holdfast.governance.switches import REGISTRATION_HOLD
from holdfast.store.migrations import drift

if TYPE_CHECKING:
    from holdfast.store.transaction import Reading

GO, NO_GO, DRY_RUN_ONLY = "GO", "NO_GO", "DRY_RUN_ONLY"


class Gate(msgspec.Struct, frozen=True):
    """One gate of a preflight: GO, NO_GO, or DRY_RUN_ONLY where only a real run would be refused."""

    gate: str
    name: str
    verdict: str
    detail: str
    code: str | None = None


class PreflightRequest(NamedTuple):
    """What a preflight is for: which run, for good or not, and under which grant."""

    root: str
    wanted: Wanted
    real: bool
    grant_id: int | None = None
    judged: bool = True  # False where nobody has said which grant: then S1 alone judges it


def registration_hold(reading: Reading) -> bool:
    """Tell whether real builds are held: the newest switch says it; without one, a governed prod ledger is held."""
    newest = reading.switches.last(REGISTRATION_HOLD)
    if newest is not None:
        return newest.state == SwitchState.ON
    meta = reading.settings.read()
    return meta["governed"] == "yes" and meta["environment"] == PROD


def preflight(reading: Reading, manifest: Manifest, asked: PreflightRequest) -> tuple[Gate, ...]:
    """Ask every gate, and return what each says."""
    found = {value.key: reading.registry.value(*value.key) for value in manifest.values}
    known = [(value, row) for value in manifest.values if (row := found[value.key]) is not None]
    return (
        _gate("PF1", "collection", _collection(reading, manifest)),
        _gate("PF2", "vocabulary", _vocabulary(reading, manifest, known)),
        _gate("PF3", "ownership", _ownership(manifest, known)),
        _gate("PF4", "approvals", _approvals(reading)),
        _grant_gate(reading, asked),
        _gate("PF6", "gateway", _gateway(reading)),
        _gate("PF7", "real run", _real_run(reading), real_only=not asked.real),
        _gate("PF8", "write fence", _fence(reading, asked)),
        _gate("PF9", "audit sink", _sink(reading)),
    )


def verdict_of(gates: Iterable[Gate]) -> str:
    """Return the verdict over all gates: GO only when every one says GO."""
    said = {gate.verdict for gate in gates}
    return NO_GO if NO_GO in said else DRY_RUN_ONLY if DRY_RUN_ONLY in said else GO


def closed(gates: Sequence[Gate]) -> GovernanceError | None:
    """Return the error of the first gate that says no; None if none does."""
    gate = next((gate for gate in gates if gate.verdict == NO_GO), None)
    if gate is None or gate.code is None:
        return None
    context = {"gate": gate.gate, "stop_state": "ABORT_PREFLIGHT"}
    if gate.code in set(RegistryCode):
        return refusal(RegistryCode(gate.code), gate.detail, **context)
    return AuthorityError(gate.detail, code=gate.code, context=context)


# ---------------------------------------------------------------------------------------------------------------------
# The gates: each returns why it is closed, or None


def _gate(number: str, name: str, error: GovernanceError | None, *, real_only: bool = False) -> Gate:
    if error is None:
        return Gate(number, name, GO, "as it must be")
    return Gate(number, name, DRY_RUN_ONLY if real_only else NO_GO, error.message, error.code)


def _grant_gate(reading: Reading, asked: PreflightRequest) -> Gate:
    if not asked.judged:
        return Gate("PF5", "grant", GO, "S1_RESERVED judges it")
    return _gate("PF5", "grant", _authority(reading, asked), real_only=not asked.real)


def _collection(reading: Reading, manifest: Manifest) -> RegistryError | None:
    """PF1: the ledger is the one that is meant, and the collection is absent or looks like this."""
    here = environment_of(reading)
    if here == PROD and manifest.environment != PROD:
        told = manifest.environment or "no environment"
        return refusal(RegistryCode.PRODUCTION_TARGET, f"this is a prod ledger, and the manifest names {told}")
    if manifest.environment not in (None, here):
        return refusal(
            RegistryCode.WRONG_CARRIER, f"the manifest is for {manifest.environment}, and this is a {here} ledger"
        )
    known = reading.registry.collection(manifest.collection)
    if known is not None and known.schema_digest != manifest.schema_digest:
        return refusal(RegistryCode.WRONG_CARRIER, f"{manifest.collection} is there, and its values look different")
    return None


def _vocabulary(
    reading: Reading, manifest: Manifest, known: Sequence[tuple[Value, RegistryValue]]
) -> RegistryError | None:
    """PF2: each value is absent, or there as it is written here; and no other version is in its place."""
    return next((error for value, row in known if (error := reconcilable(manifest, value, row))), None) or next(
        (error for value in manifest.values if (error := displaced(reading, value))), None
    )


def reconcilable(manifest: Manifest, value: Value, row: RegistryValue) -> RegistryError | None:
    """Return why a value that is there already is not the one that is to be admitted; None if it is."""
    if row.collection != manifest.collection:
        return None  # a question of ownership
    if row.digest != value.digest:
        return refusal(
            RegistryCode.WRITE_ONCE, f"{value.name} is on record, and means something else", value=value.name
        )
    if row.state != ValueState.ACTIVE:
        return refusal(RegistryCode.RETIRED, f"{value.name} is {row.state}: it is not admitted again", value=value.name)
    return None


def displaced(reading: Reading, value: Value) -> RegistryError | None:
    """Return the error if another version of a value's code is active for the same act, and not withheld."""
    for row in all_values(reading, operation_code=value.operation_code, state=ValueState.ACTIVE):
        other = ValueName.of(row) != ValueName(*value.key) and row.act_type == value.act_type
        if other and row.standing != RegistryStatus.WITHHELD:
            return refusal(
                RegistryCode.WRONG_FOR_EFFECT,
                f"{ValueName.of(row)} is {row.standing} for {row.act_type}, so that {value.name} cannot be",
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
    """Return the error for a value that another collection has."""
    return refusal(
        RegistryCode.CROSS_MUTATION, f"{value.name} belongs to the collection {row.collection}", value=value.name
    )


def _approvals(reading: Reading) -> RegistryError | None:
    """PF4: whatever stands in the registry was approved, as this ledger's environment demands."""
    found = reading.registry.values_without_approval(by_another=environment_of(reading) != DEV)
    if found:
        return refusal(RegistryCode.AUTHORITY_ABSENT, f"nobody who may has approved {_listed(found)}")
    return None


def _authority(reading: Reading, asked: PreflightRequest) -> AuthorityError | None:
    """PF5: exactly one grant permits exactly this."""
    run = reading.runs.get(asked.root)
    own = reading.grants.get(run.grant_id) if run and run.grant_id else None
    if own is not None and own.consumed_by == asked.wanted.executor and asked.grant_id in (None, own.grant_id):
        return None  # the run has consumed its grant, and goes on under it
    verdict = verdict_on(reading, asked.wanted, asked.grant_id)
    if not isinstance(verdict, Rejected):
        return None
    if asked.grant_id is None and environment_of(reading) == DEV and verdict.code == Reject.MISSING:
        return None  # in dev, an act without a grant gets one of its own
    return AuthorityError(verdict.message, code=verdict.code)


def _gateway(reading: Reading) -> RegistryError | None:
    """PF6: the database refuses what does not come through the gateway, and nothing has."""
    # Below the verbs: what the schema enforces is no row of it.
    differing = drift(reading.store, reading.connection)
    if differing:
        return refusal(RegistryCode.VALUE_INJECTION, f"the database does not refuse direct inserts: {differing[0]}")
    found = reading.registry.values_without_grant()
    if found:
        return refusal(RegistryCode.VALUE_INJECTION, f"no grant speaks for {_listed(found)}")
    return None


def _real_run(reading: Reading) -> RegistryError | None:
    """PF7: the ledger goes by its registry, and registration is not held."""
    if reading.settings.read()["governed"] != "yes":
        return refusal(
            RegistryCode.RUNTIME_OVERCLAIM,
            "this ledger was not made to be governed: here operations register themselves, and a registry would claim"
            " what nobody goes by",
        )
    if registration_hold(reading):
        return refusal(RegistryCode.REAL_RUN_BLOCKED, f"{REGISTRATION_HOLD} is on: no real build may run")
    return None


def _fence(reading: Reading, asked: PreflightRequest) -> RegistryError | None:
    """PF8: no other run is half-way through this collection."""
    other = reading.runs.unfinished(asked.wanted.target, asked.root)
    if other is not None:
        told = f"the run {other.idempotency_root} is {other.state} in the same collection: resume it first"
        return refusal(RegistryCode.CROSS_MUTATION, told)
    return None


def _sink(reading: Reading) -> RegistryError | None:
    """PF9: what is written will be sealed: the chain of seals ends where the ledger says it does."""
    last = reading.seals.last()
    noted = reading.settings.read().get("seal_head", "")
    if noted != (last.mark if last else ""):
        return refusal(RegistryCode.AUDIT_SINK_UNSOUND, "the chain of seals does not end where the ledger says it does")
    return None


def all_values(
    reading: Reading, *, collection: str | None = None, operation_code: str | None = None, state: str | None = None
) -> list[RegistryValue]:
    """Return values wherever they stand, all pages of them."""
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
