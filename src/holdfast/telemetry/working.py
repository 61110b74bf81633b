"""Telemetry of a worker of the command: what --telemetry and --metrics start, for as long as the worker runs.

Invariants: without both options this package is not imported; the last telemetry is sent after the worker has stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from holdfast.engine.ledger import Ledger
from holdfast.telemetry.reporter import LedgerReporter
from holdfast.telemetry.sink import start
from holdfast.telemetry.target import Target
from holdfast.telemetry.tracing import trace


@contextmanager
def reported(ledger: Ledger, target: Target, metrics_port: int | None) -> Iterator[None]:
    """Report what a worker does inside the block to a target, and to Prometheus at a port of the loopback interface."""
    with ExitStack() as ends:
        sink = start(target)
        if sink is not None:
            ends.callback(sink.close)
            reporter = LedgerReporter(sink, ledger.store)
            reporter.follow(ledger.bus)
            trace(ledger, sink)
            ends.callback(reporter.close)
        if metrics_port is not None:
            from holdfast.telemetry.scrape import scraped  # noqa: PLC0415 - an extra

            ends.enter_context(scraped(ledger, metrics_port))
        yield
