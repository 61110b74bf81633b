"""Pain 7: a worker that boots again under its old name hides the jobs of its former boot."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast import Ledger, Worker
from tests.pains.conftest import LEASE_S
from tests.support.forkserver import ForkServer
from tests.support.promises import Facts, require_all_done, require_promises
from tests.support.roles import noted, wait_until


@pytest.mark.req("M-06", "G-22")
def test_every_boot_has_an_identity_of_its_own(
    forks: ForkServer, ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    # Same host, same code, same ledger, even the same forked memory: only the boot differs.
    workers = [
        forks.spawn("tests.support.roles:work", url=ledger_url, lease_s=LEASE_S, notes=str(notes)) for _ in range(4)
    ]
    wait_until(lambda: len(noted(notes)) == 4, 20, "four workers have booted", lambda: forks.log)
    for worker in workers:
        worker.kill()
    here = [Worker(ledger).worker_id for _ in range(2)]
    assert len({*noted(notes), *here}) == 6


@pytest.mark.req("M-06", "M-09", "G-22")
def test_a_restarted_worker_recovers_the_jobs_of_its_former_boot_at_once(
    forks: ForkServer, ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    started, notes = tmp_path / "started", tmp_path / "notes"
    former = forks.spawn("tests.support.roles:work", url=ledger_url, lease_s=LEASE_S, notes=str(notes))
    receipt = ledger.submit("hang", {"started": str(started)})
    wait_until(lambda: noted(started), 20, "the job runs", lambda: forks.log)
    former.kill()
    [held] = Facts(ledger).executions[receipt.job_id]
    while ledger.store.now() <= held.lease_expires_at:
        time.sleep(0.02)
    reborn = Worker(ledger)
    assert reborn.run(until_idle=True) == 1
    # It did not wait for its reaper, nor take the lease for its own: the recovery at its start found it.
    assert reborn.report is not None
    assert (reborn.report.reopened, reborn.report.job_ids) == (1, (receipt.job_id,))
    facts = Facts(ledger)
    require_promises(facts)
    require_all_done(facts, jobs=1)
    owners = [execution.lease_owner for execution in facts.executions[receipt.job_id]]
    assert owners == [*noted(notes), reborn.worker_id]
    journal = facts.journal["JOB", receipt.job_id]
    assert {row.actor for row in journal if row.event == "expire"} == {reborn.worker_id}
