"""Pain 11: cleaning up lets an old key do the work again, or answer with what was never its result."""

from __future__ import annotations

import pytest

from holdfast import Ledger
from holdfast.core.errors import IdempotencyConflictError, ResultExpiredError
from holdfast.engine.upkeep.retention import Retention, gc
from tests.support.promises import Facts, require_all_done, require_promises


@pytest.mark.req("W-06", "W-07")
def test_a_key_outlives_its_payload_and_its_result(ledger: Ledger) -> None:
    done = ledger.submit("count", {"key": "a"}, client="web", key="a")
    ledger.run_until_idle()
    report = gc(ledger.store, Retention(finished_s=0), who="ann", why="retention")
    assert (report.finished, report.quarantined) == (1, 0)
    again = ledger.submit("count", {"key": "a"}, client="web", key="a")
    assert (again.job_id, again.is_new, again.result_expired) == (done.job_id, False, True)
    with pytest.raises(ResultExpiredError):
        again.result  # noqa: B018 - asking is what raises
    with pytest.raises(IdempotencyConflictError):
        ledger.submit("count", {"key": "else"}, client="web", key="a")
    assert ledger.run_until_idle() == 0
    facts = Facts(ledger)
    require_promises(facts)
    require_all_done(facts, jobs=1)
