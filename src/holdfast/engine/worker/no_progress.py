"""Detects a job that makes no progress: its latest failures are all the same.

Imported after a failure of an operation whose retry policy has `no_progress_after`.

Invariants: two failures are the same if their codes are equal and their messages differ only in numbers; an attempt
that was excused is no failure, and counts neither way; if the ledger cannot be read, nothing is detected.
"""

from __future__ import annotations

import re

from holdfast.core.errors import StoreError
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.outcome import Raised

NO_PROGRESS = "no_progress_detected"
_NUMBERS = re.compile(r"0x[0-9a-f]+|[0-9a-f]*[0-9][0-9a-f-]*", re.IGNORECASE)


def signature(code: str | None, message: str | None) -> tuple[str | None, str]:
    """Return what two failures have in common if they are the same: the code, and the message without numbers."""
    return code, _NUMBERS.sub("#", message or "")


def makes_no_progress(running: HeldAttempt, outcome: Raised, failures: int) -> bool:
    """Tell whether this failure and the ones before it are `failures` in a row with the same signature."""
    try:
        with running.ledger.store.reading() as reading:
            earlier = reading.lists.executions(running.job.job_id)
    except StoreError:
        return False
    counted = [one for one in earlier if one.finished_at is not None and not one.excused]
    counted.sort(key=lambda one: one.attempt)
    latest = counted[len(counted) - (failures - 1) :] if len(counted) >= failures - 1 else []
    here = signature(outcome.code, outcome.message)
    same = [one for one in latest if signature(one.error_code, one.error_message) == here]
    return len(same) == failures - 1
