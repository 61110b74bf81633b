"""Drains a dead-letter queue: compares each message with its record, replays or quarantines failed records, deletes it.

Failed records are replayed by a run of `governance.replay`: under its guards, switches, rate and grants, and on record.
A record whose last error is permanent is quarantined instead, because another attempt would fail in the same way.

Invariants: a refused drain writes and deletes nothing; a message is deleted only after its content is durable in the
ledger; a message without a record of its write is left in the queue, unless `admit_unknown` is set; the next batch
waits for the outcome of the one before, and the run stops if a replayed record fails again with the same error.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.core.commands import Quarantine
from holdfast.core.decide import Refused
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.core.selection import Limits, ReplayReason, Selection, SelectionFilters
from holdfast.engine.events import Bus, of_move
from holdfast.engine.world import World
from holdfast.governance.acts import actor_and_reason
from holdfast.governance.approval import environment_of
from holdfast.governance.reasons import Reason, declare, reason_of
from holdfast.governance.replay import pace, replay
from holdfast.governance.replay.guards import policy_of
from holdfast.governance.runs.runner import Stop
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.dataset import Datasets
from holdfast.nodd.notices import Notice, ParsedMessage, is_later, parse
from holdfast.nodd.queues import Queue, Received
from holdfast.nodd.reasons import REASONS
from holdfast.nodd.replays import NAME
from holdfast.nodd.reporter import TelemetryReporter
from holdfast.nodd.statements import run_statement
from holdfast.store import Store
from holdfast.store.statements import encoded

if TYPE_CHECKING:
    from holdfast.governance.replay.record import ReplayReport

REASON = str(ReplayReason.DLQ_DRAIN)
SAME_ERROR = str(Stop.SAME_ERROR)
PERMANENT = frozenset({
    Reason.PARSE_ERROR, Reason.PERMISSION_DENIED, Reason.INVALID_STATE, Reason.GOVERNANCE_HARD_FAIL,
    Reason.GOVERNANCE_HOLD,
})  # fmt: skip
WAIT_S = 60.0  # for the outcome of a batch
POLL_S = 0.5
HIDDEN_S = 900  # received messages are hidden from other readers for so long
RECORDS_MAX = 1000  # of one drain

declare(REASONS)


class DrainResult(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the messages of a dead-letter queue by what was done with them, and the run that replayed records."""

    received: int
    deleted: int
    fates: dict[str, int]
    run_id: str
    stopped: str | None = None
    message: str | None = None


class _Letter(NamedTuple):
    """A message, what it says, its records, and how many of its objects have no record."""

    message: Received
    parsed: ParsedMessage
    job_ids: list[int]
    unknown: int


class Drain:
    """One drain of one dead-letter queue."""

    def __init__(
        self,
        store: Store[Any],
        queue: Queue,
        datasets: Datasets,
        *,
        actor: str,
        reason: str,
        admit_unknown: bool = False,
        grant_id: int | None = None,
        wait_s: float = WAIT_S,
        reporter: TelemetryReporter | None = None,
        bus: Bus | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._reporter, self._bus, self._sleep = reporter, bus, sleep
        self._store, self._queue, self._datasets = store, queue, datasets
        self._actor, self._reason = actor_and_reason(actor, reason)
        self._admit_unknown, self._grant_id, self._wait_s = admit_unknown, grant_id, wait_s
        self._fates: Counter[str] = Counter()
        self.run_id = f"drain-{World().new_name()}"

    def run(self, *, limit: int = 500) -> DrainResult:
        """Drain up to `limit` messages, and return what was done with them.

        Raise ReplayGuardError if a guard or a switch refuses to replay the records, AuthorityError if no grant permits
        it; then the messages stay in the queue.
        """
        letters = self._received(limit)
        try:
            failed, permanent = self._sorted(letters)
            report = self._replayed(failed)
        except Exception:
            self._queue.keep([letter.message for letter in letters], 0)  # others see them again at once
            raise
        quarantined = self._quarantined(permanent)
        moved = quarantined | self._touched(report)
        left = {job.job_id for job in (*failed, *permanent)} - moved
        settled = [letter.message for letter in letters if self._settle(letter, left)]
        kept = [letter.message for letter in letters if letter.message not in settled]
        deleted = len(settled) - len(self._queue.delete(settled))
        if kept:
            self._queue.keep(kept, 0)
        stopped, message = self._end(report, failed)
        return DrainResult(
            received=len(letters),
            deleted=deleted,
            fates=dict(sorted(self._fates.items())),
            run_id=self.run_id,
            stopped=stopped,
            message=message,
        )

    # -- receiving ----------------------------------------------------------------------------------------------------

    def _received(self, limit: int) -> list[_Letter]:
        letters: list[_Letter] = []
        while len(letters) < limit:
            batch = self._queue.receive(wait_s=0, n=min(10, limit - len(letters)), visibility_s=HIDDEN_S)
            if not batch:
                break
            for message in batch:
                parsed = parse(message.body, self._datasets, sqs_message_id=message.message_id)
                job_ids, unknown = ([], 0) if parsed.rejected else self._known(_units(parsed))
                letters.append(_Letter(message, parsed, job_ids, unknown))
        return letters

    def _known(self, units: Sequence[Notice]) -> tuple[list[int], int]:
        """Return the jobs of the notices' records, and the number of objects without a record of that write."""
        sources = {(notice.object_uri, notice.time_range_start) for notice in units}
        with self._store.reading() as reading:
            rows = run_statement(reading, "known_units", rows=encoded(sorted(sources)))
        latest = {(row[0], row[1]): (row[3], row[6]) for row in rows}  # job, sequencer; the last counts
        etags = {source: {row[5] for row in rows if (row[0], row[1]) == source} for source in latest}
        unknown = sources - set(latest)
        for notice in units:
            source = (notice.object_uri, notice.time_range_start)
            if source in latest and is_later(notice, latest[source][1], etags[source]):
                unknown.add(source)
        return sorted(latest[source][0] for source in sources - unknown), len(unknown)

    def _sorted(self, letters: Sequence[_Letter]) -> tuple[list[Job], list[Job]]:
        """Return the failed records to replay, and those whose last error is permanent; count the others."""
        named = sorted({job_id for letter in letters if self._is_whole(letter) for job_id in letter.job_ids})
        failed: list[Job] = []
        permanent: list[Job] = []
        with self._store.reading() as reading:
            for job in reading.jobs.get_many(named):
                if job.state != JobState.FAILED:
                    self._fates[f"already_{job.state}"] += 1
                elif reason_of(None, job.last_error_code) in PERMANENT:
                    permanent.append(job)
                elif not job.may_replay:
                    self._fates["attempts_exhausted"] += 1
                else:
                    failed.append(job)
        return failed[:RECORDS_MAX], permanent

    def _is_whole(self, letter: _Letter) -> bool:
        return not letter.unknown or self._admit_unknown

    # -- acting -------------------------------------------------------------------------------------------------------

    def _replayed(self, failed: Sequence[Job]) -> ReplayReport | None:
        """Replay failed records under the guards, switches, rate and grants of replay; None if there are none."""
        if not failed:
            return None
        with self._store.reading() as reading:
            environment = environment_of(reading)
        policy = policy_of(environment)
        policy = msgspec.structs.replace(policy, same_error_min=1, same_error_share=0.0, await_outcome_s=self._wait_s)
        selection = Selection(
            name=NAME,
            env=environment,
            filters=SelectionFilters(jobs=tuple(str(job.job_id) for job in failed)),
            limits=Limits(batch_size=max(10, -(-len(failed) // policy.max_batches))),
        )
        return replay.run(
            self._store,
            selection,
            actor=self._actor,
            reason=self._reason,
            replay_reason=REASON,
            grant_id=self._grant_id,
            policy=policy,
            root=self.run_id,
            sleep=self._sleep,
            bus=self._bus,
        )

    def _touched(self, report: ReplayReport | None) -> set[int]:
        if report is None:
            return set()
        batches = replay.inspect(self._store, report.run_id, limit=RECORDS_MAX).touched
        replayed = {job_id for batch in batches for job_id in batch.replayed}
        self._fates["replayed"] += len(replayed)
        skipped = {job_id for batch in batches for job_ids in batch.skipped.values() for job_id in job_ids}
        for reason, n in report.skipped.items():
            self._fates[reason] += n
        return replayed | skipped

    def _quarantined(self, permanent: Sequence[Job]) -> set[int]:
        """Quarantine records whose last error is permanent, and return those that are quarantined now."""
        if not permanent:
            return set()
        why = f"drain {self.run_id}: {self._reason}"
        with self._store.transaction() as transaction:
            rulings: list[tuple[Job, object]] = [
                (job, Quarantine(str(reason_of(None, job.last_error_code)), job.last_error_message))
                for job in permanent
            ]
            answers = transaction.rulings.rule(rulings, actor=self._actor, reason=why)
            at = transaction.now()
        done: set[int] = set()
        for job, answer in zip(permanent, answers, strict=True):
            if isinstance(answer, Refused):
                self._fates[answer.code] += 1
                continue
            done.add(job.job_id)
            self._fates["quarantined"] += 1
            if self._bus is not None and self._bus.listening:
                self._bus.publish(list(of_move(job, answer, at, actor=self._actor)))
        return done

    def _settle(self, letter: _Letter, left: set[int]) -> bool:
        """Admit what a message needs admitted; return whether the message can be deleted."""
        settled = self._settled(letter, left)
        if self._reporter is not None:
            dataset = next((notice.dataset for notice in letter.parsed.notices), None)
            self._reporter.dead_letter(dataset, settled=settled)
        return settled

    def _settled(self, letter: _Letter, left: set[int]) -> bool:
        if letter.parsed.rejected:
            self._admit(letter.message)
            self._fates["rejected"] += 1
            return True
        if not self._is_whole(letter):
            self._fates["uncorrelated"] += 1
            return False
        if letter.unknown:
            self._admit(letter.message)
            self._fates["admitted"] += letter.unknown
        if not _units(letter.parsed):
            self._fates["nothing_to_do"] += 1
        return left.isdisjoint(letter.job_ids)

    def _admit(self, message: Received) -> None:
        known = FeedMessage(message.body, message.message_id)
        admit(self._store, [known], self._datasets, actor=self._actor, bus=self._bus)

    # -- the outcome --------------------------------------------------------------------------------------------------

    def _end(self, report: ReplayReport | None, failed: Sequence[Job]) -> tuple[str | None, str | None]:
        """Return why the run stopped; of a run that is done, whether the same error came back after its last batch."""
        if report is None:
            return None, None
        if not report.done:
            return report.stop_reason, report.failure
        versions = {job.job_id: job.version for job in failed}
        errors = frozenset(job.last_error_code for job in failed if job.last_error_code)
        until = self._store.now() + timedelta(seconds=self._wait_s)
        while True:
            with self._store.reading() as reading:
                back = pace.returned(reading, versions, errors)
            if back.same_error:
                return (
                    SAME_ERROR,
                    f"{back.same_error} of {back.ended} replayed records failed with the same error again",
                )
            if back.ended >= report.replayed or self._store.now() >= until:
                return None, None
            self._sleep(POLL_S)


def _units(parsed: ParsedMessage) -> list[Notice]:
    return [notice for notice in parsed.notices if notice.sidecar_of is None]
