"""Archives in a verification: which blocks may be missing from the journal, and whether the files hold what was sealed.

Invariants: a block may be missing only if a recorded archive holds it, and in part only where a whole partition was
dropped; every archive was journalled under maintenance; files are verified only if their folder is given, one at a
time, and each fits into memory because of the way archives are made.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.audit.files.archive import ArchiveContents, read
from holdfast.audit.seals.problems import SealProblem, SealProblems
from holdfast.audit.seals.sealer import row_lines
from holdfast.core.errors import ArchiveInvalidError
from holdfast.core.seals import Archive, Seal
from holdfast.store.store import Store
from holdfast.store.tables import MAINTENANCE
from holdfast.store.verbs.seals import Key, SealedValues

ARCHIVE_EVENT = "archive"  # the event of the journal row about an archive
_MACHINE, _EVENT, _REASON = 3, 8, 10

Rows = Sequence[SealedValues]


class _ArchiveNote(msgspec.Struct):
    """The reason of the journal row about an archive."""

    sha256: str


class ArchiveVerifier:
    """Verifies the archives of a ledger while the journal is read."""

    def __init__(self, store: Store[Any], folder: Path | None, problems: SealProblems) -> None:
        self._store, self._folder, self._problems = store, folder, problems
        self._journalled: set[str] = set()
        self._left_behind: dict[int, Key] = {}  # blocks that are in the journal in part, and where they begin
        self._read()
        self._at_first = self._records

    def _read(self) -> None:
        with self._store.reading() as reading:
            self._records = reading.seals.archives()
            self._begins = reading.seals.journal_begins()

    def seen(self, page: Rows) -> None:
        """Look for rows about archives in a page of the journal."""
        if self._at_first:
            self._find_notes(page)

    def explain(self, start: Key, seal: Seal) -> bool:
        """Return whether an archive, perhaps made during the verification, explains that a block is not complete."""
        if not self._covered(seal):
            self._read()
        if not self._covered(seal):
            return False
        with self._store.reading() as reading:
            if not reading.seals.journal_block(start, seal, after=0, limit=1):
                return True
        self._read()  # the journal may begin later by now
        if seal.low_seq >= self._begins:
            return False
        self._left_behind[seal.seal_id] = start
        return True

    def took_whole(self, seal: Seal) -> bool:
        """Return whether all rows of a block were removed at once; with partitions some of them stay longer."""
        return self._store.one_writer and self._covered(seal)

    def judge(self) -> None:
        """Verify the files, if their folder is given, and the journal row of each archive that must still have one.

        The row about an archive that was made during the verification may have been missed. The row about an older
        one may be in a later archive: without the files, only the newest must have its row in the journal.
        """
        self._read()
        judged = self._at_first
        if self._folder is not None:
            for record in self._records:
                self._judge_file(record, self._folder / Path(record.file).name)
        else:
            judged = self._at_first[-1:] if self._records == self._at_first else []
        for record in judged:
            if record.sha256 not in self._journalled:
                self._add("archive_unnoted", record, "the journal has no row about it")

    def _judge_file(self, record: Archive, path: Path) -> None:
        if not path.exists():
            self._add("archive_missing", record, f"the file {path} does not exist")
            return
        try:
            contents = read(path, sha256=record.sha256)
        except ArchiveInvalidError as error:
            self._add("archive_changed", record, error.message)
            return
        self._find_notes(contents.journal)
        self._compare(record, contents)

    def _compare(self, record: Archive, contents: ArchiveContents) -> None:
        """Compare a valid archive with the ledger's seals, and with its rows that are still in the journal."""
        found = (contents.header.first_seal, contents.header.last_seal, len(contents.journal), len(contents.executions))
        if found != (record.first_seal, record.last_seal, record.rows, record.executions):
            self._add("archive_differs", record, "its seals, rows or executions differ from the ledger's record of it")
            return
        with self._store.reading() as reading:
            seals = reading.seals.page(
                after=record.first_seal - 1, upto=record.last_seal, limit=len(contents.header.seals)
            )
        hashes = {seal.seal_id: seal.hash for seal in seals}
        for seal in contents.header.seals:
            if hashes.get(seal.seal_id) != seal.hash:
                self._add("archive_differs", record, f"its seal {seal.seal_id} differs from the ledger's", seal)
            elif seal.seal_id in self._left_behind:
                self._compare_rest(record, seal, contents.journal)

    def _compare_rest(self, record: Archive, seal: Seal, archived: Rows) -> None:
        start = self._left_behind[seal.seal_id]
        kept = [row for row in archived if row[0] >= self._begins and start < (row[1], row[2], row[0]) <= seal.end]
        with self._store.reading() as reading:
            here = reading.seals.journal_block(start, seal, after=0, limit=seal.rows + 1)
        if row_lines(here) != row_lines(kept):
            self._add(
                "block_differs",
                record,
                f"the rows of block {seal.seal_id} that are still in the journal differ from the archived ones",
                seal,
            )

    def _find_notes(self, rows: Rows) -> None:
        for row in rows:
            if row[_EVENT] == ARCHIVE_EVENT and row[_MACHINE] == MAINTENANCE:
                try:
                    self._journalled.add(msgspec.json.decode(row[_REASON] or "", type=_ArchiveNote).sha256)
                except msgspec.DecodeError:
                    continue  # a reason that cannot be read names no archive

    def _covered(self, seal: Seal) -> bool:
        return any(record.first_seal <= seal.seal_id <= record.last_seal for record in self._records)

    def _add(self, kind: str, record: Archive, detail: str, seal: Seal | None = None) -> None:
        first, last = (seal.low_seq, seal.high_seq) if seal else (None, None)
        self._problems.add(
            SealProblem(
                kind=kind,
                seal=seal.seal_id if seal else record.first_seal,
                seq=first,
                to_seq=last,
                detail=f"archive {record.file} of seals {record.first_seal} to {record.last_seal}: {detail}",
            )
        )
