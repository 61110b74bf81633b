"""The map of names in docs/compat.md: each name of the sources has a place that exists here, or a reason for none."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "compat.md").read_text(encoding="utf-8")
MAP = PAGE.partition("## The map of names\n")[2]
SECTIONS = {found[1]: found[2] for found in re.finditer(r"### (\d{3}): .*?\n(.*?)(?=### |\Z)", MAP, re.DOTALL)}
ROWS = [
    (source, *(cell.strip() for cell in line.strip("| ").split(" | ", 1)))
    for source, text in SECTIONS.items()
    for line in text.splitlines()
    if line.startswith("| ") and not line.startswith("| name |")
]
SQL = "".join(
    path.read_text(encoding="utf-8")
    for folder in ("store/sqlite", "nodd/sql/sqlite")
    for path in (ROOT / "src" / "holdfast" / folder).rglob("*.sql")
) + (ROOT / "src/holdfast/nodd/tables.py").read_text(encoding="utf-8")
HELP = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "golden" / "help").iterdir())


def test_all_five_documents_are_mapped() -> None:
    assert list(SECTIONS) == ["000", "001", "002", "003", "004"]
    assert len(ROWS) > 60


@pytest.mark.parametrize("source, name, place", ROWS, ids=lambda text: text[:40])
def test_a_name_has_a_place_that_exists_or_a_reason(source: str, name: str, place: str) -> None:
    assert source
    assert name
    quoted = re.findall(r"`([^`]+)`", place)
    if place.startswith("None"):
        assert place.startswith("None: ")
    for text in quoted:
        if ":" in text and text.startswith("holdfast") and " " not in text:
            module, _, path = text.partition(":")
            found: object = import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
        elif text.startswith("holdfast "):
            assert re.search(rf"(?:\$|Usage:) {re.escape(text)}(?![\w-])", HELP), text
        elif re.fullmatch(r"(holdfast|nodd)_\w+", text):
            assert re.search(rf"\b{text}\b", SQL), text
