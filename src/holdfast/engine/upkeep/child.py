"""Duties in a child process of the worker, on request: they take no CPU time of the worker's own process.

The child opens the ledger itself. What it logs, and the violations that it finds, it sends to its parent, which logs
and publishes them. Duties that the application brings stay in the worker: they cannot be sent.

Invariants: a child ends with its parent, however that ends; a child that ends by itself is started again; a child that
gets SIGTERM leaves its unfinished duties to other workers.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.engine.events import InvariantViolated
from holdfast.engine.ledger import Ledger
from holdfast.engine.upkeep.duties import Duties, Duty, Periods
from holdfast.engine.worker.child import Channel, channel_to_parent, plain
from holdfast.engine.worker.processes import ChildProcess

if TYPE_CHECKING:
    from threading import Event

logger = logging.getLogger("holdfast")

STOP_S = 3.0  # what a child gets to leave its duties; a keeper gets a little more
FLUSH_S = 1.0  # of it to send the last violations
NO_DUTIES = Periods(fold_s=None, seal_s=None, extend_s=None, gc_s=None, check_s=None, forget_s=None)


class ChildDuties:
    """The duties of a keeper: every ledger's own in a child process, the application's in this thread."""

    def __init__(self, ledger: Ledger, periods: Periods, also: Sequence[Duty], actor: str, stopped: Event) -> None:
        self._ledger, self._periods, self._stopped = ledger, periods, stopped
        here = msgspec.structs.replace(NO_DUTIES, look_s=periods.look_s, retry_s=periods.retry_s)
        self._here = Duties(ledger, here, also, actor, stopped) if also else None
        # Another process costs the worker nothing: no limit.
        there = msgspec.structs.replace(periods, share=1.0, in_child=False)
        url = ledger.store.absolute_url
        self._order = {"url": url, "schema": ledger.schema, "periods": plain(there), "actor": actor}
        self.child: ChildProcess | None = None
        self._listener = threading.Thread(target=self._run_children, name="holdfast-duties", daemon=True)
        self._listener.start()

    def keep(self) -> None:
        """Do the application's duties until the keeper stops; then end the child."""
        if self._here is not None:
            self._here.keep()
        self._stopped.wait()
        self._end()

    def _end(self) -> None:
        if (child := self.child) is not None:
            child.terminate()
            self._listener.join(STOP_S)
            child.kill()

    def _run_children(self) -> None:
        while not self._stopped.is_set():
            try:
                how = self._run_child()
            except OSError as error:
                how = str(error)  # no room for another process
            if not self._stopped.is_set():
                retry_s = self._periods.retry_s
                logger.warning("the process of the duties ended: %s; starting another in %g s", how, retry_s)
                self._stopped.wait(retry_s)

    def _run_child(self) -> str:
        """Start a child and take what it sends; return how it ended."""
        child = self.child = ChildProcess(__name__)
        if self._stopped.is_set():
            child.terminate()  # the keeper that stopped may not have seen it
        with suppress(OSError):  # the child has ended
            child.channel.send(self._order)
            while (message := child.receive()) is not None:
                self._take(message)
                child.channel.send("taken")
        self.child = None
        return child.end()

    def _take(self, message: dict[str, Any]) -> None:
        if "log" in message:
            logger.log(*message["log"])
        else:
            self._ledger.bus.publish([msgspec.convert(message["violation"], InvariantViolated)])


# ---------------------------------------------------------------------------------------------------------------------
# In the child


class _Parent(logging.Handler):
    """Sends what the child logs, and the violations that it finds, to the parent."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self._turn = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        self._send({"log": [record.levelno, "%s", self.format(record)]})

    def violation(self, found: InvariantViolated) -> None:
        self._send({"violation": plain(found)})

    def _send(self, message: object) -> None:
        with self._turn:
            self._channel.send(message)
            self._channel.receive()


def child() -> None:
    """Do the duties of the ledger that the parent names until SIGTERM, or until the parent is gone."""
    stopped = threading.Event()
    channel = channel_to_parent(stopped.set)
    order = channel.receive()
    parent = _Parent(channel)
    logger.addHandler(parent)
    logger.propagate = False
    try:
        with Ledger(order["url"], schema=order["schema"], create=False) as ledger:
            subscription = ledger.subscribe_to_violations(parent.violation)
            Duties(ledger, msgspec.convert(order["periods"], Periods), (), order["actor"], stopped).keep()
            subscription.flush(FLUSH_S)
    except HoldfastError as error:
        logger.warning("the duties cannot begin: %s", error)
        sys.exit(1)
