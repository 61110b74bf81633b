"""The long proof: no kind of fault is left out because of its control, and it continues where it was stopped."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import prove
from tests.support.prove import Kind, Rig, State, Unit, load, save


def test_a_slow_control_does_not_keep_its_kind_from_being_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = [0.0]

    def unit(_rig: Rig, seed: int) -> Unit | None:
        spent[0] += 1.0
        return Unit(1) if seed < 15 else None

    def slow_control(_name: str, _without: str) -> list[int]:
        spent[0] += 100.0
        return [5, 1]

    monkeypatch.setattr(prove, "time", SimpleNamespace(monotonic=lambda: spent[0]))
    monkeypatch.setattr(prove, "KINDS", {"plain": Kind("", unit, {}), "checked": Kind("", unit, {"a guard": ()})})
    monkeypatch.setattr(prove, "control", slow_control)
    monkeypatch.setattr(prove, "made", lambda: "this commit")
    path, state = tmp_path / "state.json", State("this commit")
    prove.prove(state, path, ["plain", "checked"], 120.0)
    assert [done.tried for done in state.kinds.values()] == [10, 10]
    assert state.kinds["checked"].controls == {"a guard": [5, 1]}
    again = load(path)
    assert again == state
    prove.prove(again, path, ["plain", "checked"], 1000.0)
    assert [(done.tried, done.ended) for done in again.kinds.values()] == [(15, True), (15, True)]
    save(again, path)
    monkeypatch.setattr(prove, "made", lambda: "another commit")
    assert load(path).kinds == {}
