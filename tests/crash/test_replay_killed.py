"""Replays that are killed with SIGKILL, or run beside each other: continued exactly, and nothing replayed twice."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.audit.check.runner import check
from holdfast.core.errors import RuntimeLeaseError
from holdfast.governance.replay import replay
from holdfast.governance.replay.record import ReplayReport
from holdfast.store import create_store, open_store
from tests.crash.replay_run import BATCH
from tests.governance.replays import AGAIN, fill, on_both, replays, states
from tests.support.forkserver import ForkServer, shared_server
from tests.support.roles import noted

pytestmark = pytest.mark.attack("faults")

JOBS = 10 * BATCH
ROLE = "tests.crash.replay_run"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with shared_server(ROLE) as server:
        yield server


def prepare(url: str, n: int = JOBS) -> list[int]:
    with create_store(url) as store:
        return fill(store, n)


def later() -> datetime:
    """Return a time at which the lease of a runner that died just now has run out."""
    return datetime.now(UTC) + timedelta(seconds=61)


def go_on(url: str, run_id: str) -> ReplayReport:
    """Continue a run whose runner is dead: at once it is refused, since its lease has not expired."""
    with open_store(url) as store, pytest.raises(RuntimeLeaseError):
        replay.continue_run(store, run_id, **AGAIN)
    with open_store(url, later) as store:
        return replay.continue_run(store, run_id, **AGAIN)


def require_all_once(url: str, made: list[int], report: ReplayReport) -> None:
    with open_store(url) as store:
        assert (report.state, report.replayed, report.batches, report.skipped) == ("done", len(made), 10, {})
        assert replays(store) == dict.fromkeys(made, 1)
        assert states(store) == {"pending": len(made)}
        touched = replay.inspect(store, report.run_id).touched
        assert [job_id for batch in touched for job_id in batch.replayed] == made
        assert check(store).violations == ()


@pytest.mark.req("K-50", "K-64")
@pytest.mark.parametrize(
    "ledger_url, moment", on_both(["inside batch 6", "after batch 6"], "inside batch 6"), indirect=["ledger_url"]
)
def test_a_run_that_is_killed_half_way_is_continued_and_replays_nothing_twice(
    server: ForkServer, ledger_url: str, tmp_path: Path, moment: str
) -> None:
    made = prepare(ledger_url)
    notes = tmp_path / "notes"
    child = server.spawn(f"{ROLE}:run", url=ledger_url, notes=str(notes), die_at=moment)
    assert child.wait(60) == -9, server.log
    durable = 5 if moment.startswith("inside") else 6
    run_ids = {line.split()[0] for line in noted(notes)}
    assert len(noted(notes)) == durable
    [run_id] = run_ids
    with open_store(ledger_url) as store:
        before = replay.inspect(store, run_id)
        assert (before.state, before.batches, before.replayed) == ("running", durable, durable * BATCH)
    require_all_once(ledger_url, made, go_on(ledger_url, run_id))


@pytest.mark.req("K-50", "K-64")
def test_a_replay_killed_at_any_moment_ends_like_an_undisturbed_one(
    server: ForkServer, ledger_url: str, tmp_path: Path
) -> None:
    """Killed at a random moment; the ledger has what was done."""
    made = prepare(ledger_url)
    notes = tmp_path / "notes"
    child = server.spawn(f"{ROLE}:run_slowly", url=ledger_url, notes=str(notes))
    deadline = time.monotonic() + 30
    while len(noted(notes)) < 3:
        assert time.monotonic() < deadline, server.log
        time.sleep(0.002)
    time.sleep(random.Random(7).uniform(0, 0.05))
    assert child.kill() == -9, server.log
    with open_store(ledger_url) as store, store.reading() as reading:
        [run] = reading.runs.page(procedure="replay")
        assert len(noted(notes)) <= run.step <= len(noted(notes)) + 1 < 10
    require_all_once(ledger_url, made, go_on(ledger_url, run.idempotency_root))


@pytest.mark.req("K-50", "K-55", "K-64")
def test_runs_of_one_selection_beside_each_other_replay_each_job_once(
    server: ForkServer, ledger_url: str, tmp_path: Path
) -> None:
    made = prepare(ledger_url, 4 * BATCH)
    notes = tmp_path / "notes"
    arguments = {"url": ledger_url, "notes": str(notes), "selected": str(tmp_path / "selected"), "runners": 3}
    children = [server.spawn(f"{ROLE}:race", **arguments) for _ in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0], server.log
    answers = [line.split() for line in noted(notes)]
    # Each selected all jobs; together they replayed all, and each counted those that another replayed first.
    assert {(state, int(total)) for state, total, _, _ in answers} == {("done", len(made))}
    assert {int(replayed) + int(passed_over) for _, _, replayed, passed_over in answers} == {len(made)}
    assert sum(int(replayed) for _, _, replayed, _ in answers) == len(made)
    with open_store(ledger_url) as store:
        assert replays(store) == dict.fromkeys(made, 1)
        assert check(store).violations == ()


@pytest.mark.req("K-50")
def test_continuing_a_live_run_is_refused_and_does_not_disturb_it(
    server: ForkServer, ledger_url: str, tmp_path: Path
) -> None:
    made = prepare(ledger_url)
    notes = tmp_path / "notes"
    child = server.spawn(f"{ROLE}:run_slowly", url=ledger_url, notes=str(notes))
    deadline = time.monotonic() + 30
    while not noted(notes):
        assert time.monotonic() < deadline, server.log
        time.sleep(0.002)
    run_id = noted(notes)[0].split()[0]
    refused = 0
    with open_store(ledger_url) as store:
        while child.running:
            try:
                report = replay.continue_run(store, run_id, **AGAIN)
            except RuntimeLeaseError:
                refused += 1
            else:
                assert report.done  # it had ended meanwhile
    assert child.wait(0) == 0, server.log
    assert refused > 0
    with open_store(ledger_url) as store:
        require_all_once(ledger_url, made, replay.inspect(store, run_id))
