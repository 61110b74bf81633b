"""What a replay records, and the report that is read back from it.

A run is a row of the procedures, with its terms; its candidates are evidence of that run; its steps are its beginning
and its batches.

Invariants: a report is a function of the record, however often the run was interrupted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.core.candidates import packed, unpacked
from holdfast.core.digest import canonical
from holdfast.core.errors import InputError, RecordNotFoundError, StoreDamagedError
from holdfast.core.governed import PerformedStep, ProcedureRun
from holdfast.core.machines import JobState, ProcedureState
from holdfast.core.selection import ReplayMode, Selection, candidates_hash
from holdfast.governance.acts import stored_text
from holdfast.governance.replay.guards import PROCEDURE, ReplayPolicy, ReplayScope, batches

if TYPE_CHECKING:
    from holdfast.store.transaction import Reading

BEGIN = "begin"  # the step numbered 0; each other is the batch of its number
CANDIDATES = "candidates"
STEPS_A_PAGE = 100
RECENT_BATCHES = 5
T = TypeVar("T")


class ReplayTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of a run, fixed when it begins."""

    selection: Selection
    selection_hash: str
    candidates_hash: str
    total: int
    batch_size: int
    replay_reason: str
    policy: ReplayPolicy
    queues: tuple[str, ...]
    operations: tuple[str, ...]
    actor: str
    reason: str
    passed_over: dict[str, int] = {}  # jobs that matched and are no candidates, by reason

    @property
    def text(self) -> str:
        """Return the terms as they are stored: canonical JSON."""
        return stored_text(self)

    @property
    def batches(self) -> int:
        """Return how many batches the run has."""
        return batches(self.total, self.batch_size)

    @property
    def scope(self) -> ReplayScope:
        """Return the queues and operations that the run touches."""
        return ReplayScope(self.queues, self.operations, self.selection.options.respect_kill_switch)


class BatchOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one batch: the jobs by id, and counts for telemetry."""

    replayed: list[int] = []
    replaced: dict[int, int] = {}  # the new job by the old one
    skipped: dict[str, list[int]] = {}
    queues: dict[str, int] = {}
    errors: dict[str, int] = {}
    throttled: dict[str, int] = {}

    @property
    def records(self) -> int:
        """Return how many jobs were replayed or replaced."""
        return len(self.replayed) + len(self.replaced)


class BatchJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of the jobs of one batch, with who made it and when."""

    number: int
    at: datetime
    actor: str
    replayed: list[int]
    replaced: dict[int, int]  # the new job by the old one
    skipped: dict[str, list[int]]


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run, and what it did."""

    run_id: str
    state: str
    stop_reason: str | None
    failure: str | None  # the stop as a message
    mode: ReplayMode
    replayed: int
    passed_over: dict[str, int]  # jobs that matched and are no candidates, by reason
    skipped: dict[str, int]  # candidates that a batch skipped, by reason
    throttled: dict[str, int]  # how often a batch waited, by measure
    batches: int
    batches_planned: int
    total: int
    candidates_hash: str
    selection_hash: str
    selection: Selection
    environment: str
    grant_id: int | None
    actor: str
    reason: str
    replay_reason: str
    began_at: datetime
    updated_at: datetime
    touched: list[BatchJobs] = []
    mismatched: list[tuple[int, int]] = []  # of `touched`: replaced by the same version, with another result

    @property
    def done(self) -> bool:
        return self.state == ProcedureState.DONE


class Progress:
    """The progress of a run: the sum of its batches."""

    def __init__(self) -> None:
        self.replayed = 0
        self.batches = 0
        self.skipped: Counter[str] = Counter()
        self.throttled: Counter[str] = Counter()
        self.last_at: datetime | None = None
        self.last_records = 0
        self.recent: deque[BatchOutcome] = deque(maxlen=RECENT_BATCHES)

    def add(self, outcome: BatchOutcome, at: datetime) -> None:
        """Count one more batch."""
        self.replayed += outcome.records
        self.batches += 1
        self.skipped.update({reason: len(ids) for reason, ids in outcome.skipped.items()})
        self.throttled.update(outcome.throttled)
        self.last_at, self.last_records = at, outcome.records
        self.recent.append(outcome)


def candidates_text(job_ids: list[int], versions: list[int]) -> str:
    """Return candidates as they are stored in evidence."""
    return canonical(packed(job_ids, versions))


# ---------------------------------------------------------------------------------------------------------------------
# Reading back


def run_known(reading: Reading, run_id: str) -> ProcedureRun:
    """Return the record of a replay, or raise RecordNotFoundError or InputError."""
    run = reading.runs.get(run_id)
    if run is None:
        raise RecordNotFoundError(
            f"there is no replay {run_id}",
            next_step="List the replays: `holdfast procedure list --procedure replay`.",
            context={"run_id": run_id},
        )
    if run.procedure != PROCEDURE:
        raise InputError(f"{run_id} is a run of procedure {run.procedure}, not a replay", context={"run_id": run_id})
    return run


def terms_of(run: ProcedureRun) -> ReplayTerms:
    """Return the terms of a run, or raise StoreDamagedError."""
    return read_back(run.params, ReplayTerms, f"the terms of replay {run.idempotency_root}")


def candidates_of(reading: Reading, run: ProcedureRun, terms: ReplayTerms) -> tuple[list[int], list[int]]:
    """Return the candidates of a run: their ids, and the version of each."""
    for evidence in reading.runs.evidence(run.run_id):
        if evidence.kind == CANDIDATES:
            job_ids, versions = unpacked(evidence.content)
            if candidates_hash(job_ids) == terms.candidates_hash:
                return job_ids, versions
    raise StoreDamagedError(f"the stored candidates of replay {run.idempotency_root} do not match its hash")


def progress_of(reading: Reading, run: ProcedureRun) -> Progress:
    progress = Progress()
    for step in batch_steps(reading, run):
        progress.add(_outcome(step), step.created_at)
    return progress


def report_of(reading: Reading, run_id: str) -> ReplayReport:
    run = run_known(reading, run_id)
    terms, progress = terms_of(run), progress_of(reading, run)
    return ReplayReport(
        run_id=run_id,
        state=str(run.state),
        stop_reason=run.stop_state,
        failure=run.failure,
        mode=terms.selection.mode,
        replayed=progress.replayed,
        passed_over=terms.passed_over,
        skipped=dict(sorted(progress.skipped.items())),
        throttled=dict(sorted(progress.throttled.items())),
        batches=progress.batches,
        batches_planned=terms.batches,
        total=terms.total,
        candidates_hash=terms.candidates_hash,
        selection_hash=terms.selection_hash,
        selection=terms.selection,
        environment=terms.policy.environment,
        grant_id=run.grant_id,
        actor=terms.actor,
        reason=terms.reason,
        replay_reason=terms.replay_reason,
        began_at=run.created_at,
        updated_at=run.updated_at,
    )


def with_touched(reading: Reading, report: ReplayReport, *, after: int, limit: int) -> ReplayReport:
    """Return a report with the jobs of its batches above the number `after`, of at most `limit` batches."""
    run = run_known(reading, report.run_id)
    touched: list[BatchJobs] = []
    for step in batch_steps(reading, run):
        if step.number > after and len(touched) < limit:
            outcome = _outcome(step)
            touched.append(
                BatchJobs(
                    number=step.number,
                    at=step.created_at,
                    actor=step.actor,
                    replayed=outcome.replayed,
                    replaced=outcome.replaced,
                    skipped=outcome.skipped,
                )
            )
    pairs = {old: new for batch in touched for old, new in batch.replaced.items()}
    return msgspec.structs.replace(report, touched=touched, mismatched=_mismatched(reading, pairs))


def _mismatched(reading: Reading, pairs: dict[int, int]) -> list[tuple[int, int]]:
    """Return the pairs of jobs that the same version of their operation ran with different results."""
    jobs = {job.job_id: job for job in reading.jobs.get_many([*pairs, *pairs.values()])}
    return [
        (old, new)
        for old, new in sorted(pairs.items())
        if jobs[old].state is jobs[new].state is JobState.SUCCEEDED
        and jobs[old].operation_version == jobs[new].operation_version
        and jobs[old].result is not None
        and jobs[new].result is not None
        and jobs[old].result != jobs[new].result
    ]


def batch_steps(reading: Reading, run: ProcedureRun) -> Iterator[PerformedStep]:
    """Yield the records of the batches of a run."""
    last = 0
    while page := reading.runs.steps(run.run_id, after=last, limit=STEPS_A_PAGE):
        yield from (step for step in page if step.name != BEGIN)
        last = page[-1].step_id


def _outcome(step: PerformedStep) -> BatchOutcome:
    return read_back(step.outcome, BatchOutcome, f"the outcome of batch {step.number} of a replay")


def read_back(text: str, kind: type[T], what: str) -> T:
    """Return what a run has stored, or raise StoreDamagedError."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise StoreDamagedError(f"{what} cannot be read: {error}") from None
