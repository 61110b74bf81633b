"""The benchmarks: `python -m benchmarks [SUITE …] [--quick] [--db sqlite|postgres|both]`, or `make bench`.

Invariants: without the name of a suite every suite but the longest runs, one after the other, because each one needs
both cores; a suite prints its tables and writes the same figures as JSON to the directory of results.
"""

import argparse
import importlib
from pathlib import Path

# Modules and functions by name: a suite imports its own dependencies only.
SUITES = {
    "store": "store_bench:run",
    "recovery": "recovery_bench:run",
    "scale": "scale:run",
    "console": "console_bench:run",
    "parked": "parked:run",
    "memory": "soak:run",
    "seals": "seals:run",
    "nodd": "nodd_bench:run",
    "nodd-objects": "nodd_objects_bench:run",
    "nodd-memory": "nodd_bench:run_memory",
    "engine": "engine_bench:run",
    "load": "engine_bench:run_load",
    "brokers": "engine_bench:run_brokers",
}
SIZED = ("scale", "console")
COMPARED = ("engine", "load", "brokers")
LONGEST = ("memory", "brokers", "console")  # run by name
DATABASES = {"sqlite": ("sqlite",), "postgres": ("postgres",), "both": ("sqlite", "postgres")}
WHICH = f"suites to run: {', '.join(SUITES)}; default: all but {' and '.join(LONGEST)}"
RESULTS = Path(__file__).parents[1] / ".bench" / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Holdfast on the simulated disk.")
    parser.add_argument("suites", nargs="*", metavar="suite", help=WHICH)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few rows and one round: checks that the suite runs; do not use its figures",
    )
    parser.add_argument("--db", choices=DATABASES, default="both", help="database to measure; default: both")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        metavar="JOBS",
        help=f"for the suites {' and '.join(SIZED)}: numbers of jobs in a ledger (console takes the last one)",
    )
    parser.add_argument(
        "--systems", nargs="+", metavar="NAME", help=f"for the suites {', '.join(COMPARED)}: measure only these"
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="directory for the JSON files; default: .bench/results"
    )
    args = parser.parse_args()
    unknown = [name for name in args.suites if name not in SUITES]
    if unknown:
        parser.error(f"Unknown suite {unknown[0]!r}; known: {', '.join(SUITES)}.")
    if args.sizes is not None and (not args.suites or not set(args.suites) <= set(SIZED) or min(args.sizes) < 1):
        parser.error(f"--sizes is only for the suites {', '.join(SIZED)}, and each size must be at least 1.")
    if args.systems is not None and not (args.suites and set(args.suites) <= set(COMPARED)):
        parser.error(f"--systems is only for the suites {', '.join(COMPARED)}.")
    args.results.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(args.suites or [name for name in SUITES if name not in LONGEST]):
        more = {"sizes": args.sizes} if args.sizes else {"only": args.systems} if args.systems else {}
        module, _, function = SUITES[name].partition(":")
        run = getattr(importlib.import_module(f"benchmarks.{module}"), function)
        run(DATABASES[args.db], quick=args.quick, path=args.results / f"{name}.json", **more)


if __name__ == "__main__":
    main()
