"""The verb of a whole turn of a worker, for PostgreSQL: complete jobs and claim the next ones in one round trip.

The claim is a statement of its own because it needs a snapshot of its own. With that of the ends it would find jobs
which another worker has claimed since, and PostgreSQL would lock these until this turn has committed: the other worker
would wait for that to end them.

Invariants: each end matches id, owner, token, status and live lease, as an end in a statement of its own does; the jobs
are completed before the first one is claimed, so that a claim holds no lock while an end waits for one; a turn is not
used while the ledger has limits or fair shares, where a claim takes several statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from holdfast.core.records import Attempt
from holdfast.store.postgres.connection import arrays
from holdfast.store.requests import Lease
from holdfast.store.statements import encoded
from holdfast.store.verbs.executions import DONE, ExecutionWrites

if TYPE_CHECKING:
    from holdfast.store.postgres.store import PostgresStore


class TurnWrites(ExecutionWrites):
    """Writes whole turns."""

    def turn(
        self, ends: Sequence[tuple[int, int, str]], lease: Lease | None, *, owner: str
    ) -> tuple[set[int], list[Attempt]]:
        """Complete attempts of an owner, given as (job_id, token, result), and claim more under a lease of this owner.

        Return the ids of the jobs that have succeeded, and the claimed attempts. Without a lease nothing is claimed.
        """
        rows, signature = sorted(ends), self._signature(owner, None)
        if lease is None:
            n = self._store.complete_jobs(self._session, rows, **DONE, **signature)
            return self._succeeded(rows, n, signature), []
        written = 0

        def after_ends(statement: str, **params: object) -> list[tuple[Any, ...]]:
            nonlocal written
            done = {**DONE, **signature, **arrays(rows)}
            store = cast("PostgresStore", self._store)
            [[[written]], found] = store.run_together(self._session, ("complete_jobs", done), (statement, params))
            return found

        queues = encoded(list(dict.fromkeys(lease.queues)))
        found = self._claim(after_ends, "claim_jobs", lease, queues=queues, n=max(lease.n, 0), durable=True)
        return self._succeeded(rows, written, signature), self._attempts(found, lease)
