"""The promises of a ledger after any crash, checked row by row.

Invariants: the checks do not use the engine: effects, executions, journal and counts are read as rows and compared with
each other; each finding names the promise that is broken and the job.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from holdfast import Ledger
from holdfast.core.journal import JournalRow
from holdfast.core.machines import EXECUTION, JOB, OPEN, ExecutionStatus, JobState
from holdfast.core.project import project, rulings_of
from holdfast.core.records import Execution, Job
from holdfast.store.rows import reader
from holdfast.store.transaction import Reading

EVERYTHING = 1_000_000_000
_read_journal_row = reader(JournalRow)


class Facts:
    """All rows of a ledger and of the table `effects`, from one snapshot."""

    def __init__(self, ledger: Ledger, *, effects: bool = True) -> None:
        with ledger.store.reading() as reading:
            self.jobs: dict[int, Job] = {job.job_id: job for job in reading.lists.jobs(limit=EVERYTHING)}
            self.executions: dict[int, list[Execution]] = defaultdict(list)
            for row in _rows(ledger, reading, Execution, "holdfast_executions", "job_id, attempt"):
                execution = reading.executions._execution(row)
                self.executions[execution.job_id].append(execution)
            self.journal: dict[tuple[str, int], list[JournalRow]] = defaultdict(list)
            for row in _rows(ledger, reading, JournalRow, "holdfast_edges", "machine, subject, version"):
                entry = _read_journal_row(row, reading.store.moment)
                self.journal[entry.machine, entry.subject].append(entry)
            self.effects: dict[int, list[int]] = defaultdict(list)
            if effects:
                for job_id, exec_id in ledger.store.execute(reading.connection, "SELECT job_id, exec_id FROM effects"):
                    self.effects[job_id].append(exec_id)
            self.counts = {(c.operation, c.queue, c.state): c.n for c in reading.counts.current()}
            self.by_key = {(job.client, job.key): job for job in self.jobs.values() if job.key is not None}


def _rows(ledger: Ledger, reading: Reading, record: Any, table: str, order: str) -> list[tuple[Any, ...]]:
    columns = ", ".join(record.__struct_fields__)
    return ledger.store.execute(reading.connection, f"SELECT {columns} FROM {table} ORDER BY {order}")


def require_promises(facts: Facts, *, acknowledged: Iterable[tuple[str, str]] = (), effects: bool = True) -> None:
    """Fail unless every promise holds, for jobs in any state."""
    broken: list[str] = [f"acknowledged but lost: {pair}" for pair in acknowledged if pair not in facts.by_key]
    for job in facts.jobs.values():
        executions = facts.executions[job.job_id]
        broken += [f"job {job.job_id}: {flaw}" for flaw in _flaws_of_attempts(job, executions)]
        broken += [f"job {job.job_id}: {flaw}" for flaw in _flaws_of_journal(facts, job, executions)]
        if effects:
            done = [e.exec_id for e in executions if e.status in (ExecutionStatus.COMMITTED, ExecutionStatus.DONE)]
            if facts.effects[job.job_id] != done:
                broken.append(f"job {job.job_id}: effects of {facts.effects[job.job_id]}, but {done} committed")
    if effects and facts.effects.keys() - facts.jobs.keys():
        broken.append(f"effects of no job: {sorted(facts.effects.keys() - facts.jobs.keys())}")
    real = Counter((job.operation, job.queue, job.state) for job in facts.jobs.values())
    if facts.counts != dict(real):
        broken.append(f"counts {facts.counts} but the jobs have {dict(real)}")
    assert not broken, f"{len(broken)} promises broken:\n" + "\n".join(broken[:20])


def require_all_done(facts: Facts, *, jobs: int) -> None:
    """Fail unless there are this many jobs, each succeeded with one effect, and no execution is open."""
    states = Counter(job.state.value for job in facts.jobs.values())
    assert states == {"succeeded": jobs}, f"states are {dict(states)}"
    still_open = [e.exec_id for executions in facts.executions.values() for e in executions if e.status in OPEN]
    assert still_open == []
    twice = {job_id: rows for job_id, rows in facts.effects.items() if len(rows) != 1}
    assert twice == {}
    assert facts.effects.keys() == facts.jobs.keys()


def _flaws_of_attempts(job: Job, executions: list[Execution]) -> list[str]:
    flaws = []
    if [e.attempt for e in executions] != list(range(1, job.attempts + 1)):
        flaws.append(f"{job.attempts} attempts, but executions {[e.attempt for e in executions]}")
    if job.excused != sum(e.excused for e in executions):
        flaws.append(f"{job.excused} excused, but executions say {[e.excused for e in executions]}")
    tokens = [e.lease_token for e in executions]
    if tokens != sorted(set(tokens)):
        flaws.append(f"tokens do not grow: {tokens}")
    early = [e.status.value for e in executions[:-1] if e.status is not ExecutionStatus.ABORTED]
    if early:
        flaws.append(f"an attempt before the last is {early}")
    if job.state is JobState.SUCCEEDED and (not executions or executions[-1].status is not ExecutionStatus.DONE):
        flaws.append("succeeded without a finished execution")
    return flaws


def _flaws_of_journal(facts: Facts, job: Job, executions: list[Execution]) -> list[str]:
    journal = facts.journal[JOB.name, job.job_id]
    flaws = _gaps(journal, job.version, job.state.value)
    for execution in executions:
        rows = facts.journal[EXECUTION.name, execution.exec_id]
        flaws += [
            f"execution {execution.exec_id}: {gap}" for gap in _gaps(rows, execution.version, execution.status.value)
        ]
    projected = project(executions, rulings_of(journal))
    if job.state is not projected:
        flaws.append(f"is {job.state.value}, but its executions and rulings say {projected.value}")
    return flaws


def _gaps(rows: list[JournalRow], version: int, state: str) -> list[str]:
    flaws = []
    if [row.version for row in rows] != list(range(1, version + 1)):
        flaws.append(f"version {version}, but the journal has {[row.version for row in rows]}")
    path = [None, *(row.target for row in rows)]
    if [row.source for row in rows] != path[:-1] or path[-1] != state:
        flaws.append(f"the journal does not lead to {state}: {[(row.source, row.target) for row in rows]}")
    return flaws
