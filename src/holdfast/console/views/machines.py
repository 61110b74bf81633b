"""The machines as drawings, with the number of records in each state where the ledger keeps one.

Invariants: every drawing is made from the transition table; its texts are names of the table.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import msgspec

from holdfast.console.views.charts import JobGraph, Label, job_graph
from holdfast.diagrams.layout import Point, lay_out
from holdfast.diagrams.model import Arrow, Diagram, diagrams
from holdfast.explain.values import by_state
from holdfast.store.transaction import Reading

STATE_CHAR, EVENT_CHAR = 7.4, 6.6  # the advance of a letter at 12 and 11 px
MARGIN = 8.0
BOX = 34.0
LINE = 14.0


class DrawnState(msgspec.Struct, frozen=True):
    """The box of a state."""

    name: str
    x: float
    y: float
    width: float
    height: float
    final: bool


class DrawnArrow(msgspec.Struct, frozen=True):
    """An arrow: its line, its head and its events."""

    line: str
    head: str
    governed: bool
    labels: tuple[Label, ...]


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """One machine, drawn from left to right."""

    name: str
    width: float
    height: float
    dot: Label
    states: tuple[DrawnState, ...]
    arrows: tuple[DrawnArrow, ...]
    label: str
    edges: int


class MachinesView(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of a job with live counts, and the others."""

    job: JobGraph
    counts: dict[str, int]
    drawings: tuple[Drawing, ...]


def machines_view(reading: Reading) -> MachinesView:
    counts = by_state(reading.counts.current())
    return MachinesView(job=job_graph(counts=counts), counts=counts, drawings=_drawings())


@cache
def _drawings() -> tuple[Drawing, ...]:
    """Return the drawings of the other machines; they are made once, because the layout takes a while."""
    return tuple(draw(diagram) for diagram in diagrams() if diagram.name != "JOB")


def draw(diagram: Diagram) -> Drawing:
    sizes: dict[str | None, tuple[float, float]] = {
        state: (len(state) * STATE_CHAR + 24, BOX) for state in diagram.states
    }
    sizes[None] = (12.0, 12.0)
    labels = [
        (max((len(text) for text in _events(arrow)), default=0) * EVENT_CHAR + 8, LINE * len(_events(arrow)) + 4)
        for arrow in diagram.arrows
    ]
    layout = lay_out(diagram, sizes, labels)
    dot = layout.places[None]
    arrows = []
    for wire in layout.wires:
        line, head = _path(layout.line(wire))
        texts = _events(wire.arrow)
        top = wire.label.y - (len(texts) - 1) * LINE / 2 + 4
        arrows.append(
            DrawnArrow(
                line,
                head,
                wire.arrow.governed,
                tuple(Label(round(wire.label.x, 1), round(top + i * LINE, 1), text) for i, text in enumerate(texts)),
            )
        )
    return Drawing(
        name=diagram.name,
        width=round(layout.width + 2 * MARGIN, 1),
        height=round(layout.height + 2 * MARGIN, 1),
        dot=Label(round(dot.x, 1), round(dot.y, 1), ""),
        states=tuple(
            DrawnState(
                name,
                round(slot.x - slot.width / 2, 1),
                round(slot.y - slot.height / 2, 1),
                round(slot.width, 1),
                round(slot.height, 1),
                name in diagram.final,
            )
            for name, slot in layout.places.items()
            if name is not None
        ),
        arrows=tuple(arrows),
        label=f"The machine {diagram.name}: "
        + "; ".join(f"{a.source or 'new'} to {a.target} by {', '.join(a.events) or 'a path'}" for a in diagram.arrows),
        edges=len(diagram.arrows),
    )


def _events(arrow: Arrow) -> tuple[str, ...]:
    return (*arrow.events, "by grant") if arrow.governed else arrow.events


def _path(stretches: list[tuple[Point, Point]]) -> tuple[str, str]:
    """Return the line of an arrow and its head."""
    (x, y), _ = stretches[0]
    parts = [f"M{x:.1f} {y:.1f}"]
    for (_, (x1, y1)), ((x2, y2), (x3, y3)) in pairwise(stretches):
        middle = (x1 + x2) / 2
        parts.append(f"C{middle:.1f} {y1:.1f} {middle:.1f} {y2:.1f} {x2:.1f} {y2:.1f}")
        if (x3, y3) != (x2, y2):
            parts.append(f"L{x3:.1f} {y3:.1f}")
    (x, y), before = stretches[-1][1], stretches[-2][1]
    back = -8 if before[0] < x else 8
    return "".join(parts), f"M{x:.1f} {y:.1f}l{back} -4v8z"
