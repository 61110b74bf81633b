"""A snapshot arrives as what was taken, on either database, in either direction; and work goes on where it arrives."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Call, Ledger
from holdfast.audit.check.runner import check
from holdfast.audit.files.slips import write_slip
from holdfast.audit.files.snapshot import create
from holdfast.audit.files.snapshot_diff import diff
from holdfast.audit.files.snapshot_verify import verify
from holdfast.audit.seals.sealer import head_now, seal
from holdfast.audit.seals.verify import verify as sealed_history
from holdfast.core.commands import Complete
from holdfast.core.decide import Move, Refused
from holdfast.core.errors import IdempotencyConflictError
from holdfast.core.governed import GrantEvent
from holdfast.core.machines import JOB
from holdfast.scheduling.batches import find
from holdfast.store import Lease, Submission, create_store, open_store
from holdfast.testing import VirtualClock, virtual_world
from tests.audit.rich import LONG_S, WORKER, make_rich
from tests.audit.snapshots import (
    BIG,
    KINDS,
    THIRD,
    NewUrl,
    counts,
    full_at_rest,
    make_full,
    put,
    rows_of,
    taken,
    work,
)

pytest_plugins = ["tests.audit.places"]
PG = pytest.mark.pg
EACH = pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=PG)])
BOTH_WAYS = pytest.mark.parametrize(
    "source, target",
    [(a, b) if a == b == "sqlite" else pytest.param(a, b, marks=PG) for a in KINDS for b in KINDS],
)
ACROSS = pytest.mark.parametrize(
    "source, target", [pytest.param(a, b, marks=PG) for a, b in (("sqlite", "postgres"), ("postgres", "sqlite"))]
)
OTHER = {"sqlite": "postgres", "postgres": "sqlite"}


@pytest.mark.req("K-63", "G-28")
@BOTH_WAYS
def test_a_ledger_at_rest_arrives_as_it_was(source: str, target: str, new_url: NewUrl, tmp_path: Path) -> None:
    clock = VirtualClock()
    old, new = new_url(source), new_url(target)
    full_at_rest(old, clock)
    snapshot = taken(old, tmp_path / "a.snapshot", clock)
    made = put(snapshot, new, clock)
    assert (made.epoch, made.expired, made.finished) == (2, 0, 0)
    before, after = rows_of(old), rows_of(new)
    assert after == before
    empty = {table for table, rows in before.items() if not rows}
    assert empty == {"archives", "slots", "unique", "waits", "after"}  # no job runs; the last three have their own test
    assert {row["state"] for row in after["jobs"]} == set(JOB.states) - {"running"}
    jobs = {row["job_id"]: row for row in after["jobs"]}
    calls = {row["key"]: row | jobs[row["job_id"]] for row in after["calls"]}
    [odd] = [row for row in calls.values() if row["client"] == "отдел «веб»"]
    assert (odd["payload"], odd["key"], odd["queue"], odd["priority"]) == (BIG, "clé €", "mañana", -(2**31 - 1))
    assert [row["progress"] for row in after["aborted"] if row["progress_note"]] == [THIRD]
    assert calls["nothing"]["result"] == "null"
    with open_store(old, clock) as one, open_store(new, clock) as other:  # opening verifies triggers and machines
        assert counts(other) == counts(one)
        assert (check(other).violations, check(one).violations) == ((), ())
        assert sealed_history(other).problems == ()
        with other.reading() as reading:
            assert reading.execute("SELECT count(*) FROM holdfast_workers") == [(0,)]
            assert reading.queues.paused() == ["mañana"]
    for a, b in ((snapshot, old), (snapshot, new), (old, new), (new, old)):
        assert diff(str(a), str(b)).tables == {}


@pytest.mark.req("K-63", "G-28", "M-06", "M-13")
@ACROSS
def test_open_leases_are_ended_as_journalled_moves(source: str, target: str, new_url: NewUrl, tmp_path: Path) -> None:
    clock = VirtualClock()
    old, new = new_url(source), new_url(target)
    with create_store(old, clock) as store:
        rich = make_rich(store, clock)
        with store.reading() as reading:
            held = {
                job_id: reading.lists.executions(job_id)[-1] for job_id in (rich.running, rich.leased, rich.committed)
            }
            attempts = {job_id: reading.lists.attempt(held[job_id].exec_id) for job_id in held}
    snapshot = taken(old, tmp_path / "a.snapshot", clock)
    clock.advance(60)
    made = put(snapshot, new, clock)
    assert (made.expired, made.finished) == (2, 1)
    with open_store(new, clock) as store, store.transaction() as transaction:
        states = {job_id: transaction.jobs.get(job_id) for job_id in held}
        assert {job_id: (job.state, job.attempts, job.excused) for job_id, job in states.items()} == {
            rich.running: ("pending", 1, 1),
            rich.leased: ("pending", 1, 1),
            rich.committed: ("succeeded", 1, 0),
        }
        assert states[rich.committed].result == "null"
        for job_id, status in ((rich.running, "ABORTED"), (rich.leased, "ABORTED"), (rich.committed, "DONE")):
            [execution] = transaction.lists.executions(job_id)
            assert (execution.status, execution.lease_expires_at) == (status, clock())
            moves = [row for row in transaction.journal.of_executions(job_id) if row.actor == "restore"]
            assert [(row.event, row.target) for row in moves] == [
                ("finish", "DONE") if job_id == rich.committed else ("abort", "ABORTED")
            ]
            [[epoch, door]] = transaction.execute(
                f"SELECT epoch, maintenance_id FROM holdfast_journal WHERE seq = {moves[0].seq}"
            )
            assert (epoch, door) == (2, 2)
            # The former holder can do nothing with it.
            attempt = attempts[job_id]
            assert attempt
            token = attempt.execution.lease_token
            assert transaction.executions.extend_leases([(attempt.execution, 60)]) == {}
            [answer] = transaction.executions.move([(attempt, Complete(token, '"late"'))], actor=WORKER)
            assert isinstance(answer, Refused)
        assert transaction.jobs.get(rich.running).state == "pending"
    differing = diff(str(snapshot), new).tables
    assert {name: (table.keys_changed, table.keys_only_b) for name, table in differing.items()} == {
        "jobs": ([(job_id,) for job_id in sorted(held)], []),
        "aborted": ([], [(job_id, 1) for job_id in sorted((rich.running, rich.leased))]),
    }
    assert all(table.total == table.changed + table.only_b for table in differing.values())


@ACROSS
def test_the_restore_is_on_record(source: str, target: str, new_url: NewUrl, tmp_path: Path) -> None:
    clock = VirtualClock()
    old, new = new_url(source), new_url(target)
    full_at_rest(old, clock)
    snapshot = taken(old, tmp_path / "a.snapshot", clock)
    made = put(snapshot, new, clock, who="ana", why="the disk died")
    with open_store(new, clock) as store, store.reading() as reading:
        rows = reading.journal.of(3, "MAINTENANCE")
        assert [(row.event, row.actor) for row in rows] == [("open", "ana"), ("restore", "ana"), ("shut", "ana")]
        assert rows[0].reason == "the disk died"
        assert rows[1].reason
        assert f'"sha256":"{made.sha256}"' in rows[1].reason
        assert '"from_epoch":1' in rows[1].reason
        assert reading.settings.read()["epoch"] == "2"
        [[epochs, first]] = reading.execute(
            "SELECT count(*), min(seq) FROM holdfast_journal WHERE epoch = 2 AND machine = 'MAINTENANCE'"
        )
        [[last]] = reading.execute("SELECT max(seq) FROM holdfast_journal WHERE epoch = 1")
        assert (epochs, first > last) == (3, True)


@ACROSS
def test_unique_scopes_followers_and_batches_survive_a_restore(
    source: str, target: str, new_url: NewUrl, tmp_path: Path
) -> None:
    clock = VirtualClock()
    old, new = new_url(source), new_url(target)
    with Ledger(old, world=virtual_world(clock)) as ledger:
        first = ledger.submit("noop", unique="active", run_at=clock.after(60))
        follower = ledger.submit("noop", after=[first], deadline_s=3600)
        batch = ledger.batch([{"operation": "noop"}], then=Call(operation="noop", payload={}))
    put(taken(old, tmp_path / "a.snapshot", clock), new, clock)
    with Ledger(new, world=virtual_world(clock)) as ledger:
        assert ledger.submit("noop", unique="active").job_id == first.job_id
        assert ledger.run_until_idle() == 2  # the batch and what follows it
        assert find(ledger, batch.batch_id).progress().succeeded == 1
        clock.advance(60)
        assert ledger.run_until_idle() == 2
        assert ledger.job(follower.job_id).state.value == "succeeded"
        assert ledger.batch([{"operation": "noop"}]).batch_id > batch.batch_id
        assert check(ledger.store).violations == ()


@ACROSS
def test_work_continues_after_a_restore(source: str, target: str, new_url: NewUrl, tmp_path: Path) -> None:
    clock = VirtualClock()
    old, new = new_url(source), new_url(target)
    full_at_rest(old, clock)
    put(taken(old, tmp_path / "a.snapshot", clock), new, clock)
    before = rows_of(old)
    greatest = max(row["job_id"] for row in before["jobs"])
    tokens = [row["lease_token"] or 0 for table in ("jobs", "aborted") for row in before[table]]
    with open_store(new, clock) as store:
        waiting = sum(n for (_, queue, state), n in counts(store).items() if state == "pending" and queue == "default")
        work(store, waiting)
        assert {state for (_, queue, state), n in counts(store).items() if queue == "default"} == {
            "succeeded", "failed", "quarantined",
        }  # fmt: skip
        with store.transaction() as transaction:
            [fresh] = transaction.jobs.submit([Submission(operation="noop", payload="{}", key="fresh")])
            assert (fresh.is_new, fresh.job_id) == (True, greatest + 1)
            done = Submission(operation="echo", payload='{"of":"done"}', client="web", key="done")
            [known] = transaction.jobs.submit([done])
            assert (known.is_new, known.job_id) == (False, by_key(old, "done"))
        with pytest.raises(IdempotencyConflictError), store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="echo", payload="{}", client="web", key="done")])
        with store.transaction() as transaction:
            [attempt] = transaction.executions.claim(Lease(owner=WORKER, seconds=60))
            assert attempt.job.job_id == fresh.job_id
            assert attempt.execution.lease_token > max(tokens)
            with transaction.maintenance.open(who="keeper", why="a look") as door:
                assert door == 4  # two before the snapshot, one of the restore
    with open_store(new, clock):
        pass


def by_key(url: str, key: str) -> int:
    [job_id] = [row["job_id"] for row in rows_of(url)["calls"] if row["key"] == key]
    return int(job_id)


@pytest.mark.req("M-06", "X-05")
@ACROSS
def test_a_lease_token_from_after_the_snapshot_is_refused_after_a_restore(
    source: str, target: str, new_url: NewUrl, tmp_path: Path
) -> None:
    old, new = new_url(source), new_url(target)
    with create_store(old) as store:
        with store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}", key=f"k{n}") for n in range(2)])
        snapshot = taken(old, tmp_path / "a.snapshot")
        with store.transaction() as transaction:
            late = transaction.executions.claim(Lease(owner=WORKER, seconds=3600, n=2))
    for again in (new, new_url(target)):  # twice: the tokens of two restores of one snapshot differ too
        put(snapshot, again)
        with open_store(again) as store, store.transaction() as transaction:
            mine = transaction.executions.claim(Lease(owner="worker-2", seconds=3600, n=2))
            assert len(mine) == 2
            assert {a.execution.lease_token for a in late}.isdisjoint(a.execution.lease_token for a in mine)
            for attempt in late:
                token = attempt.execution.lease_token
                assert transaction.executions.extend_leases([(attempt.execution, 60)]) == {}
                [answer] = transaction.executions.move([(attempt, Complete(token, '"late"'))], actor=WORKER)
                assert isinstance(answer, Refused)
            late += mine


@pytest.mark.req("K-63")
@PG
@pytest.mark.parametrize("kind", KINDS)
def test_a_ledger_is_equal_after_a_round_trip(kind: str, new_url: NewUrl, tmp_path: Path) -> None:
    clock = VirtualClock()
    first, between, last = new_url(kind), new_url(OTHER[kind]), new_url(kind)
    full_at_rest(first, clock)
    with open_store(first, clock) as store, store.reading() as reading:
        head_then = head_now(reading)  # a head that an operator saved before still verifies
    put(taken(first, tmp_path / "1", clock), between, clock)
    with open_store(between, clock) as store:
        sealed = seal(store)
    assert [one.epoch for one in sealed] == [1, 2]
    made = put(taken(between, tmp_path / "2", clock), last, clock)
    assert made.epoch == 3
    assert rows_of(last, upto_epoch=2) == rows_of(between, upto_epoch=2)
    compared = diff(first, last)
    # What was sealed meanwhile is the only difference: the same rows, and a seal over those of the first epoch.
    assert {name: table.only_b for name, table in compared.tables.items()} == {"seals": 1}
    with open_store(last, clock) as store:
        assert [one.epoch for one in seal(store)] == [3]
        found = sealed_history(store, head=head_then)
        assert (found.ok, found.unsealed, found.problems) == (True, 0, ())
    verified = verify(taken(last, tmp_path / "3", clock))
    assert (verified.seals, verified.unsealed) == (5, 0)
    assert verified.sealed == verified.trailer.rows["journal"]


@EACH
def test_restored_grants_keep_their_scope(kind: str, new_url: NewUrl, tmp_path: Path) -> None:
    clock = VirtualClock()
    old, new = new_url(kind), new_url(kind)
    with create_store(old, clock) as store:
        rich = make_rich(store, clock)
    put(taken(old, tmp_path / "a", clock), new, clock)
    with open_store(new, clock) as store, store.transaction() as transaction:
        draft, used = transaction.grants.get(rich.draft_grant), transaction.grants.get(rich.released_grant)
        assert draft
        assert used
        assert isinstance(transaction.grants.move(draft, GrantEvent("approve", "approver-1")), Move)
        assert isinstance(transaction.grants.move(used, GrantEvent("consume", "operator-1")), Refused)


@EACH
def test_the_same_ledger_gives_the_same_bytes(kind: str, new_url: NewUrl, tmp_path: Path) -> None:
    clock = VirtualClock()
    url = new_url(kind)
    with create_store(url, clock) as store:
        make_full(store, clock)
        one, other = create(store, tmp_path / "one"), create(store, tmp_path / "other")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    assert one.trailer == other.trailer
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "other"]


@EACH
def test_a_snapshot_is_of_one_moment_while_others_write(kind: str, new_url: NewUrl, tmp_path: Path) -> None:
    url = new_url(kind)
    with create_store(url) as store:
        stop = threading.Event()

        def submit_for_ever() -> None:
            n = 0
            while not stop.is_set():
                n += 1
                with store.transaction() as transaction:
                    transaction.jobs.submit(
                        [Submission(operation="noop", payload="{}", key=f"{n}-{k}") for k in range(10)]
                    )
                work(store, 5)

        writer = threading.Thread(target=submit_for_ever)
        writer.start()
        try:
            for n in range(5):
                create(store, tmp_path / f"{n}.snapshot")
        finally:
            stop.set()
            writer.join()
    sizes = []
    for n in range(5):
        found = verify(tmp_path / f"{n}.snapshot")
        new = new_url("sqlite")
        put(tmp_path / f"{n}.snapshot", new)
        rows = rows_of(new)
        sizes.append(len(rows["jobs"]))
        assert len(rows["jobs"]) % 10 == 0
        births = [row for row in rows["journal"] if (row["machine"], row["version"]) == ("JOB", 1)]
        assert sorted(row["subject"] for row in births) == sorted(row["job_id"] for row in rows["jobs"])
        assert found.trailer.rows["jobs"] == len(rows["jobs"])
    assert sizes == sorted(sizes)
    assert sizes[-1] > sizes[0]


@EACH
def test_the_header_of_a_snapshot_names_its_ledger(kind: str, new_url: NewUrl, tmp_path: Path) -> None:
    clock = VirtualClock()
    url = new_url(kind)
    with create_store(url, clock, environment="stage", governed=True) as store:
        clock.advance(LONG_S)
        made = create(store, tmp_path / "a")
        with store.reading() as reading:
            meta = reading.settings.read()
    header = verify(tmp_path / "a").header
    assert header == made.header
    assert (header.holdfast_snapshot, header.schema, header.epoch) == (2, 6, 1)
    assert (header.ledger_id, header.environment, header.governed) == (meta["ledger_id"], "stage", True)
    assert (header.dialect, header.created_at) == (kind, "2026-03-15T09:26:53.589793Z")
    new = new_url("sqlite")
    slip = write_slip(
        action="snapshot.restore", target=made.trailer.sha256, executor="operator-1", approved_by="bob",
        rollback_plan="delete the file", reason="moved", ttl=timedelta(hours=1), now=clock(),
    )  # fmt: skip
    put(tmp_path / "a", new, clock, slip=slip)
    with open_store(new) as store, store.reading() as reading:
        arrived = reading.settings.read()
    assert arrived == meta | {"epoch": "2"}
