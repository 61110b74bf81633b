"""Every error that Holdfast raises on purpose, as one closed tree.

    HoldfastError
    ├── InputError                       exit 2: what was given cannot be taken
    │   ├── BadUrlError
    │   ├── PayloadNotJsonError
    │   ├── PayloadTooDeepError
    │   ├── PayloadTooLargeError
    │   ├── UnknownOperationError
    │   ├── IdempotencyConflictError
    │   ├── ArgumentsError
    │   ├── EffectError                  a staged statement that may not, or could not, be applied
    │   ├── ConnectionUnfitError
    │   ├── SnapshotInvalidError
    │   ├── ArchiveInvalidError
    │   ├── HeadInvalidError
    │   ├── KeyInvalidError
    │   ├── FileThereError
    │   ├── SpecInvalidError             a selection or a manifest that is not what it should be, and where
    │   ├── ExtraMissingError            a part of Holdfast that was not installed
    │   └── MachineError                 a transition table that contradicts itself
    ├── JobNotFoundError                 exit 1 (also a KeyError)
    ├── RecordNotFoundError              exit 1: no such grant, run, value or switch (also a KeyError)
    ├── ResultExpiredError               exit 1: retention has dropped it
    ├── SealsBrokenError                 exit 1: sealed history is not what it was
    ├── WaitTimeoutError                 exit 1 (also a TimeoutError)
    ├── RefusedError                     exit 3: a guard said no
    │   ├── InvalidStateTransitionError  (also a ValueError)
    │   ├── StateTransitionRaceError     (also a RuntimeError)
    │   ├── LeaseLostError
    │   ├── WalRecoveringError
    │   ├── PlanStaleError
    │   ├── RepairIncompleteError
    │   ├── LedgerNotEmptyError
    │   ├── EffectsMayBeNewerError
    │   ├── HistoryArchivedError
    │   ├── RuntimeLeaseError            somebody else holds the named lease
    │   ├── GovernanceError              a rule of governance said no; each instance has the code of its rule
    │   │   ├── AuthorityError           REJECT_AUTH_*: the grant does not permit it
    │   │   ├── ApprovalError            somebody may not approve that, or not like that
    │   │   ├── RegistryError            REJECT_*, RBP-*, CANONICAL_*: the vocabulary does not allow it
    │   │   ├── ReplayGuardError         scope_too_broad, kill_switch_active and the other guards of replay
    │   │   └── ProcedureStoppedError    a run ended in a stop state, which is its code
    │   └── RefusedByDatabaseError       a trigger or an index of the ledger said no
    ├── StoreError                       exit 4: the database is out of reach, or is not fit to use
    │   ├── StoreUnavailableError
    │   │   └── CommitUnknownError       the answer to COMMIT was lost
    │   ├── StoreBusyError
    │   ├── StoreReadOnlyError
    │   ├── NotALedgerError
    │   ├── SchemaVersionError
    │   ├── EnforcementDriftError
    │   ├── StoreDamagedError            pages or files that are not what was written
    │   ├── EpochError                   the database's transaction ids have begun anew
    │   ├── ArchiveUnwritableError       the directory of archives is missing, full or not ours
    │   └── DurabilityError
    └── BrokenError                      exit 1: Holdfast caught itself breaking a promise

Invariants: each class has a stable `code`; every instance says what to do next; `as_dict` is what `--json` prints;
no message carries a payload, a password or a stack trace.
"""

from collections.abc import Mapping
from typing import ClassVar


class HoldfastError(Exception):
    """The root: a stable code, a message for people, a next step and a little context."""

    code: str = "error"
    exit_code: ClassVar[int] = 1
    next_step: ClassVar[str] = "Read the message; `holdfast check` looks at the whole ledger."

    def __init__(
        self, message: str, *, next_step: str | None = None, context: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = next_step or self.next_step
        self.context: dict[str, object] = dict(context or {})

    def __str__(self) -> str:
        # KeyError, a base of one subclass, would print the repr instead.
        return self.message

    def as_dict(self) -> dict[str, object]:
        """Return the machine-readable form that every `--json` command prints."""
        return {
            "error_code": self.code,
            "error_message": self.message,
            "context": {**self.context, "next_step": self.hint},
        }


class InputError(HoldfastError):
    """What the caller gave cannot be taken; nothing was written."""

    code = "bad_input"
    exit_code = 2
    next_step = "Correct the input and try again."


class BadUrlError(InputError):
    """A ledger URL that names no database Holdfast can open."""

    code = "url_invalid"
    next_step = "Give a file path, sqlite:///path/to/ledger.db, or postgresql://user@host:port/database."


class PayloadNotJsonError(InputError):
    """A payload or result that JSON cannot carry exactly."""

    code = "payload_not_json"
    next_step = "Use only JSON values: objects with string keys, arrays, strings, finite numbers, booleans, null."


class PayloadTooDeepError(InputError):
    """A payload nested beyond the limit."""

    code = "payload_too_deep"
    next_step = "Flatten the payload, or store it elsewhere and submit a reference."


class PayloadTooLargeError(InputError):
    """A payload beyond the size limit."""

    code = "payload_too_large"
    next_step = "Store the data elsewhere and submit a reference, or raise the payload limit."


class UnknownOperationError(InputError):
    """An operation that no process has declared to this ledger."""

    code = "operation_unknown"
    next_step = "Declare the operation first (--app module:ledger, or start a worker that declares it)."


class IdempotencyConflictError(InputError):
    """A used (client, key) pair with another operation or payload."""

    code = "idempotency_conflict"
    next_step = "Use a new key for new work, or submit exactly what was submitted first."


class ArgumentsError(InputError):
    """Arguments that do not fit the operation's handler."""

    code = "arguments_invalid"
    next_step = "Compare the arguments with the handler's parameters and annotations."


class EffectError(InputError):
    """A staged statement that is not an effect, or that the database would not apply."""

    code = "effect_failed"
    next_step = "Stage one INSERT, UPDATE, DELETE, MERGE, WITH or SELECT on your own tables."


class ConnectionUnfitError(InputError):
    """A borrowed connection on which Holdfast cannot keep its promises."""

    code = "connection_unfit"
    next_step = "SQLite: the same file, inside BEGIN IMMEDIATE, synchronous=FULL. PostgreSQL: READ COMMITTED."


class SnapshotInvalidError(InputError):
    """A snapshot that is truncated, altered, or of a version that this Holdfast does not know."""

    code = "snapshot_invalid"
    next_step = "Use another snapshot, or the version of Holdfast that made this one."


class ArchiveInvalidError(InputError):
    """An archive of history that is truncated, altered, or missing."""

    code = "archive_invalid"
    next_step = "Restore the archive from where copies are kept; the ledger knows its SHA-256."


class HeadInvalidError(InputError):
    """A head of the seals that is cut off, altered, of another ledger, or not signed by the key that was named."""

    code = "head_invalid"
    next_step = "Give the head as `holdfast audit head --json` printed it, and the public key of whoever signed it."


class KeyInvalidError(InputError):
    """A file that holds no key for signing, or that cannot be read."""

    code = "key_invalid"
    next_step = "Make a pair of keys with `holdfast audit keygen PATH`: PATH signs, PATH.pub verifies."


class FileThereError(InputError):
    """A file that would be written exists already; nothing is ever overwritten."""

    code = "file_exists"
    next_step = "Name another file, or move this one away first."


class SpecInvalidError(InputError):
    """A selection, a manifest or a parameter file that cannot be taken; `context` has the path of the field."""

    code = "spec_invalid"
    next_step = "Correct the field that is named."


class ExtraMissingError(InputError):
    """What was asked for needs a package that comes with an extra of Holdfast."""

    code = "extra_missing"
    next_step = "Install the extra: pip install 'holdfast[all]'."


class MachineError(InputError):
    """A transition table that is ambiguous, unreachable or dead-ended."""

    code = "machine_invalid"
    next_step = "Correct the rows of the transition table."


class JobNotFoundError(HoldfastError, KeyError):
    """No job has this id."""

    code = "job_not_found"
    next_step = "List jobs with `holdfast jobs`."


class RecordNotFoundError(HoldfastError, KeyError):
    """There is no record under that id or name."""

    code = "record_not_found"
    next_step = "List them: `holdfast grant list`, `holdfast procedure list`, `holdfast registry list`."


class ResultExpiredError(HoldfastError):
    """The job has ended, and retention has dropped its payload and its result."""

    code = "result_expired"
    next_step = "The work is done and is not done again: submit it under a new key if it is needed once more."


class SealsBrokenError(HoldfastError):
    """Sealed history is not what it was when it was sealed."""

    code = "seals_broken"
    next_step = "Keep the ledger as it is, and see what differs with `holdfast audit verify`."


class WaitTimeoutError(HoldfastError, TimeoutError):
    """The job did not end in the time given."""

    code = "wait_timeout"
    next_step = "Wait longer, or see why it does not run with `holdfast explain ID`."


class RefusedError(HoldfastError):
    """A guard refused the act; nothing was written."""

    code = "refused"
    exit_code = 3
    next_step = "Look at the job with `holdfast show ID`."


class InvalidStateTransitionError(RefusedError, ValueError):
    """The machine has no such transition from the present state."""

    code = "invalid_state_transition"
    next_step = "See `holdfast machines` for the legal moves, and `holdfast show ID` for the present state."


class StateTransitionRaceError(RefusedError, RuntimeError):
    """The record changed between the decision and the write."""

    code = "state_transition_race"
    next_step = "Read the record again and decide anew."


class LeaseLostError(RefusedError):
    """The lease that the caller showed is not, or no longer, the current one."""

    code = "lease_lost"
    next_step = "Drop the work: another execution owns it, or will."


class WalRecoveringError(RefusedError):
    """The write-ahead log replays what a crash left, and takes nothing new before that has ended."""

    code = "wal_recovering"
    next_step = "Wait for recover() to return; if it was interrupted, call it again."


class PlanStaleError(RefusedError):
    """The ledger has changed since the plan was made."""

    code = "plan_stale"
    next_step = "Make the plan again and look at it again."


class RepairIncompleteError(RefusedError):
    """After a repair the ledger would still break an invariant, so all of it was rolled back."""

    code = "repair_incomplete"
    next_step = "Keep the ledger as it is; restore a snapshot (`holdfast snapshot restore`) beside it and compare."


class LedgerNotEmptyError(RefusedError):
    """A snapshot is restored into an empty ledger only."""

    code = "ledger_not_empty"
    next_step = "Name a new file, an empty database or an empty schema."


class EffectsMayBeNewerError(RefusedError):
    """Tables beside the ledger may hold effects of jobs that the snapshot does not know as done."""

    code = "effects_may_be_newer"
    next_step = "Restore the tables from the same moment and say so, or restore into a database without them."


class HistoryArchivedError(RefusedError):
    """The journal no longer holds what was asked for: it has been archived."""

    code = "history_archived"
    next_step = "Ask for a later time, or read the archive."


class RuntimeLeaseError(RefusedError):
    """Somebody else holds the lease; nothing was written."""

    code = "lease_held"
    next_step = "Wait until the lease runs out or is released, and try again: nothing has to be cleaned up."


class GovernanceError(RefusedError):
    """A rule of governance said no; nothing was written. An instance has the code of its rule."""

    code = "governance_refused"
    next_step = "Ask for a grant that permits exactly this: `holdfast grant request --help`."

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        next_step: str | None = None,
        context: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message, next_step=next_step, context=context)
        self.code = code or self.code


class AuthorityError(GovernanceError):
    """No grant permits the act."""

    code = "authority_refused"


class ApprovalError(GovernanceError):
    """An approval that this ledger's environment does not accept."""

    code = "approval_refused"
    next_step = "Let somebody else approve, with a registered key (`holdfast grant approvers`) or by a database role."


class RegistryError(GovernanceError):
    """The registry does not allow the operation, the version or the change."""

    code = "registry_refused"
    next_step = "See what is in force with `holdfast registry list`."


class ReplayGuardError(GovernanceError):
    """A guard of replay said no; the code is the guard's type."""

    code = "replay_refused"
    next_step = "Narrow the selection and look at it with `holdfast replay dry-run`."


class ProcedureStoppedError(GovernanceError):
    """A run of a procedure stopped; the code is its stop state."""

    code = "procedure_stopped"
    next_step = "See where it stands with `holdfast procedure show ROOT`; go on with `holdfast procedure resume ROOT`."


class RefusedByDatabaseError(RefusedError):
    """A trigger, constraint or index of the ledger refused the write."""

    code = "refused_by_database"
    next_step = "Make the move through Holdfast; the database accepts nothing else."


class StoreError(HoldfastError):
    """The database is out of reach, or not fit to hold a ledger."""

    code = "store_error"
    exit_code = 4
    next_step = "Check the URL and that the database is up."


class StoreUnavailableError(StoreError):
    """Nobody answers at the URL, or the file cannot be opened."""

    code = "store_unavailable"


class CommitUnknownError(StoreUnavailableError):
    """The connection was lost while COMMIT was under way: it may or may not have happened."""

    code = "commit_unknown"
    next_step = "Submit again under the same key: it is safe. Without a key, look whether the job is there."


class StoreBusyError(StoreError):
    """The write lock could not be had in time."""

    code = "store_busy"
    next_step = "Try again; if it lasts, look for a process that holds a transaction open."


class StoreReadOnlyError(StoreError):
    """The file or the role does not allow writing."""

    code = "store_read_only"
    next_step = "Make the ledger's file and its directory writable, or use a role that may write."


class NotALedgerError(StoreError):
    """The database exists but holds no ledger."""

    code = "not_a_ledger"
    next_step = "Create one with `holdfast init`."


class SchemaVersionError(StoreError):
    """The ledger's schema is older or newer than this Holdfast."""

    code = "schema_version"
    next_step = "Older ledger: run `holdfast migrate`. Newer ledger: upgrade Holdfast."


class EnforcementDriftError(StoreError):
    """The ledger's machines or triggers differ from the ones this Holdfast generates."""

    code = "enforcement_drift"
    next_step = "Find out who changed them, then run `holdfast migrate` to write them anew."


class StoreDamagedError(StoreError):
    """The database's files are not what was written to them."""

    code = "store_damaged"
    next_step = "Stop writing, keep the files, and restore the newest snapshot (`holdfast snapshot restore`) or backup."


class EpochError(StoreError):
    """The database's transaction ids have begun anew, so that new history would sort before sealed history."""

    code = "epoch_behind"
    next_step = "Run `holdfast migrate --new-epoch`."


class ArchiveUnwritableError(StoreError):
    """The directory of archives is missing, full or cannot be written; no history has left the ledger."""

    code = "archive_unwritable"
    next_step = "Make the directory, let whoever runs Holdfast write there, or free space; then run `holdfast gc`."


class DurabilityError(StoreError):
    """The database would acknowledge a commit before it is durable."""

    code = "not_durable"
    next_step = "Use a local disk and full durability (SQLite: WAL and synchronous=FULL)."


class BrokenError(HoldfastError):
    """An invariant of Holdfast itself does not hold: a defect, reported rather than passed on."""

    code = "broken"
    next_step = "Keep the ledger as it is, run `holdfast check`, and report this."


def invariant(holds: object, message: str) -> None:
    """Raise BrokenError unless `holds`. Unlike `assert` it survives `python -O`."""
    if not holds:
        raise BrokenError(message)
