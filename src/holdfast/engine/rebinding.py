"""Using another database inside a block, for tests.

Invariants: after the block the ledger uses what it used before, and what the block opened is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.engine.world import World

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger


@contextmanager
def bound(ledger: Ledger, url: str, world: World | None) -> Iterator[Ledger]:
    """Yield a ledger that uses another database until the block ends. See `Ledger.bound_to`."""
    with ledger._lock:  # noqa: SLF001 - a method of the ledger that only tests import
        before = ledger.url, ledger.world, ledger._opened  # noqa: SLF001
        ledger.url, ledger.world, ledger._opened = url, world or ledger.world, None  # noqa: SLF001
    try:
        yield ledger
    finally:
        ledger.close()
        with ledger._lock:  # noqa: SLF001
            ledger.url, ledger.world, ledger._opened = before  # noqa: SLF001
