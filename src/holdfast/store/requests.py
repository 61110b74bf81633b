"""The requests to the store: submissions, claims, staged statements, and the declared operations.

Invariants: a payload is canonical JSON text; a digest covers the operation and the payload, nothing else; both
databases can store any Submission unchanged; only the engine submits under the client name of the engine.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import astuple

from holdfast.core.digest import is_storable, sha256
from holdfast.core.records import MAX_ATTEMPTS, REPLAY_ATTEMPTS, Job, time_text

if TYPE_CHECKING:
    from holdfast.store.verbs.flow import Flow

INTEGER_MAX = (1 << 31) - 1
ENGINE = "holdfast"  # the client name of follow-ups; their keys contain the id of the job that staged them
WORD_BYTES_MAX = 1024  # a client and a key must fit into one index entry of PostgreSQL

T = TypeVar("T")
Params = Mapping[str, object] | Sequence[object]


class Effect(msgspec.Struct, frozen=True):
    """One statement with its parameters; `rows` is the row count that it must have, None for any.

    `hurried`: an effect of another job has waited as long as one may, so this one may take a tenth of that.
    """

    sql: str
    params: Params
    rows: int | None = None
    hurried: bool = False


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What many submissions of a batch share. `insert_jobs` writes the fields that are columns of a call."""

    operation: str
    client: str = "local"
    operation_version: str = "1.0.0"
    queue: str = "default"
    priority: int = 0
    max_attempts: int = MAX_ATTEMPTS
    replay_attempts: int = REPLAY_ATTEMPTS
    replaces: int | None = None
    run_at: datetime | None = None


class Submission(Shared, frozen=True, kw_only=True, gc=False):
    """A call to record as a job; the payload is canonical JSON text. It is in no cycle of references."""

    payload: str
    key: str | None = None
    by_engine: bool = False  # a follow-up, or a job that replaces one
    flow: "Flow | None" = None  # of work that is unique, has a deadline or waits for other jobs

    def __post_init__(self) -> None:
        """Raise InputError for a value that one of the databases could not store unchanged."""
        key, at = self.key, self.run_at
        length = _length(self.by_engine, *astuple(self)[:_COUNTS])
        fits = length and (key is None or (type(key) is str and key and is_storable(key)))
        fits = fits and (length + len(key or "")) * 4 <= WORD_BYTES_MAX
        if not fits or not (at is None or (at.tzinfo and 1 < at.year < 9999)):
            from holdfast.store.unfit import refuse_unfit_submission  # noqa: PLC0415 - few need a closer look

            refuse_unfit_submission(self)

    @property
    def digest(self) -> str:
        """Return the digest of the operation and the payload; equal digests under one key are the same work."""
        return digest_of(self.operation, self.payload)

    def fields(self, digest: str) -> dict[str, object]:
        """Return the parameters of `insert_job`; `digest` is the one above."""
        at = time_text(self.run_at) if self.run_at else None
        return msgspec.structs.asdict(self) | {"digest": digest, "run_at": at}

    @property
    def shape(self) -> tuple[object, ...]:
        """The values of the fields of `Shared`."""
        values = astuple(self)[:_SHARED]
        return values if self.run_at is None else (*values[:-1], time_text(self.run_at))


_SHARED = len(Shared.__struct_fields__)
_COUNTS = Shared.__struct_fields__.index("replaces")  # where the fields that `_length` judges end


@lru_cache(typed=True)
def _length(by_engine: object, operation: str, client: str, version: str, queue: str, *numbers: int) -> int:
    """Return how long the words are that a batch of submissions shares, or 0 if these cannot be stored."""
    parts, (priority, attempts, replays) = (operation, client, version, queue), numbers
    fits = set(map(type, parts)) == {str} and operation and queue and (client != ENGINE or by_engine)
    fits = fits and type(priority) is int and -INTEGER_MAX <= priority <= INTEGER_MAX
    fits = fits and 1 <= attempts <= INTEGER_MAX and 0 <= replays <= INTEGER_MAX
    return len(words) if fits and is_storable(words := "".join(parts)) else 0


def patterns(many: Sequence[T]) -> Sequence[T]:
    """Return one of many calls or submissions that differ only in payload and key; else all of them."""
    found: Sequence[T] = getattr(many, "patterns", many)
    return found


class Declared(msgspec.Struct, frozen=True):
    """A declared operation: its version, and the defaults of its jobs."""

    version: str = "1.0.0"
    queue: str = "default"
    max_attempts: int = MAX_ATTEMPTS
    replay_attempts: int = REPLAY_ATTEMPTS
    priority: int = 0
    flow: dict[str, Any] | None = None  # how its jobs are unique, and their deadline


class Admission(msgspec.Struct, frozen=True, gc=False):
    """The result of a submission: the id of its job, and whether the job is new."""

    job_id: int
    is_new: bool
    existing: Job | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A claim: the owner of the lease, its length, how many jobs, and from which queues."""

    owner: str
    seconds: float
    n: int = 1
    queues: tuple[str, ...] = ("default",)
    seconds_by_operation: Mapping[str, float] = {}
    begin: bool = True  # start the execution in the same write; False: only lease it
    durable: bool = True  # False: alone in its transaction it is not synced, so a power cut may take it back
    payload_max: int = 1 << 31  # a longer payload is read when it is first used


def digest_of(operation: str, payload: str) -> str:
    """Return the digest of an operation and its payload, as a job stores it."""
    return sha256(f"{operation}\n{payload}")
