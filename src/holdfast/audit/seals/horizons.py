"""Horizons and floors: the numbers up to which every row is sealed. No hash covers them, so they are verified here.

Each seal has a horizon, and the settings may have a floor (`sealer.py` says why). Both only save the sealer a search.

Invariants: the sealer ignores a horizon or floor that cannot be true, and `check` and `audit verify` report it; SQLite
needs none, because the numbers in the last seal, which are hashed, have the same meaning. A false floor can at most
hide the rows below it from the sealer: a verification reads the whole journal and finds them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from holdfast.core.seals import Seal
from holdfast.store.verbs.seals import SEQ_MAX, SEQ_MIN, SealReads

FLOOR_SETTING = "seal_floor"  # the setting with the floor: an epoch and a number
_FLOOR = re.compile(r"([0-9]{1,19}) ([0-9]{1,19})")


# ---------------------------------------------------------------------------------------------------------------------
# The floor


def floor_of(reading: SealReads, meta: dict[str, str], last: Seal | None) -> int:
    """Return the number up to which every row is sealed; a floor of another epoch does not count."""
    epoch = int(meta["epoch"])
    if last is None:
        return 0
    # Rows of transactions after a horizon have numbers above it, among them the last row of the last seal.
    shown = reading.horizon(epoch, last.last_xid, below=last.last_seq)
    noted_epoch, noted = _stored_floor(meta.get(FLOOR_SETTING)) or (epoch, 0)
    return noted if noted_epoch == epoch and noted > shown and _is_horizon(reading, epoch, noted) else shown


def floor_flaw(reading: SealReads, meta: dict[str, str]) -> str | None:
    """Return what is wrong with the floor in the settings, or None."""
    text, epoch = meta.get(FLOOR_SETTING), int(meta["epoch"])
    found = _stored_floor(text)
    if text is None or (found and found[0] < epoch):
        return None
    if found and found[0] == epoch and _is_horizon(reading, epoch, found[1]):
        return None
    return f"the setting seal_floor is {text!r}, but no seal has that horizon"


def _stored_floor(text: str | None) -> tuple[int, int] | None:
    match = _FLOOR.fullmatch(text or "")
    epoch, number = (int(match[1]), int(match[2])) if match else (0, SEQ_MAX + 1)
    return (epoch, number) if number <= SEQ_MAX else None


def _is_horizon(reading: SealReads, epoch: int, number: int) -> bool:
    bounds = reading.sealing_bounds()
    return number <= bounds.seq and reading.is_horizon(epoch, number, bound=bounds.xid)


def hidden_row(reading: SealReads, meta: dict[str, str], last: Seal | None) -> tuple[int, int] | None:
    """Return the first row that is not sealed although it is below the floor, and the floor. This is a long search."""
    floor = floor_of(reading, meta, last)
    first = reading.first_unsealed(last.end, floor=SEQ_MIN, upto=floor) if last else None
    return None if first is None else (first, floor)


# ---------------------------------------------------------------------------------------------------------------------
# The horizons of seals


class Horizons:
    """Verifies the horizons of seals whose hash is right, first to last."""

    def __init__(self, reading: SealReads, meta: dict[str, str], *, one_writer: bool) -> None:
        self._epoch = int(meta["epoch"])
        self._bounds = reading.sealing_bounds()
        self._one_writer = one_writer
        self._before: Seal | None = None
        self._pending: deque[Seal] = deque()  # horizons not compared with a later row yet

    def flaws(self, seal: Seal) -> Iterator[tuple[int, str]]:
        """Yield the numbers of seals whose horizon this seal shows to be false, and why."""
        if not self._is_possible(seal):
            yield seal.seal_id, f"the horizon of seal {seal.seal_id} is impossible: no sealer writes it"
        elif seal.epoch == self._epoch and not self._one_writer:
            while self._pending and self._pending[0].horizon_xid < seal.last_xid:
                earlier = self._pending.popleft()
                if earlier.horizon_seq >= seal.last_seq:
                    why = f"the horizon of seal {earlier.seal_id} is above rows that were written after it"
                    yield earlier.seal_id, why
            self._pending.append(seal)
        self._before = seal

    def _is_possible(self, seal: Seal) -> bool:
        xid, seq, before = seal.horizon_xid, seal.horizon_seq, self._before
        if seq < seal.high_seq or xid < 0 or (xid == 0 and seq != seal.high_seq):  # SQLite has no transaction ids
            return False
        if seal.epoch != self._epoch:
            return True  # perhaps of another database: nothing else is known of it, and it is not used
        if self._one_writer:
            return xid == 0
        if before and before.epoch == self._epoch and before.horizon_xid >= xid:
            return False
        return seal.last_xid < xid < self._bounds.next_xid and seq <= self._bounds.seq
