"""Jobs that follow other jobs, and batches: when they run, what holds them back, and workers that are killed."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

import pytest

from holdfast import Call, Execution, Ledger, Worker
from holdfast.core.errors import FlowInvalidError, RecordNotFoundError
from holdfast.core.machines import JobState
from holdfast.explain.explain import explain
from holdfast.explain.explanation import Finding
from holdfast.governance.releases import release
from holdfast.scheduling.batches import find
from holdfast.testing import VirtualClock, drain
from tests.support.forkserver import ForkServer, shared_server
from tests.support.roles import wait_until

CALLS = 12


@pytest.fixture
def server() -> Iterator[ForkServer]:
    with shared_server("tests.scheduling.test_flow", "psycopg") as server:
        yield server


@pytest.fixture
def ran(ledger: Ledger) -> list[str]:
    """Declare `step`, which notes its name and fails for names that begin with `bad`; return what has run."""
    done: list[str] = []

    @ledger.operation("step", max_attempts=1)
    def step(run: Execution, name: str) -> str:
        done.append(name)
        if name.startswith("bad"):
            raise ValueError(name)
        return name

    return done


def state(ledger: Ledger, job_id: int) -> tuple[str, str | None]:
    job = ledger.job(job_id)
    return job.state.value, job.quarantine_code


def finding(ledger: Ledger, job_id: int) -> Finding:
    with ledger.store.reading() as reading:
        [found] = [f for f in explain(reading, job_id, ledger.store.now()).findings if f.code.endswith("_job")]
    return found


def refused(error: pytest.ExceptionInfo[FlowInvalidError]) -> object:
    assert error.value.code == "flow_invalid"
    return error.value.context["refusal"]


# ---------------------------------------------------------------------------------------------------------------------
# After


def test_a_job_runs_when_those_that_it_follows_have_succeeded(ledger: Ledger, ran: list[str]) -> None:
    first = ledger.submit("step", {"name": "a"})
    second = ledger.submit("step", {"name": "b"})
    last = ledger.submit("step", {"name": "d"}, after=[first, second.job_id], priority=100)
    middle = ledger.submit("step", {"name": "c"}, after=[second])
    end = ledger.submit("step", {"name": "e"}, after=[last, middle])
    assert ledger.run_until_idle() == 5
    assert ran == ["a", "b", "d", "c", "e"]
    assert state(ledger, end.job_id) == ("succeeded", None)
    assert ledger.submit("step", {"name": "f"}, after=[end]).is_new  # what it follows has ended already
    assert ledger.run_until_idle() == 1
    with ledger.store.reading() as reading:
        events = [row.event for row in reading.journal.of(last.job_id)]
        assert reading.flow.wait_of(last.job_id).awaited is None  # type: ignore[union-attr]  # it has one
    assert events == ["submit", "claim", "succeed"]


def test_while_a_job_rests_failed_its_follower_waits_and_explain_names_it(ledger: Ledger, ran: list[str]) -> None:
    bad = ledger.submit("step", {"name": "bad"})
    follower = ledger.submit("step", {"name": "b"}, after=[bad])
    found = finding(ledger, follower.job_id)
    assert (found.code, found.evidence["job_id"], found.evidence["state"]) == ("after_job", bad.job_id, "pending")
    ledger.run_until_idle()
    assert (ran, state(ledger, follower.job_id)) == (["bad"], ("pending", None))
    found = finding(ledger, follower.job_id)
    assert (found.code, found.evidence["job_id"], found.evidence["state"]) == ("held_by_job", bad.job_id, "failed")
    assert found.next == f"holdfast explain {bad.job_id}"
    ledger.quarantine(bad.job_id, "broken", reason="x")
    ledger.run_until_idle()
    found = finding(ledger, follower.job_id)
    assert (found.evidence["state"], found.evidence["quarantine_code"]) == ("quarantined", "broken")


@pytest.mark.parametrize("quarantined", [False, True], ids=["retried", "released"])
def test_a_job_that_is_retried_or_released_lets_its_follower_run(ledger: Ledger, *, quarantined: bool) -> None:
    broken = [True]

    @ledger.operation(max_attempts=1)
    def repaired(run: Execution) -> None:
        if broken[0]:
            raise ValueError

    first = ledger.submit(repaired.call())
    follower = ledger.submit("noop", after=[first])
    ledger.run_until_idle()
    assert (state(ledger, first.job_id)[0], state(ledger, follower.job_id)[0]) == ("failed", "pending")
    broken[0] = False
    if quarantined:
        ledger.quarantine(first.job_id, "broken")
        assert ledger.run_until_idle() == 0
        release(ledger.store, first.job_id, operator="ann", reason="repaired")
    else:
        ledger.retry(first.job_id)
    assert ledger.run_until_idle() == 2
    assert state(ledger, follower.job_id) == ("succeeded", None)


def test_cancelling_a_job_cancels_followers_with_that_policy(ledger: Ledger, clock: VirtualClock) -> None:
    first = ledger.submit("noop", run_at=clock.after(3600))
    waits = ledger.submit("noop", after=[first])
    cancelled = ledger.submit("noop", after=[first], if_unsuccessful="cancel")
    chain = ledger.submit("noop", after=[cancelled], if_unsuccessful="cancel")
    runs = ledger.submit("noop", after=[first], if_unsuccessful="run")
    ledger.cancel(first.job_id, reason="not wanted")
    assert ledger.run_until_idle() == 1
    assert state(ledger, waits.job_id) == ("pending", None)
    assert state(ledger, cancelled.job_id) == state(ledger, chain.job_id) == ("quarantined", "cancelled")
    assert state(ledger, runs.job_id) == ("succeeded", None)
    with ledger.store.reading() as reading:
        assert [row.event for row in reading.journal.of(chain.job_id)] == ["submit", "cancel"]


ENDS = ("succeeded", "failed", "broken", "cancelled", "deadline_passed", "pending")


def brought(ledger: Ledger, end: str, clock: VirtualClock) -> int:
    """Submit a job that will end in this way; it is pending until `bring_to_end`."""
    deadline = clock.after(60) if end == "deadline_passed" else None
    due = clock.after(10 if end in ("succeeded", "failed", "deadline_passed") else 3600)
    name = "bad" if end == "failed" else end
    return ledger.submit("step", {"name": name}, run_at=due, deadline_at=deadline).job_id


def bring_to_end(ledger: Ledger, jobs: list[tuple[str, int]], clock: VirtualClock) -> None:
    for end, job_id in jobs:
        if end == "cancelled":
            ledger.cancel(job_id)
        elif end == "broken":
            ledger.quarantine(job_id, "broken")
    clock.advance(100)
    ledger.run_until_idle()
    assert [(end, state(ledger, job_id)) for end, job_id in jobs] == [
        (end, (end, None) if end in ("succeeded", "failed", "pending") else ("quarantined", end)) for end, _ in jobs
    ]


def expected(ends: tuple[str, ...], policy: str) -> tuple[str, str | None]:
    """Return what becomes of a job that follows jobs with these ends."""
    if policy == "cancel" and {"cancelled", "deadline_passed"} & set(ends):
        return "quarantined", "cancelled"
    held = {"pending"} if policy == "run" else set(ENDS) - {"succeeded"}
    return ("pending" if held & set(ends) else "succeeded"), None


@pytest.mark.parametrize(
    "when, policies", [("before", ("wait", "cancel", "run")), ("after", ("cancel",))], ids=["before", "after"]
)
def test_a_follower_does_not_depend_on_the_order_of_what_it_follows(
    ledger: Ledger, clock: VirtualClock, ran: list[str], when: str, policies: tuple[str, ...]
) -> None:
    """All orders of three jobs with all ends, by every policy; the follower is submitted before or after they end."""
    rounds = [{end: brought(ledger, end, clock) for end in ENDS} for _ in range(3)]
    jobs = [pair for one in rounds for pair in one.items()]
    wanted = {}
    if when == "after":
        bring_to_end(ledger, jobs, clock)
    for ends in itertools.product(ENDS, repeat=3):
        after = [one[end] for one, end in zip(rounds, ends, strict=True)]
        for policy in policies:
            call = Call(operation="step", payload={"name": "follower"}, after=after, if_unsuccessful=policy)
            wanted[ends, policy] = call
    receipts = dict(zip(wanted, ledger.submit_many(list(wanted.values())), strict=True))
    if when == "before":
        bring_to_end(ledger, jobs, clock)
    else:
        ledger.run_until_idle()
    with ledger.store.reading() as reading:
        ended = {job.job_id: (job.state.value, job.quarantine_code) for job in reading.lists.jobs(limit=1000)}
    found = {which: ended[receipt.job_id] for which, receipt in receipts.items()}
    assert found == {(ends, policy): expected(ends, policy) for ends, policy in found}
    follows = sum(result == ("succeeded", None) for result in found.values())
    assert ran.count("follower") == follows


def test_a_job_that_was_released_after_a_look_does_not_cancel_its_follower(ledger: Ledger, clock: VirtualClock) -> None:
    first = ledger.submit("noop", run_at=clock.after(3600))
    follower = ledger.submit("noop", after=[first], if_unsuccessful="cancel")
    ledger.cancel(first.job_id, reason="not wanted")
    with ledger.store.reading() as reading:
        found, _ = reading.flow.doomed((0, 0), 10)
    assert [(job, parent) for _, job, _, parent, _ in found] == [(follower.job_id, first.job_id)]
    release(ledger.store, first.job_id, operator="ann", reason="wanted")
    assert ledger.perform(lambda tx: tx.flow.settle(found, actor="w")) == (0, [])
    assert state(ledger, follower.job_id) == ("pending", None)


def test_a_follower_that_is_cancelled_waits_no_longer(ledger: Ledger, clock: VirtualClock) -> None:
    first = ledger.submit("noop", run_at=clock.after(3600))
    follower = ledger.submit("noop", after=[first])
    ledger.cancel(follower.job_id)
    ledger.run_until_idle()
    with ledger.store.reading() as reading:
        assert reading.flow.wait_of(follower.job_id).awaited is None  # type: ignore[union-attr]  # it has one
        assert reading.jobs.outlook(["default"]) == (clock.after(3600), False)


def test_a_follower_with_a_deadline_ends_when_that_passes(ledger: Ledger, clock: VirtualClock) -> None:
    first = ledger.submit("noop", run_at=clock.after(3600))
    follower = ledger.submit("noop", after=[first], deadline_s=60)
    clock.advance(60)
    ledger.run_until_idle()
    assert state(ledger, follower.job_id) == ("quarantined", "deadline_passed")


def test_a_job_that_would_wait_for_itself_is_refused(ledger: Ledger, clock: VirtualClock) -> None:
    first = ledger.submit("noop", client="c", key="first", run_at=clock.after(60))
    second = ledger.submit("noop", client="c", key="second", after=[first])
    third = ledger.submit("noop", client="c", key="third", after=[second])
    for key, parent in (("first", first), ("first", third), ("second", third)):
        with pytest.raises(FlowInvalidError) as error:
            ledger.submit("noop", client="c", key=key, after=[parent])
        assert refused(error) == "cycle"
    assert not ledger.submit("noop", client="c", key="third", after=[first]).is_new


@pytest.mark.parametrize(
    "settings, cause",
    [
        ({"after": [999]}, "parent_unknown"),
        ({"after": ["1"]}, "parent_unknown"),
        ({"after": []}, "parents_out_of_range"),
        ({"after": list(range(1001))}, "parents_out_of_range"),
        ({"after": [1], "if_unsuccessful": "explode"}, "policy_unknown"),
        ({"if_unsuccessful": "cancel"}, "policy_without_after"),
        ({"after": [10**30]}, "parent_unknown"),
    ],
)
def test_a_wrong_wait_is_refused_at_submit(ledger: Ledger, settings: dict[str, object], cause: str) -> None:
    ledger.submit("noop")
    with pytest.raises(FlowInvalidError) as error:
        ledger.submit("noop", **settings)  # type: ignore[arg-type]  # that is the test
    assert refused(error) == cause
    assert sum(count.n for count in ledger.counts()) == 1


def test_thousands_of_jobs_follow_each_other(ledger_url: str) -> None:
    """A thousand chains of two, and one job that follows all of their first jobs."""
    with Ledger(ledger_url) as ledger:
        firsts = ledger.submit_many([{"operation": "noop", "queue": "first"} for _ in range(1000)])
        ledger.submit_many([{"operation": "noop", "queue": "second", "after": [first]} for first in firsts])
        last = ledger.submit("noop", after=firsts, queue="second")
        assert ledger.run_until_idle(queues=["second"]) == 0
        assert ledger.run_until_idle(queues=["first"]) == 1000
        assert ledger.run_until_idle(queues=["second"]) == 1001
        assert state(ledger, last.job_id) == ("succeeded", None)


# ---------------------------------------------------------------------------------------------------------------------
# Batches


def test_a_batch_has_progress_and_its_follower_runs_once_at_the_end(ledger: Ledger, ran: list[str]) -> None:
    calls = [{"operation": "step", "payload": {"name": f"part {n}"}} for n in range(5)]
    batch = ledger.batch(calls, then={"operation": "step", "payload": {"name": "report"}}, name="nightly")  # type: ignore[arg-type]  # by name
    assert batch.then is not None
    assert [receipt.is_new for receipt in batch.receipts] == [True] * 5
    assert (batch.progress().total, batch.progress().pending, batch.progress().ended) == (5, 5, False)
    assert ledger.run_until_idle() == 6
    assert ran[-1] == "report"
    assert sorted(ran[:-1]) == [f"part {n}" for n in range(5)]
    progress = find(ledger, batch.batch_id).progress()
    assert (progress.succeeded, progress.ended) == (5, True)
    with ledger.store.reading() as reading:
        [only] = reading.flow.batches()
    assert (only.name, only.job_id, only.parents, only.awaited) == ("nightly", batch.then.job_id, 5, None)


@pytest.mark.parametrize("policy, follower", [("wait", "pending"), ("run", "succeeded"), ("cancel", "pending")])
def test_a_batch_decides_about_its_follower_if_a_job_fails(
    ledger: Ledger, ran: list[str], policy: str, follower: str
) -> None:
    calls = [{"operation": "step", "payload": {"name": name}} for name in ("a", "bad", "c")]
    then = {"operation": "step", "payload": {"name": "report"}}
    batch = ledger.batch(calls, then=then, if_unsuccessful=policy)  # type: ignore[arg-type]  # by name
    assert batch.then is not None
    drain(ledger)
    assert state(ledger, batch.then.job_id)[0] == follower
    assert (batch.progress().failed, batch.progress().succeeded) == (1, 2)
    if policy != "run":
        found = finding(ledger, batch.then.job_id)
        assert (found.code, found.evidence["job_id"]) == ("held_by_job", batch.receipts[1].job_id)
        ledger.cancel(batch.receipts[1].job_id)
        drain(ledger)
        assert state(ledger, batch.then.job_id)[0] == ("quarantined" if policy == "cancel" else "pending")


def test_a_batch_without_a_follower_ends(ledger: Ledger) -> None:
    batch = ledger.batch([{"operation": "noop"}] * 3)
    ledger.run_until_idle()
    assert batch.then is None
    with ledger.store.reading() as reading:
        assert reading.flow.batch(batch.batch_id).awaited is None
    with pytest.raises(RecordNotFoundError):
        find(ledger, 999)


def test_a_batch_whose_calls_have_keys_is_submitted_once(ledger: Ledger) -> None:
    calls = [{"operation": "noop", "client": "c", "key": f"part {n}"} for n in range(3)]
    then = {"operation": "noop", "client": "c", "key": "report"}
    first, again = (ledger.batch(calls, then=then) for _ in range(2))  # type: ignore[arg-type]  # by name
    assert again.batch_id == first.batch_id
    assert [receipt.job_id for receipt in again.receipts] == [receipt.job_id for receipt in first.receipts]
    assert ledger.run_until_idle() == 4


@pytest.mark.parametrize(
    "calls, settings, cause",
    [
        ([], {}, "batch_size"),
        ([{"operation": "noop"}], {"name": " "}, "name_unfit"),
        ([{"operation": "noop"}], {"if_unsuccessful": "x"}, "policy_unknown"),
        ([{"operation": "noop"}], {"then": {"operation": "noop", "after": [1]}}, "then_after"),
        (
            [{"operation": "noop", "client": "c", "key": "k"}],
            {"then": {"operation": "noop", "client": "c", "key": "k"}},
            "then_not_new",
        ),
    ],
)
def test_a_wrong_batch_is_refused_and_writes_nothing(
    ledger: Ledger, calls: list[dict[str, object]], settings: dict[str, object], cause: str
) -> None:
    ledger.submit("noop")
    with pytest.raises(FlowInvalidError) as error:
        ledger.batch(calls, **settings)  # type: ignore[arg-type]  # that is the test
    assert refused(error) == cause
    assert sum(count.n for count in ledger.counts()) == 1


# ---------------------------------------------------------------------------------------------------------------------
# Crashes


def work(url: str) -> None:
    """Work until killed."""
    ledger = Ledger(url)

    @ledger.operation("part", lease_s=3)
    def part(run: Execution, n: int) -> int:
        time.sleep(0.003)
        return n

    @ledger.operation("report", lease_s=3)
    def report(run: Execution, batch: int) -> int:
        run.after_commit(Call(operation="note", payload={"batch": batch}))
        return batch

    @ledger.operation("note", lease_s=3)  # a killed worker may hold one
    def note(run: Execution, batch: int) -> int:
        return batch

    Worker(ledger, concurrency=4).run()


def submit_batches(url: str) -> None:
    """Submit batches until killed."""
    ledger = Ledger(url)
    for number in range(1_000_000):
        calls = [{"operation": "part", "payload": {"n": n}} for n in range(CALLS)]
        ledger.batch(calls, then={"operation": "report", "payload": {"batch": number}})  # type: ignore[arg-type]  # by name
        time.sleep(0.05)


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_workers_and_submitters_that_are_killed_run_each_follower_once(
    server: ForkServer, ledger_url: str, kills: int
) -> None:
    chooser = random.Random(16)
    with Ledger(ledger_url) as ledger:
        ledger.operation("part", lease_s=3)(lambda run, n: n)
        ledger.operation("report", lease_s=3)(lambda run, batch: batch)
        ledger.operation("note", lease_s=3)(lambda run, batch: batch)
        ledger.submit("noop", queue="other")  # declares them

        roles = ["work", "work", "submit_batches"]
        children = [server.spawn(f"tests.scheduling.test_flow:{role}", url=ledger_url) for role in roles]

        def submitted() -> int:
            with ledger.store.reading() as reading:
                return len(reading.flow.batches(10_000))

        for kill in range(kills):
            wait_until(lambda kill=kill: submitted() > kill, 60, f"{kill + 1} batches were submitted")
            time.sleep(chooser.random() / 4)
            which = chooser.randrange(len(roles))
            children[which].kill()
            children[which] = server.spawn(f"tests.scheduling.test_flow:{roles[which]}", url=ledger_url)
        children[2].kill()

        def ended() -> bool:
            return not any(c.n for c in ledger.counts() if c.queue == "default" and c.state not in ENDED)

        wait_until(ended, 60, "all batches have ended")
        for child in children[:2]:
            child.kill()
        with ledger.store.reading() as reading:
            batches = reading.flow.batches(10_000)
            found = reading.lists.jobs(limit=100_000)
            progress = [reading.flow.states_of(batch.wait_id) for batch in batches]
    assert len(batches) >= kills
    reports = [job for job in found if job.operation == "report"]
    assert {job.job_id for job in reports} == {batch.job_id for batch in batches}
    assert {job.state for job in reports} == {JobState.SUCCEEDED}
    assert all(states[JobState.SUCCEEDED] == CALLS for states in progress)
    assert len([job for job in found if job.operation == "note"]) == len(batches)  # each submitted its own once


ENDED = (JobState.SUCCEEDED, JobState.QUARANTINED)
