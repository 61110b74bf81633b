"""The page of failure modes: each one of the sources is on it, with its invariants, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "failure-modes.md").read_text(encoding="utf-8")
SECTIONS = {
    found[1]: found[2]
    for found in re.finditer(r"^## (FM_\d{3}): .*?\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
INVARIANTS = {f"INV_{n:03}" for n in range(1, 10)}
OF_THE_SOURCES = {"FM_001", "FM_002", "FM_003", "FM_005", "FM_006", "FM_007", "FM_008", "FM_009"}


@pytest.mark.req("M-12", "M-20")
@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_a_failure_mode_names_its_invariants_and_tests_that_exist(name: str) -> None:
    text = SECTIONS[name]
    violated = re.search(r"\*Violates\s+(INV_[^*]*)\*", text)
    assert violated
    assert set(re.findall(r"INV_\d{3}", violated[1])) <= INVARIANTS
    shown = re.findall(r"`(tests/[\w/]+\.py)`", text)
    assert shown
    for path in shown:
        assert (ROOT / path).is_file(), path


@pytest.mark.req("M-11", "M-20")
def test_every_failure_mode_and_invariant_of_the_sources_is_on_the_page() -> None:
    assert {name for name in SECTIONS if name < "FM_100"} == OF_THE_SOURCES
    listed = set(re.findall(r"^\| (INV_\d{3}) \|", PAGE, re.MULTILINE))
    assert listed == INVARIANTS
    violated = set(re.findall(r"INV_\d{3}", " ".join(SECTIONS.values())))
    assert violated == INVARIANTS
