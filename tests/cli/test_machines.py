"""`holdfast machines`: every form is read back and compared with the transition table."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.entries import entry_edges
from holdfast.core.machine import Edge, Machine
from holdfast.core.machines import JOB, MACHINES
from holdfast.diagrams import Arrow, Diagram, diagrams, find
from holdfast.diagrams.__main__ import main as write_page
from holdfast.diagrams.layout import Slot, lay_out
from tests.cli.commands import holdfast, process

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
EVERY = [*MACHINES.values()]

Edges = dict[Edge, tuple[list[str], bool]]
Paths = list[tuple[list[str], list[str | None]]]


def edges_of(machine: Machine) -> Edges:
    """The machine's edges, each with the events that take it alone and whether it is governed."""
    return {
        edge: ([path.event for path in machine.paths if path.edges == (edge,)], edge in machine.governed_edges)
        for edge in machine.edges
    }


def paths_of(machine: Machine) -> dict[str, list[list[str | None]]]:
    """The paths of two or more edges, by event."""
    found: dict[str, list[list[str | None]]] = {}
    for path in machine.paths:
        if len(path.edges) > 1:
            found.setdefault(path.event, []).append([path.source, *(edge.target for edge in path.edges)])
    return found


def by_event(paths: Paths) -> dict[str, list[list[str | None]]]:
    found: dict[str, list[list[str | None]]] = {}
    for events, states in paths:
        for event in events:
            found.setdefault(event, []).append(states)
    return found


def label(text: str) -> tuple[list[str], bool]:
    return text.removesuffix(" (governed)").split(", "), text.endswith(" (governed)")


def drawn(name: str, form: str) -> str:
    outcome = holdfast("machines", *([name] if name else []), "--format", form)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out


# ---------------------------------------------------------------------------------------------------------------------
# Mermaid


def read_mermaid(text: str, prefix: str = "") -> tuple[Edges, Paths, set[str]]:
    edges: Edges = {}
    paths: Paths = []
    for line in text.splitlines():
        if arrow := re.fullmatch(r" +(\S+) --> (\S+) : (.+)", line):
            source, target = (name.removeprefix(prefix) for name in arrow.group(1, 2))
            edge = Edge(None if source == "[*]" else source, target)
            assert edge not in edges
            edges[edge] = label(arrow.group(3))
        elif route := re.fullmatch(r" +([\w, ]+): (.+ → .+)", line):
            states = [None if state == "∅" else state for state in route.group(2).split(" → ")]
            paths.append((route.group(1).split(", "), states))
    final = re.search(r"class (\S+) final", text)
    return edges, paths, set(final.group(1).split(",")) if final else set()


@pytest.mark.parametrize("machine", EVERY, ids=lambda machine: machine.name)
def test_mermaid_has_exactly_the_edges_of_the_table(machine: Machine) -> None:
    text = drawn(machine.name, "mermaid")
    assert text.startswith("stateDiagram-v2\n")
    edges, paths, final = read_mermaid(text)
    assert edges == edges_of(machine)
    assert by_event(paths) == paths_of(machine)
    assert final == machine.final


@pytest.mark.parametrize("machine", EVERY, ids=lambda machine: machine.name)
def test_one_mermaid_diagram_of_all_machines(machine: Machine) -> None:
    text = drawn("", "mermaid")
    assert text.count("stateDiagram-v2") == 1
    block = re.search(rf"^    state {machine.name} \{{\n(.*?)^    \}}$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    edges, paths, _ = read_mermaid(block.group(1), f"{machine.name}_")
    assert edges == edges_of(machine)
    assert by_event(paths) == paths_of(machine)
    names = re.findall(rf'state "(\w+)" as {machine.name}_(\w+)', block.group(1))
    assert names == [(state, state) for state in machine.states]


# ---------------------------------------------------------------------------------------------------------------------
# ASCII


def read_ascii(text: str) -> tuple[Edges, Paths, set[str]]:
    edges: Edges = {}
    paths: Paths = []
    final = set()
    source = ""
    for line in text.splitlines()[1:]:
        if arrow := re.fullmatch(r"  (\S*) +(--|==) (.+?) (-|=)+> (\S+)", line):
            source = arrow.group(1) or source
            target = arrow.group(5)
            if target.startswith("("):
                target = target.strip("()")
                final.add(target)
            events, governed = label(arrow.group(3))
            assert governed == (arrow.group(2) == "==")
            edges[Edge(None if source == "[*]" else source, target)] = events, governed
        elif route := re.fullmatch(r"    (.+?)  +(\S+ -> .+)", line):
            states = [None if state == "[*]" else state for state in route.group(2).split(" -> ")]
            paths.append((route.group(1).split(", "), states))
    return edges, paths, final


@pytest.mark.parametrize("machine", EVERY, ids=lambda machine: machine.name)
def test_ascii_has_exactly_the_edges_of_the_table(machine: Machine) -> None:
    text = drawn(machine.name, "ascii")
    assert text.isascii()
    assert text.splitlines()[0] == machine.name
    edges, paths, final = read_ascii(text)
    assert edges == edges_of(machine)
    assert by_event(paths) == paths_of(machine)
    assert final == machine.final


def test_ascii_is_what_people_get() -> None:
    assert holdfast("machines", "job").out == drawn("JOB", "ascii")
    together = holdfast("machines").out
    assert together == "\n".join(drawn(diagram.name, "ascii") for diagram in diagrams())


# ---------------------------------------------------------------------------------------------------------------------
# JSON


@pytest.mark.parametrize("machine", EVERY, ids=lambda machine: machine.name)
def test_json_has_exactly_the_edges_of_the_table(machine: Machine) -> None:
    value = holdfast("machines", machine.name, "--json").json
    assert list(value) == ["machine", "states", "final", "edges", "paths"]
    assert (value["machine"], value["states"]) == (machine.name, list(machine.states))
    assert set(value["final"]) == machine.final
    edges = {Edge(edge["source"], edge["target"]): (edge["events"], edge["governed"]) for edge in value["edges"]}
    assert len(value["edges"]) == len(machine.edges)
    assert edges == edges_of(machine)
    assert by_event([(path["events"], path["states"]) for path in value["paths"]]) == paths_of(machine)
    assert json.loads(drawn(machine.name, "json")) == value


def test_json_of_all_machines_is_a_list() -> None:
    values = holdfast("machines", "--json").json
    assert [value["machine"] for value in values] == [
        "JOB", "ENTRY", "EXECUTION", "REQUEST", "GRANT", "PROCEDURE", "STEP", "VALUE", "SWITCH", "SETTING",
    ]  # fmt: skip


def test_a_step_and_a_switch_are_drawn_with_what_needs_a_grant() -> None:
    assert drawn("STEP", "ascii").splitlines() == [
        "STEP",
        "  [*]        -- perform --> performed",
        "  performed  -- undo -----> (undone)",
        "  [*] new record, (state) final",
    ]
    assert drawn("SWITCH", "ascii").splitlines() == [
        "SWITCH",
        "  [*]  -- throw ------------> on",
        "  on   == lift (governed) ==> (off)",
        "  [*] new record, (state) final, ==> needs a grant",
    ]


@pytest.mark.req("G-03")
def test_no_drawing_has_an_edge_from_running_to_pending() -> None:
    edges, _, _ = read_mermaid(drawn("JOB", "mermaid"))
    assert Edge("running", "pending") not in edges
    assert len(edges) == 8


def test_entry_is_drawn_as_the_view_it_is() -> None:
    edges, paths, final = read_mermaid(drawn("entry", "mermaid"))
    assert set(edges) == set(entry_edges())
    assert edges == {
        Edge(None, "Pending"): (["submit"], False),
        Edge("Pending", "Completed"): (["succeed"], False),
        Edge("Pending", "Failed"): (["quarantine", "cancel", "lapse"], False),
    }
    assert (paths, final) == ([], {"Completed", "Failed"})
    assert {event for events, _ in edges.values() for event in events} <= set(JOB.events)


# ---------------------------------------------------------------------------------------------------------------------
# SVG


@pytest.mark.parametrize("machine", EVERY, ids=lambda machine: machine.name)
def test_svg_shows_every_state_event_and_edge(machine: Machine) -> None:
    root = ET.fromstring(drawn(machine.name, "svg"))  # noqa: S314 - our own text
    words = {word for text in root.iter(f"{SVG}text") for word in re.split(r", ", text.text or "")}
    assert set(machine.states) <= words
    assert set(machine.events) <= words
    classes = [path.get("class") for path in root.iter(f"{SVG}path")]
    in_routes = sum(len(set_of) - 1 for set_of in {tuple(s) for many in paths_of(machine).values() for s in many})
    assert classes.count("arrow governed") == len(machine.governed_edges)
    assert classes.count("arrow") == len(machine.edges) - len(machine.governed_edges) + in_routes
    assert sum(rect.get("class") == "inner" for rect in root.iter(f"{SVG}rect")) == len(machine.final)


def test_one_svg_of_all_machines() -> None:
    root = ET.fromstring(drawn("", "svg"))  # noqa: S314 - our own text
    assert [group.get("id") for group in root if group.tag == f"{SVG}g"] == [diagram.name for diagram in diagrams()]
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert root.attrib["viewBox"] == f"0 0 {root.attrib['width']} {root.attrib['height']}"
    for rect in root.iter(f"{SVG}rect"):
        assert float(rect.attrib["width"]) <= width
        assert float(rect.attrib["height"]) <= height


@st.composite
def graphs(draw: st.DrawFn) -> Diagram:
    """Diagrams of up to seven states, all reachable, with cycles and long arrows."""
    states = [f"state{i}" for i in range(draw(st.integers(1, 7)))]
    arrows: set[tuple[str | None, str]] = {(None, states[0])}
    for position, state in enumerate(states[1:], start=1):
        arrows.add((draw(st.sampled_from(states[:position])), state))
    others = [(one, other) for one in states for other in states if one != other]
    arrows |= set(draw(st.lists(st.sampled_from(others), max_size=8))) if others else set()
    ordered = sorted(arrows, key=str)
    return Diagram("ANY", tuple(states), frozenset(), tuple(Arrow(s, t, ("go",), False) for s, t in ordered), ())


@settings(max_examples=25)
@given(graphs())
def test_nothing_in_a_layout_overlaps(diagram: Diagram) -> None:
    sizes = dict.fromkeys((None, *diagram.states), (90.0, 40.0))
    layout = lay_out(diagram, sizes, [(50.0, 20.0)] * len(diagram.arrows))
    solid = [*layout.places.values(), *(wire.label for wire in layout.wires)]
    for one, other in combinations(solid, 2):
        assert apart(one, other), (one, other)
    for wire in layout.wires:
        assert (wire.slots[0], wire.slots[-1]) == (layout.places[wire.arrow.source], layout.places[wire.arrow.target])
        assert [abs(one.rank - other.rank) for one, other in pairwise(wire.slots)] == [1] * (len(wire.slots) - 1)
        # No arrow runs through a state: where it passes a rank of states, it has a place of its own.
        for slot in wire.slots[1:-1]:
            assert all(apart(slot, box) for box in layout.places.values())
    assert all(0 <= slot.x <= layout.width and 0 <= slot.y <= layout.height for slot in solid)


def apart(one: Slot, other: Slot) -> bool:
    return (
        abs(one.x - other.x) >= (one.width + other.width) / 2 or abs(one.y - other.y) >= (one.height + other.height) / 2
    )


# ---------------------------------------------------------------------------------------------------------------------
# The command, and the page


def test_an_unknown_machine() -> None:
    unknown = holdfast("machines", "robot", "--json")
    assert (unknown.code, unknown.error_code) == (2, "bad_input")
    assert unknown.json["context"]["machines"] == [diagram.name for diagram in diagrams()]
    assert holdfast("machines", "JOB", "--format", "png").code == 2
    both = holdfast("machines", "--json", "--format", "svg")
    assert (both.code, both.error_code) == (2, "bad_input")


def test_machines_need_no_ledger() -> None:
    assert process("machines", "JOB", "--format", "svg").out == drawn("JOB", "svg")


def test_the_page_of_the_machines_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.diagrams", "docs/machines.md", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_page_is_written_and_a_stale_one_is_found(tmp_path: Path) -> None:
    page = tmp_path / "machines.md"
    with pytest.raises(SystemExit, match="make docs"):
        write_page([str(page), "--check"])
    assert not page.exists()
    write_page([str(page)])
    write_page([str(page), "--check"])
    assert page.read_bytes() == (ROOT / "docs" / "machines.md").read_bytes()
    for machine in EVERY:
        block = page.read_text(encoding="utf-8").partition(f"## {machine.name}\n")[2].partition("```\n")[0]
        assert read_mermaid(block)[0] == edges_of(machine)
    page.write_text(page.read_text(encoding="utf-8").replace("submit", "sumbit", 1), encoding="utf-8")
    with pytest.raises(SystemExit, match="make docs"):
        write_page([str(page), "--check"])


def test_a_machine_is_found_in_any_case() -> None:
    assert find("Execution").name == "EXECUTION"
