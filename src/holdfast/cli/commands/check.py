"""`holdfast check`: checks the invariants of a ledger and reports violations, what they mean and the next command.

Invariants: nothing is written; a ledger that other commands refuse, because its triggers differ, can be checked.
"""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from holdfast.audit.check.catalogue import BY_NAME, INVARIANTS
from holdfast.audit.check.findings import CheckReport, Severity, Violation
from holdfast.audit.check.runner import check_steps
from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import option
from holdfast.cli.options import Json
from holdfast.cli.text import Column
from holdfast.core.spans import counted
from holdfast.store import Store

LIMIT_MAX = 1_000_000
Only = Annotated[
    list[str] | None,
    option("--only", metavar="NAME", help=f"Check only this invariant; repeatable. One of: {', '.join(BY_NAME)}."),
]
Cheap = Annotated[
    bool, option("--cheap", help="Check only what is checked when a ledger is opened; takes milliseconds.")
]


@command(Location.connect)  # not verified, so that dropped triggers can be reported
def check(
    store: Store[Any],
    *,
    only: Only = None,
    cheap: Cheap = False,
    limit: Annotated[
        int, option("--limit", min=1, max=LIMIT_MAX, help="Maximum number of violations to report.")
    ] = 1000,
    as_json: Json = False,
) -> Answer:
    """Check the invariants of a ledger and report violations.

    Nothing is changed. The exit code is 1 if there is a violation of severity error.
    """
    steps = check_steps(store, only=only or None, cheap=cheap, limit=limit)
    report = output.shown_steps("check", steps, as_json=as_json)
    beside = not (as_json or cheap or _is_unreadable(report)) and _has_nodd(store)
    return Answer(value(report), lambda: _print(report, cheap=cheap, beside=beside), 0 if report.ok else 1)


def value(report: CheckReport) -> dict[str, object]:
    return {
        "ok": report.ok,
        "violations": [msgspec.to_builtins(violation) for violation in report.violations],
        "checked": report.checked,
        "more": report.more,
    }


def print_violations(report: CheckReport, meanings: Iterable[tuple[str, str]]) -> None:
    """Print the violations, the meaning of each violated invariant, and whether there may be more."""
    output.table(
        [Column("SUBJECT"), Column("INVARIANT"), Column("SEVERITY"), Column("DETAIL", folds=True)],
        [_row(violation) for violation in report.violations],
    )
    output.line("")
    output.fields(meanings)
    output.line("")
    if report.more:
        output.line("There may be more violations; raise --limit.")


def _print(report: CheckReport, *, cheap: bool, beside: bool) -> None:
    if report.violations:
        broken = {violation.invariant for violation in report.violations}
        print_violations(report, ((i.name, f"{i.meaning} Repair: {i.remedy}.") for i in INVARIANTS if i.name in broken))
        output.line(f"next:  {_next_step(broken, report)}")
    elif cheap:
        output.line("No violations found by the cheap check.")
    else:
        nouns = {"jobs": "job", "executions": "execution", "journal": "journal row"}
        jobs, executions, journal = (counted(report.checked[name], noun) for name, noun in nouns.items())
        output.line(f"No violations in {jobs}, {executions} and {journal}.")
    if beside:
        output.line("This ledger has tables of nodd; to check them: `holdfast nodd check`")


def _has_nodd(store: Store[Any]) -> bool:
    from holdfast.nodd.tables import SETTING  # noqa: PLC0415 - for a person only

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
        return "Keep the files. Restore the newest snapshot (`holdfast snapshot restore`) or backup."
    if broken == {"lease_overdue"}:
        return "Start a worker, or run `holdfast recover`."
    if broken == {"enforcement"}:
        return "Find out what changed the triggers, then run `holdfast migrate`."
    if broken == {"seals_chained"}:
        return "Do not change the ledger. To see what differs, run `holdfast audit verify`."
    return "To plan a repair without changing anything, run `holdfast repair`."
