"""A build that stops: by name, with everything undone and nothing deleted; and its way back to the end.

Every stop is brought about by something real: the hold that is thrown between two states, a table that refuses a write,
a schema that was changed, a value that is not in the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.core.errors import RegistryError
from holdfast.core.manifest import Manifest, read_manifest
from holdfast.engine.world import Crash
from holdfast.governance.registry.build import BUILD
from holdfast.governance.registry.registry import BuildResult, build, faults, hold
from holdfast.governance.runs.procedure import resume, run
from holdfast.governance.runs.steps import Mode, Procedure, Step, StepContext, StepFailed
from holdfast.store import Store
from tests.governance.registries import (
    BOTH,
    REAL,
    STATES,
    WHO,
    at,
    boom,
    both,
    by_hand,
    calm,
    crashing,
    governed,
    image,
    in_force,
    manifest,
    names,
    registry_status,
    value,
)

shared = pytest.fixture(scope="module", params=BOTH, name="shared")(governed)


@pytest.fixture(autouse=True)
def _released(shared: Store[Any]) -> Iterator[None]:
    """Lift the hold after each test."""
    yield
    hold(shared, on=False, actor="tests", reason="the test is over")


def thrown_after(store: Store[Any], state: str) -> Any:
    """Return a world in which the hold is thrown when a state has been reached."""
    return at(f"after {state}", lambda: hold(store, on=True, actor="bob", reason="stop it"))


def stopped(store: Store[Any], wanted: Manifest, root: str, **settings: Any) -> BuildResult:
    built = build(store, wanted, root=root, **{**REAL, **settings})
    assert built.report.state == "stopped"
    assert in_force(store, wanted.collection) == []
    return built


# The state that fails, its stop, and the states performed before.
STOPS = [
    ("S2_SCHEMA", "COMP_SCHEMA", None),
    ("S3_VERIFY_SCHEMA", "COMP_SCHEMA", ("withheld", set[str]())),
    ("S4_VALUES", "COMP_VALUES", ("withheld", set[str]())),
    ("S5_VERIFY_VALUES", "COMP_VALUES", ("withheld", {"withheld"})),
    ("S6_EVIDENCE", "COMP_EVIDENCE", ("withheld", {"withheld"})),
    ("S7_FINALIZE", "COMP_FINALIZE", ("withheld", {"withheld"})),
]


@pytest.mark.req("L-01", "L-02", "L-08", "L-10", "L-20", "L-22", "L-24")
@pytest.mark.parametrize("state, stop, left", STOPS, ids=[state for state, _, _ in STOPS])
def test_a_build_on_hold_stops_by_name_and_continues_when_the_hold_is_lifted(
    shared: Store[Any], state: str, stop: str, left: Any
) -> None:
    wanted, before = manifest(), STATES[STATES.index(state) - 1]
    root = f"stops {wanted.collection}"
    built = stopped(shared, wanted, root, world=thrown_after(shared, before))
    report = built.report
    assert (report.verdict, report.stop_state, built.code) == (stop, stop, "C1_PROD_REAL_RUN_BLOCKED")
    reached = STATES.index(state)
    assert [step.fate for step in report.steps] == ["undone"] * reached + ["failed"] + ["open"] * (7 - reached)
    assert registry_status(shared, wanted) == (left or (None, set()))
    with shared.reading() as reading:
        found = reading.runs.get(root)
        assert found is not None
        kept = {row.kind: json.loads(row.content) for row in reading.runs.evidence(found.run_id) if not row.voided_at}
        voided = sum(row.voided_at is not None for row in reading.runs.evidence(found.run_id))
        rows = reading.registry.values(collection=wanted.collection)
        grants = [(grant.grant_id, grant.state) for grant in reading.grants.page(target=found.lease)]
    assert kept == {"failure_artifact": {"stop_state": stop, "failure": report.failure}}
    assert voided == (10 if state == "S7_FINALIZE" else 0)
    assert grants == [(found.grant_id, "consumed")]

    # While it is on hold, the preflight fails, and the run is unchanged.
    unmoved = image(shared, wanted, root)
    with pytest.raises(RegistryError) as caught:
        build(shared, wanted, root=root, **REAL)
    assert (caught.value.code, caught.value.context["gate"]) == ("C1_PROD_REAL_RUN_BLOCKED", "PF7")
    assert image(shared, wanted, root) == unmoved

    assert hold(shared, on=False, actor="bob", reason="all clear")
    assert build(shared, wanted, root=root, **REAL).report.verdict == "DONE"
    assert in_force(shared, wanted.collection) == names(wanted)
    with shared.reading() as reading:
        # The same rows, under the grant that the run had consumed before.
        again = reading.registry.values(collection=wanted.collection)
        assert [row.value_id for row in again if rows] == [row.value_id for row in rows]
        assert [grant.state for grant in reading.grants.page(target=found.lease)] == ["consumed"]
        evidence = {
            row.kind: json.loads(row.content) for row in reading.runs.evidence(found.run_id) if not row.voided_at
        }
        assert [fault for fault in faults(reading) if wanted.collection in fault.subject] == []
    assert evidence["rollback_log"] == list(STATES[:reached])
    assert evidence["failure_artifact"] == {"stop_state": stop, "failure": report.failure}


@pytest.mark.req("L-23", "L-21")
def test_a_build_that_stops_twice_keeps_why_it_stopped_last(shared: Store[Any]) -> None:
    wanted = manifest()
    root = f"twice {wanted.collection}"
    for state, stop in (("S4_VALUES", "COMP_VALUES"), ("S6_EVIDENCE", "COMP_FINALIZE")):
        assert stopped(shared, wanted, root, world=thrown_after(shared, state)).report.verdict == stop
        hold(shared, on=False, actor="bob", reason="all clear")
    with shared.reading() as reading:
        found = reading.runs.get(root)
        assert found is not None
        rows = reading.runs.evidence(found.run_id)
    why = [row for row in rows if row.kind == "failure_artifact"]
    stops = [(json.loads(row.content)["stop_state"], row.voided_at is None) for row in why]
    assert stops == [("COMP_VALUES", False), ("COMP_FINALIZE", True)]
    assert [row.kind for row in rows if row.voided_at is None] == ["failure_artifact"]
    assert build(shared, wanted, root=root, **REAL).ok


@pytest.mark.req("L-03", "L-15")
def test_a_failed_preflight_writes_nothing(shared: Store[Any]) -> None:
    wanted = manifest()
    build(shared, wanted, root=f"first {wanted.collection}", **REAL)
    changed = read_manifest(
        {"collection": wanted.collection, "values": [value(wanted.values[0].operation_code, semantics_frozen="other")]}
    )
    with pytest.raises(RegistryError) as caught:
        build(shared, changed, root="changed", **REAL)
    assert (caught.value.code, caught.value.context["stop_state"]) == ("C1_WRITE_ONCE_VIOLATED", "ABORT_PREFLIGHT")
    dry = build(shared, changed, root="changed", **WHO)
    assert (dry.report.verdict, dry.preflight, dry.code, dry.ok) == (
        "ABORT_PREFLIGHT", "NO_GO", "C1_WRITE_ONCE_VIOLATED", False,
    )  # fmt: skip
    with shared.reading() as reading:
        assert reading.runs.get("changed") is None


@pytest.mark.req("L-05", "L-24")
def test_a_schema_changed_during_a_build_is_found(shared: Store[Any]) -> None:
    wanted = manifest()
    root, table = f"schema {wanted.collection}", "holdfast_collections"
    where = f"WHERE collection = '{wanted.collection}'"
    broken = at("after S2_SCHEMA", lambda: by_hand(shared.url, f"UPDATE {table} SET schema = '{{}}' {where}"))
    built = stopped(shared, wanted, root, world=broken)
    assert (built.report.verdict, built.code) == ("COMP_SCHEMA", "REJECT_WRONG_CARRIER")
    again = build(shared, wanted, root=root, **REAL)
    assert (again.report.verdict, again.report.state) == ("COMP_SCHEMA", "stopped")
    by_hand(shared.url, f"UPDATE {table} SET schema = '{wanted.schema_text}' {where}")
    assert build(shared, wanted, root=root, **REAL).report.verdict == "DONE"


@pytest.mark.req("L-06", "L-13", "L-24")
def test_an_unlisted_value_is_found_before_any_value_is_in_force(shared: Store[Any]) -> None:
    """While a build runs, the database accepts a value under its grant: the build must find foreign values."""
    wanted = manifest()

    def inject() -> None:
        columns = (
            "vocab_id, collection, operation_code, protocol_version, act_type, semantics, authority_ref, digest,"
            " status, state, version, run_id, created_at, updated_at, event, actor, reason, move_id, grant_id"
        )
        by_hand(
            shared.url,
            f"INSERT INTO holdfast_values ({columns}) SELECT 'x' || vocab_id, collection, operation_code || 'x',"
            " protocol_version, act_type, semantics, authority_ref, digest, status, state, version, run_id,"
            " created_at, updated_at, event, 'mallory', reason, 'x' || move_id, grant_id FROM holdfast_values"
            f" WHERE operation_code = '{wanted.collection}.a'",
        )

    built = stopped(shared, wanted, f"injected {wanted.collection}", world=at("after S4_VALUES", inject))
    assert (built.report.verdict, built.code) == ("COMP_VALUES", "REJECT_NON_GOVERNED_VALUE_INJECTION")
    assert registry_status(shared, wanted) == ("withheld", {"withheld"})
    # It is withheld with the rest, and stays so.
    assert build(shared, wanted, root=f"injected {wanted.collection}", **REAL).report.verdict == "DONE"
    assert in_force(shared, wanted.collection) == names(wanted)
    with shared.reading() as reading:
        row = reading.registry.value(f"{wanted.collection}.ax", "1.0.0")
        assert row is not None
        assert row.status == "withheld"
        assert [(fault.code, fault.subject) for fault in faults(reading)] == [
            ("MANIFEST_DIGEST_MISMATCH", f"{wanted.collection}.ax@1.0.0")
        ]


@pytest.mark.req("L-20")
def test_values_in_force_stay_so_when_a_later_build_stops(shared: Store[Any]) -> None:
    first = manifest(codes="ab")
    build(shared, first, root=f"1 {first.collection}", **REAL)
    prefix = first.collection
    more = read_manifest({"collection": prefix, "values": [value(f"{prefix}.b"), value(f"{prefix}.c")]})
    root = f"2 {prefix}"
    built = build(shared, more, root=root, world=thrown_after(shared, "S6_EVIDENCE"), **REAL)
    assert (built.report.verdict, built.report.state) == ("COMP_FINALIZE", "stopped")
    assert in_force(shared, prefix) == names(first)
    assert registry_status(shared, more) == ("in force", {"in force", "withheld"})
    hold(shared, on=False, actor="bob", reason="all clear")
    build(shared, more, root=root, **REAL)
    assert in_force(shared, prefix) == [f"{prefix}.{code}@1.0.0" for code in "abc"]


@pytest.mark.req("L-20", "L-16")
def test_a_withheld_version_does_not_block_the_next_build(shared: Store[Any]) -> None:
    first = manifest(codes="a")
    root = f"1 {first.collection}"
    stopped(shared, first, root, world=thrown_after(shared, "S4_VALUES"))
    hold(shared, on=False, actor="bob", reason="all clear")
    code = first.values[0].operation_code
    corrected = read_manifest({"collection": first.collection, "values": [value(code, "1.0.1")]})
    assert build(shared, corrected, root=f"2 {first.collection}", **REAL).report.verdict == "DONE"
    assert in_force(shared, first.collection) == [f"{code}@1.0.1"]
    with pytest.raises(RegistryError) as caught:
        build(shared, first, root=root, **REAL)
    assert (caught.value.code, caught.value.context["gate"]) == ("WRONG_CANONICAL_OPERATION_FOR_EFFECT", "PF2")
    with shared.reading() as reading:
        assert [fault for fault in faults(reading) if first.collection in fault.subject] == []


@pytest.mark.req("L-10")
def test_a_stopped_build_continues_under_a_new_grant_of_another_operator(shared: Store[Any]) -> None:
    wanted = manifest()
    root = f"handed {wanted.collection}"
    stopped(shared, wanted, root, world=thrown_after(shared, "S4_VALUES"))
    hold(shared, on=False, actor="bob", reason="all clear")
    assert build(shared, wanted, root=root, actor="carol", reason="ann is ill", mode="REAL_RUN").ok
    with shared.reading() as reading:
        found = reading.runs.get(root)
        assert found is not None
        grants = {(grant.consumed_by, grant.state) for grant in reading.grants.page(target=found.lease)}
    assert grants == {("ann", "consumed"), ("carol", "consumed")}


# ---------------------------------------------------------------------------------------------------------------------
# Compensations that fail


def failing_at_the_end(at_: StepContext) -> None:
    raise StepFailed("a last state that fails")


LONGER = Procedure(
    name=BUILD.name,
    version=BUILD.version,
    checks=BUILD.checks,
    steps=(*BUILD.steps, Step("S8_FAILS", failing_at_the_end, stop="COMP_LATE")),
    act=BUILD.act,
    target=BUILD.target,
    manifest=BUILD.manifest,
)
"""The build with a state after its last: only then can S7 be undone at all."""

# The state whose undoing fails; the write that is refused.
UNDOINGS = [
    ("S7_FINALIZE", "UPDATE", "holdfast_values", "OLD.status = 'in force'"),
    ("S6_EVIDENCE", "UPDATE", "holdfast_evidence", "true"),
    ("S4_VALUES", "UPDATE", "holdfast_values", "NEW.status = 'withheld'"),
    ("S2_SCHEMA", "UPDATE", "holdfast_collections", "NEW.status = 'withheld'"),
    ("S0_PREFLIGHT", "INSERT", "holdfast_evidence", "NEW.kind = 'failure_artifact'"),
]


@pytest.mark.req("L-21", "L-24")
@pytest.mark.parametrize("state, event, table, condition", UNDOINGS, ids=[state for state, *_ in UNDOINGS])
def test_a_failed_undo_is_recorded_and_succeeds_when_retried(
    shared: Store[Any], state: str, event: str, table: str, condition: str
) -> None:
    wanted = manifest()
    root = f"undoing {wanted.collection}"
    what, stop, last = (LONGER, "COMP_LATE", "S7_FINALIZE") if state == "S7_FINALIZE" else (
        BUILD, "COMP_FINALIZE", "S6_EVIDENCE",
    )  # fmt: skip
    broken = at(f"before {stop}", lambda: by_hand(shared.url, *boom(shared.dialect, "boom", event, table, condition)))
    world = both(thrown_after(shared, last), broken) if what is BUILD else broken
    report = run(shared, what, wanted.text, root=root, mode=Mode.REAL_RUN, world=world, **WHO)
    assert (report.verdict, report.state) == (stop, "compensating")
    fates = {step.name: step.fate for step in report.steps}
    assert fates[state] == "stuck"
    assert f"{state} could not be undone" in (report.failure or "")
    assert in_force(shared, wanted.collection) == (names(wanted) if state == "S7_FINALIZE" else [])
    # Tried again, it fails again, and says so; nothing is skipped.
    still = resume(shared, what, root=root, **WHO)
    assert (still.verdict, still.state) == (stop, "compensating")
    by_hand(shared.url, *calm(shared.dialect, "boom", table))
    report = resume(shared, what, root=root, **WHO)
    assert (report.verdict, report.state) == (stop, "stopped")
    assert registry_status(shared, wanted) == ("withheld", {"withheld"})
    with shared.reading() as reading:
        found = reading.runs.get(root)
        assert found is not None
        kept = [row.kind for row in reading.runs.evidence(found.run_id) if row.voided_at is None]
    assert kept == ["failure_artifact"]
    if what is BUILD:
        hold(shared, on=False, actor="bob", reason="all clear")
        assert build(shared, wanted, root=root, **REAL).report.verdict == "DONE"


@pytest.mark.req("L-21")
@pytest.mark.parametrize(
    "point",
    ["before undoing S6_EVIDENCE",
     *(f"{moment} undoing {state}" for state in ("S6_EVIDENCE", "S4_VALUES", "S2_SCHEMA", "S0_PREFLIGHT")
       for moment in ("inside", "after"))],
)  # fmt: skip
def test_a_crash_during_the_undo_is_resumed(shared: Store[Any], point: str) -> None:
    wanted = manifest()
    root = f"crashed {wanted.collection}"
    world = both(thrown_after(shared, "S6_EVIDENCE"), crashing(point))
    with pytest.raises(Crash):
        build(shared, wanted, root=root, world=world, **REAL)
    assert in_force(shared, wanted.collection) == []
    report = resume(shared, BUILD, root=root, **WHO)
    assert (report.verdict, report.state) == ("COMP_FINALIZE", "stopped")
    assert registry_status(shared, wanted) == ("withheld", {"withheld"})
    hold(shared, on=False, actor="bob", reason="all clear")
    assert build(shared, wanted, root=root, **REAL).report.verdict == "DONE"


# ---------------------------------------------------------------------------------------------------------------------
# Writes that fail


@pytest.mark.req("L-07", "L-24")
@pytest.mark.parametrize(
    "state, stop, table",
    [("S2_SCHEMA", "COMP_SCHEMA", "holdfast_collections"), ("S4_VALUES", "COMP_VALUES", "holdfast_values"),
     ("S6_EVIDENCE", "COMP_EVIDENCE", "holdfast_evidence")],
)  # fmt: skip
def test_a_write_that_the_database_refuses_stops_the_build(
    shared: Store[Any], state: str, stop: str, table: str
) -> None:
    wanted = manifest()
    root, before = f"refused {wanted.collection}", STATES[STATES.index(state) - 1]
    condition = "NEW.kind = 'readback'" if table == "holdfast_evidence" else "true"
    broken = at(f"after {before}", lambda: by_hand(shared.url, *boom(shared.dialect, "no", "INSERT", table, condition)))
    built = stopped(shared, wanted, root, world=broken)
    assert (built.report.verdict, built.report.stop_state) == (stop, stop)
    assert "boom" in (built.report.failure or "")
    by_hand(shared.url, *calm(shared.dialect, "no", table))
    assert build(shared, wanted, root=root, **REAL).report.verdict == "DONE"
