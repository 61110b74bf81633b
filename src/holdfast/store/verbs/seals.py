"""Verbs of seals: the chain of seals, and the journal rows in the form in which they are hashed.

Invariants: a journal row is returned as the eighteen values that are hashed, in that order (row format 2); every list
is read in pages, so that memory does not grow with the ledger. The caller decides which rows may be sealed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from holdfast.core.seals import Archive, Seal
from holdfast.store.verbs.base import Verbs, WritingVerbs

SEQ_MIN, SEQ_MAX = -(2**63), 2**63 - 1
Key = tuple[int, int, int]  # (epoch, xid, seq): the order in which rows are sealed
BEFORE_ALL: Key = (0, 0, 0)
SealedValues = tuple[Any, ...]  # a journal row: (seq, epoch, xid, …, at, status_from, status_to)


class Bounds(NamedTuple):
    """The bounds of a view: transactions below `xid` have ended, and all their rows have numbers up to `seq`.

    No visible row belongs to the transaction `next_xid` or a later one.
    """

    xid: int
    next_xid: int
    seq: int


class Block(NamedTuple):
    """Rows for one seal: the key of the last row, their lowest and highest number, and their count."""

    epoch: int
    last_xid: int
    last_seq: int
    low_seq: int
    high_seq: int
    rows: int

    @property
    def end(self) -> Key:
        return self.epoch, self.last_xid, self.last_seq


class SealReads(Verbs):
    """Reads seals, archives, and journal rows as they are hashed."""

    def last(self) -> Seal | None:
        rows = self._run("last_seal")
        return Seal(*rows[0]) if rows else None

    def page(self, *, after: int = 0, upto: int = SEQ_MAX, limit: int = 1000) -> list[Seal]:
        """Return a page of seals, first to last."""
        return [Seal(*row) for row in self._run("list_seals", after=after, upto=upto, n=limit)]

    def sealed_rows(self, upto: int) -> int:
        """Return how many rows the seals up to this one cover."""
        [[rows]] = self._run("sealed_rows", upto=upto)
        return int(rows)

    def seal_over(self, key: Key) -> int | None:
        """Return the id of the seal that covers a key, or None."""
        epoch, xid, seq = key
        rows = self._run("seal_over", epoch=epoch, xid=xid, seq=seq)
        return int(rows[0][0]) if rows else None

    def archives(self) -> list[Archive]:
        """Return the record of every archive, oldest first."""
        return [Archive(*row) for row in self._run("list_archives")]

    def journal_chunk(self, *, after: int, limit: int, upto: int = SEQ_MAX) -> list[SealedValues]:
        """Return journal rows above a number, in order, in the form in which they are hashed."""
        return self._run("journal_chunk", after=after, upto=upto, n=limit)

    def next_row(self, after: int) -> int | None:
        """Return the number of the next journal row, or None; the other columns are not read."""
        [[seq]] = self._run("next_row", after=after)
        return None if seq is None else int(seq)

    def journal_block(self, start: Key, block: Block | Seal, *, after: int, limit: int) -> list[SealedValues]:
        """Return the rows of a block above a number, in order: those after `start` and up to the end of the block."""
        return self._run(
            "journal_block",
            epoch=block.epoch,
            last_xid=block.last_xid,
            last_seq=block.last_seq,
            after=after,
            upto=block.high_seq,
            n=limit,
            **_after(start),
        )

    def journal_begins(self) -> int:
        """Return the lowest possible number in the journal; rows below it were in a dropped partition."""
        [[first]] = self._run("journal_begins")
        return int(first)

    def sealing_bounds(self) -> Bounds:
        [row] = self._run("sealing_bounds")
        return Bounds(*row)

    def horizon(self, epoch: int, bound: int, *, below: int) -> int:
        """Return the number up to which every row is sealed, given that all transactions below `bound` are sealed.

        Horizons are not hashed, so stored horizons at or above `below` are ignored.
        """
        rows = self._run("horizon", epoch=epoch, bound=bound, below=below)
        return int(rows[0][0]) if rows else 0

    def is_horizon(self, epoch: int, number: int, *, bound: int) -> bool:
        """Return whether a seal of a transaction below `bound` has this number as its horizon."""
        return bool(self._run("is_horizon", epoch=epoch, number=number, bound=bound))

    def ahead_of_time(self, *, epoch: int, floor: int, next_xid: int) -> int | None:
        """Return the transaction of a row that this database cannot have written yet, or None."""
        rows = self._run("ahead_of_time", epoch=epoch, floor=floor, next_xid=next_xid)
        return int(rows[0][0]) if rows else None

    def first_unsealed(self, start: Key, *, floor: int, upto: int) -> int | None:
        """Return the lowest number above `floor` of a row whose key is after `start`, or None."""
        rows = self._run("first_unsealed", floor=floor, upto=upto, **_after(start))
        return int(rows[0][0]) if rows else None

    def least_beyond(self, start: Key, *, after: int, upto: int) -> Key | None:
        """Return the lowest key after `start` of the rows above a number, or None."""
        rows = self._run("least_beyond", after=after, upto=upto, **_after(start))
        return (int(rows[0][0]), int(rows[0][1]), int(rows[0][2])) if rows else None

    def unsealed_blocks(self, start: Key, bound: Key, *, floor: int, upto: int, block_rows: int) -> list[Block]:
        """Return the blocks of rows with keys after `start` and below `bound`, first to last.

        Only rows with numbers above `floor` and up to `upto` are read; the caller knows that there are no others.
        """
        epoch, xid, seq = bound
        rows = self._run(
            "unsealed_blocks", floor=floor, upto=upto, epoch=epoch, xid=xid, seq=seq, n=block_rows, **_after(start)
        )
        return [Block(*row) for row in rows]


class SealWrites(SealReads, WritingVerbs):
    """Adds seals."""

    def add(self, seal: Seal) -> Seal | None:
        """Insert a seal after the last one, and return it as stored; None if another seal was added since it was made.

        The caller must have read `horizon_seq` before this transaction began; the seal also stores its transaction id.
        """
        self._run("lock_seals")
        last = self.last()
        if (last.seal_id, last.hash) != (seal.seal_id - 1, seal.previous) if last else seal.seal_id != 1:
            return None
        values = {name: value for name, value in msgspec.structs.asdict(seal).items() if name != "horizon_xid"}
        [[horizon_xid]] = self._run("insert_seal", **values)
        self._session.settings.set("seal_head", seal.mark)
        return msgspec.structs.replace(seal, horizon_xid=horizon_xid)


def _after(start: Key) -> dict[str, int]:
    epoch, xid, seq = start
    return {"from_epoch": epoch, "from_xid": xid, "from_seq": seq}
