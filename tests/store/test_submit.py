"""Submitting: recorded exactly, once for each (client, key), all of a batch or nothing of it."""

from __future__ import annotations

import json
import random
from functools import partial

import pytest

from holdfast.core.commands import Complete
from holdfast.core.digest import sha256
from holdfast.core.errors import IdempotencyConflictError, UnknownOperationError
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.store import Admission, Submission, open_store
from tests.store.conftest import OPERATIONS
from tests.store.verbs import Verbs, steps, together
from tests.support.store_child import Child


def keyed(key: str, payload: str = "{}", operation: str = "noop", client: str = "web") -> Submission:
    return Submission(operation=operation, payload=payload, client=client, key=key)


@pytest.mark.req("K-10", "M-01", "G-17")
def test_a_submission_is_recorded_as_given(verbs: Verbs) -> None:
    now = verbs.clock()
    first = verbs.submit()
    job_id = verbs.submit(
        operation="thumbnail",
        operation_version="2.1.0",
        payload='{"path":"a.png","width":64}',
        client="web",
        key="a.png@64",
        queue="images",
        priority=7,
        run_at=verbs.clock.after(90),
        max_attempts=3,
        replay_attempts=2,
        replaces=first,
    )
    assert verbs.job(job_id) == Job(
        job_id=job_id,
        operation="thumbnail",
        operation_version="2.1.0",
        client="web",
        key="a.png@64",
        queue="images",
        state=JobState.PENDING,
        version=1,
        attempts=0,
        excused=0,
        max_attempts=3,
        replay_attempts=2,
        priority=7,
        run_at=verbs.clock.after(90),
        payload='{"path":"a.png","width":64}',
        digest=sha256('thumbnail\n{"path":"a.png","width":64}'),
        result=None,
        last_attempt_at=None,
        last_error_code=None,
        last_error_message=None,
        quarantine_code=None,
        replay_reason=None,
        replaces=first,
        created_at=now,
        updated_at=now,
    )
    assert steps(verbs.journal(job_id)) == [
        (1, None, "pending", "submit", "client-1", "as ordered", 0, None, now),
    ]
    assert verbs.executions(job_id) == []


def test_omitted_fields_have_their_defaults(verbs: Verbs) -> None:
    job = verbs.job(verbs.submit())
    assert job.run_at == verbs.clock()
    assert (job.client, job.key, job.queue, job.priority) == ("local", None, "default", 0)
    assert (job.max_attempts, job.replay_attempts, job.operation_version) == (5, 5, "1.0.0")


def test_text_of_every_kind_is_stored_unchanged(verbs: Verbs) -> None:
    payload = json.dumps(
        {"quote": "'\"`", "percent": "%s %(now)s :now", "text": "żółw 🐢\u2028\\ \n"}, ensure_ascii=False
    )
    submission = Submission(operation="noop", payload=payload, client="c:now %s ' 🐢", key="k'; -- %(x)s", queue="q\n'")
    [admission] = verbs.submit_all([submission])
    job = verbs.job(admission.job_id)
    assert (job.payload, job.client, job.key, job.queue) == (
        payload,
        submission.client,
        submission.key,
        submission.queue,
    )
    assert verbs.submit_all([submission]) == [Admission(job.job_id, is_new=False, existing=job)]


@pytest.mark.req("W-03", "W-20", "G-19")
def test_the_same_key_and_work_is_the_same_job(verbs: Verbs) -> None:
    [first] = verbs.submit_all([keyed("a", "[1]")])
    assert first.is_new
    before = verbs.everything()
    verbs.clock.advance(60)
    [again] = verbs.submit_all([keyed("a", "[1]")])
    assert again == Admission(first.job_id, is_new=False, existing=verbs.job(first.job_id))
    assert verbs.everything() == before


@pytest.mark.req("W-18")
def test_a_key_belongs_to_its_client(verbs: Verbs) -> None:
    first, other = verbs.submit_all([keyed("a", "[1]"), keyed("a", "[2]", client="mobile")])
    assert first.is_new
    assert other.is_new
    assert verbs.job(first.job_id).payload == "[1]"
    assert verbs.job(other.job_id).payload == "[2]"


def test_a_key_stays_used_whatever_became_of_its_job(verbs: Verbs) -> None:
    [first] = verbs.submit_all([keyed("a", "[1]")])
    attempt = verbs.claim_one()
    verbs.work(attempt, Complete(attempt.execution.lease_token, '{"bytes":7}'))
    [again] = verbs.submit_all([keyed("a", "[1]")])
    assert (again.job_id, again.is_new) == (first.job_id, False)
    assert again.existing is not None
    assert (again.existing.state, again.existing.result) == (JobState.SUCCEEDED, '{"bytes":7}')
    with pytest.raises(IdempotencyConflictError):
        verbs.submit_all([keyed("a", "[2]")])


@pytest.mark.req("W-18")
def test_a_key_twice_in_one_batch_is_one_job(verbs: Verbs) -> None:
    old, a, a_again, b, old_again = verbs.submit_all([keyed("old"), keyed("a"), keyed("a"), keyed("b"), keyed("old")])
    assert [old.is_new, a.is_new, a_again.is_new, b.is_new, old_again.is_new] == [True, True, False, True, False]
    assert a.job_id == a_again.job_id
    assert old.job_id == old_again.job_id
    assert verbs.query("SELECT count(*) FROM holdfast_jobs") == [(3,)]
    repeated = verbs.submit_all([keyed("b"), keyed("b")])
    assert repeated == [Admission(b.job_id, is_new=False, existing=verbs.job(b.job_id))] * 2


@pytest.mark.req("W-20")
@pytest.mark.parametrize(
    "other", [keyed("a", "[2]"), keyed("a", "[1]", operation="echo")], ids=["payload", "operation"]
)
def test_a_used_key_with_other_work_is_a_conflict_and_nothing_is_written(verbs: Verbs, other: Submission) -> None:
    verbs.submit_all([keyed("a", "[1]")])
    before = verbs.everything()
    with pytest.raises(IdempotencyConflictError) as caught:
        verbs.submit_all([keyed("new"), other, Submission(operation="noop", payload="{}")])
    assert verbs.everything() == before
    assert caught.value.code == "idempotency_conflict"
    assert caught.value.context == {"client": "web", "key": "a"}
    assert caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.req("W-20")
@pytest.mark.parametrize(
    "other", [keyed("a", "[2]"), keyed("a", "[1]", operation="echo")], ids=["payload", "operation"]
)
def test_a_conflict_inside_one_batch_writes_nothing(verbs: Verbs, other: Submission) -> None:
    before = verbs.everything()
    with pytest.raises(IdempotencyConflictError):
        verbs.submit_all([keyed("new"), keyed("a", "[1]"), other])
    assert verbs.everything() == before


def test_without_a_key_there_is_no_dedupe(verbs: Verbs) -> None:
    same = Submission(operation="noop", payload="{}")
    first, second = verbs.submit_all([same, same])
    [third] = verbs.submit_all([same])
    assert len({first.job_id, second.job_id, third.job_id}) == 3
    assert first.is_new
    assert second.is_new
    assert third.is_new


def test_answers_are_in_the_order_of_the_submissions(verbs: Verbs) -> None:
    """Keys are written in one order for all, and rows without a key after them: answers keep the order of the batch."""
    draw = random.Random(2)
    batch = [
        Submission(operation="noop", payload=f"[{n}]", client="web", key=None if n % 3 == 0 else f"k{97 * n % 50:02}")
        for n in range(50)
    ]
    draw.shuffle(batch)
    admitted = verbs.submit_all(batch)
    assert [verbs.job(admission.job_id).payload for admission in admitted] == [s.payload for s in batch]
    assert [verbs.job(admission.job_id).key for admission in admitted] == [s.key for s in batch]
    keyless = [admission.job_id for admission, s in zip(admitted, batch, strict=True) if s.key is None]
    assert keyless == sorted(keyless)


def test_an_empty_batch_writes_nothing(verbs: Verbs) -> None:
    before = verbs.everything()
    assert verbs.submit_all([]) == []
    assert verbs.everything() == before


def test_an_undeclared_operation_is_refused_and_nothing_is_written(verbs: Verbs) -> None:
    before = verbs.everything()
    with pytest.raises(UnknownOperationError) as caught:
        verbs.submit_all([keyed("a"), keyed("b", operation="unheard-of")])
    assert (caught.value.code, caught.value.exit_code) == ("operation_unknown", 2)
    assert caught.value.context == {"operation": "unheard-of"}
    assert "holdfast worker" in caught.value.hint
    assert verbs.everything() == before


def test_an_operation_that_another_process_declared_is_known(verbs: Verbs) -> None:
    with pytest.raises(UnknownOperationError):
        verbs.submit(operation="later")
    with open_store(verbs.store.url, verbs.clock) as other, other.transaction() as transaction:
        transaction.operations.declare({"later": OPERATIONS["echo"]})
    assert verbs.job(verbs.submit(operation="later")).operation == "later"


def test_an_error_in_the_block_rolls_everything_back(verbs: Verbs) -> None:
    before = verbs.everything()

    def fails() -> None:
        with verbs.store.transaction() as transaction:
            transaction.jobs.submit([keyed("a")], actor="client-1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert verbs.everything() == before
    assert verbs.submit_all([keyed("a")])[0].is_new


@pytest.mark.req("W-18")
def test_threads_that_submit_the_same_keys_in_opposite_orders_get_one_job_each(verbs: Verbs) -> None:
    keys = [f"key-{n:03}" for n in range(120)]
    orders = [keys, keys[::-1], random.Random(1).sample(keys, len(keys)), keys[60:] + keys[:60]]

    def submitting(order: list[str]) -> dict[str, Admission]:
        admitted: dict[str, Admission] = {}
        for at in range(0, len(order), 30):
            batch = order[at : at + 30]
            admitted |= dict(zip(batch, verbs.submit_all([keyed(key) for key in batch]), strict=True))
        return admitted

    answers = together(*(partial(submitting, order) for order in orders))
    for key in keys:
        assert len({admitted[key].job_id for admitted in answers}) == 1
        assert [admitted[key].is_new for admitted in answers].count(True) == 1
    assert verbs.query("SELECT count(*) FROM holdfast_jobs") == [(len(keys),)]
    assert verbs.query("SELECT count(*) FROM holdfast_journal") == [(len(keys),)]


@pytest.mark.req("W-18")
def test_processes_that_submit_the_same_keys_get_one_job_each(verbs: Verbs) -> None:
    keys = [f"key-{n:03}" for n in range(90)]
    orders = [keys, keys[::-1], random.Random(1).sample(keys, len(keys))]
    batches = [[order[at : at + 15] for at in range(0, len(order), 15)] for order in orders]
    children = [Child("submit", verbs.store.url, batches=each) for each in batches]
    try:
        assert [child.says() for child in children] == ["ready"] * 3
        for child in children:
            child.go()
        answers = [child.answer() for child in children]
    finally:
        for child in children:
            child.kill()
    for key in keys:
        assert len({answer[key][0] for answer in answers}) == 1
        assert [answer[key][1] for answer in answers].count(True) == 1
    assert verbs.query("SELECT count(*), count(DISTINCT key) FROM holdfast_calls") == [(len(keys), len(keys))]
