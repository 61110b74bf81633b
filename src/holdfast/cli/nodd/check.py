"""`holdfast nodd check`: holds the application's tables against each other and against the jobs.

Invariants: nothing is written, and no table is made; the answer, its JSON and its exit codes are those of `holdfast
check`, and so a ledger that other commands refuse, because its triggers differ, can be checked.
"""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.audit.check.findings import CheckReport
from holdfast.cli import output
from holdfast.cli.commands import check as ledger_check
from holdfast.cli.nodd.options import Own, nodd
from holdfast.cli.options import Db, Json, Schema, ledger_url
from holdfast.nodd.check.catalogue import BY_NAME, INVARIANTS
from holdfast.nodd.check.runner import check as run
from holdfast.nodd.dataset import with_own
from holdfast.nodd.tables import is_prepared
from holdfast.store import connect

SHOWN = {"provenance": "records of provenance", "rejected": "rejected bodies"}
NEXT_STEP = "Look at the ledger's own tables too, with `holdfast check`; then do what helps."


@nodd.command("check")
def check_(
    *,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help=f"Only this; may be repeated: {', '.join(BY_NAME)}."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=ledger_check.LIMIT_MAX, help="How many to report at most.")
    ] = 1000,
    own: Own = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Hold units, items, provenance and observations against each other and against the jobs.

    Nothing is changed. The exit code is 1 if anything of severity error was found.
    """
    datasets = with_own(own)
    with connect(ledger_url(db, schema), schema=schema or "public") as store:
        report = run(store, datasets, only=only or None, limit=limit)
        there = is_prepared(store)
    output.answer(ledger_check.value(report), lambda: _print(report, there=there), as_json=as_json)
    if not report.ok:
        raise typer.Exit(1)


def _print(report: CheckReport, *, there: bool) -> None:
    if report.violations:
        broken = {violation.invariant for violation in report.violations}
        ledger_check.print_violations(
            report, ((one.name, f"{one.meaning} What helps: {one.remedy}.") for one in INVARIANTS if one.name in broken)
        )
        output.line(f"next:  {NEXT_STEP}")
    elif there:
        looked_at = ", ".join(f"{n} {SHOWN.get(what, what)}" for what, n in report.checked.items())
        output.line(f"nothing wrong: {looked_at} looked at")
    else:
        output.line("nothing of nodd is in this ledger")
