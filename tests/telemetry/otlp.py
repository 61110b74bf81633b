"""A receiver of OTLP over HTTP on the loopback interface: it decodes what exporters send, and keeps it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REQUESTS: dict[str, Any] = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


class Received:
    """What has arrived so far."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.requests: list[tuple[str, Any]] = []

    def spans(self) -> list[tuple[str, Any]]:
        """Each span with the name of the service that sent it."""
        return [
            (next(each.value.string_value for each in of.resource.attributes if each.key == "service.name"), span)
            for path, request in self.requests
            if path == "/v1/traces"
            for of in request.resource_spans
            for scope in of.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> set[str]:
        """The names of all metrics."""
        return {
            metric.name
            for path, request in self.requests
            if path == "/v1/metrics"
            for of in request.resource_metrics
            for scope in of.scope_metrics
            for metric in scope.metrics
        }


@contextmanager
def receiver() -> Iterator[Received]:
    """Receive inside the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            received.requests.append((self.path, REQUESTS[self.path].FromString(body)))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received = Received(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()


def attributes(span: Any) -> dict[str, str]:
    """The attributes of a span; all of them are texts."""
    return {each.key: each.value.string_value for each in span.attributes}
