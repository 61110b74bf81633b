"""The seals' benchmark runs, reads the same rows on both sides, and reports what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.seals import JOBS_QUICK, TARGET
from benchmarks.store_bench import ROOT


def test_a_quick_run_reports_both_sides(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "seals", "--quick", "--db", "sqlite", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "seals.json").read_text())
    [figure] = result["figures"]
    assert (result["quick"], figure["database"], figure["rows"], figure["seals"]) == (True, "sqlite", 3 * JOBS_QUICK, 1)
    assert figure["ratio"] == pytest.approx(figure["verified_per_s"] / figure["bare_per_s"])
    assert TARGET == 0.3
    assert "SQLite" in done.stdout
