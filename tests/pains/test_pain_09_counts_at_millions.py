"""Pain 9: a dashboard's counts take longer with every job that was ever done."""

from __future__ import annotations

import pytest

from holdfast import Ledger
from holdfast.audit.check.runner import check
from holdfast.core.machines import JobState
from holdfast.store.statements import statements

MANY = 2_000


@pytest.mark.req("M-19")
def test_counts_are_read_without_looking_at_a_single_job(ledger: Ledger) -> None:
    """The statement names the counts alone, so the number of jobs cannot matter."""
    for statement in statements(ledger.store.dialect)["read_counts"]:
        assert "holdfast_jobs" not in statement
        assert "holdfast_counts" in statement
    ledger.submit_many([{"operation": "count", "payload": {"key": str(n)}} for n in range(MANY)])
    assert {(c.operation, c.state): c.n for c in ledger.counts()} == {("count", JobState.PENDING): MANY}
    ledger.perform(lambda transaction: transaction.counts.fold())
    with ledger.store.reading() as reading:
        [[rows]] = reading.execute("SELECT count(*) FROM holdfast_counts")
        [[unfolded]] = reading.execute("SELECT count(*) FROM holdfast_count_deltas")
    assert (rows, unfolded) == (1, 0)


def test_a_count_that_is_wrong_is_found(ledger: Ledger) -> None:
    ledger.submit("count", {"key": "a"})
    ledger.perform(lambda transaction: transaction.counts.fold())
    assert check(ledger.store).violations == ()
    with ledger.store.transaction() as transaction:
        transaction.execute("UPDATE holdfast_counts SET n = n + 41")
    [violation] = check(ledger.store).violations
    assert (violation.invariant, violation.evidence["counted"], violation.evidence["found"]) == ("counts_true", 42, 1)
