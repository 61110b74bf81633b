"""Payloads that were too long to be claimed ahead: read when an attempt that needs one starts, with the next few.

Invariants: of one claim at most SET_BYTES of payloads are read and not yet taken, or one payload that is longer; an
error says that it is about a payload, so that the attempt is given back and not charged for it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import StoreError
from holdfast.store.statements import encoded

if TYPE_CHECKING:
    from holdfast.store.store import Store

PAYLOAD_OF = "payload_of"  # in the context of an error: the job
SET_BYTES = 4 << 20


class LongPayloads:
    """The long payloads of one claim, for the slots that run its attempts in the order of the claim."""

    def __init__(self, store: Store[Any], lengths: Mapping[int, int]) -> None:
        self._store = store
        self._lengths = dict(lengths)  # by job, in the order of the claim
        self._unread = dict(lengths)
        self._read: dict[int, str | None] = {}  # read, and not yet taken
        self._lock = threading.Lock()  # while one slot reads, the others wait: what they need is likely in its set

    def of(self, job_id: int) -> str | None:
        """Return the payload of a job, and do not keep it; raise StoreError if it cannot be read."""
        with self._lock:
            if job_id not in self._read:
                self._read_from(job_id)
            return self._read.pop(job_id, None)

    def _read_from(self, job_id: int) -> None:
        """Read the payload of a job and, in the same statement, as many of the next ones as the bytes allow."""
        self._unread.pop(job_id, None)
        ids, room = [job_id], SET_BYTES - sum(self._lengths.get(each, 0) for each in (job_id, *self._read))
        for each, length in self._unread.items():
            if length > room:
                break
            ids.append(each)
            room -= length
        try:
            with self._store.glance() as reading:
                self._read.update(reading.run("payloads_of", rows=encoded(ids)))
        except StoreError as error:
            error.context[PAYLOAD_OF] = job_id
            raise
        for each in ids[1:]:
            del self._unread[each]
