"""The store's benchmark runs, writes exactly the rows that it reports, and says where a target is missed.

What made the difference in it is held here too: hot statements are compiled once, and find their rows by an index.
"""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import cast

import msgspec
import pytest
from rich.console import Console

from benchmarks.disk import SimulatedDisk
from benchmarks.store_bench import ALL, ROOT, ROWS_QUICK, VERBS, Enforced, Figure, _table
from holdfast.store import create_store
from holdfast.store.postgres.store import PostgresStore


def command(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *args], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_a_quick_run_reports_every_verb_at_every_batch_size(tmp_path: Path) -> None:
    done = command("store", "--quick", "--db", "sqlite", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "store.json").read_text())
    assert (result["suite"], result["quick"], result["sync_us"]) == ("store", True, 1000)
    figures = [msgspec.convert(figure, Figure) for figure in result["figures"]]
    assert [(f.batch, f.verb) for f in figures] == [(batch, verb) for batch in ROWS_QUICK for verb in (*VERBS, ALL)]
    for figure in figures:
        assert figure.database == "sqlite"
        assert figure.rows == ROWS_QUICK[figure.batch]
        assert figure.ratio == pytest.approx(figure.enforced_per_s / figure.bare_per_s)
        commits = 3 if figure.verb == ALL else 1
        for fsyncs_per_row in (figure.enforced_fsyncs_per_row, figure.bare_fsyncs_per_row):
            fsyncs = fsyncs_per_row * figure.rows
            assert fsyncs == pytest.approx(round(fsyncs))
            # A commit is an fsync, on both sides; a checkpoint may add a few.
            assert round(fsyncs) >= commits * figure.rows // figure.batch
        judged = (figure.batch, figure.verb) == (100, ALL)
        assert (figure.target, figure.met) == ((0.4, figure.ratio >= 0.4) if judged else (None, None))
    jobs = 2 * sum(ROWS_QUICK.values())  # a round to warm up, a round that counts
    assert result["written"]["sqlite"] == {
        "enforced": {"jobs": jobs, "executions": jobs, "journal": 3 * jobs, "counted": jobs},
        "bare": {"jobs": jobs, "executions": jobs, "journal": 0, "counted": 0},
    }
    assert done.stdout.count("at least 0.4: ") == 1


def test_a_missed_target_is_marked_in_its_row() -> None:
    figure = Figure(
        database="postgres",
        batch=100,
        verb=ALL,
        rows=3000,
        enforced_per_s=2900.0,
        bare_per_s=10_000.0,
        ratio=0.29,
        enforced_fsyncs_per_row=0.03,
        bare_fsyncs_per_row=0.03,
        target=0.3,
        met=False,
    )
    met = msgspec.structs.replace(figure, ratio=0.31, met=True)
    console = Console(width=118, record=True, file=StringIO())
    with SimulatedDisk() as disk:
        console.print(_table("postgres", [figure, met], disk, quick=False))
    rows = [line.split() for line in console.export_text().splitlines() if "at least" in line]
    tail = ["0.0300", "0.0300", "at", "least", "0.3:"]
    assert rows == [
        ["100", "all", "three", "2,900", "10,000", "0.29", *tail, "FALLS", "SHORT"],
        ["100", "all", "three", "2,900", "10,000", "0.31", *tail, "met"],
    ]


def test_an_unknown_suite_is_named(tmp_path: Path) -> None:
    done = command("stoer", "--results", str(tmp_path / "results"))
    assert done.returncode == 2
    assert "'stoer'" in done.stderr
    assert not (tmp_path / "results").exists()


def test_sqlite_compiles_the_hot_statements_once(sqlite_url: str) -> None:
    compiled: list[int] = []

    def note(action: int, *_: object) -> int:
        if action != sqlite3.SQLITE_PRAGMA:  # of each transaction, which says whether it is synced
            compiled.append(1)  # SQLite asks only while it compiles
        return sqlite3.SQLITE_OK

    with create_store(sqlite_url) as store:
        side = Enforced(store)
        connection = store.pool.take()
        connection.set_authorizer(note)
        store.pool.give(connection, sound=True)
        for name in ("first", "second"):
            compiled.clear()
            side.submit(side.prepare([f"{name}/{n}" for n in range(3)]))
            side.complete(side.claim(3))
            # The triggers are compiled with the statement that fires them, so once more would be dear.
            assert bool(compiled) == (name == "first"), name


HOT = ("claim_jobs", "complete_jobs", "move_attempts", "rule_jobs", "extend_leases", "note_progress")


@pytest.mark.parametrize("statement", HOT)
def test_postgresql_finds_rows_by_an_index_even_with_a_plan_made_for_empty_tables(pg_url: str, statement: str) -> None:
    with create_store(pg_url) as created:
        store = cast("PostgresStore", created)
        [text] = store._statements[statement]
        names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
        numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", text).replace("%%", "%")
        connection = store.pool.take()
        connection.execute("SET plan_cache_mode TO force_generic_plan")
        connection.execute(f"PREPARE hot AS {numbered}".encode())
        plan = connection.execute(f"EXPLAIN EXECUTE hot ({', '.join(['NULL'] * len(names))})".encode()).fetchall()
        store.pool.give(connection, sound=False)
    text = "\n".join(line for (line,) in plan)
    assert "_pkey" in text, text
    assert "Seq Scan on holdfast_jobs" not in text, text
