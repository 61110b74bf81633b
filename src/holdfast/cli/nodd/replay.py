"""`nodd-replay`: the commands of `holdfast replay` with the flags, variables and exit codes of the NODD application.

Invariants: an environment is always named, by --env or KFM_ENV; a flag wins over a variable; outside of prod no queue
is taken whose name says that it is one of prod.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, ClassVar

import typer
from typer.main import get_command

from holdfast.cli.app import quick
from holdfast.cli.app import run as run_command
from holdfast.cli.options import db_named, named_by
from holdfast.cli.replay.commands import COMMANDS, made_of
from holdfast.cli.replay.flags import GLOBAL, Common
from holdfast.core.environments import ENVIRONMENTS
from holdfast.core.errors import HoldfastError, ReplayGuardError
from holdfast.engine.events import Bus
from holdfast.governance.replay.replay import GuardType
from holdfast.nodd.reporter import TelemetryReporter
from holdfast.nodd.units import CLIENT
from holdfast.store import Store
from holdfast.telemetry import Target, Telemetry, start

PROGRAM = "nodd-replay"
UNKNOWN = "unknown"  # an environment that is none: as a label it is one
_PROD = re.compile(r"(?:^|[^a-z0-9])(?:prod|production|prd)(?:[^a-z0-9]|$)")


def _option(*names: str, help_text: str, metavar: str, **more: Any) -> Any:
    return typer.Option(*names, metavar=metavar, help=help_text, rich_help_panel=GLOBAL, **more)


def _env_named(ctx: typer.Context, param: typer.CallbackParam, value: str | None) -> str | None:
    return named_by("--env", ctx, param, value)


@dataclass(frozen=True, kw_only=True)
class NoddCommon(Common):
    """The global flags, as `nodd-replay` has them."""

    program: ClassVar[str] = PROGRAM
    url_flag: ClassVar[str] = "--wal-dsn"
    url_variable: ClassVar[str] = "KFM_WAL_DSN"
    env_variable: ClassVar[str | None] = "KFM_ENV"
    reason_needed: ClassVar[bool] = False
    client: ClassVar[str | None] = CLIENT
    records_step: ClassVar[str | None] = "List the records with `holdfast nodd records`."
    record_fields: ClassVar[tuple[str, ...]] = ("wal_id", "dataset", "status")

    db: Annotated[
        str | None,
        _option("--db", "--wal-dsn", metavar="URL", help_text="The ledger; else KFM_WAL_DSN.", callback=db_named),
    ] = None
    env: Annotated[
        str | None,
        _option("--env", metavar="NAME", help_text="dev, stage or prod; else KFM_ENV.", callback=_env_named),
    ] = None
    primary_queue: Annotated[
        str | None,
        _option("--primary-queue", metavar="QUEUE", help_text="What is fed; else KFM_SQS_PRIMARY_QUEUE."),
    ] = None
    dlq_queue: Annotated[
        str | None, _option("--dlq-queue", metavar="QUEUE", help_text="What is drained; else KFM_SQS_DLQ_QUEUE.")
    ] = None

    telemetry: Annotated[
        Target | None,
        typer.Option("--telemetry", help="Send metrics to standard error or to a collector.", rich_help_panel=GLOBAL),
    ] = None

    @property
    def queues(self) -> dict[str, str]:
        """Return the queues of the application, by the flag that names each."""
        told = {
            "--primary-queue": self.primary_queue or os.environ.get("KFM_SQS_PRIMARY_QUEUE"),
            "--dlq-queue": self.dlq_queue or os.environ.get("KFM_SQS_DLQ_QUEUE"),
        }
        return {flag: queue for flag, queue in told.items() if queue}

    def require_endpoints(self, env: str | None) -> None:
        """Raise if a queue of prod was named for another environment."""
        for flag, queue in self.queues.items():
            if env != "prod" and _PROD.search(queue.lower()):
                raise ReplayGuardError(
                    f"{flag} names a queue of prod, and the environment is {env}",
                    code=GuardType.ENV_MISMATCH,
                    next_step="Name the queue of that environment, or the environment that is meant.",
                    context={"guard_type": str(GuardType.ENV_MISMATCH), "flag": flag, "env": env},
                )

    @contextmanager
    def telling(self, store: Store[Any]) -> Iterator[Bus | None]:
        """Yield the bus that a replay is told on, if it is told."""
        sink = _SINK.get()
        if sink is None:
            yield None
            return
        reporter, bus = TelemetryReporter(sink, store), Bus()
        reporter.follow(bus)
        try:
            yield bus
        finally:
            reporter.close()


def _counted(name: str, function: Callable[..., None]) -> Callable[..., None]:
    """Return a command that tells of its calls, and of those that end in an error, if telemetry is on."""

    @wraps(function)
    def command(ctx: typer.Context, common: NoddCommon, **given: Any) -> None:
        whole = common.within(ctx.obj)
        sink = start(whole.telemetry or Target.OFF)
        if sink is None:
            function(ctx, common, **given)
            return
        env = whole.environment
        labels = {"command": name, "env": env if env in ENVIRONMENTS else UNKNOWN}
        sink.add("replay_cli_invocations_total", **labels)
        token = _SINK.set(sink)
        try:
            function(ctx, common, **given)
        except HoldfastError as error:
            sink.add("replay_cli_failures_total", **labels, error_code=error.code)
            raise
        finally:
            _SINK.reset(token)
            sink.close()

    return command


_SINK: ContextVar[Telemetry | None] = ContextVar("sink", default=None)  # of the command that runs

app = made_of(
    {name: _counted(name, function) for name, function in COMMANDS.items()},
    NoddCommon,
    "Put failed records back under rules.",
)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    return run_command(
        arguments, lambda given: quick(get_command(app)).main(given, prog_name=PROGRAM, standalone_mode=False)
    )


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))
