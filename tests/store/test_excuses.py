"""Why an attempt was excused stays with the attempt; the job has not failed."""

import pytest

from holdfast.core.commands import GiveBack
from holdfast.store import Lease, Submission, create_store


@pytest.mark.req("X-06")
def test_the_reason_of_an_excuse_is_kept_with_its_attempt(ledger_url: str) -> None:
    with create_store(ledger_url) as store:
        with store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}")])
            [attempt] = transaction.executions.claim(Lease(owner="w", seconds=30))
        with store.transaction() as transaction:
            back = GiveBack(attempt.execution.lease_token, store.now(), "not_published")
            transaction.executions.move([(attempt, back)], actor="w")
        with store.reading() as reading:
            [execution] = reading.lists.executions(attempt.job.job_id)
            assert (execution.error_code, execution.excused) == ("not_published", True)
            assert reading.jobs.get(attempt.job.job_id).last_error_code is None
