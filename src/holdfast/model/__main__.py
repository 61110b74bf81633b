"""Runs the models and tells what came of them: python -m holdfast.model [--large | --simulate N | --seed N | …].

Without more it explores every model of the catalogue and compares. `--simulate` runs so many seeds of the simulation,
and `--seed` one, with its story. With a page it runs nothing: it writes the page of the catalogue, or compares it.
"""

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.model.catalogue import RUNS, Outcome, Run
from holdfast.model.guards import KEEPS
from holdfast.model.simulation import Broken, simulate

HEAD = """\
# The models

Written by `make docs` from `holdfast.model.catalogue`; not edited by hand.

A model is explored to its end: every state that the rules allow, by every order of steps, crashes and lost answers
included. The moves are those that `holdfast.core.decide` allows, the same function that the ledger asks; only the
published model of the log is written out, because what it must reproduce is its own counts. `make test` explores the
models below that are not large, and `make prove` all of them; `python -m holdfast.model` shows them one by one.

States are counted as TLC counts them: those generated, and those that are distinct.

## What holds

"Faults" are crashes: where a promise needs them to come to an end, a recovery that is killed for ever never ends, and
no program can change that.

"""

JUDGED = """
In every state of them it is judged:

"""

FLAWS = """
## What is found

Each of these is one way to build it wrongly. The search must find it, by exactly this many steps and after exactly this
many states; a flaw that breaks nothing fails the tests.

"""

GUARDS = """
## What each guard of `decide` keeps

In most models the store matches what a move names, and would refuse what `decide` should have refused. In the models
called "guards" every answer of `decide` is written at once, and nothing else is compared. `make faults` takes each of
these guards out, and the invariant beside it breaks. What has no path in the transition table is
refused by the table itself, with `wrong_state`, and is not listed.

"""

SIMULATION = """
## The simulation

Where a model is small and visits everything, the simulation is the engine itself on a real database, and visits what it
draws: several processes on one ledger, a virtual clock, clocks that run apart, clients that ask again and change their
minds, deaths at every point that the engine names. In the end the work is carried to its end and what happened is held
against what was promised. A seed is the same twice: `python -m holdfast.model --simulate 1000` runs many, and
`python -m holdfast.model --seed 7` tells the story of one.
"""


def page() -> str:
    """Return the page of the catalogue."""
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
    parts = (f"{text}{_lines(lines)}" for text, lines in zip((HEAD, JUDGED, FLAWS, GUARDS), tables, strict=True))
    return "".join(parts) + SIMULATION


def _guards() -> list[str]:
    """List each guard of `decide` with the invariant that breaks without it."""
    rows = [f"| `{function}` | `{code}` | {invariant} |" for (function, code), invariant in KEEPS.items()]
    return ["| function | refuses with | what breaks without it |", "|---|---|---|", *rows]


def _judged() -> list[str]:
    """List what holds in every state, once for all the models of a kind."""
    names: dict[str, dict[str, None]] = {}
    for run in RUNS:
        if run.expected.sound:
            names.setdefault(run.name.partition(",")[0].partition(":")[0], {}).update(
                dict.fromkeys(run.model().invariants)
            )
    return [f"- {kind}: {', '.join(invariants)}" for kind, invariants in names.items()]


def _lines(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.model", description="Explore the models of Holdfast.")
    parser.add_argument("--large", action="store_true", help="also those that take minutes")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--simulate", type=int, metavar="N", help="run the seeds 0 to N - 1 of the simulation instead")
    other.add_argument("--seed", type=int, metavar="N", help="run one seed of the simulation, and tell its story")
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
        sys.exit("Some models did not come to what the catalogue says.")


def _explored(run: Run) -> bool:
    began = time.perf_counter()
    outcome = run.outcome()
    seconds = time.perf_counter() - began
    told = "as expected" if outcome == run.expected else f"NOT AS EXPECTED: {outcome}"
    sys.stdout.write(f"{run.name:<58} {outcome.generated:>11,} {seconds:>7.1f} s  {_tell(run.expected)}: {told}\n")
    sys.stdout.flush()
    return outcome == run.expected


def _simulated(seeds: Sequence[int], *, story: bool) -> None:
    """Run these seeds on a ledger that is thrown away."""
    logging.disable()  # workers that die are what it is about
    with tempfile.TemporaryDirectory(prefix="holdfast-simulation-") as folder:
        try:
            told = simulate(str(Path(folder) / "simulated.db"), seeds)
        except Broken as broken:
            sys.exit(str(broken))
    if story:
        sys.stdout.write("".join(f"{line}\n" for line in told.story))
    sys.stdout.write(f"{len(seeds)} seeds, {told.deaths.total()} deaths: every promise was kept\n")


def _tell(expected: Outcome) -> str:
    return "nothing breaks" if expected.sound else f"breaks {expected.fault!r}"


if __name__ == "__main__":
    main()
