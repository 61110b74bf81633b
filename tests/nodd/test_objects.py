"""Reading from S3 over a real connection: what breaks on the way is tried again later."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from holdfast.nodd.objects import ObjectUnavailableError, S3Source


@pytest.fixture
def broken() -> Iterator[str]:
    """A server that promises a hundred bytes, sends ten, and hangs up."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(206)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"0123456789")
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_part_that_breaks_off_is_trouble_that_may_pass(broken: str) -> None:
    source = S3Source(frozenset({"noaa-gfs-bdp-pds"}), endpoint=broken)
    with pytest.raises(ObjectUnavailableError, match="s3://noaa-gfs-bdp-pds/a/key: "):
        source.read("noaa-gfs-bdp-pds", "a/key", 0, 100)
