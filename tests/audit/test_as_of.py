"""Time travel: the ledger as of a moment equals what was read at that moment, on both databases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.audit.as_of import Past, PastExecution, PastJob, counts_at, job_at
from holdfast.core.commands import Cancel, Commit, Complete, Finish, GiveBack, Quarantine, Replay, Retry, Start
from holdfast.core.errors import HistoryArchivedError, InputError, JobNotFoundError
from holdfast.core.journal import JournalRow
from holdfast.core.machines import EXECUTION, JOB, OPEN, ExecutionStatus, JobState
from holdfast.core.records import Attempt, Execution, Job, time_text
from holdfast.engine.upkeep.retention import Retention, gc
from holdfast.store import Declared, create_store
from holdfast.store.statements import statements
from holdfast.store.verbs.counts import Count
from holdfast.testing import VirtualClock
from tests.store.conftest import phases
from tests.store.verbs import WORKER, Verbs, fail

TICK = timedelta(microseconds=1)
NOT_IN_JOURNAL = {"lease_expires_at", "progress", "progress_note"}


@pytest.fixture
def verbs(ledger_url: str) -> Iterator[Verbs]:
    clock = VirtualClock()
    with create_store(ledger_url, clock) as store:
        with store.transaction() as transaction:
            transaction.operations.declare({"echo": Declared()})
        yield Verbs(store, clock)


def at(verbs: Verbs, job_id: int, moment: datetime) -> Past:
    with verbs.store.reading() as reading:
        return job_at(reading, job_id, moment, verbs.clock())


def counted(verbs: Verbs, moment: datetime) -> dict[tuple[str, str, str], int]:
    with verbs.store.reading() as reading:
        return _by_place(counts_at(reading, moment, verbs.clock()))


def _by_place(counts: list[Count]) -> dict[tuple[str, str, str], int]:
    return {(count.operation, count.queue, count.state.value): count.n for count in counts}


# ---------------------------------------------------------------------------------------------------------------------
# Any history


class Snapshot(msgspec.Struct):
    """What was seen at one moment."""

    counts: dict[tuple[str, str, str], int]
    jobs: dict[int, Job]
    executions: dict[int, list[Execution]]
    journals: dict[int, list[JournalRow]]


STEPS = (
    "complete", "fail", "retry_later", "give_back", "commit", "finish", "claim", "claim_unbegun", "start", "retry",
    "replay", "recover", "release", "progress", "beat", "ask_cancel", "cancel_running", "fail_for_good", "quarantine",
    "cancel", "fold", "submit",
)  # fmt: skip
HISTORY = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 5), st.sampled_from([0.0, 0.000001, 0.5, 7.25])),
    min_size=10,
    max_size=40,
)


class Historian:
    """Takes random steps that are possible, and records what is read after each."""

    examples = itertools.count()

    def __init__(self, verbs: Verbs) -> None:
        self.verbs = verbs
        self.queue = f"queue-{next(self.examples)}"
        [[self.first]] = verbs.query("SELECT coalesce(max(job_id), 0) FROM holdfast_jobs")
        self.seen: dict[datetime, Snapshot] = {}
        for pick in range(3):
            self._submit(pick)

    def step(self, name: str, pick: int, pause: float) -> None:
        """Take a step; if it is not possible, work on a job that exists."""
        if getattr(self, f"_{name}")(pick) is False:
            self._claim(pick)
        # Several steps at one moment count as one: the last reading is compared.
        self.seen[self.verbs.clock()] = self.look()
        self.verbs.clock.advance(pause)

    def look(self) -> Snapshot:
        with self.verbs.store.reading() as reading:
            jobs = [job for job in reading.lists.jobs(limit=1000) if job.job_id > self.first]
            return Snapshot(
                _by_place(reading.counts.current()),
                {job.job_id: job for job in jobs},
                {job.job_id: reading.lists.executions(job.job_id) for job in jobs},
                {
                    job.job_id: sorted(
                        [
                            *reading.journal.of(job.job_id),
                            *reading.journal.of_executions(job.job_id),
                            *reading.journal.of(job.job_id, "REQUEST"),
                        ],
                        key=lambda row: (row.seq, row.machine == JOB.name, row.version),
                    )
                    for job in jobs
                },
            )

    # -- steps --------------------------------------------------------------------------------------------------------

    def _submit(self, pick: int) -> None:
        after = self.verbs.clock.after(5) if pick == 4 else None
        self.verbs.submit(
            operation=("noop", "echo")[pick % 2], queue=self.queue, run_at=after, max_attempts=1 + pick % 3,
            replay_attempts=pick % 2,
        )  # fmt: skip

    def _claim(self, pick: int) -> None:
        self.verbs.claim(1 + pick % 2, queues=(self.queue,))

    def _claim_unbegun(self, pick: int) -> None:
        self.verbs.claim(1, queues=(self.queue,), begin=False)

    def _start(self, pick: int) -> bool:
        return self._work(pick, {ExecutionStatus.LEASED}, Start)

    def _commit(self, pick: int) -> bool:
        return self._work(pick, {ExecutionStatus.IN_PROGRESS}, lambda token: Commit(token, '{"n":1}'))

    def _finish(self, pick: int) -> bool:
        return self._work(pick, {ExecutionStatus.COMMITTED}, Finish)

    def _complete(self, pick: int) -> bool:
        return self._work(pick, {ExecutionStatus.IN_PROGRESS}, lambda token: Complete(token, '{"n":2}'))

    def _fail(self, pick: int) -> bool:
        found = self._open(pick)
        for attempt in found:
            self.verbs.work(attempt, fail(attempt, code=f"code_{pick}", message=f"message {pick}"))
        return bool(found)

    def _retry_later(self, pick: int) -> bool:
        found = self._open(pick)
        for attempt in found:
            self.verbs.work(attempt, fail(attempt, code=f"later_{pick}", retry_at=self.verbs.clock.after(pick)))
        return bool(found)

    def _fail_for_good(self, pick: int) -> bool:
        found = self._open(pick)
        for attempt in found:
            self.verbs.work(attempt, fail(attempt, permanent=True, quarantine_code="poison"))
        return bool(found)

    def _cancel_running(self, pick: int) -> bool:
        found = self._open(pick)
        for attempt in found:
            self.verbs.work(attempt, fail(attempt, code="cancelled", quarantine_code="cancelled"))
        return bool(found)

    def _give_back(self, pick: int) -> bool:
        found = self._open(pick)
        for attempt in found:
            token = attempt.execution.lease_token
            self.verbs.work(attempt, GiveBack(token, self.verbs.clock.after(pick), "snoozed"))
        return bool(found)

    def _recover(self, pick: int) -> None:
        self.verbs.clock.advance(31)
        self.verbs.recover()

    def _retry(self, pick: int) -> bool:
        return self._rule(pick, {JobState.FAILED}, Retry(self.verbs.clock.after(pick)))

    def _replay(self, pick: int) -> bool:
        return self._rule(pick, {JobState.FAILED}, Replay(("incident", "backfill")[pick % 2]))

    def _quarantine(self, pick: int) -> bool:
        return self._rule(pick, {JobState.FAILED, JobState.PENDING}, Quarantine(f"q_{pick}", "looks wrong"))

    def _cancel(self, pick: int) -> bool:
        return self._rule(pick, {JobState.FAILED, JobState.PENDING}, Cancel())

    def _release(self, pick: int) -> bool:
        found = self._jobs(pick, {JobState.QUARANTINED})
        for job in found:
            self.verbs.release(job, self.verbs.active_grant(job.job_id))
        return bool(found)

    def _progress(self, pick: int) -> bool:
        found = self._open(pick)
        for attempt in found:
            self.verbs.progress(attempt, pick / 10, f"note {pick}")
        return bool(found)

    def _beat(self, pick: int) -> bool:
        found = self._open(pick)
        for attempt in found:
            self.verbs.beat(attempt, 60 + pick)
        return bool(found)

    def _ask_cancel(self, pick: int) -> bool:
        found = self._open(pick)
        for attempt in found:
            with self.verbs.store.transaction() as transaction:
                transaction.notes.request_cancel(attempt.job.job_id, actor="operator-1")
        return bool(found)

    def _fold(self, pick: int) -> None:
        self.verbs.fold()

    # -- picking ------------------------------------------------------------------------------------------------------

    def _jobs(self, pick: int, states: set[JobState]) -> list[Job]:
        fitting = [job for job in self.look().jobs.values() if job.state in states]
        return [fitting[pick % len(fitting)]] if fitting else []

    def _open(self, pick: int, statuses: frozenset[ExecutionStatus] | set[ExecutionStatus] = OPEN) -> list[Attempt]:
        seen = self.look()
        fitting = [e for many in seen.executions.values() for e in many if e.status in statuses]
        chosen = fitting[pick % len(fitting)] if fitting else None
        return [Attempt(seen.jobs[chosen.job_id], chosen)] if chosen else []

    def _work(self, pick: int, statuses: set[ExecutionStatus], command: Any) -> bool:
        found = self._open(pick, statuses)
        for attempt in found:
            self.verbs.work(attempt, command(attempt.execution.lease_token))
        return bool(found)

    def _rule(self, pick: int, states: set[JobState], command: object) -> bool:
        found = self._jobs(pick, states)
        for job in found:
            self.verbs.rule(job, command, "as drawn")
        return bool(found)


@pytest.mark.req("M-11")
def test_the_past_of_any_history_matches_what_was_read_then(verbs: Verbs) -> None:
    """Counts are exact at every moment; what is shown of a job and its executions equals what was read then."""

    @settings(max_examples=settings().max_examples // 5, phases=phases())
    @given(history=HISTORY)
    def check(history: list[tuple[str, int, float]]) -> None:
        historian = Historian(verbs)
        for name, pick, pause in history:
            historian.step(name, pick, pause)
        with verbs.store.reading() as reading:
            now = verbs.clock()
            for moment, seen in historian.seen.items():
                assert _by_place(counts_at(reading, moment, now)) == seen.counts, moment
                for job_id, job in seen.jobs.items():
                    past = job_at(reading, job_id, moment, now)
                    assert_past_matches(past, job, seen.executions[job_id])
                    assert list(past.journal) == seen.journals[job_id]
            assert all(job_at(reading, job_id, now, now).unknown == () for job_id in seen.jobs)
        verbs.clock.advance(100)
        verbs.recover()
        verbs.clock.advance(100)

    check()


def assert_past_matches(past: Past, job: Job, executions: list[Execution]) -> None:
    for name in PastJob.__struct_fields__:
        value = getattr(past.job, name)
        assert value == (None if name in past.unknown else getattr(job, name)), name
    assert len(past.executions) == len(executions)
    for then, seen in zip(past.executions, executions, strict=True):
        for name in PastExecution.__struct_fields__:
            hidden = name in NOT_IN_JOURNAL and seen.status not in EXECUTION.final
            assert getattr(then, name) == (None if hidden else getattr(seen, name)), name


def test_a_past_record_has_the_fields_of_the_present_one() -> None:
    assert PastExecution.__struct_fields__ == Execution.__struct_fields__
    left_out = {"payload", "last_attempt_at", "lost"}
    assert set(PastJob.__struct_fields__) == set(Job.__struct_fields__) - left_out


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_counting_back_is_one_statement(dialect: str) -> None:
    assert len(statements(dialect)["counts_as_of"]) == 1


# ---------------------------------------------------------------------------------------------------------------------
# One history, to the microsecond


def test_a_job_at_each_moment_of_its_life(verbs: Verbs) -> None:
    clock = verbs.clock
    born = clock()
    job_id = verbs.submit(max_attempts=2)
    claimed = clock.advance(10)
    first = verbs.claim_one()
    clock.advance(1)
    verbs.progress(first, 0.5, "half")
    failed = clock.advance(9)
    retry_at = clock.after(60)
    verbs.work(first, fail(first, retry_at=retry_at))
    again = clock.advance(70)
    second = verbs.claim_one()
    done = clock.advance(5)
    verbs.work(second, Complete(second.execution.lease_token, '{"bytes":3}'))
    clock.advance(3600)

    def fields_at(moment: datetime) -> tuple[object, ...]:
        job = at(verbs, job_id, moment).job
        return job.state.value, job.version, job.attempts, job.updated_at, job.last_error_code, job.result

    assert fields_at(born) == ("pending", 1, 0, born, None, None)
    assert fields_at(claimed - TICK) == ("pending", 1, 0, born, None, None)
    assert fields_at(claimed) == ("running", 2, 1, claimed, None, None)
    assert fields_at(failed - TICK) == ("running", 2, 1, claimed, None, None)
    assert fields_at(failed) == ("pending", 4, 1, failed, "boom", None)
    assert fields_at(again) == ("running", 5, 2, again, "boom", None)
    assert fields_at(done - TICK) == ("running", 5, 2, again, "boom", None)
    assert fields_at(done) == ("succeeded", 6, 2, done, "boom", '{"bytes":3}')
    assert fields_at(clock()) == fields_at(done)
    # The retry has written another run_at over the first one, and the journal does not hold it.
    assert (at(verbs, job_id, claimed).job.run_at, at(verbs, job_id, claimed).unknown) == (None, ("run_at",))
    assert (at(verbs, job_id, failed).job.run_at, at(verbs, job_id, failed).unknown) == (retry_at, ())
    running = at(verbs, job_id, failed - TICK).executions
    assert [(e.status, e.version, e.progress, e.lease_expires_at) for e in running] == [("IN_PROGRESS", 2, None, None)]
    ended = at(verbs, job_id, failed).executions
    assert [(e.status, e.version, e.progress, e.error_code) for e in ended] == [("ABORTED", 3, 0.5, "boom")]
    assert [e.status for e in at(verbs, job_id, done).executions] == ["ABORTED", "DONE"]
    assert [row.version for row in at(verbs, job_id, failed).journal if row.machine == "JOB"] == [1, 2, 3, 4]


def test_counts_at_each_moment(verbs: Verbs) -> None:
    clock = verbs.clock
    before = clock()
    one = clock.advance(1)
    verbs.submit(queue="red")
    two = clock.advance(1)
    verbs.submit(operation="echo")
    three = clock.advance(1)
    attempt = verbs.claim_one()
    four = clock.advance(1)
    verbs.work(attempt, fail(attempt, retry_at=clock.after(5)))
    verbs.fold()
    clock.advance(1)
    red = ("noop", "red", "pending")
    assert counted(verbs, before) == {}
    assert counted(verbs, one - TICK) == {}
    assert counted(verbs, one) == {red: 1}
    assert counted(verbs, two) == {red: 1, ("echo", "default", "pending"): 1}
    assert counted(verbs, three) == {red: 1, ("echo", "default", "running"): 1}
    # Two edges in one write: no reading shows the state in between.
    assert counted(verbs, four) == {red: 1, ("echo", "default", "pending"): 1}
    assert counted(verbs, four - TICK) == counted(verbs, three)


def test_a_released_job_does_not_show_its_former_quarantine_code(verbs: Verbs) -> None:
    job = verbs.job_in(JobState.QUARANTINED)
    then = verbs.clock()
    assert (at(verbs, job.job_id, then).job.quarantine_code, at(verbs, job.job_id, then).unknown) == ("poison", ())
    verbs.clock.advance(5)
    verbs.release(job, verbs.active_grant(job.job_id))
    past = at(verbs, job.job_id, then)
    assert (past.job.state, past.job.quarantine_code, past.job.last_error_code) == ("quarantined", None, None)
    assert past.unknown == ("run_at", "last_error_code", "last_error_message", "quarantine_code")


def test_a_replay_reason_is_shown_only_if_it_is_certain(verbs: Verbs) -> None:
    job = verbs.job_in(JobState.FAILED)
    first_failed = verbs.clock()
    verbs.clock.advance(1)
    verbs.rule(verbs.job(job.job_id), Replay("incident"))
    replayed = verbs.clock()
    verbs.clock.advance(1)
    attempt = verbs.claim_one()
    verbs.work(attempt, fail(attempt))
    verbs.clock.advance(1)
    assert (
        at(verbs, job.job_id, first_failed).job.replay_reason,
        at(verbs, job.job_id, replayed).job.replay_reason,
    ) == (
        None,
        "incident",
    )
    verbs.rule(verbs.job(job.job_id), Replay("backfill"))
    assert "replay_reason" not in at(verbs, job.job_id, first_failed).unknown
    assert "replay_reason" in at(verbs, job.job_id, replayed).unknown
    assert at(verbs, job.job_id, replayed).job.replay_reason is None


# ---------------------------------------------------------------------------------------------------------------------
# Times that are refused


def test_before_it_was_submitted_there_was_no_job(verbs: Verbs) -> None:
    verbs.clock.advance(5)
    job_id = verbs.submit()
    born = verbs.clock()
    with pytest.raises(JobNotFoundError) as caught:
        at(verbs, job_id, born - TICK)
    assert time_text(born) in caught.value.message
    assert caught.value.context == {
        "job_id": job_id, "at": time_text(born - TICK), "submitted_at": time_text(born)
    }  # fmt: skip
    with pytest.raises(JobNotFoundError) as caught:
        at(verbs, job_id + 1, born)
    assert caught.value.message == f"there is no job {job_id + 1}"


def test_a_time_in_the_future_is_refused(verbs: Verbs) -> None:
    job_id = verbs.submit()
    now = verbs.clock()
    assert at(verbs, job_id, now).job.state == "pending"
    for ask in (lambda: at(verbs, job_id, now + TICK), lambda: counted(verbs, now + TICK)):
        with pytest.raises(InputError) as caught:
            ask()
        assert caught.value.code == "bad_input"
        assert caught.value.context == {"at": time_text(now + TICK), "now": time_text(now)}


# ---------------------------------------------------------------------------------------------------------------------
# History that was archived


def under_the_door(verbs: Verbs, *texts: str) -> None:
    """Run statements as retention does: under maintenance, in one transaction."""
    with verbs.store.transaction() as transaction, transaction.maintenance.open(who="gc", why="retention"):
        for text in texts:
            verbs.store.execute(transaction.connection, text)


def archive(verbs: Verbs, job_id: int, kept_from: int, *, rows_stay: bool = False) -> None:
    """Cut off a job's oldest rows, on record; they may stay until their partition is dropped."""
    under_the_door(verbs, f"UPDATE holdfast_jobs SET history_from = {kept_from} WHERE job_id = {job_id}")
    if not rows_stay:
        of_job = f"machine = 'JOB' AND subject = {job_id} AND version < {kept_from}"
        under_the_door(verbs, f"DELETE FROM holdfast_journal WHERE {of_job}")


@pytest.mark.parametrize("rows_stay", [False, True], ids=["rows-gone", "rows-stay"])
def test_a_moment_whose_journal_rows_are_lost_is_refused(verbs: Verbs, rows_stay: bool) -> None:
    clock = verbs.clock
    born = clock()
    old = verbs.submit()
    claimed = clock.advance(10)
    attempt = verbs.claim_one()
    done = clock.advance(10)
    verbs.work(attempt, Complete(attempt.execution.lease_token, '"result"'))
    young = clock.advance(10)
    other = verbs.submit()
    clock.advance(10)
    counts_before = {moment: counted(verbs, moment) for moment in (born, claimed, done, young)}
    archive(verbs, old, kept_from=3, rows_stay=rows_stay)
    for moment in (born, claimed, done - TICK):
        for ask in (lambda m=moment: at(verbs, old, m), lambda m=moment: counted(verbs, m)):
            with pytest.raises(HistoryArchivedError) as caught:
                ask()
            assert (caught.value.code, caught.value.exit_code) == ("history_archived", 3)
            assert caught.value.context == {"at": time_text(moment), "known_from": time_text(done)}
            assert f"history before {time_text(done)} is archived" in caught.value.message
    for moment in (done, young):
        assert counted(verbs, moment) == counts_before[moment]
    past = at(verbs, old, done)
    assert (past.job.state, past.job.version, past.job.attempts, past.job.result) == ("succeeded", 3, 1, '"result"')
    assert (past.archived_before, past.unknown) == (done, ())
    assert [row.version for row in past.journal if row.machine == "JOB"] == [3]
    assert at(verbs, other, young).archived_before is None


def test_a_moment_that_gc_archived_is_refused_and_later_ones_are_shown(verbs: Verbs, tmp_path: Path) -> None:
    clock = verbs.clock
    job = verbs.job_in(JobState.SUCCEEDED)
    ended = clock()
    clock.advance(3600)
    later = verbs.submit()
    young = clock()
    clock.advance(3600)
    policy = Retention(finished_s=60, history_s=60, archive_dir=str(tmp_path))
    report = gc(verbs.store, policy, verbs.clock(), who="tests")
    assert (report.finished, report.blocks) == (1, 0)  # the block is held by the job that waits
    verbs.rule(verbs.job(later), Cancel())
    cancelled = clock()
    clock.advance(3600)
    policy = msgspec.structs.replace(policy, quarantined_s=60)
    report = gc(verbs.store, policy, verbs.clock(), who="tests")
    assert (report.quarantined, report.blocks > 0) == (1, True)
    assert counted(verbs, cancelled) == {
        ("noop", "default", "succeeded"): 1, ("noop", "default", "quarantined"): 1
    }  # fmt: skip
    assert counted(verbs, ended) == {("noop", "default", "succeeded"): 1}  # it has not moved since
    with pytest.raises(HistoryArchivedError) as caught:
        counted(verbs, young)
    assert caught.value.context == {"at": time_text(young), "known_from": time_text(cancelled)}
    past = at(verbs, job.job_id, ended)
    assert (past.job.state, past.journal, past.archived_before) == ("succeeded", (), ended)
    # The attempt that succeeded is in the row of its job.
    assert [(e.attempt, e.status, e.version, e.finished_at) for e in past.executions] == [(1, "DONE", 4, ended)]
    assert (past.job.result, past.unknown) == (None, ("result",))
    with pytest.raises(HistoryArchivedError):
        at(verbs, later, young)


def test_a_job_without_journal_rows_is_shown_from_its_last_move_on(verbs: Verbs) -> None:
    job = verbs.job_in(JobState.SUCCEEDED)
    ended = verbs.clock()
    verbs.clock.advance(10)
    archive(verbs, job.job_id, kept_from=job.version + 1)
    past = at(verbs, job.job_id, ended)
    assert (past.job.state, past.job.version, past.archived_before) == ("succeeded", job.version, ended)
    assert counted(verbs, ended) == {("noop", "default", "succeeded"): 1}


def test_an_attempt_without_journal_rows_is_refused_too(verbs: Verbs) -> None:
    verbs.submit()
    verbs.clock.advance(1)
    attempt = verbs.claim_one(begin=False)
    token = attempt.execution.lease_token
    claimed = verbs.clock.advance(1)
    verbs.work(attempt, Start(token))
    started = verbs.clock()
    committed = verbs.clock.advance(1)
    verbs.work(verbs.attempt(attempt.execution.exec_id), Commit(token))
    done = verbs.clock.advance(1)
    verbs.work(verbs.attempt(attempt.execution.exec_id), Finish(token))
    under_the_door(
        verbs,
        "DELETE FROM holdfast_journal WHERE machine = 'EXECUTION' AND version = 2",
        "DELETE FROM holdfast_journal WHERE machine = 'JOB' AND version < 3",
        "UPDATE holdfast_jobs SET history_from = 3",
    )
    for moment in (claimed, started):
        with pytest.raises(HistoryArchivedError) as caught:
            at(verbs, attempt.job.job_id, moment)
        assert caught.value.context == {"at": time_text(moment), "known_from": time_text(committed)}
    [execution] = at(verbs, attempt.job.job_id, done).executions
    assert (execution.status, execution.version, execution.lease_owner) == ("DONE", 4, WORKER)


def test_attempts_that_are_archived_leave_the_errors_of_that_time_unknown(verbs: Verbs) -> None:
    job_id = verbs.submit()
    for code in ("first", "second"):
        attempt = verbs.claim_one()
        verbs.work(attempt, fail(attempt, code=code, retry_at=verbs.clock()))
        verbs.clock.advance(1)
    then = verbs.clock()
    verbs.clock.advance(1)
    attempt = verbs.claim_one()
    verbs.work(attempt, fail(attempt, code="third"))
    assert (at(verbs, job_id, then).job.last_error_code, at(verbs, job_id, then).job.excused) == ("second", 0)
    under_the_door(verbs, "DELETE FROM holdfast_aborted WHERE attempt = 2")
    past = at(verbs, job_id, then)
    # The first attempt is still there, and its error was not the last one then.
    assert (past.job.last_error_code, past.job.last_error_message, past.job.excused) == (None, None, None)
    assert past.unknown == ("excused", "last_error_code", "last_error_message")
    assert (past.job.state, past.job.attempts, [e.attempt for e in past.executions]) == ("pending", 2, [1])


def test_a_lost_history_that_is_not_archived_advises_check(verbs: Verbs) -> None:
    job = verbs.job_in(JobState.SUCCEEDED)
    then = verbs.clock()
    verbs.clock.advance(1)
    under_the_door(
        verbs,
        "DELETE FROM holdfast_journal WHERE machine = 'JOB'",
        f"UPDATE holdfast_jobs SET updated_at = '{time_text(verbs.clock())}'",
    )
    for ask in (lambda: counted(verbs, then), lambda: at(verbs, job.job_id, then)):
        with pytest.raises(HistoryArchivedError) as caught:
            ask()
        assert caught.value.context == {"at": time_text(then), "known_from": None}
        assert caught.value.hint == "Run `holdfast check`."
    assert job.state == JobState.SUCCEEDED
