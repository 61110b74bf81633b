"""SIGKILL of processes that run a procedure, at random moments: what is there in the end is what one run leaves."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.check.runner import check
from holdfast.governance.approval import Identity
from holdfast.governance.grants import approve, request
from holdfast.governance.runs.procedure import run
from holdfast.store import Store, open_store
from tests.crash.procedure_run import BOOKS, WHO, fill, make
from tests.governance.shelves import essence
from tests.support.forkserver import Child, ForkServer, shared_server
from tests.support.roles import noted, wait_until

pytestmark = pytest.mark.attack("faults")

SEED = 20261115
NEAR_THE_END = 8  # PostgreSQL's plans are let go of after some time, which is a statement more in some runs
ROLE = "tests.crash.procedure_run"
ON_SHELVES = "SELECT root, book FROM shelf ORDER BY root, book"


@pytest.fixture
def server() -> Iterator[ForkServer]:
    with shared_server(ROLE, "psycopg") as server:
        yield server


def params_of(number: int) -> dict[str, str]:
    """Return the parameters of one of many runs: every second, from the first on, fails at its last step."""
    shelf = {"shelf": str(number)}
    return {**shelf, "fails": BOOKS[-1]} if number % 2 == 0 else shelf


def verdict_of(number: int) -> str:
    return f"COMP_{BOOKS[-1]}" if "fails" in params_of(number) else "DONE"


def uninterrupted(directory: Path, numbers: Sequence[int]) -> dict[str, list[str]]:
    with make(str(directory / "undisturbed.db")) as store:
        for number in numbers:
            run(store, fill, params_of(number), root=f"r{number}", **WHO)
        return essence(store)


def require_sound(store: Store[Any], numbers: Sequence[int], directory: Path) -> None:
    whole = [number for number in numbers if verdict_of(number) == "DONE"]
    with store.reading() as reading:
        assert reading.execute(ON_SHELVES) == sorted((f"r{number}", book) for number in whole for book in BOOKS)
        assert len(reading.grants.page(limit=1000)) == len(numbers)
    assert essence(store) == uninterrupted(directory, numbers)
    assert check(store).violations == ()


# ---------------------------------------------------------------------------------------------------------------------
# Killed at a statement


def steps_of(server: ForkServer, url: str, notes: Path, number: int) -> int:
    """Return how many statements and file operations a whole run has."""
    role = {"url": url, "root": f"r{number}", "params": params_of(number), "notes": str(notes)}
    assert server.spawn(f"{ROLE}:run_until", **role).wait(30) == 0, server.log
    verdict, count = noted(notes)[-1].split()
    assert verdict == verdict_of(number)
    return int(count)


def counted(server: ForkServer, url: str, notes: Path) -> tuple[int, int]:
    """Make the ledger, and return how many steps there are to the stop, and to the end."""
    make(url).close()
    back, forward = (steps_of(server, url, notes, number) for number in (0, 1))
    assert 50 < forward < back
    return back, forward


def kill_at_each(server: ForkServer, url: str, directory: Path, points: list[int]) -> int:
    """Kill one run at each of these points, and let a second process end it; return how many were killed."""
    notes, killed = directory / "notes", 0
    for number, point in enumerate(points, start=2):
        role = {"url": url, "root": f"r{number}", "params": params_of(number), "notes": str(notes)}
        status = server.spawn(f"{ROLE}:run_until", kill_at=point, **role).wait(30)
        assert status in (-9, 0), f"killed at {point}\n{server.log}"
        assert server.spawn(f"{ROLE}:run_until", **role).wait(30) == 0, f"killed at {point}\n{server.log}"
        assert noted(notes)[-1].split()[0] == verdict_of(number), f"killed at {point}"
        killed += status == -9
    with open_store(url) as store:
        require_sound(store, range(2 + len(points)), directory)
    return killed


@pytest.mark.req("L-08", "L-09", "L-10", "L-21")
@pytest.mark.parametrize(
    "ledger_url, n",
    [("sqlite", 6), pytest.param("postgres", 2, marks=pytest.mark.pg)],
    indirect=["ledger_url"],
    ids=["sqlite", "postgres"],
)
def test_a_killed_run_is_resumed_with_the_result_of_one_run(
    server: ForkServer, ledger_url: str, tmp_path: Path, n: int
) -> None:
    totals, chance = counted(server, ledger_url, tmp_path / "notes"), random.Random(SEED)
    points = [chance.randrange(1, totals[number % 2] - NEAR_THE_END) for number in range(n)]
    assert kill_at_each(server, ledger_url, tmp_path, points) == n


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.req("L-08", "L-09", "L-10", "L-21")
def test_a_run_killed_anywhere_is_resumed_with_the_result_of_one_run(
    server: ForkServer, ledger_url: str, tmp_path: Path
) -> None:
    totals = counted(server, ledger_url, tmp_path / "notes")
    points = [point for point in range(1, totals[0] + 1) for _ in totals]
    assert kill_at_each(server, ledger_url, tmp_path, points) >= sum(totals) - 2 * NEAR_THE_END


# ---------------------------------------------------------------------------------------------------------------------
# Killed at a moment, several at once


def kill_until_done(server: ForkServer, url: str, directory: Path, numbers: Sequence[int], *, beside: int) -> int:
    """Bring each run to its end by processes that are killed, `beside` of them at once; return how many died."""
    chance, killed = random.Random(SEED), 0
    for number in numbers:
        notes, begun = directory / f"notes-{number}", directory / f"begun-{number}"
        role = {"url": url, "root": f"r{number}", "params": params_of(number), "begun": str(begun), "notes": str(notes)}
        life_s, born = 0.02, 0
        while not noted(notes):
            children = [server.spawn(f"{ROLE}:bring_to_end", **role) for _ in range(beside)]
            born += beside
            wait_until(lambda: len(noted(begun)) >= born, 30, "they have begun", lambda: server.log)  # noqa: B023
            time.sleep(chance.uniform(0, life_s))
            life_s *= 1.25  # however slow the machine is, one process comes to the end at last
            killed += sum(child.kill() == -9 for child in children)
        assert set(noted(notes)) == {f"r{number} {verdict_of(number)}"}, server.log
    return killed


@pytest.mark.timeout(1800)
@pytest.mark.req("L-08", "L-09", "L-10", "L-21")
@pytest.mark.parametrize(
    "roots, beside", [(1, 2), pytest.param(30, 1, marks=pytest.mark.slow), pytest.param(30, 3, marks=pytest.mark.slow)]
)
def test_killed_processes_that_share_a_run_have_the_result_of_one_run(
    server: ForkServer, ledger_url: str, tmp_path: Path, roots: int, beside: int
) -> None:
    # Of several, one that looks late could begin again what another has brought to its stop: they share what ends done.
    numbers = range(roots) if beside == 1 else range(1, 2 * roots, 2)
    make(ledger_url).close()
    assert kill_until_done(server, ledger_url, tmp_path, numbers, beside=beside) >= roots // 2
    with open_store(ledger_url) as store:
        require_sound(store, numbers, tmp_path)


@pytest.mark.req("L-04", "L-10")
def test_of_processes_with_one_grant_one_runs_and_the_others_write_nothing(
    server: ForkServer, empty_url: str, tmp_path: Path
) -> None:
    with make(empty_url, environment="stage") as store:
        wanted = fill.wanted({"shelf": "one"}, "stage", "ann")
        assert wanted is not None
        draft = request(store, wanted, requester="ann", rollback_plan="take the books away", reason="books")
        grant_id = approve(store, draft.grant_id, Identity(name="carol")).grant_id
    notes, start = tmp_path / "notes", tmp_path / "start"
    children: list[Child] = [
        server.spawn(f"{ROLE}:race", url=empty_url, root=f"r{n}", grant_id=grant_id, start=str(start), notes=str(notes))
        for n in range(4)
    ]
    wait_until(lambda: len(noted(notes)) == 4, 30, "all are ready", lambda: server.log)
    start.touch()
    assert [child.wait(60) for child in children] == [0] * 4, server.log
    answers = dict(line.split() for line in noted(notes)[4:])
    assert sorted(answers.values()) == ["DONE", *["REJECT_AUTH_ALREADY_CONSUMED"] * 3]
    [winner] = [root for root, answer in answers.items() if answer == "DONE"]
    with open_store(empty_url) as store, store.reading() as reading:
        assert [(run.idempotency_root, str(run.state)) for run in reading.runs.page()] == [(winner, "done")]
        assert [(grant.grant_id, str(grant.state)) for grant in reading.grants.page()] == [(grant_id, "consumed")]
        assert reading.execute(ON_SHELVES) == [(winner, book) for book in BOOKS]
        assert [lease.holder for lease in reading.leases.all().values()] == [f"ann/{winner}"]
