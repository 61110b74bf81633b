"""The code in the documents is run, block after block, in one namespace a document."""

import re
from pathlib import Path

import pytest

from tests.support.guides import ROOT, blocks, run_python

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if blocks(d, "python")], ids=lambda d: d.name)
def test_the_code_runs(document: Path, tmp_path: Path) -> None:
    run_python(document, tmp_path)


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "ARCHITECTURE.md"], ids=lambda d: d.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = LINK.findall(document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_readme_says_what_is_not_promised() -> None:
    limits = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Honest limits")[2].partition("\n## ")[0]
    for words in (
        "Exactly once holds for effects in the ledger's own database.",
        "A handler may run more than once.",
        "SQLite is for one machine and a local disk",
        "A thread cannot be killed",
        "nothing was run against NOAA's live feed",
    ):
        assert words in limits
