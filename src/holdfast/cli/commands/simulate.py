"""`holdfast simulate`: runs an application's own handlers under random faults, on the real engine and a virtual clock.

Invariants: it never touches the application's own ledger; a seed whose promise breaks is shrunk, and its schedule is
printed so that it can be run again; the exit code is 1 if a promise breaks.
"""

import logging
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import argument, option
from holdfast.cli.options import word
from holdfast.core.errors import InputError
from holdfast.core.json_input import loads

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.engine.operations import Call
    from holdfast.model.application import SimulatedRun

BROKEN = 1


@command()
def simulate(
    *,
    app: Annotated[str, argument(metavar="MODULE:LEDGER", help="Module and name of the Ledger object.")],
    calls: Annotated[
        Path, option("--calls", metavar="FILE", help="JSON list of the calls: operation, payload, client, key.")
    ],
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

    ledger = load(app, Location(None, None))  # the object itself: its handlers may use it, and it is bound elsewhere
    wanted = _calls(calls)
    simulator = Simulator(ledger, wanted, setup=_function(setup), promise=_function(promise))
    logging.disable(logging.ERROR)  # crashes and lost leases are what it is about
    try:
        if left_out is not None:
            run = simulator.run(Schedule(first, steps, _numbers(left_out)))
            return _answer(app, calls, 1, run if run.broken else None, run)
        done, broken, crashes = simulator.first_broken(range(first, first + seeds), steps)
        small = simulator.shrunk(broken) if broken is not None else None
    finally:
        logging.disable(logging.NOTSET)
        simulator.close()
    if small is None:
        value = {"ok": True, "seeds": done, "crashes": dict(sorted(crashes.items())), "broken": None}
        return Answer(value, f"{done} seeds, {crashes.total():,} crashes: every promise was kept.")
    return _answer(app, calls, done, small, small)


def _answer(app: str, calls: Path, done: int, broken: "SimulatedRun | None", run: "SimulatedRun") -> Answer:
    value = {"ok": broken is None, "seeds": done, **msgspec.to_builtins(run)}
    schedule = run.schedule
    again = f"holdfast simulate {app} --calls {calls} --first {schedule.seed} --steps {schedule.steps}"
    again += f" --without {','.join(map(str, schedule.left_out)) or '-'}"

    def show() -> None:
        for line in run.story:
            output.line(output.clean(line))
        if broken is None:
            output.line("Every promise was kept.")
            return
        output.line(output.clean(f"BROKEN, seed {schedule.seed}: {broken.broken}"))
        output.line(f"next: {again}")

    return Answer(value, show, 0 if broken is None else BROKEN)


def _calls(path: Path) -> "list[Call[Any]]":
    from holdfast.engine.operations import Call  # noqa: PLC0415 - see above

    try:
        found = loads(path.read_bytes())
        return msgspec.convert(found, list[Call])
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.", context={"file": str(path)}) from None
    except msgspec.ValidationError as error:
        raise InputError(
            f"{path} is not a list of calls: {error}.",
            next_step='Write [{"operation": "NAME", "payload": {…}}, …].',
            context={"file": str(path)},
        ) from None


def _function(name: str | None) -> Any:
    if name is None:
        return None
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError):
        found = None
    if not callable(found):
        raise InputError(f"There is no function {name}.", next_step="Give module:function.", context={"name": name})
    return found


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return () if text == "-" else tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise InputError(f"{text!r} is not a list of numbers.", context={"option": "--without"}) from None
