"""The benchmark of size fills a ledger as real work would, measures every query, and reports growth."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import scale
from benchmarks.scale import (
    DRAIN_QUICK,
    DRAIN_ROUNDS,
    OLDEST,
    READS_EVERY_JOB,
    SIZES_QUICK,
    Figure,
    drain,
    fill,
    queries,
    ratios,
)
from benchmarks.soak import operations
from holdfast import Ledger
from holdfast.core.machines import JobState
from tests.bench.test_store_bench import command

QUERIES = [
    "stats", "jobs", "jobs --before", *(f"jobs --state {state}" for state in JobState), "show", READS_EVERY_JOB
]  # fmt: skip


def test_a_quick_run_measures_every_query_at_every_size(tmp_path: Path) -> None:
    done = command("scale", "--quick", "--db", "sqlite", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "scale.json").read_text())
    assert (result["suite"], result["quick"], result["sizes"]) == ("scale", True, list(SIZES_QUICK))
    measured = [(figure["jobs"], figure["query"]) for figure in result["figures"]]
    assert measured == [(size, query) for size in SIZES_QUICK for query in QUERIES]
    assert all(0 < figure["median_ms"] <= figure["p95_ms"] for figure in result["figures"])
    medians = {(figure["jobs"], figure["query"]): figure["median_ms"] for figure in result["figures"]}
    small, large = SIZES_QUICK
    assert [ratio["query"] for ratio in result["ratios"]] == QUERIES
    for ratio in result["ratios"]:
        query = ratio["query"]
        assert ratio["ratio"] == pytest.approx(medians[large, query] / medians[small, query])
        assert ratio["flat"] == (None if query == READS_EVERY_JOB else ratio["ratio"] <= scale.FLAT)
    assert all(query in done.stdout for query in QUERIES)


@pytest.mark.parametrize("arguments", [["store", "--sizes", "10"], ["scale", "--sizes", "0"], ["--sizes", "10"]])
def test_sizes_that_make_no_sense_are_refused(tmp_path: Path, arguments: list[str]) -> None:
    done = command(*arguments, "--results", str(tmp_path / "results"))
    assert done.returncode == 2
    assert "--sizes" in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_ledger_is_filled_by_real_work(ledger_url: str) -> None:
    with Ledger(ledger_url, operations) as ledger:
        ids = fill(ledger, ledger_url, OLDEST + 100)
        counts = {count.state.value: count.n for count in ledger.counts()}
        assert counts == {"pending": 200, "running": 200, "failed": 201, "quarantined": 200, "succeeded": 299}
        assert len(ids) == OLDEST + 100
        with ledger.store.reading() as reading:
            for query, answer in queries(ids).items():
                assert answer(reading), query
        rates = drain({len(ids): ledger}, quick=True)
        assert rates[len(ids)] > 0
        done = DRAIN_QUICK * DRAIN_ROUNDS
        assert sum(count.n for count in ledger.counts()) == len(ids) + done


def test_growth_is_shown_in_its_row() -> None:
    def figure(jobs: int, query: str, median_ms: float) -> Figure:
        return Figure(database="sqlite", jobs=jobs, query=query, samples=9, median_ms=median_ms, p95_ms=median_ms)

    figures = [
        figure(10, "show", 2.0), figure(10, "jobs", 2.0), figure(10, READS_EVERY_JOB, 2.0),
        figure(50, "show", 3.0), figure(50, "jobs", 3.1), figure(50, READS_EVERY_JOB, 10.0),
    ]  # fmt: skip
    found = [(ratio.query, ratio.ratio, ratio.flat) for ratio in ratios("sqlite", [10, 50], figures)]
    assert found == [("show", 1.5, True), ("jobs", pytest.approx(1.55), False), (READS_EVERY_JOB, 5.0, None)]
    console = Console(width=118, record=True, file=StringIO())
    console.print(scale._table("sqlite", [10, 50], figures))
    rows = [line.split() for line in console.export_text().splitlines() if ".000" in line]
    assert rows == [
        ["show", "2.000", "3.000", "1.50", "flat"],
        ["jobs", "2.000", "3.100", "1.55", "GROWS"],
        ["stats", "--at", "2.000", "10.000", "5.00"],
    ]
