"""`holdfast status`, `health` and `top`: what a ledger does now, and whether it is healthy. They only read."""

import sys
import time
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import option
from holdfast.cli.text import Column, Text
from holdfast.core.spans import counted
from holdfast.explain.status import health_of, status_of
from holdfast.store import Store


@command(Location.open)
def status(store: Store[Any]) -> Answer:
    """Show queues, workers, throughput and the ledger in one report."""
    report = status_of(store)
    return Answer(report, lambda: _print(report))


@command(Location.open)
def health(store: Store[Any]) -> Answer:
    """Check whether a ledger is healthy.

    Exit code 0: healthy; 1: a check warns; 4: the database is out of reach.
    """
    checks = health_of(store)
    healthy = all(check.status == "ok" for check in checks)
    value = {"status": "ok" if healthy else "warning", "checks": [msgspec.structs.asdict(check) for check in checks]}

    def human() -> None:
        columns = [Column("CHECK"), Column("STATUS"), Column("DETAIL", folds=True), Column("NEXT", steps=True)]
        output.table(
            columns,
            [
                (each.name, output.styled(each.status, "green" if each.status == "ok" else "yellow"), each.detail,
                 each.next or "")
                for each in checks
            ],
        )  # fmt: skip

    return Answer(value, human, 0 if healthy else 1)


@command(Location.open)
def top(
    store: Store[Any],
    *,
    every: Annotated[
        float, option("--every", min=0.2, max=3600, metavar="SECONDS", help="Seconds between two refreshes.")
    ] = 2.0,
    once: Annotated[bool, option("--once", help="Print the view once and exit.")] = False,
    as_json: bool = False,
) -> Answer | None:
    """Watch queues, workers and throughput live.

    Ctrl-C ends it. With --once or --json, or without a terminal, it prints the view once.
    """
    report = status_of(store)
    if once or as_json or not sys.stdout.isatty():
        return Answer(report, lambda: _print(report))
    with output.screen() as fill, suppress(KeyboardInterrupt):
        while True:
            fill([_headline(store, every), output.styled(""), *_lines(report)])
            time.sleep(every)
            report = status_of(store)
    return None


def _headline(store: Store[Any], every: float) -> Text:
    title = output.styled("holdfast top", "bold")
    return title + output.styled(f"  {output.instant(store.now())} UTC, every {every:g} s; Ctrl-C ends it", "dim")


def _print(report: dict[str, Any]) -> None:
    for text in _lines(report):
        output.show(text)


def _lines(report: dict[str, Any]) -> list[Text]:
    queue, workers, system, rate = (report[name] for name in ("queue", "workers", "system", "throughput"))
    states = ", ".join(f"{queue[state]} {state}" for state in output.STYLES if state in queue)
    silent = f" ({workers['silent']} silent)" if workers["silent"] else ""
    held = f"{workers['leases']} of {counted(workers['slots'], 'slot')} held"
    lost = counted(workers["expired_leases"], "lease has expired", "leases have expired")
    ended = [f"{rate[f'{state}_per_minute']:g} {state}" for state in ("succeeded", "failed", "quarantined")]
    due, lag = queue["oldest_due_s"], system["seal_lag_s"]
    sealed = f"the oldest entry without a seal has waited for {output.span(lag)}" if lag else "every entry is sealed"
    ledger = f"{system['environment']}, {system['database']}, schema {system['schema_version']}"
    lines = (
        ("jobs", f"{states}; {f'the oldest is due for {output.span(due)}' if due else 'none is due'}"),
        ("workers", f"{workers['running']} running{silent}, {held}; {lost}"),
        ("throughput", f"{', '.join(ended)} a minute"),
        ("ledger", f"{ledger}; {counted(report['sources']['schedules'], 'schedule')}; {sealed}"),
    )
    columns = [
        Column("QUEUE", folds=True), Column("STATE"), Column("PENDING", right=True), Column("OLDEST DUE", right=True),
        Column("WORKERS", right=True),
    ]  # fmt: skip
    rows = [
        (row["queue"], output.styled("paused", "yellow") if row["paused"] else "open", row["pending"],
         _age(row["oldest_due_s"]), _workers(row))
        for row in queue["queues"]
    ]  # fmt: skip
    return [*output.fields_of(lines), output.styled(""), *output.table_of(columns, rows)]


def _age(seconds: float) -> str:
    """Return how long the oldest job has been due, or a dash if no job is due."""
    return output.span(seconds) if seconds else "-"


def _workers(row: dict[str, Any]) -> Text:
    """Return the number of workers of a queue, in red if jobs are due and there is none."""
    is_stuck = row["oldest_due_s"] and not row["workers"] and not row["paused"]
    return output.styled(row["workers"], "red" if is_stuck else "")
