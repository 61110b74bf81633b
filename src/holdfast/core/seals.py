"""Records of seals and archives: what closes a block of the journal, and the file that keeps what has left it."""

import msgspec


class Seal(msgspec.Struct, frozen=True):
    """A block of the journal, closed: the rows above the seal before it, up to (epoch, last_xid, last_seq)."""

    seal_id: int
    epoch: int
    last_xid: int
    last_seq: int
    low_seq: int
    high_seq: int
    rows: int
    digest: str
    previous: str
    hash: str
    sealed_at: str  # text, as in the journal: it is hashed
    horizon_xid: int
    horizon_seq: int

    @property
    def mark(self) -> str:
        """Return what the ledger notes of its last seal."""
        return f"{self.seal_id} {self.hash}"

    @property
    def end(self) -> tuple[int, int, int]:
        """Return the key of its last row: what sorts after it is not in it."""
        return self.epoch, self.last_xid, self.last_seq


class Archive(msgspec.Struct, frozen=True):
    """A file that holds the rows of some seals, which may be gone from the journal."""

    archive_id: int
    first_seal: int
    last_seal: int
    file: str
    sha256: str
    rows: int
    executions: int
    created_at: str
