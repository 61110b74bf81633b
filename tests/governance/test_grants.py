"""Grants: requested, approved as the environment requires, consumed once with the act itself, all journalled."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.audit.check.runner import check
from holdfast.core.authority import CONSOLE, KEY, ROLE, Act, ApprovalDoubt, Doubt, Reject, Scope, Wanted
from holdfast.core.errors import GovernanceError, InputError, RecordNotFoundError
from holdfast.core.governed import Grant
from holdfast.core.machines import GrantState
from holdfast.governance import grants
from holdfast.governance.approval import Identity, approval_doubt, register_approver, revoke_approver
from holdfast.governance.grants import approve, authorise, issue, request, revoke, verdict_on
from holdfast.store import Store, open_store
from holdfast.testing import VirtualClock
from tests.governance.granting import WHY, People, act, contents, journal_of, requested, wanted
from tests.support.ledgers import LedgerIn, new_store

Make = Callable[[str], Store[Any]]


@pytest.fixture
def make(ledger_in: LedgerIn, clock: VirtualClock) -> Iterator[Make]:
    """What makes the one ledger of a test, of an environment, in each kind of database in turn."""
    made: list[Store[Any]] = []

    def store(environment: str) -> Store[Any]:
        made.append(open_store(ledger_in(environment), clock))
        return made[-1]

    yield store
    for each in made:
        each.close()


@pytest.fixture
def sqlite(sqlite_url: str, clock: VirtualClock) -> Iterator[Store[Any]]:
    with new_store(sqlite_url, clock) as store:
        yield store


@pytest.fixture
def people(tmp_path: Path) -> People:
    return People(tmp_path)


def refused(code: str, call: Callable[..., object], *args: Any, **given: Any) -> GovernanceError:
    with pytest.raises(GovernanceError) as caught:
        call(*args, **given)
    assert caught.value.code == code
    return caught.value


# ---------------------------------------------------------------------------------------------------------------------
# Dev, stage, prod


@pytest.mark.req("L-10", "L-12")
def test_in_dev_a_requester_may_approve_and_that_is_recorded(make: Make) -> None:
    store = make("dev")
    what = wanted(store)
    draft = requested(store, what)
    assert (draft.state, draft.version, draft.requested_by, draft.approved_by) == ("draft", 1, "ann", None)
    active = approve(store, draft.grant_id, Identity(name="ann"))
    assert (active.state, active.approved_by, active.approved_via) == ("active", "ann", '{"method":"self"}')
    assert act(store, what, draft.grant_id) == draft.grant_id
    assert journal_of(store, draft.grant_id) == [
        ("request", "draft", "ann", WHY),
        ("approve", "active", "ann", WHY),
        ("consume", "consumed", "ann", "it is time"),
    ]
    before = contents(store)
    refused(Reject.ALREADY_CONSUMED, act, store, what, draft.grant_id)
    assert contents(store) == before


def test_in_dev_an_act_without_a_grant_gets_one_of_its_own(make: Make) -> None:
    store = make("dev")
    used = act(store, wanted(store))
    with store.reading() as reading:
        grant = reading.grants.get(used)
        assert grant is not None
        assert (grant.state, grant.requested_by, grant.approved_by, grant.consumed_by) == ("consumed", *["ann"] * 3)
        assert grant.approved_via == '{"method":"self"}'
    assert [row[0] for row in journal_of(store, used)] == ["request", "approve", "consume"]


def test_in_dev_a_grant_that_does_not_fit_is_ignored(sqlite: Store[Any]) -> None:
    what = wanted(sqlite)
    others = requested(sqlite, wanted(sqlite, executor="eve"))
    approve(sqlite, others.grant_id, Identity(name="eve"))
    used = act(sqlite, what)
    assert used != others.grant_id
    with sqlite.reading() as reading:
        assert reading.grants.get(others.grant_id).state == "active"  # type: ignore[union-attr]


def test_in_dev_a_fitting_grant_is_used_before_a_new_one_is_made(sqlite: Store[Any]) -> None:
    what = wanted(sqlite)
    draft = requested(sqlite, what)
    approve(sqlite, draft.grant_id, Identity(name="bob"))
    assert act(sqlite, what) == draft.grant_id


def test_in_dev_two_fitting_grants_are_ambiguous(sqlite: Store[Any]) -> None:
    what = wanted(sqlite)
    for plan in ("one", "another"):
        grant = request(sqlite, what, requester="ann", rollback_plan=plan, reason=WHY)
        approve(sqlite, grant.grant_id, Identity(name="bob"))
    error = refused(Reject.AMBIGUOUS, act, sqlite, what)
    assert error.hint == "Name one of them with --grant ID."
    assert act(sqlite, what, 2) == 2


@pytest.mark.req("L-10", "L-12", "L-13")
def test_in_stage_a_grant_needs_another_approver(make: Make) -> None:
    store = make("stage")
    what = wanted(store)
    assert refused(Reject.MISSING, act, store, what).hint.startswith(
        "Request a grant: `holdfast grant request job.release job:1 --executor ann --rollback-plan"
    )
    draft = requested(store, what)
    refused(Reject.NOT_ACTIVE, act, store, what, draft.grant_id)
    before = contents(store)
    refused("self_approval", approve, store, draft.grant_id, Identity(name="ann"))
    assert contents(store) == before
    active = approve(store, draft.grant_id, Identity(name="bob"), reason="looked at it")
    assert (active.approved_by, active.approved_via) == ("bob", '{"method":"claimed"}')
    assert act(store, what) == draft.grant_id  # found, because exactly one fits
    assert journal_of(store, draft.grant_id)[1:] == [
        ("approve", "active", "bob", "looked at it"),
        ("consume", "consumed", "ann", "it is time"),
    ]
    refused("wrong_state", approve, store, draft.grant_id, Identity(name="bob"))


@pytest.mark.req("L-12", "L-13")
def test_in_prod_a_grant_needs_another_approver_with_a_key(make: Make, people: People) -> None:
    store = make("prod")
    people.register(store, "bob")
    what = wanted(store)
    draft = requested(store, what)
    before = contents(store)
    for code, who in (
        ("self_approval", Identity(name="ann")),
        ("self_approval", Identity(name="ann", method=KEY, signature=people.signature(store, draft, "ann"))),
        ("approver_not_authenticated", Identity(name="bob")),
        ("signature_invalid", Identity(name="bob", method=KEY)),
        ("signature_invalid", Identity(name="bob", method=KEY, signature="no digits")),
        ("signature_invalid", Identity(name="bob", method=KEY, signature=people.signature(store, draft, "eve"))),
        ("approver_unknown", Identity(name="eve", method=KEY, signature=people.signature(store, draft, "eve"))),
    ):
        refused(code, approve, store, draft.grant_id, who)
    with pytest.raises(InputError):
        approve(store, draft.grant_id, Identity(name="bob", method="telepathy"))
    assert contents(store) == before
    active = people.approve(store, draft, "bob")
    assert active.approved_via is not None
    assert json.loads(active.approved_via) == {"method": "key", "signature": people.signature(store, draft, "bob")}
    assert act(store, what) == draft.grant_id


def test_the_signature_under_another_grant_is_not_one_under_this(sqlite_url: str, people: People) -> None:
    with new_store(sqlite_url, environment="prod") as store:
        people.register(store, "bob")
        one, other = requested(store, wanted(store)), requested(store, wanted(store, "job:2"))
        stolen = Identity(name="bob", method=KEY, signature=people.signature(store, one, "bob"))
        refused("signature_invalid", approve, store, other.grant_id, stolen)


def test_the_console_may_approve_in_prod_if_it_signs(sqlite_url: str, people: People) -> None:
    with new_store(sqlite_url, environment="prod") as store:
        people.register(store, "bob")
        draft = requested(store, wanted(store))
        refused("signature_invalid", approve, store, draft.grant_id, Identity(name="bob", method=CONSOLE))
        signature = people.signature(store, draft, "bob")
        signed = Identity(name="bob", method=CONSOLE, signature=signature)
        assert approve(store, draft.grant_id, signed).state == "active"
        assert act(store, wanted(store)) == draft.grant_id


def test_sqlite_refuses_an_approval_by_role(sqlite_url: str) -> None:
    with new_store(sqlite_url, environment="prod") as store:
        draft = requested(store, wanted(store))
        refused("approver_not_authenticated", approve, store, draft.grant_id, Identity(name="bob", method=ROLE))


@pytest.mark.req("L-12")
def test_in_prod_a_database_role_may_approve_the_request_of_another(pg_url: str) -> None:
    database = pg_url.rpartition("/")[2]
    ann, bob = f"ann_{database}", f"bob_{database}"
    urls = {name: pg_url.replace("postgres@", f"{name}@") for name in (ann, bob)}
    with new_store(pg_url, environment="prod"), psycopg.connect(pg_url, autocommit=True) as admin:
        for role in (ann, bob):
            admin.execute(f"CREATE ROLE {role} LOGIN")
            admin.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
            admin.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}")
        try:
            with open_store(urls[ann]) as hers, open_store(urls[bob]) as his:
                what = wanted(hers, executor=ann)
                draft = requested(hers, what, requester="ann")  # whatever name is given
                assert draft.requested_via == json.dumps({"role": ann}, separators=(",", ":"))
                by = approve, hers, draft.grant_id
                refused("self_approval", *by, Identity(name=ann, method=ROLE))
                refused("approver_not_authenticated", *by, Identity(name=bob, method=ROLE))
                refused("approver_not_authenticated", approve, his, draft.grant_id, Identity(name="bob", method=ROLE))
                active = approve(his, draft.grant_id, Identity(name=bob, method=ROLE))
                assert (active.approved_by, active.approved_via) == (bob, '{"method":"role"}')
                assert act(hers, what) == draft.grant_id
        finally:
            for role in (ann, bob):
                admin.execute(f"DROP OWNED BY {role}")
                admin.execute(f"DROP ROLE {role}")


# ---------------------------------------------------------------------------------------------------------------------
# Every code


def _all_codes(store: Store[Any], clock: VirtualClock, people: People) -> Iterator[tuple[Reject, Wanted, int | None]]:
    """Yield for every code an act that is refused with it, in a prod ledger, and the grant that is named."""
    numbers = iter(range(1, 1000))

    def given(state: str = "active", **scope: Any) -> tuple[Wanted, int]:
        """Return what is wanted, and a grant for it but for these words of its scope."""
        what = wanted(store, f"job:{next(numbers)}", actions=("a", "b"), plan="p", manifest="m")
        words = {**{name: getattr(what, name) for name in ("environment", "executor", "actions", "plan", "manifest")},
                 "rollback_plan": "undo", **scope}  # fmt: skip
        with store.transaction() as transaction:
            grant_id = transaction.grants.request(
                action=str(what.act), target=what.target, scope=Scope(**words).text, actor="req", reason=WHY,
                expires_at=clock.after(100),
            )  # fmt: skip
            draft = transaction.grants.get(grant_id)
        assert draft is not None
        if state != "draft":
            people.approve(store, draft, "bob")
        return what, grant_id

    yield Reject.MISSING, wanted(store), None
    yield Reject.NOT_FOUND, wanted(store), 999
    what, grant_id = given()
    revoke(store, grant_id, actor="bob", reason="no")
    yield Reject.REVOKED, what, grant_id
    what, grant_id = given()
    act(store, what, grant_id)
    yield Reject.ALREADY_CONSUMED, what, grant_id
    yield Reject.NOT_ACTIVE, *given("draft")
    what, grant_id = given()
    with store.transaction() as transaction, transaction.maintenance.open(who="mallory", why="to forge"):
        transaction.query(
            "UPDATE holdfast_grants SET approved_via = NULL WHERE grant_id = :id RETURNING 1", {"id": grant_id}
        )
    yield Reject.FORGED, what, grant_id
    yield Reject.GENERIC_SCOPE, *given(executor="*")
    what, grant_id = given()
    yield Reject.WRONG_CARRIER, wanted(store, "job:0"), grant_id
    yield Reject.WRONG_ENVIRONMENT, *given(environment="stage")
    yield Reject.WRONG_EXECUTOR, *given(executor="eve")
    yield Reject.WRONG_PLAN, *given(plan="another")
    yield Reject.MANIFEST_MISMATCH, *given(manifest=None)
    yield Reject.LOOSE_SUPERSET, *given(actions=("a", "b", "c"))
    yield Reject.ACTIONS_MISSING, *given(actions=("a",))
    yield Reject.ROLLBACK_PLAN_ABSENT, *given(rollback_plan=" ")
    twice = wanted(store, "job:twice")
    for plan in ("one", "another"):
        people.approve(store, request(store, twice, requester="ann", rollback_plan=plan, reason=WHY), "bob")
    yield Reject.AMBIGUOUS, twice, None
    what, grant_id = given()
    clock.advance(100)
    yield Reject.EXPIRED, what, grant_id


@pytest.mark.req("L-04", "L-12", "L-13")
def test_every_code_is_given_by_the_ledger_and_leaves_nothing(make: Make, clock: VirtualClock, people: People) -> None:
    store = make("prod")
    people.register(store, "bob")
    seen = set()
    for code, what, grant_id in _all_codes(store, clock, people):
        before = contents(store)
        error = refused(code, act, store, what, grant_id)
        assert (error.exit_code, error.context["target"]) == (3, what.target)
        with store.reading() as reading:
            assert verdict_on(reading, what, grant_id).code == code  # type: ignore[union-attr]
        assert contents(store) == before
        seen.add(code)
    assert seen == set(Reject)


# ---------------------------------------------------------------------------------------------------------------------
# Once


@pytest.mark.req("L-04", "L-10")
def test_an_act_that_is_rolled_back_has_used_nothing(make: Make) -> None:
    store = make("stage")
    what = wanted(store)
    draft = requested(store, what)
    approve(store, draft.grant_id, Identity(name="bob"))
    before = contents(store)

    def fail_after_use() -> None:
        with store.transaction() as transaction:
            assert authorise(transaction, what, grant_id=draft.grant_id, reason="half-way") == draft.grant_id
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_use()
    assert contents(store) == before
    assert act(store, what, draft.grant_id) == draft.grant_id


def test_many_under_one_grant_are_recorded_as_such(sqlite: Store[Any]) -> None:
    with sqlite.transaction() as transaction:
        parent = authorise(transaction, wanted(sqlite, "many"), grant_id=None, reason="all")
        one = issue(transaction, wanted(sqlite, "job:5"), reason="one of all", under=parent)
        grant = transaction.grants.get(one)
    assert grant is not None
    assert (grant.state, grant.approved_via) == ("consumed", f'{{"grant_id":{parent},"method":"grant"}}')


def test_a_grant_that_was_revoked_meanwhile_is_refused_as_revoked(pg_url: str) -> None:
    """Another process was first and did not consume the grant: the code is that of its act."""
    with new_store(pg_url, environment="stage") as store:
        what = wanted(store)
        draft = requested(store, what)
        approve(store, draft.grant_id, Identity(name="bob"))
        with store.transaction() as transaction:
            verdict = verdict_on(transaction, what, draft.grant_id)
            assert isinstance(verdict, Grant)
            revoke(store, draft.grant_id, actor="bob", reason="changed my mind")  # on a connection of its own
            refused(Reject.REVOKED, grants._consume, transaction, verdict, what, "late", None)


@pytest.mark.parametrize("named", [True, False])
def test_a_grant_that_is_used_while_it_is_looked_at_is_used_and_not_forged(
    pg_url: str, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process uses the grant between the reading of the grant and of its journal."""
    with new_store(pg_url, environment="stage") as store:
        what = wanted(store)
        draft = requested(store, what)
        approve(store, draft.grant_id, Identity(name="bob"))
        looks: list[int] = []

        def overtaken(reading: Any, grant: Grant) -> ApprovalDoubt | None:
            looks.append(grant.grant_id)
            if len(looks) == 1:
                act(store, what, grant.grant_id)
            return approval_doubt(reading, grant)

        with store.transaction() as transaction:
            monkeypatch.setattr(grants, "approval_doubt", overtaken)
            code = Reject.ALREADY_CONSUMED if named else Reject.MISSING
            grant_id = draft.grant_id if named else None
            refused(code, authorise, transaction, what, grant_id=grant_id, reason="late")
        assert looks == [draft.grant_id] * 2  # the first act, and the second


# ---------------------------------------------------------------------------------------------------------------------
# Requesting


@pytest.mark.parametrize(
    "given, field",
    [
        ({"requester": " "}, "requester"),
        ({"reason": ""}, "reason"),
        ({"rollback_plan": "\n"}, "rollback_plan"),
        ({"ttl": timedelta(0)}, "ttl"),
        ({"ttl": timedelta(days=30, microseconds=1)}, "ttl"),
        ({"reason": "a\0b"}, "reason"),
        ({"reason": "\ud800"}, "reason"),
        ({"requester": "x" * 1025}, "requester"),
        ({"reason": "x" * (1 << 14 | 1)}, "reason"),
        ({"what": {"target": ""}}, "target"),
        ({"what": {"executor": "\0"}}, "executor"),
        ({"what": {"actions": ("a", "")}}, "action 2"),
        ({"what": {"plan": "\0"}}, "plan"),
    ],
)
def test_an_incomplete_request_is_refused(sqlite: Store[Any], given: dict[str, Any], field: str) -> None:
    before = contents(sqlite)
    words = {"what": {}, "requester": "ann", "reason": WHY, "rollback_plan": "undo", **given}
    what = wanted(sqlite, **words.pop("what"))
    with pytest.raises(InputError) as caught:
        request(sqlite, what, **words)
    assert (caught.value.context["field"], caught.value.exit_code) == (field, 2)
    assert contents(sqlite) == before


@pytest.mark.parametrize("words", [{"target": "*"}, {"executor": "team-*"}, {"actions": ("a", "*")}])
def test_a_request_for_anything_is_refused(sqlite: Store[Any], words: dict[str, Any]) -> None:
    refused(Reject.GENERIC_SCOPE, requested, sqlite, wanted(sqlite, **words))


def test_a_request_is_for_the_ledger_that_it_is_made_to(sqlite: Store[Any]) -> None:
    refused(Reject.WRONG_ENVIRONMENT, requested, sqlite, wanted(sqlite, environment="prod"))


def test_an_equal_request_is_refused_until_the_first_has_expired(make: Make, clock: VirtualClock) -> None:
    store = make("stage")
    what = wanted(store)
    first = requested(store, what, ttl=timedelta(seconds=60))
    assert refused("grant_exists", requested, store, what).context == {"grant_id": first.grant_id}
    clock.advance(60)
    second = requested(store, what, ttl=timedelta(seconds=60))
    approve(store, second.grant_id, Identity(name="bob"))
    refused("grant_exists", requested, store, what)
    clock.advance(60)
    requested(store, what)
    with store.reading() as reading:
        assert {grant.grant_id: str(grant.state) for grant in reading.grants.page()} == {
            1: "revoked",  # there is no such edge as from draft to expired
            2: "expired",
            3: "draft",
        }
    assert journal_of(store, 2)[-1] == ("expire", "expired", "holdfast", "expired unused")


def test_an_expired_draft_cannot_be_approved(sqlite: Store[Any], clock: VirtualClock) -> None:
    draft = requested(sqlite, wanted(sqlite), ttl=timedelta(seconds=1))
    clock.advance(1)
    refused("grant_expired", approve, sqlite, draft.grant_id, Identity(name="bob"))


def test_a_list_shows_grants_past_their_time_as_expired(make: Make, clock: VirtualClock) -> None:
    store = make("dev")
    for target, ttl in (("job:1", 10), ("job:2", 1000)):
        requested(store, wanted(store, target), ttl=timedelta(seconds=ttl))
    clock.advance(10)
    with store.reading() as reading:
        assert [grant.grant_id for grant in reading.grants.page(state=GrantState.EXPIRED)] == [1]
        assert [grant.grant_id for grant in reading.grants.page(state=GrantState.DRAFT)] == [2]
        assert [grant.grant_id for grant in reading.grants.page()] == [2, 1]
        assert [grant.grant_id for grant in reading.grants.page(target="job:1", action="job.release")] == [1]
        assert [grant.grant_id for grant in reading.grants.page(before=2)] == [1]


def test_a_missing_grant_cannot_be_approved_or_revoked(sqlite: Store[Any]) -> None:
    with pytest.raises(RecordNotFoundError):
        approve(sqlite, 1, Identity(name="bob"))
    with pytest.raises(RecordNotFoundError):
        revoke(sqlite, 1, actor="bob", reason="no")


def test_a_ledger_without_an_environment_is_treated_as_prod(sqlite: Store[Any]) -> None:
    draft, another = requested(sqlite, wanted(sqlite)), wanted(sqlite, "job:2")
    with sqlite.transaction() as transaction, transaction.maintenance.open(who="mallory", why="to play"):
        transaction.settings.set("environment", "playground")
    refused("approver_not_authenticated", approve, sqlite, draft.grant_id, Identity(name="bob"))
    refused(Reject.MISSING, act, sqlite, another)


# ---------------------------------------------------------------------------------------------------------------------
# Approvers


@pytest.mark.req("L-12")
@pytest.mark.parametrize("environment, method", [("dev", "self"), ("stage", "free"), ("prod", "bootstrap")])
def test_the_first_approver_needs_no_grant_and_that_is_recorded(
    make: Make, people: People, environment: str, method: str
) -> None:
    store = make(environment)
    people.register(store, "bob")
    with store.reading() as reading:
        bob = reading.grants.approvers()["bob"]
        grant = reading.grants.get(bob.grant_id or 0)
    assert grant is not None
    assert (bob.public_key, bob.added_by, bob.revoked_at) == (people.public_key("bob"), "admin", None)
    assert (grant.state, grant.action, grant.target) == ("consumed", "approver.add", "bob")
    assert grant.approved_via == f'{{"method":"{method}"}}'
    why = f"bootstrap of the first approver: {WHY}" if method == "bootstrap" else WHY
    assert journal_of(store, grant.grant_id)[-1] == ("consume", "consumed", "admin", why)


def test_the_first_approver_of_prod_needs_an_explicit_bootstrap(make: Make, people: People) -> None:
    store = make("prod")
    before = contents(store)
    refused("bootstrap_required", people.register, store, "bob", bootstrap=False)
    assert contents(store) == before
    people.register(store, "bob", bootstrap=True)
    before = contents(store)
    refused("bootstrap_refused", people.register, store, "eve", bootstrap=True)
    revoke_approver(store, "bob", actor="sec", reason="his key was stolen")
    refused("bootstrap_refused", people.register, store, "eve", bootstrap=True)  # a ledger has one bootstrap


@pytest.mark.parametrize("environment", ["dev", "stage"])
def test_outside_of_prod_there_is_no_bootstrap(make: Make, people: People, environment: str) -> None:
    refused("bootstrap_refused", people.register, make(environment), "bob", bootstrap=True)


def test_an_approver_of_a_milder_environment_does_not_count_in_prod(sqlite_url: str, people: People) -> None:
    with new_store(sqlite_url, environment="stage") as store:
        people.register(store, "bob")
        with store.transaction() as transaction, transaction.maintenance.open(who="ann", why="raised") as door:
            transaction.settings.set("environment", "prod")
            transaction.maintenance.note(door, "raise_environment", environment="prod")
        draft = requested(store, wanted(store))
        error = refused("approver_unknown", people.approve, store, draft, "bob")
        assert error.context["doubt"] == Doubt.APPROVER_UNPROVEN
        assert check(store, only=["grants_authentic"]).ok
        revoke_approver(store, "bob", actor="sec", reason="registered again below")
        people.register(store, "bob", bootstrap=True)
        assert people.approve(store, draft, "bob").state == "active"
        assert check(store, only=["grants_authentic"]).ok


@pytest.mark.req("L-12", "L-13")
def test_in_prod_a_second_approver_needs_a_grant_for_that_very_key(make: Make, people: People) -> None:
    store = make("prod")
    people.register(store, "bob")
    before = contents(store)
    error = refused(Reject.MISSING, people.register, store, "eve")
    assert contents(store) == before
    what = Wanted(
        act=Act.APPROVER, target="eve", environment="prod", executor="admin", manifest=str(error.context["manifest"])
    )
    draft = requested(store, what)
    people.approve(store, draft, "bob")
    mallory = people.public_key("mallory")
    refused(
        Reject.MANIFEST_MISMATCH,
        register_approver,
        store,
        "eve",
        mallory,
        actor="admin",
        reason=WHY,
        grant_id=draft.grant_id,
    )
    people.register(store, "eve", grant_id=draft.grant_id)
    people.approve(store, requested(store, wanted(store)), "eve")


def test_a_revocation_is_recorded_and_the_next_approver_still_needs_a_grant(make: Make, people: People) -> None:
    store = make("prod")
    people.register(store, "bob")
    revoked = revoke_approver(store, "bob", actor="sec", reason="left")
    assert (revoked.revoked_by, revoked.revoked_at is not None) == ("sec", True)
    with store.reading() as reading:
        [grant] = reading.grants.page(action="approver.revoke")
    assert (grant.state, grant.target, grant.approved_via) == ("consumed", "bob", '{"method":"free"}')
    assert journal_of(store, grant.grant_id)[0] == ("request", "draft", "sec", "left")
    refused(Reject.MISSING, people.register, store, "eve")
    refused(Reject.MISSING, people.register, store, "bob")
    refused("approver_revoked", revoke_approver, store, "bob", actor="sec", reason="again")
    refused("approver_unknown", people.approve, store, requested(store, wanted(store)), "bob")
    with pytest.raises(RecordNotFoundError):
        revoke_approver(store, "nobody", actor="sec", reason="x")


def test_a_name_has_one_key_and_a_key_one_name(sqlite: Store[Any], people: People) -> None:
    people.register(sqlite, "bob")
    refused("approver_exists", register_approver, sqlite, "bob", people.public_key("eve"), actor="a", reason=WHY)
    refused("key_taken", register_approver, sqlite, "eve", people.public_key("bob").upper(), actor="a", reason=WHY)
    revoke_approver(sqlite, "bob", actor="a", reason="a new key")
    register_approver(sqlite, "bob", people.public_key("bob-2"), actor="a", reason=WHY)
    with sqlite.reading() as reading:
        assert reading.grants.approvers()["bob"].public_key == people.public_key("bob-2")


@pytest.mark.parametrize("key", ["", "00", "zz" * 32, "0" * 66])
def test_an_invalid_key_is_refused(sqlite: Store[Any], key: str) -> None:
    with pytest.raises(InputError):
        register_approver(sqlite, "bob", key, actor="a", reason=WHY)
