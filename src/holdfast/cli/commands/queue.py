"""`holdfast pause` and `resume`: stop and restart a queue."""

from typing import Annotated, Any

from holdfast.cli.command import Answer, Location, command
from holdfast.cli.options import Reason, actor, word
from holdfast.store import Store

Queue = Annotated[str, word("--queue", "Name of the queue.")]


@command(Location.open)
def pause(store: Store[Any], *, queue: Queue = "default", reason: Reason = None) -> Answer:
    """Pause a queue; jobs that are running continue."""
    with store.transaction() as transaction:
        transaction.queues.pause(queue, actor=actor(), reason=reason or "paused")
    return Answer({"queue": queue, "paused": True}, f"Queue {queue} paused.")


@command(Location.open)
def resume(store: Store[Any], *, queue: Queue = "default", reason: Reason = None) -> Answer:
    """Resume a paused queue."""
    with store.transaction() as transaction:
        transaction.queues.resume(queue, actor=actor(), reason=reason or "resumed")
    return Answer({"queue": queue, "paused": False}, f"Queue {queue} resumed.")
