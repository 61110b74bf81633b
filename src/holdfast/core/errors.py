"""Every error that Holdfast raises on purpose, as one closed tree.

    HoldfastError
    ├── InputError                       exit 2: invalid input; nothing was written
    │   ├── ConfigurationError
    │   ├── BadUrlError
    │   ├── PayloadNotJsonError
    │   ├── PayloadTooDeepError
    │   ├── PayloadTooLargeError
    │   ├── UnknownOperationError
    │   ├── QueueUnknownError
    │   ├── IdempotencyConflictError
    │   ├── ArgumentsError
    │   ├── EffectError                  a staged statement that is not allowed, or failed
    │   ├── ConnectionUnfitError
    │   ├── SnapshotInvalidError
    │   ├── ArchiveInvalidError
    │   ├── HeadInvalidError
    │   ├── KeyInvalidError
    │   ├── FileThereError
    │   ├── SpecInvalidError             an invalid selection or manifest, with the path of the field
    │   ├── ScheduleInvalidError
    │   ├── FlowInvalidError             unique work, deadlines and work after other work
    │   ├── LimitInvalidError
    │   ├── ExtraMissingError            an optional package that is not installed
    │   └── MachineError                 a transition table that contradicts itself
    ├── JobNotFoundError                 exit 1 (also a KeyError)
    ├── RecordNotFoundError              exit 1: no such grant, run, value or switch (also a KeyError)
    ├── ResultExpiredError               exit 1: retention has deleted the result
    ├── JobUnsuccessfulError             exit 1: the job is failed or quarantined, so there is no result
    ├── SealsBrokenError                 exit 1: the history differs from its seals
    ├── WaitTimeoutError                 exit 1 (also a TimeoutError)
    ├── RefusedError                     exit 3: a guard refused the action
    │   ├── InvalidStateTransitionError  (also a ValueError)
    │   ├── StateTransitionRaceError     (also a RuntimeError)
    │   ├── LeaseLostError
    │   ├── WalRecoveringError
    │   ├── PlanStaleError
    │   ├── RepairIncompleteError
    │   ├── LedgerNotEmptyError
    │   ├── EffectsMayBeNewerError
    │   ├── HistoryArchivedError
    │   ├── RuntimeLeaseError            another process holds the named lease
    │   ├── GovernanceError              a rule of governance refused; each instance has the code of its rule
    │   │   ├── AuthorityError           REJECT_AUTH_*: the grant does not permit it
    │   │   ├── ApprovalError            this person, or this method, may not approve it
    │   │   ├── RegistryError            REJECT_*, RBP-*, CANONICAL_*: the vocabulary does not allow it
    │   │   ├── ReplayGuardError         scope_too_broad, kill_switch_active and the other guards of replay
    │   │   └── ProcedureStoppedError    a run ended in a stop state, which is its code
    │   ├── QueueFullError               the queue is at its limit
    │   └── RefusedByDatabaseError       a trigger, constraint or index of the ledger refused
    ├── StoreError                       exit 4: the database is unreachable, or unfit for use
    │   ├── StoreUnavailableError
    │   │   └── CommitUnknownError       the result of COMMIT is not known
    │   ├── StoreBusyError
    │   ├── StoreReadOnlyError
    │   ├── NotALedgerError
    │   ├── SchemaVersionError
    │   ├── EnforcementDriftError
    │   ├── StoreDamagedError            damaged pages or files
    │   ├── LedgerFileError              the file of the ledger was replaced, deleted or hard-linked
    │   ├── EpochError                   the transaction ids of the database restarted
    │   ├── ArchiveUnwritableError       the archive directory is missing, full or not writable
    │   └── DurabilityError
    └── BrokenError                      exit 1: an internal invariant of Holdfast is violated

Invariants: each class has a stable `code`; every instance has a next step; `as_dict` is the value that `--json` prints;
no message contains a payload, a password or a stack trace.
"""

from collections.abc import Mapping
from typing import ClassVar


class HoldfastError(Exception):
    """The root of all errors: a stable code, a message for people, a next step and context."""

    code: str = "error"
    exit_code: ClassVar[int] = 1
    next_step: ClassVar[str] = "To check the whole ledger, run `holdfast check`."

    def __init__(
        self, message: str, *, next_step: str | None = None, context: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.context: dict[str, object] = dict(context or {})
        self.hint = next_step or _completed(self.next_step, self.context)

    def __str__(self) -> str:
        # KeyError, a base class of some errors, would print the repr instead.
        return self.message

    def as_dict(self) -> dict[str, object]:
        """Return the value that every command prints with `--json`."""
        return {
            "error_code": self.code,
            "error_message": self.message,
            "context": {**{name: _plain(value) for name, value in self.context.items()}, "next_step": self.hint},
        }


class InputError(HoldfastError):
    """The input is invalid; nothing was written."""

    code = "bad_input"
    exit_code = 2
    next_step = "Correct the input and try again."


class ConfigurationError(InputError):
    """A setting of the environment or of a configuration file is unknown or wrong."""

    code = "configuration_invalid"
    next_step = "Correct the setting; `holdfast config show` shows all settings."


class BadUrlError(InputError):
    """The URL is not that of a database that Holdfast can open."""

    code = "url_invalid"
    next_step = "Give a file path, sqlite:///path/to/ledger.db, or postgresql://user@host:port/database."


class PayloadNotJsonError(InputError):
    """A payload or result that JSON cannot represent exactly."""

    code = "payload_not_json"
    next_step = "Use only JSON values: objects with string keys, arrays, strings, finite numbers, booleans, null."


class PayloadTooDeepError(InputError):
    """A payload that is nested too deeply."""

    code = "payload_too_deep"
    next_step = "Flatten the payload, or store it elsewhere and submit a reference to it."


class PayloadTooLargeError(InputError):
    """A payload that is larger than the limit."""

    code = "payload_too_large"
    next_step = "Store the data elsewhere and submit a reference to it, or raise HOLDFAST_PAYLOAD_MAX_BYTES."


class UnknownOperationError(InputError):
    """An operation that no process has declared to this ledger."""

    code = "operation_unknown"
    next_step = "See what the workers declare with `holdfast workers --all`, then start one that declares it."


class QueueUnknownError(InputError):
    """A queue that no operation, job or worker of the ledger uses."""

    code = "queue_unknown"
    next_step = "List the queues with `holdfast queues`."


class IdempotencyConflictError(InputError):
    """The key is already used by this client, for another operation or payload."""

    code = "idempotency_conflict"
    next_step = "Use a new key, or submit the same operation and payload again."


class ArgumentsError(InputError):
    """The arguments do not match the handler of the operation."""

    code = "arguments_invalid"
    next_step = "Compare the arguments with the parameters and annotations of the handler."


class EffectError(InputError):
    """A staged statement that is not allowed as an effect, or that the database refused."""

    code = "effect_failed"
    next_step = "Stage one INSERT, UPDATE, DELETE, MERGE, WITH or SELECT on your own tables."


class ConnectionUnfitError(InputError):
    """A borrowed connection with settings that Holdfast cannot work with."""

    code = "connection_unfit"
    next_step = "SQLite: use the same file, BEGIN IMMEDIATE and synchronous=FULL. PostgreSQL: use READ COMMITTED."


class SnapshotInvalidError(InputError):
    """A snapshot that is truncated, altered, or of a version that this Holdfast cannot read."""

    code = "snapshot_invalid"
    next_step = "Use another snapshot, or the version of Holdfast that wrote this one."


class ArchiveInvalidError(InputError):
    """An archive of history that is truncated, altered, or missing."""

    code = "archive_invalid"
    next_step = "Restore the archive from a copy; the ledger stores its SHA-256."


class HeadInvalidError(InputError):
    """A saved head that is truncated, altered, of another ledger, or not signed by the given key."""

    code = "head_invalid"
    next_step = "Give the output of `holdfast audit head --json`, and the public key of its signer."


class KeyInvalidError(InputError):
    """A file that cannot be read, or that does not contain a key."""

    code = "key_invalid"
    next_step = "Create a pair of keys with `holdfast audit keygen PATH`: PATH is private, PATH.pub is public."


class FileThereError(InputError):
    """The file already exists; Holdfast never overwrites a file."""

    code = "file_exists"
    next_step = "Give another file name, or move the existing file away."


class SpecInvalidError(InputError):
    """An invalid selection, manifest or parameter file; `context` contains the path of the field."""

    code = "spec_invalid"
    next_step = "Correct the field in the message."


class ScheduleInvalidError(InputError):
    """A schedule that never ticks, or that names an unknown time zone or policy."""

    code = "schedule_invalid"
    next_step = "Write five cron fields such as '0 2 * * *', '@daily', or an interval such as 'every 15m'."


class FlowInvalidError(InputError):
    """Work that cannot be unique, start in time or wait as its call says; `context["refusal"]` has the cause."""

    code = "flow_invalid"
    next_step = "Correct the setting that the message names."


class LimitInvalidError(InputError):
    """A limit that cannot be enforced, such as one of 0, or a path that no argument has."""

    code = "limit_invalid"
    next_step = "A limit is a whole number of at least 1; a rate is written as 100/minute."


class ExtraMissingError(InputError):
    """The feature needs an optional package that is not installed."""

    code = "extra_missing"
    next_step = "Install the extra: pip install 'holdfast[all]'."


class MachineError(InputError):
    """A transition table that is ambiguous, or has states that cannot be reached or left."""

    code = "machine_invalid"
    next_step = "Correct the rows of the transition table."


class JobNotFoundError(HoldfastError, KeyError):
    """There is no job with this id."""

    code = "job_not_found"
    next_step = "List jobs with `holdfast jobs`."


class RecordNotFoundError(HoldfastError, KeyError):
    """There is no record with this id or name."""

    code = "record_not_found"
    next_step = "List the records: `holdfast grant list`, `holdfast procedure list`, `holdfast registry list`."


class ResultExpiredError(HoldfastError):
    """The job has ended, and retention has deleted its payload and its result."""

    code = "result_expired"
    next_step = "The job is not run again. To run it again, submit it with a new key."


class JobUnsuccessfulError(HoldfastError):
    """The job is failed or quarantined: it has no result."""

    code = "job_unsuccessful"


class SealsBrokenError(HoldfastError):
    """The history differs from its seals."""

    code = "seals_broken"
    next_step = "Do not change the ledger. To see what differs, run `holdfast audit verify`."


class WaitTimeoutError(HoldfastError, TimeoutError):
    """The job did not end within the timeout."""

    code = "wait_timeout"
    next_step = "Wait longer. To see why the job does not run: `holdfast explain ID`."


class RefusedError(HoldfastError):
    """A guard refused the action; nothing was written."""

    code = "refused"
    exit_code = 3
    next_step = "To see the job: `holdfast show ID`."


class InvalidStateTransitionError(RefusedError, ValueError):
    """The machine has no such transition from the current state."""

    code = "invalid_state_transition"
    next_step = "See the current state with `holdfast show ID`, and all transitions with `holdfast machines`."


class StateTransitionRaceError(RefusedError, RuntimeError):
    """Another process changed the record between the read and the write."""

    code = "state_transition_race"
    next_step = "Read the record again, and retry."


class LeaseLostError(RefusedError):
    """The lease token of the caller is not the current one."""

    code = "lease_lost"
    next_step = "Stop this attempt: another execution owns the job, or will claim it."


class WalRecoveringError(RefusedError):
    """The write-ahead log is replaying entries after a crash, and accepts no new entry until it has finished."""

    code = "wal_recovering"
    next_step = "Wait for recover() to return; if it was interrupted, call it again."


class PlanStaleError(RefusedError):
    """The ledger has changed since the plan was made."""

    code = "plan_stale"
    next_step = "Make a new plan, and review it."


class RepairIncompleteError(RefusedError):
    """After the repair the ledger would still violate an invariant; the repair was rolled back."""

    code = "repair_incomplete"
    next_step = "Restore a snapshot into another database, and compare the two: `holdfast snapshot restore --help`."


class LedgerNotEmptyError(RefusedError):
    """A snapshot can only be restored into an empty ledger."""

    code = "ledger_not_empty"
    next_step = "Give a new file, an empty database or an empty schema."


class EffectsMayBeNewerError(RefusedError):
    """Other tables of the database may contain effects of jobs that are not finished in the snapshot."""

    code = "effects_may_be_newer"
    next_step = "Restore these tables too and give --tables-from-same-snapshot, or use an empty database."


class HistoryArchivedError(RefusedError):
    """The journal rows of that time are archived."""

    code = "history_archived"
    next_step = "Give a later time, or read the archive."


class RuntimeLeaseError(RefusedError):
    """Another process holds the lease; nothing was written."""

    code = "lease_held"
    next_step = "Wait until the lease is released or expires, then try again."


class GovernanceError(RefusedError):
    """A rule of governance refused the action; nothing was written. An instance has the code of its rule."""

    code = "governance_refused"
    next_step = "Request a grant that permits exactly this action: `holdfast grant request --help`."

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
    """No grant permits the action."""

    code = "authority_refused"


class ApprovalError(GovernanceError):
    """The environment of the ledger does not accept this approval."""

    code = "approval_refused"
    next_step = (
        "Another person must approve, with a registered key (`holdfast grant approvers list`) or a database role."
    )


class RegistryError(GovernanceError):
    """The registry does not allow the operation, the version or the change."""

    code = "registry_refused"
    next_step = "List the values in force with `holdfast registry list`."


class ReplayGuardError(GovernanceError):
    """A guard of replay refused; the code is the type of the guard."""

    code = "replay_refused"
    next_step = "Narrow the selection, and check it with a dry run: `holdfast replay dry-run --help`."


class ProcedureStoppedError(GovernanceError):
    """A run of a procedure stopped; the code is its stop state."""

    code = "procedure_stopped"
    next_step = (
        "Show the run with `holdfast procedure show ROOT`; continue it: `holdfast procedure resume --reason TEXT ROOT`."
    )


class QueueFullError(RefusedError):
    """The queue has as many waiting jobs as its limit allows; nothing was written."""

    code = "queue_full"
    next_step = "Submit again later, or raise the limit: `holdfast limit --help`."


class RefusedByDatabaseError(RefusedError):
    """A trigger, constraint or index of the ledger refused the write."""

    code = "refused_by_database"
    next_step = "Change the record through Holdfast; the database refuses any other write."


class StoreError(HoldfastError):
    """The database is unreachable, or unfit to store a ledger."""

    code = "store_error"
    exit_code = 4
    next_step = "Check the URL, and that the database is running."


class StoreUnavailableError(StoreError):
    """The database does not respond, or the file cannot be opened."""

    code = "store_unavailable"


class CommitUnknownError(StoreUnavailableError):
    """The connection was lost during COMMIT, so the transaction may or may not be committed."""

    code = "commit_unknown"
    next_step = "Submit again with the same key; this is safe. Without a key, look for the job with `holdfast jobs`."


class StoreBusyError(StoreError):
    """The write lock was not available in time."""

    code = "store_busy"
    next_step = "Try again. If the error repeats, look for a process that keeps a transaction open."


class StoreReadOnlyError(StoreError):
    """The file, or the role of the database, does not allow writing."""

    code = "store_read_only"
    next_step = "Make the file of the ledger and its directory writable, or use a role that may write."


class NotALedgerError(StoreError):
    """The database contains no ledger."""

    code = "not_a_ledger"
    next_step = "Create one with `holdfast init`."


class SchemaVersionError(StoreError):
    """The schema of the ledger is older or newer than this Holdfast."""

    code = "schema_version"
    next_step = "Older ledger: run `holdfast migrate`. Newer ledger: upgrade Holdfast."


class EnforcementDriftError(StoreError):
    """The machines or triggers of the ledger differ from those that this Holdfast generates."""

    code = "enforcement_drift"
    next_step = "Find out what changed them, then run `holdfast migrate` to rewrite them."


class StoreDamagedError(StoreError):
    """The files of the database are damaged."""

    code = "store_damaged"
    next_step = (
        "Stop all workers and keep the files. Restore a backup or a snapshot: `holdfast snapshot restore --help`."
    )


class LedgerFileError(StoreError):
    """The path no longer names the file that was opened, its log is another one, or the file has a second name."""

    code = "ledger_file_changed"
    next_step = (
        "Stop all processes of this ledger and put its file back. To copy a ledger: `holdfast snapshot create --help`."
    )


class EpochError(StoreError):
    """The transaction ids of the database restarted, so new history would sort before sealed history."""

    code = "epoch_behind"
    next_step = "Run `holdfast migrate --new-epoch`."


class ArchiveUnwritableError(StoreError):
    """The archive directory is missing, full or not writable; no history was removed from the ledger."""

    code = "archive_unwritable"
    next_step = "Create the directory, make it writable for Holdfast, or free space; then run `holdfast gc`."


class DurabilityError(StoreError):
    """The settings of the database do not make a commit durable before it is acknowledged."""

    code = "not_durable"
    next_step = "Use a local disk and durable settings (SQLite: WAL and synchronous=FULL)."


class BrokenError(HoldfastError):
    """An internal invariant of Holdfast is violated; this is a bug."""

    code = "broken"
    next_step = "Run `holdfast check`, and report this bug."


def _completed(step: str, context: Mapping[str, object]) -> str:
    """Return a next step with the id of the job and the root of the run in its commands; without one, it lists them."""
    for word, name, instead in (("ID", "job_id", "jobs"), ("ROOT", "root", "procedure list")):
        if (value := context.get(name)) is not None:
            step = step.replace(f" {word}`", f" {value}`")
        elif f" {word}`" in step:
            step = f"Find it with `holdfast {instead}`."
    return step


def _plain(value: object) -> object:
    """Return a value of a context as JSON can represent it: what a caller gave may be anything."""
    return value if value is None or isinstance(value, str | int | float | list | tuple | dict) else str(type(value))


def invariant(holds: object, message: str) -> None:
    """Raise BrokenError unless `holds`. Unlike `assert` it also works under `python -O`."""
    if not holds:
        raise BrokenError(message)
