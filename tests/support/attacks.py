"""Runs every test that is marked as an attack, and counts what was tried and what held.

Invariants: an attack that ran and did not pass counts as broken, also when its fixture failed; one that did not run
is not counted as tried; the page is written only from a whole run.

Usage: python -m tests.support.attacks [--only KIND…] [--slow] [--jobs N] [--report FILE] [--write PAGE]. `--slow` adds
the attacks that take minutes each; `--report` counts a JUnit report of the whole suite instead of running anything.
With `--write`, the section of the page between its two markers is written from that run.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec

from tests.support.scorecard import ROOT, made, write

KINDS = {
    "sql": "raw SQL by any client, in tables, triggers, schemas and settings",
    "faults": "killed processes, failing disks, lost power, lost connections, forks",
    "input": "values, texts and files that no caller should send",
    "files": "files that were altered, cut off, exchanged or put in the wrong place",
}


class Attempt(msgspec.Struct, frozen=True):
    """One attack that ran: the kinds it is of, its file, its name, and whether the ledger held."""

    kinds: frozenset[str]
    file: str
    name: str
    held: bool


def run(expression: str, jobs: int, arguments: Sequence[str] = ()) -> list[Attempt]:
    """Run the attacks that a marker expression selects, and return each that ran; exit if pytest itself fails."""
    with tempfile.TemporaryDirectory(prefix="holdfast-attacks-") as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", expression]
        command += [f"--junitxml={report}", "-o", "junit_family=xunit1", "-n", str(jobs), "--dist", "worksteal"]
        code = subprocess.run([*command, *arguments], cwd=ROOT, check=False).returncode
        if code not in (0, 1):
            sys.exit(f"pytest ended with {code}: no attack is counted.")
        # The report is written by the pytest that was started here.
        return attempts(ET.parse(report).getroot())  # noqa: S314


def attempts(report: ET.Element) -> list[Attempt]:
    """Return the attacks of a report of pytest; those that were skipped did not run."""
    found: dict[tuple[str, str], Attempt] = {}
    for case in report.iter("testcase"):
        kinds = frozenset(one.get("value", "") for one in case.iter("property") if one.get("name") == "attack")
        if not kinds or case.find("skipped") is not None:
            continue
        name = case.get("name", "")
        file = case.get("file") or f"{case.get('classname', '').replace('.', '/')}.py"  # the newer form has no file
        held = case.find("failure") is None and case.find("error") is None
        # A test that fails and whose fixture fails after it is in the report twice.
        before = found.get((file, name))
        found[file, name] = Attempt(kinds, file, name, held and (before is None or before.held))
    return list(found.values())


def section(tried: Sequence[Attempt], where: str) -> str:
    """Return the section of the scorecard that describes a run."""
    broken = [one for one in tried if not one.held]
    lines = [
        f"{len(tried)} tried, {len(tried) - len(broken)} held, {len(broken)} broken; {where}.",
        "`make attack` runs them: each is a test, and holds when what the ledger promises is still so afterwards.",
        "",
        "| kind | what is tried | tried | on PostgreSQL | held |",
        "|---|---|---|---|---|",
    ]
    for kind, meaning in KINDS.items():
        of_kind = [one for one in tried if kind in one.kinds]
        postgres = sum("postgres" in one.name for one in of_kind)
        lines.append(f"| {kind} | {meaning} | {len(of_kind)} | {postgres} | {sum(one.held for one in of_kind)} |")
    lines += ["", "| file | what it shows | tried | held |", "|---|---|---|---|"]
    for file in sorted({one.file for one in tried}):
        of_file = [one for one in tried if one.file == file]
        held = sum(one.held for one in of_file)
        lines.append(f"| [{file.removeprefix('tests/')}](../{file}) | {_purpose(file)} | {len(of_file)} | {held} |")
    if broken:
        lines += ["", "Broken:", "", *(f"- `{one.file}::{one.name}`" for one in broken)]
    return "\n".join(lines) + "\n"


def _purpose(file: str) -> str:
    """Return the first sentence of a test module's docstring."""
    text = ast.get_docstring(ast.parse((ROOT / file).read_text(encoding="utf-8"))) or ""
    return text.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.attacks", description="Run the attacks.")
    parser.add_argument("--only", nargs="+", default=[], choices=KINDS, metavar="KIND", help="only these kinds")
    parser.add_argument("--slow", action="store_true", help="also the attacks that take minutes each")
    parser.add_argument("--report", type=Path, metavar="FILE", help="count this JUnit report of a run of all tests")
    parser.add_argument("--jobs", type=int, default=2, help="attacks that run side by side (2)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the run into this page")
    args = parser.parse_args()
    if args.write and args.only:
        sys.exit("--write takes a run of all attacks: leave out --only.")
    if args.report:
        tried = attempts(ET.parse(args.report).getroot())  # noqa: S314 - a report of our own run
    else:
        expression = "attack" if args.slow else "attack and not slow"
        tried = run(expression, args.jobs, ("--attack", ",".join(args.only)) if args.only else ())
    if args.write:
        write(args.write, "attacks", section(tried, made()))
    broken = sum(not one.held for one in tried)
    print(f"{len(tried)} tried, {len(tried) - broken} held, {broken} broken")
    if broken or not tried:
        sys.exit(1)


if __name__ == "__main__":
    main()
