"""The errors of features that a plain job does not use; `core.errors` draws the whole tree, and imports them from here.

Invariants: as those of `core.errors`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from holdfast.core.errors import HoldfastError, InputError, RefusedError, StoreError


class ConfigurationError(InputError):
    """A setting of the environment or of a configuration file is unknown or wrong."""

    code = "configuration_invalid"
    next_step = "Correct the setting; `holdfast config show` shows all settings."


class BadUrlError(InputError):
    """The URL is not that of a database that Holdfast can open."""

    code = "url_invalid"
    next_step = "Give a file path, sqlite:///path/to/ledger.db, or postgresql://user@host:port/database."


class QueueUnknownError(InputError):
    """A queue that no operation, job or worker of the ledger uses."""

    code = "queue_unknown"
    next_step = "List the queues with `holdfast queues`."


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


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Raise ExtraMissingError if an import inside the block fails: the extra `name` installs what it needs."""
    try:
        yield
    except ImportError as error:
        raise ExtraMissingError(
            f"This needs the package {error.name}, which is not installed.",
            next_step=f"Install it: pip install 'holdfast[{name}]'",
            context={"extra": name, "package": error.name},
        ) from None


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


class StateTransitionRaceError(RefusedError, RuntimeError):
    """Another process changed the record between the read and the write."""

    code = "state_transition_race"
    next_step = "Read the record again, and retry."


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


class QueueFullError(RefusedError):
    """The queue has as many waiting jobs as its limit allows; nothing was written."""

    code = "queue_full"
    next_step = "Submit again later, or raise the limit: `holdfast limit --help`."


class RefusedByDatabaseError(RefusedError):
    """A trigger, constraint or index of the ledger refused the write."""

    code = "refused_by_database"
    next_step = "Change the record through Holdfast; the database refuses any other write."


class SchemaVersionError(StoreError):
    """The schema of the ledger is older or newer than this Holdfast."""

    code = "schema_version"
    next_step = "Older ledger: run `holdfast migrate`. Newer ledger: upgrade Holdfast."


class EnforcementDriftError(StoreError):
    """The machines or triggers of the ledger differ from those that this Holdfast generates."""

    code = "enforcement_drift"
    next_step = "Find out what changed them, then run `holdfast migrate` to rewrite them."


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
