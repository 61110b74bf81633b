"""Pain 3: jobs stay "running" after a kill, and the user must write the rescuer."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Ledger
from tests.pains.conftest import LEASE_S
from tests.support.forkserver import ForkServer
from tests.support.promises import Facts, require_all_done, require_promises
from tests.support.roles import noted, wait_until


@pytest.mark.req("G-14", "M-09", "M-14")
def test_another_worker_takes_over_after_kill_nine(
    forks: ForkServer, ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    doomed = forks.spawn("tests.support.roles:work", url=ledger_url, lease_s=LEASE_S)
    receipt = ledger.submit("hang", {"started": str(started)})
    wait_until(lambda: noted(started), 20, "the job runs", lambda: forks.log)
    # A worker that is there already and idle, and does nothing but work.
    other = forks.spawn("tests.support.roles:work", url=ledger_url, lease_s=LEASE_S)
    assert doomed.kill() == -9
    done = receipt.wait(30)
    assert (done.state, done.result) == ("succeeded", other.pid)
    assert noted(started) == [f"{doomed.pid} 1", f"{other.pid} 2"]
    other.kill()
    facts = Facts(ledger)
    require_promises(facts)
    require_all_done(facts, jobs=1)
    [first, second] = facts.executions[receipt.job_id]
    assert (first.status, first.error_code, first.excused) == ("ABORTED", "lease_expired", True)
    assert second.status == "DONE"
    assert first.lease_owner != second.lease_owner
