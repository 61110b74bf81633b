"""`holdfast nodd check`: checks the tables of the application against each other and against the jobs.

Invariants: nothing is written and no table is created; the JSON and the exit codes are those of `holdfast check`; a
ledger that other commands refuse, because its triggers differ, can be checked.
"""

from __future__ import annotations

from typing import Annotated, Any

from holdfast.audit.check.findings import CheckReport
from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.commands import check as ledger_check
from holdfast.cli.declare import option
from holdfast.cli.nodd.options import Own
from holdfast.nodd.check.catalogue import BY_NAME, INVARIANTS
from holdfast.nodd.check.runner import check as run
from holdfast.nodd.dataset import with_own
from holdfast.nodd.tables import is_prepared
from holdfast.store import Store

SHOWN = {"provenance": "provenance records", "rejected": "rejected messages"}
NEXT_STEP = "Check the tables of the ledger too, with `holdfast check`; then apply the remedies above."


@command(Location.connect)  # not verified, as in `holdfast check`
def check(
    store: Store[Any],
    *,
    only: Annotated[
        list[str] | None,
        option("--only", metavar="NAME", help=f"Check only this invariant; repeatable. One of: {', '.join(BY_NAME)}."),
    ] = None,
    limit: Annotated[
        int, option("--limit", min=1, max=ledger_check.LIMIT_MAX, help="Maximum number of violations to report.")
    ] = 1000,
    own: Own = None,
) -> Answer:
    """Check units, items, provenance and observations against each other and against the jobs.

    Nothing is changed. The exit code is 1 if there is a violation of severity error.
    """
    report = run(store, with_own(own), only=only or None, limit=limit)
    there = is_prepared(store)
    return Answer(ledger_check.value(report), lambda: _print(report, there=there), 0 if report.ok else 1)


def _print(report: CheckReport, *, there: bool) -> None:
    if report.violations:
        broken = {violation.invariant for violation in report.violations}
        ledger_check.print_violations(
            report, ((one.name, f"{one.meaning} Remedy: {one.remedy}.") for one in INVARIANTS if one.name in broken)
        )
        output.line(f"next:  {NEXT_STEP}")
    elif there:
        rows = ", ".join(f"{n} {SHOWN.get(what, what)}" for what, n in report.checked.items())
        output.line(f"No violations in {rows}.")
    else:
        output.line("This ledger has no tables of nodd.")
