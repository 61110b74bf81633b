"""The built-in procedure `registry.dismantle`: takes a disposable collection out of force, and keeps its audit.

Invariants: it is for dev ledgers only; no row is deleted: the values and the collection are withheld, so that nothing
resolves to them; a collection whose values have open jobs is not dismantled; its evidence and its journal stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holdfast.core.authority import Act, require_words
from holdfast.core.digest import Json, canonical
from holdfast.core.environments import DEV
from holdfast.core.errors import RegistryError
from holdfast.core.governed import Collection
from holdfast.core.rollback import RollbackVerdict
from holdfast.core.spans import counted
from holdfast.core.vocabulary import RegistryCode, RegistryStatus, ValueName, refusal
from holdfast.governance.approval import environment_of
from holdfast.governance.registry.build_proof import target
from holdfast.governance.registry.preflight import all_values, require_mode
from holdfast.governance.runs.procedure import run
from holdfast.governance.runs.steps import Mode, Procedure, ProcedureReport, Step, StepContext, StepFailed

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.transaction import Reading

NAME = "registry.dismantle"


def dismantle(
    store: Store[Any],
    collection: str,
    *,
    actor: str,
    reason: str,
    mode: str = Mode.DRY_RUN,
    root: str | None = None,
    grant_id: int | None = None,
) -> ProcedureReport:
    """Take a collection of a dev ledger out of force, by default as a dry run; return the report.

    Raise RegistryError outside dev, and if the collection is unknown, or a value of it has open jobs.
    """
    require_words(collection=collection)
    require_mode(mode)
    with store.reading() as reading:
        _require_disposable(reading, collection)
    return run(
        store,
        DISMANTLE,
        {"collection": collection},
        root=root or f"{NAME}:{collection}:{uuid4().hex[:8]}",
        actor=actor,
        reason=reason,
        mode=Mode(mode),
        grant_id=grant_id,
    )


def is_dismantled(reading: Reading, known: Collection) -> bool:
    """Tell whether a collection was dismantled, and not built again since."""
    if known.status != RegistryStatus.WITHHELD:
        return False
    _, rows = reading.query(
        "SELECT procedure FROM holdfast_procedures WHERE run_id = :run_id", {"run_id": known.run_id}
    )
    return rows == [(NAME,)]


def _require_disposable(reading: Reading, collection: str) -> Collection:
    if environment_of(reading) != DEV:
        raise RegistryError(
            f"The collection {collection} can be dismantled in a dev ledger only.",
            code=RegistryCode.PRODUCTION_TARGET,
            next_step="Retire its values: `holdfast registry retire --help`.",
            context={"collection": collection},
        )
    known: Collection | None = reading.registry.collection(collection)
    if known is None:
        raise refusal(RegistryCode.VOCABULARY_ABSENT, f"There is no collection {collection}.", collection=collection)
    for value in all_values(reading, collection=collection):
        jobs = reading.registry.open_jobs_of(value.operation_code, value.protocol_version)
        if jobs:
            raise refusal(
                RegistryCode.ORPHANS_JOBS,
                f"{ValueName.of(value)} has {counted(jobs, 'open job')}, which would have no operation.",
                value=str(ValueName.of(value)),
                open_jobs=jobs,
                verdict=RollbackVerdict.ORPHANS_DEPENDENCY.number,
            )
    return known


def _collection(at: StepContext) -> str:
    return str(at.params["collection"])


def _check(at: StepContext) -> Json:
    known = _require_disposable(at.transaction, _collection(at))
    return {"collection": known.collection, "was": known.status}


def _withhold(at: StepContext) -> Json:
    name, registry = _collection(at), at.transaction.registry
    rows = all_values(at.transaction, collection=name)
    shown = [row.value_id for row in rows if row.status == RegistryStatus.IN_FORCE]
    registry.place_values(rows, RegistryStatus.IN_FORCE, RegistryStatus.WITHHELD)
    registry.place_values(rows, RegistryStatus.STAGED, RegistryStatus.WITHHELD)
    known = registry.collection(name)
    if not registry.place_collection(known, RegistryStatus.WITHHELD, run_id=at.run_id):
        raise StepFailed(f"The collection {name} was changed by another run.")
    return {"withheld": shown, "kept": len(rows)}


def _verify(at: StepContext) -> None:
    if at.transaction.registry.values_in_force(_collection(at)):
        raise StepFailed("A value of the collection is still in force.")


def _record(at: StepContext) -> Json:
    content = canonical({"act": NAME, "collection": _collection(at), **at.outcomes["D2_WITHHOLD"], "reason": at.reason})
    at.transaction.runs.add_evidence(
        "dismantling", target(_collection(at)), content, actor=at.actor, run_id=at.run_id, grant_id=at.grant_id
    )
    return None


def _put_back(at: StepContext) -> None:
    """Undo D2: the last step failed, and what was in force is in force again."""
    name, registry = _collection(at), at.transaction.registry
    was = RegistryStatus(at.outcomes["D0_CHECK"]["was"])
    registry.place_collection(registry.collection(name), was, run_id=at.run_id)
    shown = set(at.outcomes["D2_WITHHOLD"]["withheld"])
    rows = [row for row in all_values(at.transaction, collection=name) if row.value_id in shown]
    registry.place_values(rows, RegistryStatus.WITHHELD, RegistryStatus.IN_FORCE)


def _target_of(params: Mapping[str, Json]) -> str:
    return target(str(params["collection"]))


DISMANTLE = Procedure(
    name=NAME,
    version="1.0.0",
    checks=(Step("D0_CHECK", _check, stop="ABORT_CHECK"),),
    reserve="D1_RESERVED",
    steps=(
        Step("D2_WITHHOLD", _withhold, stop="COMP_WITHHOLD", verify=_verify, compensate=_put_back),
        Step("D3_RECORD", _record, stop="COMP_RECORD"),
    ),
    act=Act.DISMANTLE,
    target=_target_of,
)
