"""`holdfast pause`, `resume` and `limit`: stop and restart a queue, and bound how many jobs wait in it."""

from typing import Annotated, Any

from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import option
from holdfast.cli.options import OPERATOR_HELP, GrantId, Reason, actor, word
from holdfast.core.errors import InputError
from holdfast.core.spans import counted
from holdfast.store import Store
from holdfast.store.requests import INTEGER_MAX
from holdfast.store.verbs.known_queues import require_queue

Queue = Annotated[str, word("--queue", "Name of the queue.")]


@command(Location.open)
def pause(store: Store[Any], *, queue: Queue, reason: Reason = None) -> Answer:
    """Pause a queue; jobs that are running continue."""
    with store.transaction() as transaction:
        require_queue(transaction, queue)
        transaction.queues.pause(queue, actor=actor(), reason=reason or "paused")
    return Answer({"queue": queue, "paused": True}, f"Queue {queue} paused.")


@command(Location.open)
def resume(
    store: Store[Any],
    *,
    queue: Queue,
    reason: Reason = None,
    grant: GrantId = None,
    operator: Annotated[str | None, word("--operator", OPERATOR_HELP, "--as")] = None,
) -> Answer:
    """Resume a paused queue.

    Outside dev this needs a grant, which is consumed.
    """
    from holdfast.governance.switches import resume_queue  # noqa: PLC0415 - only here

    resume_queue(store, queue, actor=operator or actor(), reason=reason or "resumed", grant_id=grant)
    return Answer({"queue": queue, "paused": False}, f"Queue {queue} resumed.")


@command(Location.open)
def limit(
    store: Store[Any],
    *,
    queue: Queue,
    depth: Annotated[
        int | None, option("--depth", min=0, max=INTEGER_MAX, metavar="N", help="Maximum number of jobs that may wait.")
    ] = None,
    park: Annotated[
        bool, option("--park", help="Store further jobs, but let no worker claim them until fewer wait.")
    ] = False,
    off: Annotated[bool, option("--off", help="Remove the limit.")] = False,
    reason: Reason = None,
) -> Answer:
    """Limit how many jobs may wait in a queue.

    A submit beyond that is refused (queue_full). With --park the job is stored and parked: workers can claim parked
    jobs, by priority and then by time, when fewer jobs wait.

    The limit is exact: submits to the queue take turns. Retries, replays and follow-ups are never refused or parked.
    """
    if (depth is None) != off or (off and park):
        raise InputError("Give either --depth N or --off.", next_step="Add --depth N, or --off to remove the limit.")
    with store.transaction() as transaction:
        transaction.queues.limit_depth(queue, depth, park=park, actor=actor(), reason=reason or "limited")
    more = "parked" if park else "refused"
    what = f"At most {counted(depth or 0, 'job')} may wait in queue {queue}; more are {more}."
    value = {"queue": queue, "depth_max": depth, "parks": park}
    return Answer(value, what if depth is not None else f"Queue {queue} has no limit.")
