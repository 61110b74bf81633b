"""Commands that are printed can be pasted: they name the ledger that was named on the command line.

A next step says `holdfast show 5`, wherever it was written. Where the user has typed --db, what is printed is
`holdfast show --db FILE 5`; where the ledger came from the environment, it comes from there again.

Invariants: a password is never printed: the flag is left out then, and once it is said what to set instead; only a
command that takes a flag gets it; in JSON only steps are changed, never data.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import unquote

from typer.main import get_command

DB, SCHEMA, ENV = "--db", "--schema", "--env"
NEEDED = "next_needs"
VARIABLES = {"holdfast": "HOLDFAST_URL", "nodd-replay": "KFM_WAL_DSN"}

# How a command stands in a sentence: in backticks, after a colon, or alone on its line.
_COMMAND = re.compile(rf"(`|: {{1,2}}|^ *)({'|'.join(VARIABLES)})((?: [a-z][a-z-]*)+)", re.MULTILINE)
_HOLDERS = frozenset({"context", "findings", "guards"})  # where an answer keeps its steps
_STEPS = frozenset({"next", "next_step"})
# These are for another ledger than the one that was named.
_ELSEWHERE = frozenset({("holdfast", "snapshot", "restore"), ("holdfast", "nodd", "backfill")})


class Place:
    """How the ledger was named on the command line, and so how it is to be named again."""

    def __init__(self) -> None:
        self._flags: dict[str, str] = {}
        self._variable: str | None = None  # of a program of its own, which `holdfast` does not look at
        self._secret = False
        self._needed: dict[str, None] = {}  # variables that commands need, and of which nothing was said yet

    def name(self, flag: str, value: str) -> None:
        """Remember a flag that was typed; a value with a password in it is forgotten at once."""
        if flag == DB and has_password(value):
            self._secret = True
        else:
            self._flags[flag] = shlex.quote(value)

    def name_by(self, variable: str) -> None:
        """Remember which variable named the ledger to a program that is not `holdfast`."""
        self._variable = variable

    def text(self, text: str) -> str:
        """Return a text with every command in it made fit to be pasted."""
        return _COMMAND.sub(self._whole, text) if self._flags or self._secret or self._variable else text

    def value(self, value: Any) -> Any:
        """Return an answer for programs with every step in it made fit to be pasted."""
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        changed = {}
        for name, item in value.items():
            if name in _STEPS:
                changed[name] = [self._step(one) for one in item] if isinstance(item, list) else self._step(item)
            else:
                changed[name] = self.value(item) if name in _HOLDERS else item
        note = self.note()
        return {**changed, NEEDED: note} if note else changed

    def note(self) -> str | None:
        """Return, once, what the commands need that could not be made whole."""
        if not self._needed:
            return None
        variables = " and ".join(self._needed)
        self._needed, self._secret = {}, False
        return f"set {variables} to the URL of the ledger first: it has a password, which is not printed"

    def _step(self, step: Any) -> Any:
        return self.text(step) if isinstance(step, str) else step

    def _whole(self, found: re.Match[str]) -> str:
        before, program, words = found.groups()
        path, takes = _resolved(program, tuple(words.split()))
        if not path or (program, *path) in _ELSEWHERE or found.string.startswith(" --help", found.end()):
            return found.group()
        rest = words.split()[len(path) :]
        if self._secret and DB in takes:
            self._needed[VARIABLES[program]] = None
        return before + " ".join([program, *path, *self._given(program, takes), *rest])

    def _given(self, program: str, takes: frozenset[str]) -> list[str]:
        flags = dict(self._flags)
        if program == "holdfast":
            flags.pop(ENV, None)  # there it is the ledger that says so
            if self._variable and DB not in flags and not self._secret:
                flags[DB] = f'"${self._variable}"'
        return [f"{flag} {flags[flag]}" for flag in (DB, SCHEMA, ENV) if flag in flags and flag in takes]


def has_password(url: str) -> bool:
    """Tell whether a ledger's URL holds a secret, or may hold one: a doubt counts."""
    plain = unquote(url)
    if "://" not in url or url.startswith("sqlite:"):
        return re.search(r"passw\w*\s*=", plain, re.IGNORECASE) is not None
    return re.search(r"://.*:.*@|password|secret", plain, re.IGNORECASE | re.DOTALL) is not None


@cache
def _resolved(program: str, words: tuple[str, ...]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return those of some words that name a command, and the flags which that takes; nothing if there is none."""
    command: Any = None
    for depth, word in enumerate(words):
        command = _first(program, word) if depth == 0 else command.commands.get(word)
        if command is None:
            return (), frozenset()
        if not hasattr(command, "commands"):
            return words[: depth + 1], frozenset(flag for option in command.params for flag in option.opts)
    return (), frozenset()  # a group of commands, and none of them


def _first(program: str, name: str) -> Any:
    """Return the command, or the group of them, that a program has under a name; None if there is none."""
    from holdfast.cli.app import COMMANDS, Lazy  # noqa: PLC0415 - it knows this module's caller

    if program == "holdfast":
        return Lazy(name, COMMANDS[name]).load() if name in COMMANDS else None
    from holdfast.cli.nodd.replay import app  # noqa: PLC0415 - the same

    whole: Any = get_command(app)
    return whole.commands.get(name)
