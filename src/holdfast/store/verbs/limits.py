"""Verbs of limits: set them, and read which jobs hold slots and which wait.

Invariants: a limit that was set, changed or removed counts for the jobs that wait and run now too.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from holdfast.core.limits import KIND, RATE, Candidate, Limit, Room, buckets_of, counted, rule_of
from holdfast.store.requests import Declared
from holdfast.store.statements import encoded
from holdfast.store.verbs.slots import SlotReads, SlotWrites

DECLARED = "declared by the program"


class LimitReads(SlotReads):
    """Reads limits, and which jobs hold slots and which wait."""

    def waiting(self, n: int = 1000) -> list[tuple[str, str, int]]:
        """Return how many jobs wait for which bucket, as (bucket, queue, jobs), the longest first."""
        return [(bucket, queue, int(jobs)) for bucket, queue, jobs in self._run("parked_by_bucket", n=n)]

    def cause_of(self, job_id: int) -> tuple[str | None, str | None]:
        """Return why a job is parked, and the bucket that it waits for; (None, None) if it is not parked."""
        rows = self._run("parked_cause", job_id=job_id)
        return (rows[0][0], rows[0][1]) if rows else (None, None)

    def holders(self, bucket: str, n: int = 10) -> list[tuple[int, int, str]]:
        """Return the slots of a bucket that are held: (slot, job_id, worker)."""
        return [(slot, job_id, owner) for slot, job_id, owner, _ in self._run("slots_of_bucket", bucket=bucket, n=n)]

    def leaked(self, n: int) -> list[tuple[str, int, int]]:
        """Return slots whose job does not run: (bucket, slot, job_id)."""
        return [(bucket, slot, job_id) for bucket, slot, job_id in self._run("leaked_slots", n=n)]

    def tokens(self) -> dict[str, tuple[float, datetime]]:
        """Return the tokens of every bucket that was used, and the time at which they were counted."""
        return {bucket: (float(n), self._store.moment(at)) for bucket, n, at in self._run("all_buckets")}


class LimitWrites(LimitReads, SlotWrites):
    """Changes limits."""

    def set(self, subject: str, limit: Limit | None, *, actor: str, reason: str) -> bool:
        """Set a limit, or remove it with None, for the jobs that wait and run now too; return whether it changed."""
        from holdfast.core.limit_texts import checked  # noqa: PLC0415 - reads of limits do not need it

        now, settings = self._lock(), self._session.configuration
        changed = (
            settings.remove(KIND, subject, actor=actor, reason=reason)
            if limit is None
            else settings.set(KIND, subject, encoded(checked(subject, limit)), actor=actor, reason=reason)
        )
        if changed:
            rules = self.rules()
            self.sweep(rules, now, whole=True)
            gone = {
                bucket for bucket, _, _ in self.held() if (rule := rule_of(bucket, rules)) is None or not rule.running
            }
            self._run("drop_slots", rows=encoded(sorted(gone)))
            idle = {name for name in self.tokens() if (rule := rule_of(name, rules)) is None or not rule.starts}
            self._run("drop_buckets", rows=encoded(sorted(idle)))
            self._store.limited = bool(rules)
        return changed

    def declare(self, before: Declared | None, after: Declared) -> None:
        """Set the limits of an operation as its program declares them now; one that is no longer declared is removed.

        A declaration that has not changed sets nothing, so what an operator has set since stays.
        """
        old, new = (((declared.flow or {}).get("limits", {}) if declared else {}) for declared in (before, after))
        for subject in sorted(old.keys() | new.keys()):
            if old.get(subject) != new.get(subject):
                limit = msgspec.convert(new[subject], Limit) if subject in new else None
                self.set(subject, limit, actor="program", reason=DECLARED)

    def hold(self, job_id: int, seconds: float) -> str | None:
        """Give out no token of a job's rate for so many seconds; return the bucket, None if the job has no rate.

        Of several rates it is the narrowest: that of the key, else of the operation, else of the queue.
        """
        now, rules = self._lock(), self.rules()
        found = [Candidate(*row) for row in self._run("one_job", job_id=job_id)]
        rates = [each for job in found for each in counted(buckets_of(job, rules)) if each[0].startswith(RATE)]
        if not rates:
            return None
        bucket, rule = rates[-1]
        known = Room(rules, now)
        self._learn(known, set(), {bucket})
        before = known.tokens_of(bucket, rule)
        # One token at that time, not more: a request that was refused before may be refused again.
        until = max(before.at, now + timedelta(seconds=seconds))
        known.know((), [(bucket, min(1.0, rule.burst_max), until)])
        self._keep_tokens(known, rules, [bucket])
        return bucket
