"""Refuses a SQLite file that was open when this process was forked, as long as it stays open.

Invariants: no file is opened or closed.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.core.errors import StoreUnavailableError


def refuse(path: Path, inherited: Mapping[int, os.stat_result]) -> None:
    """Raise StoreUnavailableError if one of the inherited descriptors is of this file, and still open."""
    for number, seen in inherited.items():
        with suppress(OSError):  # the file does not exist, or the descriptor was closed
            if os.path.samestat(path.stat(), seen) and os.path.samestat(os.fstat(number), seen):
                raise StoreUnavailableError(
                    f"{path} was open when this process was forked, and SQLite cannot share it with the parent",
                    next_step="Fork outside of transactions and close your own connections to the file first,"
                    " or use spawn.",
                )
