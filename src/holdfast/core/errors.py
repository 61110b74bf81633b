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
    │   │   └── ReplayGuardError         scope_too_broad, kill_switch_active and the other guards of replay
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

This module has those of the path of one job, `core.feature_errors` all others; import any of them from here.

Invariants: each class has a stable `code`; every instance has a next step; `as_dict` is the value that `--json` prints;
no message contains a payload, a password or a stack trace.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from holdfast.core.feature_errors import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """Import the errors of features when one of them is first used."""
        if not name.endswith("Error"):  # Python itself looks for names such as __path__
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from holdfast.core import feature_errors  # noqa: PLC0415 - most processes need none

        return getattr(feature_errors, name)


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
    next_step = "Store the data elsewhere and keep a reference. HOLDFAST_PAYLOAD_MAX_BYTES limits payloads alone."


class UnknownOperationError(InputError):
    """An operation that no process has declared to this ledger."""

    code = "operation_unknown"
    next_step = (
        "Start a worker that declares it (`holdfast worker --help`); `holdfast workers --all` shows who declares what."
    )


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


class MachineError(InputError):
    """A transition table that is ambiguous, or has states that cannot be reached or left."""

    code = "machine_invalid"
    next_step = "Correct the rows of the transition table."


class JobNotFoundError(HoldfastError, KeyError):
    """There is no job with this id."""

    code = "job_not_found"
    next_step = "List jobs with `holdfast jobs`."


class RefusedError(HoldfastError):
    """A guard refused the action; nothing was written."""

    code = "refused"
    exit_code = 3
    next_step = "To see the job: `holdfast show ID`."


class InvalidStateTransitionError(RefusedError, ValueError):
    """The machine has no such transition from the current state."""

    code = "invalid_state_transition"
    next_step = "See the current state with `holdfast show ID`, and all transitions with `holdfast machines`."


class LeaseLostError(RefusedError):
    """The lease token of the caller is not the current one."""

    code = "lease_lost"
    next_step = "Stop this attempt: another execution owns the job, or will claim it."


class StoreError(HoldfastError):
    """The database is unreachable, or unfit to store a ledger."""

    code = "store_error"
    exit_code = 4
    next_step = "Check the URL, and that the database is running."


class StoreUnavailableError(StoreError):
    """The database does not respond, or the file cannot be opened."""

    code = "store_unavailable"


class CommitUnknownError(StoreUnavailableError):
    """COMMIT was not confirmed, so the transaction may or may not be committed."""

    code = "commit_unknown"
    next_step = "Repeat it: with a key this is safe. Before a submit without a key look for its job: `holdfast jobs`."


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


class BrokenError(HoldfastError):
    """An internal invariant of Holdfast is violated; this is a bug."""

    code = "broken"
    next_step = "Run `holdfast check`, and report this bug."


def _completed(step: str, context: Mapping[str, object]) -> str:
    """Return a next step with the id of the job in its commands; without an id, it lists the jobs."""
    if " ID`" not in step:
        return step
    job_id = context.get("job_id")
    return "Find it with `holdfast jobs`." if job_id is None else step.replace(" ID`", f" {job_id}`")


def _plain(value: object) -> object:
    """Return a value of a context as JSON can represent it: what a caller gave may be anything."""
    return value if value is None or isinstance(value, str | int | float | list | tuple | dict) else str(type(value))


def invariant(holds: object, message: str) -> None:
    """Raise BrokenError unless `holds`. Unlike `assert` it also works under `python -O`."""
    if not holds:
        raise BrokenError(message)
