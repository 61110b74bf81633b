"""The registry: which operations, at which protocol versions, a governed ledger accepts.

    manifest = read_manifest({"collection": "operations", "values": [...]})
    build(store, manifest, actor="ann", reason="release 7")                        # a dry run: nothing changes
    build(store, manifest, actor="ann", reason="release 7", mode="REAL_RUN", grant_id=4)
    with store.reading() as reading:
        resolve(reading, "thumbnail", "1.0.0")                                     # active and in force, else it raises

Invariants: values are admitted only by a build or a supersession; `resolve` sees values in force and nothing half
built; a refusal has one code, of `RegistryCode` or of a grant, and has written nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.authority import TTL, Wanted
from holdfast.core.digest import Json, sha256
from holdfast.core.errors import InputError, invariant
from holdfast.core.governed import Collection, Grant, ProcedureRun, RegistryValue
from holdfast.core.machines import ProcedureState, ValueState
from holdfast.core.manifest import Manifest, read_manifest, require_digest
from holdfast.core.vocabulary import (
    OPERATION,
    OPERATIONS,
    RegistryCode,
    RegistryStatus,
    ValueName,
    precedence,
    refusal,
    stored_value,
)
from holdfast.engine.operations import Operation
from holdfast.governance import grants
from holdfast.governance.acts import actor_and_reason, retried
from holdfast.governance.approval import environment_of
from holdfast.governance.registry.build import BUILD, NAME, build_procedure
from holdfast.governance.registry.build_proof import EVIDENCE, guard_faults, schema_digest, target
from holdfast.governance.registry.dismantle import is_dismantled
from holdfast.governance.registry.preflight import Gate, all_values, closed, registration_hold, require_mode, verdict_of
from holdfast.governance.runs.procedure import run
from holdfast.governance.runs.steps import Mode, ProcedureReport
from holdfast.governance.switches import REGISTRATION_HOLD, lift_in

if TYPE_CHECKING:
    from holdfast.engine.world import World
    from holdfast.store import Store
    from holdfast.store.transaction import Reading, Transaction


BUILT_IN = "holdfast.engine.ledger"  # the module of the operations that every ledger has


# ---------------------------------------------------------------------------------------------------------------------
# Building


class BuildResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a build did, or would do in a dry run."""

    collection: str
    manifest_hash: str
    op_count: int
    preflight: str  # GO, DRY_RUN_ONLY, NO_GO, or NOT_ASKED if the preflight did not run
    gates: tuple[Gate, ...]
    code: str | None  # the registry's code for why it stopped, if it has one
    report: ProcedureReport

    @property
    def ok(self) -> bool:
        """Return whether the build succeeded, or would succeed."""
        return self.report.ok


def build(
    store: Store[Any],
    manifest: Manifest,
    *,
    actor: str,
    reason: str,
    root: str | None = None,
    mode: str = Mode.DRY_RUN,
    grant_id: int | None = None,
    expected: str | None = None,
    world: World | None = None,
) -> BuildResult:
    """Build the values of a manifest, by default as a dry run, or continue the build with this root; return the result.

    Raise the error of the preflight if a real build is refused. A build that stops later is undone; see the report.
    """
    require_mode(mode)
    require_digest(manifest, expected)
    seen: list[tuple[Gate, ...]] = []
    report = run(
        store,
        build_procedure(grant_id=grant_id, watcher=seen.append),
        manifest.text,
        root=root or _root_for(store, manifest),
        actor=actor,
        reason=reason,
        mode=Mode(mode),
        grant_id=grant_id,
        world=world,
    )
    gates = seen[-1] if seen else ()
    refused = closed(gates)
    if refused is not None and mode == Mode.REAL_RUN:
        raise refused
    return BuildResult(
        collection=manifest.collection,
        manifest_hash=manifest.digest,
        op_count=len(manifest.values),
        preflight=verdict_of(gates) if gates else "NOT_ASKED",
        gates=gates,
        code=refused.code if refused else _code_in(report.failure),
        report=report,
    )


def default_root(manifest: Manifest) -> str:
    """Return the default root of a build: the same manifest is built once."""
    return f"{manifest.collection}:{manifest.digest[:16]}"


def _root_for(store: Store[Any], manifest: Manifest) -> str:
    """Return the default root of a build; after a dismantling another one, because the old run is done."""
    with store.reading() as reading:
        known = reading.registry.collection(manifest.collection)
        gone = known is not None and is_dismantled(reading, known)
    return f"{default_root(manifest)}:after-{known.run_id}" if known and gone else default_root(manifest)


def wanted(reading: Reading, manifest: Manifest, executor: str) -> Wanted:
    """Return the act that a grant for a build must permit."""
    needs = BUILD.wanted(manifest.text, environment_of(reading), executor)
    invariant(needs is not None, "a build needs a grant")
    return needs  # type: ignore[return-value]  # the line above


def request_build(
    store: Store[Any],
    manifest: Manifest,
    *,
    executor: str,
    requester: str,
    rollback_plan: str,
    reason: str,
    ttl: timedelta = TTL,
) -> Grant:
    """Request a grant for exactly this build, and return the draft."""
    with store.reading() as reading:
        needs = wanted(reading, manifest, executor)
    return grants.request(store, needs, requester=requester, rollback_plan=rollback_plan, reason=reason, ttl=ttl)


def _code_in(failure: str | None) -> str | None:
    return next((code for code in RegistryCode if f": {code}: " in (failure or "")), None)


# ---------------------------------------------------------------------------------------------------------------------
# Resolving


def resolve(reading: Reading, operation_code: str, protocol_version: str, act_type: str = OPERATION) -> RegistryValue:
    """Return a value that is active and in force, or raise RegistryError."""
    value = reading.registry.value_in_force(operation_code, protocol_version)
    name = f"{operation_code}@{protocol_version}"
    if value is None:
        collection = reading.registry.collection(OPERATIONS)
        if act_type == OPERATION and (collection is None or collection.status != RegistryStatus.IN_FORCE):
            raise refusal(
                RegistryCode.VOCABULARY_ABSENT,
                "This ledger is governed, but its registry has no operations in force.",
                value=name,
            )
        raise refusal(RegistryCode.VALUE_ABSENT, f"{name} is not in force.", value=name)
    if value.act_type != act_type:
        raise refusal(
            RegistryCode.WRONG_FOR_EFFECT, f"{name} has act type {value.act_type}, not {act_type}.", value=name
        )
    if value.state != ValueState.ACTIVE:
        successor = f"; use {value.successor_code}@{value.successor_version}" if value.successor_code else ""
        raise refusal(RegistryCode.RETIRED, f"{name} is {value.state}{successor}.", value=name)
    return value


# ---------------------------------------------------------------------------------------------------------------------
# The hold


def hold(store: Store[Any], *, on: bool, actor: str, reason: str, grant_id: int | None = None) -> bool:
    """Put real builds on hold, or lift the hold under a grant; return False if nothing changed (no grant is used)."""
    who, why = actor_and_reason(actor, reason)

    def act(transaction: Transaction) -> bool:
        if on:
            return transaction.switches.throw(REGISTRATION_HOLD, actor=who, reason=why)
        if not registration_hold(transaction):
            return False
        # The hold may be on by default, without a row: throw the switch first, so that it can be lifted.
        transaction.switches.throw(REGISTRATION_HOLD, actor=who, reason="on by default in a governed prod ledger")
        return lift_in(transaction, REGISTRATION_HOLD, who, why, grant_id).changed

    return retried(store, act)


# ---------------------------------------------------------------------------------------------------------------------
# Verifying


class RegistryFault(msgspec.Struct, frozen=True):
    """A difference between the registry and its builds."""

    code: str
    subject: str
    detail: str


def faults(reading: Reading) -> list[RegistryFault]:
    """Return every difference between the registry and its digests, guards, grants, builds and evidence."""
    return [
        *(fault for known in reading.registry.collections() for fault in _collection_faults(reading, known)),
        *(
            RegistryFault(RegistryCode.VALUE_INJECTION, f"{code}@{version}", "No consumed grant exists for it.")
            for code, version in reading.registry.values_without_grant(limit=1000)
        ),
        *(fault for built in _builds(reading) for fault in _build_faults(reading, built)),
    ]


def _collection_faults(reading: Reading, known: Collection) -> Iterator[RegistryFault]:
    name = known.collection
    if schema_digest(known.schema) != known.schema_digest:
        yield RegistryFault(RegistryCode.WRONG_CARRIER, name, "Its schema does not match its digest.")
    rows = all_values(reading, collection=name)
    staged = [row for row in rows if row.status == RegistryStatus.STAGED]
    for row in rows:
        if stored_value(row).digest != row.digest:
            yield RegistryFault(RegistryCode.DIGEST_MISMATCH, str(ValueName.of(row)), "It does not match its digest.")
    for error in guard_faults([row for row in rows if row.status != RegistryStatus.STAGED]):
        yield RegistryFault(error.code, name, error.message)
    if staged and reading.runs.unfinished(target(name), "") is None:
        yield RegistryFault(
            RegistryCode.VALUE_INJECTION, str(ValueName.of(staged[0])), "It is staged, but no build is running."
        )


def _builds(reading: Reading) -> Iterator[ProcedureRun]:
    before: int | None = None
    while page := reading.runs.page(procedure=NAME, state=ProcedureState.DONE, before=before):
        yield from page
        before = page[-1].run_id


def _build_faults(reading: Reading, built: ProcedureRun) -> Iterator[RegistryFault]:
    manifest = read_manifest(msgspec.json.decode(built.params))
    rows = [row for value in manifest.values if (row := reading.registry.value(*value.key)) is not None]
    found = manifest.with_values(map(stored_value, rows)).digest
    if found != manifest.digest:
        detail = f"The stored values have digest {found}, not {manifest.digest}."
        yield RegistryFault(RegistryCode.DIGEST_MISMATCH, built.idempotency_root, detail)
    known = reading.registry.collection(manifest.collection)
    for row in rows:
        if row.status != RegistryStatus.IN_FORCE and not (known and is_dismantled(reading, known)):
            yield RegistryFault(
                RegistryCode.VALUE_ABSENT, str(ValueName.of(row)), f"It was put in force, but is {row.status}."
            )
    evidence = {row.kind: row for row in reading.runs.evidence(built.run_id) if row.voided_at is None}
    for kind in EVIDENCE:
        if kind not in evidence:
            yield RegistryFault(RegistryCode.AUDIT_SINK_UNSOUND, built.idempotency_root, f"Its {kind} is missing.")
        elif sha256(evidence[kind].content) != evidence[kind].digest:
            yield RegistryFault(RegistryCode.AUDIT_SINK_UNSOUND, built.idempotency_root, f"Its {kind} was changed.")


# ---------------------------------------------------------------------------------------------------------------------
# Drafting


def draft(operations: Iterable[Operation[Any, Any]], *, authority_ref: str, environment: str | None = None) -> Manifest:
    """Return a manifest of the declared operations, with the arguments and the description of each.

    Of several versions the newest is listed; built-in operations are left out.
    """
    newest: dict[str, Operation[Any, Any]] = {}
    for operation in operations:
        here = newest.get(operation.name, operation)
        if operation.fn.__module__ != BUILT_IN and precedence(operation.version) >= precedence(here.version):
            newest[operation.name] = operation
    if not newest:
        raise InputError(
            "No operations are declared.", next_step="Name the ledger or Operations object that declares them."
        )
    values = [
        {
            "operation_code": operation.name,
            "protocol_version": operation.version,
            "act_type": OPERATION,
            "governing_authority_ref": authority_ref,
            "semantics_frozen": _semantics(operation),
        }
        for operation in newest.values()
    ]
    return read_manifest({"collection": OPERATIONS, "environment": environment, "values": values})


def _semantics(operation: Operation[Any, Any]) -> Json:
    parameters = list(inspect.signature(operation.fn).parameters.values())[1:]
    summary = (inspect.getdoc(operation.fn) or "").partition("\n\n")[0]
    return {
        "description": " ".join(summary.split()),
        "arguments": {parameter.name: _annotation(parameter) for parameter in parameters},
    }


def _annotation(parameter: inspect.Parameter) -> dict[str, Json]:
    empty = inspect.Parameter.empty
    kind = parameter.annotation
    name = kind if isinstance(kind, str) else "any" if kind is empty else inspect.formatannotation(kind)
    return {"type": name, "required": parameter.default is empty and parameter.kind is not parameter.VAR_KEYWORD}
