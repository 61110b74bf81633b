"""Verbs of seals: the chain, and the journal as it is sealed.

Invariants: journal rows come as the sixteen values that are hashed, in that order; every list is read in pages, so that
memory does not grow with the ledger. What may be sealed is for the caller to know: here are only the statements.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from holdfast.core.seals import Archive, Seal
from holdfast.store.verbs.base import Verbs, WritingVerbs

SEQ_MIN, SEQ_MAX = -(2**63), 2**63 - 1
Key = tuple[int, int, int]  # (epoch, xid, seq): the order in which rows are sealed
BEFORE_ALL: Key = (0, 0, 0)
SealedValues = tuple[Any, ...]  # a journal row: (seq, epoch, xid, …, at)


class Bounds(NamedTuple):
    """What a view is sure of: transactions below `xid` have ended, and all their rows have numbers up to `seq`.

    No row that it can see is of a transaction from `next_xid` on.
    """

    xid: int
    next_xid: int
    seq: int


class Block(NamedTuple):
    """Rows that can be closed together: the key of the last one, their lowest and highest number, and how many."""

    epoch: int
    last_xid: int
    last_seq: int
    low_seq: int
    high_seq: int
    rows: int

    @property
    def end(self) -> Key:
        """Return the key of the last row."""
        return self.epoch, self.last_xid, self.last_seq


class SealReads(Verbs):
    """Reads seals, archives, and the journal as it is sealed."""

    def last(self) -> Seal | None:
        """Return the newest seal."""
        rows = self._run("last_seal")
        return Seal(*rows[0]) if rows else None

    def page(self, *, after: int = 0, upto: int = SEQ_MAX, limit: int = 1000) -> list[Seal]:
        """Return a page of seals, first to last."""
        return [Seal(*row) for row in self._run("list_seals", after=after, upto=upto, n=limit)]

    def sealed_rows(self, upto: int) -> int:
        """Return how many rows the seals up to this one have closed."""
        [[rows]] = self._run("sealed_rows", upto=upto)
        return int(rows)

    def seal_over(self, key: Key) -> int | None:
        """Return the number of the seal whose range a key falls into."""
        epoch, xid, seq = key
        rows = self._run("seal_over", epoch=epoch, xid=xid, seq=seq)
        return int(rows[0][0]) if rows else None

    def archives(self) -> list[Archive]:
        """Return the record of every archive, oldest first."""
        return [Archive(*row) for row in self._run("list_archives")]

    def journal_chunk(self, *, after: int, limit: int, upto: int = SEQ_MAX) -> list[SealedValues]:
        """Return journal rows above a number, in order, as they are hashed."""
        return self._run("journal_chunk", after=after, upto=upto, n=limit)

    def next_row(self, after: int) -> int | None:
        """Return the number of the next journal row, whether the rest of it can be read or not."""
        [[seq]] = self._run("next_row", after=after)
        return None if seq is None else int(seq)

    def journal_block(self, start: Key, block: Block | Seal, *, after: int, limit: int) -> list[SealedValues]:
        """Return a block's rows above a number, in order: those between two keys."""
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
        """Return the first number that the journal has room for: rows below have left it with their partition."""
        [[first]] = self._run("journal_begins")
        return int(first)

    def sealing_bounds(self) -> Bounds:
        """Return what this view can be sure of."""
        [row] = self._run("sealing_bounds")
        return Bounds(*row)

    def horizon(self, epoch: int, bound: int, *, below: int) -> int:
        """Return the number up to which every row is sealed, if all transactions below a bound are.

        Where horizons are kept, and not hashed, only those are believed that lie below a number.
        """
        rows = self._run("horizon", epoch=epoch, bound=bound, below=below)
        return int(rows[0][0]) if rows else 0

    def is_horizon(self, epoch: int, number: int, *, bound: int) -> bool:
        """Tell whether a seal has this number as its horizon, for when all transactions below a bound are sealed."""
        return bool(self._run("is_horizon", epoch=epoch, number=number, bound=bound))

    def ahead_of_time(self, *, epoch: int, floor: int, next_xid: int) -> int | None:
        """Return the transaction of a row that this database cannot have written, if there is one."""
        rows = self._run("ahead_of_time", epoch=epoch, floor=floor, next_xid=next_xid)
        return int(rows[0][0]) if rows else None

    def first_unsealed(self, start: Key, *, floor: int, upto: int) -> int | None:
        """Return the lowest number above a floor of a row that comes after a key."""
        rows = self._run("first_unsealed", floor=floor, upto=upto, **_after(start))
        return int(rows[0][0]) if rows else None

    def least_beyond(self, start: Key, *, after: int, upto: int) -> Key | None:
        """Return the lowest key of the rows above a number that come after a key."""
        rows = self._run("least_beyond", after=after, upto=upto, **_after(start))
        return (int(rows[0][0]), int(rows[0][1]), int(rows[0][2])) if rows else None

    def unsealed_blocks(self, start: Key, bound: Key, *, floor: int, upto: int, block_rows: int) -> list[Block]:
        """Return the blocks after a key and below another, first to last.

        Only rows with numbers above the floor and up to the other end are looked at: the caller knows of no others.
        """
        epoch, xid, seq = bound
        rows = self._run(
            "unsealed_blocks", floor=floor, upto=upto, epoch=epoch, xid=xid, seq=seq, n=block_rows, **_after(start)
        )
        return [Block(*row) for row in rows]


class SealWrites(SealReads, WritingVerbs):
    """Adds seals."""

    def add(self, seal: Seal) -> Seal | None:
        """Write a seal after the one that it was made to follow, and return it as written; None if that has a follower.

        Its `horizon_seq` must have been read before: this transaction's own number, which is younger, goes with it.
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
