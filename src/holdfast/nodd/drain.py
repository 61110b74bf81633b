"""Drains a dead-letter queue: compares each message with its record, replays failed records, then deletes the message.

Invariants: a message is deleted only after its content is durable in the ledger; a message without a record of its
write is left in the queue, unless `admit_unknown` is set; batches have at most ten messages; it stops if a replayed
record fails again with the same error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.core.commands import Replay
from holdfast.core.decide import Refused
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.engine.events import Bus, of_move
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.dataset import Datasets
from holdfast.nodd.notices import Notice, ParsedMessage, is_later, parse
from holdfast.nodd.queues import Queue, Received
from holdfast.nodd.reporter import TelemetryReporter
from holdfast.nodd.statements import run_statement
from holdfast.store import Store
from holdfast.store.statements import encoded

REASON = "dlq-drain"
SAME_ERROR = "a replayed record failed again with the same error"


class DrainResult(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the messages of a dead-letter queue by what was done with them."""

    received: int
    deleted: int
    fates: dict[str, int]
    stopped: str | None = None


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
        reporter: TelemetryReporter | None = None,
        bus: Bus | None = None,
    ) -> None:
        self._reporter, self._bus = reporter, bus
        self._store, self._queue, self._datasets = store, queue, datasets
        self._actor, self._reason, self._admit_unknown = actor, reason, admit_unknown
        self._watched: dict[int, tuple[str | None, int]] = {}  # replayed jobs: their error code and attempts before

    def run(self, *, limit: int = 500, between: Callable[[], None] = lambda: None) -> DrainResult:
        """Drain up to `limit` messages in batches of ten; `between` is called after each batch, for example to wait."""
        counts: Counter[str] = Counter()
        received = deleted = 0
        stopped: str | None = None
        while received < limit:
            batch = self._queue.receive(wait_s=0, n=min(10, limit - received))
            if not batch:
                break
            received += len(batch)
            settled = [message for message in batch if self._settle(message, counts)]
            deleted += len(settled) - len(self._queue.delete(settled))
            between()
            if self._same_error_again():
                stopped = SAME_ERROR
                break
        return DrainResult(received=received, deleted=deleted, fates=dict(sorted(counts.items())), stopped=stopped)

    def _settle(self, message: Received, counts: Counter[str]) -> bool:
        """Process one message; return whether it can be deleted."""
        parsed = parse(message.body, self._datasets, sqs_message_id=message.message_id)
        settled = self._settled(message, parsed, counts)
        if self._reporter is not None:
            self._reporter.dead_letter(next((notice.dataset for notice in parsed.notices), None), settled=settled)
        return settled

    def _settled(self, message: Received, parsed: ParsedMessage, counts: Counter[str]) -> bool:
        if parsed.rejected:
            self._admit(message)
            counts["rejected"] += 1
            return True
        units = [notice for notice in parsed.notices if notice.sidecar_of is None]
        job_ids, unknown = self._known(units)
        if unknown and not self._admit_unknown:
            counts["uncorrelated"] += 1
            return False
        if unknown:
            self._admit(message)
            counts["admitted"] += unknown
        with self._store.reading() as reading:
            jobs = reading.jobs.get_many(job_ids)
        for job in jobs:
            counts[self._replayed(job)] += 1
        if not units:
            counts["nothing_to_do"] += 1
        return True

    def _admit(self, message: Received) -> None:
        known = FeedMessage(message.body, message.message_id)
        admit(self._store, [known], self._datasets, actor=self._actor, bus=self._bus)

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

    def _replayed(self, job: Job) -> str:
        if job.state != JobState.FAILED:
            return f"already_{job.state}"
        with self._store.transaction() as transaction:
            command = Replay(REASON, run_at=transaction.now())
            [answer] = transaction.jobs.rule([(job, command)], actor=self._actor, reason=self._reason)
            at = transaction.now()
        if isinstance(answer, Refused):
            return answer.code
        if self._bus is not None and self._bus.listening:
            self._bus.publish(list(of_move(job, answer, at, actor=self._actor)))
        self._watched[job.job_id] = (job.last_error_code, job.attempts)
        return "replayed"

    def _same_error_again(self) -> bool:
        if not self._watched:
            return False
        with self._store.reading() as reading:
            jobs = reading.jobs.get_many(sorted(self._watched))
        return any(
            job.attempts > self._watched[job.job_id][1]
            and job.state != JobState.SUCCEEDED
            and job.last_error_code == self._watched[job.job_id][0]
            for job in jobs
        )
