"""The code in the documents is run, block after block, in one namespace a document."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@pytest.mark.parametrize(
    "document", [d for d in DOCUMENTS if PYTHON.search(d.read_text(encoding="utf-8"))], ids=lambda d: d.name
)
def test_the_code_runs(document: Path, tmp_path: Path) -> None:
    program = tmp_path / "document.py"
    program.write_text("\n\n".join(PYTHON.findall(document.read_text(encoding="utf-8"))), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "ARCHITECTURE.md"], ids=lambda d: d.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = LINK.findall(document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.req("M-22")
def test_the_readme_says_what_is_not_promised() -> None:
    limits = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Honest limits")[2].partition("\n## ")[0]
    for words in (
        "Exactly once holds for effects in the ledger's own database.",
        "A handler may run more than once.",
        "SQLite is for one machine and a local disk",
        "A thread cannot be killed",
        "the console is not built yet",
    ):
        assert words in limits
