"""What a ledger keeps of itself: its settings, and the defaults of its operations, read so that damage is told.

Invariants: a setting without which the ledger cannot be used is never guessed: where it is asked for by its name and is
missing, or is none that was ever written, the answer is a StoreDamagedError that says what to restore.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from holdfast.core.environments import ENVIRONMENTS
from holdfast.core.errors import StoreDamagedError
from holdfast.store.requests import Declared

_LEDGER_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_EPOCH = re.compile(r"[1-9]\d{0,8}", re.ASCII)
REQUIRED: dict[str, Callable[[str], object]] = {
    "ledger_id": _LEDGER_ID.fullmatch,
    "epoch": _EPOCH.fullmatch,
    "environment": lambda value: value in ENVIRONMENTS,
    "governed": lambda value: value in ("yes", "no"),
}
"""The settings that every ledger has, and what tells whether a value is one."""


class Settings(dict[str, str]):
    """The settings of a ledger by name. One that must be there is, or asking for it raises."""

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise _damaged(f"the ledger has no {name}", f"the row {name!r} of the table holdfast_meta")
        if name in REQUIRED and not REQUIRED[name](value):
            raise _damaged(f"the ledger's {name} cannot be read", f"the row {name!r} of the table holdfast_meta")
        return value


def declared_from(operation: str, defaults: str) -> Declared:
    """Return what an operation was declared with, or raise StoreDamagedError."""
    try:
        return msgspec.json.decode(defaults, type=Declared)
    except (msgspec.DecodeError, UnicodeError) as error:
        where = f"the row {operation!r} of the table holdfast_operations"
        raise _damaged(f"the defaults of the operation {operation!r} cannot be read", where) from error


def _damaged(what: str, where: str) -> StoreDamagedError:
    return StoreDamagedError(
        what, next_step=f"Restore {where} from a backup, or the newest snapshot.", context={"where": where}
    )
