"""Replays in processes of their own, which are killed or run beside each other.

Invariants: a role notes each batch, by one write, after it is durable; it runs on the real clock.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from holdfast.core.selection import Limits, Selection
from holdfast.engine.world import World
from holdfast.governance.replay import replay
from holdfast.governance.replay.events import ReplayBatch
from holdfast.governance.replay.guards import ReplayPolicy, policy_of
from holdfast.store import Store, open_store
from tests.governance.replays import WHO, selection
from tests.support.roles import note, noted
from tests.support.trap import die

BATCH = 20


def policy() -> ReplayPolicy:
    """Return limits that let runs go as fast as they can, beside each other."""
    return msgspec.structs.replace(
        policy_of("dev"),
        max_records_per_second=1e9,
        max_batches_per_minute=1e9,
        max_runs_per_queue=9,
        queue_age_s=1e6,
    )


def chosen(store: Store[Any]) -> Selection:
    return selection(store, limits=Limits(batch_size=BATCH))


def run(url: str, *, notes: str, die_at: str | None = None) -> None:
    """Replay everything; perhaps die by SIGKILL at a point of a batch."""

    def reach(point: str) -> None:
        if point == die_at:
            die()

    with open_store(url) as store:
        replay.run(store, chosen(store), policy=policy(), world=World(reach=reach), on_batch=_noting(notes), **WHO)


def run_slowly(url: str, *, notes: str) -> None:
    """Replay everything with a pause after each batch, so that a test can kill it at any moment."""

    def pause(batch: ReplayBatch) -> None:
        _noting(notes)(batch)
        time.sleep(0.02)

    with open_store(url) as store:
        replay.run(store, chosen(store), policy=policy(), on_batch=pause, **WHO)


def race(url: str, *, notes: str, selected: str, runners: int) -> None:
    """Begin a run when all runners have selected the same candidates, and note the result."""

    def reach(point: str) -> None:
        if point == "before batch 1":
            note(selected, "1")
            while len(noted(selected)) < runners:
                time.sleep(0.001)

    with open_store(url) as store:
        report = replay.run(store, chosen(store), policy=policy(), world=World(reach=reach), **WHO)
        passed_over = sum(report.skipped.values())
        note(notes, f"{report.state} {report.total} {report.replayed} {passed_over}")


def _noting(notes: str) -> Any:
    return lambda batch: note(notes, f"{batch.run_id} {batch.number}")
