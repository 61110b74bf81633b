"""The counts of the scorecard: an attack holds only if its test ran and passed, and a page gets its section whole."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support import attacks, mutants, mutate, prove, scorecard

REPORT = """<testsuites><testsuite>
  <testcase file="tests/enforcement/test_acts.py" name="test_a[postgres]"><properties>
    <property name="attack" value="sql"/></properties></testcase>
  <testcase file="tests/enforcement/test_acts.py" name="test_b"><properties>
    <property name="attack" value="sql"/></properties><failure/></testcase>
  <testcase file="tests/store/test_files.py" name="test_c"><properties>
    <property name="attack" value="files"/></properties><error/></testcase>
  <testcase file="tests/store/test_files.py" name="test_d"><properties>
    <property name="attack" value="files"/></properties><skipped/></testcase>
  <testcase file="tests/store/test_files.py" name="test_e"><properties>
    <property name="attack" value="files"/></properties><failure/></testcase>
  <testcase file="tests/store/test_files.py" name="test_e"><properties>
    <property name="attack" value="files"/></properties></testcase>
  <testcase file="tests/core/test_records.py" name="test_of_another_kind"/>
</testsuite></testsuites>"""


def test_an_attack_holds_only_if_it_ran_and_passed() -> None:
    tried = attacks.attempts(ET.fromstring(REPORT))  # noqa: S314
    assert {(one.name, one.held) for one in tried} == {
        ("test_a[postgres]", True),
        ("test_b", False),
        ("test_c", False),
        ("test_e", False),
    }


def test_the_section_counts_by_kind_and_names_what_broke() -> None:
    text = attacks.section(attacks.attempts(ET.fromstring(REPORT)), "2026-11-16")  # noqa: S314
    assert text.startswith("4 tried, 1 held, 3 broken; 2026-11-16.\n")
    assert f"| sql | {attacks.KINDS['sql']} | 2 | 1 | 1 |" in text
    assert f"| files | {attacks.KINDS['files']} | 2 | 0 | 0 |" in text
    assert "- `tests/store/test_files.py::test_c`" in text


def test_a_section_replaces_only_what_is_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- a: begin -->\nold\n<!-- a: end -->\nafter\n", encoding="utf-8")
    scorecard.write(page, "a", "new\n")
    assert page.read_text(encoding="utf-8") == "before\n<!-- a: begin -->\nnew\n<!-- a: end -->\nafter\n"
    with pytest.raises(SystemExit):
        scorecard.write(page, "b", "new\n")


# ---------------------------------------------------------------------------------------------------------------------
# The long proof


def test_a_proof_continues_where_it_was_stopped_and_fails_if_a_control_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds: list[int] = []

    def unit(_rig: object, seed: int) -> prove.Unit | None:
        seeds.append(seed)
        return None if seed == 3 else prove.Unit(10, bad=int(seed == 2), how="seed 2" if seed == 2 else "")

    found = {"a safeguard": [4, 1]}
    monkeypatch.setattr(prove, "KINDS", {"kind": prove.Kind("things", unit, {"a safeguard": ()})})
    monkeypatch.setattr(prove, "control", lambda _name, without: found[without])
    path = tmp_path / "state.json"
    prove.prove(prove.load(path), path, ["kind"], budget_s=0)
    assert (seeds, path.exists()) == ([], False)
    prove.prove(prove.load(path), path, ["kind"], budget_s=60)
    assert seeds == [0, 1, 2, 3]
    again = prove.load(path)
    prove.prove(again, path, ["kind"], budget_s=60)
    assert seeds == [0, 1, 2, 3]
    done = again.kinds["kind"]
    assert (done.units, done.tried, done.bad, done.ended, done.controls) == (3, 30, 1, True, found)
    assert prove.failures(again) == ["kind: seed 2"]
    assert "| things | 30 (all there are) | 1 |" in prove.section(again)
    found["a safeguard"] = done.controls["a safeguard"] = [4, 0]
    assert len(prove.failures(again)) == 2
    assert "min left: kind 30 (1 bad)" in capsys.readouterr().err


def test_mutants_are_of_every_kind_and_a_survivor_is_listed_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list(mutate.mutants("core/project.py"))
    assert {mutant.function for mutant in found} == {"rulings_of", "project"}
    text = "\n".join(mutant.what for mutant in found)
    for kind in (
        "`latest is None` becomes `latest is not None`",
        "becomes `return None`",
        "with and",
        "`0` becomes `1`",
    ):
        assert kind in text
    monkeypatch.setitem(mutants.REASONS, found[0].name, "a reason")
    kept = tmp_path / "mutated.json"
    mutate.keep(found, found, kept)
    page = mutate.section(mutate.keep(found, found[:1], kept))  # the later run of a file counts
    assert f"{len(found)} mutants of 1 files, {len(found) - 1} caught" in page
    assert "| a reason |" in page


def test_every_file_of_the_core_that_has_a_function_is_mutated() -> None:
    files = [f"core/{path.name}" for path in sorted((mutate.SOURCE / "core").glob("*.py"))]
    assert [file for file in files if any(mutate.mutants(file)) and file not in mutants.TARGETS] == []
