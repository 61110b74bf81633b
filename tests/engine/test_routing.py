"""A job runs on a handler that supports its protocol version; a fleet is upgraded while it runs."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Call, Execution, Ledger, Operations
from holdfast.core.errors import ArgumentsError, InputError, UnknownOperationError
from holdfast.core.machines import JobState
from holdfast.core.protocol import chosen, newest, ranked, speaks
from holdfast.explain.explain import explain
from holdfast.explain.explanation import JobVerdict
from holdfast.store import Declared, create_store
from holdfast.testing import VirtualClock, virtual_world
from tests.engine import fleet
from tests.engine.working import drained, excuses
from tests.support.forkserver import ForkServer, shared_server
from tests.support.promises import Facts, require_promises
from tests.support.roles import noted, wait_until

# ---------------------------------------------------------------------------------------------------------------------
# Which versions a handler supports


@pytest.mark.req("L-16")
@pytest.mark.parametrize(
    "handler, requested, does",
    [
        ("1.0.0", "1.0.0", True),
        ("1.2.0", "1.0.0", True),
        ("1.10.0", "1.9.9", True),  # by number, not by letter
        ("1.0.0", "1.0.1", False),
        ("2.0.0", "1.0.0", False),
        ("1.9.0", "2.0.0", False),
        ("0.3.1", "0.3.0", True),
        ("0.4.0", "0.3.9", False),  # before 1.0.0 a minor version may break
        ("1.0.0", "0.9.0", False),
        ("2.0.0", "2.0.0-rc.1", True),
        ("2.0.0-rc.1", "2.0.0", False),
        ("2.0.0-rc.2", "2.0.0-rc.1", True),
        ("2.0.0-rc.10", "2.0.0-rc.9", True),
        ("one", "one", True),
        ("one", "two", False),
        ("1.0.0", "one", False),
    ],
)
def test_a_handler_supports_a_version_of_its_major(handler: str, requested: str, does: bool) -> None:
    assert speaks(handler, requested) is does


@pytest.mark.parametrize(
    "here, requested, takes",
    [
        (["1.0.0", "1.1.0", "1.2.0", "2.0.0"], "1.1.0", "1.1.0"),  # the exact one, although a newer one could run it
        (["1.0.0", "1.2.0", "1.3.0", "2.0.0"], "1.1.0", "1.3.0"),  # else the newest that supports it
        (["1.9.0", "1.10.0"], "1.0.0", "1.10.0"),
        (["1.0.0", "2.0.0"], "1.0.1", None),
        (["2.0.0"], "1.0.0", None),
        ([], "1.0.0", None),
    ],
)
def test_the_exact_or_newest_compatible_handler_is_chosen(here: list[str], requested: str, takes: str | None) -> None:
    assert chosen(here, requested) == takes
    assert chosen(list(reversed(here)), requested) == takes


VERSIONS = st.builds("{}.{}.{}{}".format, *[st.integers(0, 12)] * 3, st.sampled_from(["", "-rc.1", "-rc.2", "-a"]))


@given(st.lists(VERSIONS, max_size=6, unique=True), VERSIONS)
def test_the_chosen_handler_is_the_best_compatible_one(here: list[str], requested: str) -> None:
    takes = chosen(here, requested)
    able = [version for version in here if speaks(version, requested)]
    assert (takes is None) is (able == [])
    if takes is not None:
        assert takes in able
        assert takes == requested or (requested not in here and takes == newest(able))
        theirs, ours = ranked(requested), ranked(takes)
        assert theirs is not None
        assert ours is not None
        assert (ours.major, ours >= theirs) == (theirs.major, True)


RISING = (
    "1.0.0-1", "1.0.0-2", "1.0.0-10", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.2", "1.0.0-alpha.beta", "1.0.0-beta",
    "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1-0", "1.0.1",
)  # fmt: skip


@pytest.mark.req("L-16")
def test_pre_releases_rank_as_semver_says() -> None:
    for lower, higher in pairwise(RISING):
        assert (speaks(higher, lower), speaks(lower, higher)) == (True, False)
    assert newest(RISING[:-1]) == "1.0.1-0"


def test_a_version_has_at_most_64_characters() -> None:
    longest = "1.0.0-" + "a" * 58
    assert (ranked(longest) is None, ranked(longest + "a") is None) == (False, True)


def test_a_version_that_does_not_rank_is_below_all_others() -> None:
    assert newest(["zebra", "0.0.1-a"]) == "0.0.1-a"
    assert newest(["build 6", "build 7"]) == "build 7"
    assert newest([]) is None


# ---------------------------------------------------------------------------------------------------------------------
# Several versions in one process


def declare(operations: Operations | Ledger, *versions: str, name: str = "ship") -> None:
    for version in versions:

        def handler(run: Execution, by: str = version) -> str:
            return by

        operations.operation(name, version=version)(handler)


@pytest.mark.req("L-16")
def test_a_name_may_be_declared_once_for_each_version() -> None:
    operations = Operations()
    declare(operations, "1.9.0", "2.0.0", "1.10.0")
    assert operations.versions("ship") == ["1.9.0", "2.0.0", "1.10.0"]
    assert len(operations) == 3
    assert [operation.version for operation in operations] == ["1.9.0", "2.0.0", "1.10.0"]

    def found(version: str | None = None) -> str | None:
        operation = operations.get("ship", version)
        return None if operation is None else operation.version

    assert [found(), found("1.9.0"), found("1.0.0"), found("2.0.0"), found("2.0.1"), found("0.1.0")] == [
        "2.0.0", "1.9.0", "1.10.0", "2.0.0", None, None,
    ]  # fmt: skip
    assert operations.get("nothing", "1.0.0") is None
    with pytest.raises(InputError) as raised:
        declare(operations, "1.9.0")
    assert raised.value.message == "operation 'ship' version 1.9.0 is declared twice"
    assert len(operations) == 3


@pytest.mark.parametrize("version", ["1", "1.0", "v1.0.0", "1.0.0+build", "01.0.0", "latest", ""])
def test_a_version_is_semver(version: str) -> None:
    with pytest.raises(InputError) as raised:
        declare(Operations(), version)
    assert (raised.value.code, raised.value.exit_code) == ("bad_input", 2)
    assert raised.value.message == f"ship: {version!r} is not a version"


def test_a_job_with_an_unranked_version_gets_the_newest_handler() -> None:
    operations = Operations()
    declare(operations, "1.0.0", "2.0.0")
    found = operations.get("ship", "build 7")
    assert found is not None
    assert found.version == "2.0.0"


@pytest.mark.req("L-16")
def test_each_job_runs_on_a_compatible_handler(ledger: Ledger) -> None:
    declare(ledger, "1.0.0", "1.2.0", "2.0.0")
    requested = [None, "2.0.0", "1.0.0", "1.1.0", "1.2.0"]
    receipts = [ledger.submit("ship", {}, version=version) for version in requested]
    by_mapping = ledger.submit_many([{"operation": "ship", "version": "1.0.0"}, {"operation": "ship"}])
    ledger.run_until_idle()
    done = [(ledger.job(r.job_id).operation_version, r.wait(0).result) for r in [*receipts, *by_mapping]]
    assert done == [
        ("2.0.0", "2.0.0"), ("2.0.0", "2.0.0"), ("1.0.0", "1.0.0"), ("1.1.0", "1.2.0"), ("1.2.0", "1.2.0"),
        ("1.0.0", "1.0.0"), ("2.0.0", "2.0.0"),
    ]  # fmt: skip


def test_a_call_made_of_an_operation_has_its_version(ledger: Ledger) -> None:
    @ledger.operation("echo", version="1.0.0")
    def old(run: Execution, value: int) -> int:
        return value

    @ledger.operation("echo", version="2.0.0")
    def new(run: Execution, value: int, times: int = 2) -> int:
        return value * times

    @ledger.operation("lead")
    def lead(run: Execution) -> None:
        run.after_commit(old.call(value=3))
        run.after_commit(new.call(value=3))
        run.after_commit(Call(operation="echo", payload={"value": 4}))

    assert (old.call(value=1).version, new.call(value=1).version) == ("1.0.0", "2.0.0")
    receipts = [ledger.submit(old.call(value=1)), ledger.submit(new.call(value=1))]
    ledger.submit(lead.call())
    ledger.run_until_idle()
    assert [receipt.wait(0).result for receipt in receipts] == [1, 2]
    with ledger.store.reading() as reading:
        followed = [
            (job.operation_version, job.result) for job in reading.lists.jobs(operation="echo", client="holdfast")
        ]
    assert followed == [("2.0.0", "8"), ("2.0.0", "6"), ("1.0.0", "3")]
    # By name, the arguments are checked by the handler of the requested version.
    with pytest.raises(ArgumentsError):
        ledger.submit("echo", {"value": 1, "times": 2}, version="1.0.0")
    ledger.submit("echo", {"value": 1, "times": 2})


def test_a_job_is_submitted_at_a_version_that_ranks(ledger: Ledger) -> None:
    declare(ledger, "1.0.0")
    for version in ("1", "new", "", "1.0.0+7"):
        with pytest.raises(ArgumentsError):
            ledger.submit("ship", {}, version=version)
        with pytest.raises(ArgumentsError):
            ledger.submit(Call(operation="ship", payload={}, version=version))
    assert ledger.counts() == []


def test_the_longest_lease_of_all_versions_is_used() -> None:
    ledger = Ledger("unused.db")
    for version, lease_s in (("1.0.0", 30.0), ("2.0.0", 90.0), ("1.1.0", 5.0)):
        ledger.operation("slow", version=version, lease_s=lease_s)(lambda run: None)
    ledger.operation("usual")(lambda run: None)
    assert ledger.lease_seconds() == {"slow": 90.0}


# ---------------------------------------------------------------------------------------------------------------------
# What the ledger knows


def known(ledger: Ledger) -> dict[str, str]:
    with ledger.store.reading() as reading:
        return {name: declared.version for name, declared in reading.operations.declared().items() if name != "noop"}


@pytest.mark.req("L-16")
def test_the_ledger_keeps_the_newest_declared_version(ledger_url: str) -> None:
    for versions, newest_known in (
        (["1.0.0"], "1.0.0"),
        (["1.10.0", "1.9.0"], "1.10.0"),
        (["1.9.0"], "1.10.0"),  # an old worker that starts again does not lower the version
        (["2.0.0-rc.1"], "2.0.0-rc.1"),
        (["2.0.0", "1.0.0"], "2.0.0"),
        (["2.0.0-rc.1"], "2.0.0"),
    ):
        with Ledger(ledger_url) as ledger:
            declare(ledger, *versions)
            assert known(ledger) == {"ship": newest_known}
    with Ledger(ledger_url) as client:  # which has no handler
        assert client.job(client.submit("ship", {}).job_id).operation_version == "2.0.0"
        assert client.job(client.submit("ship", {}, version="1.0.0").job_id).operation_version == "1.0.0"
        with pytest.raises(UnknownOperationError):
            client.submit("shop", {}, version="1.0.0")


def test_settings_of_the_same_version_can_be_changed(sqlite_url: str) -> None:
    for queue, stays in (("a", "a"), ("b", "b")):
        with Ledger(sqlite_url) as ledger:
            ledger.operation("ship", version="1.0.0", queue=queue)(lambda run: None)
            with ledger.store.reading() as reading:
                assert reading.operations.declared()["ship"].queue == stays


def test_a_long_lived_client_without_handlers_learns_of_a_new_version(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.submit.KNOWN_S", 0.0)
    with Ledger(sqlite_url) as old, Ledger(sqlite_url) as new, Ledger(sqlite_url) as client:
        declare(old, "1.0.0")
        assert known(old) == {"ship": "1.0.0"}
        assert client.job(client.submit("ship", {}).job_id).operation_version == "1.0.0"
        declare(new, "2.0.0")
        assert known(new) == {"ship": "2.0.0"}
        assert client.job(client.submit("ship", {}).job_id).operation_version == "2.0.0"


def test_two_concurrent_declarations_leave_the_newest(ledger_url: str) -> None:
    """A process that compared its version with a replaced one compares again."""
    with create_store(ledger_url) as store:
        with store.transaction() as transaction:
            transaction.operations.declare({"ship": Declared(version="1.0.0")})
        with store.transaction() as transaction:
            seen = transaction.operations.declared()
            answers = iter([{**seen, "ship": Declared(version="0.9.0")}, seen])
            transaction.operations.declared = lambda: next(answers)  # type: ignore[method-assign]
            transaction.operations.declare({"ship": Declared(version="1.1.0")})
        with store.reading() as reading:
            assert reading.operations.declared()["ship"].version == "1.1.0"


# ---------------------------------------------------------------------------------------------------------------------
# A worker that does not support the version


@pytest.mark.req("L-16", "M-05")
def test_a_worker_returns_jobs_of_incompatible_versions(ledger: Ledger, clock: VirtualClock, ledger_url: str) -> None:
    declare(ledger, "1.0.0", "1.1.0")
    job_id = ledger.submit("ship", {}, version="1.0.0").job_id
    with Ledger(ledger_url, world=virtual_world(clock)) as upgraded:
        declare(upgraded, "2.0.0", "0.9.0")
        drained(upgraded, executor="inline")
        job = upgraded.job(job_id)
        assert (job.state, job.attempts, job.excused, job.spent) == (JobState.PENDING, 1, 1, 0)
        assert (job.last_error_code, job.last_error_message) == (None, None)  # it has not failed
        with upgraded.store.reading() as reading:
            [execution] = reading.lists.executions(job_id)
            explanation = explain(reading, job_id, clock())
        missing = "ship needs a handler for version 1.0.0; this worker has handlers only for 2.0.0, 0.9.0"
        assert (execution.error_code, execution.error_message) == ("handler_missing", missing)
        assert [finding.code for finding in explanation.findings] == ["no_worker", "not_due"]
        assert f"(handler_missing: {missing})" in explanation.findings[1].message
        assert explanation.findings[1].evidence["excuse"] == "handler_missing"
    clock.advance(5)
    drained(ledger, executor="inline")
    assert (ledger.job(job_id).state, ledger.job(job_id).result) == (JobState.SUCCEEDED, '"1.0.0"')
    assert excuses(ledger, job_id) == ["handler_missing"]


def test_a_worker_without_any_handler_says_so(ledger: Ledger, clock: VirtualClock, ledger_url: str) -> None:
    declare(ledger, "1.0.0")
    job_id = ledger.submit("ship", {}).job_id
    with Ledger(ledger_url, world=virtual_world(clock)) as ignorant:
        drained(ignorant, executor="inline")
        with ignorant.store.reading() as reading:
            [execution] = reading.lists.executions(job_id)
    assert (
        execution.error_message == "ship needs a handler for version 1.0.0; this worker has no handler for any version"
    )


SERVES: list[tuple[tuple[str, ...], JobVerdict, str]] = [
    (("ship@2.0.0", "noop@1.0.0"), JobVerdict.BLOCKED, "operation_not_served"),
    (("ship@1.0.0",), JobVerdict.BLOCKED, "operation_not_served"),
    (("ship@1.1.0", "ship@2.0.0"), JobVerdict.WAITING, "about_to_start"),
    (("ship@1.3.0",), JobVerdict.WAITING, "about_to_start"),
    (("ship",), JobVerdict.WAITING, "about_to_start"),  # a worker of before, that names no versions
]


@pytest.mark.req("L-16")
def test_explain_names_compatible_workers(ledger: Ledger, clock: VirtualClock) -> None:
    declare(ledger, "1.1.0")
    job_id = ledger.submit("ship", {}).job_id
    for n, (serves, verdict, code) in enumerate(SERVES):
        with ledger.store.transaction() as transaction:
            transaction.workers.stopped(f"worker-{n - 1}")
            transaction.workers.seen(f"worker-{n}", ["default"], serves, 1)
        with ledger.store.reading() as reading:
            explanation = explain(reading, job_id, clock())
        assert (explanation.verdict, [finding.code for finding in explanation.findings]) == (verdict, [code]), serves
        if verdict is JobVerdict.BLOCKED:
            assert "ship 1.1.0" in explanation.findings[0].message
            assert explanation.findings[0].evidence == {
                "operation": "ship", "version": "1.1.0", "workers": {f"worker-{n}": list(serves)},
            }  # fmt: skip


def test_a_worker_registers_the_versions_of_its_handlers(sqlite_url: str) -> None:
    with Ledger(sqlite_url) as ledger:
        declare(ledger, "1.0.0", "2.0.0")
        drained(ledger)
        with ledger.store.reading() as reading:
            [worker] = reading.lists.workers()
    assert worker.operations == ["noop@1.0.0", "ship@1.0.0", "ship@2.0.0"]


def test_a_handler_in_another_process_is_the_one_of_the_version(sqlite_url: str) -> None:
    with Ledger(sqlite_url, fleet.pair) as ledger:
        receipts = [ledger.submit("pair", {"n": n}, version=version) for n, version in enumerate(["1.0.0", "2.0.0"])]
        drained(ledger, executor="processes")
        results = [receipt.wait(0).result for receipt in receipts]
    assert [result[:2] for result in results] == [["old", 0], ["new", 1]]
    assert os.getpid() not in {result[2] for result in results}


# ---------------------------------------------------------------------------------------------------------------------
# A fleet

JOBS = 30


@pytest.fixture
def forks() -> Iterator[ForkServer]:
    with shared_server("tests.engine.fleet", "psycopg") as forks:
        yield forks


def done(ledger: Ledger) -> list[tuple[Any, ...]]:
    with ledger.store.reading() as reading:
        return reading.execute("SELECT job_id, requested, handler FROM done ORDER BY job_id")


@pytest.mark.req("L-16", "M-11")
def test_a_fleet_is_upgraded_while_it_runs(forks: ForkServer, ledger_url: str, tmp_path: Path) -> None:
    """Old workers, then old and new, then new ones only, one of them killed; clients change in between."""
    notes = str(tmp_path / "workers")

    def worker(*versions: str) -> Any:
        return forks.spawn("tests.engine.fleet:work", url=ledger_url, versions=list(versions), notes=notes)

    def client(name: str, *versions: str) -> Any:
        return forks.spawn("tests.engine.fleet:submit", url=ledger_url, versions=list(versions), jobs=JOBS, client=name)

    with Ledger(ledger_url, fleet.handlers("1.0.0")) as ledger:
        with ledger.store.transaction() as transaction:
            transaction.execute(fleet.DONE)
        old = [worker("1.0.0"), worker("1.0.0")]
        before = client("before", "1.0.0")
        wait_until(lambda: len(done(ledger)) > 10, 20, "the old fleet works", lambda: forks.log)
        middle = [worker("1.1.0", "2.0.0")]
        during = [client("during", "1.0.0"), client("ahead", "1.1.0", "2.0.0"), client("minor", "1.1.0")]
        for each in (before, *during):
            assert each.wait(30) == 0, forks.log
        old[0].kill()
        old[1].signal(signal.SIGTERM)
        assert old[1].wait(30) == 0, forks.log
        # Now one worker supports 1.x, and one does not.
        middle.append(worker("2.0.0"))
        wait_until(lambda: len(done(ledger)) == 4 * JOBS, 40, "all is done", lambda: (forks.log, len(done(ledger))))
        wait_until(lambda: len(noted(notes)) == 4, 40, "the last worker can be stopped")
        for each in middle:
            each.signal(signal.SIGTERM)
            assert each.wait(30) == 0, forks.log
        names = dict(line.split() for line in noted(notes))
        assert len(names) == 4
        facts = Facts(ledger, effects=False)
        require_promises(facts, effects=False)
        assert Counter(job.state.value for job in facts.jobs.values()) == {"succeeded": 4 * JOBS}
        requested = Counter((job.client, job.operation_version) for job in facts.jobs.values())
        assert requested == {
            ("before", "1.0.0"): JOBS, ("during", "1.0.0"): JOBS, ("ahead", "2.0.0"): JOBS, ("minor", "1.1.0"): JOBS,
        }  # fmt: skip
        rows = done(ledger)
        assert [job_id for job_id, _, _ in rows] == sorted(facts.jobs)  # each once
        assert {(job_id, version) for job_id, version, _ in rows} == {
            (job.job_id, job.operation_version) for job in facts.jobs.values()
        }
        assert {(requested, handler) for _, requested, handler in rows if not speaks(handler, requested)} == set()
        by = Counter(handler for _, requested, handler in rows if requested == "2.0.0")
        assert by == {"2.0.0": JOBS}
        # What was given back cost nothing; the first lost leases of a job, here of the killed worker, are excused.
        codes = Counter(e.error_code for executions in facts.executions.values() for e in executions if e.excused)
        assert [job.job_id for job in facts.jobs.values() if job.spent != 1] == []
        ends = [e for executions in facts.executions.values() for e in executions]
        assert {e.lease_owner for e in ends if e.error_code == "lease_expired"} <= {names[str(old[0].pid)]}
        assert codes["handler_missing"] > 0
        assert codes.keys() <= {"handler_missing", "worker_stopped", "lease_expired", "not_started"}
