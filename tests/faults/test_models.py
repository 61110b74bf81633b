"""Without a guard of `decide`, the model breaks the invariant that the catalogue names for it, and no model before.

The patched functions run in this process, beside the sound ones: it takes a second, and `make faults` does the same
with a patched copy of the sources.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from holdfast.core import decide as sound
from holdfast.core import rulings, stepwise  # noqa: F401 - they register their guards before a fault is switched on
from holdfast.model import rules
from holdfast.model.catalogue import RUNS, Run
from holdfast.model.checker import explore
from tests.faults.catalogue import FAULTS
from tests.faults.seeded import SeededFault, patched_files

BY_NAME = {run.name: run for run in RUNS}
BREAKING = [fault for fault in FAULTS if fault.breaks is not None]


def model_of(fault: SeededFault) -> Run:
    assert fault.breaks is not None
    return BY_NAME[fault.breaks.run]


def switch_on(fault: SeededFault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `decide` ask the guards of the patched files; commands and answers are of the sound modules' types."""
    before = dict(sound._GUARDS)
    registered: dict[type, Any] = {}
    monkeypatch.setattr(sound, "_GUARDS", registered)
    for file, text in patched_files(fault).items():
        module = ModuleType(fault.id)
        exec(compile(text, file, "exec"), vars(module))  # noqa: S102
        for answer in (sound.Move, sound.Refused, sound.Step):
            setattr(module, answer.__name__, answer)
        # A module beside `decide` has registered its guards with it; `decide` itself has a register of its own.
        registered |= getattr(module, "_GUARDS", {})
    faulty = {command.__name__: guard for command, guard in registered.items()}
    registered |= {command: faulty.get(command.__name__, guard) for command, guard in before.items()}


@pytest.mark.parametrize("fault", BREAKING, ids=lambda fault: fault.id)
def test_a_model_breaks_without_the_guard(fault: SeededFault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fault.breaks is not None
    assert model_of(fault).expected.sound
    switch_on(fault, monkeypatch)
    rules.judged.cache_clear()
    broken = explore(model_of(fault).model()).broken
    rules.judged.cache_clear()
    assert broken is not None
    assert broken.name == fault.breaks.invariant


def test_every_fault_of_decide_breaks_a_model() -> None:
    assert [fault.id for fault in FAULTS if fault.area == "decide" and fault.breaks is None] == []


def test_every_invariant_of_the_guards_is_broken_by_a_fault() -> None:
    models = [run.model() for run in RUNS if run.name.startswith("guards: ")]
    assert {name for model in models for name in model.invariants} == {
        fault.breaks.invariant for fault in FAULTS if fault.breaks and fault.breaks.run.startswith("guards: ")
    }
