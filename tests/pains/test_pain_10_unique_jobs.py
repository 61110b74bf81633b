"""Pain 10: whether a repeated job is a duplicate depends on its state, on a period, or on who comes first."""

from __future__ import annotations

import threading

import pytest

from holdfast import Ledger
from holdfast.core.errors import IdempotencyConflictError
from holdfast.core.machines import JobState


@pytest.mark.req("W-03", "W-18")
def test_the_same_key_is_the_same_job_in_every_state(ledger: Ledger) -> None:
    first = ledger.submit("count", {"key": "a"}, client="web", key="a")

    def repeated() -> tuple[int, bool, JobState]:
        receipt = ledger.submit("count", {"key": "a"}, client="web", key="a")
        return receipt.job_id, receipt.is_new, receipt.state

    assert repeated() == (first.job_id, False, JobState.PENDING)
    ledger.cancel(first.job_id)
    assert repeated() == (first.job_id, False, JobState.QUARANTINED)
    done = ledger.submit("count", {"key": "b"}, client="web", key="b")
    ledger.run_until_idle()
    again = ledger.submit("count", {"key": "b"}, client="web", key="b")
    assert (again.job_id, again.is_new, again.state, again.result) == (
        done.job_id, False, JobState.SUCCEEDED, {"key": "b"},
    )  # fmt: skip


@pytest.mark.req("W-20")
def test_a_key_is_scoped_to_its_client_and_to_its_payload(ledger: Ledger) -> None:
    web = ledger.submit("count", {"key": "a"}, client="web", key="a")
    other = ledger.submit("count", {"key": "a"}, client="batch", key="a")
    assert (other.is_new, other.job_id != web.job_id) == (True, True)
    with pytest.raises(IdempotencyConflictError):
        ledger.submit("count", {"key": "else"}, client="web", key="a")


@pytest.mark.req("W-18")
def test_concurrent_submits_with_one_key_get_the_same_job(ledger: Ledger) -> None:
    gate, receipts = threading.Barrier(8), []

    def submit() -> None:
        gate.wait()
        receipts.append(ledger.submit("count", {"key": "a"}, client="web", key="a"))

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({receipt.job_id for receipt in receipts}) == 1
    assert sorted(receipt.is_new for receipt in receipts) == [False] * 7 + [True]
