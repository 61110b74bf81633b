"""Canonical JSON: one text for one value, everywhere, and a typed refusal for what JSON cannot carry.

Invariants: expected texts are written out as bytes would be seen; no expectation is computed by the code under test.
"""

from __future__ import annotations

import json
import math
import unicodedata
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.digest import (
    DEPTH_MAX,
    INTEGER_BITS_MAX,
    SHORT,
    canonical,
    cser_digest,
    digest,
    is_storable,
    payload_text,
    read_back,
    sha256,
)
from holdfast.core.errors import InputError, PayloadNotJsonError, PayloadTooDeepError, PayloadTooLargeError
from holdfast.core.exact_json import written
from holdfast.core.json_input import loads

pytestmark = pytest.mark.attack("input")

VECTOR = {
    "protocol_version": "1.0.0",
    "operation_code": "authorize_build_step",
    "act_type": "governance_operation",
    "governing_authority_ref": "PG:sb1-gov-vocab",
    "semantics_frozen": {"description": "Issue an L3 governance_build_authorization grant for one build step"},
}
VECTOR_TEXT = (
    '{"act_type":"governance_operation","cser":"v1","governing_authority_ref":"PG:sb1-gov-vocab",'
    '"operation_code":"authorize_build_step","protocol_version":"1.0.0","semantics_frozen":'
    '{"description":"Issue an L3 governance_build_authorization grant for one build step"}}'
)
VECTOR_DIGEST = "2ab1f90bc57322438186f967613290824c704664d516ca3feec96f01eb99e650"


@pytest.mark.req("L-17")
def test_the_published_test_vector_is_reproduced_exactly() -> None:
    assert canonical({**VECTOR, "cser": "v1"}) == VECTOR_TEXT
    assert cser_digest(VECTOR) == VECTOR_DIGEST
    assert digest({**VECTOR, "cser": "v1"}) == VECTOR_DIGEST
    assert sha256(VECTOR_TEXT) == VECTOR_DIGEST


@pytest.mark.req("L-17")
def test_the_version_of_the_form_is_part_of_what_is_digested() -> None:
    assert cser_digest({}) == sha256('{"cser":"v1"}')
    assert cser_digest({"cser": "v2"}) == sha256('{"cser":"v1"}')


TEXTS: list[tuple[Any, str]] = [
    (None, "null"),
    (True, "true"),
    (False, "false"),
    ("", '""'),
    ([], "[]"),
    ({}, "{}"),
    ([1, [2, []], {"a": None}], '[1,[2,[]],{"a":null}]'),
    ({"b": 1, "a": 2, "B": 3, "": 4}, '{"":4,"B":3,"a":2,"b":1}'),
    ({"a": None}, '{"a":null}'),
    # integers, of any size that is kept
    (0, "0"),
    (-7, "-7"),
    (2**53, "9007199254740992"),
    (10**22, "10000000000000000000000"),
    (2**INTEGER_BITS_MAX - 1, str(2**1024 - 1)),
    # floats: the shortest text that reads back as the same number
    (1.0, "1"),
    (-1.0, "-1"),
    (0.0, "0"),
    (-0.0, "0"),
    (100.0, "100"),
    (0.1, "0.1"),
    (1.5, "1.5"),
    (1e22, "1e22"),
    (-1e22, "-1e22"),
    (1.5e300, "1.5e300"),
    (1e-7, "1e-7"),
    (5e-324, "5e-324"),
    (2.0**53 - 1, "9007199254740991"),
    (2.0**53, "9007199254740992"),
    (2.0**53 + 2, "9007199254740994"),
    (9999999999999998.0, "9999999999999998"),
    (1e16, "1e16"),
    (0.1 + 0.2, "0.30000000000000004"),
    (1.7976931348623157e308, "1.7976931348623157e308"),
    ([1.0, {"x": 2.50}], '[1,{"x":2.5}]'),
    # a string that looks like a float is left alone
    ("1.0", '"1.0"'),
    ("e+", '"e+"'),
    # escapes: only what JSON demands, in one way
    ('"\\/', '"\\"\\\\/"'),
    ("\b\f\n\r\t", '"\\b\\f\\n\\r\\t"'),
    ("\x00\x1f\x7f", '"\\u0000\\u001f\x7f"'),
    ("é ✓ 💡", '"é ✓ 💡"'),
    ("\u2028", '"\u2028"'),
    # NFC: composed and decomposed are one text, as keys too
    ("e\u0301", '"é"'),
    ({"e\u0301": "n\u0303"}, '{"é":"ñ"}'),
    ("\u212b", '"\u00c5"'),  # the angstrom sign becomes the letter
    # keys by code point: a supplementary character comes after U+FFFF, where UTF-16 order would put it before
    ({"\U00010000": 1, "\uffff": 2, "a": 3}, '{"a":3,"\uffff":2,"\U00010000":1}'),
    # and after they were normalised: U+212B sorts as U+00C5
    ({"\u212b": 1, "\u0100": 2}, '{"\u00c5":1,"\u0100":2}'),
]


@pytest.mark.req("L-17")
@pytest.mark.parametrize("value, text", TEXTS, ids=[ascii(value)[:40] for value, _ in TEXTS])
def test_a_value_has_one_text(value: Any, text: str) -> None:
    assert canonical(value) == text
    assert digest(value) == sha256(text)
    assert payload_text(value) == text


@pytest.mark.req("L-17")
def test_null_is_not_the_same_as_missing() -> None:
    assert digest({"a": None}) != digest({})


class _Colour(StrEnum):
    RED = "red"


class _Number(IntEnum):
    ONE = 1


_CIRCLE: list[Any] = []
_CIRCLE.append(_CIRCLE)

FOREIGN: list[tuple[Any, str]] = [
    (math.nan, "nan is not JSON"),
    (math.inf, "inf is not JSON"),
    ([-math.inf], "-inf is not JSON"),
    ((1, 2), "tuple is not a JSON type"),
    ({"a": (1,)}, "tuple is not a JSON type"),
    ({1, 2}, "set is not a JSON type"),
    (b"bytes", "bytes is not a JSON type"),
    (1j, "complex is not a JSON type"),
    (object(), "object is not a JSON type"),
    (_Colour.RED, "_Colour is not a JSON type"),
    (_Number.ONE, "_Number is not a JSON type"),
    ({1: "a"}, "an object key is int, not text"),
    ({None: "a"}, "an object key is NoneType, not text"),
    ({True: "a"}, "an object key is bool, not text"),
    ({_Colour.RED: "a"}, "an object key is _Colour, not text"),
    ("\ud800", "a string contains half of a surrogate pair"),
    (["ok", "\udfff"], "a string contains half of a surrogate pair"),
    ({"\ud800": 1}, "a string contains half of a surrogate pair"),
    (2**INTEGER_BITS_MAX, "an integer has more than 1024 bits"),
    (-(2**INTEGER_BITS_MAX), "an integer has more than 1024 bits"),
    ({"é": 1, "e\u0301": 2}, "two keys of an object are equal after Unicode normalisation"),
    ([{"x": {"\u212b": 1, "\u00c5": 2}}], "two keys of an object are equal after Unicode normalisation"),
]


@pytest.mark.req("L-17")
@pytest.mark.parametrize("value, message", FOREIGN, ids=[message for _, message in FOREIGN])
def test_a_value_that_json_cannot_represent_is_refused(value: Any, message: str) -> None:
    with pytest.raises(PayloadNotJsonError) as caught:
        canonical(value)
    assert str(caught.value) == message
    assert caught.value.as_dict()["error_code"] == "payload_not_json"


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def test_nesting_is_bounded_exactly() -> None:
    assert json.loads(canonical(nested(DEPTH_MAX))) == nested(DEPTH_MAX)
    for value in (nested(DEPTH_MAX + 1), nested(100_000), _CIRCLE):
        with pytest.raises(PayloadTooDeepError) as caught:
            canonical(value)
        assert caught.value.context == {"limit": 64}


def test_a_payload_is_measured_in_bytes() -> None:
    assert payload_text("é" * 10, size_max=22) == '"' + "é" * 10 + '"'
    with pytest.raises(PayloadTooLargeError) as caught:
        payload_text("é" * 10, size_max=21)
    assert str(caught.value) == "the payload has 22 bytes; the limit is 21"
    assert caught.value.context == {"bytes": 22, "limit": 21}
    assert len(payload_text("x" * (2**20 - 2))) == 2**20
    with pytest.raises(PayloadTooLargeError):
        payload_text("x" * (2**20 - 1))


# -- reading what comes from outside ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, value",
    [('{"a":[1,2.5,null]}', {"a": [1, 2.5, None]}), (b' "\xc3\xa9" ', "é"), ("1e2", 100.0), ('"\\u00e9"', "é")],
)
def test_json_from_outside_is_read(text: str | bytes, value: Any) -> None:
    assert loads(text) == value


@pytest.mark.parametrize(
    "text, error",
    [
        ("", PayloadNotJsonError),
        ("{", PayloadNotJsonError),
        ("{'a': 1}", PayloadNotJsonError),
        ("[1,]", PayloadNotJsonError),
        ("NaN", PayloadNotJsonError),
        ("[Infinity]", PayloadNotJsonError),
        ("-Infinity", PayloadNotJsonError),
        ("1e999", PayloadNotJsonError),
        ("9" * 5000, PayloadNotJsonError),
        (str(2**INTEGER_BITS_MAX), PayloadNotJsonError),
        (b"\xff\xfe\xfd", PayloadNotJsonError),
        ("[" * 100_000, PayloadTooDeepError),
        ("[" * 65 + "]" * 65, PayloadTooDeepError),
        ('"' + "x" * 2**20 + '"', PayloadTooLargeError),
        ("[" * 2**21, PayloadTooLargeError),  # size first: what is too large is not even parsed
    ],
    ids=range(15),
)
def test_bad_json_from_outside_is_a_typed_error(text: str | bytes, error: type[InputError]) -> None:
    with pytest.raises(error) as caught:
        loads(text)
    assert len(caught.value.message) < 200, "an error message carries no payload"
    assert caught.value.exit_code == 2


def test_input_may_be_as_large_as_the_limit() -> None:
    assert loads('"é"', size_max=4) == "é"
    with pytest.raises(PayloadTooLargeError) as caught:
        loads('"é"', size_max=3)
    assert caught.value.context == {"bytes": 4, "limit": 3}


@pytest.mark.parametrize("text", ['"\ud800"', '"\\ud800"', b'"\\ud800"', b'"\xed\xa0\x80"'])
def test_an_unpaired_surrogate_in_input_is_refused(text: str | bytes) -> None:
    with pytest.raises(PayloadNotJsonError):
        payload_text(loads(text))


@pytest.mark.parametrize("value", ["\ud800", ["\ud800", 1.0], {"\udfff": 10**22}])
def test_half_of_a_surrogate_pair_is_refused_by_either_encoder(value: Any) -> None:
    with pytest.raises(PayloadNotJsonError):
        canonical(value)


@pytest.mark.parametrize(
    "text, stored",
    [("", True), ("a", True), ("é 💡", True), ("\0", False), ("é\0", False), ("\ud800", False), ("a\udfff", False)],
)
def test_a_text_that_a_database_cannot_store_is_known(text: str, stored: bool) -> None:
    assert is_storable(text) is stored


# -- properties -------------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)


def _objects(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    # Keys that differ only before they are normalised are another test's business.
    return st.lists(
        st.tuples(TEXT, values), max_size=5, unique_by=lambda item: unicodedata.normalize("NFC", item[0])
    ).map(dict)


VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=5) | _objects(inner), max_leaves=20)


def normalised(value: Any) -> Any:
    """Return the value with every string in NFC: all that canonical text may change."""
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, list):
        return [normalised(item) for item in value]
    if isinstance(value, dict):
        return {normalised(key): normalised(item) for key, item in value.items()}
    return value


def shuffled(value: Any) -> Any:
    """Return an equal value whose objects were built in the opposite order."""
    if isinstance(value, list):
        return [shuffled(item) for item in value]
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    return value


@pytest.mark.req("L-17")
@given(VALUES)
def test_canonical_text_is_the_value(value: Any) -> None:
    assert json.loads(canonical(value)) == normalised(value)
    assert loads(canonical(value)) == normalised(value)


@pytest.mark.req("L-17")
@given(VALUES)
def test_canonical_text_is_stable(value: Any) -> None:
    text = canonical(value)
    assert canonical(json.loads(text)) == text
    assert canonical(normalised(value)) == text
    assert canonical(shuffled(value)) == text


@given(st.floats(-1e15, 1e15) | st.floats(-400, 400).map(lambda number: round(number, 4)))
def test_a_fraction_is_written_as_python_writes_it(number: float) -> None:
    if abs(number) > 1e-3 and not number.is_integer():  # others: see the texts above
        assert canonical({"a": [number, -number]}) == f'{{"a":[{number!r},{-number!r}]}}'


@given(VALUES)
def test_canonical_text_has_no_white_space_but_in_strings(value: Any) -> None:
    outside = "".join(canonical(value).replace("\\\\", "").replace('\\"', "").split('"')[::2])
    assert not any(character.isspace() for character in outside)


@given(st.integers(-(2**53) + 1, 2**53 - 1))
def test_a_whole_number_has_one_text_whatever_its_type(number: int) -> None:
    assert canonical(number) == canonical(float(number)) == str(number)


READ_BACK: list[tuple[Any, str | None]] = [
    ({}, "{}"),
    ({"b": [1, None, True], "a": {"x": "y"}}, '{"a":{"x":"y"},"b":[1,null,true]}'),
    ({"a": 2.5, "b": -0.1}, '{"a":2.5,"b":-0.1}'),
    ({"a": "é"}, '{"a":"é"}'),
    # what an encoder turns into JSON
    ({"a": (1, (2,))}, '{"a":[1,[2]]}'),
    ({"at": datetime(2031, 2, 3, tzinfo=UTC)}, '{"at":"2031-02-03T00:00:00Z"}'),
    ({"a": Decimal("1.50")}, '{"a":"1.50"}'),
    ({"a": {3}}, '{"a":[3]}'),
    ({"a": b"x"}, '{"a":"eA=="}'),
    # what takes a closer look
    ({"a": 1.0}, None),
    ({"a": -0.0}, None),
    ({"a": 1e22}, None),
    ({"a": 1e-7}, None),
    ({"a": math.nan}, None),
    ({"a": None, "b": math.inf}, None),
    ({"a": (1, 2.0)}, None),
    ({"a": None, "b": (1,)}, None),
    ({1: "a"}, None),
    ({1: "a", "1": "b"}, None),
    ({"a": 2**INTEGER_BITS_MAX}, None),
    ({"a": 2**64}, '{"a":18446744073709551616}'),
    ({"e\u0301": 1}, None),
    ({"a": "\ud800"}, None),
    ({"a": ...}, None),
    ([], None),
    ("a", None),
    (None, None),
]


@pytest.mark.req("L-17")
@pytest.mark.parametrize("value, text", READ_BACK, ids=[ascii(value)[:40] for value, _ in READ_BACK])
def test_an_object_that_an_encoder_writes_exactly_is_read_back(value: Any, text: str | None) -> None:
    found = read_back(value)
    assert found == (None if text is None else (text, json.loads(text)))
    assert found is None or canonical(found[1]) == text


@pytest.mark.req("L-17")
@pytest.mark.parametrize("value, text", READ_BACK, ids=[ascii(value)[:40] for value, _ in READ_BACK])
def test_a_long_object_is_read_back_as_a_short_one_is(value: Any, text: str | None) -> None:
    longer = {**value, "z": "z" * SHORT} if isinstance(value, dict) else [value, "z" * SHORT]
    found, read = read_back(longer), {**json.loads(text or "{}"), "z": "z" * SHORT}
    if text is None or text != canonical(json.loads(text)) or read != longer:
        assert found in (
            None,
            (canonical(read), read),
        )
        assert found is None or text is not None
    elif value != {"a": 2**64}:
        assert found == (canonical(read), read)


@pytest.mark.req("L-17")
@given(_objects(VALUES), st.sampled_from(["", "z" * SHORT]))
def test_what_is_read_back_is_the_value_with_its_canonical_text(value: Any, more: str) -> None:
    longer = {**value, "z": more}
    assert read_back(longer) in (None, (canonical(longer), longer))


def test_an_object_is_read_back_up_to_the_bound_of_nesting() -> None:
    def nested(levels: int, inner: Any) -> Any:
        return {"": inner} if levels == 1 else {"": nested(levels - 1, inner)}

    for more in ("", "z" * SHORT):
        for levels, inner in ((DEPTH_MAX, 1), (DEPTH_MAX - 1, [1])):
            value = {**nested(levels, inner), "z": more}
            assert read_back(value) == (canonical(value), value)
        for levels, inner in ((DEPTH_MAX + 1, 1), (DEPTH_MAX, [])):
            assert read_back({**nested(levels, inner), "z": more}) is None
    endless: dict[str, Any] = {}
    endless["a"] = endless
    assert read_back(endless) is None


@given(VALUES)
def test_both_encoders_write_the_same_text(value: Any) -> None:
    assert canonical(value) == written(value)


@pytest.mark.parametrize("text, keys", [('{"a": 1, "a": 2}', 2), ('{"b": [{"a": 1, "c": 2, "a": 1}]}', 3)])
def test_an_object_with_a_duplicate_key_is_refused(text: str, keys: int) -> None:
    """Which of the two counts is read differently by different readers."""
    with pytest.raises(PayloadNotJsonError) as refused:
        loads(text)
    assert refused.value.context == {"keys": keys}
