"""The poller and the worker of the application as processes of their own, to be killed."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import Ledger, Worker
from holdfast.engine.worker.execution import Execution
from holdfast.engine.worker.retry import RetryPolicy, Strategy
from holdfast.engine.world import BETWEEN, World
from holdfast.nodd import observations, tables
from holdfast.nodd.dataset import shipped
from holdfast.nodd.feed import Feed
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.objects import ObjectSource, S3Source
from holdfast.nodd.queues import Queue
from holdfast.nodd.statements import schema
from holdfast.store import open_store
from tests.nodd.objects import MemorySource
from tests.support.trap import die

LEASE_S = 1.0
KILLED_LEASE_S = 2.0  # long enough that the next one to be killed takes another unit


def main(role: str, url: str, endpoint: str, queue: str) -> None:
    """Be the poller or the worker until killed."""
    ledger = Ledger(url)
    if role == "poller":
        Feed(ledger.store, Queue(queue, endpoint=endpoint), shipped()).run(threading.Event(), wait_s=1)
        return
    declare(ledger, _settings(S3Source(shipped().buckets(), endpoint=endpoint)))
    Worker(ledger, queues=["gfs"], concurrency=2, poll_s=0.2).run()


def _settings(source: ObjectSource, lease_s: float = LEASE_S) -> IngestSettings:
    retry = RetryPolicy(strategy=Strategy.IMMEDIATE)
    return IngestSettings(datasets=shipped(), source=source, lease_s=lease_s, not_yet_s=0.2, retry=retry)


def held_in(directory: str) -> MemorySource:
    """Return a source of the objects in a directory, which has one for each bucket."""
    source = MemorySource()
    for path in Path(directory).rglob("*"):
        if path.is_file():
            bucket, _, key = path.relative_to(directory).as_posix().partition("/")
            source.put(bucket, key, path.read_bytes())
    return source


# ---------------------------------------------------------------------------------------------------------------------
# Roles of the fork server, each of which dies at one point, by SIGKILL


def _queue(url: str, endpoint: str) -> Queue:
    # The server of the roles began before any test had set them.
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.setdefault(name, "testing")
    return Queue(url, endpoint=endpoint)


def _die() -> None:
    die()


def _dies_at(point: str) -> Callable[[str], None]:
    def reach(found: str) -> None:
        if found == point:
            _die()

    return reach


def poller(url: str, endpoint: str, queue: str, die_at: str) -> None:
    """Take one batch, and die: `before_admission`, before its transaction is durable, or at a point of the feed."""
    store = open_store(url)
    if die_at == "before_admission":
        whole = store.transaction

        @contextmanager
        def cut_short(*args: Any, **kwargs: Any) -> Iterator[Any]:
            with whole(*args, **kwargs) as transaction:
                yield transaction
                _die()

        store.transaction = cut_short  # type: ignore[method-assign]
    Feed(store, _queue(queue, endpoint), shipped(), reach=_dies_at(die_at)).poll(wait_s=1)


def acker(url: str, endpoint: str, queue: str, die_at: str) -> None:
    """Take one batch, work on it, and die before it is deleted, or after."""
    ledger = Ledger(url)
    declare(ledger, _settings(S3Source(shipped().buckets(), endpoint=endpoint)))
    feed = Feed(ledger.store, _queue(queue, endpoint), shipped(), reach=_dies_at(die_at))

    def work() -> None:
        while True:
            ledger.run_until_idle(queues=["gfs"], concurrency=1)

    threading.Thread(target=work, daemon=True).start()
    polled = feed.poll_and_process(wait_s=1, visibility_s=1)
    raise AssertionError(f"it lives: {polled}")


def worker(url: str, objects: str, die_at: str) -> None:
    """Work, and die: `before X` or `after X` is kept by a checkpoint, or at a point of the engine's world."""
    world = World(reach=_dies_at(die_at), planned=lambda point: point == die_at == BETWEEN)
    ledger = Ledger(url, world=world)
    declare(ledger, _settings(held_in(objects), KILLED_LEASE_S))
    checkpoint = Execution.checkpoint

    def checkpointed(self: Execution, name: str, fn: Any, **how: Any) -> Any:
        _dies_at(die_at)(f"before {name}")
        value = checkpoint(self, name, fn, **how)
        _dies_at(die_at)(f"after {name}")
        return value

    Execution.checkpoint = checkpointed  # type: ignore[method-assign]
    Worker(ledger, queues=["gfs"], concurrency=1, batch_max=1).run(until_idle=True)


def observer(url: str, objects: str, meet: str) -> None:
    """Carry out one unit of an observation, and write nothing before another process has read the family too."""
    own, reads, read = Path(meet) / str(os.getpid()), [0], observations.files_of

    def together(*args: Any) -> observations.ObservationFiles | None:
        found = read(*args)
        reads[0] += 1
        own.write_text(str(reads[0]))
        until = time.monotonic() + 20
        while len(list(Path(meet).iterdir())) < 2:
            assert time.monotonic() < until
            time.sleep(0.005)
        return found

    observations.files_of = together  # type: ignore[assignment]
    with Ledger(url) as ledger:
        declare(ledger, _settings(held_in(objects), lease_s=60.0))
        Worker(ledger, queues=["goes-abi"], concurrency=1, batch_max=1).run(until_idle=True)


def preparer(url: str, meet: str, of: int) -> None:
    """Make the application's tables at the same moment as others; return whether this process made them."""
    with open_store(url) as store:
        seen, own = tables._version, Path(meet) / str(os.getpid())

        def together(store: Any) -> str | None:
            found = seen(store)
            own.touch()
            until = time.monotonic() + 20
            while len(list(Path(meet).iterdir())) < of:
                assert time.monotonic() < until
                time.sleep(0.005)
            return found

        tables._version = together
        own.write_text(str(tables.prepare(store)))


def table_maker(url: str, die_at: str) -> None:
    """Make the application's tables, and die: before the last statement, or before it is durable."""
    with open_store(url) as store:
        if die_at == "before the view":
            tables.schema = _then_die(schema(store.dialect)[:-1])  # type: ignore[assignment,attr-defined]
        else:
            transaction_of = store.transaction

            @contextmanager
            def cut_short(*args: Any, **kwargs: Any) -> Iterator[Any]:
                with transaction_of(*args, **kwargs) as transaction:
                    try:
                        yield transaction
                    finally:
                        _die()

            store.transaction = cut_short  # type: ignore[method-assign]
        tables.prepare(store)


def _then_die(parts: Sequence[str]) -> Callable[[str], Iterator[str]]:
    def yielded(_dialect: str) -> Iterator[str]:
        yield from parts
        _die()

    return yielded


def worker_to_the_end(url: str, objects: str) -> None:
    """Work until killed."""
    ledger = Ledger(url)
    declare(ledger, _settings(held_in(objects), KILLED_LEASE_S))
    Worker(ledger, queues=["gfs"], concurrency=2, poll_s=0.2).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
