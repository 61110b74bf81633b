"""The verifier: it hashes every block of the journal again, and reports where the hashes differ from the seals.

Invariants: nothing is written; the journal is read once, in the order of its numbers, one page in a transaction, with
the seals read in parallel, so that memory does not grow with the ledger; only seals that existed at the start are
verified, because a row that appears behind the reader can only belong to a later seal; a row belongs to the block that
its key falls into, whatever its number is. A block that was archived is no problem; its file is verified if given.
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
from holdfast.core.seals import Seal
from holdfast.store.store import Store
from holdfast.store.verbs.seals import BEFORE_ALL, SEQ_MAX, SEQ_MIN, Key, SealedValues

GREATEST_KEY: Key = (SEQ_MAX, SEQ_MAX, SEQ_MAX)
LEAST_KEY: Key = (SEQ_MIN, SEQ_MIN, SEQ_MIN)  # below every key that Holdfast writes
SHOWN = 20  # missing numbers that a problem lists
_AT = 15  # the position of a row's time

Rows = Sequence[SealedValues]
Progress = Callable[[int, int], None]


class VerifyReport(msgspec.Struct, frozen=True):
    """The result of a verification, with the number of rows that are sealed, not sealed yet, and in archives only."""

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
    """Verify the whole chain, and return the report.

    `head`: one or more saved heads that must be in the chain. `archives`: the folder with the archive files.
    `on_progress` is called with the number of the last row read, and the last number at the start.
    Raise HeadInvalidError if a head belongs to another ledger.
    """
    heads = () if head is None else (head,) if isinstance(head, Head) else head
    return _Verification(store, heads, archives, on_progress or (lambda _reached, _last: None)).run()


# ---------------------------------------------------------------------------------------------------------------------
# Ranges of keys


class _KeyRange(Protocol):
    """A range of keys; `take` receives the rows in it."""

    start: Key
    end: Key

    def take(self, rows: Rows) -> None: ...


class _PassingBlock:
    """A sealed block while its rows are read."""

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
            if not self.after_gap:  # else they belong to a seal that is not trusted
                self._misplaced(self.seal.seal_id, outside)
        self.rows += len(rows)
        self._hashed.update(row_lines(rows))

    @property
    def is_as_sealed(self) -> bool:
        return (self.rows, self._hashed.hexdigest()) == (self.seal.rows, self.seal.digest)


class _Tail:
    """The rows that are not sealed yet; the sealer never reads those up to the floor."""

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
    """Keys of blocks that were compared already: a row with such a key is misplaced."""

    def __init__(self, end: Key, late: Callable[[Rows], None]) -> None:
        self.start, self.end = LEAST_KEY, end
        self.take = late


# ---------------------------------------------------------------------------------------------------------------------
# The verification


class _Verification:
    """One verification: the blocks whose rows are being read, and the problems."""

    def __init__(self, store: Store[Any], heads: Sequence[Head], archives: Path | None, on_progress: Progress) -> None:
        self._store, self._on_progress = store, on_progress
        self._problems = SealProblems()
        self._chain = SealChain(store, self._problems, heads)
        for head in heads:
            if head.ledger_id != self._chain.meta["ledger_id"]:
                raise HeadInvalidError(
                    f"the head belongs to ledger {head.ledger_id}; this is ledger {self._chain.meta['ledger_id']}",
                    next_step="Give a head that was saved from this ledger: holdfast audit verify --head FILE.",
                    context={"head": head.ledger_id, "ledger": self._chain.meta["ledger_id"]},
                )
        self._archives = ArchiveVerifier(store, archives, self._problems)
        with store.reading() as reading:
            self._last_seq = reading.seals.sealing_bounds().seq
        self._window: list[_PassingBlock] = []
        self._ends: list[Key] = []
        self._left: Key = BEFORE_ALL  # the end of the last block that was compared and dropped
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
        """Yield the journal in pages, one in a transaction; report and skip a row that the database cannot read."""
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
        """Give each row to its range, in runs: most pages belong to one block."""
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
        """Read the next seals, and compare those whose rows have all been read, now that the reader is at `seq`."""
        for link in self._chain.next_links():
            self._window.append(_PassingBlock(link, self._misplaced))
            self._ends.append(link.seal.end)
        self._settle(seq - 1)

    def _settle(self, reached: int) -> None:
        """Compare the blocks whose rows have all been read, and drop the first ones that are done."""
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

    # -- problems -----------------------------------------------------------------------------------------------------

    def _unreadable(self, after: int, error: StoreDamagedError) -> int:
        """Report the next row, which cannot be read, and return its number."""
        with self._store.reading() as reading:
            seq = reading.seals.next_row(after)
        if seq is None:
            raise error
        self._problems.add(
            SealProblem(kind="row_changed", seq=seq, to_seq=seq, detail=f"row {seq} cannot be read: {error}")
        )
        return seq

    def _late(self, rows: Rows) -> None:
        """Report rows whose key belongs to blocks that were compared already."""
        if self._problems.is_full:  # only counted, and each look-up costs a statement
            self._misplaced(None, rows)
            return
        with self._store.reading() as reading:
            for seal_id, some in groupby(rows, lambda row: reading.seals.seal_over((row[1], row[2], row[0]))):
                self._misplaced(seal_id, list(some))

    def _misplaced(self, seal_id: int | None, rows: Rows) -> None:
        """Report rows whose key belongs to a block, but whose number does not."""
        if rows:
            detail = f"{_rows(len(rows))} inserted: the key belongs to seal {seal_id}, the number does not"
            self._problems.add(_of_rows("row_inserted", rows[0], rows[-1], detail, seal=seal_id))

    def _judge_floor(self) -> None:
        """Report a floor that no seal supports, and rows that it hides, unless other problems explain them."""
        if self._problems.found:
            return
        if self._chain.floor_flaw:
            self._problems.add(SealProblem(kind="floor_differs", detail=self._chain.floor_flaw))
        tail = self._tail
        if tail and tail.hidden:
            detail = f"{_rows(tail.hidden)} not sealed, and below row {tail.floor}, where the sealer starts"
            self._problems.add(_of_rows("floor_differs", tail.first_hidden, tail.last_hidden, detail))

    def _difference(self, block: _PassingBlock) -> SealProblem:
        """Return the problem of a block that differs; its hash does not show which of its rows differs."""
        seal, seqs, times = block.seal, list[int](), list[str]()
        after = seal.low_seq - 1
        while page := self._page_of(block, after):
            seqs += [row[0] for row in page]
            times += [row[_AT] for row in page]
            after = page[-1][0]
        lost, first, last = seal.rows - block.rows, seal.low_seq, seal.high_seq
        if lost > 0 and seqs and self._archives.took_whole(seal):
            kind, first, last = "row_inserted", seqs[0], seqs[-1]
            detail = f"{_rows(len(seqs))} inserted into block {seal.seal_id}, whose rows were archived and deleted"
        else:
            if lost > 0:
                kind, what = "row_missing", f"{_rows(lost)} of {seal.rows} missing"
            elif lost < 0:
                kind, what = "row_inserted", f"{_rows(-lost)} more than the {seal.rows} that were sealed"
            else:
                kind, what = "block_differs", f"{_rows(seal.rows)}, as sealed, but at least one was changed"
            if missing := _gaps(seqs, seal):
                first, last = missing[0], missing[-1]
                more = ", …" if len(missing) > SHOWN else ""
                what += f"; missing numbers: {', '.join(map(str, missing[:SHOWN]))}{more}"
            if block.after_gap:
                what += "; the seal before it is missing or changed, so the first row of the block is not known"
            detail = f"{what}; sealed at {seal.sealed_at}"
        at, to_at = min(times, default=None), max(times, default=None)
        return SealProblem(kind=kind, seal=seal.seal_id, seq=first, to_seq=last, at=at, to_at=to_at, detail=detail)

    def _page_of(self, block: _PassingBlock, after: int) -> Rows:
        try:
            with self._store.reading() as reading:
                return reading.seals.journal_block(block.start, block.seal, after=after, limit=PAGE)
        except StoreDamagedError:
            return []  # reported when the row was read


def _of_rows(
    kind: str, first: SealedValues, last: SealedValues, detail: str, *, seal: int | None = None
) -> SealProblem:
    at, to_at = first[_AT], last[_AT]
    return SealProblem(kind=kind, seal=seal, seq=first[0], to_seq=last[0], at=at, to_at=to_at, detail=detail)


def _gaps(seqs: Sequence[int], seal: Seal) -> list[int]:
    """Return the missing numbers of a block that has every number from low to high; nothing for other blocks."""
    if seal.high_seq - seal.low_seq + 1 != seal.rows:
        return []
    present = set(seqs)
    return [seq for seq in range(seal.low_seq, seal.high_seq + 1) if seq not in present]


def _rows(n: int) -> str:
    return "1 row" if n == 1 else f"{n} rows"
