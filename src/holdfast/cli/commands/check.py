"""`holdfast check`: asks a ledger every invariant, and says what is broken, what that means and what to type next.

Invariants: nothing is written; a ledger that other commands refuse, because its triggers differ, can be checked.
"""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import typer

from holdfast.audit.check.catalogue import BY_NAME, INVARIANTS
from holdfast.audit.check.findings import CheckReport, Severity, Violation
from holdfast.audit.check.runner import check as run
from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.options import Json
from holdfast.cli.output import Column
from holdfast.nodd.tables import SETTING
from holdfast.store import Store

LIMIT_MAX = 1_000_000
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="NAME", help=f"Only this invariant; may be repeated: {', '.join(BY_NAME)}."),
]
Cheap = Annotated[
    bool, typer.Option("--cheap", help="Only what is asked whenever a ledger opens: a few milliseconds at any size.")
]


@command(Location.connect)  # not verified: triggers that were dropped are among the things to find
def check(
    store: Store[Any],
    *,
    only: Only = None,
    cheap: Cheap = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=LIMIT_MAX, help="How many to report at most.")] = 1000,
    as_json: Json = False,
) -> Answer:
    """Ask the ledger every invariant, and say what is broken.

    Nothing is changed. The exit code is 1 if anything of severity error was found.
    """
    report = run(store, only=only or None, cheap=cheap, limit=limit)
    beside = not (as_json or cheap or _is_unreadable(report)) and _has_nodd(store)
    return Answer(value(report), lambda: _print(report, cheap=cheap, beside=beside), 0 if report.ok else 1)


def value(report: CheckReport) -> dict[str, object]:
    """Return a report as JSON has it."""
    return {
        "ok": report.ok,
        "violations": [msgspec.to_builtins(violation) for violation in report.violations],
        "checked": report.checked,
        "more": report.more,
    }


def print_violations(report: CheckReport, meanings: Iterable[tuple[str, str]]) -> None:
    """Print what is broken, what each of the broken means, and whether there may be more."""
    output.table(
        [Column("SUBJECT"), Column("INVARIANT"), Column("SEVERITY"), Column("WHAT IS WRONG", folds=True)],
        [_row(violation) for violation in report.violations],
    )
    output.line("")
    output.fields(meanings)
    output.line("")
    if report.more:
        output.line("there may be more: --limit")


def _print(report: CheckReport, *, cheap: bool, beside: bool) -> None:
    if report.violations:
        broken = {violation.invariant for violation in report.violations}
        print_violations(report, ((i.name, f"{i.meaning} Repair {i.remedy}.") for i in INVARIANTS if i.name in broken))
        output.line(f"next:  {_next_step(broken, report)}")
    elif cheap:
        output.line("nothing wrong that a quick look can tell")
    else:
        seen = report.checked
        looked_at = f"{seen['jobs']} jobs, {seen['executions']} executions, {seen['journal']} journal rows"
        output.line(f"nothing wrong: {looked_at} looked at")
    if beside:
        output.line("the tables of nodd are looked at by `holdfast nodd check`")


def _has_nodd(store: Store[Any]) -> bool:
    with store.reading() as reading:
        return SETTING in reading.settings.read()


def _is_unreadable(report: CheckReport) -> bool:
    return any(
        found.invariant == "database" and found.evidence.get("kind") == "unreadable" for found in report.violations
    )


def _row(violation: Violation) -> tuple[object, ...]:
    style = "red" if violation.severity is Severity.ERROR else "yellow"
    shown = output.styled(violation.severity, style)
    return violation.subject, violation.invariant, shown, violation.detail


def _next_step(broken: set[str], report: CheckReport) -> str:
    if _is_unreadable(report):
        return "Keep the files, and restore the newest snapshot (`holdfast snapshot restore`) or backup."
    if broken == {"lease_overdue"}:
        return "Start a worker, or run `holdfast recover`."
    if broken == {"enforcement"}:
        return "Find out who changed them, then run `holdfast migrate`."
    if broken == {"seals_chained"}:
        return "Keep the ledger as it is, and see what differs with `holdfast audit verify`."
    return "See what would put it right with `holdfast repair`; it changes nothing before it is told to."
