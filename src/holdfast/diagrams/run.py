"""A run of a procedure as a picture: its steps from top to bottom, and beside them the steps that were undone.

        +  S0_LOOK      performed  11:35:31  ann
        |
        -  PUT_A        undone     11:35:32  ann   ^
        |                                          |
        x  PUT_B        failed  -------------------+  COMP_B
        :
        .  PUT_C        open

Invariants: every step of the run is in the picture once, in order; the plain form is ASCII; each line has the fate of
its step, so that a terminal can colour it.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from holdfast.core.machines import ProcedureState
from holdfast.governance.runs.status import BY_OPERATOR, RunStatus, StepStatus


class Symbols(NamedTuple):
    """The characters of a picture."""

    marks: dict[str, str]
    way: str  # between two steps: the second one has begun
    rest: str  # between two steps: the second one has not begun
    line: str
    corner: str
    up: str
    side: str
    out: str


PLAIN = Symbols(
    {"performed": "+", "undone": "-", "failed": "x", "stuck": "!", "open": "."}, "|", ":", "-", "+", "^", "|", ">"
)
FINE = Symbols(
    {"performed": "●", "undone": "◌", "failed": "✖", "stuck": "!", "open": "○"}, "│", "┊", "─", "╯", "▲", "│", "▶"
)


class Line(NamedTuple):
    """A line of the picture, and the fate of its step."""

    text: str
    fate: str


def run_lines(status: RunStatus, signs: Symbols = FINE) -> list[Line]:
    """Return the picture, line by line."""
    steps = status.steps
    left = [_step_text(step, signs, steps, status.run.created_at) for step in steps]
    turned = _turning_point(status)
    if turned is None:
        return list(_joined(steps, left, signs))
    # An arrow goes up from the turning point, past every step that was undone.
    lane = max(len(text) for text in left) + 2
    back = [step.number for step in steps if step.fate == "undone"]
    top = min(back, default=turned)
    drawn = []
    for line, number in zip(_joined(steps, left, signs), _rows(len(steps)), strict=True):
        text = line.text
        if number == turned:
            shaft = signs.line * (lane - len(text) - 1)
            text = f"{text} {shaft}{signs.corner if back else signs.out} {status.run.stop_state}"
        elif number == top and back:
            text = f"{text.ljust(lane)}{signs.up}"
        elif top < number < turned:
            text = f"{text.ljust(lane)}{signs.side}"
        drawn.append(Line(text, line.fate))
    return drawn


def _turning_point(status: RunStatus) -> float | None:
    """Return where the run turned back: at the step that failed, or below the last that was performed."""
    if status.run.state not in (ProcedureState.COMPENSATING, ProcedureState.STOPPED):
        return None
    if status.run.stop_state != BY_OPERATOR:
        return next((step.number for step in status.steps if step.fate == "failed"), None)
    reached = [step.number for step in status.steps if step.fate in ("performed", "undone", "stuck")]
    return max(reached, default=0) + 0.5


def _rows(steps: int) -> Iterator[float]:
    """Yield the number of each line's step; a line between two steps has a half."""
    for number in range(steps):
        yield number
        if number < steps - 1:
            yield number + 0.5


def _joined(steps: tuple[StepStatus, ...], left: list[str], signs: Symbols) -> Iterator[Line]:
    for step, text in zip(steps, left, strict=True):
        yield Line(text, step.fate)
        if step.number < len(steps) - 1:
            taken = steps[step.number + 1].fate != "open"
            yield Line(f"  {signs.way if taken else signs.rest}", "way")


def _step_text(step: StepStatus, signs: Symbols, steps: tuple[StepStatus, ...], begun: datetime) -> str:
    width = max(len(each.name) for each in steps)
    when = "" if step.at is None else f"  {_clock(step.at, begun)}  {step.actor}"
    return f"  {signs.marks[step.fate]}  {step.name.ljust(width)}  {step.fate.ljust(9)}{when}".rstrip()


def _clock(moment: datetime, begun: datetime) -> str:
    """Return a time, with its date if it is not the date of the start."""
    text = moment.replace(tzinfo=None).isoformat(" ", timespec="seconds")
    return text.split()[1] if moment.date() == begun.date() else text
