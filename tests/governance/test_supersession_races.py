"""Supersession killed at every write, raced by others and by submits: it happens completely or not at all."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.core.errors import RegistryError
from holdfast.core.rollback import Disposition
from holdfast.core.vocabulary import ValueName
from holdfast.governance.registry import supersede as supersession
from holdfast.governance.registry.change import ChangeRequest
from holdfast.governance.registry.registry import faults
from holdfast.governance.registry.supersede import supersede
from holdfast.store import Submission, open_store
from tests.governance.registries import WHO, everything
from tests.governance.successions import SHIP_2, governed, shipping, states
from tests.support.forkserver import ForkServer, shared_server
from tests.support.roles import noted, wait_until

pytestmark = pytest.mark.attack("faults")

ROLE = "tests.governance.successions"
OLD = {"ship@1.0.0": "active", "pack@1.0.0": "active", "tax@1.0.0": "active"}
NEW = {**OLD, "ship@1.0.0": "superseded", "ship@2.0.0": "active"}


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with shared_server(ROLE, "psycopg") as forks:
        yield forks


@pytest.mark.req("L-18", "L-10")
def test_a_supersession_killed_at_any_write_changes_nothing(
    forks: ForkServer, governed_url: str, tmp_path: Path
) -> None:
    with governed(governed_url) as store:
        before, statuses = everything(store), list[int]()
        while not (written := noted(tmp_path / "notes")):
            role = {"url": governed_url, "write": len(statuses), "notes": str(tmp_path / "notes")}
            statuses.append(forks.spawn(f"{ROLE}:die_at", **role).wait(30))
            assert statuses[-1] == 0 or everything(store) == before, statuses
        # Killed before the first write, then after each; the last process is not killed.
        assert written[0].split() == [
            "acquire_lease", "insert_grant", "move_grant", "move_grant", "add_evidence", "move_value", "insert_value",
            "release_lease",
        ]  # fmt: skip
        assert statuses == [-9] * 9 + [0], forks.log
        assert states(store) == NEW
        with store.reading() as reading:
            assert faults(reading) == []
            assert [(grant.action, grant.state) for grant in reading.grants.page()][:1] == [
                ("registry.supersede", "consumed")
            ]


@pytest.mark.req("L-14", "L-16", "L-18")
def test_of_many_concurrent_supersessions_one_wins(forks: ForkServer, governed_url: str, tmp_path: Path) -> None:
    """Three successors and a retirement at once: one succeeds, the others get a code and write nothing."""
    wishes = ["2.0.0", "2.1.0", "3.0.0", None]
    with governed(governed_url) as store:
        children = [forks.spawn(f"{ROLE}:race", url=governed_url, to=to, directory=str(tmp_path)) for to in wishes]
        wait_until(lambda: len(list(tmp_path.glob("*.ready"))) == 4, 20, "all are ready", lambda: forks.log)
        (tmp_path / "gate").touch()
        for child in children:
            assert child.wait(30) == 0, forks.log
        said = Counter((tmp_path / (to or "retire")).read_text() for to in wishes)
        assert said.pop("changed True") == 1
        assert said.keys() <= {"VALUE_NOT_ACTIVE", "lease_held"}
        assert said.total() == 3
        with store.reading() as reading:
            rows = reading.registry.values(operation_code="ship")
            assert faults(reading) == []
            spent = [grant for grant in reading.grants.page(target="value:ship@1.0.0") if grant.state == "consumed"]
            [[kept]] = reading.execute("SELECT count(*) FROM holdfast_evidence WHERE run_id IS NULL")
        assert rows[0].state in ("superseded", "retired")
        assert [row.state for row in rows[1:]] in ([], ["active"])
        assert (len(spent), kept) == (1, 1)


@pytest.mark.req("L-16")
def test_after_a_supersession_no_submit_at_the_old_version_is_accepted(
    forks: ForkServer, governed_url: str, tmp_path: Path
) -> None:
    """Clients submit all the time: later submits at 1.0.0 are refused; a client with both versions continues."""
    notes, until = str(tmp_path / "notes"), str(tmp_path / "until")
    with governed(governed_url) as store:
        children = [
            forks.spawn(f"{ROLE}:submit", url=governed_url, versions=versions, client=client, notes=notes, until=until)
            for client, versions in (("old", ["1.0.0"]), ("both", ["1.0.0", "2.0.0"]), ("none", []))
        ]

        def answers(client: str) -> list[list[str]]:
            return [line.split() for line in noted(notes) if line.startswith(f"{client} ")]

        def taken(client: str) -> int:
            return sum(said == "taken" for _, _, said, *_ in answers(client))

        wait_until(lambda: min(map(taken, ("old", "both", "none"))) > 5, 20, "all submit", lambda: forks.log)
        supersede(store, "ship", "1.0.0", "2.0.0", semantics=SHIP_2, **WHO)
        after = time.monotonic_ns()
        so_far = {client: taken(client) for client in ("both", "none")}
        wait_until(
            lambda: (
                all(taken(client) > n + 5 for client, n in so_far.items())
                and "CANONICAL_OPERATION_RETIRED_FOR_NEW_USE" in {said for _, _, said, *_ in answers("old")}
            ),
            20,
            "all go on",
            lambda: (forks.log, noted(notes)[-10:]),
        )
        Path(until).touch()
        for child in children:
            assert child.wait(30) == 0, forks.log
        late = [said for _, _, said, began, _ in answers("old") if int(began) > after]
        assert set(late) == {"CANONICAL_OPERATION_RETIRED_FOR_NEW_USE"}
        for client in ("both", "none"):
            assert {said for _, _, said, *_ in answers(client)} == {"taken"}
        with store.reading() as reading:
            jobs = reading.lists.jobs(limit=100_000)
            old = reading.registry.value("ship", "1.0.0")
            assert old is not None
            moved = reading.journal.of(old.value_id, "VALUE")[-1]
            born = {job.job_id: reading.journal.of(job.job_id)[0] for job in jobs}
        assert {(job.client, job.operation_version) for job in jobs} == {
            ("old", "1.0.0"), ("both", "1.0.0"), ("both", "2.0.0"), ("none", "1.0.0"), ("none", "2.0.0"),
        }  # fmt: skip
        assert len(jobs) == sum(map(taken, ("old", "both", "none")))
        # In the journal too: nothing at the new version before the move, nothing at the old one after it.
        assert all((born[job.job_id].seq < moved.seq) == (job.operation_version == "1.0.0") for job in jobs)


@pytest.mark.req("L-16")
def test_a_submit_in_a_transaction_of_its_own_and_a_supersession_wait_for_each_other(governed_url: str) -> None:
    """A submit that found a value in force keeps it so until its commit, and the other way round."""
    with governed(governed_url) as store, open_store(governed_url) as other:
        ship = Submission(operation="ship", payload="{}")
        done: list[Any] = []
        with store.transaction() as transaction:
            transaction.jobs.submit([ship])
            thread = threading.Thread(target=lambda: done.append(supersede(other, "ship", "1.0.0", "2.0.0", **WHO)))
            thread.start()
            thread.join(0.3)
            assert done == []  # it waits
        thread.join(20)
        assert [changed.changed for changed in done] == [True]

        def late() -> None:
            new = Submission(operation="ship", payload="{}", operation_version="2.0.0")
            try:
                with other.transaction() as transaction:
                    done.append(transaction.jobs.submit([new]))
            except RegistryError as error:
                done.append(error.code)

        request = ChangeRequest(
            Disposition.RETIRE, ValueName("ship", "2.0.0"), None, actor="ann", reason="a test", grant_id=None
        )
        with store.transaction() as transaction:
            supersession._carried_out(transaction, request)
            thread = threading.Thread(target=late)
            thread.start()
            thread.join(0.3)
            assert len(done) == 1  # it waits
        thread.join(20)
        assert done[1:] == ["CANONICAL_OPERATION_RETIRED_FOR_NEW_USE"]


@pytest.mark.req("L-16")
def test_a_flood_of_submits_does_not_keep_a_supersession_waiting(governed_url: str) -> None:
    """Transactions that overlap without a gap: each new one queues behind the supersession, not before it."""
    stop, failures, taken = threading.Event(), list[BaseException](), list[float]()

    def flood(url: str, first_s: float) -> None:
        time.sleep(first_s)
        with open_store(url) as own:
            while not stop.is_set():
                try:
                    with own.transaction() as transaction:
                        transaction.jobs.submit([Submission(operation="ship", payload="{}")])
                        time.sleep(0.05)
                    taken.append(time.monotonic())
                except RegistryError:
                    return
                except BaseException as error:  # noqa: BLE001 - the test fails with it
                    failures.append(error)
                    return

    with governed(governed_url) as store:
        threads = [threading.Thread(target=flood, args=(governed_url, n / 80)) for n in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(taken) >= 4, 30, "the flood")
        before = len(taken)
        supersede(store, "ship", "1.0.0", "2.0.0", **WHO)
        for thread in threads:
            thread.join(30)
        stop.set()
        assert failures == []
        # If it were kept waiting, the flood would go on until its request times out: hundreds of submits.
        assert len(taken) - before < 60


def test_jobs_accepted_before_a_supersession_are_executed(governed_url: str) -> None:
    with governed(governed_url) as store, Ledger(governed_url, shipping("1.0.0")) as old:
        before = [old.submit("ship", {"n": n}) for n in range(3)]
        supersede(store, "ship", "1.0.0", "2.0.0", semantics=SHIP_2, **WHO)
        assert old.run_until_idle() == 3
        assert [receipt.wait(0).result for receipt in before] == ["1.0.0"] * 3
