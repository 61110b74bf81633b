"""Queues over one empty ledger of each kind, on a clock that the test moves."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from holdfast.compat import IdempotentJobQueue
from holdfast.testing import VirtualClock
from tests.compat.support import Database, connected

Open = Callable[..., IdempotentJobQueue]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def opened(ledger_url: str, clock: VirtualClock) -> Iterator[Open]:
    """Opens as many queues on the ledger as the test asks for; each is a worker of its own."""
    queues: list[IdempotentJobQueue] = []

    def open_queue(*args: object, **given: object) -> IdempotentJobQueue:
        queue = IdempotentJobQueue(ledger_url, *args, **{"clock": clock, **given})  # type: ignore[arg-type]
        queues.append(queue)
        return queue

    yield open_queue
    for queue in queues:
        queue.close()


@pytest.fixture
def database(ledger_url: str) -> Iterator[Database]:
    """A connection to the ledger's database by its own driver, for tests that read often."""
    with closing(connected(ledger_url)) as connection:
        yield connection


@pytest.fixture
def queue(opened: Open) -> IdempotentJobQueue:
    return opened()


@pytest.fixture
def other(queue: IdempotentJobQueue, opened: Open) -> IdempotentJobQueue:
    """A second worker on the same ledger."""
    return opened()
