"""`holdfast simulate`: runs an application's own handlers under random faults, on the real engine and a virtual clock.

Invariants: it never touches the application's own ledger; a seed whose promise breaks is shrunk, and its schedule is
printed so that it can be run again; the exit code is 1 if a promise breaks.
"""

import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import argument, option
from holdfast.cli.documents import read_file
from holdfast.cli.modules import imported
from holdfast.cli.options import word
from holdfast.core.errors import ArgumentsError, InputError
from holdfast.core.json_input import loads

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.engine.ledger import Ledger
    from holdfast.engine.operations import Call
    from holdfast.model.application import SimulatedRun

BROKEN = 1


@command()
def simulate(
    *,
    app: Annotated[str, argument(metavar="MODULE:LEDGER", help="Module and name of the Ledger object.")],
    calls: Annotated[
        str | None,
        word(
            "--calls",
            "JSON list of calls, or a function that returns calls (default: each operation that needs no arguments).",
            metavar="FILE|MODULE:FUNCTION",
        ),
    ] = None,
    seeds: Annotated[int, option("--seeds", min=1, max=10_000_000, help="Number of seeds to run.")] = 100,
    first: Annotated[int, option("--first", min=0, help="First seed.")] = 0,
    steps: Annotated[int, option("--steps", min=1, max=10_000, help="Steps of each seed.")] = 60,
    left_out: Annotated[
        str | None, word("--without", "Steps to leave out, of a schedule that was printed.", metavar="N,N,…")
    ] = None,
    setup: Annotated[
        str | None, word("--setup", "Function that makes the application's tables.", metavar="MODULE:FUNCTION")
    ] = None,
    promise: Annotated[
        str | None,
        word("--promise", "Function that raises if a promise is broken at the end.", metavar="MODULE:FUNCTION"),
    ] = None,
) -> Answer:
    """Run the handlers of an application under random faults.

    The faults are crashes, lost answers, slow disks, repeated submits, and clocks that jump. Each seed is one schedule
    of steps of three processes on a ledger of its own. At the end every job must have ended, the ledger must be whole,
    and the promise of --promise must hold. The first seed that breaks one is shrunk, and its schedule is printed.
    """
    from holdfast.cli.commands.worker import load  # noqa: PLC0415 - the engine, on demand
    from holdfast.model.application import Schedule, Simulator  # noqa: PLC0415

    # The application's own object, because handlers may use it; the simulator binds it to its own ledgers.
    ledger = load(app, Location(None, None))
    wanted, skipped = (_calls(calls), []) if calls is not None else _without_arguments(ledger)
    simulator = Simulator(ledger, wanted, setup=_function(setup), promise=_function(promise))
    given = {"--calls": calls, "--setup": setup, "--promise": promise}
    again = ["holdfast", "simulate", app, *(word for name, value in given.items() if value for word in (name, value))]
    logging.disable(logging.ERROR)  # the simulation causes crashes and lost leases on purpose
    try:
        if left_out is not None:
            run = simulator.run(Schedule(first, steps, _numbers(left_out)))
            return _answer(again, 1, skipped, run)
        done, broken, crashes = simulator.first_broken(range(first, first + seeds), steps)
        small = simulator.shrunk(broken) if broken is not None else None
    finally:
        logging.disable(logging.NOTSET)
        simulator.close()
    if small is None:
        counts = {"crashes": dict(sorted(crashes.items())), "broken": None}
        value = {"ok": True, "seeds": done, "skipped": skipped, **counts}
        text = f"{done} seeds, {crashes.total():,} crashes: every promise was kept."
        if skipped:
            text += f"\nNot simulated, because they need arguments: {', '.join(skipped)}. Give --calls."
        return Answer(value, text)
    return _answer(again, done, skipped, small)


def _answer(command: list[str], done: int, skipped: list[str], run: "SimulatedRun") -> Answer:
    value = {"ok": run.broken is None, "seeds": done, "skipped": skipped, **msgspec.to_builtins(run)}
    schedule = run.schedule
    left_out = ",".join(map(str, schedule.left_out)) or "-"
    again = [*command, "--first", str(schedule.seed), "--steps", str(schedule.steps), "--without", left_out]

    def show() -> None:
        for line in run.story:
            output.line(output.clean(line))
        if run.broken is None:
            output.line("Every promise was kept.")
            return
        output.line(output.clean(f"BROKEN, seed {schedule.seed}: {run.broken}"))
        output.line(f"next: {shlex.join(again)}")

    return Answer(value, show, 0 if run.broken is None else BROKEN)


def _without_arguments(ledger: "Ledger") -> "tuple[list[Call[Any]], list[str]]":
    """Return a call of each operation that needs no arguments, and the names of the others."""
    calls, skipped = [], []
    for operation in ledger.operations:
        if not operation.built_in:
            try:
                calls.append(operation.call())
            except ArgumentsError:
                skipped.append(operation.name)
    if not calls:
        raise InputError(
            f"Every operation needs arguments: {', '.join(skipped) or 'the ledger has none'}.",
            next_step="Name the calls to submit: --calls FILE, or --calls MODULE:FUNCTION.",
            context={"operations": skipped},
        )
    return calls, skipped


def _calls(given: str) -> "list[Call[Any]]":
    """Return the calls of a file, or those that a function returns."""
    from holdfast.engine.operations import Call  # noqa: PLC0415 - see above

    path = Path(given)
    try:
        if ":" in given and not path.exists():
            return msgspec.convert(_function(given)(), list[Call])
        return msgspec.convert(loads(read_file(path)), list[Call])
    except msgspec.ValidationError as error:
        raise InputError(
            f"{given} is not a list of calls: {error}.",
            next_step='Write [{"operation": "NAME", "payload": {…}}, …].',
            context={"file": given},
        ) from None


def _function(name: str | None) -> Any:
    if name is None:
        return None
    found = imported(name)
    if not callable(found):
        raise InputError(f"There is no function {name}.", next_step="Give module:function.", context={"name": name})
    return found


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return () if text == "-" else tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise InputError(f"{text!r} is not a list of numbers.", context={"option": "--without"}) from None
