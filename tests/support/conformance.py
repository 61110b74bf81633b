"""Writes `docs/conformance.md`: for every clause, the tests that show it; a clause without a test is a gap.

Invariants:
- the page depends only on the clause list and the collected tests, not on the date or the machine;
- a parametrised test is listed once, under its function's name.

Usage: python -m tests.support.conformance [--check]. With `--check` nothing is written, and a page
that is out of date is an error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.clauses import SOURCES, TAGS, Clause, load

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "conformance.md"


def collect() -> dict[str, list[str]]:
    """Return the tests that name each clause, from a collection of the whole suite."""
    with tempfile.TemporaryDirectory(prefix="holdfast-conformance-") as directory:
        path = Path(directory) / "clauses.json"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-q", "--conformance", str(path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            sys.exit(f"The tests could not be collected:\n{done.stdout}{done.stderr}")
        shown: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
        return shown


def render(clauses: Sequence[Clause], shown: Mapping[str, Sequence[str]]) -> str:
    gaps = [clause for clause in clauses if not shown.get(clause.id)]
    lines = [
        "# Conformance",
        "",
        "Written by `make conformance` from the `req` markers of the tests; not edited by hand.",
        "",
        f"**{len(clauses) - len(gaps)} of {len(clauses)} clauses are shown by tests; gaps: {len(gaps)}.**",
        "",
        "Tags: " + "; ".join(f"{tag}, {meaning}" for tag, meaning in TAGS.items()) + ".",
    ]
    for source, description in SOURCES.items():
        lines += [
            "",
            f"## {source}: {description}",
            "",
            "| clause | tag | requirement | tests |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {clause.id} | {clause.tag} | {clause.title} | {_links(shown.get(clause.id, ()))} |"
            for clause in clauses
            if clause.source == source
        ]
    lines += ["", f"## Gaps: {len(gaps)}", ""]
    lines += [f"- {clause.id}: {clause.title}" for clause in gaps] or ["None."]
    return "\n".join(lines) + "\n"


def _links(node_ids: Sequence[str]) -> str:
    functions = sorted({node_id.partition("[")[0] for node_id in node_ids})
    split = [function.split("::") for function in functions]
    return "<br>".join(f"[`{'::'.join(names)}`](../{path})" for path, *names in split) or "**gap**"


def main() -> None:
    parser = argparse.ArgumentParser(prog="conformance", description="Write docs/conformance.md.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    check: bool = parser.parse_args().check
    page = render(load(), collect())
    name = PAGE.relative_to(ROOT)
    if not check:
        PAGE.write_text(page, encoding="utf-8")
        print(f"wrote {name}")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
        sys.exit(f"{name} is out of date: run `make conformance` and commit it.")


if __name__ == "__main__":
    main()
