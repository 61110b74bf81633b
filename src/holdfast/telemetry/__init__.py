"""Telemetry: metrics, traces and logs of a ledger, through OpenTelemetry, and its state in Prometheus' format.

Nothing below this package imports it, and OpenTelemetry is imported only if telemetry is on. `sink` sends metrics and
spans; `metrics` is the table of names; `state` reads the gauges; `prometheus` writes them as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.telemetry.target import Target

if TYPE_CHECKING:
    from holdfast.telemetry.sink import Telemetry, start

__all__ = ["Target", "Telemetry", "start"]


def __getattr__(name: str) -> Any:
    """Import the sink when it is first used: what only reads metrics needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.telemetry import sink  # noqa: PLC0415 - see above

    return getattr(sink, name)
