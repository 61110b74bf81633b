"""The benchmarks: `python -m benchmarks [SUITE …] [--quick] [--db sqlite|postgres|both]`, or `make bench`.

Invariants: without a suite's name every suite runs, one after the other, since a suite wants both cores for itself; a
suite prints its tables and leaves the same figures, as JSON, in the directory of results.
"""

import argparse
from pathlib import Path

from benchmarks import engine_bench, nodd_bench, recovery_bench, scale, seals, store_bench

SUITES = {
    "store": store_bench.run,
    "recovery": recovery_bench.run,
    "scale": scale.run,
    "seals": seals.run,
    "nodd": nodd_bench.run,
    "nodd-memory": nodd_bench.run_memory,
    "engine": engine_bench.run,
}
DATABASES = {"sqlite": ("sqlite",), "postgres": ("postgres",), "both": ("sqlite", "postgres")}
RESULTS = Path(__file__).parents[1] / ".bench" / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Holdfast on the simulated disk.")
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"which to run: {', '.join(SUITES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="few rows, one round: shows that it runs, measures little")
    parser.add_argument("--db", choices=DATABASES, default="both", help="which database; default: both")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="JOBS", help="of scale: how many jobs a ledger holds")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the JSON goes; default: .bench/results")
    args = parser.parse_args()
    unknown = [name for name in args.suites if name not in SUITES]
    if unknown:
        parser.error(f"there is no suite {unknown[0]!r}; there are {', '.join(SUITES)}")
    if args.sizes is not None and (args.suites != ["scale"] or min(args.sizes) < 1):
        parser.error("--sizes goes with the suite scale alone, and a ledger of a size holds a job or more")
    args.results.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(args.suites or SUITES):
        more = {"sizes": args.sizes} if args.sizes else {}
        SUITES[name](DATABASES[args.db], quick=args.quick, path=args.results / f"{name}.json", **more)


if __name__ == "__main__":
    main()
