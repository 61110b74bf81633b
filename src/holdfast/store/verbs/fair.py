"""Verbs of the fair claim: which due jobs come first where a queue has several priorities, or queues have weights.

A job is ranked by its due time minus a step for each priority, by default `STEP_S`: one of a higher priority overtakes
those that became due less than that before it, and no others. So a job of low priority is delayed, and never starved.

Invariants: a claim reads at most 16 lanes, each by one index; queues with weights get shares of what is claimed, and a
queue without due jobs saves nothing up; a ledger with one priority and no weights never comes here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from holdfast.core.records import Attempt
from holdfast.store.requests import Lease
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import WritingVerbs

if TYPE_CHECKING:
    from holdfast.store.store import Store
    from holdfast.store.transaction import Reading

STEP_S = 60.0  # unless the ledger has a setting
STEP = ("fair", "step_s")  # the kind and the name of that setting
WEIGHT = "weight"  # the kind of settings that have the weights of queues
WEIGHT_DEFAULT = 1.0


_credits: WeakKeyDictionary[Store[Any], dict[str, float]] = WeakKeyDictionary()  # how far a queue is behind its share


def weights(reading: Reading) -> dict[str, float]:
    """Return the queues that have a weight."""
    return {setting.name: float(setting.value) for setting in reading.configuration.active(WEIGHT)}


class FairWrites(WritingVerbs):
    """Claims jobs in the fair order."""

    def claim(self, lease: Lease) -> list[Attempt]:
        """Lease up to n due jobs; return an attempt for each, in the fair order."""
        queues = list(dict.fromkeys(lease.queues))
        ids = self.shared(queues, max(lease.n, 0))
        won = self._session.executions.claim_these(ids, lease) if ids else []
        place = {job_id: index for index, job_id in enumerate(ids)}
        return sorted(won, key=lambda attempt: place[attempt.job_id])

    def shared(self, queues: Sequence[str], n: int) -> list[int]:
        """Return the jobs to claim: by the shares of the queues first, and then whatever is due."""
        weighted = weights(self._session)
        if not weighted.keys() & set(queues):
            return self._first(queues, n)
        credits_ = _credits.setdefault(self._store, {})
        total = sum(weighted.get(queue, WEIGHT_DEFAULT) for queue in queues)
        for queue in queues:
            credits_[queue] = credits_.get(queue, 0.0) + n * weighted.get(queue, WEIGHT_DEFAULT) / total
        ids: list[int] = []
        for queue in sorted(queues, key=lambda one: -credits_[one]):
            wanted = min(n - len(ids), max(0, round(credits_[queue])))
            found = self._first([queue], wanted) if wanted else []
            credits_[queue] = 0.0 if len(found) < wanted else credits_[queue] - len(found)
            ids += found
        if len(ids) < n:
            taken = set(ids)
            ids += [job_id for job_id in self._first(queues, n) if job_id not in taken][: n - len(ids)]
        return ids

    def _first(self, queues: Sequence[str], n: int) -> list[int]:
        now = self._store.time_parameter()
        rows = self._run("fair_jobs", queues=encoded(list(queues)), n=n, step=STEP_S, now=now)
        return [job_id for (job_id,) in rows]
