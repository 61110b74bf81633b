"""Handlers in other processes: children of the worker, and executors of an application."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from holdfast import Execution, LeaseLostError, Ledger, Worker
from holdfast.core.errors import InputError
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.child import Channel, _ChildExecution, attempt_from, handler_name, plain
from holdfast.engine.worker.processes import _reply
from holdfast.store import Lease
from holdfast.testing import VirtualClock, virtual_world
from tests.engine import handlers
from tests.engine.database import Database
from tests.engine.working import PATIENCE_S, drained, ended, eventually, threaded

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def live(ledger_url: str) -> Iterator[Ledger]:
    """A ledger on the real clock, with all the handlers and room for more."""
    with Ledger(ledger_url, handlers.some()) as ledger:
        yield ledger


@pytest.fixture
def thumbs(database: Database) -> Database:
    database.run("CREATE TABLE thumbs (path TEXT NOT NULL)")
    return database


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as pool:
        yield pool


def is_gone(pid: int) -> bool:
    """Return whether a process has ended; a zombie has."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):  # gone before the open, or between the open and the read
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


# -- the execution that a handler gets there ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["processes", "pool"])
def test_an_execution_in_another_process_can_do_what_one_in_a_thread_can(
    live: Ledger, thumbs: Database, pool: ProcessPoolExecutor, kind: str
) -> None:
    job_id = live.submit("shows_all", {"word": "é'\n"}, client="web", key="a").job_id
    before = live.job(job_id)
    drained(live, executor=pool if kind == "pool" else kind)
    after = live.job(job_id)
    assert ended(after) == ("succeeded", None, None)
    result = json.loads(after.result or "")
    assert result.pop("pid") != os.getpid()
    with live.store.reading() as reading:
        [execution] = reading.lists.executions(job_id)
        assert reading.notes.checkpoints(job_id) == {"word": '["é\'\\n"]'}
        [follow] = reading.jobs.by_key([("web", "follow")]).values()
    assert result == {
        "kept": ["é'\n"],
        "cancelled": False,
        "attempt": 1,
        "token": execution.lease_token,
        "job": [job_id, "shows_all", before.payload, before.created_at.isoformat()],
        "big": 2**70,
    }
    assert thumbs.run("SELECT path FROM thumbs ORDER BY path") == [("by hand",), ("é'\n",)]
    assert (follow.operation, follow.payload, follow.state) == ("good", '{"n":5}', JobState.SUCCEEDED)
    if kind == "pool":  # it writes its own; a child's progress goes with the next heartbeat
        assert (execution.progress, execution.progress_note) == (0.25, "a quarter")


@pytest.mark.parametrize("kind", ["processes", "pool"])
def test_a_value_that_json_cannot_represent_is_refused_in_the_handler(
    live: Ledger, thumbs: Database, pool: ProcessPoolExecutor, kind: str
) -> None:
    names = {"bytes": "bytes", "decimal": "Decimal", "tuple": "tuple", "nan": "nan"}
    jobs = {name: live.submit("stages_what_json_cannot_carry", {"kind": name}).job_id for name in names}
    committing = live.submit("commits_itself").job_id
    drained(live, executor=pool if kind == "pool" else kind)
    for name, job_id in jobs.items():
        why = "nan is not JSON" if name == "nan" else f"{names[name]} is not a JSON type"
        message = f"EffectError: the parameters of an effect must be JSON values in a process: {why}"
        assert ended(live.job(job_id)) == ("failed", "effect_failed", message)
    message = "InputError: run.commit works only in the worker's own process"
    assert ended(live.job(committing)) == ("failed", "bad_input", message)
    assert thumbs.run("SELECT path FROM thumbs") == []


def test_async_handlers_stay_in_the_workers_process(live: Ledger) -> None:
    job_id = live.submit("runs_on_a_loop").job_id
    drained(live, executor="processes")
    assert live.receipt(job_id).result == os.getpid()


# -- names ------------------------------------------------------------------------------------------------------------


def local() -> Callable[..., Any]:
    def inner(run: Execution) -> None:
        """Cannot be found by name."""

    return inner


class Callables:
    def __call__(self, run: Execution) -> None:
        """Have no name at all."""

    def method(self, run: Execution) -> None:
        """Need an instance."""


shadowed = local()
shadowed.__qualname__ = "local"  # the name of something else

UNNAMED: dict[str, Callable[..., Any]] = {
    "lambda": lambda run: None,
    "local": local(),
    "object": Callables(),
    "method": Callables().method,
    "shadowed": shadowed,
}


@pytest.mark.parametrize("fn", UNNAMED.values(), ids=UNNAMED)
def test_a_handler_without_a_name_of_its_own_is_a_typed_error_with_a_next_step(fn: Callable[..., Any]) -> None:
    with pytest.raises(InputError) as caught:
        handler_name(fn)
    assert caught.value.message.startswith("another process cannot import the handler ")
    assert "module" in caught.value.hint


def test_a_script_is_no_module_and_a_module_that_is_run_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)

    def handler(run: Execution) -> None:
        """Be declared in the main module."""

    handler.__module__, handler.__qualname__ = "__main__", "handler"
    vars(main)["handler"] = handler
    main.__spec__ = None
    with pytest.raises(InputError):
        handler_name(handler)
    main.__spec__ = ModuleSpec("shop.jobs", None)
    assert handler_name(handler) == "shop.jobs:handler"


def test_named_handlers_are_found() -> None:
    assert handler_name(handlers.good.fn) == "tests.engine.handlers:good"


@pytest.mark.parametrize("kind", ["processes", "pool"])
def test_a_handler_that_cannot_be_named_is_recorded_as_failed_and_the_worker_continues(
    live: Ledger, pool: ProcessPoolExecutor, kind: str
) -> None:
    nameless = live.operation("nameless", max_attempts=1)(local())
    job_id, good = live.submit(nameless.call()).job_id, live.submit("good").job_id
    drained(live, executor=pool if kind == "pool" else kind)
    message = (
        f"another process cannot import the handler {__name__}:local.<locals>.inner. "
        "Define it by name at the top level of a module that can be imported, or use threads."
    )
    assert ended(live.job(job_id)) == ("failed", "handler_unnamed", message)
    assert live.job(good).state is JobState.SUCCEEDED


# -- sudden ends ------------------------------------------------------------------------------------------------------


def test_a_child_that_dies_fails_its_own_attempt_and_is_replaced(live: Ledger) -> None:
    ends = {
        "SIGSEGV": "signal SIGSEGV",
        "exit": "exit code 3",
        "SIGKILL": "signal SIGKILL",
        "closed line": "exit code 1",
        "noise": "signal SIGKILL",
        "orphan": "exit code 4",
    }
    jobs = {by: live.submit("dies", {"by": by}).job_id for by in ends}
    good = [live.submit("good", {"n": n}).job_id for n in range(4)]
    drained(live, executor="processes", concurrency=2)
    for by, how in ends.items():
        message = f"the handler's process ended: {how}"
        assert ended(live.job(jobs[by])) == ("failed", "process_died", message), by
    assert {live.job(job_id).state for job_id in good} == {JobState.SUCCEEDED}
    assert {live.job(job_id).attempts for job_id in good} == {1}


@pytest.mark.req("M-08", "M-09")
def test_the_death_of_a_child_is_transient_and_its_checkpoints_and_effects_are_kept_once(
    live: Ledger, thumbs: Database
) -> None:
    job_id = live.submit("dies_at_first").job_id
    drained(live, executor="processes")
    job = live.job(job_id)
    assert (job.state, job.attempts, job.last_error_code) == (JobState.SUCCEEDED, 2, "process_died")
    result = json.loads(job.result or "")
    assert result["first"] != result["now"]
    assert thumbs.run("SELECT path FROM thumbs") == [("attempt 2",)]


def test_past_its_timeout_a_child_is_killed_with_what_it_started_and_replaced(live: Ledger, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    slow, good = live.submit("hangs", {"note": str(note)}).job_id, live.submit("good").job_id
    worker = drained(live, executor="processes")
    assert worker.recycle is False
    assert ended(live.job(slow)) == ("failed", "timed_out", "the handler ran longer than 0.3 s")
    child, grandchild = map(int, note.read_text(encoding="ascii").split())
    eventually(lambda: is_gone(child) and is_gone(grandchild), "the end of both processes")
    after: Any = live.receipt(good).result
    assert after["pid"] not in (child, os.getpid())


def test_signals_that_stop_the_worker_do_not_stop_its_children(sqlite_url: str) -> None:
    with Ledger(sqlite_url, handlers.some()) as ledger:
        job_id = ledger.submit("signals_itself_to_stop").job_id
        drained(ledger, executor="processes")
        assert ledger.receipt(job_id).result == "went on"


def test_a_graceful_stop_returns_the_attempt_of_a_child_and_ends_the_child(live: Ledger, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    job_id = live.submit("waits", {"note": str(note)}).job_id
    worker = Worker(live, concurrency=1, executor="processes", poll_s=0.05, drain_s=0.05)
    with threaded(worker.run):
        eventually(lambda: note.exists() and note.read_text(encoding="ascii"))
        worker.stop()
    job = live.job(job_id)
    assert (job.state, job.attempts, job.excused, job.spent) == (JobState.PENDING, 1, 1, 0)
    child = int(note.read_text(encoding="ascii"))
    eventually(lambda: is_gone(child), "the end of the child")


def test_a_child_that_died_while_it_was_idle_costs_no_attempt(sqlite_url: str) -> None:
    class Cruel(Worker):
        """A worker whose idle child is killed."""

        killed = 0

        def _write(self, room: int) -> list[HeldAttempt]:
            for task in [running.task for running in self._ended]:
                result = json.loads(getattr(task.command, "result", None) or "null") if task else None
                if result and not self.killed:
                    self.killed = result["pid"]
                    os.kill(self.killed, signal.SIGKILL)
                    os.waitid(os.P_PID, self.killed, os.WEXITED | os.WNOWAIT)  # it is gone, and not yet waited for
            return super()._write(room)

    with Ledger(sqlite_url, handlers.some()) as ledger:
        jobs = [ledger.submit("good", {"n": n}).job_id for n in range(3)]
        worker = Cruel(ledger, concurrency=1, batch_max=1, executor="processes", poll_s=0.05)
        worker.run(until_idle=True)
        assert worker.killed > 0
        assert [(ledger.job(job_id).state, ledger.job(job_id).attempts) for job_id in jobs] == [
            (JobState.SUCCEEDED, 1)
        ] * 3


def test_a_child_dies_with_its_worker(sqlite_url: str, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with Ledger(sqlite_url, handlers.some()) as ledger:
        ledger.submit("waits", {"note": str(note)})
        script = (
            "import sys; from holdfast import Ledger, Worker; from tests.engine import handlers;"
            "Worker(Ledger(sys.argv[1], handlers.operations), executor='processes', concurrency=1).run()"
        )
        with subprocess.Popen([sys.executable, "-c", script, sqlite_url], cwd=ROOT) as worker:
            eventually(lambda: note.exists() and note.read_text(encoding="ascii"))
            worker.kill()
        child = int(note.read_text(encoding="ascii"))
        eventually(lambda: is_gone(child), "the end of the child")


# -- the pipe between worker and child ---------------------------------------------------------------------------------


@pytest.fixture
def running(sqlite_url: str, clock: VirtualClock) -> Iterator[HeldAttempt]:
    with Ledger(sqlite_url, world=virtual_world(clock)) as ledger:
        ledger.submit("noop")
        [attempt] = ledger.perform(lambda tx: tx.executions.claim(Lease(owner="worker-1", seconds=30)))
        yield HeldAttempt(ledger, attempt)


@pytest.fixture
def asking(running: HeldAttempt) -> Iterator[_ChildExecution]:
    """An execution at the child's end of a pipe that a thread answers as a worker does."""
    ours, theirs = socket.socketpair()
    line = Channel(ours)

    def serve() -> None:
        while (message := line.receive()) is not None:
            line.send(_reply(running, *message["request"]))
        line.close()

    thread = threading.Thread(target=serve)
    thread.start()
    end = Channel(theirs)
    yield _ChildExecution(end, running.record)
    end.close()
    thread.join(PATIENCE_S)


def test_a_checkpoint_under_a_lost_lease_is_refused_at_the_other_end(
    asking: _ChildExecution, running: HeldAttempt, clock: VirtualClock
) -> None:
    assert asking.checkpoint("a", lambda: {"x": 1}) == {"x": 1}
    clock.advance(31)
    with pytest.raises(LeaseLostError) as caught:
        asking.checkpoint("b", lambda: 2)
    assert caught.value.message == f"the lease of job {running.job.job_id} was lost; no checkpoint was stored"
    assert asking.checkpoint("a", lambda: {"y": 2}) == {"x": 1}
    with running.ledger.store.reading() as reading:
        assert reading.notes.checkpoints(running.job.job_id) == {"a": '{"x":1}'}


def test_threads_of_a_handler_may_use_the_execution_at_the_same_time(asking: _ChildExecution) -> None:
    with ThreadPoolExecutor(4) as threads:
        kept = threads.map(lambda n: asking.checkpoint(f"n{n}", lambda: n), range(40))
    assert list(kept) == list(range(40))


def test_a_thread_that_outlives_its_handler_gets_no_answer(asking: _ChildExecution, running: HeldAttempt) -> None:
    asking.end()
    for ask in (lambda: asking.checkpoint("late", lambda: 1), lambda: asking.progress(0.5), lambda: asking.cancelled):
        with pytest.raises(LeaseLostError) as refused:
            ask()
        assert refused.value.context == {"job_id": running.job.job_id}
    with running.ledger.store.reading() as reading:
        assert reading.notes.checkpoints(running.job.job_id) == {}


def test_cancelled_is_read_from_the_worker_each_time(asking: _ChildExecution, running: HeldAttempt) -> None:
    before = asking.cancelled
    running.stop()
    assert (before, asking.cancelled) == (False, True)


def test_progress_is_noted_for_the_next_heartbeat(asking: _ChildExecution, running: HeldAttempt) -> None:
    asking.progress(0.75, "most")
    execution = running.record.execution
    assert running.ledger.take_progress() == [(execution, 0.75, "most")]
    with pytest.raises(InputError):
        asking.progress(2)


def test_an_execution_refuses_to_work_in_a_fork(asking: _ChildExecution, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_pid", os.getpid() + 1)
    with pytest.raises(InputError) as refused:
        asking.checkpoint("a", lambda: 1)
    assert refused.value.context == {"pid": os.getpid() + 1}


# -- executors --------------------------------------------------------------------------------------------------------


def test_a_broken_pool_fails_the_attempt_and_is_replaced(live: Ledger) -> None:
    before = set(multiprocessing.active_children())
    with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as pool:
        dead = live.submit("dies", {"by": "exit"}).job_id
        worker = drained(live, executor=pool, batch_max=1)
        good = live.submit("good").job_id
        assert drained(live, executor=pool, batch_max=1).recycle is False
    assert worker.recycle is False
    state, code, message = ended(live.job(dead))
    assert (state, code) == ("failed", "process_died")
    assert (message or "").startswith("BrokenProcessPool: ")
    assert live.job(good).state is JobState.SUCCEEDED
    eventually(lambda: set(multiprocessing.active_children()) <= before, "the end of both pools")


def test_a_cancellation_reaches_a_handler_in_a_pool(live: Ledger, pool: ProcessPoolExecutor, tmp_path: Path) -> None:
    started = tmp_path / "started"
    job_id = live.submit("until_cancelled", {"then": "raise", "started": str(started)}).job_id
    worker = Worker(live, concurrency=1, executor=pool, poll_s=0.05)
    with threaded(worker.run):
        eventually(started.exists)
        live.cancel(job_id)
        live.receipt(job_id).wait(PATIENCE_S)
        worker.stop()
    assert ended(live.job(job_id)) == ("quarantined", "cancelled", "Cancel: as you wish")


def test_an_object_that_is_not_an_executor_is_refused(sqlite_url: str) -> None:
    executor: Any = "fibres"
    with Ledger(sqlite_url) as ledger, pytest.raises(InputError) as refused:
        Worker(ledger, executor=executor).run()
    assert refused.value.context == {"executor": "fibres"}


def test_a_record_reaches_the_child_unchanged(running: HeldAttempt) -> None:
    crossed = attempt_from(json.loads(json.dumps(plain((running.record.job, running.record.execution)))))
    assert crossed == running.record
    assert isinstance(crossed.job, Job)
