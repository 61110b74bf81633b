"""Every refusal code of the registry, reached by a real case; the gates, the hold, and refusals of the database.

Each case gives exactly one code; together the cases reach all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.seals.sealer import seal
from holdfast.core.authority import Wanted
from holdfast.core.digest import sha256
from holdfast.core.errors import AuthorityError, GovernanceError, RegistryError
from holdfast.core.manifest import Manifest, read_manifest
from holdfast.core.rollback import Contract, Disposition
from holdfast.core.vocabulary import RegistryCode
from holdfast.governance import grants
from holdfast.governance.approval import Identity
from holdfast.governance.registry.build import BUILD
from holdfast.governance.registry.dismantle import dismantle
from holdfast.governance.registry.preflight import PreflightRequest, preflight, verdict_of
from holdfast.governance.registry.registry import build, faults, hold, request_build, resolve
from holdfast.governance.registry.supersede import review
from holdfast.store import Store, Submission
from holdfast.store.reinstall import rewrite_enforcement
from tests.enforcement.raw import DOOR, SHUT, Client
from tests.governance.registries import (
    BOTH,
    REAL,
    STATES,
    WHO,
    Ledgers,
    at,
    built,
    by_hand,
    everything,
    granted,
    inserting,
    like,
    manifest,
    registry_status,
    retire,
    several,
    triggers,
    unguarded,
    value,
)

ledgers = pytest.fixture(scope="module", params=BOTH, name="ledgers")(several)


# ---------------------------------------------------------------------------------------------------------------------
# What the cases need


def tried(store: Store[Any], wanted: Manifest, **settings: Any) -> None:
    """Try a real build that must be refused, and leave nothing behind."""
    before = everything(store)
    try:
        build(store, wanted, root=f"tried {wanted.collection}", **{**REAL, **settings})
    finally:
        assert everything(store) == before


# ---------------------------------------------------------------------------------------------------------------------
# Cases

Case = tuple[RegistryCode, str | None, Callable[[Ledgers], object]]
CASES: dict[str, Case] = {}


def case(code: RegistryCode, gate: str | None = None) -> Callable[[Callable[[Ledgers], object]], object]:
    def listed(what: Callable[[Ledgers], object]) -> object:
        CASES[what.__name__] = (code, gate, what)
        return what

    return listed


@case(RegistryCode.BAD_MODE)
def a_mode_that_is_none(ledgers: Ledgers) -> None:
    tried(ledgers["dev"], manifest(), mode="FORCE")


@case(RegistryCode.MISSING_PLAN)
def nothing_to_build(ledgers: Ledgers) -> None:
    tried(ledgers["dev"], read_manifest({"collection": "empty", "values": []}))


@case(RegistryCode.RUNTIME_OVERCLAIM)
def a_manifest_that_says_what_is_in_force(ledgers: Ledgers) -> None:
    tried(ledgers["dev"], read_manifest({"collection": "c", "values": [value("a", status="in force")]}))


@case(RegistryCode.RUNTIME_OVERCLAIM, "PF7")
def a_registry_that_is_not_governed(ledgers: Ledgers) -> None:
    tried(ledgers["plain"], manifest())


@case(RegistryCode.VALUE_INJECTION)
def a_field_that_is_not_governed(ledgers: Ledgers) -> None:
    tried(ledgers["dev"], read_manifest({"collection": "c", "values": [value("a", handler="x")]}))


@case(RegistryCode.VALUE_INJECTION, "PF6")
def a_guard_of_the_database_that_is_gone(ledgers: Ledgers) -> None:
    store = ledgers["hurt"]
    client = Client(store.url)
    first, on = triggers(client)[0], "" if store.dialect == "sqlite" else " ON holdfast_values"
    client.close()
    by_hand(store.url, f"DROP TRIGGER {first}{on}")
    try:
        tried(store, manifest())
    finally:
        with store.transaction() as transaction:
            rewrite_enforcement(store, transaction)


@case(RegistryCode.VALUE_INJECTION, "PF6")
def a_value_that_no_grant_speaks_for(ledgers: Ledgers) -> None:
    store = ledgers["hurt"]
    wanted = built(store, codes="a")
    code = wanted.values[0].operation_code
    unguarded(store, inserting(code, operation_code=f"'{code}x'", grant_id="NULL"))
    with store.reading() as reading:
        assert ("REJECT_NON_GOVERNED_VALUE_INJECTION", f"{code}x@1.0.0") in {
            (fault.code, fault.subject) for fault in faults(reading)
        }
    try:
        tried(store, manifest())
    finally:
        unguarded(store, f"DELETE FROM holdfast_values WHERE operation_code = '{code}x'")


@case(RegistryCode.AUTHORITY_ABSENT)
def an_empty_authority(ledgers: Ledgers) -> None:
    tried(ledgers["dev"], read_manifest({"collection": "c", "values": [value("a", governing_authority_ref="")]}))


@case(RegistryCode.AUTHORITY_ABSENT, "PF4")
def a_value_approved_by_its_requester(ledgers: Ledgers) -> None:
    store = ledgers["stage"]
    wanted = manifest(codes="a")
    grant_id = granted(store, wanted)
    build(store, wanted, root=wanted.collection, grant_id=grant_id, **REAL)
    by_hand(store.url, DOOR, f"UPDATE holdfast_grants SET approved_by = requested_by WHERE grant_id = {grant_id}", SHUT)
    other = manifest()
    try:
        tried(store, other, grant_id=granted(store, other))
    finally:
        by_hand(store.url, DOOR, f"UPDATE holdfast_grants SET approved_by = 'bob' WHERE grant_id = {grant_id}", SHUT)


@case(RegistryCode.BAD_VERSION)
def a_version_that_is_none(ledgers: Ledgers) -> None:
    tried(ledgers["dev"], read_manifest({"collection": "c", "values": [value("a", "1.0")]}))


@case(RegistryCode.DUPLICATE_VALUE)
def the_same_value_twice(ledgers: Ledgers) -> None:
    tried(ledgers["dev"], read_manifest({"collection": "c", "values": [value("a"), value("a")]}))


@case(RegistryCode.WRONG_FOR_EFFECT, "PF2")
def another_version_while_the_first_is_in_force(ledgers: Ledgers) -> None:
    wanted = built(ledgers["dev"], codes="a")
    tried(ledgers["dev"], like(wanted, value(wanted.values[0].operation_code, "2.0.0")))


@case(RegistryCode.WRONG_FOR_EFFECT)
def a_value_of_another_act(ledgers: Ledgers) -> None:
    wanted = built(ledgers["dev"], codes="a")
    with ledgers["dev"].reading() as reading:
        resolve(reading, wanted.values[0].operation_code, "1.0.0", act_type="query")


@case(RegistryCode.MANIFEST_HASH_MISMATCH)
def another_manifest_than_was_agreed_on(ledgers: Ledgers) -> None:
    tried(ledgers["dev"], manifest(), expected="0" * 64)


@case(RegistryCode.PRODUCTION_TARGET, "PF1")
def a_manifest_for_stage_in_prod(ledgers: Ledgers) -> None:
    tried(ledgers["prod"], manifest(environment="stage"))


@case(RegistryCode.PRODUCTION_TARGET, "PF1")
def a_manifest_for_nowhere_in_prod(ledgers: Ledgers) -> None:
    tried(ledgers["prod"], manifest())


@case(RegistryCode.WRONG_CARRIER, "PF1")
def a_manifest_for_prod_elsewhere(ledgers: Ledgers) -> None:
    tried(ledgers["dev"], manifest(environment="prod"))


@case(RegistryCode.WRONG_CARRIER, "PF1")
def a_collection_that_looks_different(ledgers: Ledgers) -> None:
    wanted = built(ledgers["dev"], codes="a")
    tried(ledgers["dev"], like(wanted, value(f"{wanted.collection}.b"), act_types=["operation", "query"]))


@case(RegistryCode.WRITE_ONCE, "PF2")
def a_value_that_would_mean_something_else(ledgers: Ledgers) -> None:
    wanted = built(ledgers["dev"], codes="a")
    tried(ledgers["dev"], like(wanted, value(wanted.values[0].operation_code, semantics_frozen="other")))


@case(RegistryCode.RETIRED, "PF2")
def a_value_that_was_retired(ledgers: Ledgers) -> None:
    wanted = built(ledgers["dev"], codes="a")
    retire(ledgers["dev"], wanted.values[0].operation_code)
    tried(ledgers["dev"], wanted)


@case(RegistryCode.RETIRED)
def a_retired_value_for_something_new(ledgers: Ledgers) -> None:
    wanted = built(ledgers["dev"], codes="a")
    retire(ledgers["dev"], wanted.values[0].operation_code)
    with ledgers["dev"].reading() as reading:
        resolve(reading, wanted.values[0].operation_code, "1.0.0")


@case(RegistryCode.CROSS_MUTATION, "PF3")
def a_value_of_another_collection(ledgers: Ledgers) -> None:
    wanted = built(ledgers["dev"], codes="a")
    tried(ledgers["dev"], read_manifest({"collection": "thief", "values": [value(wanted.values[0].operation_code)]}))


@case(RegistryCode.REAL_RUN_BLOCKED, "PF7")
def a_real_build_in_a_prod_ledger_on_hold(ledgers: Ledgers) -> None:
    wanted = manifest(environment="prod")
    tried(ledgers["prod"], wanted, grant_id=granted(ledgers["prod"], wanted))


@case(RegistryCode.REAL_RUN_BLOCKED, "PF7")
def a_real_build_while_it_is_held(ledgers: Ledgers) -> None:
    store = ledgers["dev"]
    hold(store, on=True, actor="bob", reason="an incident")
    try:
        tried(store, manifest())
    finally:
        hold(store, on=False, actor="bob", reason="over")


@case(RegistryCode.AUDIT_SINK_UNSOUND, "PF9")
def seals_that_end_elsewhere(ledgers: Ledgers) -> None:
    store = ledgers["hurt"]
    built(store)
    assert seal(store)
    with store.reading() as reading:
        head = reading.settings.read()["seal_head"]
    by_hand(store.url, "UPDATE holdfast_meta SET value = '0 x' WHERE name = 'seal_head'")
    try:
        tried(store, manifest())
    finally:
        by_hand(store.url, f"UPDATE holdfast_meta SET value = '{head}' WHERE name = 'seal_head'")


@case(RegistryCode.DIGEST_MISMATCH)
def a_value_that_was_changed_while_it_was_built(ledgers: Ledgers) -> None:
    _changed_while_built(ledgers["hurt"], "7", "digest")


@case(RegistryCode.DIGEST_MISMATCH)
def a_value_that_was_changed_with_its_digest(ledgers: Ledgers) -> None:
    """Each value has its own digest; only the digest of the manifest differs."""
    store, wanted = ledgers["hurt"], manifest(codes="a")
    changed = like(wanted, value(wanted.values[0].operation_code, semantics_frozen=7)).values[0]
    _changed_while_built(store, "7", f"'{changed.digest}'", wanted)


def _changed_while_built(store: Store[Any], semantics: str, digest: str, wanted: Manifest | None = None) -> None:
    wanted = wanted or manifest(codes="a")
    only = wanted.values[0]
    update = f"UPDATE holdfast_values SET semantics = '%s', digest = %s WHERE operation_code = '{only.operation_code}'"
    changing = at("after S4_VALUES", lambda: unguarded(store, update % (semantics, digest)))
    stopped = build(store, wanted, root=wanted.collection, world=changing, **REAL)
    assert (stopped.report.verdict, registry_status(store, wanted)) == ("COMP_VALUES", ("withheld", {"withheld"}))
    unguarded(store, update % (only.semantics_text, f"'{only.digest}'"))
    raise RegistryError(stopped.report.failure or "", code=stopped.code)


@case(RegistryCode.VOCABULARY_ABSENT)
def a_ledger_without_a_vocabulary(ledgers: Ledgers) -> None:
    with ledgers["prod"].reading() as reading:
        resolve(reading, "thumbnail", "1.0.0")


@case(RegistryCode.VALUE_ABSENT)
def a_value_that_is_not_in_force(ledgers: Ledgers) -> None:
    with ledgers["dev"].reading() as reading:
        resolve(reading, "thumbnail", "1.0.0", act_type="query")


@case(RegistryCode.TARGET_UNVERSIONED)
def a_rollback_of_a_code_without_a_version(ledgers: Ledgers) -> None:
    with ledgers["dev"].reading() as reading:
        review(reading, Contract(disposition=Disposition.RETIRE, target="thumbnail", plan="runbook 7"))


@case(RegistryCode.ORPHANS_JOBS)
def a_collection_that_has_open_jobs_is_dismantled(ledgers: Ledgers) -> None:
    wanted = built(ledgers["orphans"], collection="operations")
    code, version = wanted.values[0].key
    with ledgers["orphans"].transaction() as transaction:
        transaction.jobs.submit([Submission(operation=code, operation_version=version, payload="{}")])
    dismantle(ledgers["orphans"], "operations", **REAL)


@pytest.mark.req("L-13", "L-15", "L-16", "L-24")
@pytest.mark.parametrize("name", CASES)
def test_every_refusal_has_one_code(ledgers: Ledgers, name: str) -> None:
    code, gate, what = CASES[name]
    with pytest.raises(GovernanceError) as caught:
        what(ledgers)
    assert (caught.value.code, caught.value.context.get("gate")) == (code, gate)
    assert (type(caught.value), caught.value.exit_code) == (RegistryError, 3)
    assert caught.value.hint


def test_every_code_is_reached() -> None:
    assert {code for code, _, _ in CASES.values()} == set(RegistryCode)


# ---------------------------------------------------------------------------------------------------------------------
# Grants


def _named(number: int) -> Callable[[Store[Any], Manifest], int | None]:
    return lambda _store, _wanted: number


def _none(_store: Store[Any], _wanted: Manifest) -> int | None:
    return None


def _for_another(store: Store[Any], _wanted: Manifest) -> int:
    return granted(store, manifest())


def _for_another_manifest(store: Store[Any], wanted: Manifest) -> int:
    needs = BUILD.wanted(wanted.text, "stage", "ann")
    assert needs is not None
    return _approved(store, needs, manifest=sha256("another"))


def _for_more(store: Store[Any], wanted: Manifest) -> int:
    needs = BUILD.wanted(wanted.text, "stage", "ann")
    assert needs is not None
    return _approved(store, needs, actions=(*needs.actions, "S8_MORE"))


def _for_another_executor(store: Store[Any], wanted: Manifest) -> int:
    needs = BUILD.wanted(wanted.text, "stage", "ann")
    assert needs is not None
    return _approved(store, needs, executor="carol")


def _draft(store: Store[Any], wanted: Manifest) -> int:
    return request_build(
        store, wanted, executor="ann", requester="ann", rollback_plan="supersede", reason="release 7"
    ).grant_id


def _revoked(store: Store[Any], wanted: Manifest) -> int:
    grant_id = granted(store, wanted)
    return grants.revoke(store, grant_id, actor="bob", reason="no").grant_id


def _forged(store: Store[Any], wanted: Manifest) -> int:
    """Approved by its requester, by a raw edit."""
    grant_id = granted(store, wanted)
    by_hand(store.url, DOOR, f"UPDATE holdfast_grants SET approved_by = 'ann' WHERE grant_id = {grant_id}", SHUT)
    return grant_id


def _approved(store: Store[Any], needs: Wanted, **changed: Any) -> int:
    other = type(needs)(**{name: changed.get(name, getattr(needs, name)) for name in needs.__struct_fields__})
    draft = grants.request(store, other, requester="ann", rollback_plan="supersede", reason="release 7")
    return grants.approve(store, draft.grant_id, Identity(name="bob")).grant_id


AUTHORITY = {
    "REJECT_AUTH_MISSING": _none,
    "REJECT_AUTH_NOT_FOUND": _named(10**6),
    "REJECT_AUTH_NOT_ACTIVE": _draft,
    "REJECT_AUTH_REVOKED": _revoked,
    "REJECT_AUTH_FORGED": _forged,
    "REJECT_AUTH_WRONG_CARRIER": _for_another,
    "REJECT_AUTH_MANIFEST_MISMATCH": _for_another_manifest,
    "REJECT_AUTH_LOOSE_SUPERSET": _for_more,
    "REJECT_AUTH_WRONG_EXECUTOR": _for_another_executor,
}


@pytest.mark.req("L-04", "L-13", "L-15", "L-24")
@pytest.mark.parametrize("code", AUTHORITY)
def test_a_build_in_stage_needs_a_grant_for_exactly_this_manifest(ledgers: Ledgers, code: str) -> None:
    store, wanted = ledgers["stage"], manifest()
    grant_id = AUTHORITY[code](store, wanted)
    with pytest.raises(AuthorityError) as caught:
        tried(store, wanted, grant_id=grant_id)
    assert (caught.value.code, caught.value.context["gate"]) == (code, "PF5")
    # A dry run goes on, and says what a real one would be refused for.
    dry = build(store, wanted, grant_id=grant_id, **WHO)
    [gate] = [gate for gate in dry.gates if gate.verdict != "GO"]
    assert (dry.ok, dry.preflight, dry.report.authority) == (True, "DRY_RUN_ONLY", code)
    assert (gate.gate, gate.verdict, gate.code) == ("PF5", "DRY_RUN_ONLY", code)
    with store.reading() as reading:
        assert reading.runs.get(f"tried {wanted.collection}") is None


@pytest.mark.req("L-15")
def test_preflight_is_go_only_if_all_gates_pass(ledgers: Ledgers) -> None:
    store, wanted = ledgers["dev"], manifest()
    with store.reading() as reading:
        needs = BUILD.wanted(wanted.text, "dev", "ann")
        assert needs is not None
        gates = preflight(reading, wanted, PreflightRequest("root", needs, real=True))
    assert [(gate.gate, gate.verdict) for gate in gates] == [(f"PF{n}", "GO") for n in range(1, 10)]
    assert verdict_of(gates) == "GO"
    # Several gates fail: all are reported, and the first gives the code.
    prod = ledgers["prod"]
    dry = build(prod, manifest(), **WHO)
    assert [(gate.gate, gate.verdict) for gate in dry.gates if gate.verdict != "GO"] == [
        ("PF1", "NO_GO"), ("PF5", "DRY_RUN_ONLY"), ("PF7", "DRY_RUN_ONLY"),
    ]  # fmt: skip
    assert (dry.report.verdict, dry.preflight, dry.code) == ("ABORT_PREFLIGHT", "NO_GO", "REJECT_PRODUCTION_TARGET")


def test_the_guide_names_every_code_gate_and_state() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "registry.md").read_text(encoding="utf-8")
    words = [*RegistryCode, *(f"PF{n}" for n in range(1, 10)), *STATES]
    assert [word for word in words if f"| `{word}`" not in guide and f"| {word} " not in guide] == []
