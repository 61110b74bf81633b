"""Which queues a ledger knows: those of its operations, of its jobs, of its workers, and the paused ones.

Invariants: nothing here writes; `default` is always known.
"""

from collections.abc import Collection, Iterable

from holdfast.core.errors import QueueUnknownError
from holdfast.store.transaction import Reading
from holdfast.store.verbs.counts import Count


def known_queues(reading: Reading, counts: Iterable[Count] | None = None) -> list[str]:
    """Return the names of all queues that the ledger knows, sorted; `counts` are those of now, if they were read."""
    declared = {operation.queue for operation in reading.operations.declared().values()}
    used = {count.queue for count in (reading.counts.current() if counts is None else counts)}
    served = {queue for worker in reading.lists.workers() for queue in worker.queues}
    return sorted({"default", *declared, *used, *served, *reading.queues.paused()})


def require_queue(reading: Reading, queue: str, also: Collection[str] = ()) -> None:
    """Raise QueueUnknownError unless the ledger knows the queue, or it is one of `also`."""
    known = known_queues(reading)
    if queue not in known and queue not in also:
        raise QueueUnknownError(
            f"no operation, job or worker uses the queue {queue!r}", context={"queue": queue, "known": known}
        )
