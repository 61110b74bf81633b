"""The settings of a ledger and the defaults of its operations, with a check of their values.

Invariants: a required setting has no default: reading one that is missing or invalid raises StoreDamagedError, which
names the row to restore.
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
"""The settings that every ledger has, each with a function that returns whether a value is valid."""


class Settings(dict[str, str]):
    """The settings of a ledger by name; `settings[name]` raises StoreDamagedError if it is missing or invalid."""

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise _damaged(f"the ledger has no {name}", f"the row {name!r} of the table holdfast_meta")
        if name in REQUIRED and not REQUIRED[name](value):
            raise _damaged(f"the {name} of the ledger is invalid", f"the row {name!r} of the table holdfast_meta")
        return value


def declared_from(operation: str, defaults: str) -> Declared:
    """Return the declaration of an operation from its stored JSON; raise StoreDamagedError if it is invalid."""
    try:
        return msgspec.json.decode(defaults, type=Declared)
    except (msgspec.DecodeError, UnicodeError) as error:
        where = f"the row {operation!r} of the table holdfast_operations"
        raise _damaged(f"the defaults of the operation {operation!r} are invalid", where) from error


def _damaged(what: str, where: str) -> StoreDamagedError:
    return StoreDamagedError(
        what, next_step=f"Restore {where} from a backup, or the newest snapshot.", context={"where": where}
    )
