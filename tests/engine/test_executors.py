"""Executors that pickle what they are given, such as Dask's: a handler goes there as a name and JSON."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

from holdfast import Execution, Ledger
from holdfast.core.machines import JobState
from tests.engine import handlers
from tests.engine.database import Database
from tests.engine.working import drained, ended


@pytest.fixture(scope="module")
def dask_executor() -> Iterator[Executor]:
    """Dask's executor on two processes; a task whose process dies is not given to another one.

    The other process takes what follows: Dask starts a new one in time only if the machine is not too busy.
    """
    small: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "silence_logs": 50}
    # Without an address the scheduler takes port 8787 of every interface, and warns where another test has it.
    small["scheduler_kwargs"] = {"dashboard_address": "127.0.0.1:0"}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(host="127.0.0.1", dashboard_address=None, **small) as cluster,  # type: ignore[no-untyped-call]
        Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        yield client.get_executor()


@pytest.fixture
def live(ledger_url: str) -> Iterator[Ledger]:
    with Ledger(ledger_url, handlers.some()) as ledger:
        yield ledger


def test_a_job_whose_node_is_killed_runs_again_on_dask_and_takes_effect_once(
    live: Ledger, database: Database, dask_executor: Executor
) -> None:
    database.run("CREATE TABLE thumbs (path TEXT NOT NULL)")
    dying, good = live.submit("dies_at_first").job_id, live.submit("good", {"n": 4}).job_id
    worker = drained(live, executor=dask_executor)
    job = live.job(dying)
    assert (job.state, job.attempts, job.last_error_code) == (JobState.SUCCEEDED, 2, "process_died")
    result = json.loads(job.result or "")
    assert len({result["first"], result["now"], os.getpid()}) == 3
    assert database.run("SELECT path FROM thumbs") == [("attempt 2",)]
    assert (live.job(good).state, live.job(good).attempts, worker.recycle) == (JobState.SUCCEEDED, 1, False)


def test_a_handler_that_dask_cannot_import_fails_on_record_and_the_worker_continues(
    live: Ledger, dask_executor: Executor
) -> None:
    def local(run: Execution) -> None:
        """Cannot be found by name."""

    job_id = live.submit(live.operation("nameless", max_attempts=1)(local).call()).job_id
    good = live.submit("good").job_id
    worker = drained(live, executor=dask_executor)
    assert ended(live.job(job_id))[:2] == ("failed", "handler_unnamed")
    assert (live.job(good).state, worker.recycle) == (JobState.SUCCEEDED, False)


class Pickling(Executor):
    """An executor of an application: it pickles what it is given, and runs it at once."""

    def __init__(self, *, later: bool = False) -> None:
        self._later = later  # whether a failure to pickle is found by the caller or by the future
        self.sent: list[bytes] = []
        self.names: list[str] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            self.sent.append(pickle.dumps((fn, args, kwargs)))
            self.names.append(fn.__name__)
        except Exception as error:
            if not self._later:
                raise TypeError("cannot send it") from error
            future.set_exception(TypeError("cannot send it"))
        else:
            called, given, named = pickle.loads(self.sent[-1])  # noqa: S301 - pickled above
            future.set_result(called(*given, **named))
        return future


class NodeLostError(Exception):
    """An error of the package that runs the nodes."""

    __module__ = "cluster.exceptions"


class Losing(Executor):
    """An executor that sends work to a node, and loses it."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        pickle.dumps((fn, args, kwargs))
        future.set_exception(self._error)
        return future


class Calling(Executor):
    """An executor of an application that calls in this process."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_all_that_is_pickled_is_a_name_and_json(live: Ledger) -> None:
    executor = Pickling()
    job_id = live.submit("good", {"n": 4}).job_id
    drained(live, executor=executor)
    assert live.job(job_id).state is JobState.SUCCEEDED
    assert executor.names == ["good"]
    [sent] = executor.sent
    work = pickle.loads(sent)[0]  # noqa: S301 - pickled by the test
    assert work.func.__qualname__ == "in_pool"
    assert work.args[0] == "tests.engine.handlers:good"
    assert json.loads(work.args[1])["attempt"][0]["job_id"] == job_id


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_a_handler_that_cannot_be_sent_is_recorded_as_failed(live: Ledger, later: bool) -> None:
    operation = live.operation("nameless", max_attempts=1)(lambda run: None)
    job_id = live.submit(operation.call()).job_id
    worker = drained(live, executor=Pickling(later=later))
    assert ended(live.job(job_id))[:2] == ("failed", "handler_unnamed")
    assert worker.recycle is False


@pytest.mark.parametrize(
    "error, code",
    [(NodeLostError("node 7"), "process_died"), (ModuleNotFoundError("holdfast"), "module_not_found_error")],
)
def test_only_an_error_of_the_cluster_means_that_a_node_was_lost(live: Ledger, error: Exception, code: str) -> None:
    job_id = live.submit("good", {"n": 4}).job_id
    drained(live, executor=Losing(error))
    assert live.job(job_id).last_error_code == code


def test_an_executor_of_this_process_runs_handlers_that_have_no_name(live: Ledger) -> None:
    job_id = live.submit(live.operation("nameless")(lambda run: os.getpid()).call()).job_id
    drained(live, executor=Calling())
    assert live.receipt(job_id).result == os.getpid()
