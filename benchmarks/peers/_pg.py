# mypy: ignore-errors
# psycopg is installed in the peers' own environments.
"""What the drivers of systems on PostgreSQL share.

Invariants: fsync and synchronous_commit are on, checked at the server; a scratch database has a table for effects.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

try:
    from benchmarks.peers._peer import EFFECTS_TABLE, Peer, scratch_database
except ImportError:  # in a peer's environment the drivers are scripts of this directory
    from _peer import EFFECTS_TABLE, Peer, scratch_database

INSERT_EFFECT = "INSERT INTO effects VALUES (%s, %s)"


class PostgresPeer(Peer):
    """A system whose jobs are in PostgreSQL."""

    durability = "logged tables, synchronous_commit=on"
    rest_query = ""

    def __init__(self) -> None:
        self._connections: dict = {}

    def install(self, url: str) -> None:
        """Create the system's own tables."""

    @contextmanager
    def scratch(self, base: str) -> Iterator[str]:
        import psycopg  # noqa: PLC0415 -- the memory of workers is measured

        name, url = scratch_database(base)
        with psycopg.connect(base, autocommit=True) as server:
            for setting in ("fsync", "synchronous_commit"):
                if server.execute(f"SHOW {setting}").fetchone() != ("on",):
                    raise SystemExit(f"the server is not durable: {setting} is off")
            server.execute(f'CREATE DATABASE "{name}"')
            try:
                with ThreadPoolExecutor(1) as thread:  # some refuse to be installed within an event loop
                    thread.submit(self.install, url).result()
                self.one(url, EFFECTS_TABLE)
                yield url
            finally:
                if url in self._connections:
                    self._connections.pop(url).close()
                server.execute(f'DROP DATABASE "{name}" (FORCE)')

    def one(self, url: str, query: str) -> int:
        """Return the one value of a query; the connection stays open."""
        if url not in self._connections:
            import psycopg  # noqa: PLC0415

            self._connections[url] = psycopg.connect(url, autocommit=True)
        cursor = self._connections[url].execute(query)
        return cursor.fetchone()[0] if cursor.description else 0

    def rest(self, where: str) -> int:
        return self.one(where, self.rest_query)

    def effects(self, where: str) -> int:
        return self.one(where, "SELECT count(*) FROM effects")

    def usage(self, where: str) -> dict[str, int]:
        return {
            "wal": int(self.one(where, "SELECT pg_current_wal_insert_lsn() - '0/0'")),
            "disk": self.one(where, "SELECT pg_database_size(current_database())"),
        }

    def settle(self, where: str) -> None:
        self.one(where, "VACUUM ANALYZE")
