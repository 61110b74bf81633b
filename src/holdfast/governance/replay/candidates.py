"""The candidates of a replay: the jobs that match a selection and can be replayed.

Invariants: the same selection on an unchanged ledger gives the same candidates, by ascending id; a job is skipped for
one reason, and counted under it; memory grows with the candidates, not with the ledger.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.decide import CANCELLED
from holdfast.core.machines import JobState
from holdfast.core.protocol import ranked
from holdfast.core.records import Job
from holdfast.core.selection import Limits, ReplayMode, Selection, candidates_hash, matches
from holdfast.core.vocabulary import BUILT_IN

if TYPE_CHECKING:
    from holdfast.governance.replay.guards import ReplayPolicy
    from holdfast.store.transaction import Reading

PAGE = 1000
NO_ERROR = "none"


class Skip(StrEnum):
    """Why a job that matches the selection is not replayed."""

    ATTEMPTS_EXCEEDED = "attempts_exceeded"  # it has used all its attempts and replays
    REPLAY_HIT = "replay_hit"  # it succeeded with the same version of its operation
    STATE_CHANGED = "state_changed"  # it is pending or running, or has changed since it was selected
    CONFLICT = "conflict"  # another transaction moved it at the same moment
    QUARANTINED = "quarantined"  # it needs a release, not a replay
    NOT_REPLACEABLE = "not_replaceable"  # it failed: replay it, do not replace it
    ALREADY_REPLACED = "already_replaced"
    CANCELLED = "cancelled"  # it was cancelled
    SLIMMED = "slimmed"  # retention has deleted its payload
    NOT_IN_FORCE = "not_in_force"  # no version of its operation accepts new jobs
    VERSION_DOWNGRADE = "version_downgrade"  # a lower version of its operation than its own would run it
    POLICY = "policy"  # the policy excludes its queue or its error


class Candidates(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that a selection would replay now, and the counts of the jobs that it skips."""

    job_ids: list[int]  # ascending
    versions: list[int]  # of each job, when it was selected
    hash: str
    total: int
    more: bool  # more jobs match, beyond the limits of the selection
    skipped: dict[str, int]  # by reason
    by_queue: dict[str, int]
    by_operation: dict[str, int]
    by_error: dict[str, int]
    examples: list[Job]


class ReplayRules(msgspec.Struct, frozen=True):
    """The rules that decide whether one job can be replayed."""

    mode: ReplayMode
    policy: ReplayPolicy
    version_of: Callable[[str], str | None]  # of an operation: the version that runs new jobs

    def skip(self, job: Job, *, replaced: bool = False) -> Skip | None:
        """Return why a job cannot be replayed, or None if it can."""
        if job.state in (JobState.PENDING, JobState.RUNNING):
            return Skip.STATE_CHANGED
        refused = self._of_replacing(job, replaced) if self.replaces else self._of_replaying(job)
        if refused is not None:
            return refused
        if job.queue in self.policy.never_queues or job.last_error_code in self.policy.never_errors:
            return Skip.POLICY
        now = self.version_of(job.operation)
        if now is not None and is_lower(now, job.operation_version) and not self.policy.allow_downgrade:
            return Skip.VERSION_DOWNGRADE
        return None

    @property
    def replaces(self) -> bool:
        """Return whether the mode makes new jobs instead of moving the old ones."""
        return self.mode is ReplayMode.REPAIR_AND_REPLACE

    def _of_replaying(self, job: Job) -> Skip | None:
        if job.state is JobState.SUCCEEDED:
            return Skip.REPLAY_HIT
        if not job.may_replay:
            return Skip.ATTEMPTS_EXCEEDED
        return Skip.QUARANTINED if job.state is JobState.QUARANTINED else None

    def _of_replacing(self, job: Job, replaced: bool) -> Skip | None:  # noqa: FBT001 - one of its two inputs
        if job.state is JobState.FAILED:
            return Skip.NOT_REPLACEABLE
        if replaced:
            return Skip.ALREADY_REPLACED
        if job.quarantine_code == CANCELLED:
            return Skip.CANCELLED
        if job.slimmed:
            return Skip.SLIMMED
        now = self.version_of(job.operation)
        if now is None:
            return Skip.NOT_IN_FORCE
        same = now == job.operation_version and not self.policy.allow_same_version
        return Skip.REPLAY_HIT if same and job.state is JobState.SUCCEEDED else None


def rules_of(reading: Reading, mode: ReplayMode, policy: ReplayPolicy) -> ReplayRules:
    """Return the rules of a mode on this ledger. In a governed ledger the registry says which versions are in force."""
    declared = reading.operations.declared()

    @cache
    def version_of(operation: str) -> str | None:
        if reading.governed and operation != BUILT_IN:
            return reading.registry.operation_in_force(operation)
        return declared[operation].version if operation in declared else None

    return ReplayRules(mode, policy, version_of)


def is_lower(version: str, than: str) -> bool:
    """Return whether a version is lower than another; versions that are not SemVer are not compared."""
    ours, theirs = ranked(version), ranked(than)
    return ours is not None and theirs is not None and ours < theirs


# ---------------------------------------------------------------------------------------------------------------------
# Finding


def find(
    reading: Reading,
    selection: Selection,
    policy: ReplayPolicy,
    *,
    limits: Limits | None = None,
    ceiling: int | None = None,
    examples: int = 0,
) -> Candidates:
    """Return the candidates of a selection, within its limits, and at most one more than `ceiling`."""
    most = most_records(limits or selection.limits, policy)
    rules = rules_of(reading, selection.mode, policy)
    ids: list[int] = []
    versions: list[int] = []
    shown: list[Job] = []
    skipped: Counter[str] = Counter()
    counts: tuple[Counter[str], Counter[str], Counter[str]] = Counter(), Counter(), Counter()
    more = False
    for job, reason in _judged(reading, selection, rules):
        if most is not None and len(ids) >= most:
            more = reason is None
            if more:
                break
            continue
        if reason is not None:
            skipped[reason] += 1
            continue
        ids.append(job.job_id)
        versions.append(job.version)
        for counter, name in zip(counts, (job.queue, job.operation, job.last_error_code or NO_ERROR), strict=True):
            counter[name] += 1
        if len(shown) < examples:
            shown.append(job)
        if ceiling is not None and len(ids) > ceiling:
            break
    by_queue, by_operation, by_error = (dict(sorted(counter.items())) for counter in counts)
    return Candidates(
        job_ids=ids,
        versions=versions,
        hash=candidates_hash(ids),
        total=len(ids),
        more=more,
        skipped=dict(sorted(skipped.items())),
        by_queue=by_queue,
        by_operation=by_operation,
        by_error=by_error,
        examples=shown,
    )


def most_records(limits: Limits, policy: ReplayPolicy) -> int | None:
    """Return the limits of a selection as a number of jobs, or None if it has no limits."""
    size = limits.batch_size or policy.batch_size
    bounds = [limits.max_records, None if limits.max_batches is None else limits.max_batches * size]
    return min((bound for bound in bounds if bound is not None), default=None)


def _judged(reading: Reading, selection: Selection, rules: ReplayRules) -> Iterator[tuple[Job, Skip | None]]:
    """Yield every job that matches a selection, by ascending id, and why it is skipped."""
    walks = [_walk(reading, selection, state) for state in dict.fromkeys(selection.filters.status)]
    found = (job for job in heapq.merge(*walks, key=lambda job: job.job_id) if matches(selection, job))
    while page := list(islice(found, PAGE)):
        replaced = reading.replay.replaced_by([job.job_id for job in page]) if rules.replaces else {}
        for job in page:
            yield job, rules.skip(job, replaced=job.job_id in replaced)


def _walk(reading: Reading, selection: Selection, state: JobState) -> Iterator[Job]:
    filters, last = selection.filters, 0
    while page := reading.replay.jobs_after(
        last, state, queues=filters.queues, operations=filters.operations, limit=PAGE
    ):
        yield from page
        last = page[-1].job_id
