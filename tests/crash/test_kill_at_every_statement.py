"""SIGKILL at every statement of one reference run on SQLite: acknowledged answers hold, and the rest is done once."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing import VirtualClock
from tests.crash.aftermath import make_template, require_sound
from tests.crash.reference_run import KEYS, reference_ledger, submit_all
from tests.support.forkserver import Child, ForkServer, shared_server
from tests.support.promises import Facts, require_promises
from tests.support.roles import noted

pytestmark = pytest.mark.attack("faults")

SEED = 20261115


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with shared_server("tests.crash.reference_run") as server:
        yield server


@pytest.fixture
def directory(sqlite_url: str) -> Path:
    return Path(sqlite_url.removeprefix("sqlite:///")).parent


class Run:
    """One copy of a ledger, and one child that runs through it until it is killed."""

    def __init__(self, server: ForkServer, directory: Path, role: str, by: str, kill_at: int | None) -> None:
        self.path = directory / f"{kill_at}.db"
        self.notes, self.counted = directory / f"{kill_at}.notes", directory / f"{kill_at}.counted"
        template = directory / "template.db"
        if template.exists():
            shutil.copyfile(template, self.path)
        self.child: Child = server.spawn(
            f"tests.crash.reference_run:{role}",
            url=str(self.path),
            notes=str(self.notes),
            counted=str(self.counted),
            by=by,
            kill_at=kill_at,
        )

    def remove(self) -> None:
        for file in self.path.parent.glob(f"{self.path.stem}.*"):
            file.unlink()


def count_steps(server: ForkServer, directory: Path, role: str, by: str) -> int:
    whole = Run(server, directory, role, by, None)
    assert whole.child.wait(30) == 0, server.log
    [count] = noted(whole.counted)
    whole.remove()
    return int(count)


def kill_at_each(server: ForkServer, directory: Path, by: str, points: list[int]) -> None:
    """Kill one run at each of these points; the next one runs while the last one is checked."""
    killed: Run | None = None
    for point in [*points, None]:
        run = None if point is None else Run(server, directory, "run", by, point)
        if killed is not None:
            assert killed.child.wait(30) == -9, f"not killed at {by} {killed.path.stem}\n{server.log}"
            try:
                require_sound(killed.path, noted(killed.notes))
            except BaseException:
                print(f"killed at {by} {killed.path.stem}")
                raise
            killed.remove()
        killed = run


def sample(server: ForkServer, directory: Path, by: str, n: int | None, role: str = "run") -> list[int]:
    """Return every point of a whole run, or `n` of them by a fixed seed."""
    points = range(1, count_steps(server, directory, role, by) + 1)
    return list(points) if n is None else sorted(random.Random(SEED).sample(points, n))


@pytest.mark.req("M-09", "M-11", "M-12", "M-20", "M-21", "W-01")
@pytest.mark.parametrize("one_in", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_any_statement_keeps_every_acknowledged_answer(
    server: ForkServer, directory: Path, one_in: int
) -> None:
    make_template(directory)
    points = sample(server, directory, "statement", None)
    assert len(points) >= 50
    kill_at_each(server, directory, "statement", points[::one_in])


@pytest.mark.req("M-09", "M-11", "M-12", "M-20", "M-21", "W-01")
def test_a_kill_within_a_statement_keeps_every_acknowledged_answer(server: ForkServer, directory: Path) -> None:
    make_template(directory)
    kill_at_each(server, directory, "opcode", sample(server, directory, "opcode", 12))


@pytest.mark.slow
@pytest.mark.req("M-09", "M-11", "M-12", "M-20", "M-21", "W-01")
@pytest.mark.parametrize("by, n", [("trigger", None), ("opcode", 1500)])
def test_a_kill_at_any_trigger_or_opcode_keeps_every_acknowledged_answer(
    server: ForkServer, directory: Path, by: str, n: int | None
) -> None:
    make_template(directory)
    kill_at_each(server, directory, by, sample(server, directory, by, n))


def create_and_kill(server: ForkServer, directory: Path, points: list[int]) -> None:
    for point in points:
        run = Run(server, directory, "create", "statement", point)
        assert run.child.wait(30) == -9, f"not killed at {point}\n{server.log}"
        with reference_ledger(str(run.path), VirtualClock()) as ledger:
            # The making of a ledger is one transaction: it is all there, or the next who opens the file makes it.
            submit_all(ledger)
            facts = Facts(ledger, effects=False)
            require_promises(facts, effects=False)
            assert len(facts.jobs) == len(KEYS)
        run.remove()


def test_a_ledger_whose_creation_was_killed_can_be_created_again(server: ForkServer, directory: Path) -> None:
    create_and_kill(server, directory, sample(server, directory, "statement", 10, "create"))


@pytest.mark.slow
def test_a_ledger_whose_creation_was_killed_anywhere_can_be_created_again(server: ForkServer, directory: Path) -> None:
    create_and_kill(server, directory, sample(server, directory, "statement", None, "create"))
