"""Bare batched INSERTs into one SQLite table without any ledger: what a bulk submit is compared with.

Invariants: the same payload, the same chunks, WAL and synchronous=FULL; no index but the primary key.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from benchmarks.peers._peer import Peer, file_usage, main, scratch_file

TABLE = "CREATE TABLE jobs (job_id INTEGER PRIMARY KEY, operation TEXT, queue TEXT, state TEXT, payload TEXT)"
INSERT = "INSERT INTO jobs (operation, queue, state, payload) VALUES ('handle', 'default', 'pending', ?)"


class Driver(Peer):
    name, distribution = "bare", "holdfast"
    durability = f"WAL, synchronous=FULL, SQLite {sqlite3.sqlite_version}"

    @contextmanager
    def scratch(self, base: str) -> Iterator[str]:
        with scratch_file(base) as path, closing(self._connect(str(path))) as connection:
            connection.execute(TABLE)
            self._connection = connection
            yield str(path)

    def _connect(self, where: str) -> sqlite3.Connection:
        connection = sqlite3.connect(where, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def put(self, where: str, payloads: list[dict[str, Any]]) -> None:  # noqa: ARG002 -- one file is open
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(INSERT, [(json.dumps(payload, separators=(",", ":")),) for payload in payloads])
        self._connection.execute("COMMIT")

    def rest(self, where: str) -> int:  # noqa: ARG002
        count: int = self._connection.execute("SELECT count(*) FROM jobs").fetchone()[0]
        return count

    def usage(self, where: str) -> dict[str, int]:
        return file_usage(where)


if __name__ == "__main__":
    main(Driver())
