"""Races of real processes: a grant is used by one of them, a lease won by one of them, and the other wrote nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import AuthorityError, GovernanceError
from holdfast.governance.approval import Identity, register_approver
from holdfast.governance.grants import approve
from holdfast.store import Store, open_store
from tests.governance.granting import act, contents, journal_of, requested, wanted
from tests.support.forkserver import ForkServer, shared_server
from tests.support.roles import noted, wait_until

pytestmark = pytest.mark.attack("faults")

ROUNDS = 6
RACERS = ("left", "right")
ROLE = "tests.governance.racers"


@pytest.fixture
def store(stage_url: str) -> Iterator[Store[Any]]:
    with open_store(stage_url) as store:
        yield store


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with shared_server(ROLE) as server:
        yield server


def race(server: ForkServer, role: str, directory: Path, **given: Any) -> dict[int, dict[str, str]]:
    """Let the racers run, round by round; return what each of them noted."""
    children = [server.spawn(f"{ROLE}:{role}", name=name, directory=str(directory), **given) for name in RACERS]
    for number in range(ROUNDS):
        ready = [directory / f"{name}-ready-{number}" for name in RACERS]
        wait_until(lambda ready=ready: all(map(Path.exists, ready)), 20, f"ready for {number}", lambda: server.log)
        (directory / f"go-{number}").touch()
    assert [child.wait(60) for child in children] == [0, 0], server.log
    answers: dict[int, dict[str, str]] = {number: {} for number in range(ROUNDS)}
    for line in noted(directory / "answers"):
        in_round, name, answer = line.split(" ")
        answers[int(in_round)][name] = answer
    return answers


@pytest.mark.req("L-04", "L-10", "L-13")
def test_two_processes_with_one_grant(store: Store[Any], stage_url: str, server: ForkServer, tmp_path: Path) -> None:
    targets = [f"job:{number}" for number in range(ROUNDS)]
    for target in targets:
        grant = requested(store, wanted(store, target))
        approve(store, grant.grant_id, Identity(name="bob"))
    answers = race(server, "use_grants", tmp_path, url=stage_url, targets=targets)
    with store.reading() as reading:
        leases = reading.leases.all()
        for number, target in enumerate(targets):
            assert sorted(answers[number].values()) == ["REJECT_AUTH_ALREADY_CONSUMED", "won"]
            [winner] = [name for name, answer in answers[number].items() if answer == "won"]
            loser = next(name for name in RACERS if name != winner)
            keys = [("local", f"{target} by {name}") for name in (winner, loser)]
            assert reading.jobs.by_key(keys).keys() == {keys[0]}
            assert leases[target].holder == winner
            [grant] = reading.grants.page(target=target)
            assert [row[0] for row in journal_of(store, grant.grant_id)] == ["request", "approve", "consume"]
            assert journal_of(store, grant.grant_id)[-1][3] == winner


@pytest.mark.req("L-04", "L-10")
def test_a_process_that_dies_in_its_act_consumes_no_grant(
    store: Store[Any], stage_url: str, server: ForkServer
) -> None:
    what = wanted(store)
    grant = requested(store, what)
    approve(store, grant.grant_id, Identity(name="bob"))
    before = contents(store)
    child = server.spawn(f"{ROLE}:use_a_grant_and_die", url=stage_url, target=what.target)
    assert child.wait(30) == -signal.SIGKILL, server.log
    assert contents(store) == before
    assert act(store, what) == grant.grant_id


def together(*calls: Callable[[], object]) -> list[str]:
    """Call everything at the same moment, each in a thread of its own; return the codes, in alphabetical order."""
    start = threading.Barrier(len(calls))

    def one(call: Callable[[], object]) -> str:
        start.wait(30)
        try:
            call()
        except GovernanceError as error:
            return error.code
        return "done"

    with ThreadPoolExecutor(len(calls)) as pool:
        return sorted(pool.map(one, calls))


@pytest.mark.req("L-12")
def test_of_two_first_approvers_one_is_the_first(prod_url: str) -> None:
    with open_store(prod_url) as store:
        answers = together(*(
            lambda n=n: register_approver(
                store, f"approver-{n}", f"{n:02x}" * 32, actor="adm", reason="x", bootstrap=True
            )
            for n in range(4)
        ))  # fmt: skip
        assert answers == ["bootstrap_refused"] * 3 + ["done"]
        with pytest.raises(AuthorityError) as raised:
            register_approver(store, "approver-5", "05" * 32, actor="adm", reason="x")
        assert raised.value.code == "REJECT_AUTH_MISSING"
        with store.reading() as reading:
            [approver] = reading.grants.approvers().values()
            [grant] = reading.grants.page()
        assert (approver.grant_id, grant.approved_via) == (grant.grant_id, '{"method":"bootstrap"}')


def test_of_two_requests_for_the_same_one_is_made(store: Store[Any]) -> None:
    what = wanted(store)
    assert together(*[lambda: requested(store, what)] * 4) == ["done"] + ["grant_exists"] * 3
    with store.reading() as reading:
        assert len(reading.grants.page()) == 1


@pytest.mark.req("L-14")
def test_two_processes_for_one_lease(store: Store[Any], stage_url: str, server: ForkServer, tmp_path: Path) -> None:
    answers = race(server, "take_leases", tmp_path, url=stage_url, rounds=ROUNDS)
    with store.reading() as reading:
        leases = reading.leases.all()
    for number in range(ROUNDS):
        assert sorted(answers[number].values()) == ["lost", "won"]
        lease = leases[f"lease-{number}"]
        assert (answers[number][lease.holder], lease.token) == ("won", 1)
