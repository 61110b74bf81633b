"""The demonstration: work, two workers, a SIGKILL in the middle, and the proof that every effect happened once.

Invariants: everything shown is read back from the ledger, nothing is assumed; it exits 1 if any promise was broken.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from holdfast import Execution, Ledger, Operations, Worker
from holdfast.core.machines import JobState
from holdfast.core.project import project, rulings_of
from holdfast.store.reading import Reading

JOBS = 120
LEASE_S = 1.5
WORK_S = 0.06
GIVE_UP_S = 60.0

operations = Operations()


@operations.operation("demo.invoice", version="1.0.0", lease_s=LEASE_S)
def invoice(run: Execution, number: int) -> dict[str, int]:
    """Bill one order: prepare slowly, stage one row, and leave a follow-up."""
    time.sleep(WORK_S)
    run.effect("INSERT INTO demo_invoices (number) VALUES (:number)", {"number": number}, rows=1)
    if number % 40 == 0:
        run.after_commit(announce.call(number=number))
    return {"number": number}


@operations.operation("demo.announce", version="1.0.0", lease_s=LEASE_S)
def announce(_run: Execution, number: int) -> str:
    """Tell somebody: a job of its own, submitted when the invoice committed."""
    return f"invoice {number} is out"


def main() -> int:
    """Run the demonstration, or one of its workers."""
    parser = argparse.ArgumentParser(description="Holdfast, shown")
    parser.add_argument("--url", default=None, help="the ledger to use; a fresh SQLite file if not given")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        worker = Worker(Ledger(arguments.url, operations), concurrency=4, poll_s=0.2)
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        worker.run()
        return 0
    url = arguments.url or _fresh_file()
    with Ledger(url, operations) as ledger:
        return _show(ledger, url, Console(width=None if sys.stdout.isatty() else 110))


def _fresh_file() -> str:
    folder = Path(".demo")
    folder.mkdir(exist_ok=True)
    for file in folder.glob("ledger.db*"):
        file.unlink()
    return str(folder / "ledger.db")


def _show(ledger: Ledger, url: str, console: Console) -> int:
    with ledger.store.transaction() as transaction:
        transaction.execute("CREATE TABLE demo_invoices (number integer NOT NULL)")
    console.print(f"[bold]1.[/] {JOBS} jobs are recorded before any of them runs.")
    calls = [invoice.call(number=number).keyed("demo", f"order-{number}") for number in range(1, JOBS + 1)]
    receipts = ledger.submit_many(calls)
    again = ledger.submit_many(calls)
    repeats = sum(1 for receipt in again if not receipt.is_new)
    console.print(f"   Submitted again under the same keys: {repeats} of {len(again)} were recognised.")

    first, second = _worker(url), _worker(url)
    console.print(f"[bold]2.[/] Two workers run them: processes {first.pid} and {second.pid}.")
    try:
        _until(ledger, done=JOBS // 4)
        first.send_signal(signal.SIGKILL)
        first.wait()
        console.print(f"[bold]3.[/] Process {first.pid} was killed with SIGKILL in the middle of its work.")
        _until(ledger, done=JOBS + JOBS // 40)
    finally:
        for process in (first, second):
            if process.poll() is None:
                process.terminate()
                process.wait()
    console.print(f"[bold]4.[/] Process {second.pid} took over what the leases gave up, and was asked to stop.\n")
    with ledger.store.reading() as reading:
        return _prove(reading, [receipt.job_id for receipt in receipts], url, console)


def _worker(url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "holdfast.demo", "--work", "--url", url])


def _until(ledger: Ledger, *, done: int) -> None:
    deadline = time.monotonic() + GIVE_UP_S
    while sum(count.n for count in ledger.counts() if count.state is JobState.SUCCEEDED) < done:
        if time.monotonic() > deadline:
            raise SystemExit("the demonstration did not finish; see `holdfast jobs` for where its jobs stand")
        time.sleep(0.02)


def _prove(reading: Reading, job_ids: list[int], url: str, console: Console) -> int:
    [[rows, distinct]] = reading.execute("SELECT count(*), count(DISTINCT number) FROM demo_invoices")
    histories = {job_id: (reading.executions(job_id), reading.journal(job_id)) for job_id in job_ids}
    interrupted = [job_id for job_id, (executions, _) in histories.items() if len(executions) > 1]
    jobs = reading.jobs(job_ids)
    as_projected = sum(
        1 for job in jobs if project(histories[job.job_id][0], rulings_of(histories[job.job_id][1])) is job.state
    )
    facts = [
        ("jobs that succeeded", sum(1 for job in jobs if job.state is JobState.SUCCEEDED), JOBS),
        ("invoices written", rows, JOBS),
        ("different invoices written", distinct, JOBS),
        ("jobs whose state equals their history", as_projected, JOBS),
    ]
    table = Table("what must be true", "found", "expected", title="Every effect happened once")
    for name, found, expected in facts:
        table.add_row(name, f"[{'green' if found == expected else 'red'}]{found}[/]", str(expected))
    console.print(table)
    console.print(f"{len(interrupted)} jobs were interrupted by the kill and run again; none took effect twice.\n")
    if interrupted:
        _tell(reading, interrupted[0], console)
    console.print(f"Look further:  holdfast stats --db {url}   holdfast show {(interrupted or job_ids)[0]} --db {url}")
    return 0 if all(found == expected for _, found, expected in facts) else 1


def _tell(reading: Reading, job_id: int, console: Console) -> None:
    table = Table("at (UTC)", "machine", "attempt", "event", "edge", "by", title=f"The journal of job {job_id}")
    rows = [*reading.journal(job_id), *reading.journal_of_executions(job_id)]
    for row in sorted(rows, key=lambda row: row.seq):
        table.add_row(
            f"{row.at:%H:%M:%S.%f}"[:-3],
            row.machine,
            str(row.attempt),
            row.event,
            f"{row.source or '∅'} → {row.target}",
            row.actor,
        )
    console.print(table)


if __name__ == "__main__":
    # Workers are started as modules, so this module has two names; the operations must be those of the second.
    from holdfast import demo  # noqa: PLW0406 - see above

    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(demo.main())
