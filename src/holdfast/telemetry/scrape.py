"""Metrics that Prometheus scrapes from a worker: what its process does, and the state of its ledger.

Invariants: it listens on the loopback interface only; a ledger out of reach is answered with 503, and no scrape can
stop or delay the worker; only `GET /metrics` is answered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from holdfast.core.errors import HoldfastError, InputError, invariant
from holdfast.core.feature_errors import extra
from holdfast.core.instruments import InstrumentKind
from holdfast.engine.ledger import Ledger
from holdfast.telemetry.metrics import EVENTS, PREFIX
from holdfast.telemetry.prometheus import CONTENT_TYPE, exposition
from holdfast.telemetry.reporter import LedgerReporter

HOST = "127.0.0.1"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600, 6 * 3600, 86400)


class ScrapeSink:
    """Keeps the counters and histograms of one process until Prometheus reads them."""

    def __init__(self) -> None:
        with extra("telemetry"):
            import prometheus_client  # noqa: PLC0415 - an extra
        self._registry = prometheus_client.CollectorRegistry()
        self._text = prometheus_client.generate_latest
        self._metrics: dict[str, Any] = {}
        for row in EVENTS.values():
            name, labels = row.exposed(PREFIX), row.labels
            if row.kind is InstrumentKind.COUNTER:
                made: Any = prometheus_client.Counter(name, row.description, labels, registry=self._registry)
            else:
                made = prometheus_client.Histogram(
                    name, row.description, labels, registry=self._registry, buckets=BUCKETS
                )
            self._metrics[row.name] = made

    def add(self, name: str, n: int = 1, /, **labels: str) -> None:
        self._labelled(name, labels).inc(n)

    def record(self, name: str, value: float, /, **labels: str) -> None:
        self._labelled(name, labels).observe(value)

    def observe(self, name: str, look: Callable[[], Iterable[tuple[float, Mapping[str, str]]]], /) -> None:
        """Do nothing: the state of the ledger is read at each scrape."""

    def span(self, name: str, attributes: Mapping[str, str]) -> AbstractContextManager[Any]:  # noqa: ARG002 - no spans
        """Do nothing: Prometheus takes no spans."""
        return nullcontext()

    def text(self) -> str:
        """Return all counters and histograms in Prometheus' text format."""
        return self._text(self._registry).decode()

    def _labelled(self, name: str, labels: Mapping[str, str]) -> Any:
        invariant(set(labels) == set(EVENTS[name].labels), f"{name} was recorded with the labels {sorted(labels)}")
        return self._metrics[name].labels(**labels) if labels else self._metrics[name]


@contextmanager
def scraped(ledger: Ledger, port: int) -> Iterator[int]:
    """Serve `/metrics` on the loopback interface inside the block; yield the port, which 0 leaves to the system.

    Raise InputError if the port is in use, ExtraMissingError if a package is missing.
    """
    sink = ScrapeSink()

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0  # seconds after which a client that sends nothing is disconnected

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self._answer(404, "Not found; GET /metrics.\n")
                return
            try:
                text = exposition(ledger.store) + sink.text()
            except HoldfastError as error:
                self._answer(503, f"# {error.code}: the ledger is out of reach\n")
            else:
                self._answer(200, text)

        def _answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            """Log nothing: Prometheus scrapes every few seconds."""

    try:
        server = ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise InputError(
            f"Port {port} cannot be used for metrics: {error.strerror}.",
            next_step="Give --metrics another port.",
            context={"port": port},
        ) from None
    reporter = LedgerReporter(sink, ledger.store)
    reporter.follow(ledger.bus)
    threading.Thread(target=server.serve_forever, name="holdfast-metrics", daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        reporter.close()
