"""A process that uses a ledger forks: parent and child go on, nothing acknowledged is lost, no lock is left behind."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Ledger, Worker
from holdfast.core.errors import StoreUnavailableError
from holdfast.store.sqlite import identity
from tests.support.forkserver import ForkServer, shared_server
from tests.support.promises import Facts, require_promises
from tests.support.roles import CLIENT, COUNT, counting_ledger, create_effects, note, noted, wait_until

pytestmark = pytest.mark.attack("faults")


@pytest.fixture
def forks() -> Iterator[ForkServer]:
    with shared_server(__name__, "psycopg") as forks:
        yield forks


# ---------------------------------------------------------------------------------------------------------------------
# Roles


def submit_noted(ledger: Ledger, key: str, notes: str) -> None:
    ledger.submit(COUNT, {"key": key}, client=CLIENT, key=key)
    note(notes, key)


def fork_and_close(url: str, *, notes: str, gone: str) -> None:
    """Use a ledger, fork, and close it while the child goes on using it."""
    ledger = counting_ledger(url)
    submit_noted(ledger, "parent", notes)
    child = os.fork()
    if child == 0:
        submit_noted(ledger, "child, parent open", notes)
        while not noted(gone):
            time.sleep(0.005)
        submit_noted(ledger, "child, parent closed", notes)
        os._exit(0)
    while "child, parent open" not in noted(notes):
        time.sleep(0.005)
    ledger.close()
    note(gone, "closed")
    assert os.waitpid(child, 0)[1] == 0
    # And the parent, whose ledger opens again.
    submit_noted(ledger, "parent, child gone", notes)
    ledger.close()


def fork_while_working(url: str, *, notes: str, children: int) -> None:
    """Run a worker, with all its threads, and fork children that submit, one after the other."""
    ledger = counting_ledger(url, work_ms_max=2.0)
    worker = Worker(ledger, poll_s=0.2)
    running = threading.Thread(target=worker.run)
    running.start()
    for n in range(children):
        submit_noted(ledger, f"parent {n}", notes)
        child = os.fork()
        if child == 0:
            submit_noted(ledger, f"child {n}", notes)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    wait_until(lambda: sum(c.n for c in ledger.counts() if c.state == "succeeded") == 2 * children, 30, "all done")
    worker.stop()
    running.join()
    ledger.close()


def fork_while_another_opens(url: str, *, notes: str) -> None:
    """Fork while another thread holds what an opening ledger holds, and never lets go in the child."""
    ledger = counting_ledger(url)
    submit_noted(ledger, "parent", notes)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with ledger._lock:
            inside.set()
            leave.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(30)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        submit_noted(ledger, "child", notes)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    leave.set()
    holder.join()
    ledger.close()
    assert status == 0


def fork_holding_the_turn(url: str, *, notes: str) -> None:
    """Fork a child that does nothing for long, in the midst of a transaction."""
    ledger = counting_ledger(url)
    with ledger.store.transaction():
        child = os.fork()
        if child == 0:
            # The test ends it, and a test that failed does.
            signal.alarm(60)
            note(notes, str(os.getpid()))
        time.sleep(60)


# ---------------------------------------------------------------------------------------------------------------------
# Tests


def test_a_child_continues_when_its_parent_closes_the_ledger(
    forks: ForkServer, ledger_url: str, tmp_path: Path
) -> None:
    notes, gone = tmp_path / "notes", tmp_path / "gone"
    with counting_ledger(ledger_url) as ledger:
        create_effects(ledger)
    parent = forks.spawn(f"{__name__}:fork_and_close", url=ledger_url, notes=str(notes), gone=str(gone))
    assert parent.wait(30) == 0, forks.log
    assert noted(notes) == ["parent", "child, parent open", "child, parent closed", "parent, child gone"]
    with counting_ledger(ledger_url) as ledger:
        facts = Facts(ledger)
        require_promises(facts, acknowledged=[(CLIENT, key) for key in noted(notes)])
        assert len(facts.jobs) == 4


def test_children_of_a_working_worker_submit_without_error_or_loss(
    forks: ForkServer, ledger_url: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    with counting_ledger(ledger_url) as ledger:
        create_effects(ledger)
    parent = forks.spawn(f"{__name__}:fork_while_working", url=ledger_url, notes=str(notes), children=8)
    assert parent.wait(60) == 0, forks.log
    with counting_ledger(ledger_url) as ledger:
        facts = Facts(ledger)
        require_promises(facts, acknowledged=[(CLIENT, key) for key in noted(notes)])
        assert len(facts.jobs) == 16


def test_a_child_that_is_forked_while_another_thread_opens_the_ledger_opens_it_too(
    forks: ForkServer, ledger_url: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    parent = forks.spawn(f"{__name__}:fork_while_another_opens", url=ledger_url, notes=str(notes))
    assert parent.wait(60) == 0, forks.log
    assert noted(notes) == ["parent", "child"]


def test_the_write_lock_of_a_dead_writer_does_not_stay_with_its_children(
    forks: ForkServer, sqlite_url: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    with counting_ledger(sqlite_url) as ledger:
        create_effects(ledger)
        parent = forks.spawn(f"{__name__}:fork_holding_the_turn", url=sqlite_url, notes=str(notes))
        wait_until(lambda: noted(notes), 20, "the child lives", lambda: forks.log)
        assert parent.kill() == -9
        try:
            # The child is still there; it must not keep others from writing.
            assert ledger.submit(COUNT, {"key": "next"}, client=CLIENT, key="next").is_new
        finally:
            os.kill(int(noted(notes)[0]), signal.SIGKILL)


def _answer_of_fork(ledger: Ledger) -> str:
    """Fork a child that submits; return the code of its error, or the word `submitted`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # ends one that hangs
        try:
            ledger.submit(COUNT, {"key": "child"}, client=CLIENT, key="child")
            os.write(writing, b"submitted")
        except StoreUnavailableError as error:
            os.write(writing, error.code.encode())
        finally:
            os._exit(0)
    os.close(writing)
    answer = os.read(reading, 100).decode()
    os.close(reading)
    os.waitpid(child, 0)
    return answer


def test_a_child_forked_in_the_midst_of_a_transaction_is_refused_the_file(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.sqlite.forks.WAIT_S", 0.1)
    with counting_ledger(sqlite_url) as ledger:
        with ledger.store.reading():
            assert _answer_of_fork(ledger) == "store_unavailable"
        assert _answer_of_fork(ledger) == "submitted"


def test_a_child_that_is_forked_while_another_thread_opens_a_file_opens_one_too(sqlite_url: str) -> None:
    with counting_ledger(sqlite_url) as ledger:
        ledger.submit(COUNT, {"key": "parent"}, client=CLIENT, key="parent")
        ledger.close()  # the fork has no connection to close
        inside, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with identity._lock:
                inside.set()
                leave.wait(30)

        holder = threading.Thread(target=hold)
        holder.start()
        inside.wait(30)
        answer = _answer_of_fork(ledger)
        leave.set()
        holder.join()
        assert answer == "submitted"


def test_a_child_that_inherits_a_connection_of_the_users_own_is_refused_the_file(sqlite_url: str) -> None:
    path = sqlite_url.removeprefix("sqlite:///")
    with counting_ledger(sqlite_url) as ledger:
        ledger.submit(COUNT, {"key": "parent"}, client=CLIENT, key="parent")
        own = sqlite3.connect(path)
        own.execute("SELECT count(*) FROM holdfast_jobs").fetchone()
        assert _answer_of_fork(ledger) == "store_unavailable"
        own.close()
        assert _answer_of_fork(ledger) == "submitted"
        assert not ledger.submit(COUNT, {"key": "child"}, client=CLIENT, key="child").is_new
