"""The simulation keeps every promise, is the same twice, and notices a ledger that is used wrongly."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.audit.check.runner import check
from holdfast.engine.crash_points import POINTS
from holdfast.model import __main__ as command
from holdfast.model.simulation import Broken, Flaw, simulate
from holdfast.model.trace import prove_ledger
from holdfast.store import open_store
from holdfast.testing import FAULTS

pytestmark = pytest.mark.attack("faults")

SEEDS = {"sqlite": 15, "postgres": 4}
SEEDS_SLOW = {"sqlite": 5000, "postgres": 500}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """A simulation crashes workers and lets leases expire: their log messages are expected."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("holdfast").setLevel(logging.NOTSET)


def kind(url: str) -> str:
    return "postgres" if url.startswith("postgres") else "sqlite"


@pytest.mark.req("W-15", "M-19")
def test_every_promise_is_kept(ledger_url: str) -> None:
    report = simulate(ledger_url, range(SEEDS[kind(ledger_url)]))
    assert report.crashes.total() > SEEDS[kind(ledger_url)]
    assert set(report.faults) == {*FAULTS, "ConcurrentClients"}
    assert report.faults["ConcurrentClients"] > 0
    with open_store(ledger_url) as store:
        assert check(store).violations == ()
        assert prove_ledger(store).wrong == ()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_promise_is_kept_many_times(ledger_url: str) -> None:
    """Every crash point is reached by a crash, so no point is left untested."""
    report = simulate(ledger_url, range(SEEDS_SLOW[kind(ledger_url)]))
    assert set(report.crashes) == {*POINTS, "rest"}
    assert all(report.faults.values())


def test_a_seed_is_the_same_twice(tmp_path: Path) -> None:
    stories = [simulate(str(tmp_path / f"{n}.db"), [7]).story for n in range(2)]
    assert stories[0] == stories[1]
    assert len(stories[0]) > 20


@pytest.mark.parametrize(
    "flaw, what", [(Flaw.EFFECT_AT_ONCE, r"has \d effects|was done \d times"), (Flaw.NO_KEY, "answered with two jobs")]
)
def test_a_ledger_that_is_used_wrongly_is_noticed_by_the_first_seeds(flaw: Flaw, what: str, tmp_path: Path) -> None:
    with pytest.raises(Broken, match=what) as broken:
        simulate(str(tmp_path / "flawed.db"), range(10), flaw=flaw)
    assert str(broken.value).startswith(f"seed {broken.value.seed}: ")
    assert broken.value.story


def test_the_command_runs_seeds_and_prints_the_steps_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        command.main(["--simulate", "2"])
        assert capsys.readouterr().out.startswith("2 seeds, ")
        command.main(["--seed", "7"])
        assert "process-1" in capsys.readouterr().out
    finally:
        logging.disable(logging.NOTSET)
