"""Without a guard of `decide`, the model breaks the invariant that the catalogue names for it, and no model before.

The patched functions run in this process, beside the sound ones: it takes a second, and `make faults` does the same
with a patched copy of the sources.
"""

from __future__ import annotations

from types import ModuleType

import pytest

from holdfast.core import decide as sound
from holdfast.model import guards, rules
from holdfast.model.catalogue import RUNS, Run
from holdfast.model.checker import explore
from tests.faults.catalogue import FAULTS
from tests.faults.seeded import SeededFault, patched_files

BY_NAME = {run.name: run for run in RUNS}
BREAKING = [fault for fault in FAULTS if fault.breaks is not None]


def model_of(fault: SeededFault) -> Run:
    assert fault.breaks is not None
    return BY_NAME[fault.breaks.run]


def patched(fault: SeededFault) -> ModuleType:
    """Return `core.decide` with a fault switched on; its answers are of the sound module's types."""
    module = ModuleType(fault.id)
    exec(compile(patched_files(fault)["core/decide.py"], fault.id, "exec"), vars(module))  # noqa: S102
    for answer in (sound.Move, sound.Refused, sound.Step):
        setattr(module, answer.__name__, answer)
    return module


@pytest.mark.parametrize("fault", BREAKING, ids=lambda fault: fault.id)
def test_a_model_breaks_without_the_guard(fault: SeededFault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fault.breaks is not None
    assert model_of(fault).expected.sound
    faulty = patched(fault)
    for module in (rules, guards):
        monkeypatch.setattr(module, "decide", faulty.decide)
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
