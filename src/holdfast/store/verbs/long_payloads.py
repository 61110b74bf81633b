"""Payloads that were too long to be claimed ahead: read when the attempt that needs one starts.

Invariants: an error says that it is about a payload, so that the attempt is given back and not charged for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.errors import StoreError
from holdfast.core.records import Job

if TYPE_CHECKING:
    from holdfast.store.store import Store

PAYLOAD_OF = "payload_of"  # in the context of an error: the job


def with_payload(store: Store[Any], job: Job) -> Job:
    """Return a claimed job with its payload, read from the ledger; raise StoreError if it cannot be read."""
    try:
        with store.reading() as reading:
            return msgspec.structs.replace(job, payload=reading.jobs.get(job.job_id).payload)
    except StoreError as error:
        error.context[PAYLOAD_OF] = job.job_id
        raise
