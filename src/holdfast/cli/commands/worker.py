"""`holdfast worker`: runs a worker until it is stopped.

Invariants: --db wins over the URL in the application, that over the configuration; the first line says which ledger,
queues and operations this worker serves; the first SIGTERM or SIGINT stops a worker gracefully, the second at once; a
worker that has abandoned too many threads replaces itself by a new process; a worker never creates a ledger.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import argument, option
from holdfast.cli.logs import LogFormat, log_handler
from holdfast.cli.modules import imported
from holdfast.cli.options import ledger_url
from holdfast.core.errors import InputError
from holdfast.store.configuration import configuration
from holdfast.store.urls import shown
from holdfast.telemetry.target import Target

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.engine.ledger import Ledger
    from holdfast.engine.upkeep.duties import Periods

logger = logging.getLogger("holdfast")

STOPPED_AT_ONCE = 130


@command(Location.unopened)
def worker(
    location: Location,
    *,
    app: Annotated[
        str, argument(metavar="MODULE:LEDGER", help="Python module and name of a Ledger or Operations object.")
    ],
    queue: Annotated[
        list[str] | None,
        option(
            "--queue",
            metavar="NAME",
            help="Name of a queue to serve; repeatable (default: the queues of the operations).",
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        option(
            "--concurrency",
            min=1,
            max=10_000,
            help="Maximum number of handlers that run at the same time (default: 8).",
        ),
    ] = None,
    processes: Annotated[bool, option("--processes", help="Run handlers in processes instead of threads.")] = False,
    drain: Annotated[
        float | None,
        option(
            "--drain",
            min=0,
            metavar="SECONDS",
            help="Seconds that running handlers get to finish after a stop (default: 30).",
        ),
    ] = None,
    until_idle: Annotated[bool, option("--until-idle", help="Stop when no job is due.")] = False,
    no_retention: Annotated[bool, option("--no-retention", help="Do not run retention in this worker.")] = False,
    no_upkeep: Annotated[
        bool, option("--no-upkeep", help="Leave seals, partitions and retention to a worker of the owner.")
    ] = False,
    upkeep_process: Annotated[
        bool, option("--upkeep-process", help="Run seals, checks and retention in a process of their own.")
    ] = False,
    log: Annotated[LogFormat | None, option("--log", help="Form of the log on standard error (default: text).")] = None,
    telemetry: Annotated[
        Target | None, option("--telemetry", help="Where to send metrics and traces (default: off).")
    ] = None,
    metrics: Annotated[
        int | None,
        option("--metrics", min=0, max=65535, metavar="PORT", help="Serve /metrics at this port of 127.0.0.1."),
    ] = None,
    as_json: bool = False,
) -> Answer:
    """Run a worker until it is stopped.

    What is not given comes from the configuration: `holdfast config show`.
    """
    from holdfast.engine.worker.worker import Worker  # noqa: PLC0415 - see above

    settings = configuration(concurrency=concurrency, drain_s=drain, log=log, telemetry=telemetry, metrics=metrics)
    logging.basicConfig(level=logging.INFO, handlers=[log_handler(LogFormat(settings.log))])
    ledger = load(app, location)
    _name(ledger, location)
    ledger.create = False  # in the wrong folder a worker would serve a new, empty ledger
    queues = queue or ledger.queues()
    made = Worker(
        ledger,
        queues=queues,
        concurrency=settings.concurrency,
        executor="processes" if processes else "threads",
        drain_s=settings.drain_s,
        periods=_periods(no_retention=no_retention, no_upkeep=no_upkeep, in_child=upkeep_process),
    )
    serves = _serves(ledger, queues, settings.concurrency)
    if not as_json:
        facts = [f"{name} {', '.join(of) if isinstance(of, list) else of}" for name, of in serves.items()]
        logger.info("worker %s: %s", made.worker_id, "; ".join(facts))
    with _stopped_by_signals(made), _reported(ledger, Target(settings.telemetry), settings.metrics):
        attempts = made.run(until_idle=until_idle)
    if made.recycle and not until_idle:
        # Threads cannot be killed, so the process replaces itself.
        os.execv(sys.executable, [sys.executable, "-m", "holdfast.cli", *sys.argv[1:]])  # noqa: S606 - our own command
    value = {"worker_id": made.worker_id, "attempts": attempts, **serves}
    return Answer(value, f"Worker {made.worker_id} stopped. Attempts: {attempts}.")


def load(app: str, location: Location) -> "Ledger":
    """Import `module:name` and return that Ledger, or a Ledger with those Operations; raise InputError otherwise."""
    from holdfast.engine.ledger import Ledger  # noqa: PLC0415 - see above
    from holdfast.engine.operations import Operations  # noqa: PLC0415

    found = imported(app, default="ledger")
    if isinstance(found, Operations):
        return Ledger(location.url, found, schema=location.schema)
    if not isinstance(found, Ledger):
        raise InputError(
            f"{app!r} is a {type(found).__name__}, not a Ledger.",
            next_step="Give the name of a Ledger or Operations object.",
        )
    url = location.db or found.url
    if url is None or (url, location.schema_given or found.schema) == (found.url, found.schema):
        return found
    ledger_url(url, location.schema_given)  # refuses --schema for a file
    return Ledger(url, found.operations, schema=location.schema_given or found.schema)


def _name(ledger: "Ledger", location: Location) -> None:
    """Let printed commands name the ledger, if the application alone names it."""
    from holdfast.engine.ledger import DEFAULT_URL  # noqa: PLC0415 - see above

    known = configuration()
    url = ledger.url or known.url or DEFAULT_URL
    if location.db is None and url != known.url:
        output.ledger_flags().name("--db", url)
    if location.schema_given is None and ledger.schema != known.schema:
        output.ledger_flags().name("--schema", ledger.schema)


def _serves(ledger: "Ledger", queues: Sequence[str], concurrency: int) -> dict[str, object]:
    """Return what a worker serves, for its first line: the ledger, the queues, the operations and their versions."""
    place = shown(ledger.store.absolute_url)
    return {
        "ledger": place if ledger.schema == "public" else f"{place} schema {ledger.schema}",
        "queues": list(queues),
        "operations": sorted(f"{operation.name}@{operation.version}" for operation in ledger.operations),
        "concurrency": concurrency,
        **({"pooler": "yes, so it polls for work"} if getattr(ledger.store, "pooled", False) else {}),
    }


def _periods(*, no_retention: bool, no_upkeep: bool, in_child: bool) -> "Periods":
    from holdfast.engine.upkeep.duties import Periods  # noqa: PLC0415 - see above

    usual = Periods(in_child=in_child)
    if no_upkeep:
        return msgspec.structs.replace(usual, gc_s=None, seal_s=None, extend_s=None)
    return msgspec.structs.replace(usual, gc_s=None) if no_retention else usual


def _reported(ledger: "Ledger", target: Target, port: int | None) -> AbstractContextManager[None]:
    if target is Target.OFF and port is None:
        return nullcontext()
    from holdfast.telemetry.working import reported  # noqa: PLC0415 - only where telemetry is on

    return reported(ledger, target, port)


@contextmanager
def _stopped_by_signals(made: Any) -> Iterator[None]:
    """Stop the worker on the first SIGTERM or SIGINT, and exit the process on the second."""
    signals = 0

    def stop(*_: object) -> None:
        nonlocal signals
        signals += 1
        if signals > 1:
            os._exit(STOPPED_AT_ONCE)
        made.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
