"""Writes `docs/conformance.md`: for every clause, the tests that show it, and the faults that these tests catch.

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
CAUGHT = ROOT / "tests" / "faults" / "caught.json"  # of the last recorded run of the faults
FAULTS_MAX = 3  # that a row names


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


def challenges(clauses: Sequence[Clause], shown: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the faults that tests of each clause catch: by the last recorded run of `make faults`, or their own."""
    caught: dict[str, list[str]] = json.loads(CAUGHT.read_text(encoding="utf-8")) if CAUGHT.exists() else {}
    found: dict[str, list[str]] = {}
    for clause in clauses:
        functions = {node_id.partition("[")[0] for node_id in shown.get(clause.id, ())}
        missing = [test for test in clause.own_faults if test not in functions]
        if missing:
            sys.exit(f"{clause.id}: its own fault {missing[0]} does not exist, or does not name the clause.")
        faults = [f"`{fault}`" for fault, tests in caught.items() if functions & set(tests)]
        found[clause.id] = [*faults, *(f"[its own](../{test.partition('::')[0]})" for test in clause.own_faults)]
    return found


def render(clauses: Sequence[Clause], shown: Mapping[str, Sequence[str]]) -> str:
    caught = challenges(clauses, shown)
    not_owed = [clause for clause in clauses if clause.not_owed]
    owed = [clause for clause in clauses if not clause.not_owed]
    gaps = [clause for clause in owed if not shown.get(clause.id)]
    challenged = [clause for clause in owed if caught[clause.id] and shown.get(clause.id)]
    unchallenged = len(owed) - len(gaps) - len(challenged)
    counts = f"{len(clauses)} clauses: {len(challenged)} challenged, {unchallenged} shown and not challenged, "
    counts += f"{len(gaps)} gaps, {len(not_owed)} not owed."
    lines = [
        "# Conformance",
        "",
        "Written by `make conformance` from the `req` markers of the tests; not edited by hand.",
        "",
        f"**{counts}**",
        "",
        "A clause is *challenged* if one of its tests was seen to fail: with a fault of `make faults` switched on (the",
        "last recorded run), or in a test that shows what goes wrong without the guard (*its own*). The test of a",
        "clause that is *not challenged* passes, and nothing here shows that it could fail.",
        "",
        "Tags: " + "; ".join(f"{tag}, {meaning}" for tag, meaning in TAGS.items()) + ".",
    ]
    for source, description in SOURCES.items():
        of_source = [clause for clause in owed if clause.source == source]
        lines += [
            "",
            f"## {source}: {description}",
            "",
            f"{sum(bool(caught[clause.id]) for clause in of_source)} of {len(of_source)} clauses are challenged.",
            "",
            "| clause | tag | requirement | caught faults | tests |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {clause.id} | {clause.tag} | {clause.title} | {_faults(caught[clause.id])} "
            f"| {_links(shown.get(clause.id, ()))} |"
            for clause in of_source
        ]
    lines += ["", f"## Not owed: {len(not_owed)}", ""]
    lines += [f"- {clause.id} ({clause.title}): {clause.not_owed}." for clause in not_owed]
    lines += ["", "Of clauses that are shown, these parts are not owed:", ""]
    lines += [f"- {clause.id}: {clause.part_not_owed}." for clause in clauses if clause.part_not_owed]
    lines += ["", f"## Gaps: {len(gaps)}", ""]
    lines += [f"- {clause.id}: {clause.title}" for clause in gaps] or ["None."]
    return "\n".join(lines) + "\n"


def _faults(names: Sequence[str]) -> str:
    shown = [*names[:FAULTS_MAX], *([f"and {len(names) - FAULTS_MAX} more"] if len(names) > FAULTS_MAX else [])]
    return "<br>".join(shown) or "not challenged"


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
