"""What the store is asked for: work to record, leases to give.

Invariants: a payload is canonical JSON text already; a digest covers the operation and the payload, nothing else; a
Submission that exists can be stored by both databases as it is; the client's name of the engine is the engine's alone.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from holdfast.core.digest import is_storable, sha256
from holdfast.core.errors import InputError
from holdfast.core.records import MAX_ATTEMPTS, REPLAY_ATTEMPTS, Job, time_text

INTEGER_MAX = (1 << 31) - 1
ENGINE = "holdfast"  # the client of follow-ups: their keys tell which job staged them
WORD_BYTES_MAX = 1024  # a client and a key fit into one index entry of PostgreSQL


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A call as it enters the ledger: canonical payload text, ready to be written."""

    operation: str
    payload: str
    client: str = "local"
    key: str | None = None
    operation_version: str = "1.0.0"
    queue: str = "default"
    priority: int = 0
    run_at: datetime | None = None
    max_attempts: int = MAX_ATTEMPTS
    replay_attempts: int = REPLAY_ATTEMPTS
    replaces: int | None = None
    by_engine: bool = False  # a follow-up, or a job that replaces one

    def __post_init__(self) -> None:
        """Refuse what one of the databases could not hold as it is, before anything is written."""
        words = f"{self.operation}{self.operation_version}{self.client}{self.key}{self.queue}"
        if not is_storable(words):
            raise InputError("a name, key or queue has a zero character or half of a surrogate pair in it")
        if len(words) * 4 > WORD_BYTES_MAX:
            for word in (self.operation, self.operation_version, self.client, self.key or "", self.queue):
                if len(word.encode()) > WORD_BYTES_MAX:
                    raise InputError(f"a name, key or queue has more than {WORD_BYTES_MAX} bytes")
        if self.client == ENGINE and not self.by_engine:
            raise InputError(
                f"the client {ENGINE!r} is the ledger's own: the follow-ups of its jobs stand under that name",
                next_step="Submit under another client's name.",
                context={"client": ENGINE},
            )
        if self.key == "":
            raise InputError("an idempotency key is not empty", next_step="Leave the key out where there is none.")
        if not (-INTEGER_MAX <= self.priority <= INTEGER_MAX):
            raise InputError(f"a priority is between -{INTEGER_MAX} and {INTEGER_MAX}")
        if not (1 <= self.max_attempts <= INTEGER_MAX and 0 <= self.replay_attempts <= INTEGER_MAX):
            raise InputError("a job has one attempt or more, and no fewer than no replays")
        if self.run_at is not None and self.run_at.tzinfo is None:
            raise InputError("run_at has no time zone", next_step="Give an aware time, such as datetime.now(UTC).")

    @property
    def digest(self) -> str:
        """Return what makes two submissions under one key the same work."""
        return digest_of(self.operation, self.payload)

    def row(self, digest: str) -> list[object]:
        """Return the row that `insert_jobs` takes, in the order of its columns; `digest` is the one above."""
        return [
            self.operation, self.operation_version, self.client, self.key, self.queue, self.max_attempts,
            self.replay_attempts, self.priority, time_text(self.run_at) if self.run_at else None, self.payload, digest,
            self.replaces,
        ]  # fmt: skip


class Declared(msgspec.Struct, frozen=True):
    """An operation as the ledger knows it: its version, and what a job gets that does not say otherwise."""

    version: str = "1.0.0"
    queue: str = "default"
    max_attempts: int = MAX_ATTEMPTS
    replay_attempts: int = REPLAY_ATTEMPTS
    priority: int = 0


class Admission(msgspec.Struct, frozen=True):
    """What became of a submission: its job, and whether it is new."""

    job_id: int
    is_new: bool
    existing: Job | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who claims, for how long, how many, and from which queues."""

    owner: str
    seconds: float
    n: int = 1
    queues: tuple[str, ...] = ("default",)
    seconds_by_operation: Mapping[str, float] = {}
    begin: bool = True  # start the execution in the same write; False for real prefetch


def digest_of(operation: str, payload: str) -> str:
    """Return the digest that a job keeps of what it was to do."""
    return sha256(f"{operation}\n{payload}")
