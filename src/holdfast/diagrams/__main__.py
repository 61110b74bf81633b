"""Writes the page of the machines: a Mermaid diagram and a table for each, from the transition table.

Usage: python -m holdfast.diagrams PAGE [--check]. With `--check` nothing is written, and a page that is out of date is
an error.
"""

import argparse
import sys
from pathlib import Path

from holdfast.core.machine import NOTHING, Rule
from holdfast.diagrams.model import Diagram, diagrams
from holdfast.diagrams.text import mermaid

HEAD = """\
# The machines

Written by `make docs` from the transition table, `holdfast.core.machines`; not edited by hand. The same pictures come
from `holdfast machines` as text, Mermaid, SVG or JSON.

An event takes a path of one or more edges. A path of several edges is one write: every edge of it is journalled, and
each adds 1 to the record's version. ∅ (a dot in the pictures) is the state before a record exists; a state with a thick
border is final. A governed path needs a grant. Python and the database refuse every other path.
"""

NOTES = {
    "ENTRY": "A view of JOB: the status of a write-ahead log entry, from the state of its job. No governed release."
}


def page() -> str:
    return HEAD + "".join(_section(diagram) for diagram in diagrams())


def _section(diagram: Diagram) -> str:
    rows = [
        (f"{arrow.source or NOTHING} → {arrow.target}", arrow.events, Rule.GOVERNED if arrow.governed else Rule.ROUTINE)
        for arrow in diagram.arrows
    ]
    rows += [
        (" → ".join(state or NOTHING for state in route.states), route.events, Rule.ROUTINE) for route in diagram.routes
    ]
    lines = [
        "",
        f"## {diagram.name}",
        "",
        *([NOTES[diagram.name], ""] if diagram.name in NOTES else []),
        "```mermaid",
        mermaid([diagram]).rstrip("\n"),
        "```",
        "",
        "| path | events | rule |",
        "|---|---|---|",
        *(f"| {path} | {', '.join(f'`{event}`' for event in events)} | {rule} |" for path, events, rule in rows),
        "",
        f"Final: {', '.join(state for state in diagram.states if state in diagram.final)}.",
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Write the page; with `--check`, exit with an error if it is out of date."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.diagrams", description="Write the page of the machines.")
    parser.add_argument("page", type=Path, help="the Markdown file")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    args = parser.parse_args(arguments)
    path: Path = args.page
    if not args.check:
        path.write_text(page(), encoding="utf-8")
        sys.stdout.write(f"wrote {path}\n")
    elif not path.exists() or path.read_text(encoding="utf-8") != page():
        sys.exit(f"{path} is out of date: run `make docs` and commit it.")


if __name__ == "__main__":
    main()
