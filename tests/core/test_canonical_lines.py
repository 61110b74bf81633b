"""Canonical texts of many objects at once: those that each has alone, or none."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast.core.canonical_lines as canonical_lines_module
from holdfast.core.canonical_lines import AT_ONCE, canonical_lines
from holdfast.core.digest import DEPTH_MAX, SHORT, Json, read_back
from tests.core.test_digest import READ_BACK, VALUES

PLAIN: list[dict[str, Json]] = [
    {"n": n, "text": "żółw\n" * (n % 3), "more": [None, {"a": n / 4 + 0.1}]} for n in range(150)
]
BIG = 1 << 20


def none_judged(_values: list[Json]) -> None:
    """Accept them."""


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"": 1}
    for _ in range(levels - 1):
        value = {"": value}
    return value


def texts(values: list[Json], size_max: int = BIG) -> list[str] | None:
    return canonical_lines(values, none_judged, size_max=size_max)


def alone(value: Json) -> str | None:
    found = read_back(value)
    return found[0] if found is not None and found[1] == value else None


@pytest.mark.req("L-17")
def test_the_texts_are_those_that_each_has_alone() -> None:
    assert texts(PLAIN) == [alone(value) for value in PLAIN]
    assert texts([]) == []


@pytest.mark.req("L-17")
@pytest.mark.parametrize("place", [0, AT_ONCE - 1, AT_ONCE, len(PLAIN)])
@pytest.mark.parametrize(
    "odd",
    [
        *(value for value, text in READ_BACK if text is None and isinstance(value, dict)),
        {"a": math.nan}, {"a": 1.0}, {"a": (1, 2)}, {"a": {1: 2}}, {1: "a", "1": "a"}, {"a": "e\u0301"},
        nested(DEPTH_MAX + 1), {**nested(DEPTH_MAX + 1), "z": "z" * SHORT}, {"z" * SHORT: 10**400},
        {"z": [[[[[[1]]]]]]},
    ],
    ids=lambda odd: ascii(odd)[:40] if not isinstance(odd, int) else str(odd),
)  # fmt: skip
def test_one_that_is_not_plain_leaves_all_to_a_closer_look(odd: Any, place: int) -> None:
    assert texts([*PLAIN[:place], odd, *PLAIN[place:]]) is None


@pytest.mark.req("L-17")
@given(st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=5), st.sampled_from(["", "z" * SHORT]))
def test_an_object_has_the_same_text_among_others_as_alone(values: list[dict[str, Any]], more: str) -> None:
    longer = [{**value, "z": more} for value in values]
    found = texts(longer)
    assert found is None or found == [alone(value) for value in longer]


@pytest.mark.req("L-17")
def test_a_short_text_has_few_characters_of_whatever_many_bytes() -> None:
    value = {"n": 10**19, "z": "ż" * (SHORT - 40)}
    assert texts([value]) == [alone(value)] == [json.dumps(value, ensure_ascii=False, separators=(",", ":"))]
    longer = {**value, "z": "z" * SHORT}
    assert (texts([longer]), alone(longer)) == (None, None)


def test_no_text_is_longer_than_the_limit() -> None:
    for text in ("abc", "ż"):
        values = [{"a": 1}, {"a": text * 100}]
        size = len(json.dumps(values[1], ensure_ascii=False, separators=(",", ":")).encode())
        assert texts(values, size) is not None
        assert texts(values, size - 1) is None


@pytest.mark.req("L-17")
def test_lists_are_few_in_a_short_text_and_counted_in_a_long_one() -> None:
    five, six = [[[[[1]]]]], [[[[[[1]]]]]]
    assert texts([{"z": five}]) is not None
    short: dict[str, Any] = {"y": "", "z": six}
    short["y"] = "y" * (SHORT - len(json.dumps(short, separators=(",", ":"))))
    assert texts([short]) is None
    assert texts([{**short, "y": short["y"] + "y"}]) is not None


def test_texts_that_are_long_together_are_made_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    together = sum(len(text.encode()) + 1 for text in texts(PLAIN[:AT_ONCE]) or ())
    monkeypatch.setattr(canonical_lines_module, "LONG", together)
    assert texts(PLAIN[:AT_ONCE]) is not None
    monkeypatch.setattr(canonical_lines_module, "LONG", together - 1)
    assert texts(PLAIN[:AT_ONCE]) is None


def test_they_are_judged_as_they_are_read_back() -> None:
    seen: list[Json] = []
    assert canonical_lines(PLAIN, seen.extend, size_max=BIG) is not None
    assert seen == PLAIN
    assert seen[0] is not PLAIN[0]

    def refuse(_values: list[Json]) -> None:
        raise ValueError

    assert canonical_lines(PLAIN, refuse, size_max=BIG) is None
