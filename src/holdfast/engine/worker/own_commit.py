"""A completion inside a transaction of the handler.

Invariants: it is written under the lease and the token of the attempt; it counts when the handler commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.commands import Complete
from holdfast.core.decide import Move, Refused
from holdfast.core.digest import Json, payload_text
from holdfast.core.errors import LeaseLostError
from holdfast.core.records import Attempt
from holdfast.engine.operations import Call

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger


def completed_in(connection: Any, ledger: Ledger, attempt: Attempt, calls: Sequence[Call], result: Json) -> Move:
    """Complete an attempt and submit its calls in the transaction of a connection; raise LeaseLostError if refused."""
    complete = Complete(attempt.execution.lease_token, payload_text(result))
    with ledger.store.borrowed(connection) as transaction:
        [answer] = transaction.executions.move([(attempt, complete)], actor=attempt.execution.lease_owner)
        if transaction.freed:
            transaction.slots.admit()
        if isinstance(answer, Refused):
            raise LeaseLostError(answer.message)
        ledger.submit_in(transaction, calls, attempt.job.job_id)
    return answer
