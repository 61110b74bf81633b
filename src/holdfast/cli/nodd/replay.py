"""`nodd-replay`: the commands of `holdfast replay` with the flags, variables and files of the NODD application.

Invariants: an environment is always named, by --env or KFM_ENV; a flag wins over a variable; outside of prod a queue
whose name contains prod is refused.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from typing import Annotated, Any, ClassVar

import click
import msgspec

from holdfast.cli.app import run as run_command
from holdfast.cli.declare import option
from holdfast.cli.options import db_named, named_by
from holdfast.cli.replay.commands import COMMANDS, command_group
from holdfast.cli.replay.flags import GLOBAL, GlobalFlags, SelectionFlags, flag
from holdfast.cli.replay.overlays import OverlayDocument, OverlayFormat
from holdfast.cli.replay.program import Program
from holdfast.cli.replay.spec_files import SpecFormat
from holdfast.core.environments import ENVIRONMENTS
from holdfast.core.errors import HoldfastError, RecordNotFoundError, ReplayGuardError
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.engine.events import Bus
from holdfast.governance.replay.guards import GuardType
from holdfast.nodd.replay_names import (
    FILTER_NAMES,
    OVERLAY_KIND,
    OVERLAY_VERSION,
    SPEC_KIND,
    SPEC_VERSION,
    NoddFilters,
    record_field,
)
from holdfast.nodd.reporter import TelemetryReporter
from holdfast.nodd.units import CLIENT
from holdfast.store import Store
from holdfast.telemetry import Target, Telemetry, start

PROGRAM = "nodd-replay"
UNKNOWN = "unknown"  # the label of an environment that does not exist
_WAL_ID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PROD = re.compile(r"(?:^|[^a-z0-9])(?:prod|production|prd)(?:[^a-z0-9]|$)")


env_named = partial(named_by, "--env")


class NoddOverlay(OverlayDocument, frozen=True, forbid_unknown_fields=True, rename={"api_version": "apiVersion"}):
    """An overlay of NODD: these sections belong to the application and are not read."""

    sns: dict[str, Any] = msgspec.field(default_factory=dict)
    sqs: dict[str, Any] = msgspec.field(default_factory=dict)
    telemetry: dict[str, Any] = msgspec.field(default_factory=dict)
    governance: dict[str, Any] = msgspec.field(default_factory=dict)


NODD_SPEC = SpecFormat(SPEC_VERSION, SPEC_KIND, NoddFilters, NoddFilters.to_selection, FILTER_NAMES)
NODD_OVERLAY = OverlayFormat(OVERLAY_VERSION, OVERLAY_KIND, NoddOverlay)


class NoddProgram(Program):
    """The names of `nodd-replay`."""

    def text(self, text: str) -> str:
        """Return a text with the flags and the name of `nodd-replay`."""
        return text.replace("--queue ", "--dataset ").replace("holdfast replay ", f"{PROGRAM} ")

    def field(self, job: Job, name: str) -> object:
        """Return a field of a record, of its job, or of its payload."""
        known, value = record_field(job, name)
        return value if known else super().field(job, name)

    def find(self, store: Store[Any], name: str) -> Job | None:
        """Return the job of a wal_id: the first, or the last one that replaced it and succeeded."""
        with store.reading() as reading:
            job = reading.jobs.by_key([(CLIENT, name)]).get((CLIENT, name))
            later = job
            while later is not None:
                if later.state is JobState.SUCCEEDED:
                    job = later
                replaced = reading.replay.replaced_by([later.job_id]).get(later.job_id)
                later = None if replaced is None else reading.jobs.get(replaced)
        if job is None and _WAL_ID.fullmatch(name):
            raise RecordNotFoundError(
                f"there is no record {name}", next_step="List the records with `holdfast nodd records`."
            )
        return job


@dataclass(frozen=True, kw_only=True)
class NoddSelectionFlags(SelectionFlags):
    """The flags that select jobs, with NODD's name of a queue."""

    queue: Annotated[str | None, flag("--dataset", "Only records of this dataset.", metavar="NAME")] = None
    queue_in: Annotated[str | None, flag("--dataset-in", "Only records of these datasets: A,B.", metavar="NAMES")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class NoddFlags(GlobalFlags):
    """The global flags of `nodd-replay`."""

    program: ClassVar[Program] = NoddProgram(
        name=PROGRAM,
        url_flag="--wal-dsn",
        url_variable="KFM_WAL_DSN",
        env_variable="KFM_ENV",
        reason_needed=False,
        queue="dataset",
        spec=NODD_SPEC,
        overlay=NODD_OVERLAY,
        columns=("wal_id", "dataset", "status", "attempts", "last_error_code", "created_at"),
        record_fields=("wal_id", "dataset", "status"),
    )

    db: Annotated[
        str | None,
        flag("--db --wal-dsn", "The ledger; default KFM_WAL_DSN.", metavar="URL", panel=GLOBAL, callback=db_named),
    ] = None
    env: Annotated[
        str | None,
        flag(
            "--env",
            "dev, stage or prod; default KFM_ENV.",
            metavar="NAME",
            panel=GLOBAL,
            callback=env_named,
        ),
    ] = None
    primary_queue: Annotated[
        str | None,
        flag("--primary-queue", "The queue to fill; default KFM_SQS_PRIMARY_QUEUE.", metavar="QUEUE", panel=GLOBAL),
    ] = None
    dlq_queue: Annotated[
        str | None,
        flag("--dlq-queue", "The queue to drain; default KFM_SQS_DLQ_QUEUE.", metavar="QUEUE", panel=GLOBAL),
    ] = None
    telemetry: Annotated[
        Target | None,
        option(
            "--telemetry",
            help="Send metrics to standard error (console) or to a collector (otlp).",
            panel=GLOBAL,
        ),
    ] = None

    @property
    def queues(self) -> dict[str, str]:
        """Return the queues of the application, by the flag that names each."""
        named = {
            "--primary-queue": self.primary_queue or os.environ.get("KFM_SQS_PRIMARY_QUEUE"),
            "--dlq-queue": self.dlq_queue or os.environ.get("KFM_SQS_DLQ_QUEUE"),
        }
        return {flag: queue for flag, queue in named.items() if queue}

    def require_endpoints(self, env: str | None) -> None:
        """Raise ReplayGuardError if a queue of prod was named for another environment."""
        for name, queue in self.queues.items():
            if env != "prod" and _PROD.search(queue.lower()):
                raise ReplayGuardError(
                    f"{name} {queue} is a queue of prod, but --env is {env}",
                    code=GuardType.ENV_MISMATCH,
                    next_step=f"Name the queue of {env}, or give --env prod.",
                    context={"guard_type": str(GuardType.ENV_MISMATCH), "flag": name, "env": env},
                )

    @contextmanager
    def event_bus(self, store: Store[Any]) -> Iterator[Bus | None]:
        """Yield a bus whose events go to telemetry, or None without --telemetry."""
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
    """Return a command that counts its calls and its errors, if telemetry is on."""

    @wraps(function)
    def command(ctx: click.Context, common: NoddFlags, **given: Any) -> None:
        whole = common.within(ctx.obj)
        sink = start(whole.telemetry or Target.OFF, "holdfast-nodd")
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


_SINK: ContextVar[Telemetry | None] = ContextVar("sink", default=None)  # of the running command

app = command_group(
    {name: _counted(name, function) for name, function in COMMANDS.items()},
    "Replay failed records, under guards.",
    NoddFlags,
    NoddSelectionFlags,
)


def run(arguments: Sequence[str]) -> int:
    return run_command(arguments, app, PROGRAM)


def main() -> None:
    sys.exit(run(sys.argv[1:]))
