"""The server of `holdfast console`: uvicorn, with limits on slow clients and on the time that it takes to stop.

Invariants: a client that does not send its request in time is cut off; a stop takes seconds, also with streams open.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.core.errors import InputError

HEAD_S = 10.0  # for the head of a request
STOP_S = 3
CONNECTIONS_MAX = 2000


class PatientProtocol(H11Protocol):
    """Closes a connection whose next request has not begun in time; uvicorn itself waits for ever."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_request()

    def _expect_request(self) -> None:
        self.loop.call_later(HEAD_S, self._close_unless_busy)

    def _close_unless_busy(self) -> None:
        cycle: Any = self.cycle  # None before the first request
        idle = cycle is None or cycle.response_complete
        if idle and not self.transport.is_closing():
            self.transport.close()


def server(app: Any, *, host: str, port: int, proxies: tuple[str, ...] = ()) -> uvicorn.Server:
    """Return a server of an application; `proxies` are the addresses whose X-Forwarded-For is trusted."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=PatientProtocol,
        ws="none",
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=STOP_S,
        limit_concurrency=CONNECTIONS_MAX,
        log_level="warning",
        access_log=False,
    )
    return uvicorn.Server(config)


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; raise InputError if that is not possible."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise InputError(
            f"Cannot listen on {host}, port {port}: {error.strerror or error}.",
            next_step="Choose another address with --host, or another port with --port.",
            context={"host": host, "port": port},
        ) from None


def serve(app: Any, sockets: list[socket.socket], *, proxies: tuple[str, ...] = ()) -> None:
    """Serve on sockets that listen already, until the process is stopped."""
    host, port = sockets[0].getsockname()[:2]
    with suppress(KeyboardInterrupt):  # Ctrl-C is how a person stops it; the server raises it again when it has ended
        asyncio.run(server(app, host=host, port=port, proxies=proxies).serve(sockets=sockets))
