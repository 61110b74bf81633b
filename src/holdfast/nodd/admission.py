"""Admission: turns messages into units of work, in one transaction of the ledger.

Invariants: after its transaction has committed, every notice of a message has a fate: it is a unit, a duplicate, an
older write, a sidecar or ignored, or the body is stored as rejected; the same message again changes only counts; a
later write to an object has a unit of its own, and the unit of the earlier write can no longer commit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core.commands import Quarantine, Replay
from holdfast.core.decide import Answer, Move, Refused
from holdfast.core.digest import canonical, sha256
from holdfast.core.errors import IdempotencyConflictError
from holdfast.core.machines import JobState
from holdfast.core.records import MAX_ATTEMPTS, REPLAY_ATTEMPTS, Job, time_text
from holdfast.core.selection import ReplayReason
from holdfast.engine.events import Bus, Transition, of_move
from holdfast.governance.reasons import Reason, declare
from holdfast.nodd.dataset import Datasets
from holdfast.nodd.notices import IgnoredRecord, Notice, ParsedMessage, RejectedRecord, is_later, parse
from holdfast.nodd.reasons import REASONS
from holdfast.nodd.replays import ANNOUNCED_AGAIN
from holdfast.nodd.signatures import Signatures
from holdfast.nodd.statements import run_statement
from holdfast.nodd.units import CLIENT, OPERATION, Fate, Unit, unit_of
from holdfast.store import Declared, Store, Submission
from holdfast.store.statements import encoded
from holdfast.store.transaction import Transaction

declare(REASONS)

SUPERSEDED = Reason.SUPERSEDED.value
TRIES = 3
SHAPE_MAX = 200
_DIGITS = re.compile(r"\d+")
DECLARED = Declared(version="1.0.0", max_attempts=MAX_ATTEMPTS, replay_attempts=REPLAY_ATTEMPTS)
INCIDENT, BACKFILL = ReplayReason.INCIDENT.value, ReplayReason.BACKFILL.value
PRIORITIES = {"high": 1, "normal": 0, "low": -1}


class FeedMessage(msgspec.Struct, frozen=True):
    """A message from a queue, a file or the command line."""

    body: str
    message_id: str | None = None


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of a notice, or of a message without notices."""

    fate: Fate
    dataset: str | None = None
    object_uri: str | None = None
    wal_id: str | None = None
    reason: str | None = None
    message_id: str | None = None


def admit_notices(
    store: Store[Any], notices: Sequence[Notice], datasets: Datasets, *, actor: str = "nodd"
) -> list[Admitted]:
    """Admit notices that come from a listing of a bucket; return the fate of each."""
    with store.transaction() as transaction:
        return _Admission(transaction, actor, datasets, listed=True).admit(
            [(FeedMessage(""), ParsedMessage(tuple(notices)))]
        )


class _Known(msgspec.Struct, frozen=True):
    """The latest known generation of an object."""

    source_uri: str
    time_range_start: str
    wal_id: str
    job_id: int
    generation: int
    etag: str | None
    sequencer: str | None
    size: int | None


_Source = tuple[str, str]  # (source_uri, time_range_start)


def admit(
    store: Store[Any],
    messages: Sequence[FeedMessage],
    datasets: Datasets,
    *,
    actor: str = "nodd",
    bus: Bus | None = None,
    signatures: Signatures | None = None,
) -> list[Admitted]:
    """Admit messages in one transaction; return the fate of each notice, in order.

    Transitions of jobs that existed before are published on the bus. With `signatures`, messages without a valid
    signature of SNS are rejected. Raises IdempotencyConflictError after three conflicts with other pollers.
    """
    read = [(message, _read(message, datasets, signatures)) for message in messages]
    for last_try in (*(False,) * (TRIES - 1), True):
        try:
            with store.transaction() as transaction:
                admission = _Admission(transaction, actor, datasets)
                found = admission.admit(read)
        except IdempotencyConflictError:
            # Another poller admitted the same object at the same time; the next try finds it as known.
            if last_try:
                raise
        else:
            if bus is not None and bus.listening:
                bus.publish(admission.transitions())
            return found
    return []


def _read(message: FeedMessage, datasets: Datasets, signatures: Signatures | None) -> ParsedMessage:
    problem = signatures.problem_of(message.body) if signatures is not None else None
    if problem is not None:
        return ParsedMessage(rejected=(RejectedRecord(problem.code, problem.message),))
    return parse(message.body, datasets, sqs_message_id=message.message_id)


def superseded_by(wal_id: str, job_id: int) -> str:
    """Return the message for a unit whose object was written again."""
    return f"superseded by a later write of the object: job {job_id}, record {wal_id}"


class _Admission:
    """The admission of messages in one transaction."""

    def __init__(self, transaction: Transaction, actor: str, datasets: Datasets, *, listed: bool = False) -> None:
        self._transaction = transaction
        self._datasets = datasets
        self._actor = actor
        self._listed = listed  # a listing shows the current write, so it is never older than a known one
        self._overtaken: list[Notice] = []  # superseded by a later write in the same batch
        self._etags: dict[_Source, set[str | None]] = {}  # of all known generations of an object
        self._at = transaction.now()
        self._now = time_text(self._at)
        self._moved: list[tuple[Job, Answer]] = []

    def admit(self, read: Sequence[tuple[FeedMessage, ParsedMessage]]) -> list[Admitted]:
        notices = [(message, notice) for message, parsed in read for notice in parsed.notices]
        units = [(message, notice) for message, notice in notices if notice.sidecar_of is None]
        known = self._latest({_source(notice) for _, notice in units})
        jobs = {
            job.job_id: job
            for job in self._transaction.jobs.get_many(sorted({found.job_id for found in known.values()}))
        }
        fates: dict[int, Admitted] = {}
        fresh: dict[_Source, tuple[Unit, FeedMessage]] = {}
        for message, notice in units:
            fates[id(notice)] = self._judge(message, notice, known, jobs, fresh)
        for notice in self._overtaken:
            later = "a later write is in the same batch"
            fates[id(notice)] = msgspec.structs.replace(fates[id(notice)], fate=Fate.SUPERSEDED, reason=later)
        self._write_units(fresh, known, jobs)
        self._keep_sidecars([notice for _, notice in notices if notice.sidecar_of is not None])
        self._keep_rejected([(message, parsed) for message, parsed in read if parsed.rejected])
        self._keep_ignored([ignored for _, parsed in read for ignored in parsed.ignored])
        answer = [fate for message, parsed in read for fate in self._fates(message, parsed, fates)]
        self._count(answer)
        return answer

    def transitions(self) -> list[Transition]:
        """Return the transitions of jobs that existed before this admission."""
        moves = [(job, answer) for job, answer in self._moved if isinstance(answer, Move)]
        return [event for job, move in moves for event in of_move(job, move, self._at, actor=self._actor)]

    def _fates(self, message: FeedMessage, parsed: ParsedMessage, fates: Mapping[int, Admitted]) -> Iterable[Admitted]:
        for notice in parsed.notices:
            if notice.sidecar_of is None:
                yield fates[id(notice)]
            else:
                yield _admitted(Fate.SIDECAR, notice, message, reason=f"sidecar of {notice.sidecar_of}", wal_id=None)
        for ignored in parsed.ignored:
            yield Admitted(
                fate=Fate.IGNORED,
                object_uri=ignored.subject or None,
                reason=ignored.reason,
                message_id=message.message_id,
            )
        for rejected in parsed.rejected:
            yield Admitted(
                fate=Fate.REJECTED, reason=f"{rejected.code}: {rejected.message}", message_id=message.message_id
            )

    # -- judging ------------------------------------------------------------------------------------------------------

    def _judge(
        self,
        message: FeedMessage,
        notice: Notice,
        known: Mapping[_Source, _Known],
        jobs: Mapping[int, Job],
        fresh: dict[_Source, tuple[Unit, FeedMessage]],
    ) -> Admitted:
        source = _source(notice)
        waiting = fresh.get(source)
        if waiting is not None:
            return self._again(message, notice, waiting[0], known.get(source), fresh)
        before = known.get(source)
        if before is None:
            unit = unit_of(notice)
        elif self._is_later(notice, before.sequencer, before.etag):
            unit = unit_of(notice, generation=before.generation + 1, supersedes=before.wal_id)
        else:
            return self._seen(message, notice, before, jobs[before.job_id])
        fresh[source] = (unit, message)
        self._etags.setdefault(source, set()).add(notice.content_etag)
        return _admitted(Fate.ADMITTED, notice, message, wal_id=unit.wal_id)

    def _again(
        self,
        message: FeedMessage,
        notice: Notice,
        unit: Unit,
        before: _Known | None,
        fresh: dict[_Source, tuple[Unit, FeedMessage]],
    ) -> Admitted:
        """Handle a second notice of an object in the same batch: only the later write becomes a unit."""
        if not self._is_later(notice, unit.notice.sequencer, unit.notice.content_etag):
            older = _is_older(notice, unit.notice.sequencer)
            return _admitted(Fate.SUPERSEDED if older else Fate.DUPLICATE, notice, message, wal_id=unit.wal_id)
        # The unit of the earlier write is not stored yet, so the later one can take its place.
        self._overtaken.append(unit.notice)
        generation = before.generation + 1 if before else 1
        later = unit_of(notice, generation=generation, supersedes=before.wal_id if before else None)
        fresh[_source(notice)] = (later, message)
        self._etags[_source(notice)].add(notice.content_etag)
        return _admitted(Fate.ADMITTED, notice, message, wal_id=later.wal_id)

    def _is_later(self, notice: Notice, sequencer: str | None, last: str | None) -> bool:
        return is_later(notice, sequencer, {last} if self._listed else self._etags[_source(notice)])

    def _seen(self, message: FeedMessage, notice: Notice, before: _Known, job: Job) -> Admitted:
        if _is_older(notice, before.sequencer):
            return _admitted(
                Fate.SUPERSEDED, notice, message, wal_id=before.wal_id, reason="a later write is already known"
            )
        reason = f"the record is {_status(job)}"
        if job.state == JobState.FAILED:
            replay = Replay(BACKFILL if self._listed else INCIDENT, run_at=self._transaction.due_now())
            [answer] = self._transaction.rulings.rule([(job, replay)], actor=self._actor, reason=ANNOUNCED_AGAIN)
            self._moved.append((job, answer))
            refusal = answer.message if isinstance(answer, Refused) else None
            reason = f"the failed record was not retried: {refusal}" if refusal else "the failed record is retried"
        return _admitted(Fate.DUPLICATE, notice, message, wal_id=before.wal_id, reason=reason)

    # -- writing ------------------------------------------------------------------------------------------------------

    def _write_units(
        self,
        fresh: Mapping[_Source, tuple[Unit, FeedMessage]],
        known: Mapping[_Source, _Known],
        jobs: Mapping[int, Job],
    ) -> None:
        units = [unit for unit, _ in fresh.values()]
        if not units:
            return
        self._transaction.operations.declare({OPERATION: DECLARED})
        admissions = self._transaction.jobs.submit(
            [_submission(unit, self._max_attempts(unit)) for unit in units], actor=self._actor
        )
        rows = [
            [
                unit.wal_id, admission.job_id, unit.dataset, unit.source_uri, unit.object_uri, unit.generation,
                unit.notice.content_etag, unit.notice.size, unit.notice.sequencer, unit.notice.version_id,
                unit.provider, unit.queue, unit.event_time, unit.time_range_start, unit.time_range_end,
                unit.supersedes, self._now,
            ]
            for unit, admission in zip(units, admissions, strict=True)
        ]  # fmt: skip
        self._write("add_units", rows)
        by = {unit.wal_id: admission.job_id for unit, admission in zip(units, admissions, strict=True)}
        followed = [(known[source], unit) for source, (unit, _) in fresh.items() if source in known]
        self._fence(followed, jobs, by)

    def _max_attempts(self, unit: Unit) -> int:
        return self._datasets[unit.dataset].spec.policy.max_attempts or DECLARED.max_attempts

    def _fence(self, followed: Sequence[tuple[_Known, Unit]], jobs: Mapping[int, Job], by: Mapping[str, int]) -> None:
        """Quarantine or cancel the jobs of superseded generations, so that they cannot commit."""
        if not followed:
            return
        self._write("follow_units", [[before.wal_id, unit.wal_id] for before, unit in followed])
        taken_out: list[tuple[Job, object]] = [
            (jobs[before.job_id], Quarantine(SUPERSEDED, superseded_by(unit.wal_id, by[unit.wal_id])))
            for before, unit in followed
            if jobs[before.job_id].state in (JobState.PENDING, JobState.FAILED)
        ]
        answers = self._transaction.rulings.rule(taken_out, actor=self._actor, reason="a later write was announced")
        self._moved += zip((job for job, _ in taken_out), answers, strict=True)
        for before, _ in followed:
            if jobs[before.job_id].state == JobState.RUNNING:
                self._transaction.notes.request_cancel(
                    before.job_id, actor=self._actor, reason="a later write was announced"
                )

    def _keep_sidecars(self, notices: Sequence[Notice]) -> None:
        latest: dict[str, Notice] = {}
        for notice in notices:
            other = latest.get(notice.object_uri)
            if other is None or is_later(notice, other.sequencer, {other.content_etag}):
                latest[notice.object_uri] = notice
        rows = [
            [
                uri, f"s3://{notice.bucket}/{notice.sidecar_of}", notice.content_etag, notice.size, notice.sequencer,
                notice.event_time, self._now,
            ]
            for uri, notice in sorted(latest.items())
        ]  # fmt: skip
        self._write("keep_sidecars", rows)

    def _keep_rejected(self, rejected: Sequence[tuple[FeedMessage, ParsedMessage]]) -> None:
        kept: dict[str, list[Any]] = {}
        for message, parsed in rejected:
            body = message.body.encode(errors="backslashreplace").decode().replace("\x00", "\\x00")
            first = parsed.rejected[0]
            row = kept.setdefault(sha256(body), [sha256(body), body, first.code, first.message, 0, self._now])
            row[4] += 1
        self._write("keep_rejected", sorted(kept.values()))

    def _keep_ignored(self, ignored: Sequence[IgnoredRecord]) -> None:
        kept: dict[tuple[str, str], list[Any]] = {}
        for one in ignored:
            bucket, slash, key = one.subject.removeprefix("s3://").partition("/")
            shape = f"{'s3://' if slash else ''}{bucket}{slash}{_DIGITS.sub('#', key)}"[:SHAPE_MAX]
            row = kept.setdefault((one.reason, shape), [one.reason, shape, one.subject, 0, self._now])
            row[3] += 1
        self._write("keep_ignored", sorted(kept.values()))

    def _count(self, fates: Sequence[Admitted]) -> None:
        counts = Counter((fate.dataset or "", str(fate.fate), _short(fate)) for fate in fates)
        self._write("count_fates", [[*what, n, self._now] for what, n in sorted(counts.items())])

    # -- statements ---------------------------------------------------------------------------------------------------

    def _latest(self, sources: set[_Source]) -> dict[_Source, _Known]:
        found = [_Known(*row) for row in self._write("known_units", sorted(sources))]
        for one in found:
            self._etags.setdefault((one.source_uri, one.time_range_start), set()).add(one.etag)
        return {(one.source_uri, one.time_range_start): one for one in found}

    def _write(self, name: str, rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        return run_statement(self._transaction, name, rows=encoded(rows)) if rows else []


def _source(notice: Notice) -> _Source:
    return notice.object_uri, notice.time_range_start


def _is_older(notice: Notice, known: str | None) -> bool:
    return bool(notice.sequencer and known and int(notice.sequencer, 16) < int(known, 16))


def _submission(unit: Unit, max_attempts: int) -> Submission:
    payload = msgspec.to_builtins(unit)
    # The ids of the message are left out, so that another delivery of the same notice has the same payload.
    payload["notice"]["raw"] = {}
    return Submission(
        operation=OPERATION,
        operation_version=DECLARED.version,
        payload=canonical(payload),
        client=CLIENT,
        key=unit.wal_id,
        queue=unit.dataset,
        priority=PRIORITIES.get(unit.notice.priority, 0),
        max_attempts=max_attempts,
        replay_attempts=DECLARED.replay_attempts,
    )


def _admitted(
    fate: Fate, notice: Notice, message: FeedMessage, *, wal_id: str | None, reason: str | None = None
) -> Admitted:
    return Admitted(
        fate=fate,
        dataset=notice.dataset,
        object_uri=notice.object_uri,
        wal_id=wal_id,
        reason=reason,
        message_id=message.message_id,
    )


def _status(job: Job) -> str:
    return "in_progress" if job.state == JobState.RUNNING else str(job.state)


def _short(fate: Admitted) -> str:
    """Return a reason with few possible values, for counting."""
    if fate.fate in (Fate.IGNORED, Fate.REJECTED) and fate.reason:
        return fate.reason.partition(":")[0]
    return ""
