"""Batches: calls that are submitted together, and a call that follows when they have ended.

    batch = ledger.batch([resize.call(image=n) for n in images], then=publish.call(album=7))
    batch.progress()

The follower is a job from the start: it is submitted in the transaction that submits the batch, and parked until the
batch has ended. So there is no moment at which a crash could lose it or make it twice.

Invariants: a batch and its follower are recorded together or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.errors import FlowInvalidError
from holdfast.core.guarded import guarded
from holdfast.engine.batch import Batch
from holdfast.engine.bulk import calls_from, have_keys
from holdfast.engine.operations import Call
from holdfast.engine.receipt import Receipt
from holdfast.engine.submit import call_from
from holdfast.engine.tasks import CallTask
from holdfast.scheduling.unique import policy_of
from holdfast.store.requests import Admission
from holdfast.store.verbs.flow import BATCH, NewWait

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger
    from holdfast.store.transaction import Transaction

CALLS_MAX = 100_000
NAME_MAX = 200


def find(ledger: Ledger, batch_id: int) -> Batch:
    """Return a batch by its id, or raise RecordNotFoundError."""
    with ledger.store.reading() as reading:
        wait = reading.flow.batch(batch_id)
    return Batch(ledger, batch_id, (), None if wait.job_id is None else ledger.receipt(wait.job_id))


class _Written(msgspec.Struct, frozen=True):
    """What the transaction of a batch has recorded."""

    batch_id: int
    admissions: list[Admission]
    then: Admission | None


@guarded
def submit_batch(
    ledger: Ledger,
    calls: Sequence[Call[Any] | Mapping[str, Any]],
    then: Call[Any] | Mapping[str, Any] | None,
    name: str | None,
    if_unsuccessful: str | None,
) -> Batch:
    """Record calls, and the call that follows them, in one transaction; see `Ledger.batch`."""
    made = calls_from(calls)
    following = None if then is None else call_from(then)
    policy = policy_of(if_unsuccessful)
    _require_fit(made, following, name)

    def write(tx: Transaction) -> _Written:
        admissions = ledger.submit_in(tx, made)
        admitted = None if following is None else ledger.submit_in(tx, [following])[0]
        known = None if admitted is None or admitted.is_new else tx.flow.wait_of(admitted.job_id)
        if known is not None and known.kind == BATCH:  # submitted before, under the same key
            return _Written(known.wait_id, admissions, admitted)
        parents = {admission.job_id for admission in admissions}
        if admitted is not None and (admitted.job_id in parents or not admitted.is_new):
            raise _refusal(
                "then_not_new", "The call of `then` names a job that exists already.", job_id=admitted.job_id
            )
        job_id = None if admitted is None else admitted.job_id
        batch_id = tx.flow.wait([NewWait(BATCH, sorted(parents), policy, job_id, name)])
        return _Written(batch_id, admissions, admitted)

    task = CallTask(write)
    # If COMMIT's answer is lost, only calls that all have keys may be written again.
    task.repeatable = have_keys(made) and (following is None or following.key is not None)
    ledger.perform_tasks([task])
    written: _Written = task.result()
    receipts = [_receipt(ledger, admission) for admission in written.admissions]
    return Batch(ledger, written.batch_id, receipts, None if written.then is None else _receipt(ledger, written.then))


def _receipt(ledger: Ledger, admission: Admission) -> Receipt[Any]:
    return Receipt(ledger, admission.job_id, is_new=admission.is_new, job=admission.existing)


def _require_fit(calls: Sequence[Call], then: Call | None, name: str | None) -> None:
    if not 0 < len(calls) <= CALLS_MAX:
        raise _refusal("batch_size", f"A batch has from 1 to {CALLS_MAX} calls; this one has {len(calls)}.")
    if then is not None and then.after is not None:
        raise _refusal("then_after", "The call of `then` follows its batch; it cannot have `after` too.")
    if name is not None and (not name.strip() or len(name) > NAME_MAX or not name.isprintable()):
        raise _refusal("name_unfit", f"The name of a batch has from 1 to {NAME_MAX} printable characters.")


def _refusal(code: str, message: str, **context: object) -> FlowInvalidError:
    return FlowInvalidError(message, context={"refusal": code, **context})
