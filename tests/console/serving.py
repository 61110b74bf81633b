"""A console on a real port of loopback, served by the server of `holdfast console`."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.console.server import server
from tests.console.sites import Site

PATIENCE_S = 30.0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def served(site: Site, port: int) -> Iterator[Any]:
    """Yield the server of a console while it runs; the site's origin must be that of the port."""
    running = server(site.app, host="127.0.0.1", port=port)
    thread = threading.Thread(target=lambda: asyncio.run(running.serve()), name="console-server", daemon=True)
    thread.start()
    ends = time.monotonic() + PATIENCE_S
    while not running.started:
        assert time.monotonic() < ends
        time.sleep(0.01)
    yield running
    running.should_exit = True
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def closed_by_server(connection: socket.socket) -> bool:
    """Return whether the server closes a connection, within some time."""
    connection.settimeout(PATIENCE_S)
    with suppress(ConnectionError):
        while connection.recv(65536):
            pass
    return True
