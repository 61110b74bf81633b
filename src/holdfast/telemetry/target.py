"""Where telemetry goes: the values of --telemetry."""

from enum import StrEnum


class Target(StrEnum):
    """Where telemetry goes."""

    OFF = "off"
    CONSOLE = "console"  # standard error, as JSON
    OTLP = "otlp"  # a collector, configured by OpenTelemetry's environment variables
