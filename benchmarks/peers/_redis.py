# mypy: ignore-errors
# ruff: noqa: ANN202
# redis is installed in the peers' own environments.
"""What the drivers of systems on Redis share.

Invariants: the server is the benchmark's own, and empty at the start of a run; it keeps an append-only file, synced as
the benchmark chose; while jobs are seeded it is not synced.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from _peer import Peer


class RedisPeer(Peer):
    """A system whose jobs are in Redis; it has no database for effects."""

    def __init__(self) -> None:
        self.url = ""

    @cached_property
    def server(self):
        import redis  # noqa: PLC0415 -- the memory of workers is measured

        return redis.Redis.from_url(self.url)

    @contextmanager
    def scratch(self, base: str) -> Iterator[str]:
        self.url = base
        self.server.flushall()
        self.durability = f"appendonly, appendfsync {self.server.config_get('appendfsync')['appendfsync']}"
        try:
            yield base
        finally:
            self.server.flushall()

    @contextmanager
    def seeding(self) -> Iterator[None]:
        chosen = self.server.config_get("appendfsync")["appendfsync"]
        self.server.config_set("appendfsync", "no")
        try:
            yield
        finally:
            self.server.config_set("appendfsync", chosen)

    def usage(self, where: str) -> dict[str, int]:  # noqa: ARG002 -- there is one server
        return {"wal": self.server.info("persistence")["aof_current_size"]}
