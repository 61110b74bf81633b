"""Retention on both databases: what is slimmed, archived or held back, and what a client gets afterwards.

Invariants: after every gc here, the ledger passes its own check, its seals and archives verify, and every journal row
that was ever written is in the ledger or in an archive that the ledger names.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Cancel, Execution, Ledger, Snooze
from holdfast.audit.check.runner import check
from holdfast.audit.files.archive import read
from holdfast.audit.seals.sealer import seal
from holdfast.audit.seals.verify import verify as verify_seals
from holdfast.core.commands import Commit, Finish, GiveBack, Start
from holdfast.core.decide import Move
from holdfast.core.errors import (
    ArchiveUnwritableError,
    IdempotencyConflictError,
    InputError,
    ResultExpiredError,
    SealsBrokenError,
)
from holdfast.core.governed import GrantEvent
from holdfast.core.machines import GRANT, PROCEDURE, STEP, SWITCH, VALUE, ExecutionStatus
from holdfast.core.records import time_text
from holdfast.core.seals import Archive
from holdfast.core.steps import run_steps
from holdfast.engine.upkeep import archiving, retention
from holdfast.engine.upkeep.archiving import Archived
from holdfast.engine.upkeep.retention import (
    GcReport,
    HeldBlock,
    Retention,
    gc,
    gc_steps,
    policy_of,
    policy_to_change,
    set_policy,
)
from holdfast.store import Lease, create_store
from holdfast.store.migrations import verify
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.verbs.retention import SLIM_MARK, SlimMark
from holdfast.testing import VirtualClock, virtual_world
from tests.enforcement.raw import GUARDED_BY_NAME, Client, Hand
from tests.engine.database import Database
from tests.store.verbs import together
from tests.support.ledgers import Original
from tests.support.postgres import Server

WHO = "ann"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The directory of archives."""
    directory = tmp_path / "archives"
    directory.mkdir()
    return directory


def make(url: str) -> None:
    with create_store(url) as store, store.transaction() as transaction:
        transaction.execute("CREATE TABLE effects (key TEXT)")


ORIGINAL = Original(make)


@pytest.fixture
def new_sqlite_ledger(sqlite_url: str) -> str:
    ORIGINAL.to_file(sqlite_url)
    return sqlite_url


@pytest.fixture
def new_postgres_ledger(pg_server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    with ORIGINAL.on(pg_server, request.node.nodeid) as (url, _):
        yield url


@pytest.fixture
def worked(ledger: Ledger) -> Ledger:
    """A ledger whose operation ends in every way, with a table for its effects."""

    @ledger.operation("step", max_attempts=1)
    def step(run: Execution, key: str, how: str = "succeed") -> dict[str, str]:
        run.checkpoint("seen", lambda: key)
        run.effect("INSERT INTO effects (key) VALUES (:key)", {"key": key})
        if how == "fail":
            raise ValueError("it is broken")
        if how == "cancel":
            raise Cancel
        if how == "snooze" and run.attempt == 1:
            raise Snooze(0)
        return {"key": key}

    return ledger


def submit(ledger: Ledger, *keys: str, how: str = "succeed") -> None:
    for key in keys:
        ledger.submit("step", {"key": key, "how": how}, client="c", key=key)


def done(ledger: Ledger, *keys: str, how: str = "succeed") -> None:
    """Submit jobs and work until they have ended."""
    submit(ledger, *keys, how=how)
    ledger.run_until_idle()


def work_in_steps(ledger: Ledger, *, twice: bool = False) -> None:
    """Lease the due job, start it, commit and finish it, each alone; a first attempt may be given back before."""
    lease = Lease(owner="w", seconds=60, begin=False)
    commands: list[list[Any]] = [[Start, Commit, Finish]]
    if twice:
        commands.insert(0, [Start, lambda token: GiveBack(token, ledger.store.now(), "worker_stopped")])
    for series in commands:
        with ledger.store.transaction() as transaction:
            [attempt] = transaction.executions.claim(lease)
        for command in series:
            with ledger.store.transaction() as transaction:
                now = transaction.lists.attempt(attempt.execution.exec_id)
                assert now is not None
                [answer] = transaction.executions.move([(now, command(now.execution.lease_token))], actor="w")
                assert isinstance(answer, Move)


def attempts(ledger: Ledger) -> list[int]:
    """Return the attempts of job 1 that the ledger has."""
    with ledger.store.reading() as reading:
        return [execution.attempt for execution in reading.lists.executions(1)]


def whole(folder: Path, **changes: Any) -> Retention:
    """Return a policy that drops everything that is older than a second."""
    return Retention(
        **{"finished_s": 1, "quarantined_s": 1, "history_s": 1, "archive_dir": str(folder), **changes},
    )


def everything(ledger: Ledger) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table of the ledger."""
    with ledger.store.reading() as reading:
        tables = sorted(ledger.store.tables(reading.connection))
        return {table: sorted(reading.execute(f"SELECT * FROM {table}"), key=repr) for table in tables}


def rows_of(ledger: Ledger) -> list[tuple[Any, ...]]:
    with ledger.store.reading() as reading:
        return reading.seals.journal_chunk(after=0, limit=1_000_000)


def archived_rows(ledger: Ledger, folder: Path) -> list[tuple[Any, ...]]:
    """Return the rows of the archives that the ledger names, each file checked against its digest."""
    with ledger.store.reading() as reading:
        records = reading.seals.archives()
    return [row for record in records for row in read(folder / record.file, sha256=record.sha256).journal]


def require_sound(ledger: Ledger, folder: Path, before: list[tuple[Any, ...]]) -> None:
    """Fail unless the ledger is clean and every row of before is where it should be, unchanged."""
    verify(ledger.store)
    report = check(ledger.store)
    assert report.violations == ()
    verified = verify_seals(ledger.store, archives=folder)
    assert verified.problems == ()
    here, away = rows_of(ledger), archived_rows(ledger, folder)
    assert set(before) <= {*here, *away}
    if ledger.store.dialect == "sqlite":
        assert not set(here) & set(away)


def archives(ledger: Ledger) -> list[Archive]:
    with ledger.store.reading() as reading:
        return reading.seals.archives()


def notes(ledger: Ledger, event: str) -> list[dict[str, Any]]:
    """Return what gcs have noted in the journal of this ledger, in order."""
    return [json.loads(row[10]) for row in rows_of(ledger) if row[3] == "MAINTENANCE" and row[8] == event]


def by_key(ledger: Ledger, key: str) -> Any:
    with ledger.store.reading() as reading:
        return reading.jobs.by_key([("c", key)])["c", key]


def histories(ledger: Ledger, table: str, subject: str) -> dict[int, int]:
    with ledger.store.reading() as reading:
        return dict(reading.execute(f"SELECT {subject}, history_from FROM {table}"))


# ---------------------------------------------------------------------------------------------------------------------
# The policy


@pytest.mark.req("W-06")
def test_nothing_is_dropped_until_a_policy_says_so(worked: Ledger, clock: VirtualClock) -> None:
    done(worked, "a", "b")
    clock.advance(10**9)
    before = everything(worked)
    assert policy_of(worked.store) == Retention()
    assert gc(worked.store, who=WHO) == GcReport(dry_run=False)
    assert everything(worked) == before


def test_the_ledger_keeps_one_policy_and_the_journal_says_who_set_it(ledger: Ledger) -> None:
    first = Retention(finished_s=86400, history_s=7 * 86400.5, archive_dir="/var/archives")
    set_policy(ledger.store, first, who=WHO, why="the disk is small")
    with Ledger(ledger.store.url, world=ledger.world) as other:
        assert policy_of(other.store) == first
    set_policy(ledger.store, first, who="bob", why="again")  # says nothing new, and writes nothing
    set_policy(ledger.store, Retention(), who="bob", why="keep it all")
    assert policy_of(ledger.store) == Retention()
    off = {"finished_s": None, "quarantined_s": None, "history_s": None, "archive_dir": None}
    on = {**off, "finished_s": 86400, "history_s": 604803.5, "archive_dir": "/var/archives"}
    assert notes(ledger, "retention") == [{"before": off, "after": on}, {"before": on, "after": off}]
    doors = [(row[9], row[10]) for row in rows_of(ledger) if row[8] == "open"]
    assert doors == [(WHO, "the disk is small"), ("bob", "keep it all")]


@pytest.mark.parametrize(
    "given",
    [
        {"finished_s": -1},
        {"finished_s": float("nan")},
        {"quarantined_s": float("inf")},
        {"history_s": 1e12, "archive_dir": "/a"},
        {"history_s": 1},
        {"archive_dir": "below/here"},
        {"archive_dir": ""},
        {"archive_dir": "/a\0b"},
        {"archive_dir": "/\ud800"},
    ],
    ids=str,
)
def test_a_policy_that_cannot_be_kept_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Retention(**given)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", '{"finished_s": "long"}', '{"finished_s": -1}', '{"keep": 1}', '{"finished_s": 5, "newfield": 1}',
        '{"history_s": 5}',
    ],
)  # fmt: skip
def test_a_policy_in_the_ledger_that_cannot_be_read_drops_nothing(worked: Ledger, text: str) -> None:
    done(worked, "a")
    with worked.store.transaction() as transaction:
        transaction.settings.set("retention", text)
    before = everything(worked)
    with pytest.raises(InputError) as refused:
        gc(worked.store, who=WHO)
    assert refused.value.message.startswith("the ledger's retention policy cannot be read: ")
    assert "`holdfast gc --help`" in refused.value.hint
    assert everything(worked) == before
    # And that step helps: what was there is noted, and what is set anew holds.
    assert policy_to_change(worked.store) == Retention()
    set_policy(worked.store, Retention(finished_s=60), who=WHO, why="it could not be read")
    assert policy_of(worked.store) == Retention(finished_s=60)
    with worked.store.reading() as reading:
        [[note]] = reading.execute("SELECT reason FROM holdfast_journal WHERE event = 'retention'")
    assert msgspec.json.decode(note)["before"] == {"unreadable": text}


# ---------------------------------------------------------------------------------------------------------------------
# Slimming


@pytest.mark.req("W-06", "X-09")
def test_a_job_is_slimmed_once_it_has_rested_long_enough(worked: Ledger, clock: VirtualClock) -> None:
    done(worked, "old", "older")
    done(worked, "poison", how="cancel")
    done(worked, "broken", how="fail")
    clock.advance(50)
    done(worked, "young")
    submit(worked, "waiting")
    clock.advance(50)
    states = {key: by_key(worked, key) for key in ("old", "older", "poison", "broken", "young", "waiting")}
    assert [job.state.value for job in states.values()] == [
        "succeeded", "succeeded", "quarantined", "failed", "succeeded", "pending",
    ]  # fmt: skip
    policy = Retention(finished_s=60, quarantined_s=99)
    assert gc(worked.store, policy, clock.after(-2), who=WHO) == GcReport(dry_run=False, finished=2)
    assert gc(worked.store, policy, who=WHO) == GcReport(dry_run=False, quarantined=1)
    for key, job in states.items():
        slimmed = msgspec.structs.replace(job, payload=None, result=None)
        assert by_key(worked, key) == (slimmed if key in ("old", "older", "poison") else job)
    with worked.store.reading() as reading:
        kept = [key for key, job in states.items() if reading.notes.checkpoints(job.job_id)]
    assert kept == ["broken", "young"]
    assert notes(worked, "slim") == [
        {"jobs": 2, "first": states["old"].job_id, "last": states["older"].job_id},
        {"jobs": 1, "first": states["poison"].job_id, "last": states["poison"].job_id},
    ]
    assert [(row[9], row[10]) for row in rows_of(worked) if row[8] == "open"] == [(WHO, "retention")] * 2
    assert gc(worked.store, policy, who=WHO) == GcReport(dry_run=False)
    assert check(worked.store).violations == ()


def test_many_jobs_are_slimmed_batch_by_batch(
    worked: Ledger, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "JOBS_A_BATCH", 2)
    done(worked, *"abcde")
    clock.advance(10)
    assert gc(worked.store, Retention(finished_s=1), who=WHO).finished == 5
    assert [(note["jobs"], note["last"] - note["first"]) for note in notes(worked, "slim")] == [(2, 1), (2, 1), (1, 0)]


DAY_S = 86_400


def test_a_gc_begins_where_jobs_are_not_slimmed_yet(
    worked: Ledger, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that are left behind are found again, wherever they are."""
    monkeypatch.setattr(retention, "JOBS_A_BATCH", 2)
    policy = Retention(finished_s=1, quarantined_s=1)
    done(worked, "a", "b")  # 1, 2
    done(worked, "broken", how="fail")  # 3
    done(worked, "c")  # 4
    clock.advance(10)
    assert gc(worked.store, policy, who=WHO).finished == 3
    assert slim_mark(worked) == SlimMark()  # a transaction of today may still be open, with a lower id
    clock.advance(2 * DAY_S)
    submit(worked, "waiting", "d")  # 5, 6
    worked.cancel(6)
    clock.advance(2 * DAY_S)
    assert gc(worked.store, policy, who=WHO).quarantined == 1
    assert slim_mark(worked) == SlimMark(7, (3, 5))
    assert [by_key(worked, key).slimmed for key in ("a", "broken", "waiting")] == [True, False, False]
    worked.cancel(3)
    worked.run_until_idle()
    done(worked, "e")  # 7
    clock.advance(10)
    dry = gc(worked.store, policy, who=WHO, dry_run=True)
    assert (dry.finished, dry.quarantined) == (2, 1)
    assert slim_mark(worked) == SlimMark(7, (3, 5))
    report = gc(worked.store, policy, who=WHO)
    assert (report.finished, report.quarantined) == (2, 1)
    assert slim_mark(worked) == SlimMark(7, ())
    assert check(worked.store).violations == ()


def test_the_mark_of_slimmed_jobs_leaves_few_behind_and_is_verified(
    worked: Ledger, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.verbs.retention.LEFT_MAX", 1)
    done(worked, "broken", "too", how="fail")  # 1, 2
    done(worked, "a", "b")  # 3, 4
    clock.advance(2 * DAY_S)
    assert gc(worked.store, Retention(finished_s=1), who=WHO).finished == 2
    assert slim_mark(worked) == SlimMark(2, (1,))
    done(worked, "c")  # 5
    clock.advance(2 * DAY_S)
    assert gc(worked.store, Retention(finished_s=1), who=WHO).finished == 1
    assert slim_mark(worked) == SlimMark(2, (1,))
    with worked.store.transaction() as transaction:
        transaction.settings.set(SLIM_MARK, "no mark")
    done(worked, "d")  # 6
    clock.advance(2 * DAY_S)
    assert gc(worked.store, Retention(finished_s=1), who=WHO).finished == 1
    assert slim_mark(worked) == SlimMark(2, (1,))


def slim_mark(ledger: Ledger) -> SlimMark:
    with ledger.store.reading() as reading:
        return reading.retention.slim_mark()


def test_a_gc_can_be_dropped_after_any_of_its_steps(
    worked: Ledger, clock: VirtualClock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "JOBS_A_BATCH", 2)
    done(worked, *"abcde")
    clock.advance(10)
    seal(worked.store)
    steps = gc_steps(worked.store, whole(folder), who=WHO)
    while not notes(worked, "slim"):
        next(steps)
    steps.close()
    assert [note["jobs"] for note in notes(worked, "slim")] == [2]
    assert notes(worked, "archive") == []
    assert gc(worked.store, whole(folder), who=WHO).finished == 3


# ---------------------------------------------------------------------------------------------------------------------
# What a client gets


@pytest.mark.req("W-07", "X-09", "K-63")
@pytest.mark.parametrize("archived", [False, True])
def test_a_late_repeat_learns_that_the_result_has_expired_and_is_not_executed(
    worked: Ledger, clock: VirtualClock, folder: Path, database: Database, archived: bool
) -> None:
    done(worked, "a", "b")
    done(worked, "poison", how="cancel")
    clock.advance(10)
    before = rows_of(worked)
    report = gc(worked.store, whole(folder) if archived else Retention(finished_s=1, quarantined_s=1), who=WHO)
    assert (report.finished, report.quarantined, report.blocks) == (2, 1, int(archived))
    ids = {key: by_key(worked, key).job_id for key in ("a", "b", "poison")}

    one = worked.submit("step", {"key": "a", "how": "succeed"}, client="c", key="a")
    calls = [
        {"operation": "step", "payload": {"key": key, "how": how}, "client": "c", "key": key}
        for key, how in (("a", "succeed"), ("b", "succeed"), ("poison", "cancel"))
    ]
    many = worked.submit_many(calls)
    for receipt, key, state in zip(
        (one, *many, one.wait(1), worked.receipt(ids["b"])),
        ("a", "a", "b", "poison", "a", "b"),
        ("succeeded", "succeeded", "succeeded", "quarantined", "succeeded", "succeeded"),
        strict=True,
    ):
        assert (receipt.job_id, receipt.is_new, receipt.state) == (ids[key], False, state)
        assert receipt.result_expired
        with pytest.raises(ResultExpiredError) as expired:
            _ = receipt.result
        assert expired.value.context == {"job_id": ids[key], "state": state}
    with pytest.raises(IdempotencyConflictError):
        worked.submit("step", {"key": "other"}, client="c", key="a")
    assert worked.run_until_idle() == 0
    assert sorted(database.run("SELECT key, count(*) FROM effects GROUP BY key")) == [("a", 1), ("b", 1)]
    assert {key: by_key(worked, key).job_id for key in ids} == ids
    require_sound(worked, folder, before)


@pytest.mark.req("W-07", "X-09")
def test_repeats_during_a_gc_see_the_result_or_that_it_has_expired(
    worked: Ledger, clock: VirtualClock, folder: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client repeats every key again and again, by a ledger of its own, while they are slimmed one by one."""
    monkeypatch.setattr(retention, "JOBS_A_BATCH", 1)
    keys = [f"k{n}" for n in range(30)]
    done(worked, *keys)
    clock.advance(10)
    ids = {key: by_key(worked, key).job_id for key in keys}
    ended = threading.Event()
    answers: list[tuple[str, int, bool, bool, Any]] = []

    def repeat() -> None:
        with Ledger(worked.store.url, worked.operations, world=virtual_world(clock)) as client:
            while not ended.is_set():
                for key in keys:
                    receipt = client.submit("step", {"key": key, "how": "succeed"}, client="c", key=key)
                    result = None if receipt.result_expired else receipt.result
                    answers.append((key, receipt.job_id, receipt.is_new, receipt.result_expired, result))

    client = threading.Thread(target=repeat)
    client.start()
    try:
        assert gc(worked.store, whole(folder), who=WHO).finished == 30
    finally:
        ended.set()
        client.join()
    assert len(answers) >= 30
    for key, job_id, is_new, expired, result in answers:
        assert (job_id, is_new) == (ids[key], False)
        assert result == (None if expired else {"key": key})
    assert worked.run_until_idle() == 0
    assert database.run("SELECT count(*), count(DISTINCT key) FROM effects") == [(30, 30)]


def test_jobs_that_others_refer_to_keep_their_rows(worked: Ledger, clock: VirtualClock, folder: Path) -> None:
    """Jobs keep their rows for life: those of keys, of follow-ups, of what replaces them."""

    @worked.operation("parent")
    def parent(run: Execution) -> None:
        run.after_commit(worked.operations.get("step").call(key="child"))  # type: ignore[union-attr]

    first = worked.submit("parent", client="c", key="first")
    worked.run_until_idle()
    with worked.store.transaction() as transaction:
        child = transaction.jobs.by_key([("holdfast", f"{first.job_id}/1")])["holdfast", f"{first.job_id}/1"]
        transaction.jobs.submit([_submission(child.job_id)], actor="c")
    clock.advance(10)
    before = rows_of(worked)
    report = gc(worked.store, whole(folder), who=WHO)
    assert (report.finished, report.blocks) == (2, 0)
    assert report.held == HeldBlock(1, "JOB", child.job_id + 1, "pending")
    with worked.store.reading() as reading:
        assert [(job.state.value, job.slimmed, job.replaces) for job in reading.lists.jobs()] == [
            ("pending", False, child.job_id), ("succeeded", True, None), ("succeeded", True, None),
        ]  # fmt: skip
    worked.run_until_idle()
    clock.advance(10)
    assert gc(worked.store, whole(folder), who=WHO).finished == 1
    require_sound(worked, folder, before)


def _submission(replaces: int) -> Any:
    from holdfast.store import Submission

    return Submission(operation="step", payload='{"key":"again"}', client="c", key="again", replaces=replaces)


# ---------------------------------------------------------------------------------------------------------------------
# Archiving


@pytest.mark.req("K-63")
def test_history_is_archived_in_a_file_that_the_ledger_names(worked: Ledger, clock: VirtualClock, folder: Path) -> None:
    done(worked, "a")
    done(worked, "b", how="snooze")
    clock.advance(10)
    before = rows_of(worked)
    with worked.store.reading() as reading:
        executions = [e for job_id in (1, 2) for e in reading.lists.executions(job_id)]
        ledger_id = reading.settings.read()["ledger_id"]
    report = gc(worked.store, whole(folder), who=WHO, why="it is time")

    [made] = report.archives
    assert (report.finished, report.blocks, report.held, report.partitions) == (2, 1, None, ())
    assert made == Archived(
        file="journal-1-1.jsonl.gz", first_seal=1, last_seal=1, rows=len(before), executions=1, sha256=made.sha256
    )
    contents = read(folder / made.file, sha256=made.sha256)
    assert contents.header.ledger_id == ledger_id
    assert contents.journal == before
    ended = [e for e in executions if e.status == ExecutionStatus.ABORTED]
    succeeded = [e for e in executions if e.status == ExecutionStatus.DONE]
    assert [(e.job_id, e.attempt) for e in ended] == [(2, 1)]
    assert [(row["exec_id"], row["job_id"], row["status"], row["finished_at"]) for row in contents.executions] == [
        (e.exec_id, e.job_id, e.status.value, time_text(e.finished_at or e.updated_at)) for e in ended
    ]
    assert [path.name for path in folder.iterdir()] == [made.file]

    with worked.store.reading() as reading:
        assert list(contents.header.seals) == reading.seals.page()
        assert reading.seals.archives() == [
            Archive(1, 1, 1, made.file, str(made.sha256), len(before), 1, time_text(clock()))
        ]
        # An attempt that succeeded is in the row of its job, for life.
        assert [reading.lists.executions(job_id) for job_id in (1, 2)] == [[e] for e in succeeded]
    assert histories(worked, "holdfast_jobs", "job_id") == {1: 4, 2: 7}
    assert notes(worked, "archive") == [
        {"archive": made.file, "sha256": made.sha256, "first_seal": 1, "last_seal": 1, "rows": len(before),
         "executions": 1},
    ]  # fmt: skip
    doors = [(row[9], row[10]) for row in rows_of(worked) if row[8] == "open"]
    assert doors == [(WHO, "it is time")] * 2
    left = rows_of(worked)
    if worked.store.dialect == "sqlite":
        assert {row[3] for row in left} == {"MAINTENANCE"}
    else:
        assert left[: len(before)] == before  # until their whole partition can go
    require_sound(worked, folder, before)


def test_a_dry_run_reports_the_same_and_writes_nothing(worked: Ledger, clock: VirtualClock, folder: Path) -> None:
    done(worked, "a", "b")
    done(worked, "poison", how="cancel")
    seal(worked.store, block_rows=4)
    done(worked, "broken", how="fail")
    seal(worked.store, block_rows=4)
    clock.advance(10)
    before = everything(worked)
    dry = gc(worked.store, whole(folder), who=WHO, dry_run=True)
    assert everything(worked) == before
    assert list(folder.iterdir()) == []
    wet = gc(worked.store, whole(folder), who=WHO)
    assert dry.dry_run
    assert wet.held == dry.held == HeldBlock(4, "JOB", 4, "failed")
    assert [msgspec.structs.replace(made, sha256=None) for made in wet.archives] == list(dry.archives)
    assert (dry.finished, dry.quarantined, dry.blocks) == (wet.finished, wet.quarantined, wet.blocks) == (2, 1, 3)


def test_a_block_that_is_too_young_stays(worked: Ledger, clock: VirtualClock, folder: Path) -> None:
    done(worked, "a")
    seal(worked.store)
    clock.advance(10)
    done(worked, "b")
    clock.advance(5)
    before = rows_of(worked)
    policy = whole(folder, history_s=15)
    assert gc(worked.store, policy, clock.after(-1), who=WHO).blocks == 0
    assert gc(worked.store, policy, clock(), who=WHO).blocks == 0  # exactly as old is not older
    report = gc(worked.store, policy, clock.after(1), who=WHO)
    assert (report.blocks, report.held) == (1, None)
    require_sound(worked, folder, before)


@pytest.mark.req("W-06")
def test_the_first_block_that_is_held_stops_those_behind_it(worked: Ledger, clock: VirtualClock, folder: Path) -> None:
    done(worked, "a")
    seal(worked.store)
    done(worked, "broken", how="fail")
    seal(worked.store)
    done(worked, "b")
    clock.advance(10)
    before = rows_of(worked)
    report = gc(worked.store, whole(folder), who=WHO)
    broken = by_key(worked, "broken").job_id
    assert (report.finished, report.held) == (2, HeldBlock(2, "JOB", broken, "failed"))
    assert [archive.last_seal for archive in report.archives] == [1]
    assert gc(worked.store, whole(folder), who=WHO).held == HeldBlock(2, "JOB", broken, "failed")
    worked.cancel(broken)
    clock.advance(10)
    report = gc(worked.store, whole(folder), who=WHO)
    assert (report.quarantined, report.held) == (1, None)
    assert [(archive.first_seal, archive.last_seal) for archive in report.archives] == [(2, 5)]
    require_sound(worked, folder, before)


def test_an_execution_holds_its_block_as_long_as_its_job_has_its_payload(worked: Ledger, clock: VirtualClock) -> None:
    """Its job's first row is always in a block before, and holds that; so the statement is called directly."""
    submit(worked, "a")
    work_in_steps(worked)
    seal(worked.store, block_rows=1)
    clock.advance(10)

    def holder_of_last_execution_row() -> Any:
        [*_, before, last] = [row for row in rows_of(worked) if row[3] == "EXECUTION"]
        assert (before[7], last[7]) == ("IN_PROGRESS", "COMMITTED")
        with worked.store.reading() as reading:
            [sealed] = [found for found in reading.seals.page() if found.last_seq == last[0]]
            return reading.retention.block_holder((before[1], before[2], before[0]), sealed, {})

    assert holder_of_last_execution_row() == ("EXECUTION", 1_000_001, "DONE")
    assert gc(worked.store, Retention(finished_s=1), who=WHO).finished == 1
    assert holder_of_last_execution_row() is None


@pytest.mark.parametrize(
    "machine, state, holds",
    [
        *((GRANT, state, state not in GRANT.final) for state in GRANT.states),
        *((PROCEDURE, state, state not in ("stopped", "done")) for state in PROCEDURE.states),
        *((machine, state, False) for machine in (STEP, VALUE, SWITCH) for state in machine.states),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_record_that_may_still_move_holds_its_history(  # noqa: PLR0917 - parametrised
    ledger: Ledger, clock: VirtualClock, folder: Path, machine: Any, state: str, holds: bool
) -> None:
    client = Client(ledger.store.url)
    hand = Hand(client)
    subject = hand.put(machine, state)
    if machine is not PROCEDURE:
        for (run,) in client.run("SELECT run_id FROM holdfast_procedures"):  # those that steps and values belong to
            hand.take(PROCEDURE, run, PROCEDURE.path("abort", "planned"))
    client.commit()
    client.close()
    before = rows_of(ledger)
    clock.advance(10**9)
    report = gc(ledger.store, whole(folder), who=WHO)
    assert report.held == (HeldBlock(1, machine.name, subject, state) if holds else None)
    assert report.blocks == int(not holds)
    if not holds:
        guarded = GUARDED_BY_NAME[machine.name]
        last = max(row[5] for row in before if (row[3], row[4]) == (machine.name, subject))
        assert histories(ledger, guarded.table, guarded.id)[subject] == last + 1
        assert check(ledger.store).violations == ()
    assert set(before) <= {*rows_of(ledger), *archived_rows(ledger, folder)}


def test_an_archived_record_that_moves_again_has_history_from_there_on(
    ledger: Ledger, clock: VirtualClock, folder: Path
) -> None:
    """A switch is lifted, a step undone and a run resumed after the rows of their births are archived."""
    client = Client(ledger.store.url)
    hand = Hand(client)
    switch, step, run = hand.born(SWITCH), hand.born(STEP), hand.put(PROCEDURE, "stopped")
    [[of_step]] = client.run("SELECT run_id FROM holdfast_steps")
    hand.take(PROCEDURE, of_step, PROCEDURE.path("abort", "planned"))
    client.commit()
    clock.advance(10**9)
    assert gc(ledger.store, whole(folder), who=WHO).blocks == 1
    client.begin()
    hand.take(SWITCH, switch, SWITCH.path("lift", "on"))
    hand.take(STEP, step, STEP.path("undo", "performed"))
    hand.take(PROCEDURE, run, PROCEDURE.path("resume", "stopped"))
    journal = {
        name: client.journal(name, id_) for name, id_ in (("SWITCH", switch), ("STEP", step), ("PROCEDURE", run))
    }
    client.commit()
    client.close()
    if client.dialect == "sqlite":  # on PostgreSQL they stay until their partition is dropped
        assert {name: [row["version"] for row in rows] for name, rows in journal.items()} == {
            "SWITCH": [2], "STEP": [2], "PROCEDURE": [3],
        }  # fmt: skip
    assert check(ledger.store).violations == ()
    assert verify_seals(ledger.store, archives=folder).ok


def test_a_partly_archived_history_begins_at_its_first_kept_row(
    worked: Ledger, clock: VirtualClock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of one row, three blocks a file: a job and its attempts are archived in part, and whole in the end."""
    monkeypatch.setattr(archiving, "BLOCKS_A_FILE", 3)
    submit(worked, "a")
    work_in_steps(worked, twice=True)
    seal(worked.store, block_rows=1)
    clock.advance(10)
    before = rows_of(worked)
    assert [(row[3], row[5], row[17]) for row in before] == [
        ("JOB", 1, None), ("JOB", 2, "LEASED"), ("EXECUTION", 2, None), ("JOB", 4, "ABORTED"), ("JOB", 5, "LEASED"),
        ("EXECUTION", 2, None), ("EXECUTION", 3, None), ("JOB", 6, "DONE"),
    ]  # fmt: skip
    steps = gc_steps(worked.store, whole(folder), who=WHO)
    while not archives(worked):
        next(steps)
    steps.close()
    assert [(made.first_seal, made.last_seal, made.rows, made.executions) for made in archives(worked)] == [
        (1, 3, 3, 0)
    ]
    assert (histories(worked, "holdfast_jobs", "job_id"), attempts(worked)) == ({1: 3}, [1, 2])
    require_sound(worked, folder, before)
    steps = gc_steps(worked.store, whole(folder), who=WHO)
    while len(archives(worked)) < 2:
        next(steps)
    steps.close()
    made = archives(worked)[1]
    assert (made.first_seal, made.last_seal, made.rows, made.executions) == (4, 6, 3, 1)
    assert (histories(worked, "holdfast_jobs", "job_id"), attempts(worked)) == ({1: 6}, [2])
    require_sound(worked, folder, before)
    report = gc(worked.store, whole(folder), who=WHO)
    assert [(made.first_seal, made.last_seal, made.executions) for made in report.archives] == [(7, 8, 0)]
    assert (histories(worked, "holdfast_jobs", "job_id"), attempts(worked)) == ({1: 7}, [2])
    require_sound(worked, folder, before)


def test_a_gc_whose_rows_another_one_archives_while_it_reads_them_continues_with_the_rest(
    worked: Ledger, clock: VirtualClock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "ROWS_A_PAGE", 3)
    done(worked, "a")
    clock.advance(10)
    before = rows_of(worked)
    reads = gc_steps(worked.store, whole(folder), who=WHO)
    while not list(folder.iterdir()):  # until it has begun to write its file
        next(reads)
    assert gc(worked.store, whole(folder), who="other").blocks == 1
    if isinstance(worked.store, SqliteStore):  # on PostgreSQL archived rows stay until their partition is dropped
        assert {row[3] for row in rows_of(worked)} == {"MAINTENANCE"}
    assert run_steps(reads).archives == ()
    assert [archive.rows for archive in archives(worked)] == [len(before)]
    require_sound(worked, folder, before)


def test_a_file_holds_no_more_rows_than_one_short_transaction_can_remove(
    worked: Ledger, clock: VirtualClock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ROWS_A_FILE", 8)
    done(worked, *"abcdefg")
    seal(worked.store, block_rows=5)
    clock.advance(10)
    before = rows_of(worked)
    report = gc(worked.store, whole(folder), who=WHO)
    assert [made.rows for made in report.archives] == [5, 5, 5, 6]
    assert archived_rows(worked, folder) == before
    require_sound(worked, folder, before)


def test_notes_of_archives_are_not_archived_alone(worked: Ledger, clock: VirtualClock, folder: Path) -> None:
    done(worked, "a")
    clock.advance(10)
    assert gc(worked.store, whole(folder), who=WHO).blocks == 1
    clock.advance(10)
    assert gc(worked.store, whole(folder), who=WHO).blocks == 0
    before = everything(worked)
    clock.advance(10)
    assert gc(worked.store, whole(folder), who=WHO) == GcReport(dry_run=False)
    assert everything(worked) == before  # an idle ledger stays as it is, however often gc runs
    rows = rows_of(worked)
    done(worked, "b")
    clock.advance(10)
    report = gc(worked.store, whole(folder), who=WHO)
    assert [(made.first_seal, made.last_seal) for made in report.archives] == [(2, 3)]
    require_sound(worked, folder, rows)


# ---------------------------------------------------------------------------------------------------------------------
# What goes wrong


def test_history_that_is_not_what_was_sealed_is_never_archived(
    worked: Ledger, clock: VirtualClock, folder: Path, database: Database
) -> None:
    done(worked, "a")
    clock.advance(10)
    seal(worked.store)
    if database.is_postgres:
        database.run("ALTER TABLE holdfast_journal DISABLE TRIGGER USER")
    else:
        database.run("DROP TRIGGER holdfast_journal_update")
    database.run("UPDATE holdfast_journal SET actor = 'mallory' WHERE seq = 2")
    with pytest.raises(SealsBrokenError) as caught:
        gc(worked.store, whole(folder), who=WHO)
    assert caught.value.context == {"seal_id": 1, "kind": "rows_changed"}
    assert list(folder.iterdir()) == []
    with worked.store.reading() as reading:
        assert reading.seals.archives() == []
        assert len(reading.journal.of(1)) == 3


@pytest.mark.parametrize("place", ["missing", "file"])
def test_without_a_directory_for_archives_nothing_changes(
    worked: Ledger, clock: VirtualClock, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    done(worked, "a")
    clock.advance(10)
    before = everything(worked)
    with pytest.raises(ArchiveUnwritableError):
        gc(worked.store, whole(tmp_path / place), who=WHO)
    assert everything(worked) == before


def test_files_of_a_killed_gc_are_written_again(worked: Ledger, clock: VirtualClock, folder: Path) -> None:
    (folder / f".journal-1-1.{'0' * 32}.part").write_bytes(b"half")
    file = folder / "journal-1-1.jsonl.gz"
    file.write_bytes(b"half")
    done(worked, "a")
    clock.advance(10)
    before = rows_of(worked)
    with pytest.raises(ArchiveUnwritableError) as caught:
        gc(worked.store, whole(folder), who=WHO)  # a gc leaves no such file under this name
    assert Path(str(caught.value.context["file"])).name == "journal-1-1.jsonl.gz"
    assert (file.read_bytes(), rows_of(worked)[: len(before)]) == (b"half", before)
    file.unlink()
    before = rows_of(worked)
    assert gc(worked.store, whole(folder), who=WHO).blocks == 1
    require_sound(worked, folder, before)


def test_the_archive_of_another_ledger_is_left_alone(
    worked: Ledger, clock: VirtualClock, folder: Path, sqlite_url: str
) -> None:
    with Ledger(f"{sqlite_url}.other", worked.operations, world=virtual_world(clock)) as other:
        other.submit("noop", client="c", key="a")
        other.run_until_idle()
        clock.advance(10)
        assert gc(other.store, whole(folder), who=WHO).blocks == 1
    theirs = (folder / "journal-1-1.jsonl.gz").read_bytes()
    done(worked, "a")
    clock.advance(10)
    with pytest.raises(ArchiveUnwritableError) as refused:
        gc(worked.store, whole(folder), who=WHO)
    assert refused.value.context.keys() == {"file", "ledger_id"}
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("journal-1-1.jsonl.gz", theirs)]
    with worked.store.reading() as reading:
        assert (reading.seals.archives(), len(reading.journal.of(1))) == ([], 3)


def test_a_grant_that_is_consumed_lets_its_history_go_with_the_job(
    worked: Ledger, clock: VirtualClock, folder: Path
) -> None:
    done(worked, "poison", how="cancel")
    with worked.store.transaction() as transaction:
        grant_id = transaction.grants.request(
            action="release", target="job/1", scope="one", actor=WHO, reason="mended", expires_at=clock.after(9999)
        )
    clock.advance(10)
    before = rows_of(worked)
    assert gc(worked.store, whole(folder), who=WHO).held == HeldBlock(1, "GRANT", grant_id, "draft")
    with worked.store.transaction() as transaction:
        grant = transaction.grants.get(grant_id)
        assert grant is not None
        assert isinstance(transaction.grants.move(grant, GrantEvent("revoke", WHO)), Move)
    clock.advance(10)
    assert gc(worked.store, whole(folder), who=WHO).held is None
    require_sound(worked, folder, before)


# ---------------------------------------------------------------------------------------------------------------------
# More than one at a time


def test_gcs_at_once_drop_everything_once(
    worked: Ledger, clock: VirtualClock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "JOBS_A_BATCH", 5)
    monkeypatch.setattr(archiving, "BLOCKS_A_FILE", 2)
    done(worked, *(f"k{n}" for n in range(40)))
    seal(worked.store, block_rows=9)
    clock.advance(10)
    before = rows_of(worked)
    others = [Ledger(worked.store.url, worked.operations, world=virtual_world(clock)) for _ in range(3)]
    for other in others:
        other.store  # noqa: B018 - opens it

    def collect(other: Ledger) -> GcReport:
        return gc(other.store, whole(folder), who=WHO)

    reports = together(*(lambda other=other: collect(other) for other in others))
    for other in others:
        other.close()
    assert sum(report.finished for report in reports) == 40
    assert sum(note["jobs"] for note in notes(worked, "slim")) == 40
    made = sorted((a.first_seal, a.last_seal) for report in reports for a in report.archives)
    assert made == [(first, first + 1) for first in range(1, 15, 2)]
    require_sound(worked, folder, before)
    assert archived_rows(worked, folder) == before
