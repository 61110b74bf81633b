"""Processes that write to one audit log: until they are done, or until they are killed at a step of the writing."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from holdfast import Ledger
from holdfast.compat import AuditEvent, AuditLogger
from tests.support.roles import note
from tests.support.trap import Trap

AT = datetime(2030, 1, 1, tzinfo=UTC)


def event(n: object, **given: Any) -> AuditEvent:
    """Return an event of an operator."""
    fields: dict[str, Any] = {"source": "operator", "action": "purge", "status": "ok", "timestamp": AT, **given}
    return AuditEvent(job_id=f"job-{n}", **fields)


def log_many(url: str, *, directory: str, name: str, n: int, notes: str, file_bytes_max: int) -> None:
    """Log n events and note each number once it is answered."""
    with Ledger(url) as ledger:
        audit = AuditLogger(ledger, directory, file_bytes_max=file_bytes_max)
        for number in range(n):
            note(notes, str(audit.log(event(f"{name}-{number}"))))


def log_and_die(url: str, *, directory: str, notes: str, kill_at: int | None, file_bytes_max: int) -> None:
    """Log three events, and be killed at the n-th call that changes the disk; a write is cut in half by it."""
    with Ledger(url) as ledger:
        audit = AuditLogger(ledger, directory, file_bytes_max=file_bytes_max)
        trap = Trap(kill_at, armed=True)
        pwrite = os.pwrite

        def half(name: str, *args: Any) -> None:
            if name == "pwrite":
                file, text, offset = args
                pwrite(file, text[: len(text) // 2], offset)

        trap.watch_calls(os, "pwrite", "fsync", "ftruncate", "rename", "replace", after=False, last_act=half)
        for number in range(3):
            note(notes, str(audit.log(event(number))))
        note(notes, f"steps {trap.count}")
