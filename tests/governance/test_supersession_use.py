"""What a registry is for: a governed ledger takes new work at versions in force only, and judges as it submits."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import pytest

from holdfast import Call, Execution, Ledger, Operations
from holdfast.core.errors import (
    ArgumentsError,
    HoldfastError,
    IdempotencyConflictError,
    RegistryError,
    UnknownOperationError,
)
from holdfast.core.machines import JobState
from holdfast.core.manifest import read_manifest
from holdfast.engine.world import Crash
from holdfast.governance.registry.registry import build
from holdfast.governance.registry.supersede import retire, supersede
from holdfast.store import Store, Submission
from holdfast.store.verbs.registry import RegistryWrites
from tests.engine.database import Database
from tests.governance.registries import REAL, WHO, crashing, value
from tests.governance.successions import built, governed, made, shipping

ABSENT = "CANONICAL_OPERATION_VALUE_ABSENT"
RETIRED = "CANONICAL_OPERATION_RETIRED_FOR_NEW_USE"
NO_REGISTRY = "CANONICAL_OPERATION_VOCABULARY_REQUIRED_NOT_PRESENT"


@pytest.fixture
def store(governed_url: str) -> Iterator[Store[Any]]:
    with governed(governed_url) as store:
        yield store


@pytest.fixture
def here(sqlite_url: str) -> Iterator[Store[Any]]:
    """The same on SQLite only: for what no database decides."""
    with governed(sqlite_url) as store:
        yield store


@pytest.fixture
def ledger(store: Store[Any]) -> Iterator[Ledger]:
    """A client of a governed ledger that has no handlers."""
    with Ledger(store.url) as ledger:
        yield ledger


def refused(ledger: Ledger, *given: Any, **named: Any) -> RegistryError:
    before = ledger.counts()
    with pytest.raises(RegistryError) as raised:
        ledger.submit(*given, **named)
    assert ledger.counts() == before
    assert raised.value.exit_code == 3
    return raised.value


def version(ledger: Ledger, job_id: int) -> str:
    return ledger.job(job_id).operation_version


# ---------------------------------------------------------------------------------------------------------------------
# What is refused


@pytest.mark.req("L-13", "L-16")
def test_a_governed_ledger_without_a_registry_refuses_submits(governed_url: str) -> None:
    with made(governed_url) as store, Ledger(governed_url, shipping("1.0.0")) as ledger:
        error = refused(ledger, "ship", {})
        assert (error.code, error.context["operation"], error.context["version"]) == (NO_REGISTRY, "ship", "1.0.0")
        assert "ship@1.0.0" in error.message
        assert "`holdfast registry build --help`" in error.hint
        assert refused(ledger, "nobody.knows", {}).code == NO_REGISTRY
        # The built-in operation needs no registry.
        assert ledger.submit("noop", {}).is_new
        assert ledger.run_until_idle() == 1
        built(store, value("ship"))
        assert ledger.submit("ship", {}).is_new


@pytest.mark.req("L-13", "L-16")
def test_an_operation_that_is_not_in_force_is_refused_with_its_code(store: Store[Any], ledger: Ledger) -> None:
    error = refused(ledger, "ghost", {})
    assert (error.code, error.context) == (ABSENT, {"operation": "ghost", "version": "1.0.0", "in_force": None})
    assert "ghost@1.0.0" in error.message
    error = refused(ledger, "ship", {}, version="3.0.0")
    assert (error.code, error.context) == (ABSENT, {"operation": "ship", "version": "3.0.0", "in_force": "1.0.0"})
    assert [words for words in ("ship@3.0.0", "ship is in force at 1.0.0") if words not in error.message] == []
    supersede(store, "ship", "1.0.0", "2.0.0", **WHO)
    error = refused(ledger, "ship", {}, version="1.0.0")
    assert (error.code, error.context["version"]) == (RETIRED, "1.0.0")
    assert [words for words in ("ship@1.0.0 is superseded", "ship@2.0.0") if words not in error.message] == []
    assert (error.context["successor"], error.hint) == ("ship@2.0.0", "Submit ship@2.0.0 instead.")
    supersede(store, "ship", "2.0.0", "2.1.0", **WHO)
    assert refused(ledger, "ship", {}, version="1.0.0").context["successor"] == "ship@2.1.0"
    # Replaced by another operation, and that one retired at last.
    supersede(store, "ship", "2.1.0", "1.0.0", by="pack", **WHO)
    error = refused(ledger, "ship", {}, version="1.0.0")
    assert (error.context["successor"], error.context["in_force"]) == ("pack@1.0.0", None)
    assert error.hint == "Submit pack@1.0.0 instead."
    assert ledger.submit("pack", {}).is_new
    retire(store, "pack", "1.0.0", **WHO)
    error = refused(ledger, "pack", {})
    assert (error.code, error.context["successor"], error.context["in_force"]) == (RETIRED, None, None)
    assert "pack@1.0.0 is retired" in error.message
    error = refused(ledger, "ship", {}, version="1.0.0")
    assert (error.code, error.context["successor"]) == (RETIRED, "pack@1.0.0")
    assert "pack@1.0.0" in error.message
    assert "`holdfast registry list`" in error.hint


@pytest.mark.req("L-16")
def test_a_value_of_another_collection_is_no_operation(here: Store[Any]) -> None:
    words = read_manifest({"collection": "words", "values": [value("word", act_type="word")]})
    assert build(here, words, mode="REAL_RUN", **WHO).ok
    with Ledger(here.url) as ledger:
        assert refused(ledger, "word", {}).code == ABSENT


@pytest.mark.req("L-16")
def test_nothing_half_built_is_in_force(store: Store[Any], ledger: Ledger) -> None:
    wanted = read_manifest({"values": [value("new")]})
    with pytest.raises(Crash):
        build(store, wanted, root="r", world=crashing("before S7_FINALIZE"), **REAL)
    assert refused(ledger, "new", {}).code == ABSENT
    assert build(store, wanted, root="r", **REAL).ok
    assert ledger.submit("new", {}).is_new


@pytest.mark.req("L-16")
def test_submit_many_is_accepted_as_a_whole_or_not_at_all(store: Store[Any], ledger: Ledger) -> None:
    calls: list[Any] = [{"operation": "ship", "key": "a"}, {"operation": "pack"}, {"operation": "ghost"}]
    with pytest.raises(RegistryError) as raised:
        ledger.submit_many(calls)
    assert (raised.value.code, raised.value.context["operation"]) == (ABSENT, "ghost")
    assert ledger.counts() == []
    assert len(ledger.submit_many([*calls[:2], {"operation": "noop"}])) == 3


@pytest.mark.req("L-16")
def test_a_submit_in_the_callers_transaction_is_judged_too(store: Store[Any]) -> None:
    database = Database(store.url)
    with Ledger(store.url, shipping("1.0.0", "2.0.0")) as ledger:
        for code in (None, RETIRED):
            connection = database.connect()
            if store.dialect == "sqlite":
                connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE" if store.dialect == "sqlite" else "BEGIN")
            if code is None:
                receipt = ledger.submit("ship", {}, connection=connection)
                connection.commit()
                assert version(ledger, receipt.job_id) == "1.0.0"
                supersede(store, "ship", "1.0.0", "2.0.0", **WHO)
            else:
                with pytest.raises(RegistryError) as raised:
                    ledger.submit("ship", {}, version="1.0.0", connection=connection)
                assert raised.value.code == code
                receipt = ledger.submit("ship", {}, connection=connection)  # and the transaction can go on
                connection.commit()
                assert version(ledger, receipt.job_id) == "2.0.0"
            connection.close()
    database.close()


# ---------------------------------------------------------------------------------------------------------------------
# What was taken before


@pytest.mark.req("L-16", "L-20")
def test_jobs_from_before_a_supersession_run_and_answer_as_before(store: Store[Any]) -> None:
    with Ledger(store.url, shipping("1.0.0")) as ledger:
        first = ledger.submit("ship", {"n": 1}, client="web", key="1")
        supersede(store, "ship", "1.0.0", "2.0.0", **WHO)
        assert refused(ledger, "ship", {"n": 2}, client="web", key="2").code == RETIRED
        # The same work under the same key was taken: it is not new. Other work under it is a conflict, as ever.
        again = ledger.submit("ship", {"n": 1}, client="web", key="1")
        assert (again.job_id, again.is_new) == (first.job_id, False)
        with pytest.raises(IdempotencyConflictError):
            ledger.submit("ship", {"n": 3}, client="web", key="1")
        with pytest.raises(RegistryError):
            ledger.submit_many([
                {"operation": "ship", "payload": {"n": 1}, "client": "web", "key": "1"},
                {"operation": "ship", "payload": {"n": 2}},
            ])  # fmt: skip
        alike = [{"operation": "ship", "payload": {"n": 1}, "client": "web", "key": key} for key in ("1", "1", "2")]
        assert [receipt.job_id for receipt in ledger.submit_many(alike[:2])] == [first.job_id] * 2
        with pytest.raises(RegistryError):
            ledger.submit_many(alike)
        assert ledger.run_until_idle() == 1
        assert (again.wait(0).state, again.wait(0).result) == (JobState.SUCCEEDED, "1.0.0")
        assert ledger.submit("ship", {"n": 1}, client="web", key="1").result == "1.0.0"


@pytest.mark.req("L-16")
def test_a_failed_job_of_an_old_version_can_be_put_back(here: Store[Any]) -> None:
    operations, attempts = Operations(), list[int]()

    @operations.operation("ship", version="1.0.0", max_attempts=1)
    def ship(run: Execution) -> None:
        attempts.append(run.attempt)
        if run.attempt == 1:
            raise ValueError("not yet")

    with Ledger(here.url, operations) as ledger:
        receipt = ledger.submit(ship.call())
        ledger.run_until_idle()
        retire(here, "ship", "1.0.0", **WHO)
        assert ledger.retry(receipt.job_id) is JobState.PENDING
        ledger.run_until_idle()
        assert (ledger.job(receipt.job_id).state, attempts) == (JobState.SUCCEEDED, [1, 2])


# ---------------------------------------------------------------------------------------------------------------------
# Submits without a version


@pytest.mark.req("L-16")
def test_by_name_a_process_with_both_versions_submits_the_one_in_force(store: Store[Any]) -> None:
    with Ledger(store.url, shipping("1.0.0", "2.0.0")) as ledger:
        assert version(ledger, ledger.submit("ship", {}).job_id) == "1.0.0"
        assert version(ledger, ledger.submit("ship", {}).job_id) == "1.0.0"
        assert refused(ledger, "ship", {}, version="2.0.0").code == ABSENT
        supersede(store, "ship", "1.0.0", "2.0.0", **WHO)
        assert version(ledger, ledger.submit("ship", {}).job_id) == "2.0.0"
        assert refused(ledger, "ship", {}, version="1.0.0").code == RETIRED
        assert [version(ledger, r.job_id) for r in ledger.submit_many([{"operation": "ship"}] * 2)] == ["2.0.0"] * 2
        alike = [{"operation": "ship", "payload": {"n": n}} for n in range(3)]
        assert [version(ledger, r.job_id) for r in ledger.submit_many(alike)] == ["2.0.0"] * 3
        # A call made from an operation names its version.
        old = ledger.operations.get("ship", "1.0.0")
        assert old is not None
        assert refused(ledger, old.call()).code == RETIRED


@pytest.mark.req("L-16")
def test_a_process_never_submits_a_version_that_it_could_not_check(here: Store[Any]) -> None:
    """A handler of 1.1.0 speaks 1.0.0, but what it lets pass may be more than 1.0.0 knows."""
    with Ledger(here.url, shipping("1.1.0")) as ledger:
        error = refused(ledger, "ship", {})
        assert (error.code, error.context["version"], error.context["in_force"]) == (ABSENT, "1.1.0", "1.0.0")
        assert (
            version(ledger, ledger.submit("ship", {}, version="1.0.0").job_id) == "1.0.0"
        )  # unless the version is named


def test_the_arguments_are_checked_for_the_version_that_is_submitted(here: Store[Any]) -> None:
    operations = Operations()

    @operations.operation("ship", version="1.0.0")
    def old(run: Execution, n: int) -> int:
        return n

    @operations.operation("ship", version="2.0.0")
    def new(run: Execution, n: int, by: str = "sea") -> str:
        return by

    with Ledger(here.url, operations) as ledger:
        with pytest.raises(ArgumentsError):
            ledger.submit("ship", {"n": 1, "by": "air"})  # good for 2.0.0, and 1.0.0 is in force
        assert ledger.counts() == []
        supersede(here, "ship", "1.0.0", "2.0.0", **WHO)
        assert version(ledger, ledger.submit("ship", {"n": 1, "by": "air"}).job_id) == "2.0.0"


@pytest.mark.req("L-16")
def test_follow_ups_are_judged_by_the_registry_too(store: Store[Any]) -> None:
    operations = shipping("1.0.0", "2.0.0")

    @operations.operation("pack", max_attempts=1)
    def pack(run: Execution, version: str | None = None) -> str:
        run.after_commit(Call(operation="ship", payload={}, version=version))
        return "packed"

    def followed(ledger: Ledger, **payload: Any) -> tuple[str, str | None, list[str]]:
        receipt = ledger.submit("pack", payload)
        ledger.run_until_idle()
        job = ledger.job(receipt.job_id)
        with ledger.store.reading() as reading:
            ships = reading.lists.jobs(operation="ship", client="holdfast")
        mine = [job.operation_version for job in ships if (job.key or "").startswith(f"{receipt.job_id}/")]
        return job.state.value, job.last_error_code, mine

    with Ledger(store.url, operations) as ledger:
        assert followed(ledger) == ("succeeded", None, ["1.0.0"])
        assert followed(ledger, version="2.0.0") == ("failed", ABSENT, [])
        supersede(store, "ship", "1.0.0", "2.0.0", **WHO)
        # It costs no attempt to learn that another version is in force by now.
        assert followed(ledger) == ("succeeded", None, ["2.0.0"])
        assert followed(ledger, version="1.0.0") == ("failed", RETIRED, [])
        with ledger.store.reading() as reading:
            assert [job.attempts for job in reading.lists.jobs(operation="pack")] == [1] * 4


# ---------------------------------------------------------------------------------------------------------------------
# What it costs, and where it does not hold


def statements(ledger: Ledger, act: Any) -> Counter[str]:
    """Return how often each statement was run by an act."""
    store, seen = ledger.store, Counter[str]()
    run = store.run

    def counted(connection: Any, name: str, params: Any) -> Any:
        seen[name] += 1
        return run(connection, name, params)

    store.run = counted  # type: ignore[method-assign]
    try:
        act()
    finally:
        store.run = run  # type: ignore[method-assign]
    return seen


# What a submit of one job writes and no more, and a submit of many; for many SQLite needs the last id first.
ONE = {"insert_job": 1}
MANY = {"sqlite": {"last_call": 1, "insert_jobs": 1}, "postgres": {"insert_jobs": 1}}


def test_the_judgement_is_one_statement_a_batch(store: Store[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.submit.KNOWN_S", 3600.0)
    with Ledger(store.url, shipping("1.0.0")) as ledger:
        ledger.submit("ship", {})
        assert statements(ledger, lambda: ledger.submit("ship", {})) == {"usable_values": 1, **ONE}
        many: list[Any] = [{"operation": name, "payload": {}} for name in ("ship", "pack", "tax") for _ in range(50)]
        ledger.submit_many(many)  # what others have declared is read once, and then now and then
        for some in (many, many[:50], many[50:100]):
            assert statements(ledger, partial(ledger.submit_many, some)) == {"usable_values": 1, **MANY[store.dialect]}
        assert statements(ledger, lambda: ledger.submit("noop", {})) == ONE


@pytest.mark.parametrize("first", ["submit", "change"])
@pytest.mark.req("L-16")
def test_a_version_that_is_superseded_between_the_check_and_the_insert(
    store: Store[Any], first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The submit is recorded before the change, or refused after it: never recorded after the change."""
    checked, go_on = threading.Event(), threading.Event()
    check = RegistryWrites.require_in_force

    def pausing(registry: RegistryWrites, submissions: Sequence[Submission]) -> None:
        if first == "submit":
            check(registry, submissions)
        checked.set()
        assert go_on.wait(60)
        if first == "change":
            check(registry, submissions)

    with Ledger(store.url, shipping("1.0.0")) as ledger, ThreadPoolExecutor(2) as threads:
        call = Call(operation="ship", version="1.0.0", payload={})
        monkeypatch.setattr(RegistryWrites, "require_in_force", pausing)
        submitting = threads.submit(ledger.submit, call)
        assert checked.wait(60)
        changing = threads.submit(supersede, store, "ship", "1.0.0", "2.0.0", **WHO)
        if first == "submit" or store.one_writer:
            with pytest.raises(TimeoutError):
                changing.result(0.3)  # it waits for the submit
        else:
            changing.result(60)
        go_on.set()
        changing.result(60)
        if first == "change" and not store.one_writer:
            with pytest.raises(RegistryError) as raised:
                submitting.result(60)
            assert raised.value.code == RETIRED
            assert ledger.counts() == []
        else:
            assert version(ledger, submitting.result(60).job_id) == "1.0.0"
        with store.reading() as reading:
            [*_, last] = reading.execute(
                "SELECT machine FROM holdfast_journal WHERE event IN ('submit', 'supersede') ORDER BY seq"
            )
        assert last == ("VALUE",)


def test_the_collection_of_a_version_stays_in_force_until_the_submit_commits(pg_url: str) -> None:
    with governed(pg_url) as store, store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="ship", operation_version="1.0.0", payload="{}")])
        with closing(Database(store.url)) as other, pytest.raises(psycopg.errors.LockNotAvailable):
            other.run("SELECT 1 FROM holdfast_collections FOR UPDATE NOWAIT")


def test_in_an_ungoverned_ledger_operations_register_themselves(sqlite_url: str) -> None:
    with made(sqlite_url, governed=False), Ledger(sqlite_url, shipping("1.0.0", "2.0.0")) as ledger:
        assert version(ledger, ledger.submit("ship", {}).job_id) == "2.0.0"
        assert version(ledger, ledger.submit("ship", {}, version="1.0.0").job_id) == "1.0.0"
        assert version(ledger, ledger.submit("ship", {}, version="1.5.0").job_id) == "1.5.0"
        assert statements(ledger, lambda: ledger.submit("ship", {})) == ONE
        with pytest.raises(UnknownOperationError):
            ledger.submit("ghost", {})


def test_a_submit_through_the_store_is_judged_too(here: Store[Any]) -> None:
    """A submit past the Ledger object is judged by the same verb."""
    with pytest.raises(HoldfastError) as raised, here.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="ghost", payload="{}")])
    assert raised.value.code == ABSENT
