"""The frozen records that the store reads and `decide` judges.

Invariants: a record is what one row said at one moment; it never reads a clock. Times are aware, in UTC. Fields stand
in the order of the columns that statements return. `gc=False`: a record can be part of no cycle, and many come and go.
"""

from datetime import UTC, datetime

import msgspec

from holdfast.core.errors import invariant
from holdfast.core.machines import (
    ExecutionStatus,
    GrantState,
    JobState,
    ProcedureState,
    StepState,
    SwitchState,
    ValueState,
)

REPLAY_ATTEMPTS = 5
MAX_ATTEMPTS = 5


class Job(msgspec.Struct, frozen=True, gc=False):
    """One unit of work: a call submitted by a client, perhaps under a key."""

    job_id: int
    operation: str
    operation_version: str
    client: str
    key: str | None
    queue: str
    state: JobState
    version: int
    attempts: int
    excused: int
    max_attempts: int
    replay_attempts: int
    priority: int
    run_at: datetime
    payload: str | None
    digest: str
    result: str | None
    last_attempt_at: datetime | None
    last_error_code: str | None
    last_error_message: str | None
    quarantine_code: str | None
    replay_reason: str | None
    replaces: int | None
    created_at: datetime
    updated_at: datetime

    @property
    def spent(self) -> int:
        """Return the attempts that count: claims less those that were excused."""
        return self.attempts - self.excused

    @property
    def slimmed(self) -> bool:
        """Tell whether retention has dropped the payload and the result."""
        return self.payload is None

    @property
    def may_retry(self) -> bool:
        """Tell whether automatic retry has budget left."""
        return self.spent < self.max_attempts

    @property
    def may_replay(self) -> bool:
        """Tell whether any attempt is left at all, replays included."""
        return self.spent < self.max_attempts + self.replay_attempts


class Execution(msgspec.Struct, frozen=True, gc=False):
    """One attempt at a job, under a lease."""

    exec_id: int
    job_id: int
    attempt: int
    status: ExecutionStatus
    version: int
    lease_owner: str
    lease_token: int
    lease_expires_at: datetime
    excused: bool
    error_code: str | None
    error_message: str | None
    progress: float | None
    progress_note: str | None
    cancel_asked_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """A job together with one execution of it: what a worker holds, and what the reaper finds."""

    job: Job
    execution: Execution


class Grant(msgspec.Struct, frozen=True):
    """A single-use, scoped, expiring permission to do one governed thing."""

    grant_id: int
    state: GrantState
    version: int
    action: str
    target: str
    scope: str
    requested_by: str
    approved_by: str | None
    consumed_by: str | None
    expires_at: datetime
    reason: str
    requested_via: str | None
    approved_via: str | None
    created_at: datetime
    updated_at: datetime


class NamedLease(msgspec.Struct, frozen=True):
    """An exclusive right to run something, by name, until it runs out."""

    name: str
    holder: str
    token: int
    acquired_at: datetime
    expires_at: datetime


class ProcedureRun(msgspec.Struct, frozen=True):
    """One run of a procedure, keyed by its idempotency root."""

    run_id: int
    idempotency_root: str
    procedure: str
    state: ProcedureState
    version: int
    step: int  # the furthest that was ever reached
    stop_state: str | None
    params: str
    plan: str
    lease: str
    grant_id: int | None
    failure: str | None
    actor: str
    reason: str | None
    created_at: datetime
    updated_at: datetime


class PerformedStep(msgspec.Struct, frozen=True):
    """One performance of a step: what came of it, and whether it still stands."""

    step_id: int
    run_id: int
    number: int
    name: str
    state: StepState
    version: int
    outcome: str
    actor: str
    reason: str | None
    created_at: datetime
    updated_at: datetime


class RegistryValue(msgspec.Struct, frozen=True):
    """A governed value of the registry: an operation code at a protocol version."""

    value_id: int
    vocab_id: str
    collection: str
    operation_code: str
    protocol_version: str
    act_type: str
    semantics: str
    authority_ref: str
    digest: str
    standing: str
    state: ValueState
    version: int
    successor_code: str | None
    successor_version: str | None
    rollback_ref: str | None
    run_id: int | None
    grant_id: int | None
    created_at: datetime
    updated_at: datetime


class Collection(msgspec.Struct, frozen=True):
    """A vocabulary of the registry: what its values look like, and whether it is in force."""

    collection: str
    schema: str
    schema_digest: str
    manifest_digest: str | None
    standing: str
    run_id: int
    created_at: datetime
    updated_at: datetime


class Evidence(msgspec.Struct, frozen=True):
    """What a governed act left behind for its reviewers."""

    evidence_id: int
    run_id: int | None
    kind: str
    subject: str
    content: str
    digest: str
    actor: str
    grant_id: int | None
    voided_at: datetime | None
    created_at: datetime


class Switch(msgspec.Struct, frozen=True):
    """A switch that was thrown, and perhaps lifted since."""

    switch_id: int
    name: str
    state: SwitchState
    version: int
    thrown_by: str
    actor: str
    reason: str
    grant_id: int | None
    created_at: datetime
    updated_at: datetime


class Approver(msgspec.Struct, frozen=True):
    """Somebody whose approvals can be told from forged ones, by their public key."""

    name: str
    public_key: str
    added_by: str
    reason: str
    grant_id: int | None
    added_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None


class Ruling(msgspec.Struct, frozen=True):
    """A journalled decision that no execution made: its event, where it led, and after how many attempts."""

    event: str
    target: JobState
    attempt: int


class JournalRow(msgspec.Struct, frozen=True):
    """One edge that one record took, as the database wrote it down."""

    seq: int
    machine: str
    subject: int
    version: int
    source: str | None
    target: str
    event: str
    actor: str
    reason: str | None
    attempt: int | None
    move_id: str
    grant_id: int | None
    maintenance_id: int | None
    at: datetime


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


def time_text(moment: datetime) -> str:
    """Return a moment in the one text format."""
    invariant(moment.tzinfo is not None, "a time without a zone")
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def time_from(text: str) -> datetime:
    """Return the moment that a text in the one format names."""
    return datetime.fromisoformat(text)
