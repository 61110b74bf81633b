"""Plots as plain SVG: bars on a logarithmic scale, and lines. No library: the page shows a few shapes.

Invariants: a plot is a function of its numbers alone; text is escaped; a light and a dark page can both show it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, LEFT, RIGHT, ROW = 720, 190, 90, 22
COLOURS = ("#1f6feb", "#d1842c", "#2da44e", "#a371f7", "#cf222e", "#6e7781")
STYLE = "font: 12px system-ui, sans-serif"


def _svg(height: float, title: str, shapes: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" style="{STYLE}" role="img">'
    back = f'<rect width="{WIDTH}" height="{height:g}" fill="#ffffff"/>'
    words = f'<title>{escape(title)}</title>{back}<text x="8" y="18" font-weight="bold">{escape(title)}</text>'
    return "\n".join([head, words, *shapes, "</svg>"]) + "\n"


def _text(x: float, y: float, words: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def short(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _decades(low: float, high: float) -> list[float]:
    return [10.0**n for n in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def _round_step(least: float) -> float:
    """Return the next round number: 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= least)


def bars(title: str, values: Mapping[str, float], *, ours: str = "holdfast") -> str:
    """Return one bar a name, on a logarithmic scale, in the order given."""
    marks = _decades(min(values.values()), max(values.values()))
    low, span = math.log10(marks[0]), max(1.0, math.log10(marks[-1]) - math.log10(marks[0]))
    room = WIDTH - LEFT - RIGHT
    height = 34 + ROW * len(values) + 20
    shapes = []
    for mark in marks:
        x = LEFT + room * (math.log10(mark) - low) / span
        shapes.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="28" y2="{height - 18}" stroke="#d0d7de"/>')
        shapes.append(_text(x, height - 5, short(mark), anchor="middle"))
    for index, (name, value) in enumerate(values.items()):
        y = 34 + ROW * index
        long = max(1.0, room * (math.log10(value) - low) / span)
        colour = COLOURS[0] if name.startswith(ours) else COLOURS[5]
        shapes.append(f'<rect x="{LEFT}" y="{y}" width="{long:.1f}" height="{ROW - 6}" fill="{colour}"/>')
        shapes.append(_text(LEFT - 6, y + 13, name, anchor="end"))
        shapes.append(_text(LEFT + long + 5, y + 13, short(value)))
    return _svg(height, title, shapes)


def lines(title: str, series: Mapping[str, Sequence[tuple[float, float]]], *, x_words: str, top: float = 0) -> str:
    """Return one line a name over points (x, y); y begins at 0."""
    points = [point for line in series.values() for point in line]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    step = _round_step(max(top, *(y for _, y in points)) / 4)
    high = 4 * step
    height, base, room = 260, 220, WIDTH - 70 - 150

    def at(x: float, y: float) -> tuple[float, float]:
        return 70 + room * (x - left) / max(right - left, 1e-9), base - (base - 34) * y / high

    shapes = [_text(70 + room / 2, height - 8, x_words, anchor="middle")]
    for mark in range(5):
        _, y = at(left, mark * step)
        shapes.append(f'<line x1="70" x2="{70 + room}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d0d7de"/>')
        shapes.append(_text(64, y + 4, short(mark * step), anchor="end"))
    ticks = sorted({x for x, _ in points})
    ticks = ticks[1::2] if len(ticks) > 6 else ticks
    shapes += [_text(at(x, 0)[0], base + 16, short(x), anchor="middle") for x in ticks]
    for index, (name, line) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in line)
        shapes.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = at(*line[-1])
        shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' + _text(x + 7, y + 4, name))
    return _svg(height, title, shapes)
