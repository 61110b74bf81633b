"""Supersession and retirement: one transaction, one grant, one audit row; one code a refusal; nothing is deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from holdfast.core.decide import Refused
from holdfast.core.digest import sha256
from holdfast.core.errors import HoldfastError, RefusedByDatabaseError, RegistryError, RuntimeLeaseError
from holdfast.core.manifest import read_manifest
from holdfast.core.rollback import Contract, Disposition, RollbackVerdict
from holdfast.core.vocabulary import vocab_id
from holdfast.governance.registry.registry import build, faults, hold
from holdfast.governance.registry.supersede import retire, review, supersede
from holdfast.store import Store, Submission
from tests.governance.registries import REAL, WHO, everything, value
from tests.governance.successions import SHIP_1, SHIP_2, built, governed, permitted, states


@pytest.fixture
def store(governed_url: str) -> Iterator[Store[Any]]:
    with governed(governed_url) as store:
        yield store


def refused(act: Any, *given: Any, **named: Any) -> HoldfastError:
    with pytest.raises(HoldfastError) as raised:
        act(*given, **{**WHO, **named})
    return raised.value


def foreseen(*given: Any, **named: Any) -> tuple[str, ...]:
    """Return the codes that a dry run answers with: of its refusal, or of the grant that is missing and the verdict."""
    try:
        would = supersede(*given, **{**WHO, **named, "dry_run": True})
    except HoldfastError as error:
        return (error.code,)
    return would.authority, would.verdict


# ---------------------------------------------------------------------------------------------------------------------
# What is done


@pytest.mark.req("L-16", "L-18", "L-20", "K-58")
def test_a_value_is_followed_by_a_new_one_in_one_move(store: Store[Any]) -> None:
    done = supersede(store, "ship", "1.0.0", "2.0.0", semantics=SHIP_2, **WHO)
    assert (done.value, done.successor, done.admits, done.changed) == ("ship@1.0.0", "ship@2.0.0", True, True)
    assert (done.verdict, done.authority) == (RollbackVerdict.PASS, "GO")
    assert states(store) == {
        "ship@1.0.0": "superseded", "ship@2.0.0": "active", "pack@1.0.0": "active", "tax@1.0.0": "active",
    }  # fmt: skip
    with store.reading() as reading:
        old, new = reading.registry.value_in_force("ship", "1.0.0"), reading.registry.value_in_force("ship", "2.0.0")
        assert old is not None
        assert new is not None
        journal = [entry for row in (old, new) for entry in reading.journal.of(row.value_id, "VALUE")][1:]
        grant = reading.grants.get(done.grant_id or 0)
        assert grant is not None
        used = reading.journal.of(grant.grant_id, "GRANT")[-1]
        [evidence] = reading.query("SELECT * FROM holdfast_evidence WHERE kind = 'supersession'", {})[1]
        leases = {name: lease.expires_at <= reading.now() for name, lease in reading.leases.all().items()}
        assert faults(reading) == []
    # The old value keeps its columns and names its successor; the new one differs in its semantics.
    assert (old.successor_code, old.successor_version, old.rollback_ref) == ("ship", "2.0.0", done.rollback_ref)
    assert (json.loads(old.semantics), json.loads(new.semantics)) == (SHIP_1, SHIP_2)
    assert (new.collection, new.act_type, new.authority_ref) == (old.collection, old.act_type, old.authority_ref)
    assert (new.run_id, new.vocab_id) == (None, vocab_id("operations", "ship", "2.0.0"))
    # One move: the old value, the new one and the grant.
    assert [(row.event, row.source, row.target) for row in journal] == [
        ("supersede", "active", "superseded"), ("admit", None, "active"),
    ]  # fmt: skip
    assert {row.move_id for row in journal} == {used.move_id}
    assert {row.grant_id for row in journal} == {old.grant_id} == {new.grant_id} == {grant.grant_id}
    assert {(row.actor, row.reason) for row in (*journal, used)} == {("ann", "a test")}
    assert (grant.state, grant.action, grant.target) == ("consumed", "registry.supersede", "value:ship@1.0.0")
    assert (used.event, leases) == ("consume", {"registry:operations": True})
    # The audit row says all of it.
    evidence_id, run_id, kind, subject, content, written, actor, grant_id, *_ = evidence
    assert done.rollback_ref == f"evidence:{evidence_id}"
    assert (run_id, kind, subject, actor, grant_id) == (None, "supersession", "value:ship@1.0.0", "ann", grant.grant_id)
    assert written == sha256(content)
    assert json.loads(content) == {
        "act": "supersede",
        "value": "ship@1.0.0",
        "successor": "ship@2.0.0",
        "admits": {**value("ship", "2.0.0"), "semantics_frozen": SHIP_2},
        "plan": done.plan,
        "rollback_plan": "undo by hand: a dev ledger",
        "verdict": "PASS ROLLBACK_CONTRACT_VALID_FOR_REVIEW",
        "reason": "a test",
    }


@pytest.mark.req("L-18", "L-20")
def test_an_earlier_meaning_returns_as_a_new_version(store: Store[Any]) -> None:
    supersede(store, "ship", "1.0.0", "2.0.0", semantics=SHIP_2, **WHO)
    supersede(store, "ship", "2.0.0", "2.0.1", semantics_of="1.0.0", **WHO)
    assert [name for name in states(store).items() if "ship" in name[0]] == [
        ("ship@1.0.0", "superseded"), ("ship@2.0.0", "superseded"), ("ship@2.0.1", "active"),
    ]  # fmt: skip
    with store.reading() as reading:
        rows = reading.registry.values(operation_code="ship")
        follows = {str(old): str(new) for old, new in reading.registry.successions().items()}
        assert faults(reading) == []
    assert [json.loads(row.semantics) for row in rows] == [SHIP_1, SHIP_2, SHIP_1]
    assert len({row.digest for row in rows}) == 3
    assert follows == {"ship@1.0.0": "ship@2.0.0", "ship@2.0.0": "ship@2.0.1"}


@pytest.mark.req("L-18")
def test_without_semantics_the_new_version_keeps_those_of_the_old_one(store: Store[Any]) -> None:
    supersede(store, "ship", "1.0.0", "1.1.0", **WHO)
    with store.reading() as reading:
        new = reading.registry.value_in_force("ship", "1.1.0")
    assert new is not None
    assert json.loads(new.semantics) == SHIP_1


@pytest.mark.req("L-16", "L-18")
def test_an_operation_is_replaced_by_another_that_is_in_force(store: Store[Any]) -> None:
    done = supersede(store, "ship", "1.0.0", "1.0.0", by="pack", **WHO)
    assert (done.successor, done.admits, done.changed) == ("pack@1.0.0", False, True)
    assert states(store) == {"ship@1.0.0": "superseded", "pack@1.0.0": "active", "tax@1.0.0": "active"}
    # What has replaced others can be followed in its turn.
    supersede(store, "pack", "1.0.0", "1.1.0", **WHO)
    assert states(store)["pack@1.0.0"] == "superseded"


@pytest.mark.req("L-18", "L-20")
def test_a_value_is_retired_and_stays_readable(store: Store[Any]) -> None:
    done = retire(store, "ship", "1.0.0", **WHO)
    assert (done.disposition, done.successor, done.changed) == (Disposition.RETIRE, None, True)
    with store.reading() as reading:
        value_ = reading.registry.value_in_force("ship", "1.0.0")
        [(kind, subject)] = reading.execute("SELECT kind, subject FROM holdfast_evidence WHERE run_id IS NULL")
        assert faults(reading) == []
    assert value_ is not None
    assert (value_.state, value_.successor_code, value_.rollback_ref) == ("retired", None, done.rollback_ref)
    assert (kind, subject) == ("retirement", "value:ship@1.0.0")


@pytest.mark.req("L-16")
def test_a_repeated_change_writes_nothing_and_consumes_no_grant(store: Store[Any]) -> None:
    first = supersede(store, "ship", "1.0.0", "2.0.0", semantics=SHIP_2, **WHO)
    gone = retire(store, "pack", "1.0.0", **WHO)
    before = {name: rows for name, rows in everything(store).items() if name != "holdfast_leases"}
    again = supersede(store, "ship", "1.0.0", "2.0.0", **WHO)
    assert again == msgspec.structs.replace(first, admits=False, changed=False)
    assert supersede(store, "ship", "1.0.0", "2.0.0", semantics=SHIP_2, dry_run=True, **WHO) == again
    assert retire(store, "pack", "1.0.0", **WHO) == msgspec.structs.replace(gone, changed=False)
    assert {name: rows for name, rows in everything(store).items() if name != "holdfast_leases"} == before


@pytest.mark.req("L-18", "L-20")
def test_the_database_refuses_to_delete_a_value_or_to_move_it_alone(store: Store[Any]) -> None:
    supersede(store, "ship", "1.0.0", "2.0.0", **WHO)
    moves = "version = version + 1, move_id = 'm', updated_at = updated_at"
    for statement in (
        "DELETE FROM holdfast_values WHERE operation_code = 'ship'",
        "DELETE FROM holdfast_evidence",
        "UPDATE holdfast_evidence SET content = '{}'",
        "UPDATE holdfast_values SET semantics = '{}' WHERE operation_code = 'ship'",
        "UPDATE holdfast_values SET protocol_version = '9.0.0' WHERE operation_code = 'ship'",
        f"UPDATE holdfast_values SET state = 'retired', event = 'retire', {moves} WHERE operation_code = 'pack'",
        f"UPDATE holdfast_values SET state = 'active', event = 'admit', {moves} WHERE state = 'superseded'",
        # A successor that is not there.
        "UPDATE holdfast_values SET successor_version = '9.9.9' WHERE state = 'superseded'",
    ):
        before = everything(store)
        with pytest.raises(RefusedByDatabaseError), store.transaction() as transaction:
            transaction.execute(statement)
        assert everything(store) == before, statement


@pytest.mark.req("L-16")
def test_a_value_moves_only_as_it_was_read_and_under_the_grant_of_the_same_move(store: Store[Any]) -> None:
    with store.reading() as reading:
        read = reading.registry.value("ship", "1.0.0")
    assert read is not None
    move: Any = {"rollback_ref": "evidence:1", "actor": "ann", "reason": "a test", "move_id": "m", "grant_id": 1}
    before = everything(store)
    with store.transaction() as transaction:
        stale = msgspec.structs.replace(read, version=2)
        answer = transaction.registry.move_value(stale, "retire", **move)
        assert isinstance(answer, Refused)
        assert (answer.code, "ship@1.0.0" in answer.message) == ("race", True)
        answer = transaction.registry.move_value(read, "supersede", **move)
        assert isinstance(answer, Refused)
        assert answer.code == "successor_required"
    # The grant of the build was consumed by another move, long ago.
    with pytest.raises(RefusedByDatabaseError) as raised, store.transaction() as transaction:
        transaction.registry.move_value(read, "retire", **move)
    assert raised.value.context["refusal"] == "HF009"
    assert everything(store) == before
    retire(store, "ship", "1.0.0", **WHO)
    with store.transaction() as transaction:
        answer = transaction.registry.move_value(read, "retire", **move)
        assert isinstance(answer, Refused)
        assert (answer.code, "ship@1.0.0" in answer.message) == ("race", True)
        now = transaction.registry.value("ship", "1.0.0")
        assert now is not None
        answer = transaction.registry.move_value(now, "retire", **move)
        assert isinstance(answer, Refused)
        assert answer.code == "wrong_state"
        assert f"value {now.value_id} is retired" in answer.message


# ---------------------------------------------------------------------------------------------------------------------
# What is refused

# Requests to a registry with ship 1.0.0 → 2.0.0 → 3.0.0, pack 1.0.0, old 1.0.0 retired, tax 1.0.0 of another
# authority, and word 1.0.0 of another collection, all in force: the arguments, the code, and the oracle's verdict.
SUPERSEDE: list[tuple[tuple[str, str, str], dict[str, Any], str, str | None]] = [
    (("nobody", "1.0.0", "2.0.0"), {}, "CANONICAL_OPERATION_VALUE_ABSENT", None),
    (("ship", "9.0.0", "9.1.0"), {}, "CANONICAL_OPERATION_VALUE_ABSENT", None),
    (("ship", "3.0.0", "4"), {}, "REJECT_BAD_PROTOCOL_VERSION", None),
    (("ship", "3.0.0", "4.0.0+build"), {}, "REJECT_BAD_PROTOCOL_VERSION", None),
    (("ship", "v3", "4.0.0"), {}, "REJECT_BAD_PROTOCOL_VERSION", None),
    (("ship", "1.0.0", "4.0.0"), {}, "VALUE_NOT_ACTIVE", "RBP-8"),
    (("old", "1.0.0", "2.0.0"), {}, "VALUE_NOT_ACTIVE", "RBP-8"),
    (("ship", "3.0.0", "3.0.0"), {}, "SUCCESSOR_IS_ITSELF", "RBP-8"),
    (("ship", "3.0.0", "2.0.0"), {}, "SUCCESSOR_CYCLE", "RBP-8"),
    (("ship", "3.0.0", "1.0.0"), {}, "SUCCESSOR_CYCLE", "RBP-8"),
    (("ship", "3.0.0", "2.5.0"), {}, "SUCCESSOR_VERSION_LOWER", "RBP-8"),
    (("ship", "3.0.0", "3.0.0-rc.1"), {}, "SUCCESSOR_VERSION_LOWER", "RBP-8"),
    (("pack", "1.0.0", "1.0.0"), {"by": "old"}, "SUCCESSOR_NOT_ACTIVE", "RBP-8"),
    (("pack", "1.0.0", "1.0.0"), {"by": "ship"}, "SUCCESSOR_NOT_ACTIVE", "RBP-8"),
    (("pack", "1.0.0", "7.0.0"), {"by": "ship"}, "SUCCESSOR_UNKNOWN", "RBP-3"),
    (("pack", "1.0.0", "1.0.0"), {"by": "nobody"}, "SUCCESSOR_UNKNOWN", "RBP-3"),
    (("pack", "1.0.0", "1.0.0"), {"by": "word"}, "SUCCESSOR_OF_ANOTHER_ACT", "RBP-8"),
    (("pack", "1.0.0", "1.0.0"), {"by": "tax"}, "ROLLBACK_WEAKENS_AUTHORITY", "RBP-6"),
    (("pack", "1.0.0", "1.0.0"), {"by": "other"}, "ROLLBACK_NOT_LOCAL", "RBP-10"),
    (("ship", "2.0.0", "3.0.0"), {"semantics": "other"}, "C1_WRITE_ONCE_VIOLATED", None),
    (("ship", "3.0.0", "4.0.0"), {"semantics_of": "9.9.9"}, "CANONICAL_OPERATION_VALUE_ABSENT", None),
    (("ship", "3.0.0", "4.0.0"), {"grant_id": 999}, "REJECT_AUTH_NOT_FOUND", None),
    (("ship", "3.0.0", "4.0.0"), {"reason": " "}, "bad_input", None),
    (("ship", "3.0.0", "4.0.0"), {"actor": ""}, "bad_input", None),
    (("", "3.0.0", "4.0.0"), {}, "bad_input", None),
    (("ship", "3.0.0", "4.0.0"), {"semantics": float("nan")}, "payload_not_json", None),
]


@pytest.mark.req("L-13", "L-16", "L-18", "L-19")
def test_every_refusal_has_a_code_of_its_own_and_leaves_nothing(store: Store[Any]) -> None:
    built(store, value("old"))
    retire(store, "old", "1.0.0", **WHO)
    supersede(store, "ship", "1.0.0", "2.0.0", **WHO)
    supersede(store, "ship", "2.0.0", "3.0.0", semantics=SHIP_2, **WHO)
    words = [value("word", act_type="word"), value("other")]
    build(store, read_manifest({"collection": "words", "values": words}), **REAL)
    before = everything(store)
    for given, named, code, verdict in SUPERSEDE:
        error = refused(supersede, store, *given, **named)
        assert error.code == code, (given, named, error)
        assert error.context.get("verdict") == verdict, (given, named)
        assert error.hint
        assert code in foreseen(store, *given, **named), (given, named)
    assert refused(retire, store, "ship", "1.0.0").code == "VALUE_NOT_ACTIVE"
    assert refused(retire, store, "nobody", "1.0.0").code == "CANONICAL_OPERATION_VALUE_ABSENT"
    assert refused(retire, store, "pack", "1").code == "REJECT_BAD_PROTOCOL_VERSION"
    assert everything(store) == before


@pytest.mark.req("L-14", "L-18")
def test_while_a_lease_is_held_other_changes_are_refused(store: Store[Any]) -> None:
    with store.transaction() as transaction:
        token = transaction.leases.acquire("registry:operations", "a build", 300)
    before = everything(store)
    error = refused(supersede, store, "ship", "1.0.0", "2.0.0")
    assert isinstance(error, RuntimeLeaseError)
    assert (error.context["lease"], error.context["holder"]) == ("registry:operations", "a build")
    assert refused(retire, store, "ship", "1.0.0").code == "lease_held"
    assert everything(store) == before
    with store.transaction() as transaction:
        assert transaction.leases.release("registry:operations", "a build", token or 0)
    assert supersede(store, "ship", "1.0.0", "2.0.0", **WHO).changed


@pytest.mark.req("L-13")
def test_a_hold_refuses_new_values_and_allows_retirements(store: Store[Any]) -> None:
    hold(store, on=True, actor="ann", reason="an incident")
    before = everything(store)
    assert refused(supersede, store, "ship", "1.0.0", "2.0.0").code == "C1_PROD_REAL_RUN_BLOCKED"
    assert everything(store) == before
    assert supersede(store, "ship", "1.0.0", "1.0.0", by="pack", **WHO).changed
    assert retire(store, "pack", "1.0.0", **WHO).changed


# ---------------------------------------------------------------------------------------------------------------------
# Grants


@pytest.mark.req("L-12", "L-13", "L-18", "L-10")
def test_outside_dev_a_supersession_needs_a_grant_for_exactly_this_change(empty_url: str) -> None:
    with governed(empty_url, environment="stage") as store:
        wish: Any = {"semantics": SHIP_2, **WHO}
        planned = supersede(store, "ship", "1.0.0", "2.0.0", dry_run=True, **wish)
        assert (planned.authority, planned.verdict, planned.changed) == (
            "REJECT_AUTH_MISSING",
            RollbackVerdict.PASS,
            False,
        )
        other = supersede(store, "ship", "1.0.0", "2.1.0", dry_run=True, **wish)
        assert other.plan != planned.plan
        grant = permitted(store, planned)
        for_bob = permitted(store, planned, executor="bob")
        more = permitted(store, planned, actions=("registry.retire", "registry.supersede"))
        before = everything(store)
        # Another version, another meaning, another value, another act, another person: it is not what was granted.
        assert refused(supersede, store, "ship", "1.0.0", "2.1.0", semantics=SHIP_2, grant_id=grant).code == (
            "REJECT_AUTH_WRONG_PLAN"
        )
        assert refused(supersede, store, "ship", "1.0.0", "2.0.0", grant_id=grant).code == "REJECT_AUTH_WRONG_PLAN"
        assert refused(supersede, store, "pack", "1.0.0", "2.0.0", grant_id=grant).code == "REJECT_AUTH_WRONG_CARRIER"
        assert refused(retire, store, "ship", "1.0.0", grant_id=grant).code == "REJECT_AUTH_WRONG_CARRIER"
        assert refused(supersede, store, "ship", "1.0.0", "2.0.0", **{**wish, "grant_id": for_bob}).code == (
            "REJECT_AUTH_WRONG_EXECUTOR"
        )
        assert refused(supersede, store, "ship", "1.0.0", "2.0.0", **{**wish, "grant_id": more}).code == (
            "REJECT_AUTH_LOOSE_SUPERSET"
        )
        error = refused(retire, store, "pack", "1.0.0")
        assert error.code == "REJECT_AUTH_MISSING"
        assert "`holdfast grant request registry.retire value:pack@1.0.0 --executor ann --plan " in error.hint
        assert everything(store) == before
        done = supersede(store, "ship", "1.0.0", "2.0.0", grant_id=grant, **wish)
        assert (done.changed, done.grant_id, done.plan) == (True, grant, planned.plan)
        before = everything(store)
        again = refused(retire, store, "pack", "1.0.0", grant_id=grant)
        assert again.code == "REJECT_AUTH_ALREADY_CONSUMED"
        assert everything(store) == before
        with store.reading() as reading:
            [[content]] = reading.execute("SELECT content FROM holdfast_evidence WHERE kind = 'supersession'")
            assert json.loads(content)["rollback_plan"] == "runbook 7"


@pytest.mark.req("L-18", "L-19")
def test_a_dry_run_reports_what_would_be_done_and_writes_nothing(store: Store[Any]) -> None:
    before = everything(store)
    planned = supersede(store, "ship", "1.0.0", "2.0.0", dry_run=True, **WHO)
    gone = retire(store, "ship", "1.0.0", dry_run=True, **WHO)
    assert everything(store) == before
    assert (planned.changed, planned.admits, planned.rollback_ref, planned.grant_id) == (False, True, None, None)
    assert (gone.changed, gone.admits, gone.successor) == (False, False, None)
    done = supersede(store, "ship", "1.0.0", "2.0.0", **WHO)
    assert done.plan == planned.plan


# ---------------------------------------------------------------------------------------------------------------------
# Contracts


@pytest.mark.req("L-18", "L-19")
def test_a_contract_is_compared_with_the_registry(store: Store[Any]) -> None:
    def verdict(**given: Any) -> str:
        sound = {
            "disposition": Disposition.SUPERSEDE, "target": "ship@1.0.0", "successor": "pack@1.0.0", "plan": "p",
            "audit": "a",
        }  # fmt: skip
        with store.reading() as reading:
            return review(reading, Contract(**{**sound, **given}))[0].number

    by_id = vocab_id("operations", "ship", "1.0.0")
    before = everything(store)
    assert verdict() == "PASS"
    assert verdict(target=by_id) == "PASS"
    assert verdict(disposition=Disposition.RETIRE, successor="") == "PASS"
    assert verdict(executes=True) == "RBP-0"
    assert verdict(plan="") == "RBP-1"
    with pytest.raises(RegistryError) as unversioned:
        verdict(target="ship")
    assert unversioned.value.code == "ROLLBACK_TARGET_UNVERSIONED"
    assert verdict(target="ship@2.0.0") == "RBP-1"
    assert verdict(disposition=Disposition.DELETE) == "RBP-2"
    assert verdict(successor="ship@2.0.0") == "RBP-3"
    assert verdict(erases=("journal",)) == "RBP-4"
    assert verdict(semantics=sha256("{}")) == "RBP-5"
    assert verdict(successor="tax@1.0.0") == "RBP-6"
    assert verdict(successor="") == "RBP-7"
    assert verdict(successor="ship@1.0.0") == "RBP-8"
    assert verdict(audit="") == "RBP-9"
    assert verdict(collections=("operations", "words")) == "RBP-10"
    assert everything(store) == before
    assert verdict(drops_handlers=True) == "PASS"
    with store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="ship", payload="{}")])
    assert verdict(drops_handlers=True) == "RBP-3"
    assert verdict() == "PASS"
    retire(store, "ship", "1.0.0", **WHO)
    assert verdict() == "RBP-8"
