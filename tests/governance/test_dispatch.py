"""The dispatcher validates in one order and carries nothing out; a dev collection is dismantled and its audit stays."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import InputError, RegistryError
from holdfast.governance.registry.dismantle import dismantle
from holdfast.governance.registry.dispatch import CONTRACTS, DispatchSummary, dispatch
from holdfast.governance.registry.registry import build, faults, resolve
from holdfast.store import Store, Submission
from tests.governance.registries import (
    BOTH,
    REAL,
    WHO,
    built,
    everything,
    governed,
    in_force,
    manifest,
    registry_status,
)
from tests.support.ledgers import new_store

shared = pytest.fixture(scope="module", params=BOTH, name="shared")(governed)

BUILD = "DOT_C1_VOCAB_BUILD"
SOUND: dict[str, Any] = {
    "contract": BUILD,
    "correlation_id": "release-7",
    "actor": "ann",
    "mode": "DRY_RUN",
    "idempotency_root": "DRYRUN-NS:release-7",
    "fixture": manifest("fixture").text,
}


def dispatched(store: Store[Any], **given: Any) -> DispatchSummary:
    request = {**SOUND, **given}
    return dispatch(store, request.pop("contract"), **request)


# Every check in its order: what fails it, and the answer. A request that fails a check fails all later ones too.
BLOCKED: list[tuple[dict[str, Any], str, str]] = [
    ({"contract": "DOT_C1_NOTHING"}, "correlation", "REJECT_CONTRACT_UNKNOWN"),
    ({"fixture": None}, "tool", "REJECT_FIXTURE_MISSING"),
    ({"fixture": {"values": []}}, "tool", "REJECT_FIXTURE_INVALID"),
    ({"fixture": {"values": 1}}, "tool", "REJECT_FIXTURE_INVALID"),
    ({"idempotency_root": "release-7"}, "fixture", "REJECT_NAMESPACE_MISSING"),
    ({"idempotency_root": "DRYRUN-NS:"}, "fixture", "REJECT_NAMESPACE_MISSING"),
    ({"contract": "DOT_C1_BAD_INPUT_HARNESS"}, "namespace", "REJECT_ENDPOINT_MISSING"),
]


@pytest.mark.req("L-11")
def test_a_sound_request_is_valid_and_writes_nothing(shared: Store[Any]) -> None:
    before = everything(shared)
    summary = dispatched(shared)
    assert summary.checks == (
        "runtime_gate", "mode", "correlation", "contract", "tool", "fixture", "namespace", "endpoint",
    )  # fmt: skip
    assert (summary.validated, summary.endpoint_present, summary.true_dry_run_possible) == (True, True, True)
    assert (summary.blocker, summary.observation) == (None, None)
    plan = dispatched(shared, mode="PLAN_ONLY", idempotency_root="", fixture=None)
    assert (plan.validated, plan.true_dry_run_possible) == (True, False)
    assert everything(shared) == before


@pytest.mark.req("L-11", "L-13")
@pytest.mark.parametrize("given, last, code", BLOCKED)
def test_the_first_check_that_fails_is_the_answer(
    shared: Store[Any], given: dict[str, Any], last: str, code: str
) -> None:
    before = everything(shared)
    summary = dispatched(shared, **given)
    assert (summary.validated, summary.true_dry_run_possible, summary.blocker) == (False, False, code)
    assert summary.checks[-1] == last
    assert everything(shared) == before


@pytest.mark.req("L-11", "L-13")
def test_of_several_faults_the_earliest_is_reported(shared: Store[Any]) -> None:
    all_wrong = {"fixture": None, "idempotency_root": "nowhere"}
    assert dispatched(shared, **all_wrong, contract="DOT_C1_NOTHING").blocker == "REJECT_CONTRACT_UNKNOWN"
    assert dispatched(shared, **all_wrong, contract="DOT_C1_BAD_INPUT_HARNESS").blocker == "REJECT_FIXTURE_MISSING"
    with pytest.raises(InputError) as missing:
        dispatched(shared, **all_wrong, contract="DOT_C1_NOTHING", correlation_id=" ")
    assert missing.value.context["field"] == "correlation_id"
    with pytest.raises(RegistryError) as bad:
        dispatched(shared, **all_wrong, correlation_id=" ", mode="FULL_SPEED")
    assert bad.value.code == "REJECT_BAD_MODE"


@pytest.mark.req("L-11", "L-09", "L-22")
def test_dispatch_refuses_every_real_run(shared: Store[Any]) -> None:
    before = everything(shared)
    for contract in (*CONTRACTS, "DOT_C1_NOTHING"):
        with pytest.raises(RegistryError) as caught:
            dispatched(shared, contract=contract, mode="REAL_RUN", write_observation=True)
        assert caught.value.code == "C1_PROD_REAL_RUN_BLOCKED"
    assert everything(shared) == before


@pytest.mark.req("L-11")
def test_a_ledger_without_a_registry_is_refused_before_other_checks(sqlite_url: str) -> None:
    with new_store(sqlite_url) as store:
        summary = dispatched(store, mode="REAL_RUN", correlation_id="")  # nothing else is looked at
        assert (summary.validated, summary.blocker, summary.checks) == (False, "VOCABULARY_RUNTIME_OVERCLAIM", ())


@pytest.mark.req("L-11")
def test_an_observation_is_kept_once(shared: Store[Any]) -> None:
    first = dispatched(shared, write_observation=True)
    before = everything(shared)
    assert dispatched(shared, write_observation=True) == first
    assert everything(shared) == before
    assert first.observation is not None
    other = dispatched(shared, write_observation=True, idempotency_root="DRYRUN-NS:other")
    assert other.observation not in (None, first.observation)
    with pytest.raises(InputError):
        dispatched(shared, write_observation=True, mode="PLAN_ONLY", idempotency_root="")


@pytest.mark.req("L-11")
@pytest.mark.parametrize("contract", CONTRACTS)
def test_every_contract_has_a_tool(shared: Store[Any], contract: str) -> None:
    summary = dispatched(shared, contract=contract, mode="VERIFY_ONLY")
    assert summary.validated
    assert "tool" in summary.checks


# ---------------------------------------------------------------------------------------------------------------------
# Dismantling


@pytest.mark.req("L-20")
def test_a_dismantled_collection_is_not_in_force_and_stays_on_record(shared: Store[Any]) -> None:
    wanted = built(shared)
    rehearsed = dismantle(shared, wanted.collection, **WHO)
    assert rehearsed.ok
    assert registry_status(shared, wanted) == ("in force", {"in force"})

    done = dismantle(shared, wanted.collection, **REAL)
    assert (done.verdict, done.state) == ("DONE", "done")
    assert in_force(shared, wanted.collection) == []
    assert registry_status(shared, wanted) == ("withheld", {"withheld"})
    with shared.reading() as reading:
        assert len(reading.registry.values(collection=wanted.collection)) == len(wanted.values)
        with pytest.raises(RegistryError):
            resolve(reading, *wanted.values[0].key)
        run = reading.runs.get(done.root)
        assert run is not None
        assert [(row.kind, row.voided_at) for row in reading.runs.evidence(run.run_id)] == [("dismantling", None)]
        first = reading.runs.get(wanted.collection)
        assert first is not None
        assert len(reading.runs.evidence(first.run_id)) == 10  # of the build: all of it is still there
        assert faults(reading) == []
    again = build(shared, wanted, **REAL)  # under a root of its own: the old run is done
    assert again.report.verdict == "DONE"
    assert registry_status(shared, wanted) == ("in force", {"in force"})


@pytest.mark.req("L-20")
def test_a_collection_with_open_jobs_or_outside_dev_is_not_dismantled(shared: Store[Any], sqlite_url: str) -> None:
    wanted = built(shared, collection="operations")
    value = wanted.values[0]
    with shared.transaction() as transaction:
        submission = Submission(
            operation=value.operation_code, operation_version=value.protocol_version, client="t", payload="{}"
        )
        transaction.jobs.submit([submission])
    before = everything(shared)
    with pytest.raises(RegistryError) as caught:
        dismantle(shared, wanted.collection, **REAL)
    assert (caught.value.code, caught.value.context["verdict"]) == ("ROLLBACK_ORPHANS_DEPENDENCY", "RBP-3")
    with pytest.raises(RegistryError) as unknown:
        dismantle(shared, "nothing", **REAL)
    assert unknown.value.code == "CANONICAL_OPERATION_VOCABULARY_REQUIRED_NOT_PRESENT"
    assert everything(shared) == before
    with new_store(sqlite_url, environment="prod", governed=True) as prod, pytest.raises(RegistryError) as refused:
        dismantle(prod, "operations", **REAL)
    assert refused.value.code == "REJECT_PRODUCTION_TARGET"
    assert "registry retire" in (refused.value.hint or "")  # a collection has no manifest to correct
