"""Records of seals and archives: a seal closes a block of the journal, an archive is a file with sealed blocks."""

import msgspec


class Seal(msgspec.Struct, frozen=True):
    """A closed block of the journal: the rows after the previous seal, up to (epoch, last_xid, last_seq)."""

    seal_id: int
    format: int  # which values of a journal row are hashed, and in which order
    epoch: int
    last_xid: int
    last_seq: int
    low_seq: int
    high_seq: int
    rows: int
    digest: str
    previous: str
    hash: str
    sealed_at: str  # text, as in the journal, because it is hashed
    horizon_xid: int
    horizon_seq: int

    @property
    def mark(self) -> str:
        """Return the id and the hash, as the ledger stores them for its last seal."""
        return f"{self.seal_id} {self.hash}"

    @property
    def end(self) -> tuple[int, int, int]:
        """Return the key of its last row; rows that sort after it are not part of the block."""
        return self.epoch, self.last_xid, self.last_seq


class Archive(msgspec.Struct, frozen=True):
    """A file with the rows of some seals; these rows may be deleted from the journal."""

    archive_id: int
    first_seal: int
    last_seal: int
    file: str
    sha256: str
    rows: int
    executions: int
    created_at: str
