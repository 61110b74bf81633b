"""`holdfast nodd check`: holds the application's tables against each other and against the jobs.

Invariants: nothing is written, and no table is made; the answer, its JSON and its exit codes are those of `holdfast
check`, and so a ledger that other commands refuse, because its triggers differ, can be checked.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.audit.check.findings import CheckReport
from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.commands import check as ledger_check
from holdfast.cli.nodd.options import Own
from holdfast.nodd.check.catalogue import BY_NAME, INVARIANTS
from holdfast.nodd.check.runner import check as run
from holdfast.nodd.dataset import with_own
from holdfast.nodd.tables import is_prepared
from holdfast.store import Store

SHOWN = {"provenance": "records of provenance", "rejected": "rejected bodies"}
NEXT_STEP = "Look at the ledger's own tables too, with `holdfast check`; then do what helps."


@command(Location.connect)  # not verified, as in `holdfast check`
def check(
    store: Store[Any],
    *,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help=f"Only this; may be repeated: {', '.join(BY_NAME)}."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=ledger_check.LIMIT_MAX, help="How many to report at most.")
    ] = 1000,
    own: Own = None,
) -> Answer:
    """Hold units, items, provenance and observations against each other and against the jobs.

    Nothing is changed. The exit code is 1 if anything of severity error was found.
    """
    report = run(store, with_own(own), only=only or None, limit=limit)
    there = is_prepared(store)
    return Answer(ledger_check.value(report), lambda: _print(report, there=there), 0 if report.ok else 1)


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
