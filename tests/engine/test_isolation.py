"""What follows when a group of tasks has failed: which tasks are written again, in which groups, and how often.

The store and the tasks are scripts, so that each order of failures can be had; with databases: `test_committer.py`,
`test_effect_faults.py` and `test_effect_waits.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.commands import Commit, Complete, Fail, Finish
from holdfast.core.decide import Move
from holdfast.core.errors import CommitUnknownError, EffectError, StoreError, StoreUnavailableError
from holdfast.core.machines import ExecutionStatus
from holdfast.core.records import Attempt
from holdfast.engine import isolation
from holdfast.engine.committer import Written
from holdfast.engine.isolation import LOSS_PAUSE_S, LOSSES_MAX, Isolation, not_published, ran_in_two
from holdfast.engine.tasks import CallTask, ClaimTask, EndTask, Task
from holdfast.engine.world import BETWEEN, World
from holdfast.store.requests import Effect
from tests.core.asking import execution, job

WAITED = EffectError("it waited for a lock", context={"waited": True})
LOST = StoreUnavailableError("the connection is gone", context={"connection_lost": True, "in_effect": True})
LOST_BEFORE = StoreUnavailableError("the connection is gone", context={"connection_lost": True})
LOST_AT_COMMIT = CommitUnknownError("the connection is gone", context={"connection_lost": True})
AWAY = StoreUnavailableError("the server is away")
MOVED = Move()


class AlarmError(Exception):
    """Raised by a signal handler, as the tests have it."""


class Script:
    """What comes of each time that a task is written: an error is raised; the last one is repeated."""

    def __init__(self, *results: Exception | None) -> None:
        self.results = list(results) or [None]
        self.tried = 0
        self.hurried: list[list[bool]] = []

    def act(self) -> str:
        result = self.results[min(self.tried, len(self.results) - 1)]
        self.tried += 1
        if result is not None:
            raise result
        return f"try {self.tried}"


class Call(CallTask):
    """A task without effects."""

    def __init__(self, *results: Exception | None) -> None:
        self.script = Script(*results)
        super().__init__(lambda _transaction: self.script.act())


class End(EndTask):
    """A task with an effect."""

    def __init__(self, n: int, *results: Exception | None, sql: str = "") -> None:
        self.script = Script(*results)
        held = SimpleNamespace(owner="w", job=SimpleNamespace(job_id=n), execution=n)
        super().__init__(held, None, [Effect(sql or f"statement {n}", {})])  # type: ignore[arg-type]  # a part of it

    @staticmethod
    def write(tasks: Sequence[Any], transaction: Any) -> list[Any]:
        for task in tasks:
            task.script.hurried.append([effect.hurried for effect in task.effects])
        return [task.script.act() for task in tasks]


class Claim(ClaimTask):
    """A claim."""

    def __init__(self, *results: Exception | None) -> None:
        self.script = Script(*results)

    @staticmethod
    def write(tasks: Sequence[Any], transaction: Any) -> list[Any]:
        return [task.script.act() for task in tasks]


class Store:
    """A store and the committer's `write`: notes the groups that are written and the leases that are extended."""

    def __init__(self) -> None:
        self.groups: list[list[Task[Any]]] = []
        self.extended: list[list[int]] = []
        self.commits: list[Exception | None] = []  # what COMMIT raises, one after the other
        self.begins: list[StoreError | None] = []
        self.effects_wait = False
        self.is_open = True
        self.shortest_lease_s = 30.0
        self.executions = SimpleNamespace(extend_leases=self._extend)

    def _extend(self, leases: Sequence[tuple[int, float]]) -> None:
        self.extended.append([n for n, _ in leases])

    @contextmanager
    def transaction(self) -> Iterator[Store]:
        yield self

    savepoint = transaction

    def translated(self, error: Exception) -> Exception:
        return error

    def write(self, tasks: Sequence[Task[Any]], body: Callable[[Any, Written], None]) -> StoreError | None:
        self.groups.append(list(tasks))
        failure = self.begins.pop(0) if self.begins else None
        if failure is not None:
            for task in tasks:
                task.failed(failure)
            return failure
        self.is_open = True
        written: Written = []
        body(self, written)
        if self.commits and (error := self.commits.pop(0)) is not None:
            raise error
        for some, outcomes in written:
            for task, outcome in zip(some, outcomes, strict=True):
                task.succeeded(outcome)
        return None

    def run(self, tasks: Sequence[Task[Any]], error: Exception) -> None:
        Isolation(self, self.write).run(tasks, error)  # type: ignore[arg-type]  # a part of a store


@pytest.fixture
def store() -> Store:
    return Store()


def answers(*tasks: Task[Any]) -> list[object]:
    assert all(task.answered for task in tasks)
    return [task.error or task.outcome for task in tasks]


# ---------------------------------------------------------------------------------------------------------------------
# Exceptions from signal handlers


@pytest.mark.parametrize("where", ["the group", "a savepoint", "COMMIT", "tasks without effects", "one alone"])
def test_what_a_signal_handler_raised_goes_to_the_caller(
    store: Store, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(isolation, "from_signal_handler", lambda error: isinstance(error, AlarmError))
    alarm = AlarmError()
    tasks: list[Task[Any]] = [Call(), Call()]
    error: Exception = ValueError("of one of them")
    if where == "the group":
        error = alarm
    elif where == "a savepoint":
        tasks = [Call(alarm, None), Call()]
    elif where == "COMMIT":
        store.commits = [alarm]
    else:
        apart: dict[str, list[Task[Any]]] = {
            "tasks without effects": [Call(alarm, None), Call(), End(1)],
            "one alone": [End(1, alarm, None), End(2)],
        }
        tasks, error = apart[where], WAITED
    with pytest.raises(AlarmError):
        store.run(tasks, error)
    assert not any(task.answered for task in tasks)


def test_a_signal_handler_that_raises_while_events_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    not_published(ValueError("of a subscriber"))
    monkeypatch.setattr(isolation, "from_signal_handler", lambda _error: True)
    with pytest.raises(AlarmError):
        not_published(AlarmError())


# ---------------------------------------------------------------------------------------------------------------------
# One transaction with savepoints


def test_a_task_that_failed_by_itself_is_not_written_again_when_commit_fails(store: Store) -> None:
    bad, good = Call(ValueError("its own")), Call()
    store.commits = [AWAY]
    store.run([bad, good], ValueError("of one of them"))
    assert (bad.script.tried, good.script.tried) == (1, 2)
    assert answers(bad, good) == [bad.script.results[0], "try 2"]


def test_a_task_whose_fault_was_anothers_is_written_again(store: Store) -> None:
    """The first failed beside one that ended the transaction, and not without it."""
    shaky, good = Call(ValueError("because of the other"), None), Call()

    class Ends(Call):
        def __init__(self) -> None:
            super().__init__(ValueError("ended the transaction"))
            act = self.script.act

            def ending() -> str:
                store.is_open = False
                return act()

            self.script.act = ending  # type: ignore[method-assign]  # it ends the transaction too

    ends = Ends()
    store.commits = [AWAY]
    store.run([shaky, ends, good], ValueError("of one of them"))
    assert (shaky.script.tried, ends.script.tried, good.script.tried) == (3, 1, 2)
    assert answers(shaky, good) == ["try 3", "try 2"]
    assert ends.error is ends.script.results[0]


# ---------------------------------------------------------------------------------------------------------------------
# Apart


def test_tasks_without_effects_are_written_together_and_claims_last(store: Store) -> None:
    first, second, claim, end = Call(), Call(), Claim(), End(1)
    store.run([claim, first, end, second], WAITED)
    assert store.groups == [[first, second], [end], [claim]]
    assert answers(first, second, claim, end) == ["try 1"] * 4
    assert store.effects_wait


def test_without_effects_each_task_is_written_alone(store: Store) -> None:
    call, claim = Call(), Claim()
    store.run([call, claim], WAITED)
    assert store.groups == [[call], [claim]]
    assert answers(call, claim) == ["try 1", "try 1"]


def test_a_task_that_is_alone_without_effects_is_written_once(store: Store) -> None:
    call, end = Call(ValueError("its own")), End(1)
    store.run([call, end], WAITED)
    assert (call.script.tried, end.script.tried) == (1, 1)
    assert answers(call, end) == [call.script.results[0], "try 1"]


@pytest.mark.parametrize("begun", range(4))
def test_when_no_transaction_can_begin_every_task_that_is_left_gets_the_error(store: Store, begun: int) -> None:
    tasks = [Call(), Call(), End(1, WAITED), End(2), Claim()]  # the first end waits, and would be written again
    store.begins = [None] * begun + [AWAY]
    store.run(tasks, WAITED)
    assert len(store.groups) == begun + 1
    written = [["try 1"] * 2, [], ["try 1"], ["try 1"]]
    done = [outcome for some in written[:begun] for outcome in some]
    assert answers(*tasks).count(AWAY) == 5 - len(done)
    assert [answer for answer in answers(*tasks) if answer is not AWAY] == done


# ---------------------------------------------------------------------------------------------------------------------
# Effects that wait


def test_once_one_effect_has_waited_the_others_may_wait_for_less(store: Store) -> None:
    first, second = End(1), End(2)
    store.run([first, second], WAITED)
    assert (first.script.hurried, second.script.hurried) == ([[True]], [[True]])


def test_an_effect_that_waits_while_each_is_written_alone_hurries_the_next(store: Store) -> None:
    first, second = End(1, None, WAITED), End(2)
    store.commits = [AWAY]
    store.run([first, second], ValueError("of one of them"))
    assert (first.script.hurried, second.script.hurried) == ([[False], [False]], [[False], [True]])
    assert answers(first, second) == [WAITED, "try 2"]


def test_what_took_too_long_comes_later_and_its_lease_is_extended_before(store: Store) -> None:
    first, second, third = End(1, WAITED, None), End(2), End(3, WAITED, None)
    store.run([first, second, third], WAITED)
    assert store.groups == [[first], [second], [third], [first], [third]]
    assert first.script.hurried == third.script.hurried == [[True], [False]]
    assert store.extended == [[1, 3], [3]]
    assert answers(first, second, third) == ["try 2", "try 1", "try 2"]


# ---------------------------------------------------------------------------------------------------------------------
# Connections that are lost


@pytest.mark.parametrize("lost", [LOST, LOST_AT_COMMIT])
def test_effects_that_lose_their_connection_are_tried_three_times(store: Store, lost: Exception) -> None:
    end = End(7, lost)
    store.run([end], AWAY)
    [error] = answers(end)
    assert isinstance(error, EffectError)
    assert error.context == {"losses": LOSSES_MAX, "job_id": 7}
    assert end.script.tried == 1 + LOSSES_MAX  # once in a savepoint


def test_what_lost_its_connection_comes_after_the_others_and_after_a_pause(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    end, other = End(7, LOST, LOST, LOST, None), End(8)
    store.run([end, other], AWAY)
    assert store.groups == [[end, other], [end], [other], [end], [end]]
    assert answers(end, other) == ["try 4", "try 1"]
    assert pauses == [LOSS_PAUSE_S, 2 * LOSS_PAUSE_S]


@pytest.mark.parametrize("error", [AWAY, LOST_BEFORE, EffectError("refused", context={"connection_lost": True})])
def test_other_errors_of_an_effect_are_its_answer_at_once(store: Store, error: Exception) -> None:
    end, other = End(7, error), End(8)
    store.run([end, other], WAITED)
    assert end.script.tried == 1
    assert answers(end, other) == [error, "try 1"]


def test_what_may_have_committed_and_cannot_be_repeated_is_not_written_again(store: Store) -> None:
    once, again = Call(), Call()
    once.repeatable = False
    unknown = CommitUnknownError("no answer")
    store.run([once, again], unknown)
    assert answers(once, again) == [unknown, "try 1"]
    assert once.script.tried == 0


# ---------------------------------------------------------------------------------------------------------------------
# A completion in two transactions


def test_a_completion_is_run_as_a_commit_and_the_end_of_what_it_committed() -> None:
    held = Attempt(job(), execution(version=4))
    ran: list[EndTask] = []
    reached: list[str] = []

    def run(tasks: Sequence[Task[Any]]) -> None:
        for task in tasks:
            assert isinstance(task, EndTask)
            ran.append(task)
            task.succeeded(MOVED)

    whole = EndTask(held, Complete(held.token, "1"), [Effect("x", {})])
    assert ran_in_two(whole, run, World(reach=reached.append)) is True
    assert [type(task.command) for task in ran] == [Commit, Finish]
    after = ran[1].attempt.execution
    assert (after.status, after.version) == (ExecutionStatus.COMMITTED, 5)
    assert reached == [BETWEEN]
    assert (whole.answered, whole.outcome, whole.error) == (True, MOVED, None)
    assert not ran_in_two(EndTask(held, Fail(held.token, "x", "")), run, World())
