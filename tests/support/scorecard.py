"""Sections of `docs/scorecard.md` that a run writes: where and of what the run was made, and the text between markers.

Invariants: a section is written only by the run that it describes; the rest of the page is left as it is.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.support.postgres import installations

ROOT = Path(__file__).resolve().parents[2]


def made() -> str:
    """Say when, of which commit and where the run was made."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    server = subprocess.run(
        [str(installations()[0] / "postgres"), "--version"], capture_output=True, text=True, check=True
    )
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit.stdout.strip()}, {os.cpu_count()} vCPU, {platform.system()}, "
        f"SQLite {sqlite3.sqlite_version}, PostgreSQL {server.stdout.split()[-1]}"
    )


def write(page: Path, name: str, section: str) -> None:
    """Put a section between the markers of that name in a page; exit if the page does not have them."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        sys.exit(f"{page} does not have the markers {begin} and {end}, between which the section is written.")
    page.write_text(f"{head}{begin}\n{section}{end}{tail}", encoding="utf-8")
