"""Progress: long acts are done in steps, each of which is shown on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from holdfast.cli import output


def steps() -> Generator[int | None, None, str]:
    yield 2
    yield None
    yield 0
    return "done"


def test_each_step_is_shown_with_what_is_left_and_the_result_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[Any, ...]] = []

    @contextlib.contextmanager
    def progress(*, as_json: bool) -> Iterator[Any]:
        yield None if as_json else lambda *step: shown.append(step)

    monkeypatch.setattr(output, "progress", progress)
    assert output.shown_steps("check", steps(), as_json=False) == "done"
    assert shown == [("check", 1, 3), ("check", 2, 0), ("check", 3, 3)]
    assert output.shown_steps("check", steps(), as_json=True) == "done"
    assert len(shown) == 3
