"""Erasure: the personal data of a job leave the ledger under a grant; history still verifies, the key stays in use."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Execution, IdempotencyConflictError, Ledger
from holdfast.audit.as_of import job_at
from holdfast.audit.check.runner import check
from holdfast.audit.files.restore import RestoreRequest, restore
from holdfast.audit.files.snapshot import create
from holdfast.audit.seals.sealer import seal
from holdfast.audit.seals.verify import verify
from holdfast.core.authority import Act
from holdfast.core.errors import AuthorityError, InvalidStateTransitionError, JobNotFoundError, ResultExpiredError
from holdfast.core.machines import GrantState
from holdfast.explain.explain import explain
from holdfast.governance.erasure import erase
from holdfast.store import Store
from holdfast.store.enforcement import ERASE
from holdfast.testing import VirtualClock, drain, virtual_world
from tests.enforcement.raw import DOOR, SHUT, Client
from tests.governance.quarantining import granted, grants

PERSON = "ann.example@mail.invalid"
WHY = "request 17 of the person"


@pytest.fixture
def ledger(stage_url: str) -> Iterator[Ledger]:
    """A ledger of stage, where an erasure needs a grant."""
    clock = VirtualClock()
    with Ledger(stage_url, world=virtual_world(clock)) as ledger:

        @ledger.operation("greet", max_attempts=2)
        def greet(run: Execution, who: str) -> str:
            run.checkpoint("who", lambda: who)
            run.progress(0.5, f"greeting {who}")
            if run.attempt == 1:
                raise ValueError(f"cannot greet {who}")
            return f"hello {who}"

        yield ledger


def greeted(ledger: Ledger) -> int:
    job_id = ledger.submit("greet", {"who": PERSON}, client="web", key=PERSON).job_id
    drain(ledger, until=ledger.store.now().replace(year=2027))
    assert ledger.job(job_id).state == "succeeded"
    return job_id


def erased(ledger: Ledger, job_id: int) -> int:
    grant = granted(ledger.store, Act.ERASE, f"job:{job_id}")
    done = erase(ledger.store, job_id, actor="ann", reason=WHY, grant_id=grant)
    assert (done.changed, done.erasure.grant_id, done.erasure.actor) == (True, grant, "ann")
    return grant


def stored(store: Store[Any]) -> str:
    """Return every row of the ledger as text."""
    from holdfast.store.tables import ALL

    with store.reading() as reading:
        return repr([reading.execute(f"SELECT * FROM {table.full_name}") for table in ALL])


def test_the_action_of_the_grant_is_the_one_that_the_triggers_ask_for() -> None:
    assert Act.ERASE == ERASE


def test_an_erasure_removes_all_personal_data_and_history_still_verifies(ledger: Ledger, tmp_path: Path) -> None:
    job_id = greeted(ledger)
    before = ledger.store.now()
    seal(ledger.store)
    assert PERSON in stored(ledger.store)
    digest = ledger.job(job_id).digest
    grant = erased(ledger, job_id)
    assert PERSON not in stored(ledger.store)
    job = ledger.job(job_id)
    assert (job.key, job.payload, job.result, job.last_error_message) == (None, None, None, None)
    assert (job.state, job.digest, job.last_error_code) == ("succeeded", digest, "value_error")
    with ledger.store.reading() as reading:
        query = "SELECT event, actor, grant_id FROM holdfast_journal WHERE machine = 'MAINTENANCE' ORDER BY seq"
        doors = reading.execute(query)
        past = job_at(reading, job_id, before, ledger.store.now())
    assert past.job.state == "succeeded"
    assert ("erase", "ann", grant) in [tuple(row) for row in doors]
    assert next(each for each in grants(ledger.store) if each.grant_id == grant).state == GrantState.CONSUMED
    assert check(ledger.store).ok
    seal(ledger.store)
    assert verify(ledger.store).ok
    file = tmp_path / "snapshot.gz"
    create(ledger.store, file)
    assert PERSON.encode() not in gzip.decompress(file.read_bytes())


WRITTEN_BACK = {
    "payload": "UPDATE holdfast_calls SET payload = '{}' WHERE job_id = ?",
    "key": "UPDATE holdfast_calls SET key = 'ann' WHERE job_id = ?",
    "result": "UPDATE holdfast_jobs SET result = '1' WHERE job_id = ?",
    "error message": "UPDATE holdfast_jobs SET last_error_message = 'ann' WHERE job_id = ?",
    "progress note": "UPDATE holdfast_jobs SET progress_note = 'ann' WHERE job_id = ?",
}


@pytest.mark.attack("sql")
@pytest.mark.parametrize("what", WRITTEN_BACK)
def test_data_that_is_written_back_is_found_and_can_be_erased_again(ledger: Ledger, what: str) -> None:
    job_id = greeted(ledger)
    erased(ledger, job_id)
    assert erase(ledger.store, job_id, actor="ann", reason=WHY).changed is False
    client = Client(ledger.store.url)
    client.run(DOOR)
    assert client.changed(WRITTEN_BACK[what], job_id) == 1
    client.run(SHUT)
    client.commit()
    client.close()
    found = check(ledger.store, only=["erasures_hold"]).violations
    assert [(one.subject, one.evidence["what"]) for one in found] == [(f"JOB {job_id}", what)]
    grant = granted(ledger.store, Act.ERASE, f"job:{job_id}")
    assert erase(ledger.store, job_id, actor="ann", reason=WHY, grant_id=grant).changed
    assert check(ledger.store, only=["erasures_hold"]).violations == ()


def test_the_key_of_an_erased_job_stays_in_use(ledger: Ledger) -> None:
    job_id = greeted(ledger)
    other = ledger.submit("noop", client="web", key="other").job_id
    erased(ledger, job_id)
    again = ledger.submit("greet", {"who": PERSON}, client="web", key=PERSON)
    assert (again.is_new, again.job_id, again.result_expired) == (False, job_id, True)
    with pytest.raises(ResultExpiredError):
        _ = again.result
    with pytest.raises(IdempotencyConflictError):
        ledger.submit("greet", {"who": "another"}, client="web", key=PERSON)
    calls: list[Any] = [
        {"operation": "greet", "payload": {"who": PERSON}, "client": "web", "key": PERSON},
        {"operation": "noop", "client": "web", "key": "other"},
        {"operation": "noop", "client": "web", "key": "new"},
        {"operation": "noop"},
    ]
    many = ledger.submit_many(calls)
    assert [(receipt.is_new, receipt.job_id) for receipt in many[:2]] == [(False, job_id), (False, other)]
    assert [receipt.is_new for receipt in many[2:]] == [True, True]
    assert ledger.submit("greet", {"who": PERSON}, client="shop", key=PERSON).is_new  # of another client
    assert check(ledger.store).ok


def test_it_needs_a_grant_for_exactly_this_job(ledger: Ledger) -> None:
    job_id = greeted(ledger)
    other = granted(ledger.store, Act.ERASE, f"job:{job_id + 1}")
    for grant in (None, other, granted(ledger.store, Act.RELEASE, f"job:{job_id}")):
        with pytest.raises(AuthorityError):
            erase(ledger.store, job_id, actor="ann", reason=WHY, grant_id=grant)
    assert ledger.job(job_id).payload is not None
    first = erased(ledger, job_id)
    again = erase(ledger.store, job_id, actor="ann", reason=WHY)
    assert (again.changed, again.erasure.grant_id) == (False, first)


def test_an_erasure_of_a_job_that_has_not_ended_is_refused_with_a_next_step(ledger: Ledger) -> None:
    pending = ledger.submit("greet", {"who": PERSON}).job_id
    grant = granted(ledger.store, Act.ERASE, f"job:{pending}")
    with pytest.raises(InvalidStateTransitionError) as refused:
        erase(ledger.store, pending, actor="ann", reason=WHY, grant_id=grant)
    assert refused.value.context == {"job_id": pending, "state": "pending", "refusal": "not_ended"}
    assert f"holdfast cancel {pending}" in refused.value.hint
    with pytest.raises(JobNotFoundError):
        erase(ledger.store, 999, actor="ann", reason=WHY)
    ledger.cancel(pending, actor="ann", reason="a request")
    assert erase(ledger.store, pending, actor="ann", reason=WHY, grant_id=grant).changed
    assert check(ledger.store).ok


def test_in_dev_a_grant_is_made(ledger_url: str) -> None:
    with Ledger(ledger_url) as ledger:
        job_id = ledger.submit("noop", key="k").job_id
        ledger.run_until_idle()
        ledger.erase(job_id, actor="ann", reason=WHY)
        assert ledger.job(job_id).key is None
        assert [grant.action for grant in grants(ledger.store)] == ["erase"]
        with ledger.store.reading() as reading:
            explained = explain(reading, job_id, ledger.store.now())
        assert [finding.code for finding in explained.findings] == ["succeeded", "erased"]
        assert explained.findings[1].evidence["by"] == "ann"


def test_a_snapshot_takes_the_erasure_along(ledger_url: str, tmp_path: Path) -> None:
    with Ledger(ledger_url) as ledger:
        job_id = ledger.submit("noop", {"who": PERSON}, client="web", key=PERSON).job_id
        ledger.run_until_idle()
        ledger.erase(job_id, reason=WHY)
        file, copy = tmp_path / "snapshot.gz", f"sqlite:///{tmp_path / 'copy.db'}"
        create(ledger.store, file)
    restore(file, copy, RestoreRequest(who="ann", why="moved"))
    with Ledger(copy) as ledger:
        again = ledger.submit("noop", {"who": PERSON}, client="web", key=PERSON)
        assert (again.is_new, again.job_id) == (False, job_id)
        assert check(ledger.store).ok


def test_a_submit_beside_an_erasure_does_not_use_the_key_again(ledger: Ledger) -> None:
    """Whatever comes first, one job has the key."""
    for number in range(5):
        key = f"k{number}"
        job_id = ledger.submit("noop", client="web", key=key).job_id
        drain(ledger)
        grant = granted(ledger.store, Act.ERASE, f"job:{job_id}")
        start = threading.Barrier(3)
        found: list[int] = []

        def submit(key: str = key, start: threading.Barrier = start, found: list[int] = found) -> None:
            start.wait(30)
            found.extend(ledger.submit("noop", client="web", key=key).job_id for _ in range(20))

        threads = [threading.Thread(target=submit) for _ in range(2)]
        for thread in threads:
            thread.start()
        start.wait(30)
        erase(ledger.store, job_id, actor="ann", reason=WHY, grant_id=grant)
        for thread in threads:
            thread.join(60)
        assert set(found) == {job_id}
        assert len(found) == 40
