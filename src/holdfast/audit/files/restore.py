"""Restoring: a snapshot becomes a ledger, in an empty place, in a new epoch.

Invariants: the snapshot is read through and found right before anything is opened; the ledger is written in one
transaction under the maintenance door, so a restore that fails or is killed leaves the place as empty as it was; rows
keep their ids, numbers, epochs and transaction ids; nobody who worked before goes on: open leases are ended as
journalled moves of the new epoch, and no fencing token that was ever given out is given out again. What is not a dev
ledger is restored under a slip, which becomes a used grant of the ledger that is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from holdfast.audit.files.slips import RestorePermit, keep_as_grant, permit_restore
from holdfast.audit.files.snapshot import Progress, SnapshotFile
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
from holdfast.store import Clock, connect
from holdfast.store import migrations as schema_steps
from holdfast.store.store import Store, host_clock
from holdfast.store.tables import TABLES, Row, Table
from holdfast.store.transaction import Transaction

ACTOR = "restore"
BATCH_ROWS = 2000
BATCH_BYTES = 1 << 20
BATCH_LEASES = 1000


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore has made."""

    ledger_id: str
    epoch: int
    environment: str
    sha256: str
    rows: dict[str, int]
    expired: int  # attempts that were under way, ended
    finished: int  # attempts that had committed, done
    grant_id: int | None  # what the slip has become


class RestoreRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Who restores, why, by whose leave, and whether the tables beside the ledger are of the same moment."""

    who: str
    why: str
    slip: Slip | None = None
    tables_from_same_snapshot: bool = False


def restore(
    path: Path,
    url: str,
    request: RestoreRequest,
    *,
    schema: str = "public",
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Restored:
    """Make a ledger from a snapshot: in a new file, an empty database, or a ledger that has no work and no history."""
    verified = verify(path, progress=progress)
    now = (clock or host_clock)()
    permit = permit_restore(request.slip, verified, executor=request.who, now=now)
    with _destination(url, schema, clock, request) as store:
        made = _write_ledger(store, verified, request, permit, progress)
        schema_steps.verify(store)
    return made


# ---------------------------------------------------------------------------------------------------------------------
# The place


@contextmanager
def _destination(url: str, schema: str, clock: Clock | None, request: RestoreRequest) -> Iterator[Store[Any]]:
    """Yield the store to write to; a new file gets its name only when it is whole."""
    with connect(url, clock, schema=schema, create=True) as place:
        if not place.exists:
            try:
                with place.drafted() as draft:
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
    tables = place.tables_beside()
    if tables:
        more = f" and {len(tables) - 1} more" if len(tables) > 1 else ""
        raise EffectsMayBeNewerError(
            f"the table {tables[0]}{more} may hold effects of jobs that the snapshot does not know as done:"
            " they would be applied again",
            next_step="Restore these tables from the same moment and say --tables-from-same-snapshot, or restore into"
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
        schema_steps.prepare(store, connection, epoch)
        # Its tables are locked now: nobody can put work into them.
        _require_empty(transaction)
        if existed:
            _require_alike(transaction.settings.read(), verified)
        transaction.portable.advance(_next_ids(verified, store))
        while store.extend_journal(connection):
            pass
        grant_id = (
            keep_as_grant(transaction, permit, ledger_id=header.ledger_id, reason=request.why) if permit else None
        )
        with transaction.maintenance.open(who=request.who, why=request.why, grant_id=grant_id) as door:
            _load_tables(transaction, Path(verified.file), verified, progress)
            transaction.settings.set("epoch", str(epoch))
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
        raise LedgerNotEmptyError(f"the ledger has rows in {', '.join(tables)}", context={"tables": tables})


def _require_alike(settings: dict[str, str], verified: VerifiedSnapshot) -> None:
    """Refuse to make another kind of ledger of one that was made on purpose."""
    for name, theirs in (
        ("environment", verified.header.environment),
        ("governed", "yes" if verified.header.governed else "no"),
    ):
        if settings[name] != theirs:
            raise RefusedError(
                f"the ledger was made with {name} {settings[name]}, and the snapshot is of one with {theirs}",
                next_step="What a ledger is for is written once: restore into a new file or an empty database.",
                context={"setting": name, "ledger": settings[name], "snapshot": theirs},
            )


def _next_ids(verified: VerifiedSnapshot, store: Store[Any]) -> dict[str, int]:
    """Return where ids and numbers go on.

    Executions go on at the time in microseconds. Whoever worked after the snapshot was taken may hold a token that it
    does not know of; as long as fewer than a million leases a second are given out, all of those are below.
    """
    microseconds = int(store.now().timestamp() * 1_000_000)
    return {**verified.given_out, "executions": max(verified.given_out.get("executions", 0), microseconds)}


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
        raise SnapshotInvalidError(f"{path} was changed while it was restored")


def _refused(table: Table, error: RefusedByDatabaseError) -> SnapshotInvalidError:
    return SnapshotInvalidError(
        f"the database refuses rows of {table.name}: {error.message}",
        next_step="Use another snapshot, or restore into the other database: this one cannot hold these rows.",
        context={"table": table.name},
    )


def _rows_to_load(table: Table, rows: Iterator[Row]) -> Iterator[Row]:
    # The ledger has an epoch of its own.
    return (row for row in rows if row[0] != "epoch") if table.name == "meta" else rows


def _batches(snapshot: SnapshotFile, table: Table) -> Iterator[list[Row]]:
    """Yield a table's rows, no more at once than memory should hold."""
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
    """End every attempt that was under way; return how many expired and how many had committed and are done."""
    expired = finished = 0
    while transaction.portable.end_leases():  # twice only if the clock was set back meanwhile
        while ended := transaction.executions.recover(actor=ACTOR, n=BATCH_LEASES):
            for attempt, answer in ended:
                if isinstance(answer, Refused):
                    raise SnapshotInvalidError(
                        f"attempt {attempt.execution.exec_id} was under way and cannot be ended: {answer.message}",
                        next_step="Repair the ledger that the snapshot was taken of, and take another.",
                        context={"exec_id": attempt.execution.exec_id, "job_id": attempt.job.job_id},
                    )
                done = answer.steps[-1].target == JobState.SUCCEEDED
                finished, expired = finished + done, expired + (not done)
    return expired, finished
