"""Versions, manifests and digests: what is taken, what is refused and with which code, and what equal things share."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from holdfast.core.digest import canonical, cser_digest
from holdfast.core.errors import HoldfastError, RegistryError, SpecInvalidError
from holdfast.core.governed import RegistryValue
from holdfast.core.machines import ValueState
from holdfast.core.manifest import WORD_CHARACTERS_MAX, Manifest, read_manifest, require_digest
from holdfast.core.rollback import successor_faults
from holdfast.core.vocabulary import RegistryCode, precedence, stored_value, vocab_id
from tests.governance.registries import value

VECTOR = {
    "act_type": "governance_operation",
    "governing_authority_ref": "PG:sb1-gov-vocab",
    "operation_code": "authorize_build_step",
    "protocol_version": "1.0.0",
    "semantics_frozen": {"description": "Issue an L3 governance_build_authorization grant for one build step"},
}
VECTOR_DIGEST = "2ab1f90bc57322438186f967613290824c704664d516ca3feec96f01eb99e650"


def one(**fields: Any) -> dict[str, Any]:
    return {"collection": "c", "values": [value("a", **fields)]}


# ---------------------------------------------------------------------------------------------------------------------
# Digests


@pytest.mark.req("L-17")
def test_the_vector_of_cser_v1_is_reproduced() -> None:
    assert cser_digest(VECTOR) == VECTOR_DIGEST
    assert read_manifest({"collection": "c", "values": [VECTOR]}).values[0].digest == VECTOR_DIGEST
    assert canonical({**VECTOR, "cser": "v1"}).startswith('{"act_type":"governance_operation","cser":"v1",')


@pytest.mark.req("L-17")
def test_the_four_digests_are_unchanged() -> None:
    made = read_manifest({"collection": "c", "values": [value("b"), value("a")]})
    assert [each.operation_code for each in made.values] == ["a", "b"]
    assert [each.digest for each in made.values] == [
        "13e378dfb7925e5a752f7548cc1f1ac5b1c9d247c196a7142b1a2ec44b09045d",
        "30dfac26e38ff417fbb2a6049c385973815f7d36c5781b32b41217d55959fc1c",
    ]
    assert made.schema_digest == "4a02a95c9073682c1ad840225cf85d093a6ae9c814306408f62d36ccf126b3e3"
    assert made.schema_digest == cser_digest(made.schema)
    assert made.schema_text == canonical(made.schema)
    assert made.digest == "f9d4194ac249f4395ef82beba1b29bcd432bfca01292930b762d57ceea045c16"
    assert made.digest == cser_digest(
        {
            "collection": "c",
            "environment": None,
            "schema": made.schema_digest,
            "values": [cser_digest(value("a")), cser_digest(value("b"))],
        }
    )


@pytest.mark.req("L-17")
def test_a_digest_ignores_the_order_of_keys_and_nothing_else() -> None:
    values = [value(code) for code in "abcdef"]
    first = read_manifest({"collection": "c", "values": values})
    for seed in range(5):
        mixed = [dict(random.Random(seed).sample(list(each.items()), len(each))) for each in values]
        random.Random(seed).shuffle(mixed)
        assert read_manifest({"collection": "c", "values": mixed}) == first
    others = [
        {"collection": "d", "values": values},
        {"collection": "c", "values": values[:-1]},
        {"collection": "c", "environment": "dev", "values": values},
        {"collection": "c", "act_types": ["operation", "query"], "values": values},
        {"collection": "c", "values": [value("a", "1.0.1"), *values[1:]]},
        {"collection": "c", "values": [value("a", semantics_frozen=None), *values[1:]]},
        {"collection": "c", "values": [value("a", semantics_frozen={}), *values[1:]]},
        {"collection": "c", "values": [value("a", semantics_frozen={"description": None}), *values[1:]]},
        {"collection": "c", "values": [value("a", governing_authority_ref="board:8"), *values[1:]]},
    ]
    digests = {first.digest, *(read_manifest(other).digest for other in others)}
    assert len(digests) == 1 + len(others)


@pytest.mark.req("L-17", "L-24")
def test_a_text_that_can_be_written_in_two_ways_has_one_digest_or_is_refused() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    manifests = [read_manifest(one(semantics_frozen={"name": text})) for text in (composed, decomposed)]
    assert manifests[0].digest == manifests[1].digest
    assert manifests[0] == manifests[1]
    with pytest.raises(SpecInvalidError) as caught:
        read_manifest({"collection": "c", "values": [value(decomposed)]})
    assert caught.value.context["path"] == "values[0].operation_code"
    assert (
        read_manifest(one(semantics_frozen={"n": 1.0})).digest == read_manifest(one(semantics_frozen={"n": 1})).digest
    )


def test_a_word_of_a_manifest_is_as_long_as_its_limit() -> None:
    read_manifest(one(governing_authority_ref="a" * WORD_CHARACTERS_MAX))
    with pytest.raises(SpecInvalidError):
        read_manifest(one(governing_authority_ref="a" * (WORD_CHARACTERS_MAX + 1)))


@pytest.mark.req("L-16")
def test_a_value_has_the_same_id_everywhere_and_no_other_has_it() -> None:
    assert vocab_id("operations", "thumbnail", "1.0.0") == vocab_id("operations", "thumbnail", "1.0.0")
    ids = {
        vocab_id(*parts) for parts in (("a", "b", "1.0.0"), ("a", "b", "1.0.1"), ("ab", "", "1.0.0"), ("b", "a", "1"))
    }
    assert len(ids) == 4


WORDS = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=8)
SEMANTICS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.req("L-17")
@given(
    codes=st.lists(st.from_regex(r"[a-z]{1,6}", fullmatch=True), min_size=1, max_size=5, unique=True), means=SEMANTICS
)
def test_a_manifest_reads_back_the_same(codes: set[str], means: Any) -> None:
    try:
        first = read_manifest({"collection": "c", "values": [value(code, semantics_frozen=means) for code in codes]})
    except HoldfastError:
        reject()  # two keys that are one text once normalised
    assert read_manifest(first.text) == first
    require_digest(first, read_manifest(first.text).digest)


# ---------------------------------------------------------------------------------------------------------------------
# Versions

ORDER = (
    "0.0.0", "0.0.1", "0.1.0", "0.9.9", "0.10.0", "1.0.0-0", "1.0.0-9", "1.0.0-10", "1.0.0-alpha", "1.0.0-alpha.1",
    "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1", "1.1.0",
    "1.9.0", "1.10.0", "2.0.0-x-y-z", "2.0.0", "10.0.0", "99999999999999999999.0.0",
)  # fmt: skip


@pytest.mark.req("L-16")
def test_versions_rank_as_semver_says() -> None:
    mixed = list(ORDER)
    random.Random(7).shuffle(mixed)
    assert sorted(mixed, key=precedence) == list(ORDER)
    assert len({precedence(text) for text in ORDER}) == len(ORDER)


@pytest.mark.req("L-16", "L-13")
@pytest.mark.parametrize(
    "text",
    ["", "1", "1.0", "1.0.0.0", "01.0.0", "1.00.0", "v1.0.0", "1.0.0 ", " 1.0.0", "1.0.0+build", "1.0.0-", "1.0.0-01",
     "1.0.0-a..b", "1.-1.0", "1.0.0-é", "\uff11.0.0", "1.0.0\n", "1" * 70 + ".0.0", 1, 1.0, None, ["1.0.0"], True],
)  # fmt: skip
def test_a_text_that_is_not_a_version_is_refused(text: Any) -> None:
    with pytest.raises(RegistryError) as caught:
        read_manifest({"collection": "c", "values": [{**value("a"), "protocol_version": text}]})
    assert caught.value.code == "REJECT_BAD_PROTOCOL_VERSION"
    assert caught.value.context["path"] == "values[0].protocol_version"


# ---------------------------------------------------------------------------------------------------------------------
# Refusals

REFUSED: dict[str, tuple[Any, RegistryCode]] = {
    "no values": ({"collection": "c"}, RegistryCode.MISSING_PLAN),
    "an empty list": ({"collection": "c", "values": []}, RegistryCode.MISSING_PLAN),
    "a state that it claims": (one(state="active"), RegistryCode.RUNTIME_OVERCLAIM),
    "a status that it claims": (one(status="in force"), RegistryCode.RUNTIME_OVERCLAIM),
    "an identity that it claims": (one(vocab_id="x"), RegistryCode.RUNTIME_OVERCLAIM),
    "a field that is not governed": (one(handler="os.system"), RegistryCode.VALUE_INJECTION),
    "no authority": (one(governing_authority_ref=None), RegistryCode.AUTHORITY_ABSENT),
    "a blank who answers": (one(governing_authority_ref="  "), RegistryCode.AUTHORITY_ABSENT),
    "no version": (one(protocol_version=None), RegistryCode.BAD_VERSION),
    "the same twice": ({"collection": "c", "values": [value("a"), value("a")]}, RegistryCode.DUPLICATE_VALUE),
    "the same twice, and differently": (
        {"collection": "c", "values": [value("a"), value("a", semantics_frozen=None)]}, RegistryCode.DUPLICATE_VALUE,
    ),
    "two versions of one": (
        {"collection": "c", "values": [value("a"), value("a", "2.0.0")]}, RegistryCode.WRONG_FOR_EFFECT,
    ),
    "another digest": ({**one(), "manifest_digest": "0" * 64}, RegistryCode.MANIFEST_HASH_MISMATCH),
    "an act that operations have not": (
        {"collection": "operations", "values": [value("a", act_type="query")]}, RegistryCode.WRONG_CARRIER,
    ),
    "an act that it does not list": ({**one(), "act_types": ["query"]}, RegistryCode.WRONG_CARRIER),
}  # fmt: skip


@pytest.mark.req("L-13", "L-16")
@pytest.mark.parametrize("case", REFUSED)
def test_a_manifest_is_refused_with_one_code(case: str) -> None:
    document, code = REFUSED[case]
    with pytest.raises(RegistryError) as caught:
        read_manifest(document)
    assert (caught.value.code, caught.value.exit_code) == (code, 3)
    assert caught.value.hint


@pytest.mark.req("L-24", "L-16")
def test_one_code_may_have_many_versions_as_long_as_their_acts_differ() -> None:
    manifest = read_manifest({"collection": "c", "values": [value("a"), value("a", "2.0.0", act_type="query")]})
    assert [each.name for each in manifest.values] == ["a@1.0.0", "a@2.0.0"]


INVALID: dict[str, tuple[Any, str]] = {
    "a list": ([], "$"),
    "nothing": (None, "$"),
    "a field too many": ({**one(), "version": 1}, "version"),
    "another cser": ({**one(), "cser": "v2"}, "cser"),
    "no such environment": ({**one(), "environment": "test"}, "environment"),
    "a collection of blanks": ({**one(), "collection": " "}, "collection"),
    "a collection with blanks around it": ({**one(), "collection": " c"}, "collection"),
    "a collection that rings": ({**one(), "collection": "c\a"}, "collection"),
    "values that are no list": ({"collection": "c", "values": {"a": 1}}, "values"),
    "a value that is no mapping": ({"collection": "c", "values": [value("a"), "b"]}, "values[1]"),
    "a code that is a number": (one(operation_code=7), "values[0].operation_code"),
    "a code that is long": (one(operation_code="x" * 201), "values[0].operation_code"),
    "no code": (one(operation_code=None), "values[0].operation_code"),
    "an act that is a list": (one(act_type=[]), "values[0].act_type"),
    "an authority that is a number": (one(governing_authority_ref=7), "values[0].governing_authority_ref"),
    "acts that are no list": ({**one(), "act_types": "operation"}, "act_types"),
    "acts that are numbers": ({**one(), "act_types": [1]}, "act_types[0]"),
}


@pytest.mark.req("L-13")
@pytest.mark.parametrize("case", INVALID)
def test_a_manifest_of_another_shape_is_refused_with_the_path_of_the_field(case: str) -> None:
    document, path = INVALID[case]
    with pytest.raises(SpecInvalidError) as caught:
        read_manifest(document)
    assert (caught.value.exit_code, caught.value.context["path"]) == (2, path)


def test_the_semantics_of_a_value_may_be_null_but_not_missing() -> None:
    document = one()
    del document["values"][0]["semantics_frozen"]
    with pytest.raises(SpecInvalidError) as caught:
        read_manifest(document)
    assert caught.value.context["path"] == "values[0].semantics_frozen"
    assert read_manifest(one(semantics_frozen=None)).values[0].semantics_text == "null"


# ---------------------------------------------------------------------------------------------------------------------
# Successors


def row(name: str, follower: str | None = None, state: ValueState | None = None) -> RegistryValue:
    code, _, version = name.partition("@")
    next_code, _, next_version = (follower or "").partition("@")
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    made = read_manifest({"collection": "c", "values": [value(code, version)]}).values[0]
    return RegistryValue(
        value_id=1, vocab_id="v", collection="c", operation_code=code, protocol_version=version, act_type="operation",
        semantics=made.semantics_text, authority_ref="board:7", digest=made.digest, status="in force",
        state=state or (ValueState.SUPERSEDED if follower else ValueState.ACTIVE), version=1,
        successor_code=next_code or None, successor_version=next_version or None, rollback_ref=None, run_id=1,
        grant_id=1, created_at=moment, updated_at=moment,
    )  # fmt: skip


@pytest.mark.req("L-16", "L-24")
@pytest.mark.parametrize(
    "rows, faults",
    [
        ([], []),
        ([row("a@1.0.0")], []),
        ([row("a@1.0.0", "a@2.0.0"), row("a@2.0.0", "b@1.0.0"), row("b@1.0.0")], []),
        ([row("a@2.0.0", "b@1.0.0"), row("b@1.0.0")], []),
        ([row("a@1.0.0", state=ValueState.SUPERSEDED)], ["a@1.0.0 is superseded, but has no successor"]),
        ([row("a@1.0.0", "a@2.0.0")], ["the successor of a@1.0.0, a@2.0.0, does not exist"]),
        ([row("a@2.0.0", "a@1.9.0"), row("a@1.9.0")], ["the successor of a@2.0.0 is an older version, 1.9.0"]),
        ([row("a@2.0.0", "a@2.0.0-rc.1"), row("a@2.0.0-rc.1")],
         ["the successor of a@2.0.0 is an older version, 2.0.0-rc.1"]),
        ([row("a@1.0.0", "a@1.0.0")], ["the successors of a@1.0.0 form a circle"]),
        ([row("a@1.0.0", "b@1.0.0"), row("b@1.0.0", "a@1.0.0")],
         ["the successors of a@1.0.0 form a circle", "the successors of b@1.0.0 form a circle"]),
        ([row("a@1.0.0", "b@1.0.0"), row("b@1.0.0", "c@1.0.0"), row("c@1.0.0", "b@1.0.0")],
         ["the successors of b@1.0.0 form a circle", "the successors of c@1.0.0 form a circle"]),
    ],
)  # fmt: skip
def test_faults_of_successors(rows: list[RegistryValue], faults: list[str]) -> None:
    assert successor_faults(rows) == faults


def test_a_version_that_was_written_by_hand_does_not_follow() -> None:
    odd = msgspec.structs.replace(row("a@1.0.0"), protocol_version="latest")
    followed = msgspec.structs.replace(row("a@1.0.0", "a@2.0.0"), successor_version="latest")
    assert successor_faults([followed, odd]) == ["the successor of a@1.0.0 is an older version, latest"]


def test_a_row_has_the_digest_of_the_admitted_value() -> None:
    made: Manifest = read_manifest({"collection": "c", "values": [value("a")]})
    assert stored_value(row("a@1.0.0")) == made.values[0]
    for changed in ("{", '"does it"', "{}"):
        assert stored_value(msgspec.structs.replace(row("a@1.0.0"), semantics=changed)).digest != made.values[0].digest
