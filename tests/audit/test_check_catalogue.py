"""The catalogue of invariants, and the page that shows it."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.audit.check.catalogue import BY_NAME, INVARIANTS

PAGE = Path(__file__).parents[2] / "docs" / "invariants.md"


def table() -> str:
    """Return the table of the page as the catalogue has it."""
    lines = ["| name | must be true | severity | at open | what `holdfast repair` does |", "|---|---|---|---|---|"]
    lines += [
        f"| `{i.name}` | {i.meaning} | {i.severity} | {'yes' if i.cheap else ''} | {i.remedy} |" for i in INVARIANTS
    ]
    return "\n".join(lines)


def test_the_page_shows_the_catalogue() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), f"the table should be\n\n{table()}"


def test_every_invariant_has_a_name_a_meaning_and_a_rule() -> None:
    assert len(BY_NAME) == len(INVARIANTS) == 21
    for invariant in INVARIANTS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", invariant.name)
        assert invariant.meaning.endswith(".")
        assert not invariant.remedy.endswith(".")
        assert invariant.of_record or invariant.of_job or invariant.of_ledger
