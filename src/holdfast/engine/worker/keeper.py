"""The keeper: a thread of every worker that does what a ledger needs now and then, once a period in a whole fleet.

Invariants: what the duties need (audit, retention) is imported when the keeper looks for the first time, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.engine.worker.helper import Helper

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger
    from holdfast.engine.upkeep.duties import Duty, Periods

LOOK_S = 1.0


class Keeper(Helper):
    """Does the duties that are due; `also` are duties that the caller brings."""

    name = "keeper"

    def __init__(
        self, ledger: Ledger, *, actor: str, periods: Periods | None = None, also: Sequence[Duty] = ()
    ) -> None:
        self._ledger = ledger
        self._actor = actor
        self._periods = periods
        self._also = also
        self._keep: Callable[[], None] | None = None
        super().__init__()

    def pause_s(self) -> float:
        return LOOK_S if self._periods is None else self._periods.look_s

    def turn(self) -> None:
        if self._keep is None:
            from holdfast.engine.upkeep.duties import keeping  # noqa: PLC0415 - see the head of this module

            self._keep = keeping(self._ledger, self._periods, self._also, self._actor, self._stopped)
        self._keep()
