"""`holdfast nodd runs`: which leads of a model run are there, late or missing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import option
from holdfast.cli.nodd.options import DatasetName, Own, dataset_named, day_of, prepared
from holdfast.cli.text import Column
from holdfast.nodd.dataset import with_own
from holdfast.nodd.runs import LeadState, RunCompleteness, runs_of_day


@command(Location.unopened)
def runs(
    location: Location,
    *,
    dataset: DatasetName,
    date: Annotated[str, option("--date", metavar="DATE", help="Day of the cycles in UTC: 2026-11-14.")],
    incomplete: Annotated[bool, option("--incomplete", help="List only runs that are not complete.")] = False,
    own: Own = None,
) -> Answer:
    """List the runs of a day, and which of their leads are there, late or missing."""
    known, day = dataset_named(with_own(own), dataset), day_of(date).date()
    with prepared(location) as store:
        found = runs_of_day(store, known, day, datetime.now(UTC))
    shown = [run for run in found if not (incomplete and run.complete)]
    value = [{**msgspec.to_builtins(run), "complete": run.complete} for run in shown]
    if not shown:
        none = "All runs are complete." if found else f"No run of {known.name} on {day} is known."
        return Answer(value, none)
    columns = [Column("CYCLE"), Column("SERIES", folds=True), Column("THERE", right=True)]
    columns += [Column(state.upper(), folds=True) for state in LeadState if state != LeadState.THERE]
    return Answer(value, lambda: output.table(columns, [_row(run) for run in shown]))


def _row(run: RunCompleteness) -> list[str]:
    total = sum(map(len, run.leads.values()))
    there = f"{len(run.leads[LeadState.THERE])} of {total}"
    rest = (in_ranges(run.leads[state]) for state in LeadState if state != LeadState.THERE)
    return [f"{run.cycle:%HZ}", " ".join(run.series.values()), there, *rest]


def in_ranges(leads: Sequence[float]) -> str:
    """Return leads in hours as text, with those that follow each other in equal steps joined: 0-120, 123-384/3."""
    parts: list[str] = []
    at = 0
    while at < len(leads):
        end = at + 1
        step = leads[end] - leads[at] if end < len(leads) else 0.0
        while end < len(leads) and leads[end] - leads[end - 1] == step:
            end += 1
        if end - at < 3:
            parts.append(f"{leads[at]:g}")
            at += 1
            continue
        parts.append(f"{leads[at]:g}-{leads[end - 1]:g}" + ("" if step == 1 else f"/{step:g}"))
        at = end
    return ", ".join(parts)
