"""The rollback oracle: RBP-0 to RBP-10 and PASS, each reached, one verdict for any input, the lower number first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.digest import sha256
from holdfast.core.governed import RegistryValue
from holdfast.core.machines import ValueState
from holdfast.core.rollback import (
    Contract,
    Disposition,
    Facts,
    RollbackVerdict,
    SuccessorFault,
    rollback_verdict,
    successor_fault,
)
from holdfast.core.vocabulary import ValueName

NOW = datetime(2026, 3, 14, tzinfo=UTC)
# As FACTS names them, in their order.
NAMES = (
    "RUNTIME_MUTATION_REJECTED",
    "ROLLBACK_PLAN_ABSENT",
    "ROLLBACK_DELETES_REFERENCED_IDENTITY",
    "ROLLBACK_ORPHANS_DEPENDENCY",
    "ROLLBACK_ERASES_HISTORY",
    "ROLLBACK_CHANGES_HISTORICAL_SEMANTICS",
    "ROLLBACK_WEAKENS_AUTHORITY",
    "ROLLBACK_SUCCESSOR_RULE_ABSENT",
    "ROLLBACK_FORWARD_FAIL_CLOSED_VIOLATED",
    "ROLLBACK_AUDIT_TRAIL_ABSENT",
    "ROLLBACK_NOT_LOCAL",
)
PASS = "ROLLBACK_CONTRACT_VALID_FOR_REVIEW"  # noqa: S105 - no secret


def value(version: str = "1.0.0", code: str = "x", **differs: object) -> RegistryValue:
    made = RegistryValue(
        value_id=1, vocab_id="v", collection="operations", operation_code=code, protocol_version=version,
        act_type="operation", semantics='{"means":1}', authority_ref="team", digest="d", status="in force",
        state=ValueState.ACTIVE, version=1, successor_code=None, successor_version=None, rollback_ref=None, run_id=1,
        grant_id=1, created_at=NOW, updated_at=NOW,
    )  # fmt: skip
    return msgspec.structs.replace(made, **differs)


CONTRACT = Contract(
    disposition=Disposition.SUPERSEDE,
    target="x@1.0.0",
    successor="x@2.0.0",
    plan="runbook 7",
    audit="supersession",
    collections=("operations",),
)
FACTS = Facts(target=value(), successor=value("2.0.0"))

Case = tuple[Contract, Facts]
Spoil = Callable[[Contract, Facts], Case]


def contract(**differs: object) -> Spoil:
    return lambda wish, facts: (msgspec.structs.replace(wish, **differs), facts)


def facts(**differs: object) -> Spoil:
    return lambda wish, known: (wish, msgspec.structs.replace(known, **differs))


def both(*spoils: Spoil) -> Spoil:
    def spoil(wish: Contract, known: Facts) -> Case:
        for one in spoils:
            wish, known = one(wish, known)
        return wish, known

    return spoil


# Every way to be refused: the number of the code, and what makes the sound contract so.
TABLE: list[tuple[int, str, Spoil]] = [
    (0, "it would run by itself", contract(executes=True)),
    (1, "no plan", contract(plan="")),
    (1, "a blank plan", contract(plan=" \t")),
    (1, "a target without a version", both(contract(target="x"), facts(target=None))),
    (1, "a target that is not there", facts(target=None)),
    (2, "a deletion", contract(disposition=Disposition.DELETE)),
    (2, "a deletion that names no successor", contract(disposition=Disposition.DELETE, successor="")),
    (3, "a successor that is not there", facts(successor=None)),
    (3, "jobs without a handler", both(contract(drops_handlers=True), facts(open_jobs=1))),
    (4, "history that is removed", contract(erases=("journal of x@1.0.0",))),
    (5, "another meaning of what was", contract(semantics=sha256('{"means":2}'))),
    (6, "another authority", contract(authority="somebody")),
    (6, "no authority", contract(authority="")),
    (6, "a successor under another authority", facts(successor=value("2.0.0", authority_ref="somebody"))),
    (7, "no successor", both(contract(successor=""), facts(successor=None))),
    (7, "a successor without a version", both(contract(successor="x"), facts(successor=None))),
    (7, "a successor without a code", both(contract(successor="@2.0.0"), facts(successor=None))),
    (8, "itself", both(contract(successor="x@1.0.0"), facts(successor=value()))),
    (8, "a successor that is retired", facts(successor=value("2.0.0", state=ValueState.RETIRED))),
    (8, "a successor that is superseded", facts(successor=value("2.0.0", state=ValueState.SUPERSEDED))),
    (8, "a successor that is staged", facts(successor=value("2.0.0", status="staged"))),
    (8, "a successor that is withheld", facts(successor=value("2.0.0", status="withheld"))),
    (8, "an older successor", facts(successor=value("0.9.0"))),
    (8, "a successor that is a release candidate of itself", facts(successor=value("1.0.0-rc.1"))),
    (8, "a successor whose version does not rank", facts(successor=value("two"))),
    (8, "a successor for another act", facts(successor=value("2.0.0", act_type="other"))),
    (8, "a circle of two", facts(follows={ValueName("x", "2.0.0"): ValueName("x", "1.0.0")})),
    (
        8,
        "a circle of three",
        facts(
            follows={ValueName("x", "2.0.0"): ValueName("y", "1.0.0"), ValueName("y", "1.0.0"): ValueName("x", "1.0.0")}
        ),
    ),
    (8, "a target that has moved", facts(target=value(state=ValueState.SUPERSEDED))),
    (
        8,
        "a retired target",
        both(contract(disposition=Disposition.RETIRE), facts(target=value(state=ValueState.RETIRED))),
    ),
    (8, "a target that is not in force", facts(target=value(status="withheld"))),
    (9, "no audit", contract(audit="")),
    (10, "another collection", contract(collections=("operations", "others"))),
    (10, "a successor of another collection", facts(successor=value("2.0.0", collection="others"))),
]  # fmt: skip


@pytest.mark.req("L-19")
def test_the_set_of_codes_is_closed_and_matches_its_source() -> None:
    assert [str(verdict) for verdict in RollbackVerdict] == [*NAMES, PASS]
    assert [verdict.number for verdict in RollbackVerdict] == [*(f"RBP-{n}" for n in range(11)), "PASS"]


@pytest.mark.req("L-19", "L-18", "L-13")
@pytest.mark.parametrize("number, spoil", [(n, spoil) for n, _, spoil in TABLE], ids=[f"{n} {w}" for n, w, _ in TABLE])
def test_each_code_is_reached_only_by_its_cause(number: int, spoil: Spoil) -> None:
    assert rollback_verdict(CONTRACT, FACTS) == PASS
    assert rollback_verdict(*spoil(CONTRACT, FACTS)) == NAMES[number]


def test_every_code_is_in_the_table() -> None:
    assert {number for number, _, _ in TABLE} == set(range(11))


@pytest.mark.req("L-19", "L-18")
@pytest.mark.parametrize(
    "spoil",
    [
        contract(),
        contract(collections=()),
        contract(semantics=sha256('{"means":1}')),
        contract(authority="team"),
        contract(drops_handlers=True),
        facts(open_jobs=5),
        contract(target="v"),  # by its vocab_id
        both(contract(successor="y@0.1.0"), facts(successor=value("0.1.0", "y"))),  # another code has its own versions
        both(contract(disposition=Disposition.RETIRE, successor=""), facts(successor=None)),
        facts(successor=value("1.0.0-rc.1"), target=value("1.0.0-beta")),
        facts(
            follows={ValueName("x", "0.9.0"): ValueName("x", "1.0.0"), ValueName("w", "1.0.0"): ValueName("w", "2.0.0")}
        ),
    ],
)
def test_a_sound_contract_passes(spoil: Spoil) -> None:
    assert rollback_verdict(*spoil(CONTRACT, FACTS)) == PASS


ONE_OF_EACH: list[Spoil] = [
    contract(executes=True),
    contract(plan=""),
    contract(disposition=Disposition.DELETE),
    both(contract(drops_handlers=True), facts(open_jobs=1)),
    contract(erases=("everything",)),
    contract(semantics="0"),
    contract(authority="somebody"),
    both(contract(successor=""), facts(successor=None)),
    facts(target=value(state=ValueState.RETIRED)),
    contract(audit=""),
    contract(collections=("operations", "others")),
]


@pytest.mark.req("L-19")
def test_the_lowest_number_wins_in_every_combination() -> None:
    """All 2^11 sets of faults: the verdict is the least of the set, whatever else is wrong."""
    for size in range(12):
        for faults in combinations(range(11), size):
            case = both(*(ONE_OF_EACH[n] for n in faults))(CONTRACT, FACTS)
            verdict = rollback_verdict(*case)
            assert verdict == (NAMES[min(faults)] if faults else PASS), faults


WORDS = st.sampled_from(["", " ", "x", "x@1.0.0", "x@2.0.0", "y@1.0.0", "@", "operations", "others", "team", "0"])
VALUES = st.builds(
    value,
    st.sampled_from(["1.0.0", "2.0.0", "0.9.0", "2.0.0-rc.1", "none"]),
    st.sampled_from(["x", "y"]),
    state=st.sampled_from(list(ValueState)),
    status=st.sampled_from(["in force", "staged", "withheld"]),
    act_type=st.sampled_from(["operation", "other"]),
    authority_ref=st.sampled_from(["team", "other", ""]),
    collection=st.sampled_from(["operations", "others"]),
)
NAMED = st.builds(ValueName, st.sampled_from(["x", "y"]), st.sampled_from(["1.0.0", "2.0.0", "0.9.0"]))
CONTRACTS = st.builds(
    Contract,
    disposition=st.sampled_from(list(Disposition)),
    target=WORDS,
    successor=WORDS,
    plan=WORDS,
    audit=WORDS,
    executes=st.booleans(),
    drops_handlers=st.booleans(),
    erases=st.lists(WORDS, max_size=1).map(tuple),
    semantics=st.none() | st.sampled_from(["0", sha256('{"means":1}')]),
    authority=st.none() | WORDS,
    collections=st.lists(WORDS, max_size=2).map(tuple),
)
ALL_FACTS = st.builds(
    Facts,
    target=st.none() | VALUES,
    successor=st.none() | VALUES,
    follows=st.dictionaries(NAMED, NAMED, max_size=4),
    open_jobs=st.integers(0, 2),
)


def restated(wish: Contract, known: Facts) -> str:
    """The oracle in other words: every condition of a valid contract, by the number of the code that guards it."""
    target, after = known.target, known.successor
    names_successor = "@" in wish.successor and all(part.strip() for part in wish.successor.split("@", 1))
    needs_successor = wish.disposition == "supersede"
    sound = {
        0: not wish.executes,
        1: wish.plan.strip() != "" and target is not None,
        2: wish.disposition != "delete",
        3: not (names_successor and after is None) and not (wish.drops_handlers and known.open_jobs),
        4: wish.erases == (),
        5: wish.semantics in (None, sha256(target.semantics) if target else "nothing"),
        6: {wish.authority, after.authority_ref if after else None} <= {None, target.authority_ref if target else None},
        7: names_successor or not needs_successor,
        8: target is not None
        and (target.state, target.status) == ("active", "in force")
        and (not needs_successor or successor_fault(known) is None),
        9: wish.audit.strip() != "",
        10: len(set(wish.collections) | {v.collection for v in (target, after) if v}) <= 1,
    }
    return next((NAMES[n] for n in range(11) if not sound[n]), PASS)


@pytest.mark.req("L-19")
@given(CONTRACTS, ALL_FACTS)
def test_any_input_has_exactly_one_verdict(wish: Contract, known: Facts) -> None:
    verdict = rollback_verdict(wish, known)
    assert verdict in {*NAMES, PASS}
    assert verdict == restated(wish, known)
    assert rollback_verdict(wish, known) is verdict


# ---------------------------------------------------------------------------------------------------------------------
# Faults of a successor


@pytest.mark.req("L-16", "L-18")
@pytest.mark.parametrize(
    "known, fault",
    [
        (FACTS, None),
        (Facts(target=value(), successor=value("1.0.0", "y")), None),
        (Facts(target=value("1.2.0"), successor=value("1.10.0")), None),
        (Facts(target=value(), successor=None), SuccessorFault.UNKNOWN),
        (Facts(target=None, successor=value()), SuccessorFault.UNKNOWN),
        (Facts(target=value(), successor=value()), SuccessorFault.ITSELF),
        (
            Facts(
                target=value("2.0.0"),
                successor=value("1.0.0", state=ValueState.SUPERSEDED),
                follows={ValueName("x", "1.0.0"): ValueName("x", "2.0.0")},
            ),
            SuccessorFault.CYCLE,
        ),
        (Facts(target=value(), successor=value("2.0.0", state=ValueState.RETIRED)), SuccessorFault.NOT_ACTIVE),
        (Facts(target=value(), successor=value("2.0.0", status="staged")), SuccessorFault.NOT_ACTIVE),
        (Facts(target=value("1.10.0"), successor=value("1.2.0")), SuccessorFault.VERSION_LOWER),
        (Facts(target=value("2.0.0"), successor=value("2.0.0-rc.1")), SuccessorFault.VERSION_LOWER),
        (Facts(target=value(), successor=value("2.0.0", act_type="other")), SuccessorFault.OTHER_ACT),
    ],
)
def test_each_fault_of_a_successor(known: Facts, fault: SuccessorFault | None) -> None:
    assert successor_fault(known) == fault


def test_a_cycle_of_successors_in_the_records_is_bounded() -> None:
    follows = {ValueName("y", "1.0.0"): ValueName("y", "2.0.0"), ValueName("y", "2.0.0"): ValueName("y", "1.0.0")}
    assert successor_fault(Facts(target=value(), successor=value("1.0.0", "y"), follows=follows)) is None


@pytest.mark.parametrize(
    "text, named",
    [
        ("x@1.0.0", ValueName("x", "1.0.0")),
        ("a.b:c@1.0.0-rc.1", ValueName("a.b:c", "1.0.0-rc.1")),
        ("x", None),
        ("x@", None),
        ("@1", None),
        (" @ ", None),
        ("", None),
    ],
)
def test_a_value_name_is_parsed(text: str, named: ValueName | None) -> None:
    assert ValueName.parsed(text) == named
    assert named is None or str(named) == text
    assert ValueName.of(value("1.0.0", "y")) == ValueName("y", "1.0.0")
