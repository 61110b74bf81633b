"""The gate of a submit: limits on the depth of queues, and erased keys, in ledgers that have any.

The statements of a plain submit insert nothing while a queue has a limit or a key was erased. What they left out comes
here. So a ledger that uses neither pays for two looks at empty tables.

Invariants: a submit under a key that exists, erased or not, is answered with its job, however full the queue is; a
follow-up is never refused, because the job that stages it could not end; a refused submit writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.core.errors import QueueFullError, invariant
from holdfast.core.machines import JobState
from holdfast.store.requests import Admission, Submission
from holdfast.store.verbs.erasures import hashes, jobs_by_hash
from holdfast.store.verbs.jobs import batch_of
from holdfast.store.verbs.repeats import existing_admission

if TYPE_CHECKING:
    from holdfast.store.transaction import Reading, Transaction
    from holdfast.store.verbs.jobs import JobReads

Submitted = tuple[Submission, str]  # with its digest


def gated_admissions(
    jobs: JobReads, transaction: Transaction, left_out: Sequence[Submitted], born: dict[str, object]
) -> list[Admission]:
    """Return the admission of each submission that a plain submit has left out and that has no job under its key.

    `born` are the parameters of `insert_jobs` that all rows share. Raise QueueFullError if a queue has no room.
    """
    found = _erased(jobs, transaction, left_out)
    new = [index for index in range(len(left_out)) if index not in found]
    _require_room(transaction, [left_out[index][0] for index in new])
    after = transaction.run("last_call")[0][0] if transaction.store.one_writer else 0
    batch = batch_of([left_out[index] for index in new])
    inserted = transaction.run("insert_jobs", after=after, **batch, **{**born, "gated": True}) if new else []
    transaction.queues_to_announce.update(left_out[new[place]][0].queue for _, place in inserted)
    found |= {new[place]: Admission(job_id, is_new=True) for job_id, place in inserted}
    late = [index for index in new if index not in found]  # another process has submitted the key meanwhile
    if late:
        keyed = jobs.by_key([(left_out[index][0].client, left_out[index][0].key or "") for index in late])
        for index in late:
            submission, digest = left_out[index]
            found[index] = existing_admission(submission, digest, keyed[submission.client, submission.key or ""])
    invariant(len(found) == len(left_out), "a submit was neither recorded nor refused")
    return [found[index] for index in range(len(left_out))]


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
    return dict(reading.run("queue_limits"))


def _require_room(transaction: Transaction, new: Sequence[Submission]) -> None:
    wanted = Counter(submission.queue for submission in new if not submission.by_engine)
    limited = limits(transaction) if wanted else {}
    if not limited.keys() & wanted.keys():
        return
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
