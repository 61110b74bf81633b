"""Completeness of model runs: which leads of a cycle are catalogued, in work, failed, late or missing.

A series is the files of one run that differ only in their lead: one product of one model, region and member.

Invariants: each expected lead of a series has exactly one state; a lead that nothing expects is not missing; nothing is
written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from enum import StrEnum
from string import Formatter
from typing import Any

import msgspec

from holdfast.core.errors import InputError
from holdfast.nodd.dataset import Dataset, ExpectedRun
from holdfast.nodd.statements import run_statement
from holdfast.store import Store

COMPLETE_AFTER = timedelta(hours=12)  # for a series whose dataset does not say it
_STATES = {"succeeded": "there", "failed": "failed", "quarantined": "failed", "cancelled": "failed"}
Series = tuple[tuple[str, str], ...]


class LeadState(StrEnum):
    """What became of one lead of a run."""

    THERE = "there"  # catalogued
    WORKING = "working"  # admitted, and not finished
    FAILED = "failed"  # failed, quarantined or cancelled
    LATE = "late"  # no notice, though that of a later lead has come
    MISSING = "missing"  # no notice, though the run should be complete
    NOT_YET = "not_yet"  # no notice, and none is due


class RunCompleteness(msgspec.Struct, frozen=True, kw_only=True):
    """The leads of one series of one run, in hours, by their state."""

    cycle: datetime
    series: dict[str, str]
    expected_by: str  # dataset: its file names the leads; ledger: other runs of the series have them
    leads: dict[str, list[float]]

    @property
    def complete(self) -> bool:
        """Return whether every expected lead is catalogued."""
        return not any(leads for state, leads in self.leads.items() if state != LeadState.THERE)


def runs_of_day(store: Store[Any], dataset: Dataset, day: date, now: datetime) -> list[RunCompleteness]:
    """Return the runs of a dataset whose cycles are on a day; raise InputError if it has no forecasts."""
    if dataset.spec.time.rule != "reference-and-lead" or not dataset.spec.list_prefixes:
        raise InputError(
            f"Dataset {dataset.name} has no forecast runs.",
            next_step="Name a dataset of forecasts, such as gfs or hrrr.",
            context={"dataset": dataset.name},
        )
    seen = _seen(store, dataset, [day - timedelta(days=1), day])
    usual: dict[Series, set[float]] = {}
    for (_, series), leads in seen.items():
        usual.setdefault(series, set()).update(leads)
    wanted = {key for key in seen if key[0].date() == day}
    wanted |= {
        (datetime.fromisoformat(f"{day}T{cycle}:00:00Z"), tuple(sorted(expected.series.items())))
        for expected in dataset.spec.runs
        for cycle in expected.cycles
        # A run without any notice is reported for series that this ledger follows at other times.
        if tuple(sorted(expected.series.items())) in usual
    }
    found = [_run(key, seen.get(key, {}), _expected(dataset, *key), usual[key[1]], now) for key in wanted]
    return sorted(found, key=lambda run: (run.cycle, sorted(run.series.items())))


def _run(
    key: tuple[datetime, Series],
    seen: Mapping[float, str],
    expected: ExpectedRun | None,
    usual: set[float],
    now: datetime,
) -> RunCompleteness:
    cycle, series = key
    after = COMPLETE_AFTER if expected is None else timedelta(seconds=expected.complete_after_s)
    over, last = now > cycle + after, max(seen, default=-1.0)
    leads: dict[str, list[float]] = {str(state): [] for state in LeadState}
    for lead in sorted({*seen, *(usual if expected is None else expected.hours())}):
        if lead in seen:
            state = LeadState(_STATES.get(seen[lead], "working"))
        elif over:
            state = LeadState.MISSING
        else:
            state = LeadState.LATE if lead < last else LeadState.NOT_YET
        leads[state].append(lead)
    return RunCompleteness(
        cycle=cycle, series=dict(series), expected_by="ledger" if expected is None else "dataset", leads=leads
    )


def _expected(dataset: Dataset, cycle: datetime, series: Series) -> ExpectedRun | None:
    for expected in dataset.spec.runs:
        if expected.series.items() <= dict(series).items() and f"{cycle:%H}" in expected.cycles:
            return expected
    return None


def _seen(store: Store[Any], dataset: Dataset, days: Sequence[date]) -> dict[tuple[datetime, Series], dict[float, str]]:
    """Return the state of the job of each lead that was announced, by cycle and series."""
    time = dataset.spec.time
    named = {name for _, name, _, _ in Formatter().parse(time.reference) if name}
    apart = {*named, time.lead or "", "date", "hour", "cycle"}
    found: dict[tuple[datetime, Series], dict[float, str]] = {}
    for uri, state in _units(store, dataset, days):
        match = dataset.match(uri.removeprefix("s3://").partition("/")[2])
        if match is None or match.sidecar_of is not None:
            continue
        moments = match.time_range
        if moments.reference is None or moments.reference.date() not in days:
            continue
        series = tuple(sorted((name, value) for name, value in match.fields.items() if name not in apart))
        lead = (moments.start - moments.reference) / timedelta(hours=1)
        found.setdefault((moments.reference, series), {})[lead] = state
    return found


def _units(store: Store[Any], dataset: Dataset, days: Sequence[date]) -> Iterator[tuple[str, str]]:
    prefixes = sorted({day.strftime(prefix) for day in days for prefix in dataset.spec.list_prefixes})
    for bucket in dataset.spec.buckets:
        for prefix in prefixes:
            escaped = f"s3://{bucket}/{prefix}".replace("!", "!!").replace("%", "!%").replace("_", "!_")
            with store.reading() as reading:
                yield from (
                    (uri, state)
                    for uri, state in run_statement(
                        reading, "units_of_prefix", dataset=dataset.name, prefix=f"{escaped}%"
                    )
                )
