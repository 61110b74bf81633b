"""A job's state is a function of its executions and the rulings about it: written cases, then random histories.

Invariants: the random histories are made by asking `decide` alone; what it answers is written down as a store would.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import commands as ask
from holdfast.core import governed
from holdfast.core.decide import CANCELLED, Move, decide
from holdfast.core.journal import JournalRow, Ruling
from holdfast.core.machines import COMMITTED, JOB, MACHINES, OPEN, ExecutionStatus, JobState
from holdfast.core.project import RULED_EDGES, project, rulings_of
from holdfast.core.records import Attempt, Execution, Job
from holdfast.core.rulings import Lapse, Revoke
from tests.core.asking import NOW, TICK, execution, job

ABORTED, DONE = ExecutionStatus.ABORTED, ExecutionStatus.DONE
PENDING, FAILED, QUARANTINED = JobState.PENDING, JobState.FAILED, JobState.QUARANTINED


def tried(*statuses: ExecutionStatus) -> list[Execution]:
    """Return executions with these statuses, first attempt first."""
    return [execution(status, exec_id=n, attempt=n) for n, status in enumerate(statuses, start=1)]


def ruled(*rulings: tuple[str, JobState, int]) -> list[Ruling]:
    return [Ruling(*ruling) for ruling in rulings]


HISTORIES: dict[str, tuple[list[Execution], list[Ruling], str]] = {
    "nothing happened yet": ([], [], "pending"),
    "cancelled before any claim": ([], ruled(("cancel", QUARANTINED, 0)), "quarantined"),
    "cancelled, then released": (
        [],
        ruled(("cancel", QUARANTINED, 0), ("release", PENDING, 0)),
        "pending",
    ),
    "leased": (tried(ExecutionStatus.LEASED), [], "running"),
    "at work": (tried(ExecutionStatus.IN_PROGRESS), [], "running"),
    "committed, not finished": (tried(ExecutionStatus.COMMITTED), [], "running"),
    "done": (tried(DONE), [], "succeeded"),
    "failed": (tried(ABORTED), [], "failed"),
    "failed and retried": (tried(ABORTED), ruled(("retry", PENDING, 1)), "pending"),
    "lost, reclaimed, done": (tried(ABORTED, DONE), ruled(("expire", PENDING, 1)), "succeeded"),
    "at work again": (tried(ABORTED, ExecutionStatus.LEASED), ruled(("retry", PENDING, 1)), "running"),
    "failed twice": (tried(ABORTED, ABORTED), ruled(("retry", PENDING, 1)), "failed"),
    "failed for good": (tried(ABORTED), ruled(("quarantine", QUARANTINED, 1)), "quarantined"),
    "replayed after quarantine and release": (
        tried(ABORTED),
        ruled(("quarantine", QUARANTINED, 1), ("release", PENDING, 1)),
        "pending",
    ),
    "released, claimed, failed": (
        tried(ABORTED, ABORTED),
        ruled(("quarantine", QUARANTINED, 1), ("release", PENDING, 1)),
        "failed",
    ),
    "an old ruling does not undo a later attempt": (
        tried(ABORTED, DONE),
        ruled(("quarantine", QUARANTINED, 1), ("release", PENDING, 1)),
        "succeeded",
    ),
    "taken out while waiting for a retry": (
        tried(ABORTED),
        ruled(("retry", PENDING, 1), ("quarantine", QUARANTINED, 1)),
        "quarantined",
    ),
}


@pytest.mark.req("M-02", "M-04", "X-07")
@pytest.mark.parametrize("history", HISTORIES)
def test_a_history_projects_to_a_state(history: str) -> None:
    executions, rulings, state = HISTORIES[history]
    assert project(executions, rulings) == state
    assert isinstance(project(executions, rulings), JobState)
    assert project(reversed(executions), rulings) == state, "the order in which executions are read does not matter"


def test_rulings_are_the_edges_that_no_execution_makes() -> None:
    assert {str(edge) for edge in RULED_EDGES} == {
        "failed → pending",
        "failed → quarantined",
        "pending → quarantined",
        "quarantined → pending",
    }


def journal_row(version: int, source: str | None, target: str, event: str, attempt: int) -> JournalRow:
    fields: dict[str, Any] = dict.fromkeys(JournalRow.__struct_fields__)
    fields |= {"machine": "JOB", "version": version, "source": source, "target": target, "event": event}
    return JournalRow(**{**fields, "attempt": attempt})


def test_rulings_are_read_from_the_journal_in_the_order_of_versions() -> None:
    rows = [
        journal_row(1, None, "pending", "submit", 0),
        journal_row(2, "pending", "running", "claim", 1),
        journal_row(3, "running", "failed", "quarantine", 1),
        journal_row(4, "failed", "quarantined", "quarantine", 1),
        journal_row(5, "quarantined", "pending", "release", 1),
        journal_row(6, "pending", "running", "claim", 2),
        journal_row(7, "running", "succeeded", "succeed", 2),
        # A row of another machine, however much it looks like a ruling.
        msgspec.structs.replace(journal_row(8, "failed", "pending", "retry", 2), machine="EXECUTION"),
    ]
    expected = (Ruling("quarantine", QUARANTINED, 1), Ruling("release", PENDING, 1))
    assert rulings_of(rows) == expected
    assert rulings_of(reversed(rows)) == expected


# -- random histories -------------------------------------------------------------------------------------------------


class History:
    """One job, written as a store would: records changed by moves, every edge journalled."""

    def __init__(self, max_attempts: int, replay_attempts: int) -> None:
        self.now = NOW
        self.job: Job = job(
            version=1, attempts=0, run_at=NOW, max_attempts=max_attempts, replay_attempts=replay_attempts
        )
        self.executions: list[Execution] = []
        self.journal: list[JournalRow] = [journal_row(1, None, "pending", "submit", 0)]

    @property
    def state(self) -> JobState:
        return self.job.state

    def questions(self) -> list[tuple[object, msgspec.Struct]]:
        """Every command that is possible now: of old and new workers, operators and the reaper."""
        later = self.now + timedelta(minutes=1)
        commands: list[tuple[object, msgspec.Struct]] = [
            (self.job, command)
            for command in (
                ask.Claim(),
                ask.Claim(begin=False),
                ask.Retry(),
                ask.Replay("test"),
                ask.Quarantine("poison"),
                ask.Cancel(),
                Lapse(self.now),
                governed.Release("ann", "repaired", 4),
            )
        ]
        for held in self.executions:
            token = held.lease_token
            commands += [
                (Attempt(self.job, held), command)
                for command in (
                    ask.Start(token),
                    ask.Commit(token),
                    ask.Finish(token),
                    ask.Finish(),
                    ask.Complete(token),
                    ask.Fail(token, "c", "m"),
                    ask.Fail(token, "c", "m", later),
                    ask.Fail(token, "c", "m", permanent=True),
                    ask.Fail(token, "c", "m", quarantine_code=CANCELLED),
                    ask.GiveBack(token, later),
                    ask.Expire(later),
                    Revoke(later, "it hangs"),
                )
            ]
        return commands

    def moves(self) -> list[Move]:
        """The answers that would change something."""
        answers = (decide(record, command, self.now) for record, command in self.questions())
        return [answer for answer in answers if isinstance(answer, Move) and answer.steps]

    def take(self, move: Move) -> None:
        claimed = 0
        for step in move.steps:
            if step.machine == "EXECUTION" and step.source is None:
                claimed = 1
                n = len(self.executions) + 1
                lease = {"lease_token": n, "lease_expires_at": self.now + 3 * TICK}
                born = execution(ExecutionStatus(step.target), exec_id=n, attempt=n, version=step.edges, **lease)
                self.executions.append(born)
            elif step.machine == "EXECUTION":
                held = self.executions[int(step.subject or 0) - 1]
                assert (held.status, held.version, held.lease_token) == (step.source, step.version, move.token)
                self.executions[held.exec_id - 1] = msgspec.structs.replace(
                    held, status=ExecutionStatus(step.target), version=step.version + step.edges, excused=move.excused
                )
        follows = move.step(JOB)
        if follows is None:
            return
        assert (self.job.state, self.job.version) == (follows.source, follows.version)
        self.job = msgspec.structs.replace(
            self.job,
            state=JobState(follows.target),
            version=follows.version + follows.edges,
            attempts=self.job.attempts + claimed,
            excused=self.job.excused + move.excused,
            run_at=move.run_at or self.job.run_at,
        )
        for n, edge in enumerate(JOB.path(follows.event, follows.source).edges, start=1):
            row = journal_row(follows.version + n, edge.source, edge.target, follows.event, self.job.attempts)
            self.journal.append(row)


@pytest.mark.req("M-02", "M-04", "M-05", "M-07", "X-06", "X-07", "K-01", "K-20")
@given(
    max_attempts=st.integers(1, 3),
    replay_attempts=st.integers(0, 2),
    choices=st.lists(st.integers(0, 10_000), max_size=40),
)
def test_after_every_step_of_any_history_the_projection_is_the_state(
    max_attempts: int, replay_attempts: int, choices: list[int]
) -> None:
    history = History(max_attempts, replay_attempts)
    for choice in choices:
        # Time passes in ticks, so that a lease of three is live at some questions and expired at others.
        history.now += TICK * (choice % 3) if choice % 5 else timedelta(hours=1)
        moves = history.moves()
        if moves:
            before = history.job
            history.take(moves[choice % len(moves)])
            assert history.job.attempts >= before.attempts
            assert history.job.excused >= before.excused
        assert project(history.executions, rulings_of(history.journal)) == history.state
        # What else is true of every history.
        assert history.job.version == len(history.journal)
        assert history.job.attempts == len(history.executions)
        assert history.job.excused == sum(held.excused for held in history.executions)
        assert sum(held.status in COMMITTED for held in history.executions) <= 1
        open_now = [held for held in history.executions if held.status in OPEN]
        assert len(open_now) == (history.state == JobState.RUNNING)
        assert all(held is history.executions[-1] for held in open_now)
        done = any(held.status == DONE for held in history.executions)
        assert done == (history.state == JobState.SUCCEEDED)


def test_random_histories_go_everywhere() -> None:
    """The property above is worth something only if such walks take every edge and reach every state."""
    taken: Counter[str] = Counter()

    @settings(max_examples=300, database=None, derandomize=True)
    @given(choices=st.lists(st.integers(0, 10_000), min_size=5, max_size=40))
    def walk(choices: list[int]) -> None:
        history = History(2, 1)
        for choice in choices:
            history.now += TICK * (choice % 3) if choice % 5 else timedelta(hours=1)
            moves = history.moves()
            if moves:
                move = moves[choice % len(moves)]
                history.take(move)
                taken.update(f"{step.machine} {step.event} {step.source}" for step in move.steps)

    walk()
    paths = {
        f"{machine.name} {path.event} {path.source}"
        for machine in MACHINES.values()
        if machine.name in ("JOB", "EXECUTION")
        for path in machine.paths
    }
    assert paths - taken.keys() == {"JOB submit None"}
    assert taken.keys() <= paths


@pytest.mark.req("M-02")
def test_the_rulings_of_a_journal_are_requests_ruled_edges_and_what_a_repair_set_without_an_attempt() -> None:
    def row(machine: str, version: int, target: str, *, event: str, attempt: int | None, repaired: bool) -> JournalRow:
        source = JobState.RUNNING  # no edge of a ruling begins here
        door = 1 if repaired else None
        return JournalRow(version, machine, 1, version, source, target, event, "a", None, attempt, "m", None, door, NOW)

    rows = [
        row("REQUEST", 2, "requested", event="request_cancel", attempt=2, repaired=False),
        row("REQUEST", 3, "requested", event="request_cancel", attempt=None, repaired=False),
        row("JOB", 4, FAILED, event="repair", attempt=2, repaired=True),
        row("JOB", 5, JobState.SUCCEEDED, event="repair", attempt=2, repaired=True),  # follows from its attempt
        row("JOB", 6, FAILED, event="fail", attempt=2, repaired=False),  # an attempt took it
    ]
    assert rulings_of(rows) == (
        Ruling("request_cancel", QUARANTINED, 2),
        Ruling("request_cancel", QUARANTINED, 0),
        Ruling("repair", FAILED, 2),
    )
