"""The memory of a worker whose payloads are large: attempts claimed ahead do not count."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from holdfast import Ledger
from holdfast.core.machines import JobState

BLOB = "x" * 900_000
RESIDENT_MB = 140  # of a worker 45, and for each of 4 slots and each end to be written some copies of one payload
WORKER = """
import sys
from holdfast import Execution, Ledger, Worker

ledger = Ledger(sys.argv[1])

@ledger.operation("measure")
def measure(run: Execution, blob: str) -> int:
    return len(blob)

worker = Worker(ledger, concurrency=4)
made = worker.run(until_idle=True)
ledger.close()
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(made, int(status["VmHWM"].split()[0]) // 1024)
"""


@pytest.mark.parametrize("n", [60, pytest.param(600, marks=pytest.mark.slow)])
def test_a_worker_holds_the_large_payloads_of_its_slots_only(ledger_url: str, n: int) -> None:
    with Ledger(ledger_url) as ledger:

        @ledger.operation("measure")
        def measure(run: object, blob: str) -> int:
            return len(blob)

        small = [measure.call(blob="")] * 200  # quick ones first: they let a worker claim far ahead
        ledger.submit_many(small)
        for _ in range(n // 20):
            ledger.submit_many([measure.call(blob=BLOB)] * 20)
        done = subprocess.run(
            [sys.executable, "-c", WORKER, ledger_url],
            capture_output=True, text=True, timeout=300, check=True, env=os.environ,
        )  # fmt: skip
        made, peak_mb = map(int, done.stdout.split())
        assert made >= n + len(small)  # what no slot took in time was given back
        assert [(count.state, count.n) for count in ledger.counts()] == [(JobState.SUCCEEDED, n + len(small))]
        assert peak_mb < RESIDENT_MB
