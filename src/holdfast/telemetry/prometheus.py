"""The state of a ledger in Prometheus' text format, for `/metrics` of the console and for `holdfast metrics`.

Invariants: every metric of the table is in the text with its help and type; a label's value can contain anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.instruments import Instrument
from holdfast.store.store import Store
from holdfast.telemetry.metrics import PREFIX, STATE
from holdfast.telemetry.state import Value, state_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def exposition(store: Store[Any]) -> str:
    """Return the ledger's state now: queue depth and age, states, workers, leases and seal lag."""
    return text_of(state_of(store))


def text_of(values: Sequence[Value]) -> str:
    """Return values of gauges in Prometheus' text format."""
    return "".join(_family(row, [each for each in values if each.name == row.name]) for row in STATE.values())


def _family(row: Instrument, values: list[Value]) -> str:
    name = row.exposed(PREFIX)
    lines = [f"# HELP {name} {row.description}", f"# TYPE {name} {row.kind}"]
    return "\n".join([*lines, *(f"{name}{_labels(row, each)} {each.value!r}" for each in values)]) + "\n"


def _labels(row: Instrument, value: Value) -> str:
    pairs = ",".join(f'{label}="{value.labels[label].translate(_ESCAPES)}"' for label in row.labels)
    return f"{{{pairs}}}" if pairs else ""
