"""`holdfast pause` and `resume`: whether workers may claim the jobs of a queue."""

from typing import Annotated, Any

from holdfast.cli.command import Answer, Location, command
from holdfast.cli.options import Reason, actor, word
from holdfast.store import Store

Queue = Annotated[str, word("--queue", "The queue.")]


@command(Location.open)
def pause(store: Store[Any], *, queue: Queue = "default", reason: Reason = None) -> Answer:
    """Stop giving out work of a queue; what is running goes on."""
    with store.transaction() as transaction:
        transaction.queues.pause(queue, actor=actor(), reason=reason or "paused")
    return Answer({"queue": queue, "paused": True}, f"{queue} is paused")


@command(Location.open)
def resume(store: Store[Any], *, queue: Queue = "default", reason: Reason = None) -> Answer:
    """Give out work of a queue again."""
    with store.transaction() as transaction:
        transaction.queues.resume(queue, actor=actor(), reason=reason or "resumed")
    return Answer({"queue": queue, "paused": False}, f"{queue} gives out work")
