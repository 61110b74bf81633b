"""The build of the registry: its end, its crashes and its races; nothing half built is ever in force.

Other topics of a registry are tested in test_vocabulary.py (versions, duplicates, one code across versions, successors
in a circle, ambiguous serialisation), test_registry_stops.py (partial failure, retry, an audit that cannot be written),
test_registry_codes.py (forged authority) and test_registry_gateway.py (direct inserts, write-once).
"""

from __future__ import annotations

import json
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.digest import cser_digest, sha256
from holdfast.core.errors import AuthorityError, IdempotencyConflictError, RegistryError, RuntimeLeaseError
from holdfast.core.manifest import read_manifest
from holdfast.core.vocabulary import vocab_id
from holdfast.engine.world import Crash
from holdfast.governance.approval import Identity
from holdfast.governance.grants import approve
from holdfast.governance.registry.build import BUILD
from holdfast.governance.registry.build_proof import EVIDENCE
from holdfast.governance.registry.registry import build, default_root, faults, request_build, resolve
from holdfast.governance.runs.procedure import resume
from holdfast.store import Store
from tests.governance.registries import (
    BOTH,
    REAL,
    STATES,
    WHO,
    at,
    crashing,
    everything,
    governed,
    image,
    in_force,
    manifest,
    names,
    registry_status,
    value,
)
from tests.support.forkserver import ForkServer, shared_server

shared = pytest.fixture(scope="module", params=BOTH, name="shared")(governed)


@pytest.fixture(scope="module")
def uninterrupted(shared: Store[Any]) -> dict[str, Any]:
    """The image of an undisturbed build."""
    wanted = manifest()
    assert build(shared, wanted, root="reference", **REAL).report.verdict == "DONE"
    return image(shared, wanted, "reference")


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with shared_server("tests.governance.registries") as server:
        yield server


def granted(store: Store[Any], wanted: Any, executor: str = "ann") -> int:
    draft = request_build(
        store, wanted, executor=executor, requester=executor, rollback_plan="supersede them", reason="release 7"
    )
    return approve(store, draft.grant_id, Identity(name="bob")).grant_id


# ---------------------------------------------------------------------------------------------------------------------
# The end


@pytest.mark.req("L-01", "L-05", "L-06", "L-07", "L-16", "L-24")
def test_a_build_puts_exactly_its_manifest_in_force(shared: Store[Any]) -> None:
    wanted = manifest("end", codes="ba")
    built = build(shared, wanted, root="end", **REAL)
    assert (built.report.verdict, built.report.state, built.op_count, built.code) == ("DONE", "done", 2, None)
    assert [(step.name, step.fate) for step in built.report.steps] == [(name, "performed") for name in STATES]
    assert in_force(shared, "end") == ["end.a@1.0.0", "end.b@1.0.0"]
    with shared.reading() as reading:
        known, run = reading.registry.collection("end"), reading.runs.get("end")
        assert known is not None
        assert run is not None
        assert (known.status, known.manifest_digest, known.run_id) == ("in force", wanted.digest, run.run_id)
        assert known.schema_digest == cser_digest(json.loads(known.schema)) == wanted.schema_digest
        rows = reading.registry.values(collection="end")
        assert [(row.vocab_id, row.operation_code, row.protocol_version, row.act_type, row.authority_ref, row.semantics,
                 row.digest, row.state, row.version, row.run_id, row.grant_id, row.successor_code) for row in rows] == [
            (vocab_id("end", each.operation_code, "1.0.0"), each.operation_code, "1.0.0", "operation", "board:7",
             '{"description":"does it"}', each.digest, "active", 1, run.run_id, run.grant_id, None)
            for each in wanted.values
        ]  # fmt: skip
        history = [reading.journal.of(row.value_id, "VALUE") for row in rows]
        assert [
            [(entry.event, entry.target, entry.actor, entry.grant_id) for entry in entries] for entries in history
        ] == [[("admit", "active", "ann", run.grant_id)]] * 2
        assert resolve(reading, "end.a", "1.0.0").digest == wanted.values[0].digest
        assert faults(reading) == []


@pytest.mark.req("L-07", "L-23", "L-24")
def test_the_evidence_is_complete_and_matches_the_rows(shared: Store[Any]) -> None:
    wanted = manifest("evidence", codes="a")
    build(shared, wanted, root="evidence", **REAL)
    with shared.reading() as reading:
        run = reading.runs.get("evidence")
        assert run is not None
        rows = reading.runs.evidence(run.run_id)
        seals = {row.kind: (row.subject, row.actor, row.grant_id, row.voided_at) for row in rows}
        evidence = {row.kind: json.loads(row.content) for row in rows}
        assert [row.digest for row in rows] == [sha256(row.content) for row in rows]
        step = reading.runs.performed_steps(run.run_id)[6]
    assert seals == dict.fromkeys(EVIDENCE, ("registry:evidence", "ann", run.grant_id, None))
    assert json.loads(step.outcome)["digests"] == {row.kind: row.digest for row in rows}
    [only] = wanted.values
    nothing = cser_digest({"values": []})
    assert evidence["before_snapshot"] == {"collection": None, "schema": None, "values": {}, "digest": nothing}
    assert evidence["input_hashes"] == {"manifest": wanted.digest, "params": sha256(run.params)}
    assert evidence["planned_diff"] == {"staged": ["evidence.a@1.0.0"], "kept": 0}
    assert evidence["command_log"] == {
        "procedure": "registry.build", "root": "evidence", "actor": "ann", "steps": list(STATES[:6]),
    }  # fmt: skip
    assert [gate["gate"] for gate in evidence["test_log"]["gates"]] == [f"PF{n}" for n in range(1, 10)]
    assert evidence["test_log"]["values"] == evidence["readback"] == {"manifest_digest": wanted.digest, "count": 1}
    assert evidence["rollback_log"] == []
    rows_after = [{"value": "evidence.a@1.0.0", "digest": only.digest, "status": "staged", "state": "active"}]
    assert evidence["after_snapshot"] == {
        "collection": "staged", "schema": wanted.schema_digest, "values": {"staged": 1}, "rows": rows_after,
        "digest": cser_digest({"values": rows_after}),
    }  # fmt: skip
    assert evidence["digest_proof"] == {
        "plan": run.plan, "schema": wanted.schema_digest, "manifest": wanted.digest,
        "values": {"evidence.a@1.0.0": only.digest},
    }  # fmt: skip
    assert evidence["failure_artifact"] is None


@pytest.mark.req("L-03", "L-17", "L-22", "L-25", "L-24")
def test_a_dry_run_is_the_default_and_changes_nothing(shared: Store[Any]) -> None:
    wanted = manifest("dry")
    before = everything(shared)
    built = build(shared, wanted, **WHO)
    assert everything(shared) == before
    report = built.report
    assert (built.ok, built.manifest_hash, built.op_count) == (True, wanted.digest, 3)
    assert (report.mode, report.verdict, report.state) == ("DRY_RUN", "GO", "none")
    assert (report.authority, report.persistent_state, report.seal) == (
        "REJECT_AUTH_MISSING", "NONE", "WITHHELD_DRY_RUN",
    )  # fmt: skip
    assert report.plan == cser_digest(
        {"procedure": "registry.build", "version": "1.0.0", "steps": list(STATES), "params": wanted.text}
    )
    grant_id = granted(shared, wanted)
    before = everything(shared)
    assert build(shared, wanted, grant_id=grant_id, **WHO).report.authority == "GO"
    assert build(shared, wanted, mode="PLAN_ONLY", **WHO).preflight == "NOT_ASKED"
    verified = build(shared, wanted, mode="VERIFY_ONLY", grant_id=grant_id, **WHO)
    assert (verified.report.verdict, verified.preflight, verified.report.persistent_state) == ("GO", "GO", "NONE")
    assert everything(shared) == before


@pytest.mark.req("L-05", "L-08")
def test_a_build_is_verified_against_what_is_stored(shared: Store[Any]) -> None:
    wanted = manifest("verified")
    build(shared, wanted, root="verified", **REAL)
    before = everything(shared)
    report = build(shared, wanted, root="verified", mode="VERIFY_ONLY", **WHO).report
    assert (report.verdict, report.state) == ("DONE", "done")
    fates = {step.name: step.fate for step in report.steps}
    assert {name for name, fate in fates.items() if fate == "passed"} == {
        "S3_VERIFY_SCHEMA", "S5_VERIFY_VALUES", "S6_EVIDENCE", "S7_FINALIZE",
    }  # fmt: skip
    assert everything(shared) == before


@pytest.mark.req("L-08")
def test_the_same_build_again_does_nothing(shared: Store[Any]) -> None:
    wanted = manifest("again")
    first = build(shared, wanted, **REAL)
    before = everything(shared)
    again = build(shared, wanted, **REAL)
    assert (again.report.verdict, again.report.root) == ("DONE", default_root(wanted))
    assert first.report.root == again.report.root
    assert {step.fate for step in again.report.steps} == {"skipped"}
    assert everything(shared) == before
    with pytest.raises(IdempotencyConflictError):
        build(shared, manifest("another"), root=default_root(wanted), **REAL)
    assert everything(shared) == before


@pytest.mark.req("L-06", "L-24")
def test_a_second_build_adds_to_what_is_in_force_and_keeps_the_rest(shared: Store[Any]) -> None:
    first = read_manifest({"collection": "grow", "values": [value("grow.a"), value("grow.b")]})
    build(shared, first, root="grow-1", **REAL)
    more = read_manifest({"collection": "grow", "values": [value("grow.b"), value("grow.c")]})
    with shared.reading() as reading:
        before = reading.registry.value("grow.b", "1.0.0")
    built = build(shared, more, root="grow-2", **REAL)
    assert built.report.steps[4].outcome == {"staged": ["grow.c@1.0.0"], "kept": 1}
    assert in_force(shared, "grow") == ["grow.a@1.0.0", "grow.b@1.0.0", "grow.c@1.0.0"]
    with shared.reading() as reading:
        assert reading.registry.value("grow.b", "1.0.0") == before
        known = reading.registry.collection("grow")
        assert known is not None
        assert known.manifest_digest == more.digest
        assert faults(reading) == []


# ---------------------------------------------------------------------------------------------------------------------
# Crashes

POINTS = [
    "before checks",
    *(f"{moment} {state}" for state in STATES[1:] for moment in ("before", "inside", "after")),
]


@pytest.mark.req("L-01", "L-02", "L-04", "L-08", "L-09", "L-10", "L-24")
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_anywhere_is_resumed_to_the_same_end(
    shared: Store[Any], uninterrupted: dict[str, Any], point: str
) -> None:
    wanted = manifest()
    root = f"crash {wanted.collection}"
    with pytest.raises(Crash):
        build(shared, wanted, root=root, world=crashing(point), **REAL)
    done = point == "after S7_FINALIZE"
    assert in_force(shared, wanted.collection) == (names(wanted) if done else [])
    begun = POINTS.index(point) >= POINTS.index("after S1_RESERVED")
    with shared.reading() as reading:
        states = [grant.state for grant in reading.grants.page(target=f"registry:{wanted.collection}")]
    assert states == (["consumed"] if begun else [])
    seen: list[list[str]] = []
    looking = at("before S7_FINALIZE", lambda: seen.append(in_force(shared, wanted.collection)))
    assert build(shared, wanted, root=root, world=looking, **REAL).report.verdict == "DONE"
    assert seen == ([] if done else [[]])
    assert in_force(shared, wanted.collection) == names(wanted)
    assert image(shared, wanted, root) == uninterrupted


@pytest.mark.req("L-06")
def test_a_reader_during_a_build_sees_no_values_or_all(shared: Store[Any]) -> None:
    wanted = manifest(codes="abcdefghijkl")
    over, seen = threading.Event(), list[int]()

    def look() -> None:
        while not over.is_set():
            seen.append(len(in_force(shared, wanted.collection)))

    looker = threading.Thread(target=look)
    looker.start()
    try:
        assert build(shared, wanted, root=f"watched {wanted.collection}", **REAL).ok
        while seen[-1:] != [12]:
            time.sleep(0.001)
    finally:
        over.set()
        looker.join()
    assert set(seen) == {0, 12}
    assert seen == sorted(seen)


@pytest.mark.req("L-08", "L-09", "L-24")
@pytest.mark.parametrize("point", ["inside S1_RESERVED", "after S1_RESERVED", "inside S4_VALUES", "inside S7_FINALIZE"])
def test_a_build_of_a_killed_process_is_taken_over(
    shared: Store[Any], uninterrupted: dict[str, Any], forks: ForkServer, point: str
) -> None:
    wanted = manifest()
    root = f"killed {wanted.collection}"
    child = forks.spawn(
        "tests.governance.registries:die_at", url=shared.url, document=wanted.text, root=root, point=point
    )
    assert child.wait(30) == -signal.SIGKILL
    assert in_force(shared, wanted.collection) == []
    with shared.reading() as reading:
        run = reading.runs.get(root)
    # By its root alone, as it is on record; one that was never begun is built.
    report = resume(shared, BUILD, root=root, **WHO) if run else build(shared, wanted, root=root, **REAL).report
    assert report.verdict == "DONE"
    assert image(shared, wanted, root) == uninterrupted


@pytest.mark.req("L-04", "L-10")
def test_no_other_build_begins_while_one_is_unfinished(shared: Store[Any]) -> None:
    wanted = manifest()
    with pytest.raises(Crash):
        build(shared, wanted, root="left", world=crashing("after S4_VALUES"), **REAL)
    before = everything(shared)
    with pytest.raises(RegistryError) as caught:
        build(shared, wanted, root="other", **REAL)
    assert (caught.value.code, caught.value.context["gate"]) == ("REJECT_C2_CROSS_MUTATION", "PF8")
    assert everything(shared) == before
    assert build(shared, wanted, root="left", **REAL).report.verdict == "DONE"


@pytest.mark.req("L-04", "L-01")
def test_a_second_holder_gets_no_lease_and_has_written_nothing(shared: Store[Any]) -> None:
    wanted = manifest()
    with shared.transaction() as transaction:
        transaction.leases.acquire(f"registry:{wanted.collection}", "somebody", 60)
    before = everything(shared)
    with pytest.raises(RuntimeLeaseError) as caught:
        build(shared, wanted, root="late", **REAL)
    assert caught.value.context["stop_state"] == "ABORT_NO_LEASE"
    assert everything(shared) == before
    grant_id = granted(shared, wanted)
    before = everything(shared)
    with pytest.raises(RuntimeLeaseError):
        build(shared, wanted, root="late", grant_id=grant_id, **REAL)
    assert everything(shared) == before  # the grant is untouched


# ---------------------------------------------------------------------------------------------------------------------
# Races


@pytest.mark.req("L-04", "L-10", "L-24")
def test_of_two_processes_with_one_grant_one_builds(shared: Store[Any], forks: ForkServer) -> None:
    for _ in range(3):
        wanted = manifest()
        grant_id = granted(shared, wanted)
        with tempfile.TemporaryDirectory() as directory:
            answers = _raced(shared.url, wanted, grant_id, forks, Path(directory))
        assert sorted(answers.values()) == ["DONE", "REJECT_AUTH_ALREADY_CONSUMED"]
        [loser] = [root for root, said in answers.items() if said != "DONE"]
        with shared.reading() as reading:
            assert reading.runs.get(loser) is None
            [grant] = reading.grants.page(target=f"registry:{wanted.collection}")
            assert (grant.grant_id, grant.state, grant.version) == (grant_id, "consumed", 3)
            runs = [run.idempotency_root for run in reading.runs.page() if run.lease == f"registry:{wanted.collection}"]
            rows = reading.registry.values(collection=wanted.collection)
        assert runs == [root for root in answers if root != loser]
        assert len(rows) == 3
        assert in_force(shared, wanted.collection) == names(wanted)


def _raced(url: str, wanted: Any, grant_id: int, forks: ForkServer, directory: Path) -> dict[str, str]:
    roots = [f"{wanted.collection}-{n}" for n in range(2)]
    given = {"url": url, "document": wanted.text, "grant_id": grant_id, "directory": str(directory)}
    children = [forks.spawn("tests.governance.registries:race", root=root, **given) for root in roots]
    while not all((directory / f"{root}.ready").exists() for root in roots):
        assert all(child.running for child in children), forks.log
        time.sleep(0.002)
    (directory / "gate").touch()
    assert [child.wait(30) for child in children] == [0, 0], forks.log
    return {root: (directory / root).read_text(encoding="utf-8") for root in roots}


@pytest.mark.req("L-04", "L-10", "L-24")
def test_a_grant_that_is_used_while_another_looks_is_not_used_twice(shared: Store[Any]) -> None:
    """The loser has passed its preflight and waits when the winner consumes the grant."""
    wanted = manifest()
    grant_id = granted(shared, wanted)
    won = threading.Event()
    verdicts: list[str] = []

    def winner() -> None:
        verdicts.append(build(shared, wanted, root="winner", grant_id=grant_id, **REAL).report.verdict)
        won.set()

    def let_in() -> None:
        threading.Thread(target=winner).start()
        assert won.wait(30)

    with pytest.raises(AuthorityError) as caught:
        build(shared, wanted, root="loser", grant_id=grant_id, world=at("before S1_RESERVED", let_in), **REAL)
    assert (caught.value.code, verdicts) == ("REJECT_AUTH_ALREADY_CONSUMED", ["DONE"])
    with shared.reading() as reading:
        assert reading.runs.get("loser") is None


@pytest.mark.req("L-10", "L-24")
def test_a_used_grant_builds_nothing_more(shared: Store[Any]) -> None:
    wanted = manifest()
    grant_id = granted(shared, wanted)
    build(shared, wanted, root="first use", grant_id=grant_id, **REAL)
    before = everything(shared)
    with pytest.raises(AuthorityError) as caught:
        build(shared, wanted, root="second use", grant_id=grant_id, **REAL)
    assert (caught.value.code, caught.value.context["gate"]) == ("REJECT_AUTH_ALREADY_CONSUMED", "PF5")
    assert everything(shared) == before
    assert registry_status(shared, wanted) == ("in force", {"in force"})
