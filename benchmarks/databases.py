"""A fresh database on the simulated disk, for a suite that measures in a child process.

Invariants: the database is removed afterwards; on PostgreSQL no checkpoint runs during a measurement.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.disk import SimulatedDisk
from tests.support.postgres import Server, tmpfs_directory

SERVER_SETTINGS = {"checkpoint_timeout": "1h", "max_wal_size": "4GB", "max_connections": "200"}


@contextmanager
def fresh_database(database: str, disk: SimulatedDisk) -> Iterator[str]:
    """Yield the URL of a new, empty database."""
    if database == "postgres":
        with Server(settings=SERVER_SETTINGS, env=disk.env()) as server:
            yield server.create_database()
        return
    directory = tempfile.mkdtemp(prefix="holdfast-bench-", dir=tmpfs_directory())
    try:
        yield f"sqlite:///{directory}/ledger.db"
    finally:
        shutil.rmtree(directory, ignore_errors=True)
