"""Completeness of runs: which leads of a cycle are there, in work, failed, late or missing."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.cli.nodd.runs import in_ranges
from holdfast.core.errors import InputError
from holdfast.nodd import samples
from holdfast.nodd.dataset import shipped
from holdfast.nodd.runs import LeadState, runs_of_day
from holdfast.store import Store
from tests.nodd.ingesting import announce
from tests.nodd.objects import MemorySource

DAY = date(2026, 7, 26)
CYCLE = datetime.fromisoformat("2026-07-26T06:00:00Z")
KEY = "gfs.20260726/06/atmos/gfs.t06z.pgrb2.0p25.f{lead:03}"
ATMOS = {"model": "gfs", "component": "atmos", "product": "pgrb2.0p25"}


def test_each_lead_of_a_run_has_one_state(ledger: Ledger, source: MemorySource) -> None:
    for lead in (0, 1, 2, 6):
        announce(ledger, samples.grib2(CYCLE, lead), source, KEY.format(lead=lead))
    announce(ledger, samples.grib2(CYCLE, 3)[:-1], source, KEY.format(lead=3))
    ledger.run_until_idle()
    announce(ledger, samples.grib2(CYCLE, 4), source, KEY.format(lead=4))
    for now, late, missing, not_yet in (
        (CYCLE + timedelta(hours=4), [5.0], 0, 202),
        (CYCLE + timedelta(hours=8), [], 203, 0),
    ):
        found = {f"{run.cycle:%H}": run for run in runs_of_day(ledger.store, shipped()["gfs"], DAY, now)}
        assert list(found) == ["00", "06", "12", "18"]
        run = found["06"]
        assert (run.series, run.expected_by, run.complete) == (ATMOS, "dataset", False)
        assert run.leads[LeadState.THERE] == [0.0, 1.0, 2.0, 6.0]
        assert (run.leads[LeadState.WORKING], run.leads[LeadState.FAILED]) == ([4.0], [3.0])
        assert (run.leads[LeadState.LATE], len(run.leads[LeadState.MISSING])) == (late, missing)
        assert len(run.leads[LeadState.NOT_YET]) == not_yet
        assert sum(map(len, run.leads.values())) == 209
        # The run of midnight was complete seven hours later, and nothing of it has come.
        assert len(found["00"].leads[LeadState.MISSING]) == 209


def test_a_series_that_no_dataset_describes_is_measured_by_its_other_runs(ledger: Ledger, source: MemorySource) -> None:
    for cycle, leads in ((0, (0, 3, 6)), (6, (0, 6))):
        for lead in leads:
            key = f"gfs.20260726/{cycle:02}/atmos/gfs.t{cycle:02}z.pgrb2b.1p00.f{lead:03}"
            announce(ledger, samples.grib2(CYCLE.replace(hour=cycle), lead), source, key)
    first, second = runs_of_day(ledger.store, shipped()["gfs"], DAY, CYCLE + timedelta(hours=20))
    assert (first.expected_by, second.expected_by) == ("ledger", "ledger")
    assert (first.leads["working"], second.leads["working"]) == ([0.0, 3.0, 6.0], [0.0, 6.0])
    assert (first.leads["missing"], second.leads["missing"]) == ([], [3.0])


def test_a_dataset_without_runs_is_refused(store: Store[Any]) -> None:
    with pytest.raises(InputError):
        runs_of_day(store, shipped()["mrms"], DAY, CYCLE)


def test_a_ledger_without_records_has_no_runs(store: Store[Any]) -> None:
    assert runs_of_day(store, shipped()["gfs"], DAY, CYCLE) == []


def test_expected_leads_are_those_that_noaa_publishes() -> None:
    [gfs] = shipped()["gfs"].spec.runs
    assert (len(gfs.hours()), gfs.hours()[119:123], gfs.hours()[-1]) == (209, [119.0, 120.0, 123.0, 126.0], 384.0)
    hrrr = [run for run in shipped()["hrrr"].spec.runs if run.series["product"] == "sfc"]
    assert [(len(run.cycles), len(run.hours())) for run in hrrr] == [(4, 49), (20, 19)]


@pytest.mark.parametrize(
    "leads, text",
    [
        ([], ""),
        ([3], "3"),
        ([3, 4], "3, 4"),
        ([0, 1, 2, 3], "0-3"),
        ([0, 1, 2, 3, 6, 9, 12], "0-3, 6-12/3"),
        ([0.25, 0.5, 0.75], "0.25-0.75/0.25"),
    ],
)
def test_leads_are_written_as_ranges(leads: list[float], text: str) -> None:
    assert in_ranges(leads) == text
