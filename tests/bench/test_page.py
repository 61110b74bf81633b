"""The page of figures is written from results alone, with text left as it is, and plots that are well-formed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks.cases import ENGINE, LOAD, verdicts
from benchmarks.page import BLOCKS, PAGE, plots, written
from benchmarks.plots import _round_step, bars, lines


def _figure(database: str, case: str, system: str, rate: float) -> dict[str, Any]:
    numbers = {
        "client_us": 10.0, "server_us": 30.0, "fsyncs_per_job": 0.5, "wal_per_job": 700, "life_wal_per_job": 1300,
        "life_disk_per_job": 1600, "disk_per_job": 900, "p50_ms": 2.0, "p99_ms": rate / 10, "rss_mb": 40.0,
    }  # fmt: skip
    return {
        "database": database,
        "case": case,
        "system": system,
        "version": "1",
        "per_second": rate,
        "least_share": 1.0,
        **numbers,
    }


@pytest.fixture
def results() -> dict[str, dict[str, Any]]:
    made: dict[str, dict[str, Any]] = {}
    for suite, cases in (("engine", ENGINE), ("load", LOAD)):
        figures = [
            _figure(database, case.name, system, 20_000 if system == "holdfast" else 400)
            for database in ("sqlite", "postgres")
            for case in cases
            for system in case.systems(database)
        ]
        found = [v for database in ("sqlite", "postgres") for v in verdicts(database, cases, figures)]
        made[suite] = {
            "at": "2026-11-16T04:00:00+00:00", "quick": False, "cpus": 2, "machine": "Linux", "python": "3.11",
            "sync_us": 1000, "figures": figures,
            "verdicts": [{n: getattr(v, n) for n in v.__struct_fields__} for v in found],
        }  # fmt: skip
    tenths = [40.0 + n / 10 for n in range(10)]
    memory = {"database": "sqlite", "jobs": 1000, "rss_mb": tenths, "per_second": 900, "flat": 1.0, "met": True}
    made["memory"] = {"limit_mb": 60, "figures": [memory]}
    recovery = {"database": "postgres", "jobs": 100_000, "seconds": 6.5, "slowest_s": 7.0, "fsyncs": 12}
    made["recovery"] = {"figures": [recovery]}
    queries = [{"database": "sqlite", "query": "show", "jobs": size, "median_ms": size / 10} for size in (10, 20)]
    made["scale"] = {
        "sizes": [10, 20],
        "figures": queries,
        "ratios": [{"database": "sqlite", "query": "show", "ratio": 2.0, "flat": False}],
        "drains": [{"database": "sqlite", "per_second": {"10": 900, "20": 450}, "ratio": 0.5, "met": False}],
    }
    return made


def test_the_page_has_every_block_once_and_keeps_its_text(results: dict[str, dict[str, Any]]) -> None:
    before = PAGE.read_text(encoding="utf-8")
    after = written(before, results)

    def outside(text: str) -> str:
        return re.sub(r"(<!-- (\w+): begin -->).*?(<!-- \2: end -->)", r"\1\3", text, flags=re.DOTALL)

    assert re.findall(r"<!-- (\w+): begin -->", before) == re.findall(r"<!-- (\w+): end -->", before)
    assert sorted(re.findall(r"<!-- (\w+): begin -->", before)) == sorted(BLOCKS)
    assert outside(after) == outside(before)
    assert written(after, results) == after


def test_the_blocks_name_targets_met_targets_missed_and_faster_cases(results: dict[str, dict[str, Any]]) -> None:
    page = written(PAGE.read_text(encoding="utf-8"), results)
    assert "| PostgreSQL | drain, 1 process | ≥ 1.5 times pgqueuer | 50 | met |" in page
    assert "| SQLite | drain, 1 process | fsyncs a job ≤ 0.01 | 0.5 | **missed** |" in page
    assert "| PostgreSQL | recovery of 100,000 jobs | ≤ 5 s | 6.50 s | **missed** |" in page
    assert "| SQLite | drain at 20 jobs | ≥ 0.9 of a small ledger | 0.5 | **missed** |" in page
    assert "| SQLite | `show` | 1 | 2 | 2.00 | **grows** |" in page
    assert "| drain, 1 process | holdfast | **20,000** |" in page
    assert "Run of 2026-11-16 on 2 vCPU" in page
    faster = results["engine"]["figures"][1]
    faster["per_second"] = 90_000.0
    assert f"|  | {faster['system']} | **90,000** |" in written(page, results)
    assert "Not measured yet: `python -m benchmarks brokers`." in page


def test_without_results_every_block_names_the_command() -> None:
    for name, block in BLOCKS.items():
        assert "python -m benchmarks" in block({}), name


def test_plots_are_well_formed_and_cover_the_figures(results: dict[str, dict[str, Any]]) -> None:
    made = dict(plots(results))
    assert sorted(made) == [
        "drain-postgres.svg", "drain-sqlite.svg", "memory.svg", "mixed-postgres.svg", "mixed-sqlite.svg",
        "processes-postgres.svg", "processes-sqlite.svg",
    ]  # fmt: skip
    for name, svg in made.items():
        assert ET.fromstring(svg).tag.endswith("svg"), name  # noqa: S314 -- made here
    assert made["drain-postgres.svg"].count("<rect") == 1 + 7  # the background, and seven systems
    assert "&lt;b&gt;" in bars("<b>", {"a": 1.0, "b": 1000.0})
    assert [_round_step(value) for value in (0.9, 1, 12, 21, 26, 70)] == [1, 1, 20, 25, 50, 100]
    assert lines("t", {"x": [(1, 2), (4, 8)]}, x_words="n").count("<polyline") == 1


def test_a_page_without_marks_is_refused(results: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    empty = tmp_path / "page.md"
    empty.write_text("# Performance\n")
    with pytest.raises(SystemExit, match="no marks for run"):
        written(empty.read_text(), results)
