"""The golden files are what the code generates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_golden_files_are_up_to_date() -> None:
    """In a process of its own: other tests leave objects behind in the simulated cloud of this one."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.golden", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), "if the change is meant: make golden"
