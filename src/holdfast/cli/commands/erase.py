"""`holdfast erase`: remove the personal data of one job under a grant.

Invariants: the printed result is what the ledger returned.
"""

from typing import Annotated, Any

from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import argument
from holdfast.cli.options import ID_MAX, GrantId, Operator, RequiredReason, actor
from holdfast.core.records import time_text
from holdfast.store import Store


@command(Location.open)
def erase(
    store: Store[Any],
    *,
    job_id: Annotated[int, argument(metavar="ID", min=1, max=ID_MAX, help="Id of the job.")],
    reason: RequiredReason,
    grant: GrantId = None,
    operator: Operator = None,
) -> Answer:
    """Erase the personal data of a job, under a grant.

    The job must have ended. The grant is consumed.

    Payload, key, result, error messages, checkpoints and tracebacks are removed. Digests and the history stay: checks
    and seals still verify, and the key cannot be used again.
    """
    from holdfast.governance.erasure import erase as remove  # noqa: PLC0415 - the command's help needs none of it

    done = remove(store, job_id, actor=actor() if operator is None else operator, reason=reason, grant_id=grant)
    erasure = done.erasure
    value = {
        "job_id": job_id,
        "erased_at": time_text(erasure.erased_at),
        "by": erasure.actor,
        "reason": erasure.reason,
        "grant_id": erasure.grant_id,
        "changed": done.changed,
    }
    how = "erased" if done.changed else "was already erased"
    return Answer(value, f"Job {job_id} {how}, under grant {erasure.grant_id}.")
