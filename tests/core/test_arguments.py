"""Which values fit an annotation: a value that does not is refused by name and kind, and any other is let through."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest

from holdfast.core.arguments import refuse_unfit
from holdfast.core.errors import InputError
from holdfast.core.guarded import guarded


class Colour(StrEnum):
    RED = "red"


class OwnText(str):
    """Text that the encoder does not take."""

    __slots__ = ()


TIME = datetime(2026, 11, 16, tzinfo=UTC)
KINDS: dict[Any, tuple[list[Any], list[Any]]] = {  # by annotation: what fits, and what does not
    "str": (["x", "", Colour.RED], [1, None, b"x", OwnText("x"), "\ud800"]),
    str: (["x"], [1]),
    "int": ([0, -1, 2**63 - 1, -(2**63) + 1], [True, 1.0, "1", 2**63]),
    "float": ([1, 1.5, -0.0], [float("nan"), float("inf"), True, "1", 2**63]),
    "bool": ([True, False], [0, 1, None]),
    "datetime": ([TIME, TIME.replace(year=2), TIME.replace(year=9998)],
                 [TIME.replace(tzinfo=None), TIME.replace(year=1), TIME.replace(year=9999), "2026-11-16"]),
    "datetime.datetime | None": ([TIME, None], ["now"]),
    "Callable[[int | str], None] | None": ([len, None], [1, "x", int]),
    "collections.abc.Sequence[str]": ([["a"], ("a", Colour.RED), []], ["a", b"a", ["a", 1], None]),
    Sequence[str]: ([["a"]], ["a", [1]]),
    "Sequence[int]": ([[1], (2,)], ["a", {1}]),
    "Iterable[int]": ([[1], {1}, iter([1])], ["a", b"a", 1]),
    "Mapping[str, Any] | None": ([{"a": 1}, {}, None], [{1: 1}, [], "a"]),
    "Params": ([{}, [], ()], ["a", 1, None]),
    "Anything | str": ([1, None, object()], []),  # nothing can be said about it
}  # fmt: skip


@pytest.mark.parametrize("hint", KINDS)
def test_values_that_fit_are_let_through_and_others_are_named(hint: Any) -> None:
    fits, unfit = KINDS[hint]
    for value in fits:
        refuse_unfit("given", value, hint)
    for value in unfit:
        with pytest.raises(InputError) as caught:
            refuse_unfit("given", value, hint)
        assert caught.value.context == {"argument": "given", "given": type(value).__name__}


def test_a_guarded_function_names_a_wrong_argument_and_raises_every_other_error_as_it_is() -> None:
    @guarded
    def halved(n: int) -> float:
        return 100 / n

    assert (halved(4), halved.__name__) == (25, "halved")
    wrong: Any = "4"
    with pytest.raises(InputError) as caught:
        halved(wrong)
    assert caught.value.context == {"argument": "n", "given": "str"}
    with pytest.raises(ZeroDivisionError):
        halved(0)
