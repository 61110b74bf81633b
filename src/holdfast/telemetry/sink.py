"""Telemetry through OpenTelemetry: the metrics and spans of a ledger and of its applications, and where they are sent.

Invariants: OpenTelemetry is imported only if telemetry is on; a metric has exactly the labels of its row in the table;
a span contains no error message and no stack trace, because these may contain secrets.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import invariant
from holdfast.core.feature_errors import ExtraMissingError, extra
from holdfast.core.instruments import Instrument, InstrumentKind
from holdfast.engine.worker.signals import Cancel, Snooze
from holdfast.nodd import metrics as nodd
from holdfast.nodd.metrics import Span
from holdfast.telemetry import metrics as ledger
from holdfast.telemetry.target import Target

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

NAME = "holdfast"
# The full name and the row of each metric, by the name without its prefix.
INSTRUMENTS: dict[str, tuple[str, Instrument]] = {
    row.name: (table.PREFIX + row.name, row)
    for table, rows in ((ledger, ledger.LEDGER), (nodd, nodd.INSTRUMENTS))
    for row in rows.values()
}
OTLP = "opentelemetry-exporter-otlp-proto-http"
_NOT_ERRORS = (Snooze, Cancel)  # a handler raises these to direct its worker


class _Span:
    def __init__(self, span: Any) -> None:
        context = span.get_span_context()
        self._span = span
        self.trace_id, self.span_id = f"{context.trace_id:032x}", f"{context.span_id:016x}"

    def set(self, name: str, value: str) -> None:
        self._span.set_attribute(name, value)


class Telemetry:
    """Records metrics and spans through the two providers."""

    def __init__(self, meters: MeterProvider, tracers: TracerProvider) -> None:
        self._providers = (meters, tracers)
        self._meter, self._tracer = meters.get_meter(NAME), tracers.get_tracer(NAME)
        self._instruments: dict[str, Any] = {
            row.name: self._made(name, row)
            for name, row in INSTRUMENTS.values()
            if row.kind is not InstrumentKind.GAUGE
        }

    def add(self, name: str, n: int = 1, /, **labels: str) -> None:
        self._instruments[name].add(n, _checked(name, labels))

    def record(self, name: str, value: float, /, **labels: str) -> None:
        self._instruments[name].record(value, _checked(name, labels))

    def observe(self, name: str, look: Callable[[], Iterable[tuple[float, Mapping[str, str]]]], /) -> None:
        """Register a function that returns a gauge's values whenever they are exported."""
        from opentelemetry.metrics import CallbackOptions, Observation  # noqa: PLC0415 - an extra

        def observed(_options: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, _checked(name, labels)) for value, labels in look()]

        whole, row = INSTRUMENTS[name]
        self._meter.create_observable_gauge(whole, callbacks=[observed], unit=row.unit, description=row.description)

    @contextmanager
    def span(
        self, name: str, attributes: Mapping[str, str], *, kind: str = "INTERNAL", within: Any = None
    ) -> Iterator[Span]:
        """Open a span inside the current one, or within another context; an error inside marks it as failed."""
        from opentelemetry.trace import SpanKind, StatusCode  # noqa: PLC0415 - an extra

        with self._tracer.start_as_current_span(
            name,
            context=within,
            kind=SpanKind[kind],
            attributes=dict(attributes),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield _Span(span)
            except BaseException as error:
                if not isinstance(error, _NOT_ERRORS):
                    # Only the code of the error: its message may contain an object's address.
                    span.set_status(StatusCode.ERROR, _code(error))
                    span.set_attribute("error.type", _code(error))
                raise

    def begin(self, name: str, attributes: Mapping[str, str], *, kind: str, within: Any) -> Any:
        """Return OpenTelemetry's span, begun and not the current one: for work that does not run in this thread."""
        from opentelemetry.trace import SpanKind  # noqa: PLC0415 - an extra

        return self._tracer.start_span(name, context=within, kind=SpanKind[kind], attributes=dict(attributes))

    def close(self) -> None:
        """Send what is not sent yet, and stop."""
        for provider in self._providers:
            stop = getattr(provider, "shutdown", None)
            if stop is not None:
                stop()

    def _made(self, name: str, row: Instrument) -> Any:
        make = self._meter.create_counter if row.kind is InstrumentKind.COUNTER else self._meter.create_histogram
        return make(name, unit=row.unit, description=row.description)


def start(target: Target, service: str = NAME) -> Telemetry | None:
    """Return telemetry that sends to a target, or None for `off`; raise ExtraMissingError if a package is missing.

    `service` is the name of the service if OTEL_SERVICE_NAME is not set.
    """
    if target is Target.OFF:
        return None
    with extra("telemetry"):
        metrics, metrics_export, trace, trace_export, resources = (
            importlib.import_module(f"opentelemetry.sdk.{name}")
            for name in ("metrics", "metrics.export", "trace", "trace.export", "resources")
        )
    if target is Target.CONSOLE:
        # Standard output is for the answer of the command.
        measured: Any = metrics_export.ConsoleMetricExporter(out=sys.stderr)
        spans = trace_export.SimpleSpanProcessor(trace_export.ConsoleSpanExporter(out=sys.stderr))
    else:
        measured, sent = _otlp()
        spans = trace_export.BatchSpanProcessor(sent)
    resource = resources.Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", service)})
    reader = metrics_export.PeriodicExportingMetricReader(measured)
    tracers = trace.TracerProvider(resource=resource)
    tracers.add_span_processor(spans)
    return Telemetry(metrics.MeterProvider([reader], resource=resource), tracers)


def _otlp() -> tuple[Any, Any]:
    """Return the exporters of metrics and spans; they read OTEL_EXPORTER_OTLP_ENDPOINT and related variables."""
    package = "opentelemetry.exporter.otlp.proto.http"
    try:
        metrics = importlib.import_module(f"{package}.metric_exporter")
        spans = importlib.import_module(f"{package}.trace_exporter")
    except ImportError:
        raise ExtraMissingError(
            "The OTLP exporter is not installed", next_step=f"Install it with: pip install {OTLP}"
        ) from None
    return metrics.OTLPMetricExporter(), spans.OTLPSpanExporter()


def _checked(name: str, labels: Mapping[str, str]) -> dict[str, str]:
    invariant(set(labels) == set(INSTRUMENTS[name][1].labels), f"{name} was recorded with the labels {sorted(labels)}")
    return dict(labels)


def _code(error: BaseException) -> str:
    code = getattr(error, "code", None) or getattr(error, "reason", None)
    return code if isinstance(code, str) and code.isidentifier() else type(error).__name__
