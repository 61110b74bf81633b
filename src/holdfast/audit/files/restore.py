"""Restore: makes a ledger from a snapshot, in an empty database, in a new epoch.

Invariants: the snapshot is verified to its end before a database is opened; the ledger is written in one transaction
under maintenance, so that a restore that fails or is killed leaves the database empty; rows keep their ids, numbers,
epochs and transaction ids; no old worker can go on: open leases are ended as journalled moves of the new epoch, and a
new claim takes its token from the clock, so that tokens given out after the snapshot was taken are smaller. A ledger
outside dev needs a slip, which becomes a consumed grant of the new ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from holdfast.audit.files.slips import RestorePermit, keep_as_grant, permit_restore
from holdfast.audit.files.snapshot import Progress, SnapshotFile, SnapshotHeader
from holdfast.audit.files.snapshot_verify import VerifiedSnapshot, verify
from holdfast.core.authority import Slip
from holdfast.core.decide import Refused
from holdfast.core.errors import (
    EffectsMayBeNewerError,
    FileThereError,
    LedgerNotEmptyError,
    RefusedByDatabaseError,
    RefusedError,
    SnapshotInvalidError,
)
from holdfast.core.machines import JobState
from holdfast.store import Clock, connect, reinstall
from holdfast.store import migrations as schema_steps
from holdfast.store.store import Store, host_clock
from holdfast.store.tables import STRICTER, TABLES, Row, Table
from holdfast.store.transaction import Transaction

ACTOR = "restore"
BATCH_ROWS = 2000
BATCH_BYTES = 1 << 20
BATCH_LEASES = 1000


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger that was restored."""

    ledger_id: str
    epoch: int
    environment: str
    sha256: str
    rows: dict[str, int]
    expired: int  # open attempts that were ended
    finished: int  # committed attempts that were finished
    grant_id: int | None  # the grant made from the slip


class RestoreRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Who restores and why, the slip, and whether the application's tables are from the same moment."""

    who: str
    why: str
    slip: Slip | None = None
    tables_from_same_snapshot: bool = False
    bootstrap: bool = False  # accept the first key of a prod ledger without approvers


def restore(
    path: Path,
    url: str,
    request: RestoreRequest,
    *,
    schema: str = "public",
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Restored:
    """Make a ledger from a snapshot, in a new file, an empty database or an empty ledger, and return what was made.

    Raise SnapshotInvalidError, SealsBrokenError, LedgerNotEmptyError, EffectsMayBeNewerError or AuthorityError.
    """
    verified = verify(path, progress=progress)
    now = (clock or host_clock)()
    permit = permit_restore(request.slip, verified, executor=request.who, now=now, bootstrap=request.bootstrap)
    with _destination(url, schema, clock, request) as store:
        made = _write_ledger(store, verified, request, permit, progress)
        schema_steps.verify(store)
    return made


# ---------------------------------------------------------------------------------------------------------------------
# The destination


@contextmanager
def _destination(url: str, schema: str, clock: Clock | None, request: RestoreRequest) -> Iterator[Store[Any]]:
    """Yield the store to write to; a new file gets its name only when it is whole."""
    with connect(url, clock, schema=schema, create=True) as place:
        if not place.exists:
            try:
                with place.upkeep.drafted() as draft:
                    yield draft
            except FileThereError as error:
                raise LedgerNotEmptyError(error.message) from None
            return
        _refuse_newer_effects(place, request)
        if not schema_steps.is_empty(place):
            schema_steps.verify(place)
        yield place


def _refuse_newer_effects(place: Store[Any], request: RestoreRequest) -> None:
    if request.tables_from_same_snapshot:
        return
    tables = place.upkeep.tables_beside()
    if tables:
        more = f" and {len(tables) - 1} more" if len(tables) > 1 else ""
        raise EffectsMayBeNewerError(
            f"the table {tables[0]}{more} may hold effects of jobs that are not finished in the snapshot;"
            " these jobs would run again and apply their effects twice",
            next_step="Restore these tables from the same moment and add --tables-from-same-snapshot, or restore into"
            " a database without them.",
            context={"tables": tables[:20]},
        )


# ---------------------------------------------------------------------------------------------------------------------
# The rows


def _write_ledger(
    store: Store[Any],
    verified: VerifiedSnapshot,
    request: RestoreRequest,
    permit: RestorePermit | None,
    progress: Progress | None,
) -> Restored:
    header, epoch = verified.header, verified.header.epoch + 1
    with store.transaction() as transaction:
        connection = transaction.connection
        store.lock_schema(connection)
        existed = bool(store.tables(connection))
        reinstall.prepare(store, connection, epoch, governed=header.governed)
        # The tables are locked now: no other process can insert work.
        _require_empty(transaction)
        if existed:
            _require_alike(transaction.settings.read(), verified)
        transaction.portable.advance(verified.given_out)
        while store.upkeep.extend_journal(connection):
            pass
        grant_id = (
            keep_as_grant(transaction, permit, ledger_id=header.ledger_id, reason=request.why) if permit else None
        )
        with transaction.maintenance.open(who=request.who, why=request.why, grant_id=grant_id) as door:
            _load_tables(transaction, Path(verified.file), verified, progress)
            _require_whole(transaction)
            for name, value in (("epoch", str(epoch)), *_strictness(header)):
                transaction.settings.set(name, value)
            expired, finished = _end_open_leases(transaction)
            transaction.maintenance.note(
                door,
                "restore",
                sha256=verified.trailer.sha256,
                taken_at=header.created_at,
                from_epoch=header.epoch,
                from_dialect=header.dialect,
                rows=verified.trailer.rows,
                expired=expired,
                finished=finished,
            )
        transaction.counts.fold()
    return Restored(
        ledger_id=header.ledger_id,
        epoch=epoch,
        environment=header.environment,
        sha256=verified.trailer.sha256,
        rows=verified.trailer.rows,
        expired=expired,
        finished=finished,
        grant_id=grant_id,
    )


def _require_empty(transaction: Transaction) -> None:
    tables = transaction.portable.occupied()
    if tables:
        raise LedgerNotEmptyError(
            f"the ledger is not empty: it has rows in {', '.join(tables)}", context={"tables": tables}
        )


def _require_alike(settings: dict[str, str], verified: VerifiedSnapshot) -> None:
    """Raise RefusedError if an existing ledger has another environment or governance than the snapshot."""
    for name, theirs in _strictness(verified.header):
        if settings[name] != theirs:
            raise RefusedError(
                f"{name} of the ledger is {settings[name]}, but {name} of the snapshot is {theirs}",
                next_step="These settings of a ledger cannot be changed: restore into a new file or an empty database.",
                context={"setting": name, "ledger": settings[name], "snapshot": theirs},
            )


def _strictness(header: SnapshotHeader) -> tuple[tuple[str, str], ...]:
    return ("environment", header.environment), ("governed", "yes" if header.governed else "no")


def _load_tables(transaction: Transaction, path: Path, verified: VerifiedSnapshot, progress: Progress | None) -> None:
    with SnapshotFile(path, progress=progress, doing="restoring") as snapshot:
        for table in TABLES:
            for rows in _batches(snapshot, table):
                try:
                    transaction.portable.bring(table, rows)
                except RefusedByDatabaseError as error:
                    raise _refused(table, error) from error
                except Exception as error:
                    translated = transaction.store.translated(error)
                    if isinstance(translated, RefusedByDatabaseError):
                        raise _refused(table, translated) from error
                    raise
        again = snapshot.finish()
    if again.trailer != verified.trailer:
        raise SnapshotInvalidError(f"{path} was changed during the restore", context={"kind": "changed"})


def _require_whole(transaction: Transaction) -> None:
    orphaned = transaction.portable.orphaned()
    if orphaned:
        raise SnapshotInvalidError(
            f"the snapshot has rows of {orphaned[0]} without the job or the call that they belong to",
            next_step="Restore another snapshot, or repair the original ledger and take another snapshot.",
            context={"table": orphaned[0]},
        )


def _refused(table: Table, error: RefusedByDatabaseError) -> SnapshotInvalidError:
    return SnapshotInvalidError(
        f"the database refuses rows of {table.name}: {error.message}",
        next_step="Restore another snapshot, or restore into the kind of database that this one was taken from.",
        context={"table": table.name},
    )


def _rows_to_load(table: Table, rows: Iterator[Row]) -> Iterator[Row]:
    # The restored ledger sets its own epoch; the settings of its strictness can never be deleted and written again.
    kept = ("epoch", *STRICTER)
    return (row for row in rows if row[0] not in kept) if table.name == "meta" else rows


def _batches(snapshot: SnapshotFile, table: Table) -> Iterator[list[Row]]:
    """Yield the rows of a table in batches of limited size."""
    batch: list[Row] = []
    begun = snapshot.bytes_read
    for row in _rows_to_load(table, snapshot.rows(table)):
        batch.append(row)
        if len(batch) >= BATCH_ROWS or snapshot.bytes_read - begun >= BATCH_BYTES:
            yield batch
            batch, begun = [], snapshot.bytes_read
    if batch:
        yield batch


def _end_open_leases(transaction: Transaction) -> tuple[int, int]:
    """End every open attempt; return how many expired, and how many were committed and are done now."""
    expired = finished = 0
    while transaction.portable.end_leases():  # a second time only if the clock was set back
        while ended := transaction.recovery.recover(actor=ACTOR, n=BATCH_LEASES):
            for attempt, answer in ended:
                if isinstance(answer, Refused):
                    raise SnapshotInvalidError(
                        f"execution {attempt.execution.exec_id} of job {attempt.job.job_id} cannot be ended:"
                        f" {answer.message}",
                        next_step="Repair the original ledger with `holdfast repair`, and take another snapshot.",
                        context={"exec_id": attempt.execution.exec_id, "job_id": attempt.job.job_id},
                    )
                done = answer.steps[-1].target == JobState.SUCCEEDED
                finished, expired = finished + done, expired + (not done)
    return expired, finished
