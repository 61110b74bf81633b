"""Machines as text: Mermaid for pages, plain ASCII for terminals, JSON values for programs.

Invariants: each form carries every edge exactly once and can be read back; the ASCII form is ASCII.
"""

from collections.abc import Iterator, Sequence

from holdfast.core.machine import NOTHING
from holdfast.diagrams.model import Arrow, Diagram, Route

GOVERNED = "(governed)"
BIRTH = "[*]"  # the source of a new record's arrow, in Mermaid and in ASCII


# ---------------------------------------------------------------------------------------------------------------------
# Mermaid


def mermaid(drawn: Sequence[Diagram]) -> str:
    """Return one Mermaid state diagram; several machines are side by side, their states prefixed."""
    lines = ["stateDiagram-v2", "    direction LR"]
    if len(drawn) == 1:
        lines += _indented(_mermaid_body(drawn[0], ""))
    else:
        for diagram in drawn:
            lines += _indented([f"state {diagram.name} {{", *_indented(_mermaid_states(diagram)), "}"])
    lines += _indented(_mermaid_final(drawn))
    return "\n".join(lines) + "\n"


def _mermaid_states(diagram: Diagram) -> list[str]:
    prefix = f"{diagram.name}_"
    names = [f'state "{state}" as {prefix}{state}' for state in diagram.states]
    return ["direction LR", *names, *_mermaid_body(diagram, prefix)]


def _mermaid_body(diagram: Diagram, prefix: str) -> list[str]:
    lines = [
        f"{prefix + arrow.source if arrow.source else BIRTH} --> {prefix}{arrow.target} : {_label(arrow)}"
        for arrow in diagram.arrows
    ]
    for place, routes in _by_first_state(diagram).items():
        lines += [f"note right of {prefix}{place}", "    in one write"]
        lines += [f"    {', '.join(route.events)}: {_path(route, ' → ', NOTHING)}" for route in routes]
        lines += ["end note"]
    return lines


def _mermaid_final(drawn: Sequence[Diagram]) -> list[str]:
    final = [
        state if len(drawn) == 1 else f"{diagram.name}_{state}"
        for diagram in drawn
        for state in diagram.states
        if state in diagram.final
    ]
    return ["classDef final stroke-width:4px", f"class {','.join(final)} final"]


def _by_first_state(diagram: Diagram) -> dict[str, list[Route]]:
    places: dict[str, list[Route]] = {}
    for route in diagram.routes:
        places.setdefault(route.states[0] or route.states[1] or "", []).append(route)
    return places


# ---------------------------------------------------------------------------------------------------------------------
# ASCII


def ascii_text(drawn: Sequence[Diagram]) -> str:
    """Return the machines as lines of arrows, grouped by the state where they start."""
    return "\n".join("\n".join(_ascii(diagram)) + "\n" for diagram in drawn)


def _ascii(diagram: Diagram) -> Iterator[str]:
    yield diagram.name
    starts = max(len(arrow.source or BIRTH) for arrow in diagram.arrows)
    labels = max(len(_label(arrow)) for arrow in diagram.arrows)
    sources: list[str | None] = [None, *diagram.states]
    for source in sources:
        start = source or BIRTH
        for arrow in (arrow for arrow in diagram.arrows if arrow.source == source):
            line = "=" if arrow.governed else "-"
            shaft = f"{line * 2} {_label(arrow)} ".ljust(labels + 6, line)
            end = f"({arrow.target})" if arrow.target in diagram.final else arrow.target
            yield f"  {start:<{starts}}  {shaft}> {end}"
            start = ""
    if diagram.routes:
        yield "  in one write:"
        width = max(len(", ".join(route.events)) for route in diagram.routes)
        for route in diagram.routes:
            yield f"    {', '.join(route.events):<{width}}  {_path(route, ' -> ', BIRTH)}"
    notes = [f"{BIRTH} new record", "(state) final"]
    if any(arrow.governed for arrow in diagram.arrows):
        notes.append("==> needs a grant")
    yield f"  {', '.join(notes)}"


# ---------------------------------------------------------------------------------------------------------------------
# JSON


def json_value(diagram: Diagram) -> dict[str, object]:
    """Return the machine as a JSON value: its states, its edges, and the paths that take several."""
    return {
        "machine": diagram.name,
        "states": list(diagram.states),
        "final": [state for state in diagram.states if state in diagram.final],
        "edges": [
            {
                "source": arrow.source,
                "target": arrow.target,
                "events": list(arrow.events),
                "governed": arrow.governed,
            }
            for arrow in diagram.arrows
        ],
        "paths": [{"events": list(route.events), "states": list(route.states)} for route in diagram.routes],
    }


# ---------------------------------------------------------------------------------------------------------------------
# Words


def _label(arrow: Arrow) -> str:
    return ", ".join(arrow.events) + (f" {GOVERNED}" if arrow.governed else "")


def _path(route: Route, arrow: str, nothing: str) -> str:
    return arrow.join(state or nothing for state in route.states)


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]
