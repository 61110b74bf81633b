"""The invariants and the integrity check of G, as queries over the ledger's tables.

Invariants: each answer comes from one snapshot; states and attempts are compared with the journal, which no client can
write, as far back as it reaches; checking changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.compat.jobs import CLIENT, QUEUE, JobPriority
from holdfast.compat.states import JobStatus
from holdfast.core.errors import JobNotFoundError
from holdfast.core.machines import JOB, OPEN

if TYPE_CHECKING:
    from holdfast.compat.base_queue import JobQueue

SHOWN_MAX = 10


class Orchestrator(Protocol):
    """An object that runs the jobs of a queue and keeps those in work in a map by job id."""

    @property
    def _job_queue(self) -> JobQueue: ...

    @property
    def _active_jobs_map(self) -> Mapping[str, object]: ...


class StateMachineInvariants:
    """Conditions that hold for the jobs of a queue at every moment."""

    @staticmethod
    def check_job_in_single_state(job_id: str, queue: JobQueue) -> bool:
        """Return whether the job's row, its journal and its executions agree on one state."""
        if not _jobs(queue, "1 = 1", job_id):
            raise JobNotFoundError(f"Job {job_id} not found", context={"job_id": job_id})
        return not _in_many_states(queue, job_id)

    @staticmethod
    def check_running_jobs_have_workers(orchestrator: Orchestrator) -> bool:
        """Return whether every running job is in the orchestrator's map."""
        queue = orchestrator._job_queue  # noqa: SLF001 - the source names it so
        running = _jobs(queue, f"j.state = '{JobStatus.RUNNING}'")
        active = orchestrator._active_jobs_map  # noqa: SLF001 - the same
        return all(job_id in active for job_id in running)

    @staticmethod
    def check_succeeded_jobs_immutable(queue: JobQueue) -> bool:
        """Return whether every job that succeeded is unchanged since then."""
        return not _changed_after_success(queue)

    @staticmethod
    def check_attempts_monotonic(queue: JobQueue) -> bool:
        """Return whether the attempts of every job have only increased."""
        return not _with_fewer_attempts(queue)

    @staticmethod
    def check_invariants(orchestrator: Orchestrator) -> list[str]:
        """Return the violated invariants. It never raises: a check that fails is reported as a violation."""

        def workers() -> list[str]:
            if StateMachineInvariants.check_running_jobs_have_workers(orchestrator):
                return []
            return ["RUNNING jobs without active workers detected"]

        def jobs(what: str, found: Callable[[JobQueue], list[str]]) -> Callable[[], list[str]]:
            def check() -> list[str]:
                job_ids = found(orchestrator._job_queue)  # noqa: SLF001 - the same
                return [f"{what} detected: {_listed(job_ids)}"] if job_ids else []

            return check

        violations: list[str] = []
        for check in (
            jobs("Jobs in more or less than one state", _in_many_states),
            workers,
            jobs("SUCCEEDED jobs that changed", _changed_after_success),
            jobs("Jobs whose attempts did not only grow", _with_fewer_attempts),
        ):
            try:
                violations += check()
            except Exception as error:  # noqa: BLE001 - a check that fails must not hide what the others find
                violations.append(f"Invariant check failed: {error}")
        return violations


def validate_database_integrity(queue: JobQueue) -> list[str]:
    """Return what is wrong with the rows of a queue's jobs; writes through the ledger leave nothing wrong."""
    issues = []
    bad_rows = _bad_rows()
    with queue.store.reading() as reading:
        twice = reading.execute(f"SELECT c.key {_OF_QUEUE} GROUP BY c.key HAVING count(*) > 1 ORDER BY c.key")
        if twice:
            issues.append(f"Duplicate job IDs: {_listed(twice)}")
        # One pass over the rows counts the bad ones; only if there are some does a second pass name them.
        flags = ", ".join(f"count(CASE WHEN {bad} THEN 1 END)" for _, _, bad in bad_rows)
        [counts] = reading.execute(f"SELECT {flags} {_OF_QUEUE}")
        for n, (what, shown, bad) in zip(counts, bad_rows, strict=True):
            if n:
                rows = reading.execute(f"SELECT c.key, {shown} {_OF_QUEUE} AND ({bad}) ORDER BY j.job_id")
                issues.append(f"{what}: {_listed(rows)}")
    return issues


def _bad_rows() -> tuple[tuple[str, str, str], ...]:
    """Return what can be wrong with a row: a title, the column to show, and the condition."""
    # Where the schema says NOT NULL, a plain `IS NULL` is false without a look at the row.
    required = " OR ".join(f"coalesce({column}, NULL) IS NULL" for column in _REQUIRED)
    # Retention drops the payload of a job that has ended, and of no other.
    without_payload = f"(c.payload IS NULL AND j.state NOT IN ({_texts(JOB.final)}))"
    lowest, highest = min(JobPriority), max(JobPriority)
    return (
        ("Invalid statuses", "j.state", f"j.state NOT IN ({_texts(JobStatus)})"),
        ("Negative attempts", "j.attempts", "j.attempts < 0"),
        ("NULL in required fields", "j.job_id", f"{required} OR {without_payload}"),
        ("Priorities out of range", "j.priority", f"j.priority NOT BETWEEN {lowest} AND {highest}"),
    )


def _texts(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


_OF_QUEUE = (
    "FROM holdfast_jobs j JOIN holdfast_calls c ON c.job_id = j.job_id"
    f" WHERE c.client = '{CLIENT}' AND j.queue = '{QUEUE}'"
)
_JOURNAL = "FROM holdfast_journal g WHERE g.machine = 'JOB' AND g.subject = j.job_id"
_REQUIRED = (
    "j.operation", "c.key", "j.state", "j.attempts", "j.priority", "j.run_at", "c.created_at", "j.updated_at",
    "c.digest",
)  # fmt: skip


def _in_many_states(queue: JobQueue, job_id: str | None = None) -> list[str]:
    journalled = f"SELECT 1 {_JOURNAL} AND g.version = j.version AND g.target = j.state"
    held = f"coalesce(j.status, '') IN ({_texts(OPEN)})"
    twin = "SELECT 1 FROM holdfast_calls o WHERE o.client = c.client AND o.key = c.key AND o.job_id <> c.job_id"
    return _jobs(
        queue,
        f"j.state NOT IN ({_texts(JobStatus)}) OR (j.history_from <= j.version AND NOT EXISTS ({journalled}))"
        f" OR ({held}) <> (j.state = '{JobStatus.RUNNING}') OR EXISTS ({twin})",
        job_id,
    )


def _changed_after_success(queue: JobQueue) -> list[str]:
    done = JobStatus.SUCCEEDED
    left = f"g.source = '{done}'"
    moved = f"g.target = '{done}' AND (j.state <> '{done}' OR j.version <> g.version OR j.updated_at <> g.at)"
    return _jobs(queue, f"EXISTS (SELECT 1 {_JOURNAL} AND ({left} OR ({moved})))")


def _with_fewer_attempts(queue: JobQueue) -> list[str]:
    later = "SELECT 1 FROM holdfast_journal l WHERE l.machine = g.machine AND l.subject = g.subject"
    fewer = f"EXISTS ({later} AND l.version > g.version AND l.attempt < g.attempt)"
    now = "g.attempt > j.attempts OR (g.version = j.version AND g.attempt <> j.attempts)"
    return _jobs(queue, f"EXISTS (SELECT 1 {_JOURNAL} AND ({now} OR {fewer}))")


def _jobs(queue: JobQueue, condition: str, job_id: str | None = None) -> list[str]:
    """Return the ids of the queue's jobs, or of the one given, for which a condition is true."""
    one, given = ("", {}) if job_id is None else (" AND c.key = :job_id", {"job_id": job_id})
    with queue.store.reading() as reading:
        _, rows = reading.query(f"SELECT c.key {_OF_QUEUE}{one} AND ({condition}) ORDER BY j.job_id", given)
    return [str(key) for (key,) in rows]


def _listed(found: list[Any]) -> str:
    shown = ", ".join(str(each if isinstance(each, str) or len(each) > 1 else each[0]) for each in found[:SHOWN_MAX])
    return shown if len(found) <= SHOWN_MAX else f"{shown} and {len(found) - SHOWN_MAX} more"
