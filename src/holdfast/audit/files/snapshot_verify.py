"""Verifies a snapshot: the file must be complete, and its history must agree with its seals.

Invariants: the file is read once, line by line; a snapshot that passes can be restored, as far as the file shows. An
invalid file raises SnapshotInvalidError; a valid file whose history differs from its seals raises SealsBrokenError.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from pathlib import Path

import msgspec

from holdfast.audit.files.snapshot import Progress, SnapshotFile, SnapshotSummary
from holdfast.audit.seals.sealer import ROW_FORMAT, genesis, row_lines, seal_hash
from holdfast.core.errors import SealsBrokenError, SnapshotInvalidError
from holdfast.core.seals import Archive, Seal
from holdfast.store.tables import TABLES, Row


class VerifiedSnapshot(SnapshotSummary, frozen=True, kw_only=True):
    """A snapshot that was read to its end and is valid."""

    seals: int
    head: str  # the hash of the last seal
    sealed: int  # journal rows, with those of archived blocks
    unsealed: int
    given_out: dict[str, int]  # the greatest id of each table
    approvers: dict[str, str | None]  # the public key of each registered approver; None if it was revoked


def verify(path: Path, *, progress: Progress | None = None) -> VerifiedSnapshot:
    """Read a snapshot to its end, and return its summary.

    Raise SnapshotInvalidError if the file is not valid, and SealsBrokenError if its history is not what was sealed.
    """
    with SnapshotFile(path, progress=progress, doing="verifying") as snapshot:
        sealed = SealedHistory(snapshot.header.ledger_id)
        settings: dict[str, str] = {}
        approvers: dict[str, str | None] = {}

        def take_approver(row: Row) -> None:
            name, public_key, _, _, _, _, revoked_at, _ = row
            approvers[name] = public_key if revoked_at is None else None

        takes = {
            "approvers": take_approver,
            "meta": lambda row: settings.update([row]),
            "seals": sealed.take_seal,
            "archives": sealed.take_archive,
            "journal": sealed.take_row,
        }
        for table in TABLES:
            take = takes.get(table.name)
            for row in snapshot.rows(table):
                if take:
                    take(row)
        summary = snapshot.finish()  # first: for a changed file, this error says more than the seals
        given_out = snapshot.given_out()
    _require_environment(summary, settings.get("environment"))
    sealed.finish(settings.get("seal_head"))
    return VerifiedSnapshot(
        **msgspec.structs.asdict(summary),
        seals=len(sealed.seals),
        head=sealed.head,
        sealed=sum(seal.rows for seal in sealed.seals),
        unsealed=sealed.unsealed,
        given_out=given_out,
        approvers=approvers,
    )


def _require_environment(summary: SnapshotSummary, found: str | None) -> None:
    """Raise unless the first line has the environment of the settings: who may restore depends on it."""
    if found != summary.header.environment:
        raise SnapshotInvalidError(
            f"{summary.file} is not a valid snapshot: its first line has the environment"
            f" {summary.header.environment}, its settings have {found}",
            context={"kind": "environment"},
        )


class SealedHistory:
    """The seals of a ledger, and the hashes of their rows, which are taken in the order of their numbers."""

    def __init__(self, ledger_id: str) -> None:
        self.seals: list[Seal] = []
        self.head = genesis(ledger_id)
        self.unsealed = 0
        self._ends: list[tuple[int, int, int]] = []
        self._open: dict[int, hashlib._Hash] = {}
        self._passed: list[int] = []
        self._archived = 0  # the last seal whose rows may be missing
        self._flaws: list[dict[str, object]] = []

    def take_seal(self, row: Row) -> None:
        seal = Seal(*row)
        number = len(self.seals) + 1
        if seal.seal_id != number or seal.previous != self.head or (self._ends and seal.end <= self._ends[-1]):
            self._add("order", seal.seal_id, f"seal {seal.seal_id} does not follow the seal before it")
        if seal_hash(seal) != seal.hash:
            self._add("hash", seal.seal_id, f"the fields of seal {seal.seal_id} do not have its hash")
        elif seal.format != ROW_FORMAT:
            self._add("format", seal.seal_id, f"this Holdfast does not know the row format {seal.format} of a seal")
        self.seals.append(seal)
        self._ends.append(seal.end)
        self._passed.append(0)
        self.head = seal.hash

    def take_archive(self, row: Row) -> None:
        """Take the record of an archive: the rows of its seals may be missing from the journal."""
        self._archived = max(self._archived, Archive(*row).last_seal)

    def take_row(self, row: Row) -> None:
        seq, epoch, xid = row[:3]
        index = bisect_left(self._ends, (epoch, xid, seq))
        if index == len(self._ends):
            self.unsealed += 1
            return
        hashed = self._open.get(index)
        if hashed is None:
            hashed = self._open[index] = hashlib.sha256()
        hashed.update(row_lines([row]))
        self._passed[index] += 1
        if self._passed[index] == self.seals[index].rows:
            if hashed.hexdigest() != self.seals[index].digest:
                self._add("rows", index + 1, f"the rows of seal {index + 1} differ from those that were sealed")
            del self._open[index]

    def _add(self, kind: str, seal_id: int, message: str) -> None:
        self._flaws.append({"kind": kind, "seal_id": seal_id, "message": message})

    def finish(self, seal_head: str | None) -> None:
        """Raise SealsBrokenError unless every sealed row was taken, no other, and the setting names the last seal."""
        if seal_head != (f"{len(self.seals)} {self.head}" if self.seals else None):
            text = f"the last seal is {len(self.seals)}, but the setting seal_head is {seal_head!r}"
            self._add("head", len(self.seals), text)
        for seal, passed in zip(self.seals, self._passed, strict=True):
            # The rows of an archived block are removed later; on PostgreSQL with their partition.
            if passed > seal.rows or (passed < seal.rows and seal.seal_id > self._archived):
                text = f"seal {seal.seal_id} has {seal.rows} rows, but the snapshot has {passed}"
                self._add("count", seal.seal_id, text)
        if self._flaws:
            raise SealsBrokenError(
                f"the history in the snapshot differs from its seals: {self._flaws[0]['message']}",
                next_step="Restore an older snapshot: holdfast snapshot restore FILE …. Keep this one as evidence.",
                context={"flaws": self._flaws[:20]},
            )
