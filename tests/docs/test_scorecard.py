"""The counts of the scorecard: an attack holds only if its test ran and passed, and a page gets its section whole."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support import attacks, scorecard

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
