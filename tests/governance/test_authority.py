"""The verdict on a grant: every code reached by an input, every input giving one code, and nothing more permitted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from unicodedata import normalize

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.authority import (
    WORD_BYTES_MAX,
    Act,
    ApprovalDoubt,
    Doubt,
    Reject,
    Rejected,
    Scope,
    Slip,
    Wanted,
    approval_text,
    effective_state,
    judge,
    registration_doubt,
    require_words,
)
from holdfast.core.digest import canonical, sha256
from holdfast.core.errors import InputError
from holdfast.core.governed import Approver, Grant
from holdfast.core.machines import GrantState

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
WANTED = Wanted(
    act=Act.BUILD,
    target="operations",
    environment="prod",
    executor="ann",
    actions=("schema", "values"),
    plan="aa" * 32,
    manifest="bb" * 32,
)
SCOPE = WANTED.scope("drop the collection")
GRANT = Grant(
    grant_id=7,
    state=GrantState.ACTIVE,
    version=2,
    action="registry.build",
    target="operations",
    scope=SCOPE.text,
    requested_by="ann",
    approved_by="bob",
    consumed_by=None,
    expires_at=NOW + timedelta(seconds=1),
    reason="release 2",
    requested_via=None,
    approved_via='{"method":"key"}',
    created_at=NOW - timedelta(hours=1),
    updated_at=NOW - timedelta(hours=1),
)


def scoped(grant: Grant = GRANT, /, **fields: Any) -> Grant:
    """The grant with other words in its scope."""
    return msgspec.structs.replace(grant, scope=msgspec.structs.replace(SCOPE, **fields).text)


def but(**fields: Any) -> Grant:
    return msgspec.structs.replace(GRANT, **fields)


def code(verdict: Grant | Rejected) -> Reject | None:
    return verdict.code if isinstance(verdict, Rejected) else None


DOUBT = ApprovalDoubt(Doubt.JOURNAL_DIFFERS, "bob", "claimed", "it differs")
CASES: list[tuple[Reject | None, int | None, list[Grant], Mapping[int, ApprovalDoubt]]] = [
    (None, 7, [GRANT], {}),
    (None, None, [GRANT], {}),
    # another grant that does not fit changes nothing
    (None, None, [but(grant_id=8, target="elsewhere"), GRANT, scoped(but(grant_id=9), executor="eve")], {}),
    (None, 7, [but(grant_id=8), GRANT], {}),
    (Reject.MISSING, None, [], {}),
    (Reject.NOT_FOUND, 7, [], {}),
    (Reject.NOT_FOUND, 7, [but(grant_id=8)], {}),
    (Reject.REVOKED, 7, [but(state=GrantState.REVOKED)], {}),
    (Reject.ALREADY_CONSUMED, 7, [but(state=GrantState.CONSUMED, consumed_by="ann")], {}),
    (Reject.EXPIRED, 7, [but(state=GrantState.EXPIRED)], {}),
    (Reject.EXPIRED, 7, [but(expires_at=NOW)], {}),
    (Reject.EXPIRED, 7, [but(state=GrantState.DRAFT, expires_at=NOW)], {}),
    (Reject.NOT_ACTIVE, 7, [but(state=GrantState.DRAFT)], {}),
    (Reject.FORGED, 7, [GRANT], {7: DOUBT}),
    (Reject.FORGED, 7, [but(scope="anything")], {}),
    (Reject.FORGED, 7, [but(scope="[" * 100_000)], {}),
    (Reject.FORGED, 7, [but(scope="{}")], {}),
    (Reject.FORGED, 7, [but(scope=SCOPE.text[:-1] + ',"more":1}')], {}),
    (Reject.FORGED, 7, [but(scope=SCOPE.text.replace(",", ", "))], {}),  # the same scope, but not as it was requested
    (Reject.GENERIC_SCOPE, 7, [but(target="*")], {}),
    (Reject.GENERIC_SCOPE, 7, [but(target="operations*")], {}),
    (Reject.GENERIC_SCOPE, 7, [but(action=" ")], {}),
    (Reject.GENERIC_SCOPE, 7, [scoped(executor="*")], {}),
    (Reject.GENERIC_SCOPE, 7, [scoped(environment="")], {}),
    (Reject.GENERIC_SCOPE, 7, [scoped(actions=())], {}),
    (Reject.GENERIC_SCOPE, 7, [scoped(actions=("schema", "*"))], {}),
    (Reject.WRONG_CARRIER, 7, [but(action="registry.supersede")], {}),
    (Reject.WRONG_CARRIER, 7, [but(target="datasets")], {}),
    (Reject.WRONG_ENVIRONMENT, 7, [scoped(environment="stage")], {}),
    (Reject.WRONG_EXECUTOR, 7, [scoped(executor="eve")], {}),
    (Reject.WRONG_PLAN, 7, [scoped(plan="cc" * 32)], {}),
    (Reject.WRONG_PLAN, 7, [scoped(plan=None)], {}),
    (Reject.MANIFEST_MISMATCH, 7, [scoped(manifest="cc" * 32)], {}),
    (Reject.MANIFEST_MISMATCH, 7, [scoped(manifest=None)], {}),
    (Reject.LOOSE_SUPERSET, 7, [scoped(actions=("finalise", "schema", "values"))], {}),
    (Reject.ACTIONS_MISSING, 7, [scoped(actions=("schema",))], {}),
    (Reject.ACTIONS_MISSING, 7, [scoped(actions=("finalise", "schema"))], {}),
    (Reject.ROLLBACK_PLAN_ABSENT, 7, [scoped(rollback_plan=" ")], {}),
    (Reject.AMBIGUOUS, None, [GRANT, scoped(but(grant_id=8), rollback_plan="another")], {}),
    (Reject.AMBIGUOUS, 7, [GRANT, GRANT], {}),
    # of several that do not fit, the code of the one that came closest
    (Reject.WRONG_PLAN, None, [but(expires_at=NOW), scoped(but(grant_id=8), plan="cc"), but(grant_id=9)], {9: DOUBT}),
]


@pytest.mark.req("L-12", "L-13")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0] or 'GO'}")
def test_each_input_gives_exactly_one_code(
    case: tuple[Reject | None, int | None, list[Grant], Mapping[int, ApprovalDoubt]],
) -> None:
    expected, named, grants, doubts = case
    verdict = judge(named, grants, WANTED, NOW, doubts)
    assert code(verdict) == expected
    assert verdict is GRANT if expected is None else isinstance(verdict, Rejected)


@pytest.mark.req("L-13")
def test_every_code_is_reached() -> None:
    assert {case[0] for case in CASES} == {None, *Reject}


@pytest.mark.req("L-12", "L-13")
def test_the_checks_run_in_one_order() -> None:
    """Everything is wrong at once; as one fault after another is removed, the codes come in the order of the table."""
    faults: dict[Reject, dict[str, Any]] = {
        Reject.EXPIRED: {"expires_at": NOW - timedelta(days=1)},
        Reject.NOT_ACTIVE: {"state": GrantState.DRAFT},
        Reject.GENERIC_SCOPE: {"target": "*"},
        Reject.WRONG_CARRIER: {"action": "registry.retire"},
    }
    words: dict[Reject, dict[str, Any]] = {
        Reject.WRONG_ENVIRONMENT: {"environment": "dev"},
        Reject.WRONG_EXECUTOR: {"executor": "eve"},
        Reject.WRONG_PLAN: {"plan": None},
        Reject.MANIFEST_MISMATCH: {"manifest": None},
        Reject.LOOSE_SUPERSET: {"actions": ("schema", "values", "more")},
        Reject.ROLLBACK_PLAN_ABSENT: {"rollback_plan": ""},
    }
    doubts = {7: DOUBT}
    seen = []
    while True:
        grant = GRANT
        for fields in faults.values():
            grant = msgspec.structs.replace(grant, **fields)
        grant = scoped(grant, **{name: value for fields in words.values() for name, value in fields.items()})
        verdict = judge(7, [grant], WANTED, NOW, doubts)
        if isinstance(verdict, Grant):
            break
        seen.append(verdict.code)
        faults.pop(verdict.code, None)
        words.pop(verdict.code, None)
        doubts = {} if verdict.code == Reject.FORGED else doubts
    order = [*Reject]
    assert seen == sorted(seen, key=order.index)
    assert len(seen) == len(set(seen)) == 11


def test_names_that_differ_only_in_normalisation_are_equal() -> None:
    wanted = Wanted(act=Act.LIFT, target="cafe\u0301", environment="dev", executor="zoe\u0308", actions=("e\u0301",))
    composed = msgspec.structs.replace(wanted, target="café", executor="zoë", actions=("é",))
    for granted, does in ((wanted, composed), (composed, wanted)):
        grant = but(action="switch.lift", target=granted.target, scope=granted.scope("throw it").text)
        assert judge(7, [grant], does, NOW) is grant


def test_an_active_or_draft_grant_past_its_time_is_expired() -> None:
    assert effective_state(GRANT, NOW) == GrantState.ACTIVE
    assert effective_state(GRANT, GRANT.expires_at) == GrantState.EXPIRED
    assert effective_state(but(state=GrantState.DRAFT), GRANT.expires_at) == GrantState.EXPIRED
    for state in (GrantState.CONSUMED, GrantState.REVOKED, GrantState.EXPIRED):
        assert effective_state(but(state=state), NOW + timedelta(days=9)) == state


# ---------------------------------------------------------------------------------------------------------------------
# What is drawn

WORDS = st.sampled_from(["", " ", "*", "a", "b", "ann", "prod", "é", "e\u0301", "registry.build", "operations"])
MAYBE = st.none() | WORDS
MOMENTS = st.sampled_from([NOW - timedelta(microseconds=1), NOW, NOW + timedelta(microseconds=1)])
SETS = st.lists(WORDS, max_size=3).map(tuple)
SCOPES = st.builds(
    Scope, environment=WORDS, executor=WORDS, actions=SETS, rollback_plan=WORDS, plan=MAYBE, manifest=MAYBE
)
SCOPE_TEXTS = SCOPES.map(lambda scope: scope.text) | st.text(max_size=20) | st.just(SCOPE.text)
GRANTS = st.builds(
    Grant,
    grant_id=st.integers(1, 4),
    state=st.sampled_from([*GrantState, GrantState.ACTIVE, GrantState.ACTIVE]),
    version=st.just(2),
    action=st.sampled_from([*map(str, Act), "registry.build", ""]),
    target=WORDS,
    scope=SCOPE_TEXTS,
    requested_by=WORDS,
    approved_by=MAYBE,
    consumed_by=MAYBE,
    expires_at=MOMENTS,
    reason=st.just(""),
    requested_via=st.none(),
    approved_via=MAYBE,
    created_at=st.just(NOW),
    updated_at=st.just(NOW),
)
WANTS = st.builds(
    Wanted,
    act=st.sampled_from(Act),
    target=WORDS,
    environment=WORDS,
    executor=WORDS,
    actions=SETS,
    plan=MAYBE,
    manifest=MAYBE,
)


@st.composite
def near(draw: Any, wanted: Wanted) -> Grant:
    """A grant for exactly this, with a word or two changed, or none."""
    drawn: Grant = draw(GRANTS)
    grant = msgspec.structs.replace(
        drawn,
        state=GrantState.ACTIVE,
        expires_at=NOW + timedelta(microseconds=1),
        action=str(wanted.act),
        target=wanted.target,
        scope=wanted.scope("a plan").text,
    )
    other = draw(GRANTS)
    changed = draw(st.sets(st.sampled_from(["state", "expires_at", "action", "target", "scope"]), max_size=2))
    return msgspec.structs.replace(grant, **{name: getattr(other, name) for name in changed})


@pytest.mark.req("L-12")
@given(data=st.data(), named=st.none() | st.integers(1, 4), doubted=st.sets(st.integers(1, 4), max_size=2))
def test_judge_never_raises_and_permits_only_an_exact_match(data: Any, named: int | None, doubted: set[int]) -> None:
    wanted = data.draw(WANTS | st.just(WANTED))
    grants: list[Grant] = data.draw(st.lists(GRANTS | near(wanted), max_size=4))
    verdict = judge(named, grants, wanted, NOW, dict.fromkeys(doubted, DOUBT))
    if isinstance(verdict, Rejected):
        assert verdict.code in Reject
        assert verdict.message
        return
    assert sum(verdict is grant for grant in grants) == 1
    _assert_exact(verdict, wanted)
    assert named in (None, verdict.grant_id)
    assert verdict.grant_id not in doubted


@given(data=st.data(), wanted=WANTS, plan=WORDS)
def test_a_grant_with_the_wanted_scope_permits_it_unless_it_is_generic(data: Any, wanted: Wanted, plan: str) -> None:
    grant = msgspec.structs.replace(
        data.draw(GRANTS),
        grant_id=1,
        state=GrantState.ACTIVE,
        expires_at=NOW + timedelta(microseconds=1),
        action=str(wanted.act),
        target=wanted.target,
        scope=wanted.scope(plan).text,
    )
    words = (wanted.target, wanted.environment, wanted.executor, *wanted.exact_actions)
    generic = any(not word.strip() or "*" in word for word in words)
    expected = Reject.GENERIC_SCOPE if generic else None if plan.strip() else Reject.ROLLBACK_PLAN_ABSENT
    assert code(judge(1, [grant], wanted, NOW)) == expected


def _assert_exact(grant: Grant, wanted: Wanted) -> None:
    """Compare the grant with what was wanted, without the code of the judge."""
    scope = canonical(
        {
            "actions": sorted({normalize("NFC", word) for word in wanted.actions or [str(wanted.act)]}),
            "environment": wanted.environment,
            "executor": wanted.executor,
            "manifest": wanted.manifest,
            "plan": wanted.plan,
            "rollback_plan": msgspec.json.decode(grant.scope)["rollback_plan"],
        }
    )
    assert grant.scope == scope
    assert canonical([grant.action, grant.target]) == canonical([str(wanted.act), wanted.target])
    assert grant.state == "active"
    assert grant.expires_at > NOW
    assert "*" not in grant.target + wanted.executor + wanted.environment


# ---------------------------------------------------------------------------------------------------------------------
# What is signed


@pytest.mark.req("L-12")
@pytest.mark.parametrize(
    "fields",
    [
        {"grant_id": 8},
        {"action": "registry.retire"},
        {"target": "datasets"},
        {"scope": msgspec.structs.replace(SCOPE, plan=None).text},
        {"requested_by": "eve"},
        {"expires_at": NOW + timedelta(seconds=2)},
    ],
)
def test_every_field_of_a_grant_is_in_the_signed_text(fields: dict[str, Any]) -> None:
    assert approval_text(but(**fields), "ledger-1") != approval_text(GRANT, "ledger-1")
    assert approval_text(GRANT, "ledger-2") != approval_text(GRANT, "ledger-1")


def test_later_states_of_a_grant_are_not_in_the_signed_text() -> None:
    later = but(state=GrantState.CONSUMED, version=3, consumed_by="ann", reason="done", updated_at=NOW)
    assert approval_text(later, "ledger-1") == approval_text(GRANT, "ledger-1")


def test_every_field_of_a_slip_is_in_the_signed_text() -> None:
    slip = Slip(
        action="snapshot.restore", target="t", executor="ann", rollback_plan="p", reason="r", approved_by="bob",
        issued_at="i", expires_at="e", nonce="n", public_key="k",
    )  # fmt: skip
    for field in slip.__struct_fields__:
        value: Any = 2 if field == "holdfast_slip" else "other"
        changed = msgspec.structs.replace(slip, **{field: value})
        assert (changed.text == slip.text) == (field == "signature")


@pytest.mark.parametrize("limit", [(), (3,)])
def test_a_word_may_be_as_long_as_its_limit_in_bytes(limit: tuple[int, ...]) -> None:
    longest = (limit or (WORD_BYTES_MAX,))[0]
    require_words(*limit, reason="x" * longest)
    for word in ("x" * (longest + 1), "é" * (longest // 2 + 1)):
        with pytest.raises(InputError) as caught:
            require_words(*limit, reason=word)
        assert caught.value.context == {"field": "reason"}


@pytest.mark.parametrize(
    "environment, via, bootstrap, doubt",
    [
        ("prod", "key", None, None),
        ("prod", "bootstrap", 7, None),
        ("prod", "bootstrap", 8, Doubt.APPROVER_UNPROVEN),  # of another registration
        ("prod", "name", None, Doubt.APPROVER_UNPROVEN),
        ("dev", "name", None, None),
    ],
)
def test_a_registration_in_prod_is_proven_by_how_it_was_approved(
    environment: str, via: str, bootstrap: int | None, doubt: Doubt | None
) -> None:
    approver = Approver("eve", "public", "move", "on call", 7, NOW, None, None)
    fields = {"state": GrantState.CONSUMED, "action": Act.APPROVER, "target": "eve", "consumed_by": "move"}
    grant = msgspec.structs.replace(
        scoped(manifest=sha256("public")), **fields, approved_via=canonical({"method": via})
    )
    found = registration_doubt(approver, grant, environment, bootstrap)
    assert (found and found[0]) is doubt
