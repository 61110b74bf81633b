"""A write-ahead log that several processes use at once: one entry a key, and an entry that kills is put away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast import Ledger
from holdfast.compat import EntryStatus, Wal, WalRecoveringError
from holdfast.engine.world import World
from tests.crash.wal_run import EFFECTS, LEASE_S
from tests.support.forkserver import ForkServer, shared_server
from tests.support.promises import Facts, require_promises
from tests.support.roles import noted, wait_until

pytestmark = pytest.mark.attack("faults")

KEYS = 1000


@pytest.fixture
def server() -> Iterator[ForkServer]:
    with shared_server("tests.crash.wal_run") as server:
        yield server


@pytest.mark.req("W-03", "W-15", "W-18")
def test_two_processes_that_append_the_same_keys_make_one_entry_each(
    server: ForkServer, ledger_url: str, tmp_path: Path
) -> None:
    with Ledger(ledger_url) as ledger:
        wal = Wal(ledger, name="both")
        assert wal.pending_count() == 0
        notes, go = [tmp_path / "one", tmp_path / "other"], tmp_path / "go"
        children = [
            server.spawn(
                "tests.crash.wal_run:append_all", url=ledger_url, name="both", keys=KEYS, notes=str(path), go=str(go)
            )
            for path in notes
        ]
        wait_until(lambda: [noted(path) for path in notes] == [["ready"]] * 2, 30, "both are ready", lambda: server.log)
        go.touch()
        assert [child.wait(120) for child in children] == [0, 0], server.log

        answers = [[tuple(map(int, line.split())) for line in noted(path)[1:]] for path in notes]
        [one, other] = [[list(column) for column in zip(*answer, strict=True)] for answer in answers]
        assert one[0] == other[0] == list(range(KEYS))
        # Both noted the same entry of each key, and exactly one of them that it is new.
        assert one[1] == other[1]
        assert [mine + yours for mine, yours in zip(one[2], other[2], strict=True)] == [1] * KEYS
        assert max(one[3][0], other[3][0]) < min(one[3][KEYS // 2], other[3][KEYS // 2]), "they did not meet"
        found = wal.pending_entries()
        assert sorted(entry.idempotency_key for entry in found) == list(range(KEYS))  # type: ignore[type-var]
        assert {entry.id for entry in found} == set(one[1])
        assert {entry.idempotency_key: entry.data for entry in found} == {n: str(n).encode() for n in range(KEYS)}
        assert wal.pending_count() == KEYS


@pytest.mark.req("W-04", "W-07", "W-15", "W-18")
def test_clients_of_many_threads_and_processes_carry_each_key_out_once(server: ForkServer, ledger_url: str) -> None:
    """All are at the same keys of two logs, and what one of them completes the others find completed."""
    names, keys = ["left", "right"], 40
    with Ledger(ledger_url) as ledger:
        with ledger.store.transaction() as transaction:
            transaction.execute(EFFECTS)
        children = [
            server.spawn("tests.crash.wal_run:carry_out_all", url=ledger_url, names=names, keys=keys, threads=threads)
            for threads in (3, 4)  # so that the same key is carried out in both ways
        ]
        assert [child.wait(120) for child in children] == [0, 0], server.log
        with ledger.store.reading() as reading:
            effects = Counter(reading.execute("SELECT log, key FROM wal_effects"))
        assert effects == {(name, str(key)): 1 for name in names for key in range(keys)}
        for name in names:
            wal = Wal(ledger, name=name)
            assert wal.pending_count() == 0
            entries = [wal.find_by_idempotency_key(f"client-{name}", key) for key in range(keys)]
            assert [entry and (entry.status, entry.result) for entry in entries] == [
                (EntryStatus.COMPLETED, str(key)) for key in range(keys)
            ]
        require_promises(Facts(ledger, effects=False), effects=False)


@pytest.mark.req("W-05", "W-14")
def test_an_entry_that_kills_every_process_ends_failed(server: ForkServer, ledger_url: str) -> None:
    """The claim is durable before the entry is carried out: after two excused deaths each one counts."""
    with Ledger(ledger_url) as ledger:
        with ledger.store.transaction() as transaction:
            transaction.execute(EFFECTS)
        wal = Wal(ledger, lease_s=LEASE_S, max_attempts=3)
        ids = [
            wal.append_with_idempotency("alice", key, "Update", b"deadly" if key == 2 else b"good")[0]
            for key in (1, 2, 3)
        ]
        ends: list[int] = []
        while not ends or ends[-1] != 0:
            child = server.spawn(
                "tests.crash.wal_run:recover_to_death",
                url=ledger_url,
                name="main",
                max_attempts=3,
                late_s=(LEASE_S + 1) * len(ends),  # each process begins when the lease of the one before has expired
            )
            ends.append(child.wait(30))
            assert len(ends) <= 6
        assert ends == [-9, -9, -9, -9, -9, 0], server.log  # the first two are excused
        assert [wal.get(entry_id).status for entry_id in ids] == [
            EntryStatus.COMPLETED,
            EntryStatus.FAILED,
            EntryStatus.COMPLETED,
        ]
        killer = wal.get(ids[1])
        assert killer.attempts == 3
        assert (killer.error or "").endswith("expired during attempt 5")
        with ledger.store.reading() as reading:
            assert sorted(reading.execute("SELECT key FROM wal_effects")) == [("1",), ("3",)]
    # By a clock as late as the last process's: its lease ended at a time that is in the future here.
    late = World(clock=lambda: datetime.now(UTC) + timedelta(seconds=(LEASE_S + 1) * len(ends)))
    with Ledger(ledger_url, world=late) as ledger:
        wal = Wal(ledger, lease_s=LEASE_S, max_attempts=3)
        assert wal.recover(lambda _entry, _boundary: None).completed == ()


@pytest.mark.req("W-05")
def test_a_recovery_that_is_killed_shuts_its_log_only_until_its_lease_ends(server: ForkServer, ledger_url: str) -> None:
    ahead = timedelta(0)
    with Ledger(ledger_url, world=World(clock=lambda: datetime.now(UTC) + ahead)) as ledger:
        with ledger.store.transaction() as transaction:
            transaction.execute(EFFECTS)
        wal = Wal(ledger)
        [entry_id] = [wal.append("alice", "Update", b"deadly")]
        child = server.spawn("tests.crash.wal_run:recover_to_death", url=ledger_url, name="main", lease_s=60.0)
        assert child.wait(30) == -9, server.log
        with pytest.raises(WalRecoveringError) as caught:
            wal.append("bob", "Create", b"at once")
        assert caught.value.context["wal"] == "main"
        ahead = timedelta(seconds=60)  # the lease of the killed recovery has ended
        late = wal.append("bob", "Create", b"later")
        assert wal.recover(lambda _entry, _boundary: None).completed == (entry_id, late)
