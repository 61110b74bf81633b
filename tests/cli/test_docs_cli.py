"""The page of the command names every command and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.cli.app import COMMANDS, app
from holdfast.cli.nodd import replay as nodd_replay

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "cli.md").read_text(encoding="utf-8")
WORD = re.compile(r"[a-z][a-z-]*")
EVERY = {name: app.find(name) for name in COMMANDS}


def paths(command: Any, path: str) -> Iterator[str]:
    """Yield every command line that does something, without its arguments."""
    if not hasattr(command, "find"):
        yield path
        return
    if command.invoke_without_command:
        yield path
    for name in command.names():
        yield from paths(command.find(name), f"{path} {name}")


def named(cell: str) -> Iterator[str]:
    """Yield the commands that a cell of the table names: `snapshot create|diff A B` names two."""
    for span in re.findall(r"`([^`]+)`", cell):
        lines = [""]
        for word in span.split():
            choices = word.replace("\\|", "|").split("|")
            if not all(WORD.fullmatch(choice) for choice in choices):
                break  # an argument or an option
            lines = [f"{line} {choice}".strip() for line in lines for choice in choices]
        yield from lines


def test_the_page_names_every_command_and_no_other() -> None:
    table = PAGE.split("|---|---|\n", 1)[1].split("\n\n", 1)[0]
    documented = [
        line for row in table.splitlines() for line in named(row.replace("\\|", "¦").split("|")[1].replace("¦", "|"))
    ]
    there = [path for name, command in EVERY.items() for path in paths(command, name)]
    assert sorted(documented) == sorted(there)


def test_the_page_names_the_commands_of_nodd_replay() -> None:
    [span] = re.findall(r"`(nodd-replay [^`]+)`", PAGE)
    assert sorted(named(f"`{span}`")) == sorted(paths(nodd_replay.app, "nodd-replay"))
