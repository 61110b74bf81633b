"""The hold, refusals of the database for writes past the gateway, and drafted manifests."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.authority import Act, Wanted
from holdfast.core.errors import AuthorityError, InputError, RefusedByDatabaseError
from holdfast.core.vocabulary import RegistryStatus
from holdfast.engine.operations import Operations
from holdfast.governance import grants
from holdfast.governance.registry.preflight import registration_hold
from holdfast.governance.registry.registry import build, draft, hold, resolve
from holdfast.store import Store
from tests.enforcement.raw import Client
from tests.governance.granting import approve_in_prod
from tests.governance.registries import (
    BOTH,
    REAL,
    WHO,
    at,
    built,
    everything,
    governed,
    granted,
    in_force,
    inserting,
    like,
    manifest,
    names,
    value,
)
from tests.support.ledgers import new_store

pytestmark = pytest.mark.attack("sql")

shared = pytest.fixture(scope="module", params=BOTH, name="shared")(governed)


# ---------------------------------------------------------------------------------------------------------------------
# The hold


@pytest.mark.req("L-22", "L-13")
def test_a_governed_prod_ledger_is_on_hold_until_a_grant_lifts_it(empty_url: str) -> None:
    with new_store(empty_url, environment="prod", governed=True) as store:
        with store.reading() as reading:
            assert registration_hold(reading)
            assert reading.switches.last("REGISTRATION_HOLD") is None
        wanted = manifest(environment="prod")
        dry = build(store, wanted, **WHO)
        assert (dry.ok, dry.preflight) == (True, "DRY_RUN_ONLY")
        before = everything(store)
        with pytest.raises(AuthorityError) as caught:
            hold(store, on=False, actor="ann", reason="release 7")
        assert caught.value.code == "REJECT_AUTH_MISSING"
        assert everything(store) == before
        lift = Wanted(act=Act.LIFT, target="switch:REGISTRATION_HOLD", environment="prod", executor="ann")
        draft = grants.request(store, lift, requester="ann", rollback_plan="throw it again", reason="release 7")
        approve_in_prod(store, draft.grant_id)
        assert hold(store, on=False, actor="ann", reason="release 7", grant_id=draft.grant_id)
        assert not hold(store, on=False, actor="ann", reason="again")
        with store.reading() as reading:
            assert not registration_hold(reading)
            thrown = reading.switches.last("REGISTRATION_HOLD")
            assert thrown is not None
            history = reading.journal.of(thrown.switch_id, "SWITCH")
            assert [(row.event, row.target, row.grant_id) for row in history] == [
                ("throw", "on", None), ("lift", "off", draft.grant_id),
            ]  # fmt: skip
        assert build(store, wanted, root="r", grant_id=granted(store, wanted), **REAL).ok
        assert hold(store, on=True, actor="ann", reason="done")
        assert not hold(store, on=True, actor="ann", reason="again")
        with store.reading() as reading:
            assert registration_hold(reading)


@pytest.mark.req("L-22")
@pytest.mark.parametrize(
    "environment, governed, held",
    [("prod", True, True), ("prod", False, False), ("stage", True, False), ("dev", True, False)],
)
def test_only_a_governed_prod_ledger_begins_on_hold(
    sqlite_url: str, environment: str, governed: bool, held: bool
) -> None:
    with new_store(sqlite_url, environment=environment, governed=governed) as store:
        with store.reading() as reading:
            assert registration_hold(reading) is held
        if not held:
            assert not hold(store, on=False, actor="ann", reason="it is off")
        with pytest.raises(InputError):
            hold(store, on=True, actor="ann", reason=" ")


# ---------------------------------------------------------------------------------------------------------------------
# Refusals of the database


@pytest.mark.req("L-06", "L-16", "L-24")
def test_no_value_is_inserted_without_the_grant_of_its_build(shared: Store[Any]) -> None:
    store = shared
    wanted = built(store, codes="a")
    code = wanted.values[0].operation_code
    used = _used_for_something_else(store)
    with store.reading() as reading:
        run = reading.runs.get(wanted.collection)
        assert run is not None
    client = Client(store.url)
    try:
        for name, columns, refusal in (
            ("without a grant", {"grant_id": "NULL", "run_id": "NULL"}, "HF009"),
            ("under the grant of a build that is done", {}, "HF009"),
            ("under a grant that was used for something else", {"grant_id": used}, "HF009"),
            ("under no run", {"run_id": "NULL"}, "HF009"),
            ("already retired", {"state": "'retired'"}, "HF002"),
            ("by another event", {"event": "'inject'"}, "HF002"),
            ("under a version above the first", {"version": "2"}, "HF002"),
        ):
            statement = inserting(code, operation_code=f"'{code}x'", **columns)
            assert client.refusal(statement) == refusal, name
        where = f"WHERE operation_code = '{code}'"
        for change, refusal in (
            ("semantics = '7'", "HF006"),
            ("digest = 'x'", "HF006"),
            ("vocab_id = 'x'", "HF006"),
            ("protocol_version = '9.9.9'", "HF006"),
            ("authority_ref = 'mallory'", "HF006"),
            ("run_id = NULL", "HF006"),
            ("status = 'withheld'", "HF009"),
        ):
            assert client.refusal(f"UPDATE holdfast_values SET {change} {where}") == refusal, change
        assert client.refusal(f"DELETE FROM holdfast_values {where}") == "HF003"
        same = inserting(code)
        assert client.refusal(same) in ("HF002", "HF009", "23505")
    finally:
        client.close()
    assert in_force(store, wanted.collection) == names(wanted)


@pytest.mark.req("L-06", "L-20")
def test_a_withheld_value_is_not_put_in_force_by_hand(shared: Store[Any]) -> None:
    store, wanted = shared, manifest(codes="a")
    throw = at("after S4_VALUES", lambda: hold(store, on=True, actor="bob", reason="stop"))
    build(store, wanted, root=wanted.collection, world=throw, **REAL)
    hold(store, on=False, actor="bob", reason="over")
    where = f"WHERE collection = '{wanted.collection}'"
    client = Client(store.url)
    verbs = ("UPDATE", "UPDATE OR REPLACE") if client.dialect == "sqlite" else ("UPDATE",)
    for verb in verbs:
        assert client.refusal(f"{verb} holdfast_values SET status = 'in force' {where}") == "HF009"
    client.close()
    assert in_force(store, wanted.collection) == []


@pytest.mark.req("L-06")
def test_a_running_build_admits_no_value_that_is_in_force_at_once(shared: Store[Any]) -> None:
    store, wanted = shared, manifest(codes="a")
    seen: list[str | None] = []

    def inject() -> None:
        code = wanted.values[0].operation_code
        client = Client(store.url)
        seen.append(client.refusal(inserting(code, operation_code=f"'{code}x'", status="'in force'")))
        client.close()

    assert build(store, wanted, root=wanted.collection, world=at("after S4_VALUES", inject), **REAL).ok
    assert seen == ["HF009"]


def _used_for_something_else(store: Store[Any]) -> int:
    with store.transaction() as transaction:
        lift = Wanted(act=Act.LIFT, target="switch:x", environment="dev", executor="ann")
        return grants.issue(transaction, lift, reason="something else")


@pytest.mark.req("L-16")
def test_the_gateway_itself_needs_a_grant(shared: Store[Any]) -> None:
    store = shared
    wanted = built(store, codes="a")
    more = like(wanted, value(f"{wanted.collection}.b")).values[0]
    with pytest.raises(RefusedByDatabaseError), store.transaction() as transaction:
        transaction.registry.admit(
            wanted.collection, more, status=RegistryStatus.IN_FORCE, grant_id=None, actor="ann", reason="so"
        )
    with store.transaction() as transaction:
        used = grants.issue(transaction, _supersession(more.name), reason="so", move_id="another")
    with pytest.raises(RefusedByDatabaseError), store.transaction() as transaction:
        transaction.registry.admit(
            wanted.collection,
            more,
            status=RegistryStatus.IN_FORCE,
            grant_id=used,
            actor="ann",
            reason="so",
            move_id="this",
        )
    with store.transaction() as transaction:
        used = grants.issue(transaction, _supersession(more.name), reason="so", move_id=f"of {more.name}")
        transaction.registry.admit(
            wanted.collection, more, status=RegistryStatus.IN_FORCE, grant_id=used, actor="ann", reason="so",
            move_id=f"of {more.name}",
        )  # fmt: skip
    assert in_force(store, wanted.collection) == [wanted.values[0].name, more.name]


def _supersession(name: str) -> Wanted:
    return Wanted(act=Act.SUPERSEDE, target=name, environment="dev", executor="ann")


# ---------------------------------------------------------------------------------------------------------------------
# Drafting


@pytest.mark.req("L-16")
def test_a_manifest_is_drafted_from_what_is_declared(shared: Store[Any]) -> None:
    here = Operations()

    @here.operation("resize", version="1.2.0")
    def old(run: Any, path: str) -> None: ...

    @here.operation("resize", version="1.10.0")
    def resize(run: Any, /, path: str, width: int = 64, **more: object) -> None:
        """Make an image smaller.

        At length.
        """

    @here.operation("notify")
    def notify(run: Any, to) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001 - as people write it

    made = draft(here, authority_ref="board:7", environment="dev")
    assert [each.fields for each in made.values] == [
        {
            "operation_code": "notify", "protocol_version": "1.0.0", "act_type": "operation",
            "governing_authority_ref": "board:7",
            "semantics_frozen": {"description": "", "arguments": {"to": {"type": "any", "required": True}}},
        },
        {
            "operation_code": "resize", "protocol_version": "1.10.0", "act_type": "operation",
            "governing_authority_ref": "board:7",
            "semantics_frozen": {
                "description": "Make an image smaller.",
                "arguments": {
                    "path": {"type": "str", "required": True},
                    "width": {"type": "int", "required": False},
                    "more": {"type": "object", "required": False},
                },
            },
        },
    ]  # fmt: skip
    assert (made.collection, made.environment) == ("operations", "dev")
    assert build(shared, made, **REAL).ok
    with shared.reading() as reading:
        assert resolve(reading, "resize", "1.10.0").collection == "operations"
    with pytest.raises(InputError):
        draft(Operations(), authority_ref="board:7")
