"""Queues with a depth: how many jobs wait in one, and how many more may, before a submit is parked or refused.

A parked job is recorded like any other; no claim sees it. Claims and sweeps unpark it (`store.verbs.slots`), as they do
for other limits. A ledger in which no queue has a depth does not import this module.

Invariants: one transaction at a time looks at the depth of queues, so a submit never exceeds it; jobs are
unparked by priority, then by time, then in the order of their submits; work that was accepted before is never parked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from holdfast.core.limits import DEPTH, Room, Rules
from holdfast.store.requests import Submission
from holdfast.store.statements import encoded
from holdfast.store.transaction import Reading
from holdfast.store.verbs.slots import SlotWrites


def jobs_waiting(reading: Reading, buckets: Iterable[str], rules: Rules) -> dict[str, int]:
    """Return how many jobs wait in the queues of these buckets, without those that the depth holds back.

    They are counted no further than the depth. Jobs that wait for a limit count, jobs that wait for others do not.
    """
    depths = {name: rule.depth for name in buckets if (rule := rules.get(name)) is not None and rule.depth is not None}
    queues = encoded(sorted(name.removeprefix(DEPTH) for name in depths))
    found = dict(reading.run("waiting_in_queues", rows=queues, most=max(depths.values(), default=0)))
    if any(rule.depth is None for rule in rules.values()):
        for queue, n in reading.run("limited_in_queues", rows=queues):
            found[queue] += n
    return {name: found[name.removeprefix(DEPTH)] for name in depths}


class DepthWrites(SlotWrites):
    """Parks new work."""

    def lock(self) -> datetime:
        """Wait until no other transaction looks at the depth of a queue; return the time of the database."""
        if not self._session.is_open:
            self._session.execute("SELECT 1")  # begins a transaction: a lone submit on PostgreSQL has none
        return self._lock()

    def room(self, queues: Iterable[str]) -> dict[str, int]:
        """Unpark as many jobs of these queues as may wait; return how many more may wait in each queue that parks.

        Until this transaction ends, no other one looks at the depth of a queue.
        """
        now, rules = self.lock(), self.rules()
        names = rules.keys() & {DEPTH + queue for queue in queues}
        known = Room(rules, now)
        self._learn(known, set(), names)
        if self._let_go(known, rules, sorted(names)):
            known = Room(rules, now)
            self._learn(known, set(), names)
        return {name.removeprefix(DEPTH): known.left(name, rules[name]) for name in names}

    def park_beyond(self, room: dict[str, int], new: Sequence[tuple[int, Submission]]) -> None:
        """Park the new jobs for which there is no room, in the order of their submits."""
        left, rows = dict(room), []
        for job_id, submission in new:
            if submission.queue in left and not submission.by_engine:
                left[submission.queue] -= 1
                if left[submission.queue] < 0:
                    rows.append((job_id, DEPTH + submission.queue))
        if rows:
            self._run("park_jobs", rows=encoded(sorted(rows)), parked="depth")
