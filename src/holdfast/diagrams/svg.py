"""Machines as SVG: drawn here, without any other tool.

Invariants: every state and every event is text in the picture; a governed arrow is dashed and says so; the paths that
take several edges in one write are listed below, edge by edge. The picture follows the reader's light or dark theme.
"""

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from holdfast.core.machine import NOTHING
from holdfast.diagrams.layout import Layout, Point, Slot, Wire, lay_out
from holdfast.diagrams.model import Arrow, Diagram, Route

MARGIN = 28.0
STATE_CHAR, LABEL_CHAR = 8.43, 7.23  # the advance of a monospaced letter at 14 and 12 px
LABEL_LINE = 16.0
TITLE_HEIGHT = 40.0
ROUTE_HEIGHT = 32.0

STYLE = """
  .holdfast { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
  .holdfast .canvas { fill: #ffffff; }
  .holdfast .title { font-size: 17px; font-weight: 700; fill: #0f172a; }
  .holdfast .note { font-size: 12px; fill: #64748b; }
  .holdfast .state { fill: #eff6ff; stroke: #2563eb; stroke-width: 1.6; }
  .holdfast .final { fill: #ecfdf5; stroke: #059669; stroke-width: 1.6; }
  .holdfast .inner { fill: none; stroke: #059669; stroke-width: 1; }
  .holdfast .name { font-size: 14px; font-weight: 600; fill: #0f172a; text-anchor: middle; }
  .holdfast .chip { font-size: 12px; fill: #0f172a; text-anchor: middle; }
  .holdfast .birth { fill: #334155; }
  .holdfast .arrow { fill: none; stroke: #64748b; stroke-width: 1.6; }
  .holdfast .head { fill: #64748b; }
  .holdfast .event { font-size: 12px; fill: #334155; text-anchor: middle; }
  .holdfast .plate { fill: #ffffff; }
  .holdfast .arrow.governed { stroke: #b45309; stroke-dasharray: 6 4; }
  .holdfast .head.governed { fill: #b45309; }
  .holdfast .event.governed { fill: #b45309; }
  @media (prefers-color-scheme: dark) {
    .holdfast .canvas, .holdfast .plate { fill: #0b1120; }
    .holdfast .title, .holdfast .name, .holdfast .chip { fill: #e2e8f0; }
    .holdfast .note { fill: #94a3b8; }
    .holdfast .state { fill: #172554; stroke: #60a5fa; }
    .holdfast .final { fill: #052e2b; stroke: #34d399; }
    .holdfast .inner { stroke: #34d399; }
    .holdfast .birth { fill: #cbd5e1; }
    .holdfast .arrow { stroke: #94a3b8; }
    .holdfast .head { fill: #94a3b8; }
    .holdfast .event { fill: #cbd5e1; }
    .holdfast .arrow.governed { stroke: #fbbf24; }
    .holdfast .head.governed, .holdfast .event.governed { fill: #fbbf24; }
  }
"""


def svg(drawn: Sequence[Diagram]) -> str:
    """Return one SVG picture of these machines, one below the other."""
    parts: list[str] = []
    width, y = 0.0, MARGIN
    for diagram in drawn:
        part, part_width, part_height = _machine(diagram)
        parts.append(f'<g id="{diagram.name}" transform="translate({_n(MARGIN)} {_n(y)})">\n{part}\n</g>')
        width = max(width, part_width)
        y += part_height + MARGIN * 1.5
    width, height = width + MARGIN * 2, y - MARGIN * 0.5
    names = ", ".join(diagram.name for diagram in drawn)
    size = f'width="{_n(width)}" height="{_n(height)}"'
    box = f"0 0 {_n(width)} {_n(height)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="holdfast" role="img" {size} viewBox="{box}">',
            f"<title>State machines of Holdfast: {escape(names)}</title>",
            f"<style>{STYLE}</style>",
            "<defs>",
            *(_head(name) for name in ("", "governed")),
            "</defs>",
            f'<rect class="canvas" {size}/>',
            *parts,
            "</svg>\n",
        ]
    )


def _machine(diagram: Diagram) -> tuple[str, float, float]:
    sizes: dict[str | None, tuple[float, float]] = {
        state: (len(state) * STATE_CHAR + 36, 40.0) for state in diagram.states
    }
    sizes[None] = (14.0, 14.0)
    layout = lay_out(diagram, sizes, [_label_size(arrow) for arrow in diagram.arrows])
    lines = [_text("title", 0, 16, diagram.name, anchor="start")]
    lines.append(f'<g transform="translate(0 {_n(TITLE_HEIGHT)})">')
    lines += [_wire(layout, wire) for wire in layout.wires]
    lines += [_plate(wire) for wire in layout.wires]
    lines += [_box(diagram, state, slot) for state, slot in layout.places.items()]
    lines.append("</g>")
    height = TITLE_HEIGHT + layout.height
    width = layout.width
    if diagram.routes:
        height += ROUTE_HEIGHT
        lines.append(_text("note", 0, height, "in one write:", anchor="start"))
        events_width = max(len(", ".join(route.events)) for route in diagram.routes) * LABEL_CHAR
        for route in diagram.routes:
            height += ROUTE_HEIGHT
            drawn, end = _route(diagram, route, height - 4, events_width)
            lines.append(drawn)
            width = max(width, end)
    return "\n".join(lines), width, height


# ---------------------------------------------------------------------------------------------------------------------
# States


def _box(diagram: Diagram, state: str | None, slot: Slot) -> str:
    if state is None:
        return f'<circle class="birth" cx="{_n(slot.x)}" cy="{_n(slot.y)}" r="{_n(slot.width / 2)}"/>'
    final = state in diagram.final
    shapes = [_rect("final" if final else "state", slot, 0, 9)]
    if final:
        shapes.append(_rect("inner", slot, 4, 6))
    return "\n".join([*shapes, _text("name", slot.x, slot.y + 5, state)])


def _rect(style: str, slot: Slot, inset: float, radius: float) -> str:
    return (
        f'<rect class="{style}" x="{_n(slot.x - slot.width / 2 + inset)}" y="{_n(slot.y - slot.height / 2 + inset)}"'
        f' width="{_n(slot.width - inset * 2)}" height="{_n(slot.height - inset * 2)}" rx="{_n(radius)}"/>'
    )


# ---------------------------------------------------------------------------------------------------------------------
# Arrows


def _words(arrow: Arrow) -> list[str]:
    return [*arrow.events, *(["needs a grant"] if arrow.governed else [])]


def _label_size(arrow: Arrow) -> tuple[float, float]:
    words = _words(arrow)
    return max(map(len, words)) * LABEL_CHAR + 12, len(words) * LABEL_LINE + 4


def _wire(layout: Layout, wire: Wire) -> str:
    stretches = layout.line(wire)
    path = f"M {_p(stretches[0][0])}"
    for (_, start), (end, beyond) in pairwise(stretches):
        middle = (start[0] + end[0]) / 2
        path += f" C {_p((middle, start[1]))}, {_p((middle, end[1]))}, {_p(end)}"
        if beyond != end:
            path += f" L {_p(beyond)}"
    style = " governed" if wire.arrow.governed else ""
    return f'<path class="arrow{style}" d="{path}" marker-end="url(#head{style.strip()})"/>'


def _plate(wire: Wire) -> str:
    words, slot = _words(wire.arrow), wire.label
    style = "event governed" if wire.arrow.governed else "event"
    top = slot.y - len(words) * LABEL_LINE / 2 + 12
    lines = [_text(style, slot.x, top + i * LABEL_LINE, word) for i, word in enumerate(words)]
    return "\n".join([_rect("plate", slot, 0, 4), *lines])


def _head(style: str) -> str:
    return (
        f'<marker id="head{style}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9"'
        ' markerUnits="userSpaceOnUse" orient="auto">'
        f'<path class="head {style}" d="M 0 0.5 L 10 5 L 0 9.5 z"/></marker>'
    )


# ---------------------------------------------------------------------------------------------------------------------
# Paths of several edges


def _route(diagram: Diagram, route: Route, y: float, events_width: float) -> tuple[str, float]:
    """Draw one path as a row of small states, and return it with where it ends."""
    lines = [_text("event", 0, y, ", ".join(route.events), anchor="start")]
    x = events_width + 24
    for position, state in enumerate(route.states):
        name = state or NOTHING
        if position:
            line = f"M {_p((x, y - 4))} L {_p((x + 26, y - 4))}"
            lines.append(f'<path class="arrow" d="{line}" marker-end="url(#head)"/>')
            x += 28
        chip = Slot(0, len(name) * LABEL_CHAR + 18, 24, state=True, y=y - 4)
        chip.x = x + chip.width / 2
        lines += [_rect("final" if state in diagram.final else "state", chip, 0, 6), _text("chip", chip.x, y, name)]
        x += chip.width + 2
    return "\n".join(lines), x


# ---------------------------------------------------------------------------------------------------------------------
# Marks


def _text(style: str, x: float, y: float, words: str, *, anchor: str | None = None) -> str:
    placed = f' style="text-anchor: {anchor}"' if anchor else ""
    return f'<text class="{style}" x="{_n(x)}" y="{_n(y)}"{placed}>{escape(words)}</text>'


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _p(point: Point) -> str:
    return f"{_n(point[0])} {_n(point[1])}"
