"""The suites of memory and recovery run, count every job, and say whether their targets were met."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import recovery_bench
from benchmarks.soak import FLAT, JOBS_QUICK, MEMORY_MB, calls
from tests.bench.test_store_bench import command


def test_a_quick_run_measures_the_memory_of_each_tenth(tmp_path: Path) -> None:
    done = command("memory", "--quick", "--db", "sqlite", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    [figure] = json.loads((tmp_path / "memory.json").read_text())["figures"]
    assert (figure["database"], figure["jobs"], len(figure["rss_mb"])) == ("sqlite", JOBS_QUICK, 10)
    assert all(10 < value < 500 for value in figure["rss_mb"])
    last = figure["rss_mb"][-1]
    assert figure["met"] == (last <= MEMORY_MB and last / figure["rss_mb"][2] <= FLAT)


def test_a_quick_run_recovers_every_interrupted_job(tmp_path: Path) -> None:
    done = command("recovery", "--quick", "--db", "sqlite", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    [figure] = json.loads((tmp_path / "recovery.json").read_text())["figures"]
    assert figure["jobs"] == recovery_bench.JOBS_QUICK
    assert 0 < figure["seconds"] <= figure["slowest_s"]


def test_every_nth_job_of_a_chunk_fails() -> None:
    assert [call["payload"].get("fails", False) for call in calls(5, fail_every=2)] == [True, False, True, False, True]
    assert not any("fails" in call["payload"] for call in calls(5))
