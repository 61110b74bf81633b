"""`holdfast worker`: run the operations of a ledger until stopped.

Invariants: a worker stops gracefully on the first SIGTERM or SIGINT and at once on the second; one that has abandoned
too many threads is replaced by a fresh process of itself.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Answer, Location, command
from holdfast.core.errors import HoldfastError, InputError

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.engine.ledger import Ledger

STOPPED_AT_ONCE = 130


@command(Location.unopened)
def worker(
    location: Location,
    *,
    app: Annotated[str, typer.Argument(metavar="MODULE:LEDGER", help="Where the ledger and its operations are.")],
    queue: Annotated[
        list[str] | None, typer.Option("--queue", metavar="NAME", help="A queue; may be repeated.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=10_000, help="Handlers at once.")] = 8,
    processes: Annotated[bool, typer.Option("--processes", help="Run handlers in processes, not threads.")] = False,
    drain: Annotated[
        float, typer.Option("--drain", min=0, metavar="SECONDS", help="Time to finish when stopped.")
    ] = 30,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when nothing is due.")] = False,
    no_retention: Annotated[
        bool, typer.Option("--no-retention", help="Leave retention to others, who see the directory of archives.")
    ] = False,
) -> Answer:
    """Run the operations of a ledger until stopped."""
    from holdfast.engine.upkeep.duties import Periods  # noqa: PLC0415 - see above
    from holdfast.engine.worker.worker import Worker  # noqa: PLC0415

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    ledger = load(app, location)
    made = Worker(
        ledger,
        queues=queue or ledger.queues(),
        concurrency=concurrency,
        executor="processes" if processes else "threads",
        drain_s=drain,
        periods=Periods(gc_s=None) if no_retention else None,
    )
    with _stopped_by_signals(made):
        attempts = made.run(until_idle=until_idle)
    if made.recycle and not until_idle:
        # Threads cannot be ended, a process can: this one is replaced by itself.
        os.execv(sys.executable, [sys.executable, "-m", "holdfast.cli", *sys.argv[1:]])  # noqa: S606 - our own command
    value = {"worker_id": made.worker_id, "attempts": attempts}
    return Answer(value, f"{made.worker_id} made {attempts} attempts")


def load(app: str, location: Location) -> "Ledger":
    """Import `module:name` and return the Ledger, or a Ledger with the Operations, that it names."""
    from holdfast.engine.failures import error_message  # noqa: PLC0415
    from holdfast.engine.ledger import Ledger  # noqa: PLC0415 - see above
    from holdfast.engine.operations import Operations  # noqa: PLC0415

    module, _, name = app.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = getattr(import_module(module), name or "ledger")
    except HoldfastError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's module may raise anything when it is imported
        raise InputError(
            f"{app!r} cannot be loaded: {error_message(error)}",
            next_step="Give module:name of a Ledger that Python can import.",
        ) from None
    if isinstance(found, Operations):
        return Ledger(location.url, found, schema=location.schema)
    if not isinstance(found, Ledger):
        raise InputError(f"{app!r} is a {type(found).__name__}, not a Ledger", next_step="Name a Ledger or Operations.")
    return Ledger(location.url, found.operations, schema=location.schema) if location.db else found


@contextmanager
def _stopped_by_signals(made: Any) -> Iterator[None]:
    """Let SIGTERM and SIGINT stop a worker while it runs; a second one ends the process."""
    asked = 0

    def stop(*_: object) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            os._exit(STOPPED_AT_ONCE)
        made.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
