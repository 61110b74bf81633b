"""A small S3 on loopback that counts every request: GET and HEAD with ranges and If-Match, nothing else.

It is quick enough to measure readers against, which moto is not: about 10,000 requests a second in its own process.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

MODIFIED = "Sun, 26 Jul 2026 03:30:00 GMT"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_SUFFIX = re.compile(r"bytes=-(\d+)")


class Request(NamedTuple):
    """One request that the server answered."""

    method: str
    path: str  # bucket/key
    range: str | None
    status: int


class LoopbackS3:
    """The objects of the server, and the requests that it answered; `refused` maps paths to a status to answer with."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[bytes, str]] = {}
        self.requests: list[Request] = []
        self.refused: dict[str, int] = {}
        self.before: Callable[[Request], None] | None = None  # called with each request of an object, before its answer
        self.everywhere: str | None = None  # an object that is returned for each key that has none
        self.port = 0
        self.connections = 0  # that were opened since the start
        self.opened: set[asyncio.Transport] = set()

    @property
    def endpoint(self) -> str:
        """Return the URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    def put(self, bucket: str, key: str, data: bytes) -> str:
        """Write an object, and return its ETag."""
        etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        self.held[f"{bucket}/{key}"] = (data, etag)
        return etag

    def answer(self, method: str, target: str, headers: dict[str, str]) -> bytes:
        """Return the whole answer to a request."""
        path = unquote(target.partition("?")[0]).lstrip("/")
        wanted_range = headers.get("range")
        if self.before is not None:
            self.before(Request(method, path, wanted_range, 0))
        status, more, body = self._found(path, wanted_range, headers.get("if-match"))
        self.requests.append(Request(method, path, wanted_range, status))
        head = [f"HTTP/1.1 {status} Answer", f"Content-Length: {len(body)}", *more, "", ""]
        return "\r\n".join(head).encode() + (b"" if method == "HEAD" else body)

    def _found(self, path: str, wanted_range: str | None, match: str | None) -> tuple[int, list[str], bytes]:
        if path in self.refused:
            return self.refused[path], [], _error("AccessDenied" if self.refused[path] == 403 else "InternalError")
        held = self.held.get(path) or self.held.get(self.everywhere or "")
        if held is None:
            return 404, [], _error("NoSuchKey")
        data, etag = held
        if match is not None and match.strip('"') != etag:
            return 412, [], _error("PreconditionFailed")
        more = [f'ETag: "{etag}"', f"Last-Modified: {MODIFIED}", "Content-Type: application/octet-stream"]
        if wanted_range is None:
            return 200, more, data
        if (suffix := _SUFFIX.fullmatch(wanted_range)) is not None:
            start, end = max(0, len(data) - int(suffix[1])), len(data) - 1
        else:
            found = _RANGE.fullmatch(wanted_range)
            assert found is not None, wanted_range
            start, end = int(found[1]), min(int(found[2] or len(data)), len(data) - 1)
        if start >= len(data):
            return 416, [], _error("InvalidRange")
        part = data[start : end + 1]
        return 206, [*more, f"Content-Range: bytes {start}-{end}/{len(data)}"], part


def _error(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode()


class _Connection(asyncio.Protocol):
    """One connection; requests have no body."""

    def __init__(self, server: LoopbackS3) -> None:
        self._server, self._held = server, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections += 1
        self._server.opened.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.opened.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        while b"\r\n\r\n" in self._held:
            head, _, self._held = self._held.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            method, target, _ = first.split(" ", 2)
            pairs = (line.partition(":") for line in lines)
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            self._transport.write(self._server.answer(method, target, headers))


async def _serve(server: LoopbackS3, started: Callable[[], None], stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    made = await loop.create_server(lambda: _Connection(server), "127.0.0.1", 0)
    server.port = made.sockets[0].getsockname()[1]
    started()
    await stop.wait()
    made.close()
    for transport in server.opened:
        transport.abort()
    await asyncio.sleep(0.01)  # the loop closes them


@contextmanager
def loopback_s3() -> Iterator[LoopbackS3]:
    """Run a server in a thread for a block."""
    server, ready, loop = LoopbackS3(), threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(_serve(server, ready.set, stop),), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()


def main(path: str, data_file: str) -> None:
    """Serve one object for every key, print the port, and answer each line of stdin with the requests so far."""
    server = LoopbackS3()
    bucket, _, key = path.partition("/")
    server.put(bucket, key, Path(data_file).read_bytes())
    server.everywhere = path

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def line() -> None:
            if not sys.stdin.readline():
                stop.set()
                return
            print(len(server.requests), flush=True)
            server.requests.clear()

        loop.add_reader(sys.stdin, line)
        await _serve(server, lambda: print(server.port, flush=True), stop)

    asyncio.run(serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
