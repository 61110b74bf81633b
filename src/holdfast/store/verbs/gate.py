"""The gate of a submit: limits on the depth of queues, and erased keys, in ledgers that have any.

The statements of a plain submit insert nothing while a queue has a limit or a key was erased; this module then decides
about the submissions. A ledger that uses neither pays for two looks at empty tables.

Invariants: a submit under a key that exists, erased or not, is answered with its job, however full the queue is; a
follow-up is never refused or parked, because the job that stages it could not end; a refused submit writes nothing;
submits to queues with a limit take turns, until their transaction ends, so together they do not exceed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from holdfast.core.errors import QueueFullError, invariant
from holdfast.core.machines import JobState
from holdfast.store.requests import Admission, Submission
from holdfast.store.verbs.bulk import columns_of
from holdfast.store.verbs.erasures import hashes, jobs_by_hash
from holdfast.store.verbs.repeats import existing_admission

if TYPE_CHECKING:
    from holdfast.store.transaction import Reading, Transaction
    from holdfast.store.verbs.jobs import JobReads

Submitted = tuple[Submission, str]  # with its digest


def gated_admissions(
    jobs: JobReads, transaction: Transaction, left_out: Sequence[Submitted], born: dict[str, object]
) -> list[Admission]:
    """Return the admission of each submission that a plain submit has left out and that has no job under its key.

    `born` are the parameters of `insert_jobs` that all rows share. Raise QueueFullError if a queue has no room and does
    not park.
    """
    found = _erased(jobs, transaction, left_out)
    new = [index for index in range(len(left_out)) if index not in found]
    try:
        parking = _require_room(transaction, [left_out[index][0] for index in new])
    except QueueFullError:
        # While this transaction waited for its turn, another one may have submitted the same key.
        submitted = _submitted(jobs, left_out, new)
        if not submitted:
            raise
        found |= submitted
        new = [index for index in new if index not in found]
        parking = _require_room(transaction, [left_out[index][0] for index in new])
    columns = columns_of([left_out[index] for index in new])
    ids = transaction.store.insert_jobs(transaction, columns, **{**born, "gated": True}) if new else []
    inserted = {index: job_id for index, job_id in zip(new, ids, strict=True) if job_id is not None}
    transaction.queues_to_announce.update(left_out[index][0].queue for index in inserted)
    found |= {index: Admission(job_id, is_new=True) for index, job_id in inserted.items()}
    if parking is not None:
        parking(sorted((job_id, left_out[index][0]) for index, job_id in inserted.items()))
    late = [index for index in new if index not in found]  # another process has submitted the key meanwhile
    found |= _submitted(jobs, left_out, late) if late else {}
    invariant(len(found) == len(left_out), "a submit was neither recorded nor refused")
    return [found[index] for index in range(len(left_out))]


def _submitted(jobs: JobReads, left_out: Sequence[Submitted], places: Sequence[int]) -> dict[int, Admission]:
    """Return the admissions of submissions at these places whose key has a job, by their place."""
    pairs = {index: (one.client, one.key) for index in places if (one := left_out[index][0]).key is not None}
    keyed = jobs.by_key(list(pairs.values()))
    return {index: existing_admission(*left_out[index], keyed[pair]) for index, pair in pairs.items() if pair in keyed}


def _erased(jobs: JobReads, transaction: Transaction, left_out: Sequence[Submitted]) -> dict[int, Admission]:
    """Return the admissions of submissions whose key was erased, by their place."""
    pairs = {index: (one.client, one.key) for index, (one, _) in enumerate(left_out) if one.key is not None}
    hashed = hashes(transaction, list(pairs.values()))
    ids = jobs_by_hash(transaction, [(client, digest) for (client, _), digest in hashed.items()]) if hashed else {}
    if not ids:
        return {}
    erased = {job.job_id: job for job in jobs.get_many(set(ids.values()))}
    found: dict[int, Admission] = {}
    for index, pair in pairs.items():
        job_id = ids.get((pair[0], hashed[pair]))
        if job_id is not None:
            found[index] = existing_admission(*left_out[index], erased[job_id])
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Limits


def limits(reading: Reading) -> dict[str, int]:
    """Return the queues that have a limit, with the most jobs that may wait in each."""
    return {queue: depth for queue, depth, _ in reading.run("queue_limits")}


def parking_queues(reading: Reading) -> set[str]:
    """Return the queues that park what is submitted beyond their depth."""
    return {queue for queue, _, parks in reading.run("queue_limits") if parks}


def _require_room(
    transaction: Transaction, new: Sequence[Submission]
) -> Callable[[Sequence[tuple[int, Submission]]], None] | None:
    """Raise QueueFullError if a queue has no room and does not park; return what parks the new jobs, if one parks."""
    wanted = Counter(submission.queue for submission in new if not submission.by_engine)
    found = transaction.run("queue_limits") if wanted else []
    limited = {queue: depth for queue, depth, _ in found if queue in wanted}
    if not limited:
        return None
    from holdfast.store.verbs.depth import DepthWrites  # noqa: PLC0415 - most queues have no depth

    writes = DepthWrites(transaction)
    parks = [queue for queue, _, parks in found if parks and queue in wanted]
    if not parks:
        writes.lock()  # the next statement sees what the transaction that held the lock before has submitted
        _refuse_beyond(transaction, wanted, limited)
        return None
    room = writes.room(parks)
    _refuse_beyond(transaction, wanted, {queue: depth for queue, depth in limited.items() if queue not in room})
    return partial(writes.park_beyond, room)


def _refuse_beyond(transaction: Transaction, wanted: Mapping[str, int], limited: Mapping[str, int]) -> None:
    depths = Counter[str]()
    for _, queue, state, n in transaction.counts.raw():
        if state == JobState.PENDING:
            depths[queue] += n
    for queue, n in sorted(wanted.items()):
        most = limited.get(queue)
        if most is not None and depths[queue] + n > most:
            raise QueueFullError(
                f"queue {queue!r} has {depths[queue]} waiting jobs; with {n} more it would exceed its limit of {most}",
                next_step=f"Submit again when the queue is shorter: `holdfast jobs --queue {queue} --state pending`.",
                context={"queue": queue, "depth": depths[queue], "limit": most, "submitted": n},
            )
