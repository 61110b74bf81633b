"""New databases of either kind, as many as a test requests.

A plugin of the modules that name it in `pytest_plugins`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.postgres import Server, tmpfs_directory


@pytest.fixture
def new_url(request: pytest.FixtureRequest) -> Iterator[Callable[[str], str]]:
    """What makes the URL of an empty database: `sqlite`, a file that does not exist yet, or `postgres`."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-sqlite-", dir=tmpfs_directory()))
    files: list[str] = []
    databases: list[str] = []

    def make(kind: str) -> str:
        if kind == "sqlite":
            place = directory / str(len(files))
            place.mkdir()
            files.append(f"sqlite:///{place / 'ledger.db'}")
            return files[-1]
        server: Server = request.getfixturevalue("pg_server")
        server.start()
        databases.append(server.create_database())
        return databases[-1]

    yield make
    for url in databases:
        request.getfixturevalue("pg_server").drop_database(url)
    shutil.rmtree(directory, ignore_errors=True)
