"""SIGKILL at every statement of one reference run on SQLite: whatever was answered holds, the rest is done once."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.machines import ExecutionStatus, JobState
from tests.crash.reference_run import KEYS, LEASE_S, reference_ledger, submit_all
from tests.support.clock import VirtualClock
from tests.support.forkserver import Child, ForkServer
from tests.support.promises import Facts, require_all_done, require_promises
from tests.support.roles import CLIENT, create_effects, noted

SEED = 20261115


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("tests.crash.reference_run") as server:
        yield server


@pytest.fixture
def directory(sqlite_url: str) -> Path:
    return Path(sqlite_url.removeprefix("sqlite:///")).parent


class Run:
    """One copy of a ledger, and one child that runs through it until it is killed."""

    def __init__(self, server: ForkServer, directory: Path, role: str, by: str, kill_at: int | None) -> None:
        self.path = directory / f"{kill_at}.db"
        self.told, self.counted = directory / f"{kill_at}.told", directory / f"{kill_at}.counted"
        template = directory / "template.db"
        if template.exists():
            shutil.copyfile(template, self.path)
        self.child: Child = server.spawn(
            f"tests.crash.reference_run:{role}",
            url=str(self.path),
            told=str(self.told),
            counted=str(self.counted),
            by=by,
            kill_at=kill_at,
        )

    def answers(self, word: str) -> set[str]:
        """Return the keys that were answered with this word before the end."""
        lines = [line.split() for line in noted(self.told)]
        return {key for first, *keys in lines if first == word for key in keys}

    def remove(self) -> None:
        for file in self.path.parent.glob(f"{self.path.stem}.*"):
            file.unlink()


def make_template(directory: Path) -> None:
    with reference_ledger(str(directory / "template.db"), VirtualClock()) as ledger:
        create_effects(ledger)


def count_steps(server: ForkServer, directory: Path, role: str, by: str) -> int:
    whole = Run(server, directory, role, by, None)
    assert whole.child.wait(30) == 0, server.log
    [count] = noted(whole.counted)
    whole.remove()
    return int(count)


def require_sound(run: Run) -> None:
    """Check what the killed run left, as it is found and after everything in it was worked off."""
    clock = VirtualClock()
    clock.advance(10 * LEASE_S)
    with reference_ledger(str(run.path), clock) as ledger:
        found = Facts(ledger)
        require_promises(found, acknowledged=[(CLIENT, key) for key in run.answers("submitted")])
        for key in run.answers("completed"):
            assert found.by_key[CLIENT, key].state is JobState.SUCCEEDED
        for key in run.answers("committed"):
            [execution] = found.executions[found.by_key[CLIENT, key].job_id]
            assert execution.status in (ExecutionStatus.COMMITTED, ExecutionStatus.DONE)
        # A client that got no answer asks again under the same key; a worker takes up what lies there.
        submit_all(ledger)
        ledger.run_until_idle(concurrency=1)
        facts = Facts(ledger)
        require_promises(facts)
        require_all_done(facts, jobs=len(KEYS))


def kill_at_each(server: ForkServer, directory: Path, by: str, points: list[int]) -> None:
    """Kill one run at each of these points; the next one runs while the last one is checked."""
    killed: Run | None = None
    for point in [*points, None]:
        run = None if point is None else Run(server, directory, "run", by, point)
        if killed is not None:
            assert killed.child.wait(30) == -9, f"not killed at {by} {killed.path.stem}\n{server.log}"
            try:
                require_sound(killed)
            except BaseException:
                print(f"killed at {by} {killed.path.stem}")
                raise
            killed.remove()
        killed = run


@pytest.mark.req("M-09", "M-11", "M-21", "W-01")
def test_a_kill_at_any_statement_leaves_every_answer_true(server: ForkServer, directory: Path) -> None:
    make_template(directory)
    steps = count_steps(server, directory, "run", "statement")
    kill_at_each(server, directory, "statement", list(range(1, steps + 1)))
