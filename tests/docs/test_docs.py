"""The code in the documents is run, block after block, in one namespace a document."""

import re
from pathlib import Path

import click
import pytest

from holdfast.cli.app import app
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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_a_command_in_a_page_exists_with_its_options(document: Path) -> None:
    wrong = []  # "holdfast head v1" is the first line of a file
    for line in re.findall(
        r"`(?:\.venv/bin/)?holdfast (?!head v1)([a-z][^`\n]*)`", document.read_text(encoding="utf-8")
    ):
        words = line.split()
        command: click.Command | None = app
        while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
            command = command.get_command(click.Context(command), words.pop(0))
        known = {option for parameter in command.params for option in parameter.opts} if command else set()
        named = {word for word in words if re.fullmatch(r"--[a-z][a-z-]*", word)}
        if command is None or named - known - {"--db", "--help", "--json", "--schema"}:
            wrong.append(line)
    assert wrong == []
