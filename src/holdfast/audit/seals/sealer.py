"""The sealer: it seals blocks of journal rows, each with a hash that includes the hash of the block before.

Invariants: every row is in exactly one seal, in the order of its key (epoch, transaction id, number), and no row can
appear later below a key that was sealed; no seal is added to a chain whose end is broken; rows are read in short
transactions, a page a step, and each seal is written in a transaction of its own; equal rows have equal bytes on both
databases.

Why a floor. Transaction ids have no index, so unsealed rows are looked for by number, above a floor below which every
row is known to be sealed. On PostgreSQL a later commit can carry a lower number, so the highest sealed number is no
floor. Each seal therefore keeps a horizon: `horizon_seq`, the last number that the sequence has given out at a moment,
and `horizon_xid`, the id of the sealing transaction itself, which it took after that moment. (The `xmax` of a snapshot
would not do: it is one above the last transaction that has *ended*, and one that still runs may be above it and have
its numbers already.) A transaction takes its id before its first number, numbers are given out one at a time, and ids
only grow; so a transaction with an id above `horizon_xid` has only numbers above `horizon_seq`, and the sealing one has
none. Hence: once all rows of transactions below B are sealed and B >= horizon_xid, every unsealed row is numbered above
horizon_seq. B is the `last_xid` of the last seal, because blocks are sealed in the order of their keys; after a sealing
that has sealed all it saw, B is the oldest transaction that was running then, and if that lifts the floor, which
happens when nothing has been written since, the floor is kept in the meta table. On SQLite writers take turns, numbers
follow the commits, and the highest sealed number is the floor. No hash covers horizons and floors: `horizons.py`
verifies them.
"""

import hashlib
from typing import Any, cast

import msgspec

from holdfast.audit.seals.horizons import FLOOR_SETTING, floor_of
from holdfast.core.digest import digest, sha256
from holdfast.core.errors import EpochError, InputError, SealsBrokenError, invariant
from holdfast.core.records import time_text
from holdfast.core.seals import Seal
from holdfast.core.steps import Steps, run_steps
from holdfast.store.store import Store
from holdfast.store.transaction import Reading
from holdfast.store.verbs.seals import BEFORE_ALL, Block, Bounds, Key

BLOCK_ROWS = 8192
WINDOW = 16 * BLOCK_ROWS  # numbers that one transaction reads
PAGE = 512  # rows in memory: a page of 4096 takes 6 MB, and no less CPU
REST = -1  # the last number of a block that is cut when it is read
HASHED = (
    "seal_id", "format", "epoch", "last_xid", "last_seq", "low_seq", "high_seq", "rows", "digest", "previous",
    "sealed_at",
)  # fmt: skip

# The row format of each new seal. In format 2 a journal row is hashed as a JSON array of its eighteen values (seq,
# epoch, xid, machine, subject, version, source, target, event, actor, reason, attempt, move_id, grant_id,
# maintenance_id, at, status_from, status_to) and a line feed. No release has made seals of another format.
ROW_FORMAT = 2
row_lines = msgspec.json.Encoder().encode_lines


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the chain: save it outside the ledger, where it cannot be changed together with the ledger."""

    ledger_id: str
    epoch: int
    seal: int
    hash: str
    rows: int  # in this seal and all before it
    sealed_at: str | None


def genesis(ledger_id: str) -> str:
    """Return the hash that the first seal of a ledger contains as the one before it."""
    return sha256(f"holdfast:{ledger_id}")


def seal_hash(seal: Seal) -> str:
    return digest({name: getattr(seal, name) for name in HASHED})


def seal(store: Store[Any], *, block_rows: int = BLOCK_ROWS) -> list[Seal]:
    """Seal all rows that can be sealed, at most `block_rows` in each block, and return the new seals.

    Several processes may seal at once: one that loses a race reads again what is left.
    """
    return run_steps(seal_steps(store, block_rows=block_rows))


def seal_steps(store: Store[Any], *, block_rows: int = BLOCK_ROWS) -> Steps[list[Seal]]:
    """Seal as `seal` does, in steps of one page each; rows that are written after the first step are left unsealed."""
    if block_rows < 1:
        raise InputError(f"block_rows must be at least 1, not {block_rows}", context={"block_rows": block_rows})
    made: list[Seal] = []
    view = _SealingView(store, block_rows)
    while True:
        view.look()
        yield view.pages_after(view.floor)
        for block in view.blocks:
            written = yield from _close(store, view, block)
            if written is None:
                break
            made.append(written)
            view.last = written
        else:
            if view.is_whole:
                _keep_floor(store, view)
                return made


def head(store: Store[Any]) -> Head:
    """Seal all rows that can be sealed, and return the head of the chain."""
    seal(store)
    with store.reading() as reading:
        return head_now(reading)


def head_now(reading: Reading) -> Head:
    """Return the head of the chain, without sealing."""
    meta, last = reading.settings.read(), reading.seals.last()
    require_sound_end(meta, last)
    return head_of(meta, last, reading.seals.sealed_rows(last.seal_id) if last else 0)


def head_of(meta: dict[str, str], last: Seal | None, rows: int) -> Head:
    """Return the head of a chain that ends with this seal."""
    ledger_id = meta["ledger_id"]
    return Head(
        ledger_id=ledger_id,
        epoch=last.epoch if last else int(meta["epoch"]),
        seal=last.seal_id if last else 0,
        hash=last.hash if last else genesis(ledger_id),
        rows=rows,
        sealed_at=last.sealed_at if last else None,
    )


def require_sound_end(meta: dict[str, str], last: Seal | None) -> None:
    """Raise SealsBrokenError if last seals were removed or the last one was changed: a new seal would hide that."""
    noted = meta.get("seal_head")
    found = last.mark if last else None
    if noted != found:
        raise SealsBrokenError(
            f"the last seal is {_named(found)}, but the setting seal_head names {_named(noted)}",
            context={"found": found, "noted": noted},
        )
    if last and seal_hash(last) != last.hash:
        raise SealsBrokenError(
            f"seal {last.seal_id} was changed: its fields do not have its hash", context={"seal": last.seal_id}
        )


def _named(noted: str | None) -> str:
    return f"seal {noted.split(' ')[0]}" if noted else "none"


# ---------------------------------------------------------------------------------------------------------------------
# What can be sealed


class _SealingView:
    """The rows that one sealing may seal: those of transactions that ended before it began, one part at a time.

    After a lost race it reads the same rows again, so that a sealing ends while other processes write. A part has the
    numbers up to a limit, and of those only the rows whose keys come before all keys above the limit.
    """

    def __init__(self, store: Store[Any], block_rows: int) -> None:
        self._store = store
        self._block_rows = block_rows
        self._window = max(WINDOW, 2 * block_rows)
        self._bounds: Bounds | None = None
        self.floor = 0
        self.last: Seal | None = None
        self.blocks: list[Block] = []
        self.is_whole = False  # whether this part is the last one

    def look(self) -> None:
        """Find the next blocks that can be sealed."""
        with self._store.reading() as reading:
            meta, last = reading.settings.read(), reading.seals.last()
            require_sound_end(meta, last)
            self.ledger_id, self.epoch, self.last = meta["ledger_id"], int(meta["epoch"]), last
            self.floor = max(self.floor, floor_of(reading.seals, meta, last))
            if self._bounds is None:
                self._bounds = reading.seals.sealing_bounds()
                self._require_present(reading)
            self._find_blocks(reading)

    def _find_blocks(self, reading: Reading) -> None:
        bounds = self.bounds
        first = reading.seals.first_unsealed(self.start, floor=self.floor, upto=bounds.seq)
        self.floor = bounds.seq if first is None else first - 1
        if self._store.one_writer and self._is_of_this_epoch(reading, first):
            self._take_rest(first)
            return
        top, bound = self.floor + self._window, (self.epoch, bounds.xid, 0)
        self.is_whole = top >= bounds.seq
        if not self.is_whole:
            beyond = reading.seals.least_beyond(self.start, after=top, upto=bounds.seq)
            bound = min(bound, beyond or bound)
        self.blocks = reading.seals.unsealed_blocks(
            self.start, bound, floor=self.floor, upto=min(top, bounds.seq), block_rows=self._block_rows
        )
        if not self.is_whole:
            if self.blocks and self.blocks[-1].rows < self._block_rows:
                self.blocks.pop()  # the next part has more rows for it
            # A transaction that was open for long delays all rows after it: then only a larger part has blocks.
            self._window = 2 * self._window if not self.blocks else max(WINDOW, 2 * self._block_rows)

    def _is_of_this_epoch(self, reading: Reading, seq: int | None) -> bool:
        return seq is None or reading.seals.journal_chunk(after=seq - 1, limit=1)[0][1] == self.epoch

    def _take_rest(self, first: int | None) -> None:
        """Take all rows as one block, which is cut when it is read: where writers take turns, keys follow numbers.

        That is true of the rows of this epoch. Those of an earlier one may come from PostgreSQL, by a snapshot.
        """
        self.is_whole = first is None
        rest = Block(self.epoch, self.bounds.xid, REST, self.floor + 1, self.bounds.seq, self._block_rows)
        self.blocks = [] if first is None else [rest]

    def _require_present(self, reading: Reading) -> None:
        """Raise EpochError if rows have transaction ids that this database has not assigned yet."""
        next_xid, last = self.bounds.next_xid, self.last
        if last and last.epoch > self.epoch:
            raise EpochError(
                f"the last seal has epoch {last.epoch}, but the ledger is at epoch {self.epoch}",
                context={"epoch": self.epoch, "sealed_epoch": last.epoch},
            )
        ahead = reading.seals.ahead_of_time(epoch=self.epoch, floor=self.floor, next_xid=next_xid)
        if last and last.epoch == self.epoch and last.last_xid >= next_xid:
            ahead = last.last_xid
        if ahead is not None:
            raise EpochError(
                f"the journal has rows of transaction {ahead}, but the next transaction of this database is {next_xid}",
                context={"epoch": self.epoch, "transaction": ahead, "next": next_xid},
            )

    def pages_after(self, seq: int) -> int:
        """Return the greatest number of pages that the journal can have above this number."""
        return max(0, self.bounds.seq - seq) // PAGE + 1

    @property
    def bounds(self) -> Bounds:
        """Return the bounds at the start of the sealing."""
        invariant(self._bounds, "look() comes first")
        return cast("Bounds", self._bounds)

    @property
    def start(self) -> Key:
        """Return the last key that is sealed."""
        return self.last.end if self.last else BEFORE_ALL

    @property
    def previous(self) -> str:
        """Return the hash of the last seal."""
        return self.last.hash if self.last else genesis(self.ledger_id)


def _keep_floor(store: Store[Any], view: _SealingView) -> None:
    """Store the floor after a finished sealing, if it is above the one that follows from the seals."""
    with store.reading() as reading:
        known = floor_of(reading.seals, reading.settings.read(), reading.seals.last())
        shown = reading.seals.horizon(view.epoch, view.bounds.xid, below=view.bounds.seq + 1)
    if shown > known:
        with store.transaction() as transaction:
            transaction.settings.set(FLOOR_SETTING, f"{view.epoch} {shown}")


# ---------------------------------------------------------------------------------------------------------------------
# Sealing


def _close(store: Store[Any], view: _SealingView, block: Block) -> Steps[Seal | None]:
    """Hash a block and write its seal; return None if another process has sealed meanwhile."""
    hashed, rows, after, xid = hashlib.sha256(), 0, block.low_seq - 1, 0
    start = max(view.start, (block.epoch, -1, 0))
    while rows < block.rows:
        with store.reading() as reading:
            page = reading.seals.journal_block(start, block, after=after, limit=min(PAGE, block.rows - rows))
        if not page:
            break
        hashed.update(row_lines(page))
        rows, after, xid = rows + len(page), page[-1][0], page[-1][2]
        if rows < block.rows:
            yield view.pages_after(after)
    if block.last_seq == REST and rows:
        block = Block(block.epoch, xid, after, block.low_seq, after, rows)
    if rows < block.rows:
        return None
    last = view.last
    draft = Seal(
        seal_id=last.seal_id + 1 if last else 1,
        format=ROW_FORMAT,
        epoch=block.epoch,
        last_xid=block.last_xid,
        last_seq=block.last_seq,
        low_seq=block.low_seq,
        high_seq=block.high_seq,
        rows=rows,
        digest=hashed.hexdigest(),
        previous=view.previous,
        hash="",
        sealed_at=time_text(store.now()),
        horizon_xid=0,
        horizon_seq=block.high_seq if store.one_writer else view.bounds.seq,
    )
    with store.transaction() as transaction:
        added = transaction.seals.add(msgspec.structs.replace(draft, hash=seal_hash(draft)))
    yield view.pages_after(after)
    return added
