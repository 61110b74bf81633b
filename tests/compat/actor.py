"""A process that is one worker with a random history: `python -m tests.compat.actor URL SEED STEPS JOB...`.

It prints that it is ready, waits for a line, and prints what it did, as JSON. It imports neither pytest nor a driver
that its ledger does not need, because tests start many.

Invariants: a random history raises nothing but refusals that a caller is meant to see.
"""

from __future__ import annotations

import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.compat import AuditEvent, IdempotentJobQueue, IngestionJob, StateMachineValidator
from holdfast.core.errors import RefusedByDatabaseError, RefusedError
from tests.support.children import wait_for_start

_WEIGHTS = {
    "claim": 5,
    "claim_it": 3,
    "mark_running": 3,
    "mark_completed": 2,
    "mark_failed": 6,
    "reschedule": 8,
    "heartbeat": 2,
    "expire": 4,
    "mark_quarantined": 1,
    "cancel_job": 1,
    "enqueue": 2,
}
LEASE_S = 0.1  # short, so that leases are really lost


class History(msgspec.Struct):
    """What one or more workers did, as they themselves saw it."""

    events: list[tuple[str, str, str]] = []  # worker, job, action
    refused: int = 0

    def actions(self) -> Counter[tuple[str, str]]:
        return Counter((job_id, action) for _, job_id, action in self.events)

    def workers(self) -> set[str]:
        return {worker for worker, *_ in self.events}


class Memory:
    """An audit logger that remembers."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def record(self, event: AuditEvent, /) -> None:
        self.events.append(event)

    def actions(self) -> list[tuple[str, str]]:
        return [(event.job_id, event.action) for event in self.events]


def job(job_id: str, **given: Any) -> IngestionJob:
    return IngestionJob(job_id, "local_files", {"path": f"/{job_id}"}, **given)


def wander(queue: IdempotentJobQueue, rng: random.Random, job_ids: Sequence[str], steps: int) -> int:
    """Do random things to random jobs, often to those that the queue holds; return how often it was refused."""
    refused = 0
    for _ in range(steps):
        [verb] = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        job_id = rng.choice((rng.random() < 0.5 and list(queue._held)) or job_ids)
        calls: dict[str, Callable[[], object]] = {
            "claim": queue.claim,
            "claim_it": lambda: queue.claim(job_id),  # noqa: B023 - called at once
            "heartbeat": lambda: queue.heartbeat(job_id),  # noqa: B023
            "expire": lambda: queue.expire(job_id),  # noqa: B023
            "enqueue": lambda: _enqueue_again(queue, job_id),  # noqa: B023
        }
        try:
            if verb in calls:
                calls[verb]()
            else:
                getattr(queue, verb)(job_id, idempotent=rng.random() < 0.5)
        except RefusedByDatabaseError:
            raise
        except RefusedError:
            refused += 1
    return refused


def actor(url: str, seed: int, steps: int, job_ids: Sequence[str], start: Callable[[], object]) -> History:
    """Be one worker with a random history, and return it."""
    audit = Memory()
    with IdempotentJobQueue(url, StateMachineValidator(audit), lease_s=LEASE_S) as queue:
        start()
        refused = wander(queue, random.Random(seed), job_ids, steps) + _complete_one(queue)
        return History([(queue.worker, *action) for action in audit.actions()], refused)


def _complete_one(queue: IdempotentJobQueue) -> int:
    """Complete a job, if one can be claimed; return how often that was refused.

    On a busy machine every lease of the random steps may expire before its job is completed.
    """
    refused = 0
    while refused < 50 and (token := queue.claim()):
        try:
            queue.mark_completed(token.job_id, token=token, idempotent=False)
            break
        except RefusedByDatabaseError:
            raise
        except RefusedError:
            refused += 1
    return refused


def _enqueue_again(queue: IdempotentJobQueue, job_id: str) -> None:
    assert not queue.enqueue(job(job_id)), "an existing job was new"


if __name__ == "__main__":
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # refusals are the point
    url, seed, steps, *job_ids = sys.argv[1:]
    sys.stdout.buffer.write(msgspec.json.encode(actor(url, int(seed), int(steps), job_ids, wait_for_start)))
