"""Whether every named fault still applies: its place is found once, the result compiles, and its tests exist.

A patch whose text was moved or changed is anchored anew in `tests/faults/areas/`; the fault itself is not removed.
"""

from __future__ import annotations

import ast
import itertools
import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from holdfast.model.guards import KEEPS
from tests.faults.catalogue import FAULTS
from tests.faults.run import CAUGHT
from tests.faults.seeded import BOTH, ROOT, SOURCE, Patch, PatchError, SeededFault, patched_files
from tests.support import thinning


def test_ids_are_unique_and_name_an_area() -> None:
    assert [name for name, number in Counter(fault.id for fault in FAULTS).items() if number > 1] == []
    assert [fault.id for fault in FAULTS if fault.id.count(".") != 1] == []


def test_meanings_are_sentences_of_their_own() -> None:
    assert len({fault.meaning for fault in FAULTS}) == len(FAULTS)
    assert [fault.meaning for fault in FAULTS if not fault.meaning.endswith(".") or "\n" in fault.meaning] == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_every_patch_applies_and_compiles(fault: SeededFault) -> None:
    for file, text in patched_files(fault).items():
        assert text != (SOURCE / "holdfast" / file).read_text(encoding="utf-8")
        if file.endswith(".py"):
            compile(text, file, "exec")


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_every_listed_test_exists(fault: SeededFault) -> None:
    assert fault.tests
    assert set(fault.databases) <= set(BOTH)
    for test in fault.tests:
        file, _, name = test.partition("::")
        path = ROOT / file
        assert path.is_file(), test
        if name:
            function, _, case = name.rstrip("]").partition("[")
            assert function in functions(path), test
            word = case.rpartition("-")[2]  # a case is a name of this folder, such as that of a corruption
            assert any(word in beside.read_text(encoding="utf-8") for beside in path.parent.glob("*.py")), test


def test_the_tests_that_are_recorded_as_having_caught_a_fault_exist() -> None:
    caught: dict[str, list[str]] = json.loads(CAUGHT.read_text(encoding="utf-8"))
    assert caught.keys() == {fault.id for fault in FAULTS}
    assert [name for name, tests in caught.items() if not tests] == []
    for test in {test for tests in caught.values() for test in tests}:
        file, _, name = test.partition("::")
        assert name in functions(ROOT / file), test


def test_no_case_of_a_listed_test_is_left_out_on_postgres() -> None:
    listed = {test for fault in FAULTS if fault.postgres for test in fault.tests}
    files = {test.partition("::")[0].removeprefix("tests/") for test in listed}
    thinned = {file for file in files if file.partition("/")[0] in thinning.FOLDERS}
    assert thinned - thinning.TABLES.keys() == thinning.WHOLE


def test_every_guard_of_decide_has_a_fault() -> None:
    """What `decide` refuses with a code of its own, a fault accepts; the transition table refuses the rest."""
    core = SOURCE / "holdfast" / "core"
    bodies = [
        ast.parse((core / name).read_text(encoding="utf-8")).body
        for name in ("decide.py", "stepwise.py", "rulings.py", "governed.py")
    ]
    refused = {
        (function.name, node.args[0].value)
        for function in itertools.chain(*bodies)
        if isinstance(function, ast.FunctionDef) and function.name != "wrong_state"
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refused"
        if isinstance(node.args[0], ast.Constant)
    }
    assert len(refused) > 20
    covered = {guard for fault in FAULTS for guard in fault.guards}
    assert refused - covered == set()
    assert covered == set(KEEPS)


# ---------------------------------------------------------------------------------------------------------------------
# The patches themselves

TEXT = """\
def one():
    if a:
        return b


class Two:
    def one(self):
        if a:
            return c
"""


def test_a_patch_changes_the_one_place_that_it_names() -> None:
    assert Patch("x.py", "one", "if a:", "if False:").applied(TEXT) == TEXT.replace("if a:", "if False:", 1)
    assert Patch("x.py", "", "return c", "return d").applied(TEXT) == TEXT.replace("return c", "return d")
    there = Patch("x.py", "Two.one", "if a:", "if False:").applied(TEXT)
    assert there == TEXT.replace("        if a:", "        if False:")


@pytest.mark.parametrize(
    "patch",
    [
        Patch("x.py", "", "if a:", ""),
        Patch("x.py", "one", "return c", ""),
        Patch("x.py", "three", "if a:", ""),
        Patch("x.sql", "one", "if a:", ""),
    ],
)
def test_a_place_that_is_not_found_once_is_an_error(patch: Patch) -> None:
    with pytest.raises(PatchError, match=r"x\.(py|sql)"):
        patch.applied(TEXT)


def test_a_patch_of_a_statement_stays_within_it() -> None:
    text = "-- name: one\nSELECT a;\n\n-- name: two\nSELECT a;\n"
    assert (
        Patch("x.sql", "two", "SELECT a", "SELECT b").applied(text)
        == "-- name: one\nSELECT a;\n\n-- name: two\nSELECT b;\n"
    )


def test_a_fault_whose_file_is_gone_is_an_error() -> None:
    gone = SeededFault(
        id="x.gone", meaning="Gone.", patches=(Patch("core/gone.py", "", "a", "b"),), tests=(str(Path(__file__)),)
    )
    with pytest.raises(PatchError, match=r"x\.gone: there is no file src/holdfast/core/gone\.py"):
        patched_files(gone)
