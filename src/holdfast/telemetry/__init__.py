"""Telemetry: metrics, traces and logs of a ledger, through OpenTelemetry, and its state in Prometheus' format.

Nothing below this package imports it, and OpenTelemetry is imported only if telemetry is on. `sink` sends metrics and
spans; `metrics` is the table of names; `state` reads the gauges; `prometheus` writes them as text.
"""

from holdfast.telemetry.sink import Target, Telemetry, start

__all__ = ["Target", "Telemetry", "start"]
