"""A signal handler that raises or uses the ledger, at any moment of a write: nothing stays held, no call hangs."""

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


@pytest.mark.attack("faults")
@pytest.mark.req("W-18")
def test_a_signal_handler_that_uses_the_ledger_while_the_main_thread_writes_does_not_hang(
    ledger_url: str,
) -> None:
    with Child("tests.engine.interrupted_child", ledger_url, "use", str(ROUNDS), "2") as child:
        said = json.loads(child.output(120))
    assert said["alive"] == 0
    assert said["unknown"] == []
    assert said["outcomes"].pop("read") == {"ok": ROUNDS // 4}
    for outcomes in said["outcomes"].values():
        assert set(outcomes) <= {"ok", "store_busy"}
        assert sum(outcomes.values()) == ROUNDS // 4
    with Ledger(ledger_url) as ledger, ledger.store.reading() as reading:
        stored = sorted(job.job_id for job in reading.lists.jobs(limit=1_000_000))
    assert stored == said["acknowledged"]
