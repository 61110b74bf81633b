"""`holdfast queues`, `workers` and `pause`: existing queues are listed, and unknown ones cannot be paused."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta

import pytest

import holdfast as package
from holdfast import Execution, Ledger, Operations, Worker
from holdfast.cli.options import actor
from holdfast.core.errors import QueueUnknownError
from holdfast.store import Declared, Lease, Submission, open_store
from holdfast.store.verbs.alive import SILENT_S
from tests.cli.commands import holdfast, typed


@pytest.mark.parametrize("queue", ["defualt", "Default", "default "])
def test_a_queue_that_nothing_uses_cannot_be_paused(ledger: str, queue: str) -> None:
    refused = holdfast("pause", "--queue", queue, "--db", ledger, "--json")
    assert (refused.code, refused.error_code) == (2, "queue_unknown")
    assert refused.json["context"]["queue"] == queue
    assert refused.json["context"]["known"] == ["default"]
    assert holdfast("stats", "--db", ledger, "--json").json["paused"] == []
    with Ledger(ledger) as opened, pytest.raises(QueueUnknownError):
        opened.pause(queue)


def test_every_queue_that_is_declared_used_or_served_can_be_paused(ledger: str) -> None:
    with open_store(ledger) as store, store.transaction() as transaction:
        transaction.operations.declare({"send": Declared(queue="declared")})
        transaction.jobs.submit([Submission(operation="noop", payload="{}", queue="used")])
        transaction.workers.seen("worker-1", ["served"], ["send@1.0.0"], 4)
    for queue in ("default", "declared", "used", "served"):
        assert holdfast("pause", "--queue", queue, "--db", ledger, "--json").json == {"queue": queue, "paused": True}
    assert holdfast("stats", "--db", ledger, "--json").json["paused"] == ["declared", "default", "served", "used"]
    assert holdfast("stats", "--db", ledger).tells("Paused queues", "declared", "default", "served", "used")
    rows = {row["queue"]: row for row in holdfast("queues", "--db", ledger, "--json").json}
    assert [row["paused"] for row in rows.values()] == [True] * 4
    assert (rows["used"]["pending"], rows["served"]["workers"], rows["declared"]["workers"]) == (1, 1, 0)
    assert holdfast("queues", "--db", ledger).tells("declared", "paused", "served", "paused", 1)
    [worker] = holdfast("workers", "--db", ledger, "--json").json
    assert (worker["worker_id"], worker["state"], worker["queues"], worker["concurrency"]) == (
        "worker-1", "running", ["served"], 4,
    )  # fmt: skip
    assert holdfast("workers", "--db", ledger).tells("worker-1", "running", "served")


def test_a_queue_of_this_process_can_be_paused_before_anything_is_written(sqlite_ledger: str) -> None:
    with Ledger(sqlite_ledger) as opened:
        opened.operation("send", queue="mail")(lambda _run: None)
        opened.pause("mail")
        with opened.store.reading() as reading:
            assert reading.queues.paused() == ["mail"]


def test_every_change_of_a_queue_is_journalled_with_who_why_before_and_after(ledger: str) -> None:
    at, queue = ("--db", ledger, "--json"), ("--queue", "default")
    for words in (
        ("limit", *queue, "--depth", "100", "--reason", "small"),
        ("limit", *queue, "--depth", "100", "--reason", "again"),  # changes nothing
        ("limit", *queue, "--depth", "200", "--reason", "larger"),
        ("pause", *queue, "--reason", "down"),
        ("pause", *queue, "--reason", "down too"),  # changes nothing
        ("queues", "limit", "default", "--running", "3", "--reason", "slow"),
        ("queues", "weight", "default", "2", "--reason", "first"),
        ("resume", *queue, "--reason", "up"),
        ("limit", *queue, "--off", "--reason", "free"),
        ("limit", *queue, "--off", "--reason", "free again"),  # changes nothing
    ):
        assert holdfast(*words, *at).code == 0
    found = holdfast("queues", "history", "default", *at).json
    assert [(row["what"], row["before"], row["after"], row["reason"]) for row in found] == [
        ("depth", "200", None, "free"),
        ("pause", "true", None, "up"),
        ("weight", None, "2", "first"),
        ("limit", None, '{"running":3}', "slow"),
        ("pause", None, "true", "down"),
        ("depth", "100", "200", "larger"),
        ("depth", None, "100", "small"),
    ]
    assert {row["actor"] for row in found} == {actor()}
    assert all(row["at"] for row in found)
    assert holdfast("queues", "history", "default", "--db", ledger).tells("paused", "3 at once", "larger")
    assert holdfast("queues", "history", "other", "--db", ledger, "--json").json == []
    assert holdfast("check", "--db", ledger).code == 0


@pytest.mark.req("G-24")
def test_a_depth_limit_that_parks_is_shown(ledger: str) -> None:
    at = ("--db", ledger, "--json")
    done = holdfast("limit", "--queue", "default", "--depth", "1", "--park", "--reason", "slow", *at)
    assert done.json == {"queue": "default", "depth_max": 1, "parks": True}
    job_ids = [holdfast("submit", "noop", *at).json["job_id"] for _ in range(3)]
    [queue] = holdfast("queues", *at).json
    assert (queue["pending"], queue["parked"], queue["depth_max"], queue["parks"]) == (3, 2, 1, True)
    [limit] = holdfast("limits", "list", *at).json
    assert (limit["limit"], limit["depth"], limit["waiting"]) == ("depth:default", 1, 2)
    found = holdfast("explain", str(job_ids[2]), *at).json["findings"][0]
    assert (found["code"], found["evidence"]["limit"]) == ("limited", "depth:default")
    assert holdfast(*shlex.split(found["next"])[1:], *at).code == 0
    assert holdfast("limit", "--queue", "default", "--off", "--park", *at).error_code == "bad_input"
    for words in (("queues",), ("limits", "list"), ("queues", "history", "default")):
        assert holdfast(*words, "--db", ledger).code == 0
    assert holdfast("limits", "remove", "depth:default", "--reason", "free", *at).code == 0
    [queue] = holdfast("queues", *at).json
    assert (queue["parked"], queue["depth_max"], queue["parks"]) == (0, None, False)


def test_a_setting_older_than_its_journal_is_journalled_when_it_is_removed(ledger: str) -> None:
    with open_store(ledger) as store, store.transaction() as transaction:
        transaction.run("limit_queue", queue="default", depth=7)
        transaction.run("pause_queue", queue="default", actor="a", reason="r", now=store.time_parameter())
        transaction.queues.limit_depth("default", None, actor="bob", reason="free")
        assert transaction.queues.resume("default", actor="bob", reason="up")
        found = transaction.queues.history("default")
    assert [(one.what, one.before, one.after, one.actor) for one in found] == [
        ("pause", "true", None, "bob"), ("pause", None, "true", "holdfast"),
        ("depth", "7", None, "bob"), ("depth", None, "7", "holdfast"),
    ]  # fmt: skip


def test_a_worker_without_heartbeats_is_silent_before_it_is_lost(ledger: str) -> None:
    before = datetime.now(UTC) - timedelta(seconds=SILENT_S + 1)
    with open_store(ledger, lambda: before) as store, store.transaction() as transaction:
        transaction.workers.seen("worker-1", ["default"], ["noop@1.0.0"], 4)
        transaction.jobs.submit([Submission(operation="noop", payload="{}")])
    [worker] = holdfast("workers", "--db", ledger, "--json").json
    assert worker["state"] == "silent"
    report = holdfast("status", "--db", ledger, "--json").json["workers"]
    assert (report["running"], report["silent"]) == (1, 1)
    assert holdfast("status", "--db", ledger).tells("1 running", "1 silent")
    [about_to_start] = holdfast("explain", "1", "--db", ledger, "--json").json["findings"]
    assert about_to_start["evidence"]["last_seen_at"] == worker["seen_at"]
    assert holdfast(*shlex.split(about_to_start["next"])[1:]).tells("worker-1", "silent")
    with open_store(ledger) as store, store.transaction() as transaction:
        transaction.workers.seen("worker-1", ["default"], ["noop@1.0.0"], 4)
    assert holdfast("status", "--db", ledger, "--json").json["workers"]["silent"] == 0


def test_stopped_workers_are_listed_on_request(sqlite_ledger: str) -> None:
    assert holdfast("workers", "--db", sqlite_ledger).tells("No worker runs")
    with Ledger(sqlite_ledger) as opened:
        Worker(opened, queues=["default"]).run(until_idle=True)
    assert holdfast("workers", "--db", sqlite_ledger, "--json").json == []
    [worker] = holdfast("workers", "--all", "--db", sqlite_ledger, "--json").json
    assert (worker["state"], worker["operations"]) == ("stopped", ["noop@1.0.0"])


@pytest.mark.parametrize(
    "attempts, excused, shown", [(1, 0, "1/3"), (4, 1, "3/3"), (4, 0, "3/3 +1"), (0, 0, "0/3"), (5, 5, "0/3")]
)
def test_the_shown_tries_never_exceed_the_budget(attempts: int, excused: int, shown: str, sqlite_ledger: str) -> None:
    from holdfast.explain.values import tries

    with open_store(sqlite_ledger) as store, store.transaction() as transaction:
        [admission] = transaction.jobs.submit([Submission(operation="noop", payload="{}", max_attempts=3)])
        job = transaction.jobs.get(admission.job_id)
    changed = type(job)(
        **{**{name: getattr(job, name) for name in job.__struct_fields__}, "attempts": attempts, "excused": excused}
    )
    assert tries(changed) == shown


def test_a_returned_attempt_is_not_counted_as_a_try(sqlite_ledger: str) -> None:
    with open_store(sqlite_ledger) as store, store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}", max_attempts=1)])
        transaction.executions.claim(Lease(owner="w", seconds=60))
    assert " 1/1 " in holdfast("jobs", "--db", sqlite_ledger).out


def test_replay_takes_an_age_and_prints_the_time(ledger: str) -> None:
    found = holdfast("replay", "select", "--created-after", "2h ago", "--db", ledger, "--json")
    assert found.code == 0
    for age in ("-2h", "90 min ago"):
        assert holdfast("replay", "select", f"--created-after={age}", "--db", ledger, "--json").code == 0
    wrong = holdfast("replay", "select", "--created-after", "two hours ago", "--db", ledger, "--json")
    assert wrong.code == 2


def test_a_user_may_declare_the_name_of_a_built_in_operation(ledger: str) -> None:
    with Ledger(ledger) as opened:
        assert opened.submit("noop").is_new

        @opened.operation("noop", queue="own")
        def noop(run: Execution, x: int) -> int:
            return x

        receipt = opened.submit(noop.call(x=7))
        opened.run_until_idle()
        assert receipt.wait(30).result == 7
        assert opened.operations.versions("noop") == ["1.0.0"]
    operations = Operations()
    operations.operation("noop", version="2.0.0")(lambda _run: 5)
    with Ledger(ledger, operations) as opened:
        assert [operation.version for operation in opened.operations] == ["2.0.0"]


def test_dir_shows_the_public_names() -> None:
    assert dir(package) == sorted(package.__all__)
    assert {"Ledger", "Worker", "RetryPolicy"} <= set(dir(package))


@pytest.mark.parametrize("act", [("pause",), ("resume",), ("limit", "--off")])
def test_a_command_that_changes_a_queue_takes_no_queue_for_granted(ledger: str, act: tuple[str, ...]) -> None:
    refused = holdfast(*act, "--db", ledger, "--json")
    assert (refused.code, refused.error_code) == (2, "bad_input")
    assert holdfast("queues", "history", "default", "--db", ledger, "--json").json == []


def test_the_next_step_of_an_unknown_queue_can_be_pasted(ledger: str) -> None:
    refused = holdfast("pause", "--queue", "nowhere", "--db", ledger)
    command = refused.err.rpartition("`holdfast")[2].partition("`")[0]
    assert typed(f"holdfast{command}").code == 0
