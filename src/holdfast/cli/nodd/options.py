"""What the commands of `holdfast nodd` share: options, and how they come to a prepared ledger.

Invariants: a ledger gets the application's tables the first time that one of these commands opens it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.command import Location
from holdfast.core.errors import InputError
from holdfast.engine.events import Bus
from holdfast.nodd.dataset import Dataset, Datasets
from holdfast.nodd.reporter import TelemetryReporter
from holdfast.nodd.tables import prepare
from holdfast.store import Store
from holdfast.telemetry import Target, Telemetry

Own = Annotated[Path | None, typer.Option("--datasets", metavar="DIR", help="A directory of datasets of your own.")]
Endpoint = Annotated[
    str | None, typer.Option("--endpoint", envvar="HOLDFAST_AWS_ENDPOINT", metavar="URL", help="Another AWS endpoint.")
]
Region = Annotated[str, typer.Option("--region", metavar="NAME", help="The region of the queues.")]
DatasetName = Annotated[str, typer.Argument(metavar="DATASET", help="Such as gfs: see `holdfast nodd datasets`.")]
Operator = Annotated[str | None, typer.Option("--operator", metavar="NAME", help="Who does this.")]
Told = Annotated[
    Target, typer.Option("--telemetry", help="Send metrics and spans to standard error or to a collector.")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why: it stays in the journal.")]


def prepared(location: Location) -> Store[Any]:
    """Return the store of the ledger that was named, with the application's tables."""
    store = location.open()
    try:
        prepare(store)
    except BaseException:
        store.close()
        raise
    return store


@contextmanager
def telling(sink: Telemetry | None, store: Store[Any]) -> Iterator[tuple[TelemetryReporter | None, Bus | None]]:
    """Tell a sink what a command does to a ledger, and send it when the command ends."""
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


def known(datasets: Datasets, name: str) -> Dataset:
    """Return a dataset by its name, or raise."""
    if name not in datasets:
        raise InputError(
            f"no dataset is called {name!r}",
            next_step="List them with `holdfast nodd datasets`.",
            context={"dataset": name},
        )
    return datasets[name]


def day_of(text: str) -> datetime:
    """Return the day that a date names, or raise."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise InputError(f"{text!r} is no date", next_step="Write it as 2026-11-14.") from None
