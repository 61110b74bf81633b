"""The traceback of a failed attempt: made from the exception, kept with the attempt's end, and logged in one line.

Invariants: whatever an exception does when it is looked at, nothing here raises; a traceback is redacted and bounded,
and has no values of variables; it is a row of its own table, and no part of it is in a journal row, an archive or a
snapshot.
"""

from __future__ import annotations

import linecache
import logging
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from holdfast.core.commands import Fail
from holdfast.core.decide import Move
from holdfast.core.frames import where
from holdfast.core.machines import JOB, JobState
from holdfast.core.redaction import redacted_lines
from holdfast.engine.error_texts import error_message
from holdfast.store.verbs.tracebacks import TRACEBACK_MAX, keep_tracebacks

if TYPE_CHECKING:
    from holdfast.engine.tasks import EndTask
    from holdfast.engine.worker.attempt import HeldAttempt
    from holdfast.store import Transaction

logger = logging.getLogger("holdfast")

OWN = str(Path(__file__).parents[2])  # the frames of this package do not help
CHAIN_MAX = 3  # an exception and those that led to it
FRAMES_FIRST, FRAMES_LAST = 5, 20  # of each exception: where it began, and where it ended
LINE_MAX = 200  # characters of a line of the source


def traceback_text(error: BaseException) -> str | None:
    """Return where an exception came from, redacted and bounded; None if no frame of the application is known."""
    try:
        blocks = ["\n".join(_block(each)) for each in reversed(_chain(error))]
        text = "\n\n".join(blocks)
    except BaseException:  # noqa: BLE001 - it is the user's class
        return None
    return redacted_lines(text, TRACEBACK_MAX) if where(text) else None


def _chain(error: BaseException) -> list[BaseException]:
    """Return an exception and those that led to it, the last one first."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in found and len(found) < CHAIN_MAX:
        found.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return found


def _block(error: BaseException) -> Iterator[str]:
    """Yield the lines of one exception as Python prints them, without the first, which says nothing."""
    frames = list(_frames(error.__traceback__))
    left_out = len(frames) - FRAMES_FIRST - FRAMES_LAST
    for number, (file, line, function, source) in enumerate(frames):
        if left_out > 0 and FRAMES_FIRST <= number < FRAMES_FIRST + left_out:
            if number == FRAMES_FIRST:
                yield f"  ({left_out} frames left out)"
            continue
        yield f'  File "{file}", line {line}, in {function}'
        if source:
            yield f"    {source[:LINE_MAX]}"
    yield error_message(error)


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, int, str, str]]:
    # Not `traceback.extract_tb`: it looks at every source file again, for each failure.
    for frame, line in traceback.walk_tb(trace):
        file = frame.f_code.co_filename
        if not file.startswith(OWN):
            source = linecache.getline(file, line, frame.f_globals).strip()
            yield file.replace('"', "'"), line, frame.f_code.co_name, source


def keep(tasks: Sequence[EndTask], transaction: Transaction) -> None:
    """Write the tracebacks of attempts that have failed, in the transaction of their ends."""
    rows = [
        (task.attempt.job.job_id, task.attempt.execution.attempt, task.traceback) for task in tasks if task.traceback
    ]
    keep_tracebacks(transaction, rows)


def log_failure(running: HeldAttempt, task: EndTask) -> None:
    """Log a failed attempt in one line, once its end is durable."""
    move, command = task.outcome, task.command
    if not isinstance(move, Move) or not isinstance(command, Fail):
        return
    job, step = running.job, move.step(JOB)
    place = where(task.traceback)
    state = step.target if step else job.state
    then = (
        f"next attempt at {move.run_at.isoformat()}" if move.run_at and state == JobState.PENDING else f"it is {state}"
    )
    logger.warning(
        "job %s (%s): attempt %s failed%s: %s; %s",
        job.job_id, job.operation, running.attempt, f" at {place}" if place else "", command.message, then,
        extra={
            "job_id": job.job_id, "operation": job.operation, "attempt": running.attempt, "error_code": command.code,
        },
    )  # fmt: skip
