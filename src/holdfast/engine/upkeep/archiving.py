"""Blocks on their way out of the journal: which come next, and the archive that takes them.

Invariants: blocks leave in the order of their seals; `BlocksToArchive` knows the very rows that were written to the
file, and compared with their seals there; rows are read a page a step, each in a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.audit.files.archive import ArchiveWriter, archive_name
from holdfast.core.machines import JOB, ExecutionStatus
from holdfast.core.seals import Seal
from holdfast.core.steps import Steps
from holdfast.store import Store
from holdfast.store.transaction import Reading
from holdfast.store.verbs.retention import AttemptKey
from holdfast.store.verbs.seals import BEFORE_ALL, Key, SealedValues

_ATTEMPT, _MOVE_ID, _STATUS_TO = 11, 12, 17  # positions in a journal row
BLOCKS_A_FILE, ROWS_A_FILE = 64, 20_000  # so that the transaction in which they leave stays short
ROWS_A_PAGE = 1024  # so that a step stays short


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that was made; one that would be made has no digest yet."""

    file: str
    first_seal: int
    last_seal: int
    rows: int
    executions: int
    sha256: str | None


class Block(msgspec.Struct, frozen=True):
    """A seal, and the key after which its rows begin."""

    start: Key
    seal: Seal


def blocks_after(reading: Reading, archived: int) -> Iterator[Block]:
    """Yield the blocks that follow the last archived one, no more than a file may hold."""
    start = BEFORE_ALL
    for found in reading.seals.page(after=max(archived - 1, 0), upto=archived + BLOCKS_A_FILE):
        if found.seal_id > archived:
            yield Block(start, found)
        start = found.end


class BlocksToArchive:
    """Blocks on their way out, and what is known of their rows once they were read."""

    def __init__(self, store: Store[Any], blocks: Sequence[Block]) -> None:
        self._store = store
        self._blocks = blocks
        self._seals = [block.seal for block in blocks]
        self.first_seal, self.last_seal = self._seals[0].seal_id, self._seals[-1].seal_id
        self.seqs: list[int] = []
        self.versions: dict[tuple[str, int], int] = {}  # the last version that is archived, of each record
        self.attempts: list[AttemptKey] = []  # those that ended without success in these blocks
        self._endings: dict[AttemptKey, str] = {}  # the move that ended each of them

    def writer(self, directory: Path) -> ArchiveWriter:
        """Return a writer of the archive: its file gets its name when it is finished."""
        with self._store.reading() as reading:
            return ArchiveWriter(directory, reading.settings.read()["ledger_id"], self._seals)

    def read_into(self, writer: ArchiveWriter | None) -> Steps[None]:
        """Read the rows and their executions, and write them; raise SealsBrokenError if rows are not as sealed.

        What was read is whole only if no other process has archived the blocks meanwhile.
        """
        for block in self._blocks:
            for page in self._pages(block):
                if writer:
                    writer.add_rows(page)
                yield None
            if writer:
                writer.end_block()
        for execution in self._ended():
            if writer:
                writer.add_execution(execution)
        yield None

    def archived(self, sha256: str | None) -> Archived:
        """Return the archive as it was made, or without a digest as it would be."""
        return Archived(
            file=archive_name(self.first_seal, self.last_seal),
            first_seal=self.first_seal,
            last_seal=self.last_seal,
            rows=len(self.seqs),
            executions=len(self.attempts),
            sha256=sha256,
        )

    def _ended(self) -> list[dict[str, object]]:
        """Return the attempts that ended without success in these blocks; they leave with their last move."""
        with self._store.reading() as reading:
            found = reading.retention.ended_attempts(self._endings)
        self.attempts = [(int(str(attempt["job_id"])), int(str(attempt["attempt"]))) for attempt in found]
        return found

    def _pages(self, block: Block) -> Iterator[list[SealedValues]]:
        """Yield the rows of a block, each page from a read transaction of its own: sealed rows do not change."""
        after = block.seal.low_seq - 1
        while True:
            with self._store.reading() as reading:
                page = reading.seals.journal_block(block.start, block.seal, after=after, limit=ROWS_A_PAGE)
            if not page:
                return
            for row in page:
                record = row[3], row[4]
                self.seqs.append(row[0])
                self.versions[record] = max(row[5], self.versions.get(record, 0))
                if row[3] == JOB.name and row[_STATUS_TO] == ExecutionStatus.ABORTED:
                    self._endings[row[4], row[_ATTEMPT]] = row[_MOVE_ID]
            yield page
            after = page[-1][0]
