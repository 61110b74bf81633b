"""Pain 15: a record of work in progress blocks its key for ever, or frees it while the work still runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Ledger, Worker
from holdfast.core.machines import JobState
from tests.pains.conftest import LEASE_S
from tests.support.forkserver import ForkServer
from tests.support.promises import Facts, require_all_done, require_promises
from tests.support.roles import noted, wait_until


@pytest.mark.req("W-03", "M-06")
def test_a_key_in_progress_is_neither_free_nor_lost(
    forks: ForkServer, ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    call = {"started": str(started)}
    first = ledger.submit("hang", call, client="web", key="a")
    worker = forks.spawn("tests.support.roles:work", url=ledger_url, lease_s=LEASE_S)
    wait_until(lambda: noted(started), 20, "the job runs", lambda: forks.log)
    # Longer than the lease: heartbeats keep it, and the key stays taken.
    during = ledger.submit("hang", call, client="web", key="a")
    assert (during.job_id, during.is_new, during.state) == (first.job_id, False, JobState.RUNNING)
    wait_until(lambda: Facts(ledger).executions[first.job_id][0].updated_at, 20, "a heartbeat", lambda: forks.log)
    worker.kill()
    # Killed: the lease expires, and the next worker takes the job, under the same key.
    rescuer = Worker(ledger, poll_s=0.1)
    [held] = Facts(ledger).executions[first.job_id]
    wait_until(lambda: ledger.store.now() > held.lease_expires_at, 20, "the lease runs out", lambda: forks.log)
    assert rescuer.run(until_idle=True) == 1
    after = ledger.submit("hang", call, client="web", key="a")
    assert (after.job_id, after.is_new, after.state) == (first.job_id, False, JobState.SUCCEEDED)
    assert isinstance(after.result, int)
    facts = Facts(ledger)
    require_promises(facts)
    require_all_done(facts, jobs=1)
