"""Many jobs, large payloads: a ledger of any size moves between the databases in the memory of a small one."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store import Submission, create_store, open_store
from tests.audit.snapshot_mover import moved
from tests.audit.snapshots import NewUrl, counts, many

pytest_plugins = ["tests.audit.places"]
MEMORY_MB_MAX = 200


@pytest.mark.req("K-63")
@pytest.mark.pg
@pytest.mark.parametrize(
    "jobs, worked",
    [(5_000, 500), pytest.param(1_000_000, 100_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])],
)
def test_a_ledger_moves_there_and_back(jobs: int, worked: int, new_url: NewUrl, tmp_path: Path, pg_url: str) -> None:
    first, last = new_url("sqlite"), new_url("sqlite")
    many(first, jobs, worked=worked)
    summary = moved(tmp_path, first, pg_url, last, timeout_s=3000)
    assert (summary["differing"], summary["epoch"]) == ([], 3)
    assert summary["rows"] == 3 * jobs + 2 * worked + 4  # calls, jobs, their birth, and two more moves; settings
    assert summary["memory_mb"] < MEMORY_MB_MAX
    with open_store(last) as store:
        assert counts(store) == {
            ("noop", "default", "pending"): jobs - worked,
            ("noop", "default", "succeeded"): worked,
        }


@pytest.mark.pg
def test_large_payloads_are_not_collected_in_memory(new_url: NewUrl, tmp_path: Path, pg_url: str) -> None:
    first, last = new_url("sqlite"), new_url("sqlite")
    with create_store(first) as store, store.transaction() as transaction:
        for n in range(40):
            payload = f'"{n:02d}{"x" * (1 << 20)}"'
            transaction.jobs.submit([Submission(operation="noop", payload=payload, key=f"k{n}")])
    summary = moved(tmp_path, first, pg_url, last)
    assert (summary["differing"], summary["rows"]) == ([], 124)
    assert summary["memory_mb"] < 100  # some 75 to begin with; 40 MB of payloads at once would be 120
