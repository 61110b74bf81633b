"""A run of a procedure as a picture: its steps from top to bottom, and beside them how far it was undone.

        +  S0_LOOK      performed  11:35:31  ann
        |
        -  PUT_A        undone     11:35:32  ann   ^
        |                                          |
        x  PUT_B        failed  -------------------+  COMP_B
        :
        .  PUT_C        open

Invariants: every step of the run stands in the picture once, in order; the plain form is ASCII; what a line is about
goes with it, so that a terminal can give it a colour.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from holdfast.core.machines import ProcedureState
from holdfast.governance.runs.status import BY_OPERATOR, RunStatus, StepStatus


class Signs(NamedTuple):
    """What a picture is drawn with."""

    marks: dict[str, str]
    way: str  # from one step to the next: taken
    rest: str  # and not taken yet
    line: str
    corner: str
    up: str
    side: str
    out: str


PLAIN = Signs(
    {"performed": "+", "undone": "-", "failed": "x", "stuck": "!", "open": "."}, "|", ":", "-", "+", "^", "|", ">"
)
FINE = Signs(
    {"performed": "●", "undone": "◌", "failed": "✖", "stuck": "!", "open": "○"}, "│", "┊", "─", "╯", "▲", "│", "▶"
)


class Line(NamedTuple):
    """A line of the picture, and the fate of the step that it is about."""

    text: str
    fate: str


def run_lines(standing: RunStatus, signs: Signs = FINE) -> list[Line]:
    """Return the picture, line by line."""
    steps = standing.steps
    left = [_told(step, signs, steps, standing.run.created_at) for step in steps]
    turned = _turning_point(standing)
    if turned is None:
        return list(_joined(steps, left, signs))
    # The way back: up from where it turned, past every step that was undone.
    lane = max(len(text) for text in left) + 2
    back = [step.number for step in steps if step.fate == "undone"]
    top = min(back, default=turned)
    drawn = []
    for line, number in zip(_joined(steps, left, signs), _rows(len(steps)), strict=True):
        text = line.text
        if number == turned:
            shaft = signs.line * (lane - len(text) - 1)
            text = f"{text} {shaft}{signs.corner if back else signs.out} {standing.run.stop_state}"
        elif number == top and back:
            text = f"{text.ljust(lane)}{signs.up}"
        elif top < number < turned:
            text = f"{text.ljust(lane)}{signs.side}"
        drawn.append(Line(text, line.fate))
    return drawn


def _turning_point(standing: RunStatus) -> float | None:
    """Return where the run turned back: at the step that failed, or below the last that was performed."""
    if standing.run.state not in (ProcedureState.COMPENSATING, ProcedureState.STOPPED):
        return None
    if standing.run.stop_state != BY_OPERATOR:
        return next((step.number for step in standing.steps if step.fate == "failed"), None)
    reached = [step.number for step in standing.steps if step.fate in ("performed", "undone", "stuck")]
    return max(reached, default=0) + 0.5


def _rows(steps: int) -> Iterator[float]:
    """Yield the number of the step that each line is of; the lines between two have a half."""
    for number in range(steps):
        yield number
        if number < steps - 1:
            yield number + 0.5


def _joined(steps: tuple[StepStatus, ...], left: list[str], signs: Signs) -> Iterator[Line]:
    for step, text in zip(steps, left, strict=True):
        yield Line(text, step.fate)
        if step.number < len(steps) - 1:
            taken = steps[step.number + 1].fate != "open"
            yield Line(f"  {signs.way if taken else signs.rest}", "way")


def _told(step: StepStatus, signs: Signs, steps: tuple[StepStatus, ...], begun: datetime) -> str:
    width = max(len(each.name) for each in steps)
    when = "" if step.at is None else f"  {_clock(step.at, begun)}  {step.actor}"
    return f"  {signs.marks[step.fate]}  {step.name.ljust(width)}  {step.fate.ljust(9)}{when}".rstrip()


def _clock(moment: datetime, begun: datetime) -> str:
    """Return a time, with its date where that is another than the beginning's."""
    text = moment.replace(tzinfo=None).isoformat(" ", timespec="seconds")
    return text.split()[1] if moment.date() == begun.date() else text
