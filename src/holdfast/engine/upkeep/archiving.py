"""Blocks on their way out of the journal: which come next, and the archive that takes them.

Invariants: blocks leave in the order of their seals; what a `Leaving` knows of its rows are the very rows that were
written to the file, and compared with their seals there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from holdfast.audit.files.archive import ArchiveWriter, archive_name
from holdfast.audit.seals.sealer import PAGE
from holdfast.core.machines import EXECUTION
from holdfast.core.seals import Seal
from holdfast.store.transaction import Reading
from holdfast.store.verbs.seals import BEFORE_ALL, Key, SealedValues

BLOCKS_A_FILE, ROWS_A_FILE = 64, 20_000  # so that the transaction in which they leave stays short


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


class Leaving:
    """Blocks on their way out, and what is known of their rows once they were read."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = blocks
        self._seals = [block.seal for block in blocks]
        self.seqs: list[int] = []
        self.versions: dict[tuple[str, int], int] = {}  # the last version that is archived, of each record
        self.exec_ids: list[int] = []

    def written(self, reading: Reading, directory: Path) -> Archived:
        """Write the archive, whole and durable; raise SealsBrokenError if the rows are not what was sealed."""
        with ArchiveWriter(directory, reading.settings.read()["ledger_id"], self._seals) as writer:
            for block in self._blocks:
                writer.add_block(self._passing(reading, block))
            for execution in self._executions(reading):
                writer.add_execution(execution)
            return self._archived(writer.finish().sha256)

    def counted(self, reading: Reading) -> Archived:
        """Return what the archive would hold."""
        for block in self._blocks:
            for _ in self._passing(reading, block):
                pass
        self._executions(reading)
        return self._archived(None)

    def _archived(self, sha256: str | None) -> Archived:
        first, last = self._seals[0].seal_id, self._seals[-1].seal_id
        return Archived(
            file=archive_name(first, last),
            first_seal=first,
            last_seal=last,
            rows=len(self.seqs),
            executions=len(self.exec_ids),
            sha256=sha256,
        )

    def _executions(self, reading: Reading) -> list[dict[str, object]]:
        """Return the executions whose last move is among the rows: nothing is left to tell of them."""
        moved = {subject: version for (machine, subject), version in self.versions.items() if machine == EXECUTION.name}
        found = reading.retention.executions_ended(moved)
        self.exec_ids = [int(str(execution["exec_id"])) for execution in found]
        return found

    def _passing(self, reading: Reading, block: Block) -> Iterator[SealedValues]:
        after = block.seal.low_seq - 1
        while page := reading.seals.journal_block(block.start, block.seal, after=after, limit=PAGE):
            for row in page:
                record = row[3], row[4]
                self.seqs.append(row[0])
                self.versions[record] = max(row[5], self.versions.get(record, 0))
                yield row
            after = page[-1][0]
