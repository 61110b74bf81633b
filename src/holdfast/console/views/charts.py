"""Charts as geometry: the paths and boxes that a template draws as SVG.

Invariants: a chart has a text alternative for readers who cannot see it; coordinates are numbers that the functions
here made, never data of a user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import log10

import msgspec

from holdfast.console.views.words import exact_span
from holdfast.core.machines import JOB, JobState

BARS = 30
BAR, STEP, HEIGHT, BASE = 3, 4, 22, 23


class Sparkline(msgspec.Struct, frozen=True):
    """Bars of the last hour, 120 by 24: one path, and one for the part that failed."""

    bars: str
    failures: str
    label: str


def sparkline(values: Sequence[int], label: str, failed: Sequence[int] = ()) -> Sparkline:
    """Return a sparkline of as many bars as values; `failed` is the part of each that failed, drawn on top."""
    parts = list(failed) or [0] * len(values)
    most = max((value + part for value, part in zip(values, parts, strict=True)), default=0)
    bars, tops = [], []
    for place, (value, part) in enumerate(zip(values, parts, strict=True)):
        if not value + part:
            continue
        height = max(1, round((value + part) * HEIGHT / most))
        top = min(height, max(2, round(part * HEIGHT / most))) if part else 0
        x = place * STEP
        if height > top:
            bars.append(f"M{x} {BASE}v-{height - top}h{BAR}v{height - top}")
        if top:
            tops.append(f"M{x} {BASE - height + top}v-{top}h{BAR}v{top}")
    return Sparkline("".join(bars), "".join(tops), label)


def binned(minutes: Sequence[int], bars: int = BARS) -> list[int]:
    """Return the sums of equal groups of minutes, one a bar."""
    size = len(minutes) // bars
    return [sum(minutes[place * size : (place + 1) * size]) for place in range(bars)]


# ---------------------------------------------------------------------------------------------------------------------
# The ribbon: where the time went

RIBBON = 912
LEAST, LETTER = 54.0, 6.1  # the narrowest segment, and the width of a letter of its texts
SEGMENTS_MAX = 11


class Span(msgspec.Struct, frozen=True):
    """One part of a job's life: what it did, for how long, and from when on."""

    kind: str  # w: waited, r: ran, k: held, f: rested as failed or quarantined
    label: str
    seconds: float
    begins: str  # the clock time
    failed: bool = False


class Segment(msgspec.Struct, frozen=True):
    """A span with its place in the ribbon."""

    kind: str
    label: str
    duration: str
    begins: str
    failed: bool
    x: float
    width: float


class Ribbon(msgspec.Struct, frozen=True):
    """The spans of a job in order, their widths by the logarithm of their durations."""

    segments: tuple[Segment, ...]
    label: str
    left_out: int


def ribbon(spans: Sequence[Span]) -> Ribbon:
    """Return the ribbon of a job; of many spans, the first two and the last ones."""
    left_out = max(0, len(spans) - SEGMENTS_MAX)
    shown = list(spans) if not left_out else [*spans[:2], *spans[2 + left_out :]]
    floors = [max(LEAST, LETTER * max(len(s.label), len(exact_span(s.seconds)), len(s.begins)) + 14) for s in shown]
    weights = [log10(1 + span.seconds * 10) + 0.2 for span in shown]
    spare = RIBBON - 4 - sum(floors) - 2 * max(0, len(shown) - 1)
    share = max(0.0, spare) / (sum(weights) or 1)
    squeeze = 1.0 if spare >= 0 else (RIBBON - 4 - 2 * max(0, len(shown) - 1)) / sum(floors)
    segments, x = [], 2.0
    for span, floor, weight in zip(shown, floors, weights, strict=True):
        width = floor * squeeze + weight * share
        segments.append(
            Segment(
                span.kind,
                span.label,
                exact_span(span.seconds),
                span.begins,
                span.failed,
                round(x, 1),
                round(width, 1),
            )
        )
        x += width + 2
    words = ", ".join(f"{span.label} {exact_span(span.seconds)}{' failed' if span.failed else ''}" for span in shown)
    return Ribbon(tuple(segments), f"Where the time went: {words}", left_out)


# ---------------------------------------------------------------------------------------------------------------------
# The machine of a job

# The edges of JOB as they are drawn: source, target, line, head, and the place of the label.
_EDGES: tuple[tuple[str | None, str, str, str, tuple[tuple[int, int], ...]], ...] = (
    (None, "pending", "M13 37H40", "M48 37l-8-4v8z", ((27, 14),)),
    ("pending", "running", "M152 37H200", "M208 37l-8-4v8z", ((180, 14),)),
    ("running", "succeeded", "M312 37H352", "M360 37l-8-4v8z", ((336, 14),)),
    ("running", "failed", "M260 54V126", "M260 134l-4-8h8z", ((290, 98),)),
    ("failed", "pending", "M216 134C190 112 160 96 134 62", "M129 54l-4 8h8z", ((202, 88),)),
    ("failed", "quarantined", "M208 151H160", "M152 151l8-4v8z", ((181, 182),)),
    ("pending", "quarantined", "M104 54V126", "M104 134l-4-8h8z", ()),
    ("quarantined", "pending", "M72 134V62", "M72 54l-4 8h8z", ((36, 90), (36, 104))),
)
_NAMES = {
    (None, "pending"): "submit",
    ("pending", "running"): "claim",
    ("running", "succeeded"): "succeed",
    ("running", "failed"): "fail",
    ("failed", "pending"): "retry",
    ("failed", "quarantined"): "quarantine",
    ("pending", "quarantined"): "quarantine",
    ("quarantined", "pending"): "release",
}
_BOXES = {
    "pending": (48, 20, 104),
    "running": (208, 20, 104),
    "succeeded": (360, 20, 92),
    "failed": (208, 134, 104),
    "quarantined": (48, 134, 104),
}


class Label(msgspec.Struct, frozen=True):
    """A text of a drawing, at its place."""

    x: float
    y: float
    text: str


class GraphEdge(msgspec.Struct, frozen=True):
    """An edge: its line, its head, whether it was walked, and whether it needs a grant."""

    line: str
    head: str
    walked: bool
    governed: bool
    labels: tuple[Label, ...]


class GraphState(msgspec.Struct, frozen=True):
    """A state: its box, whether the job is in it or was, and how many jobs are in it if the drawing shows that."""

    name: str
    x: float
    y: float
    width: float
    now: bool
    was: bool
    final: bool
    count: int | None


class JobGraph(msgspec.Struct, frozen=True):
    """The machine of a job: pending, running and succeeded above, quarantined and failed below."""

    edges: tuple[GraphEdge, ...]
    states: tuple[GraphState, ...]
    label: str


Walk = Sequence[tuple[str | None, str]]
"""The edges that a job took, as pairs of states, in order."""


def job_graph(walk: Walk = (), state: str | None = None, counts: Mapping[str, int] | None = None) -> JobGraph:
    """Return the machine of a job with the edges that it took and its state, or with the jobs in each state."""
    taken = Counter(walk)
    governed = {(edge.source, edge.target) for edge in JOB.governed_edges}
    edges = []
    for source, target, line, head, places in _EDGES:
        n = taken[source, target]
        name = _NAMES[source, target] + (f" \N{MULTIPLICATION SIGN}{n}" if n > 1 else "")
        texts = (f"{name},", "by grant") if (source, target) in governed else (name,)
        labels = tuple(Label(x, y, text) for (x, y), text in zip(places, texts, strict=False))
        edges.append(GraphEdge(line, head, n > 0, (source, target) in governed, labels))
    seen = {one for pair in taken for one in pair if one}
    states = tuple(
        GraphState(
            name, x, y, width, name == state, name in seen, JobState(name) in JOB.final,
            None if counts is None else counts[name],
        )
        for name, (x, y, width) in _BOXES.items()
    )  # fmt: skip
    if counts is not None:
        words = ", ".join(f"{counts[name]} {name}" for name in _BOXES)
        return JobGraph(tuple(edges), states, f"The machine of a job, with the jobs in each state: {words}.")
    words = ", ".join(f"{_NAMES.get(pair, pair[1])} {n} times" for pair, n in taken.items())
    return JobGraph(tuple(edges), states, f"The machine of a job. This one: {words or 'no move known'}; now {state}.")
