"""Every run of the catalogue has exactly the outcome that is listed there."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.model.catalogue import RUNS, Run
from holdfast.model.log import Flaw
from tests.model.runs import BY_NAME, SHARED

SMALL = [run for run in RUNS if not run.large and run.name not in SHARED]
LARGE = [run for run in RUNS if run.large]


@pytest.mark.req("W-08", "W-09", "W-11", "W-12", "M-06", "M-08", "M-18", "L-10")
@pytest.mark.parametrize("run", SMALL, ids=lambda run: run.name)
def test_a_run_has_the_outcome_of_the_catalogue(run: Run) -> None:
    assert run.outcome() == run.expected


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.req("W-11")
@pytest.mark.parametrize("run", LARGE, ids=lambda run: run.name)
def test_a_large_run_has_the_outcome_of_the_catalogue(run: Run) -> None:
    assert run.outcome() == run.expected


def test_every_shared_run_is_small_and_explored_by_its_module() -> None:
    for name, module in SHARED.items():
        assert not BY_NAME[name].large
        assert f'"{name}"' in (Path(__file__).parent / module).read_text(encoding="utf-8"), name


def test_every_flaw_is_in_the_catalogue_and_breaks_something() -> None:
    flawed = [run for run in RUNS if not run.expected.sound]
    assert {run.name for run in flawed} >= {f"log: {flaw}" for flaw in Flaw}
    assert len({run.name for run in RUNS}) == len(RUNS)
