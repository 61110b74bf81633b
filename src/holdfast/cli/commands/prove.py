"""`holdfast prove`: checks recorded journals against the model, move by move.

Invariants: nothing is written to the ledger; the first wrong step is named by its record, version and code; the exit
code is 1 if there is one.
"""

from pathlib import Path
from typing import Annotated

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import option
from holdfast.cli.options import Json
from holdfast.cli.text import Column
from holdfast.core.spans import counted
from holdfast.model.trace import LIMIT, TraceReport, prove_files, prove_ledger

WRONG = 1
COLUMNS = (Column("RECORD"), Column("VERSION", right=True), Column("ROW", right=True), Column("CODE"))


@command(Location.unopened)
def prove(
    location: Location,
    *,
    trace: Annotated[
        list[Path] | None,
        option("--trace", metavar="FILE", help="Snapshot, export or archive to check instead of a ledger; repeatable."),
    ] = None,
    limit: Annotated[int, option("--limit", min=1, max=1_000_000, help="Maximum number of wrong steps.")] = LIMIT,
    as_json: Json = False,
) -> Answer:
    """Check the journal of a ledger, or of files, against the model.

    Each recorded move is checked by the rules of this version, in order: it must be possible after the moves before it,
    with the attempts, budgets and grants of that time. An attempt commits once; tokens and versions only grow. The
    journal is sorted in a temporary directory (TMPDIR), which needs about the size of the journal.
    """
    with output.progress(as_json=as_json) as show:
        if trace:
            report = prove_files(trace, limit=limit, progress=show)
        else:
            with location.connect() as store:  # not verified: a ledger without its triggers can be checked too
                report = prove_ledger(store, limit=limit, progress=show)
    return Answer(msgspec.to_builtins(report), lambda: _print(report), 0 if report.ok else WRONG)


def _print(report: TraceReport) -> None:
    rows, jobs, records = (
        counted(report.rows, "journal row"), counted(report.jobs, "job"), counted(report.records, "other record")
    )  # fmt: skip
    what = f"{rows}, {jobs} and {records}"
    if report.ok and not report.rows:
        output.line("No journal row was found, so nothing was checked. An export has the rows of sealed blocks only.")
    elif report.ok:
        output.line(f"Every move follows the model: {what}.")
    else:
        wrong = [(f"{a.machine} {a.subject}", a.version, a.seq or "", a.code, a.detail) for a in report.wrong]
        output.table([*COLUMNS, Column("DETAIL", folds=True)], wrong)
        more = "; there may be more, raise --limit" if report.more else ""
        output.line(
            f"\nRecords with a wrong step, of which the first is listed: {len(report.wrong)}. Checked: {what}{more}."
        )
        output.line("next:  To see what is wrong with the records too, run `holdfast check`.")
    if report.begun_earlier:
        output.line(
            f"{report.begun_earlier:,} histories begin before the trace; they were checked from their first row."
        )
