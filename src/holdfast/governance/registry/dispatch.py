"""The dispatcher of the registry's contracts: it validates a request, observes it, and never carries it out.

    dispatch(store, "DOT_C1_VOCAB_BUILD", correlation_id="release-7", actor="ann", mode="DRY_RUN",
             idempotency_root="DRYRUN-NS:release-7", fixture=manifest.text)

Invariants: the checks have one order, and the first that fails is the answer; REAL_RUN is refused by an error, because
only a build, a supersession or a retirement changes the registry; nothing is written but the observation, if it is
wanted, and that once for each contract, mode and root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.authority import require_words
from holdfast.core.digest import Json
from holdfast.core.errors import RegistryError, SpecInvalidError
from holdfast.core.manifest import read_manifest
from holdfast.core.vocabulary import RegistryCode
from holdfast.governance.acts import stored_text
from holdfast.governance.registry.preflight import require_mode
from holdfast.governance.runs.steps import Mode

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.transaction import Transaction

NAMESPACE = "DRYRUN-NS:"
OBSERVATION = "observation"


class Contract(msgspec.Struct, frozen=True):
    """A contract of the registry: the tool that fulfils it, and whether that tool can rehearse on a fixture."""

    tool: str  # module:function
    fixture: bool  # whether it needs a manifest
    endpoint: bool  # whether the tool has a dry run of its own


_REGISTRY, _BUILD = "holdfast.governance.registry.registry", "holdfast.governance.registry.registry:build"
CONTRACTS = {
    "DOT_C1_SCHEMA_ENSURE": Contract(_BUILD, fixture=True, endpoint=True),
    "DOT_C1_VOCAB_BUILD": Contract(_BUILD, fixture=True, endpoint=True),
    "DOT_C1_VOCAB_VERIFY": Contract(f"{_REGISTRY}:faults", fixture=False, endpoint=True),
    "DOT_C1_PREFLIGHT": Contract("holdfast.governance.registry.preflight:preflight", fixture=True, endpoint=True),
    "DOT_C1_BAD_INPUT_HARNESS": Contract("holdfast.core.manifest:read_manifest", fixture=True, endpoint=False),
    "DOT_C1_EVIDENCE_READBACK": Contract(f"{_REGISTRY}:faults", fixture=False, endpoint=True),
    "DOT_C1_ROLLBACK_CHECK": Contract("holdfast.governance.registry.supersede:review", fixture=False, endpoint=True),
}
"""The contracts of the source, by their names."""


class Blocker(StrEnum):
    """Why a request is not valid, beside the codes of the registry, in the order of the checks."""

    CONTRACT_UNKNOWN = "REJECT_CONTRACT_UNKNOWN"
    TOOL_MISSING = "REJECT_TOOL_MISSING"
    FIXTURE_MISSING = "REJECT_FIXTURE_MISSING"
    FIXTURE_INVALID = "REJECT_FIXTURE_INVALID"
    NAMESPACE_MISSING = "REJECT_NAMESPACE_MISSING"
    ENDPOINT_MISSING = "REJECT_ENDPOINT_MISSING"


class DispatchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the dispatcher. It authorises nothing."""

    contract: str
    mode: str
    correlation_id: str
    idempotency_root: str
    validated: bool
    endpoint_present: bool
    true_dry_run_possible: bool
    blocker: str | None  # the code of the first check that failed
    checks: tuple[str, ...]  # the names of the checks that passed, in their order
    observation: str | None = None  # evidence:ID, if one was wanted


def dispatch(
    store: Store[Any],
    contract: str,
    *,
    correlation_id: str,
    actor: str,
    mode: str = Mode.PLAN_ONLY,
    idempotency_root: str = "",
    fixture: Json = None,
    write_observation: bool = False,
) -> DispatchSummary:
    """Validate a request for a contract, and return what the checks found; with `write_observation` keep the answer.

    Raise RegistryError for REAL_RUN and for an unknown mode, and InputError without a correlation id, an actor, or, for
    an observation, a root.
    """
    known = CONTRACTS.get(contract)
    passed: list[str] = []
    blocker: str | None = None
    with store.reading() as reading:
        governed = reading.governed
    if governed:
        passed.append("runtime_gate")
        _require_validating(mode)
        passed.append("mode")
        require_words(correlation_id=correlation_id, actor=actor, idempotency_root=idempotency_root or "-")
        passed.append("correlation")
        for name, code in _checks(known, mode, idempotency_root, fixture):
            if code is not None:
                blocker = code
                break
            passed.append(name)
    else:
        blocker = RegistryCode.RUNTIME_OVERCLAIM
    endpoint = known is not None and known.endpoint
    summary = DispatchSummary(
        contract=contract,
        mode=str(mode),
        correlation_id=correlation_id,
        idempotency_root=idempotency_root,
        validated=blocker is None,
        endpoint_present=endpoint,
        true_dry_run_possible=blocker is None and endpoint and idempotency_root.startswith(NAMESPACE),
        blocker=blocker,
        checks=tuple(passed),
    )
    if not write_observation or not governed:
        return summary
    require_words(idempotency_root=idempotency_root)
    with store.transaction() as transaction:
        return msgspec.structs.replace(summary, observation=_observed(transaction, summary, actor))


def _require_validating(mode: str) -> None:
    if mode == Mode.REAL_RUN:
        raise RegistryError(
            "The dispatcher validates and observes; it does not carry out a REAL_RUN.",
            code=RegistryCode.REAL_RUN_BLOCKED,
            next_step="Build with --mode REAL_RUN under a grant: `holdfast registry build --help`.",
            context={"field": "mode"},
        )
    require_mode(mode)


def _checks(contract: Contract | None, mode: str, root: str, fixture: Json) -> Iterator[tuple[str, Blocker | None]]:
    """Yield the checks of the contract in their order, each with why it fails."""
    if contract is None:
        yield "contract", Blocker.CONTRACT_UNKNOWN
        return
    yield "contract", None
    yield "tool", None if _found(contract.tool) is not None else Blocker.TOOL_MISSING
    if contract.fixture and mode != Mode.PLAN_ONLY:
        yield "fixture", Blocker.FIXTURE_MISSING if fixture is None else _invalid(fixture)
    if mode == Mode.DRY_RUN:
        yield "namespace", None if root.removeprefix(NAMESPACE) not in ("", root) else Blocker.NAMESPACE_MISSING
        yield "endpoint", None if contract.endpoint else Blocker.ENDPOINT_MISSING


def _found(tool: str) -> Callable[..., object] | None:
    module, _, name = tool.partition(":")
    try:
        found = getattr(import_module(module), name, None)
    except ImportError:
        return None
    return found if callable(found) else None


def _invalid(fixture: Json) -> Blocker | None:
    try:
        read_manifest(fixture)
    except (RegistryError, SpecInvalidError):
        return Blocker.FIXTURE_INVALID
    return None


def _observed(transaction: Transaction, summary: DispatchSummary, actor: str) -> str:
    """Keep an answer as evidence, once; return the reference to it."""
    transaction.registry.lock()  # so that two dispatchers do not both find none
    subject = f"dispatch:{summary.contract}:{summary.mode}:{summary.idempotency_root}"
    _, rows = transaction.query(
        "SELECT min(evidence_id) FROM holdfast_evidence WHERE kind = :kind AND subject = :subject",
        {"kind": OBSERVATION, "subject": subject},
    )
    found = rows[0][0]
    if found is None:
        found = transaction.runs.add_evidence(OBSERVATION, subject, stored_text(summary), actor=actor)
    return f"evidence:{found}"
