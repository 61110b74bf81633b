"""Makes printed commands ready to paste into a shell, by adding the flags that locate the ledger and the application.

Messages contain `holdfast show 5`. If the user typed --db, the printed command is `holdfast show --db FILE 5`; if the
ledger came from an environment variable, the command is printed without --db.

Invariants: a password is never printed: --db is omitted then, and a note says once which variable to set; a flag is
added only to commands that accept it; in JSON only next steps are changed, never data.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cache
from typing import Any

from holdfast.store import PLAIN_PATH

DB, SCHEMA, ENV, APP = "--db", "--schema", "--env", "--app"
NEEDED = "next_needs"
VARIABLES = {"holdfast": "HOLDFAST_URL", "nodd-replay": "KFM_WAL_DSN"}

# Where a command can be in a text: in backticks, after a colon, or alone on its line.
_COMMAND = re.compile(rf"(`|: {{1,2}}|^ *)({'|'.join(VARIABLES)})((?: [a-z][a-z-]*)+)", re.MULTILINE)
_END = re.compile("[`\n]")
_HOLDERS = frozenset({"context", "findings", "guards", "checks"})  # the fields of an answer that contain steps
_STEPS = frozenset({"next", "next_step"})
# These commands work on another ledger than the given one.
_ELSEWHERE = frozenset({("holdfast", "snapshot", "restore"), ("holdfast", "nodd", "backfill")})


class LedgerFlags:
    """The flags that located the ledger on the command line."""

    def __init__(self) -> None:
        self._flags: dict[str, str] = {}
        self._variable: str | None = None  # of another program; `holdfast` does not read it
        self._secret = False
        self._needed: dict[str, None] = {}  # variables that printed commands need; not reported yet

    def name(self, flag: str, value: str) -> None:
        """Remember a flag that was typed; a value that contains a password is not kept."""
        if flag == DB and _has_password(value):
            self._secret = True
        else:
            self._flags[flag] = shlex.quote(value)

    def names(self, flag: str) -> bool:
        return flag in self._flags or (flag == DB and self._secret)

    def name_by(self, variable: str) -> None:
        """Remember the variable that located the ledger for a program other than `holdfast`."""
        self._variable = variable

    def text(self, text: str) -> str:
        """Return the text with the flags added to every command in it."""
        return _COMMAND.sub(self._with_flags, text) if self._flags or self._secret or self._variable else text

    def value(self, value: Any) -> Any:
        """Return the JSON answer with the flags added to every next step in it."""
        if isinstance(value, list | tuple):
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
        """Return, once, the note on the variables that printed commands need."""
        if not self._needed:
            return None
        variables = " and ".join(self._needed)
        self._needed, self._secret = {}, False
        return f"First set {variables} to the URL of the ledger. The URL contains a password and is not printed."

    def _step(self, step: Any) -> Any:
        return self.text(step) if isinstance(step, str) else step

    def _with_flags(self, found: re.Match[str]) -> str:
        before, program, words = found.groups()
        path, takes = _resolved(program, tuple(words.split()))
        if not path or (program, *path) in _ELSEWHERE or found.string.startswith(" --help", found.end()):
            return found.group()
        rest = words.split()[len(path) :]
        takes -= set(_END.split(found.string[found.end() :], maxsplit=1)[0].split())  # what the command has already
        if self._secret and DB in takes:
            self._needed[VARIABLES[program]] = None
        return before + " ".join([program, *path, *self._flags_for(program, takes), *rest])

    def _flags_for(self, program: str, takes: frozenset[str]) -> list[str]:
        flags = dict(self._flags)
        if program == "holdfast":
            flags.pop(ENV, None)  # `holdfast` reads the environment from the ledger
            if self._variable and DB not in flags and not self._secret:
                flags[DB] = f'"${self._variable}"'
        return [f"{flag} {flags[flag]}" for flag in (DB, SCHEMA, ENV, APP) if flag in flags and flag in takes]


def _has_password(url: str) -> bool:
    if PLAIN_PATH.fullmatch(url):
        return False
    from holdfast.store.urls import has_password  # noqa: PLC0415 - most ledgers are named by a plain path

    return has_password(url)


@cache
def _resolved(program: str, words: tuple[str, ...]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the leading words that name a command, and the flags that it accepts; nothing if there is no command."""
    command: Any = _program(program)
    for depth, word in enumerate(words):
        found = command.find(word)
        if found is None:
            return _alone(command, words[:depth])
        if not hasattr(found, "find"):
            return words[: depth + 1], _flags(found)
        command = found
    return _alone(command, words)


def _alone(group: Any, words: tuple[str, ...]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the words that name a group if it is a command by itself too; otherwise nothing."""
    return (words, _flags(group)) if getattr(group, "invoke_without_command", False) else ((), frozenset())


def _flags(command: Any) -> frozenset[str]:
    return frozenset(flag for option in command.params for flag in option.opts)


def _program(name: str) -> Any:
    if name == "holdfast":
        from holdfast.cli.app import app  # noqa: PLC0415 - app imports output, which imports this module
    else:
        from holdfast.cli.nodd.replay import app  # type: ignore[assignment]  # noqa: PLC0415 - the same
    return app
