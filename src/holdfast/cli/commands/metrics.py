"""`holdfast metrics`: prints the state of a ledger in Prometheus' text format. It only reads."""

import sys
from typing import Any

from holdfast.cli.command import Answer, Location, command
from holdfast.store import Store
from holdfast.telemetry.metrics import PREFIX, STATE
from holdfast.telemetry.prometheus import text_of
from holdfast.telemetry.state import state_of


@command(Location.open)
def metrics(store: Store[Any]) -> Answer:
    """Print the state of a ledger for Prometheus.

    Queue depth and age, jobs by state, workers, leases and seal lag, in Prometheus' text format; with --json, a list of
    names, labels and values. To serve it, run a worker with --metrics PORT.
    """
    values = state_of(store)
    rows = [
        {"name": STATE[each.name].exposed(PREFIX), "labels": dict(each.labels), "value": each.value} for each in values
    ]

    def human() -> None:
        sys.stdout.write(text_of(values))

    return Answer(rows, human)
