"""Runs the models and prints the results: python -m holdfast.model [--large | --simulate N | --seed N | …].

Without options it explores every model of the catalogue and compares the results. `--simulate N` runs N seeds of the
simulation; `--seed N` runs one seed and prints its steps. `--write` and `--check` run no model: they write or compare
the page of the catalogue.
"""

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.model.catalogue import RUNS, Run
from holdfast.model.guards import KEEPS
from holdfast.model.simulation import Broken, simulate

HEAD = """\
# The models

Written by `make docs` from `holdfast.model.catalogue`; not edited by hand.

The checker visits every state that the rules allow, in every order of steps, with crashes and lost answers. The moves
are those that `holdfast.core.decide` allows, the same function that the ledger calls. Only the published model of the
log states its own rules, because it must reproduce its published counts. `make test` explores the models below that
are not large, `make prove` explores all of them, and `python -m holdfast.model` shows them one by one.

States are counted as TLC counts them: generated states and distinct states.

## What holds

"Faults" are crashes. Some promises are kept only if crashes stop one day: a recovery that is killed again and again
never ends, and no program can change that.

"""

JUDGED = """
Invariants that are checked in every state:

"""

FLAWS = """
## Which flaws are found

Each flaw is one wrong implementation. The search must find it after exactly this many steps and this many states. A
flaw that breaks nothing fails the tests.

"""

GUARDS = """
## What each guard of `decide` protects

In most models the store compares the rows with the move, and so refuses a move that `decide` should have refused. In
the models called "guards" each move of `decide` is written at once, without that comparison. `make faults` removes each
of these guards, and the invariant beside it breaks. An event without a path in the transition table is refused by the
table with `wrong_state`, and is not listed.

"""

SIMULATION = """
## The simulation

A model is small, and the checker visits all of it. The simulation is the engine itself on a real database, and takes
random steps: several processes on one ledger, a virtual clock, clocks that differ, clients that send a request again or
with another payload, crashes at every crash point of the engine. At the end all jobs are run to their end, and the
results are compared with the promises. The same seed gives the same steps: `python -m holdfast.model --simulate 1000`
runs many seeds, and `python -m holdfast.model --seed 7` prints the steps of one.
"""


def page() -> str:
    sound = ["| model | generated | distinct | promises kept |", "|---|---|---|---|"]
    flawed = ["| model and flaw | what breaks | steps | generated |", "|---|---|---|---|"]
    for run in RUNS:
        expected = run.expected
        if expected.sound:
            promises = "; ".join(f"{name}: {kept}" for name, kept in expected.promises.items())
            large = " (large)" if run.large else ""
            sound.append(f"| {run.name}{large} | {expected.generated:,} | {expected.distinct:,} | {promises} |")
        else:
            flawed.append(f"| {run.name} | {expected.fault} | {expected.steps or ''} | {expected.generated:,} |")
    tables = (sound, _judged(), flawed, _guards())
    parts = (text + "\n".join(lines) for text, lines in zip((HEAD, JUDGED, FLAWS, GUARDS), tables, strict=True))
    return "\n".join((*parts, SIMULATION))


def _guards() -> list[str]:
    """List each guard of `decide` with the invariant that breaks without it."""
    rows = [f"| `{function}` | `{code}` | {invariant} |" for (function, code), invariant in KEEPS.items()]
    return ["| function | refuses with | what breaks without it |", "|---|---|---|", *rows]


def _judged() -> list[str]:
    """List the invariants of every state, once for all models of a kind."""
    names: dict[str, dict[str, None]] = {}
    for run in RUNS:
        if run.expected.sound:
            names.setdefault(run.name.partition(",")[0].partition(":")[0], {}).update(
                dict.fromkeys(run.model().invariants)
            )
    return [f"- {kind}: {', '.join(invariants)}" for kind, invariants in names.items()]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m holdfast.model", description="Explore the models of Holdfast.")
    parser.add_argument("--large", action="store_true", help="also run the models that take minutes")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--simulate", type=int, metavar="N", help="run the seeds 0 to N - 1 of the simulation instead")
    other.add_argument("--seed", type=int, metavar="N", help="run one seed of the simulation and print its steps")
    other.add_argument("--write", type=Path, metavar="PAGE", help="write the page of the catalogue")
    other.add_argument("--check", type=Path, metavar="PAGE", help="compare the page with the catalogue")
    args = parser.parse_args(arguments)
    if args.write:
        args.write.write_text(page(), encoding="utf-8")
    elif args.check:
        if not args.check.exists() or args.check.read_text(encoding="utf-8") != page():
            sys.exit(f"{args.check} is out of date: run `make docs` and commit it.")
    elif args.simulate is not None or args.seed is not None:
        _simulated(range(args.simulate) if args.seed is None else [args.seed], story=args.seed is not None)
    elif not all([_explored(run) for run in RUNS if args.large or not run.large]):  # noqa: C419  # all of them are run
        sys.exit("The outcome of a model differs from the catalogue. See NOT AS EXPECTED above.")


def _explored(run: Run) -> bool:
    began = time.perf_counter()
    outcome = run.outcome()
    seconds = time.perf_counter() - began
    wanted = "nothing breaks" if run.expected.sound else f"breaks {run.expected.fault!r}"
    result = "as expected" if outcome == run.expected else f"NOT AS EXPECTED: {outcome}"
    sys.stdout.write(f"{run.name:<58} {outcome.generated:>11,} {seconds:>7.1f} s  {wanted}: {result}\n")
    sys.stdout.flush()
    return outcome == run.expected


def _simulated(seeds: Sequence[int], *, story: bool) -> None:
    """Run these seeds on a temporary ledger."""
    logging.disable()  # the simulated crashes would fill the log
    with tempfile.TemporaryDirectory(prefix="holdfast-simulation-") as folder:
        try:
            report = simulate(str(Path(folder) / "simulated.db"), seeds)
        except Broken as broken:
            sys.exit(str(broken))
    if story:
        sys.stdout.write("".join(f"{line}\n" for line in report.story))
    sys.stdout.write(f"{len(seeds)} seeds, {report.crashes.total()} crashes: every promise was kept\n")


if __name__ == "__main__":
    main()
