"""The golden files of the commands' texts: the help of every command, and the state machines.

Invariants: the plain formatter writes the help at a fixed width, so that it does not depend on the terminal, colours or
table styles.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from holdfast.cli.app import app
from holdfast.cli.nodd import replay as nodd_replay
from tests.cli.commands import holdfast

FOLDER = "tests/golden"
WIDTH = 100


def machines() -> dict[str, str]:
    """Return the answer of `holdfast machines --json`."""
    return {f"{FOLDER}/machines.json": json.dumps(holdfast("machines", "--json").json, indent=2) + "\n"}


def help_pages() -> dict[str, str]:
    """Return the help of each command with its subcommands, one file per command."""
    pages = {"holdfast": _page(app, None, "holdfast")}
    above = _context(app, None, "holdfast")
    pages |= {f"holdfast-{name}": "\n".join(_pages(app.find(name), above, name)) for name in app.names()}
    pages["nodd-replay"] = "\n".join(_pages(nodd_replay.app, None, "nodd-replay"))
    return {f"{FOLDER}/help/{name}.txt": text for name, text in pages.items()}


def _pages(command: Any, parent: Any, name: str) -> Iterator[str]:
    yield _page(command, parent, name)
    context = _context(command, parent, name)
    for inner in command.names() if hasattr(command, "find") else ():
        yield from _pages(command.find(inner), context, inner)


def _page(command: Any, parent: Any, name: str) -> str:
    context = _context(command, parent, name)
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    return f"$ {context.command_path} --help\n{text}\n"


def _context(command: Any, parent: Any, name: str) -> Any:
    return command.context_class(command, info_name=name, parent=parent, terminal_width=WIDTH)
