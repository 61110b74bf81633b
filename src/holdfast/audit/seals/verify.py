"""The verifier: it recomputes every block from the journal's rows, and says where they differ from their seals.

Invariants: it reads and never writes; one pass over the journal in the order of its numbers, a page a transaction, with
the seals read beside it, so that memory does not grow with the ledger; only seals that stood when it began are judged,
because a row that appears behind the pass can belong to a later one only; a row counts for the block that its key falls
into, wherever it lies. A block that was archived and removed is no problem; its file is judged if it is given.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast.audit.seals.archives import ArchiveVerifier
from holdfast.audit.seals.chain import ChainLink, SealChain
from holdfast.audit.seals.problems import SealProblem, SealProblems
from holdfast.audit.seals.sealer import PAGE, Head, row_lines
from holdfast.core.errors import HeadInvalidError, StoreDamagedError
from holdfast.core.records import Seal
from holdfast.store.store import Store
from holdfast.store.verbs.seals import BEFORE_ALL, SEQ_MAX, SEQ_MIN, Key, SealedValues

GREATEST_KEY: Key = (SEQ_MAX, SEQ_MAX, SEQ_MAX)
LEAST_KEY: Key = (SEQ_MIN, SEQ_MIN, SEQ_MIN)  # numbers that nobody gave out
SHOWN = 20  # how many numbers of missing rows a problem lists
_AT = -1  # where a row's time stands

Rows = Sequence[SealedValues]
Progress = Callable[[int, int], None]


class VerifyReport(msgspec.Struct, frozen=True):
    """What a verification found: rows in blocks that seals close, rows not sealed yet, rows only archives have."""

    ok: bool
    sealed: int
    unsealed: int
    archived: int
    head: Head
    problems: tuple[SealProblem, ...]


def verify(
    store: Store[Any],
    *,
    head: Head | Sequence[Head] | None = None,
    archives: Path | None = None,
    on_progress: Progress | None = None,
) -> VerifyReport:
    """Recompute the whole chain. `head`, one or more, must be part of it; `archives` is where the archives' files are.

    `on_progress` is called with the number that the pass has reached, and the last one there was at its start.
    """
    heads = () if head is None else (head,) if isinstance(head, Head) else head
    return _Verification(store, heads, archives, on_progress or (lambda _reached, _last: None)).run()


# ---------------------------------------------------------------------------------------------------------------------
# Where a row belongs


class _KeyRange(Protocol):
    """A range of keys; rows of it are given to `take`."""

    start: Key
    end: Key

    def take(self, rows: Rows) -> None: ...


class _PassingBlock:
    """A sealed block while its rows pass by."""

    def __init__(self, link: ChainLink, misplaced: Callable[[int, Rows], None]) -> None:
        self.start, self.seal, self.after_gap = link
        self.end = self.seal.end
        self._misplaced = misplaced
        self._hashed = hashlib.sha256()
        self.rows = 0
        self.settled = False

    def take(self, rows: Rows) -> None:
        low, high = self.seal.low_seq, self.seal.high_seq
        if self.settled or rows[0][0] < low or rows[-1][0] > high:
            outside = [row for row in rows if self.settled or not low <= row[0] <= high]
            rows = [row for row in rows if not self.settled and low <= row[0] <= high]
            if not self.after_gap:  # else they are those of a seal that is not believed
                self._misplaced(self.seal.seal_id, outside)
        self.rows += len(rows)
        self._hashed.update(row_lines(rows))

    @property
    def is_as_sealed(self) -> bool:
        return (self.rows, self._hashed.hexdigest()) == (self.seal.rows, self.seal.digest)


class _Tail:
    """The rows that no seal has closed yet; those up to the floor no sealer will ever look at."""

    def __init__(self, start: Key, floor: int) -> None:
        self.start, self.end = start, GREATEST_KEY
        self.floor = floor
        self.rows = 0
        self.hidden = 0
        self.first_hidden: SealedValues = ()
        self.last_hidden: SealedValues = ()

    def take(self, rows: Rows) -> None:
        self.rows += len(rows)
        if rows[0][0] <= self.floor:
            hidden = [row for row in rows if row[0] <= self.floor]
            self.hidden += len(hidden)
            self.first_hidden, self.last_hidden = self.first_hidden or hidden[0], hidden[-1]


class _ClosedKeys:
    """Keys of blocks that were compared already: no row of theirs can still come."""

    def __init__(self, end: Key, late: Callable[[Rows], None]) -> None:
        self.start, self.end = LEAST_KEY, end
        self.take = late


# ---------------------------------------------------------------------------------------------------------------------
# The pass


class _Verification:
    """One verification: the blocks around the pass, and what was found."""

    def __init__(self, store: Store[Any], heads: Sequence[Head], archives: Path | None, on_progress: Progress) -> None:
        self._store, self._on_progress = store, on_progress
        self._problems = SealProblems()
        self._chain = SealChain(store, self._problems, heads)
        for head in heads:
            if head.ledger_id != self._chain.meta["ledger_id"]:
                raise HeadInvalidError(
                    f"the head is of another ledger, {head.ledger_id}",
                    next_step="Give the head that was kept of this ledger.",
                    context={"head": head.ledger_id, "ledger": self._chain.meta["ledger_id"]},
                )
        self._archives = ArchiveVerifier(store, archives, self._problems)
        with store.reading() as reading:
            self._last_seq = reading.seals.sealing_bounds().seq
        self._window: list[_PassingBlock] = []
        self._ends: list[Key] = []
        self._left: Key = BEFORE_ALL  # the end of the last block that has left the window
        self._tail: _Tail | None = None
        self._sealed = self._archived = 0

    def run(self) -> VerifyReport:
        for page in self._pages():
            self._pass(page)
            self._archives.seen(page)
            reached = page[-1][0]
            self._settle(reached)
            self._on_progress(reached, max(self._last_seq, reached))
        while not self._chain.is_read:
            self._load(SEQ_MAX)
        self._settle(SEQ_MAX)
        self._chain.judge_end()
        self._archives.judge()
        self._judge_floor()
        return VerifyReport(
            ok=not self._problems.found,
            sealed=self._sealed,
            unsealed=self._tail.rows if self._tail else 0,
            archived=self._archived,
            head=self._chain.head,
            problems=self._problems.listed(),
        )

    def _pages(self) -> Iterator[Rows]:
        """Yield the journal, a page a transaction; a row that the database cannot read is reported and passed over."""
        reached, limit = SEQ_MIN, PAGE
        while True:
            try:
                with self._store.reading() as reading:
                    page = reading.seals.journal_chunk(after=reached, limit=limit)
            except StoreDamagedError as error:
                if limit == 1:
                    reached = self._unreadable(reached, error)
                limit = max(limit // 8, 1)
                continue
            if not page:
                return
            yield page
            reached, limit = page[-1][0], PAGE

    def _pass(self, page: Rows) -> None:
        """Give each row to its place: runs of rows of one block, as most pages are."""
        place, begun = self._range_of(page[0]), 0
        start, end = place.start, place.end
        for index, row in enumerate(page):
            if not start < (row[1], row[2], row[0]) <= end:
                place.take(page[begun:index])
                place, begun = self._range_of(row), index
                start, end = place.start, place.end
        place.take(page[begun:])

    def _range_of(self, row: SealedValues) -> _KeyRange:
        key = (row[1], row[2], row[0])
        while not self._chain.is_read and (not self._ends or key > self._ends[-1]):
            self._load(row[0])
        if key > self._chain.end:
            self._tail = self._tail or _Tail(self._chain.end, self._chain.floor)
            return self._tail
        if key <= self._left:
            return _ClosedKeys(self._left, self._late)
        return self._window[bisect_left(self._ends, key)]

    def _load(self, seq: int) -> None:
        """Read the next seals; those that the pass, now at a number, has left behind already are compared at once."""
        for link in self._chain.next_links():
            self._window.append(_PassingBlock(link, self._misplaced))
            self._ends.append(link.seal.end)
        self._settle(seq - 1)

    def _settle(self, reached: int) -> None:
        """Compare the blocks that the pass has left behind, and let go of those before the first that it has not."""
        for block in self._window:
            if not block.settled and block.seal.high_seq <= reached:
                block.settled = True
                self._compare(block)
        done = next((i for i, block in enumerate(self._window) if not block.settled), len(self._window))
        if done:
            self._left = self._ends[done - 1]
            del self._window[:done], self._ends[:done]

    def _compare(self, block: _PassingBlock) -> None:
        if block.is_as_sealed:
            self._sealed += block.rows
        elif block.rows < block.seal.rows and self._archives.explain(block.start, block.seal):
            self._archived += block.seal.rows
        else:
            self._sealed += block.rows
            self._problems.add(self._difference(block))

    # -- what is wrong ------------------------------------------------------------------------------------------------

    def _unreadable(self, after: int, error: StoreDamagedError) -> int:
        """Report the next row, which cannot be read, and return its number."""
        with self._store.reading() as reading:
            seq = reading.seals.next_row(after)
        if seq is None:
            raise error
        self._problems.add(SealProblem(kind="row_changed", seq=seq, to_seq=seq, detail=f"it cannot be read: {error}"))
        return seq

    def _late(self, rows: Rows) -> None:
        """Report rows whose key falls into blocks that were compared already."""
        if self._problems.is_full:  # nobody reads on, and each look-up costs
            self._misplaced(None, rows)
            return
        with self._store.reading() as reading:
            for seal_id, some in groupby(rows, lambda row: reading.seals.seal_over((row[1], row[2], row[0]))):
                self._misplaced(seal_id, list(some))

    def _misplaced(self, seal_id: int | None, rows: Rows) -> None:
        """Report rows whose key falls into a block that they cannot be part of."""
        if rows:
            self._problems.add(
                SealProblem(
                    kind="row_inserted",
                    seal=seal_id,
                    seq=rows[0][0],
                    to_seq=rows[-1][0],
                    at=rows[0][_AT],
                    to_at=rows[-1][_AT],
                    detail=f"{_rows(len(rows))} by key of seal {seal_id}, but not among the numbers that it has closed",
                )
            )

    def _judge_floor(self) -> None:
        """Report a floor that no seal speaks of, and rows that it hides, unless other problems explain them."""
        if self._problems.found:
            return
        if self._chain.floor_flaw:
            self._problems.add(SealProblem(kind="floor_differs", detail=self._chain.floor_flaw))
        tail = self._tail
        if tail and tail.hidden:
            self._problems.add(
                SealProblem(
                    kind="floor_differs",
                    seq=tail.first_hidden[0],
                    to_seq=tail.last_hidden[0],
                    at=tail.first_hidden[_AT],
                    to_at=tail.last_hidden[_AT],
                    detail=f"{_rows(tail.hidden)} not sealed, where no sealer looks: it begins above {tail.floor}",
                )
            )

    def _difference(self, block: _PassingBlock) -> SealProblem:
        """Say what is evident: a hash over a block tells that it differs, not which of its rows does."""
        seal, seqs, times = block.seal, list[int](), list[str]()
        after = seal.low_seq - 1
        while page := self._page_of(block, after):
            seqs += [row[0] for row in page]
            times += [row[_AT] for row in page]
            after = page[-1][0]
        gone = seal.rows - block.rows
        if gone > 0 and seqs and self._archives.took_whole(seal):
            return SealProblem(
                kind="row_inserted",
                seal=seal.seal_id,
                seq=seqs[0],
                to_seq=seqs[-1],
                at=min(times),
                to_at=max(times),
                detail=f"{_rows(len(seqs))} in a block that was archived, and has left the journal as a whole",
            )
        if gone > 0:
            kind, what = "row_missing", f"{_rows(gone)} of {seal.rows} gone"
        elif gone < 0:
            kind, what = "row_inserted", f"{_rows(-gone)} more than the {seal.rows} that were sealed"
        else:
            kind, what = "block_differs", f"{_rows(seal.rows)}, as sealed, but one or more of them changed"
        first, last = seal.low_seq, seal.high_seq
        missing = _gaps(seqs, seal)
        if missing:
            first, last = missing[0], missing[-1]
            what += f"; missing: {', '.join(map(str, missing[:SHOWN]))}{', …' if len(missing) > SHOWN else ''}"
        if block.after_gap:
            what += "; the seal before it cannot be believed, so that its first rows are not known"
        return SealProblem(
            kind=kind,
            seal=seal.seal_id,
            seq=first,
            to_seq=last,
            at=min(times, default=None),
            to_at=max(times, default=None),
            detail=f"{what}; sealed at {seal.sealed_at}",
        )

    def _page_of(self, block: _PassingBlock, after: int) -> Rows:
        try:
            with self._store.reading() as reading:
                return reading.seals.journal_block(block.start, block.seal, after=after, limit=PAGE)
        except StoreDamagedError:
            return []  # reported where the pass came to it


def _gaps(seqs: Sequence[int], seal: Seal) -> list[int]:
    """Return the numbers that are missing for certain: those of a block that had all numbers from low to high."""
    if seal.high_seq - seal.low_seq + 1 != seal.rows:
        return []
    present = set(seqs)
    return [seq for seq in range(seal.low_seq, seal.high_seq + 1) if seq not in present]


def _rows(n: int) -> str:
    return "1 row" if n == 1 else f"{n} rows"
