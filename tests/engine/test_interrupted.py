"""An exception from a signal handler, at any moment of a write: nothing stays held, and the next write goes through."""

from __future__ import annotations

import json

import pytest

from holdfast import Ledger
from tests.support.children import Child

ROUNDS = 60


@pytest.mark.attack("faults")
@pytest.mark.req("W-18")
@pytest.mark.parametrize("kind", ["keyboard", "error"])
def test_later_writes_go_through_after_the_main_thread_was_interrupted(ledger_url: str, kind: str) -> None:
    with Child("tests.engine.interrupted_child", ledger_url, kind, str(ROUNDS), "1") as child:
        said = json.loads(child.output(120))
    assert said["interrupted"] == ROUNDS
    assert said["alive"] == 0
    assert set(said["unknown"]) <= {"commit_unknown"}
    with Ledger(ledger_url) as ledger, ledger.store.reading() as reading:
        stored = {job.job_id for job in reading.lists.jobs(limit=1_000_000)}
    assert len(said["acknowledged"]) == len(set(said["acknowledged"]))
    assert set(said["acknowledged"]) <= stored
