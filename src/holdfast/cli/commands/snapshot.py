"""`holdfast snapshot`: creates, restores, compares and verifies snapshots of a ledger.

Invariants: a snapshot never replaces a file; a restore never changes a ledger that contains jobs or history, and for
stage and prod it needs a slip that another person signed; progress bars appear only on a terminal.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from holdfast.audit.check.findings import Severity
from holdfast.audit.check.runner import check
from holdfast.audit.files.restore import Restored, RestoreRequest
from holdfast.audit.files.restore import restore as restore_now
from holdfast.audit.files.slips import read_slip
from holdfast.audit.files.snapshot import SnapshotHeader, SnapshotSummary
from holdfast.audit.files.snapshot import create as create_now
from holdfast.audit.files.snapshot_diff import Key, SnapshotComparison, TableDifferences
from holdfast.audit.files.snapshot_diff import diff as diff_now
from holdfast.audit.files.snapshot_verify import verify as verify_now
from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command, group
from holdfast.cli.declare import argument, option
from holdfast.cli.options import REASON_HELP, Json, OperatorWord, Schema, actor, word
from holdfast.cli.text import Column
from holdfast.core.spans import counted
from holdfast.store import Store

snapshot = group("Create, restore, compare and verify snapshots of a ledger.", "snapshots")
File = Annotated[str, argument(metavar="FILE", help="Snapshot file.")]
A = Annotated[str, argument(metavar="A", help="Snapshot file, or file or URL of a ledger.")]
B = Annotated[str, argument(metavar="B", help="Snapshot file, or file or URL of a ledger, to compare with A.")]


@snapshot.subcommand()
@command(Location.open)
def create(store: Store[Any], *, file: File, as_json: Json = False) -> Answer:
    """Write a snapshot of a ledger to a new file; workers may continue.

    The cheap checks run too; the violations that they find are reported and do not stop the snapshot.
    """
    with output.progress(as_json=as_json) as progress:
        made = create_now(store, Path(file), progress=progress)
    beside = store.upkeep.tables_beside()
    wrong = [found for found in check(store, cheap=True).violations if found.severity is Severity.ERROR]
    broken = sorted({found.invariant for found in wrong})

    def human() -> None:
        output.line(f"Wrote {output.clean(made.file)}: {_contents(made)}, {output.size(made.bytes)}.")
        output.line(f"sha256 {made.trailer.sha256}")
        if beside:
            others = f"{counted(len(beside), 'other table')} of the database ({output.clean(', '.join(beside))})"
            output.line(f"Not included: {others}.")
        if broken:
            output.line(
                f"The ledger, and so the snapshot, violates {', '.join(broken)}; for details run `holdfast check`"
            )

    return Answer({**_summary(made), "not_in_it": beside, "broken": broken}, human)


@snapshot.subcommand()
@command(Location.unopened)
def restore(
    location: Location,
    *,
    file: File,
    tables_from_same_snapshot: Annotated[
        bool,
        option(
            "--tables-from-same-snapshot",
            help="The other tables of the database come from the same time as the snapshot.",
        ),
    ] = False,
    operator: OperatorWord = None,
    reason: Annotated[str, word("--reason", REASON_HELP)] = "restored from a snapshot",
    grant: Annotated[
        Path | None,
        option("--grant", metavar="FILE", help="File that `holdfast grant slip` wrote; not needed in dev."),
    ] = None,
    bootstrap: Annotated[
        bool, option("--bootstrap", help="Accept the slip's key although a prod snapshot has no approvers.")
    ] = False,
    as_json: Json = False,
) -> Answer:
    """Restore a snapshot into a new or empty ledger.

    The target is a new file, an empty database or schema, or a ledger without jobs and history. Attempts that were
    running are ended, and a new epoch starts. A stage or prod ledger needs a slip signed by another person.
    """
    permission = RestoreRequest(
        who=operator or actor(),
        why=reason,
        slip=read_slip(grant) if grant else None,
        tables_from_same_snapshot=tables_from_same_snapshot,
        bootstrap=bootstrap,
    )
    with output.progress(as_json=as_json) as progress:
        made = restore_now(Path(file), location.url, permission, schema=location.schema, progress=progress)
    return Answer(msgspec.structs.asdict(made), lambda: _print_restored(made))


@snapshot.subcommand()
@command()
def diff(*, a: A, b: B, schema: Schema = None, as_json: Json = False) -> Answer:
    """Compare two snapshots or ledgers; the exit code is 1 if they differ."""
    with output.progress(as_json=as_json) as progress:
        found = diff_now(a, b, schema=schema or "public", progress=progress)
    value = {
        "same": found.same,
        "rows": found.rows,
        "a": _header(found.a),
        "b": _header(found.b),
        "tables": {name: _differences(table) for name, table in found.tables.items()},
    }
    return Answer(value, lambda: _print_comparison(found), 0 if found.same else 1)


@snapshot.subcommand()
@command()
def verify(*, file: File, as_json: Json = False) -> Answer:
    """Verify that a snapshot is complete and that its history matches its seals."""
    with output.progress(as_json=as_json) as progress:
        found = verify_now(Path(file), progress=progress)
    value = {
        "ok": True,
        **_summary(found),
        "seals": found.seals,
        "head": found.head,
        "sealed": found.sealed,
        "unsealed": found.unsealed,
    }

    def human() -> None:
        output.line(f"{output.clean(found.file)} is complete: {_contents(found)}, created {found.header.created_at}.")
        sealed = f"{counted(found.seals, 'seal')} over {counted(found.sealed, 'row')}" if found.seals else "no seals"
        output.line(f"{sealed}; {counted(found.unsealed, 'journal row')} not sealed.")

    return Answer(value, human)


# ---------------------------------------------------------------------------------------------------------------------
# For programs


def _summary(made: SnapshotSummary) -> dict[str, object]:
    return {
        "file": made.file,
        "bytes": made.bytes,
        "sha256": made.trailer.sha256,
        **_header(made.header),
        "rows": made.trailer.rows,
    }


def _header(header: SnapshotHeader) -> dict[str, object]:
    names = ("ledger_id", "epoch", "schema", "created_at", "dialect", "environment", "governed")
    return {name: getattr(header, name) for name in names}


def _differences(table: TableDifferences) -> dict[str, object]:
    return {
        "only_a": table.only_a,
        "only_b": table.only_b,
        "changed": table.changed,
        "keys": {
            "only_a": [_plain(key) for key in table.keys_only_a],
            "only_b": [_plain(key) for key in table.keys_only_b],
            "changed": [_plain(key) for key in table.keys_changed],
        },
    }


def _plain(key: Key) -> object:
    return key[0] if len(key) == 1 else list(key)


# ---------------------------------------------------------------------------------------------------------------------
# For people


def _contents(made: SnapshotSummary) -> str:
    return f"{counted(made.trailer.rows['jobs'], 'job')}, {counted(sum(made.trailer.rows.values()), 'row')}"


def _print_restored(made: Restored) -> None:
    output.line(f"Restored {counted(made.rows['jobs'], 'job')} to a {made.environment} ledger, epoch {made.epoch}.")
    if made.grant_id is not None:
        output.line(f"The slip is recorded as grant {made.grant_id}, consumed.")
    if made.expired or made.finished:
        output.line(f"Attempts that were running: {made.expired} expired, {made.finished} finished.")


def _print_comparison(found: SnapshotComparison) -> None:
    if found.same:
        output.line(f"No difference in {counted(found.rows, 'row')}.")
        return
    counts = [Column(title, right=True) for title in ("ONLY IN A", "ONLY IN B", "CHANGED")]
    output.table(
        [Column("TABLE"), *counts, Column("FIRST KEYS", folds=True)],
        [(name, t.only_a, t.only_b, t.changed, ", ".join(map(str, _first(t)))) for name, t in found.tables.items()],
    )


def _first(table: TableDifferences) -> list[object]:
    keys = (*table.keys_changed, *table.keys_only_a, *table.keys_only_b)
    return [_plain(key) for key in keys[:5]]
