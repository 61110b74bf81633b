"""A metric: its name, kind, labels, unit and description. Only tables of these name metrics.

Invariants: a name in Prometheus' format follows from the row, as OpenTelemetry's own translation makes it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

_SUFFIXES = {"s": "seconds", "By": "bytes"}


class InstrumentKind(StrEnum):
    """The kind of an instrument."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


class Instrument(msgspec.Struct, frozen=True):
    """One metric: its name without the prefix of its table, kind, labels, unit and description."""

    name: str
    kind: InstrumentKind
    labels: tuple[str, ...]
    unit: str
    description: str

    def exposed(self, prefix: str) -> str:
        """Return the name in Prometheus' format: with the unit, and `total` for a counter, at its end."""
        name = (prefix + self.name).replace(".", "_")
        for suffix in (_SUFFIXES.get(self.unit), "total" if self.kind is InstrumentKind.COUNTER else None):
            if suffix and not name.removesuffix("_total").endswith(f"_{suffix}") and not name.endswith(f"_{suffix}"):
                name = f"{name}_{suffix}"
        return name
