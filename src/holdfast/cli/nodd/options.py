"""Options that the commands of `holdfast nodd` share, and how they open a ledger.

Invariants: the first of these commands that opens a ledger adds the tables of the application to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from holdfast.cli.command import Location
from holdfast.cli.declare import argument, option
from holdfast.cli.options import OPERATOR_HELP
from holdfast.core.errors import InputError
from holdfast.engine.events import Bus
from holdfast.nodd.dataset import Dataset, Datasets
from holdfast.nodd.reporter import TelemetryReporter
from holdfast.nodd.tables import prepare
from holdfast.store import Store
from holdfast.telemetry import Target, Telemetry

Own = Annotated[Path | None, option("--datasets", metavar="DIR", help="Directory with additional datasets.")]
Endpoint = Annotated[
    str | None,
    option("--endpoint", envvar="HOLDFAST_AWS_ENDPOINT", metavar="URL", help="AWS endpoint (default: that of AWS)."),
]
CATALOG = option("--catalog", metavar="PLACE", help="Static STAC catalogue: a directory, or s3://BUCKET/PREFIX.")
Region = Annotated[str, option("--region", metavar="NAME", help="AWS region of the queues.")]
DatasetName = Annotated[
    str, argument(metavar="DATASET", help="Name of a dataset, such as gfs (see `holdfast nodd datasets`).")
]
Operator = Annotated[str | None, option("--operator", metavar="NAME", help=OPERATOR_HELP)]
TelemetryTarget = Annotated[Target, option("--telemetry", help="Where to send metrics and spans.")]


def prepared(location: Location) -> Store[Any]:
    """Return the store of the ledger, with the tables of the application."""
    store = location.open()
    try:
        prepare(store)
    except BaseException:
        store.close()
        raise
    return store


@contextmanager
def reporting(sink: Telemetry | None, store: Store[Any]) -> Iterator[tuple[TelemetryReporter | None, Bus | None]]:
    """Report what a command does to the ledger to a telemetry sink; send it when the command ends."""
    if sink is None:
        yield None, None
        return
    reporter, bus = TelemetryReporter(sink, store), Bus()
    reporter.follow(bus)
    try:
        yield reporter, bus
    finally:
        reporter.close()
        sink.close()


def dataset_named(datasets: Datasets, name: str) -> Dataset:
    """Return a dataset by its name, or raise InputError."""
    if name not in datasets:
        raise InputError(
            f"Unknown dataset {name!r}.",
            next_step="List the datasets with `holdfast nodd datasets`.",
            context={"dataset": name},
        )
    return datasets[name]


def day_of(text: str) -> datetime:
    """Return the start of a day in UTC, or raise InputError."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise InputError(f"The date must be YYYY-MM-DD; it is {text!r}.", next_step="Write it as 2026-11-14.") from None
