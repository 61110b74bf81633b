"""Switches each named fault on, one at a time, and shows that the tests listed for it fail.

Invariants: the tests pass without a fault before any fault is tried; a fault is caught only by a test that ran and
failed, never by an error in collection, in a fixture or at start, and on each database that the fault names; where a
fault names an invariant of a model, that invariant breaks too; the sources themselves are never changed, only
throw-away copies of them.

Usage: python -m tests.faults.run [--only ID…] [--jobs N] [--names] [--record] [--write PAGE]. With `--write`, the
section of the page between its two markers is written from this run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec

from tests.faults.catalogue import AREAS, FAULTS
from tests.faults.seeded import ROOT, SOURCE, SeededFault, copy_with
from tests.support.postgres import tmpfs_directory
from tests.support.scorecard import made, write

TEST_TIMEOUT_S = 60
MODEL_TIMEOUT_S = 120
FAULT_TIMEOUT_S = 240
CAUGHT = Path(__file__).with_name("caught.json")


class FaultResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one fault: the tests that failed, how many ran, and why it does not count as caught, if so."""

    fault: SeededFault
    broken: str | None = None  # in the model that the fault names
    failed: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()  # of the failed tests, as path::function
    ran: int = 0
    seconds: float = 0.0
    missed: str | None = None


def _pytest(
    source: Path, tests: Iterable[str], directory: Path, *options: str, postgres: bool = True
) -> tuple[int, list[ET.Element], str]:
    """Run tests against a copy of the sources; return pytest's exit code, the test cases, and what it printed."""
    report = directory / "report.xml"
    marked = "not slow" if postgres else "not slow and not pg"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", marked, f"--junitxml={report}"]
    command += [f"--timeout={TEST_TIMEOUT_S}", "--tb=no", *options, *tests]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=_environment(source),
        capture_output=True,
        text=True,
        check=False,
        timeout=FAULT_TIMEOUT_S * (4 if options else 1),
    )
    # The report is written by the pytest that was started here.
    cases = list(ET.parse(report).iter("testcase")) if report.exists() else []  # noqa: S314
    return done.returncode, cases, done.stdout + done.stderr


def _environment(source: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(source), str(ROOT))), "HOLDFAST_HYPOTHESIS": "ci"}


def _explored(source: Path, run: str) -> str:
    """Explore a model against a copy of the sources; return the invariant or promise that broke, or nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.explore", run],
        cwd=ROOT,
        env=_environment(source),
        capture_output=True,
        text=True,
        check=False,
        timeout=MODEL_TIMEOUT_S,
    )
    return done.stdout.strip() if done.returncode == 0 else f"an error of the model:\n{done.stderr}"


def require_sound(faults: Sequence[SeededFault], jobs: int) -> None:
    """Exit if a listed test fails without any fault."""
    parallel = ("-n", str(jobs), "--dist", "worksteal") if jobs > 1 else ("-n", "0")
    passed = 0
    for postgres in (True, False):
        tests = sorted({test for fault in faults if fault.postgres is postgres for test in fault.tests})
        if not tests:
            continue
        with tempfile.TemporaryDirectory(prefix="holdfast-faults-") as directory:
            code, cases, printed = _pytest(SOURCE, tests, Path(directory), *parallel, postgres=postgres)
        if code != 0:
            sys.exit(f"The listed tests do not pass without a fault:\n{printed}")
        passed += len(cases)
    runs = sorted({fault.breaks.run for fault in faults if fault.breaks})
    for run in runs:
        if broken := _explored(SOURCE, run):
            sys.exit(f"The model {run!r} breaks without a fault: {broken}")
    print(f"{passed} tests pass and {len(runs)} models hold without a fault", flush=True)


def tried(fault: SeededFault) -> FaultResult:
    """Switch one fault on, run the tests that are listed for it, and explore the model that it names."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="holdfast-fault-", dir=tmpfs_directory()) as directory:
        try:
            source = copy_with(fault, Path(directory))
            code, cases, printed = _pytest(source, fault.tests, Path(directory), postgres=fault.postgres)
            broken = _explored(source, fault.breaks.run) if fault.breaks else None
        except subprocess.TimeoutExpired as expired:
            return FaultResult(fault=fault, missed=f"{expired.cmd[2]} did not end within {expired.timeout:g} s")
        except subprocess.CalledProcessError:
            return FaultResult(fault=fault, missed="the triggers could not be generated")
    wrong = [case for case in cases if case.find("failure") is not None]
    failed = tuple(sorted(case.get("name", "") for case in wrong))
    missed = _missed(fault, code, failed, printed)
    if fault.breaks and broken != fault.breaks.invariant:
        missed = missed or f"the model {fault.breaks.run!r} breaks {broken!r}, not {fault.breaks.invariant!r}"
    return FaultResult(
        fault=fault,
        broken=broken,
        failed=failed,
        functions=tuple(sorted({_function(case) for case in wrong})),
        ran=len(cases),
        seconds=time.perf_counter() - began,
        missed=missed,
    )


def _function(case: ET.Element) -> str:
    """Return the path and the name of a test, without its parameters."""
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}"


def record(results: Sequence[FaultResult]) -> None:
    """Keep which tests caught each of these faults: the page of the clauses names them."""
    known: dict[str, list[str]] = msgspec.json.decode(CAUGHT.read_bytes()) if CAUGHT.exists() else {}
    known |= {result.fault.id: list(result.functions) for result in results if result.missed is None}
    kept = {fault.id: known[fault.id] for fault in FAULTS if fault.id in known}
    CAUGHT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _missed(fault: SeededFault, code: int, failed: Sequence[str], printed: str) -> str | None:
    if code not in (0, 1):
        return f"pytest ended with {code}:\n{printed}"
    if not failed:
        return "no test failed" if code == 0 else f"no test failed, only fixtures or collection:\n{printed}"
    without = [database for database in fault.databases if not any(database in name for name in failed)]
    return f"no test failed on {', '.join(without)}" if without else None


# ---------------------------------------------------------------------------------------------------------------------
# The page


def section(results: Sequence[FaultResult]) -> str:
    """Return the section of the scorecard that describes a run."""
    caught = sum(result.missed is None for result in results)
    lines = [
        f"{len(results)} faults, {caught} caught; {made()}.",
        "`make faults` runs them: a fault is a small patch; it is caught when tests that pass without it fail with it.",
        "",
        "| area | faults | caught | failed tests |",
        "|---|---|---|---|",
    ]
    for area in AREAS:
        of_area = [result for result in results if result.fault.area == area]
        failed = sum(len(result.failed) for result in of_area)
        lines.append(f"| {area} | {len(of_area)} | {sum(one.missed is None for one in of_area)} | {failed} |")
    lines += ["", "| fault | meaning | failed tests | what breaks in a model |", "|---|---|---|---|"]
    lines += [f"| `{one.fault.id}` | {one.fault.meaning} | {_counted(one)} | {one.broken or ''} |" for one in results]
    return "\n".join(lines) + "\n"


def _counted(result: FaultResult) -> str:
    if result.missed is not None:
        return "**not caught**"
    databases = (f"{database} {sum(database in name for name in result.failed)}" for database in result.fault.databases)
    return f"{len(result.failed)} of {result.ran}" + "".join(f", {text}" for text in databases)


# ---------------------------------------------------------------------------------------------------------------------
# The command


def _chosen(only: Sequence[str]) -> list[SeededFault]:
    """Return the faults of these ids or areas; all without any."""
    chosen = [fault for fault in FAULTS if not only or fault.id in only or fault.area in only]
    unknown = sorted(set(only) - {fault.id for fault in chosen} - {fault.area for fault in chosen})
    if unknown:
        sys.exit(f"There is no fault {unknown[0]}. Areas: {', '.join(AREAS)}.")
    return chosen


def _shown(results: Iterator[FaultResult], *, names: bool, kept: bool) -> list[FaultResult]:
    """Print a line for each fault as it is tried, with the failed tests if `names`, and return them all.

    If `kept`, each is recorded at once: a run that is stopped has not run for nothing.
    """
    done = []
    for result in results:
        done.append(result)
        if kept:
            record([result])
        what = _counted(result) if result.missed is None else f"NOT CAUGHT: {result.missed}"
        what += f"; breaks {result.broken!r}" if result.broken and result.missed is None else ""
        print(f"{result.fault.id:<56} {result.seconds:5.1f} s  {what}", flush=True)
        for name in result.failed if names else ():
            print(f"    {name}")
    return done


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.run", description="Run the named faults.")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="only these faults or areas")
    parser.add_argument("--jobs", type=int, default=2, help="faults that run side by side (2)")
    parser.add_argument("--names", action="store_true", help="list the tests that failed")
    parser.add_argument("--record", action="store_true", help="keep which tests caught each fault, in caught.json")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the run into this page")
    args = parser.parse_args()
    if args.write and args.only:
        sys.exit("--write takes a run of all faults: leave out --only.")
    faults = _chosen(args.only)
    began = time.perf_counter()
    require_sound(faults, args.jobs)
    with ThreadPoolExecutor(args.jobs) as pool:
        results = _shown(pool.map(tried, faults), names=args.names, kept=args.record)
    missed = [result for result in results if result.missed is not None]
    print(f"{len(results) - len(missed)} of {len(results)} faults caught in {time.perf_counter() - began:.0f} s")
    if args.write:
        write(args.write, "faults", section(results))
    if missed:
        sys.exit(f"Not caught: {', '.join(result.fault.id for result in missed)}")


if __name__ == "__main__":
    main()
