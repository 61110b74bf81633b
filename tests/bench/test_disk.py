"""The simulated disk counts every sync of every process on it, and makes each one wait."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from benchmarks.disk import DiskError, SimulatedDisk, Syncs
from tests.support.postgres import Server


@pytest.fixture(scope="module")
def shared_disk() -> Iterator[SimulatedDisk]:
    with SimulatedDisk() as disk:
        yield disk


@pytest.fixture
def disk(shared_disk: SimulatedDisk) -> SimulatedDisk:
    shared_disk.reset()
    return shared_disk


def child(disk: SimulatedDisk, code: str, *args: str) -> str:
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, env=disk.env(), check=True, capture_output=True, text=True).stdout


def test_counts_and_delays_each_call(disk: SimulatedDisk, tmp_path: Path) -> None:
    began = time.monotonic()
    child(
        disk,
        "import os, sys\nfd = os.open(sys.argv[1], 66)\nfor _ in range(5): os.fsync(fd)",
        str(tmp_path / "f"),
    )
    assert disk.read() == Syncs(fsync=5, fdatasync=0)
    assert time.monotonic() - began >= 0.005


def test_processes_share_the_counter(disk: SimulatedDisk, tmp_path: Path) -> None:
    code = "import os, sys\nfd = os.open(sys.argv[1], 66)\nfor _ in range(50): os.fdatasync(fd)"
    command = [sys.executable, "-c", code, str(tmp_path / "f")]
    children = [subprocess.Popen(command, env=disk.env()) for _ in range(4)]
    assert [process.wait() for process in children] == [0, 0, 0, 0]
    assert disk.read() == Syncs(fsync=0, fdatasync=200)


def test_a_bad_descriptor_fails_and_is_not_counted(disk: SimulatedDisk) -> None:
    code = "import os\ntry: os.fsync(999)\nexcept OSError as error: print(error.errno)"
    assert child(disk, code) == "9\n"
    assert disk.read().total == 0


def test_sqlite_in_wal_mode_syncs_once_a_commit(disk: SimulatedDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (n)")
    connection.close()
    code = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA synchronous = FULL")
for n in range(int(sys.argv[2])):
    connection.execute("INSERT INTO t VALUES (?)", (n,))
"""
    child(disk, code, path, "10")
    ten = disk.read()
    disk.reset()
    child(disk, code, path, "30")
    # Opening and closing cost the same both times: the difference is the commits alone.
    assert (disk.read() - ten).total == 20


@pytest.mark.pg
def test_postgresql_syncs_once_a_commit(disk: SimulatedDisk) -> None:
    settings = {"checkpoint_timeout": "1d", "autovacuum": "off", "wal_writer_delay": "10s"}
    with (
        Server(settings=settings, env=disk.env()) as server,
        psycopg.connect(server.url(), autocommit=True) as connection,
    ):
        connection.execute("CREATE TABLE t (n int)")
        before = disk.read()
        for n in range(20):
            connection.execute("INSERT INTO t VALUES (%s)", (n,))
        assert (disk.read() - before).total == 20


def test_without_a_compiler_the_disk_shim_is_reported_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(DiskError, match="C compiler"):
        SimulatedDisk()
