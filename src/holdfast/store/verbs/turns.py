"""The verb of a whole turn of a worker, for PostgreSQL: complete jobs and claim the next ones with one statement.

Invariants: each end matches id, owner, token, status and live lease, as an end in a statement of its own does; a turn
is not used while the ledger has limits or fair shares, where a claim takes several statements.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.records import Attempt
from holdfast.store.postgres.connection import arrays
from holdfast.store.postgres.turn import TURN
from holdfast.store.requests import Lease
from holdfast.store.statements import encoded
from holdfast.store.verbs.executions import DONE, ExecutionWrites


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
        done = {f"done_{name}": value for name, value in {**DONE, **signature, **arrays(rows)}.items()}
        queues = encoded(list(dict.fromkeys(lease.queues)))
        found = self._claim(TURN, lease, queues=queues, n=max(lease.n, 0), **done)
        claimed = [row[:-1] for row in found if row[0] is not None]
        return self._succeeded(rows, found[0][-1], signature), self._attempts(claimed, lease)
