"""The documentation site: every page has its place in the navigation, and the site is built without a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.support.guides import DOCS

_TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def navigation() -> list[str]:
    """Return the pages of the navigation, in its order."""
    entries = [
        line
        for tree in _TOCTREE.findall((DOCS / "index.md").read_text(encoding="utf-8"))
        for line in tree.splitlines()
        if line and not line.startswith(":")
    ]
    return [
        found.relative_to(DOCS).with_suffix("").as_posix()
        for entry in entries
        for found in (sorted(DOCS.glob(f"{entry}.md")) or [DOCS / f"{entry}.md"])
    ]


def test_every_page_is_in_the_navigation_once() -> None:
    pages = [page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")]
    assert sorted(navigation()) == sorted(set(pages) - {"index"})


@pytest.mark.slow  # about 10 s; `make docs` builds it too
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    build: list[str | Path] = [
        sys.executable,
        "-m",
        "sphinx",
        "-b",
        "html",
        "-d",
        tmp_path / "trees",
        "-q",
        "-n",
        "-W",
        "--keep-going",
    ]
    done = subprocess.run([*build, DOCS, tmp_path / "site"], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").exists()


def test_the_reference_has_every_public_name_once() -> None:
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\.\. auto(?:class|function|exception):: (\w+)$", text, re.MULTILINE)
    assert sorted(documented) == sorted(set(holdfast.__all__) - {"__version__"})
