"""Reading from S3 over a real connection: each answer has its own type, and a broken transfer is retried."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from holdfast.core.errors import InputError
from holdfast.nodd import objects
from holdfast.nodd.objects import ObjectAccessError, ObjectChangedError, ObjectUnavailableError, S3Source
from tests.nodd.s3 import LoopbackS3, loopback_s3

BUCKET = "noaa-gfs-bdp-pds"
DATA = bytes(range(256)) * 8


@pytest.fixture
def broken() -> Iterator[str]:
    """A server that announces a hundred bytes, sends ten, and closes the connection."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(206)
            self.send_header("Content-Length", "100")
            self.send_header("Content-Range", "bytes 0-99/100")
            self.send_header("ETag", '"0123"')
            self.send_header("Last-Modified", "Sun, 26 Jul 2026 03:30:00 GMT")
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


@pytest.fixture(scope="module")
def s3() -> Iterator[LoopbackS3]:
    with loopback_s3() as server:
        server.put(BUCKET, "a/key", DATA)
        server.put(BUCKET, "empty", b"")
        for status in (401, 403, 429, 500, 503):
            server.refused[f"{BUCKET}/refused/{status}"] = status
        yield server


@pytest.fixture
def source(s3: LoopbackS3) -> S3Source:
    s3.requests.clear()
    return S3Source(frozenset({BUCKET}), endpoint=s3.endpoint)


def test_a_truncated_answer_is_a_transient_error(broken: str) -> None:
    source = S3Source(frozenset({BUCKET}), endpoint=broken)
    with pytest.raises(ObjectUnavailableError, match="s3://noaa-gfs-bdp-pds/a/key: "):
        source.read(BUCKET, "a/key", 0, 100)


def test_one_request_returns_the_head_and_the_first_bytes(s3: LoopbackS3, source: S3Source) -> None:
    found = source.first(BUCKET, "a/key", 100)
    assert found is not None
    assert (found.head.size, found.head.etag, found.data) == (len(DATA), s3.held[f"{BUCKET}/a/key"][1], DATA[:100])
    assert (found.head.content_type, str(found.head.last_modified)) == (
        "application/octet-stream", "2026-07-26 03:30:00+00:00",
    )  # fmt: skip
    assert [(one.method, one.range) for one in s3.requests] == [("GET", "bytes=0-99")]


@pytest.mark.parametrize("start, length", [(0, 100), (100, 5000), (len(DATA) - 1, 1), (len(DATA) - 1, 64)])
def test_a_range_ends_with_the_object(source: S3Source, start: int, length: int) -> None:
    assert source.read(BUCKET, "a/key", start, length) == DATA[start : start + length]


def test_a_missing_object_is_none_or_no_bytes(s3: LoopbackS3, source: S3Source) -> None:
    assert source.first(BUCKET, "not/there", 100) is None
    assert source.read(BUCKET, "not/there", 0, 100) == b""
    assert source.read(BUCKET, "a/key", len(DATA), 100) == b""
    assert [one.status for one in s3.requests] == [404, 404, 416]


def test_an_empty_object_has_a_head(s3: LoopbackS3, source: S3Source) -> None:
    found = source.first(BUCKET, "empty", 100)
    assert found is not None
    assert (found.head.size, found.data) == (0, b"")
    assert [one.status for one in s3.requests] == [416, 200]


def test_an_object_that_changed_is_not_read(s3: LoopbackS3, source: S3Source) -> None:
    etag = s3.held[f"{BUCKET}/a/key"][1]
    assert source.read(BUCKET, "a/key", 0, 10, etag=etag) == DATA[:10]
    with pytest.raises(ObjectChangedError) as changed:
        source.read(BUCKET, "a/key", 0, 10, etag="0" * 32)
    assert changed.value.issue == "etag_mismatch"


@pytest.mark.parametrize("status", [401, 403])
def test_a_denied_object_is_not_tried_again(s3: LoopbackS3, source: S3Source, status: int) -> None:
    with pytest.raises(ObjectAccessError) as denied:
        source.first(BUCKET, f"refused/{status}", 100)
    assert denied.value.issue == "access_denied"
    assert [one.status for one in s3.requests] == [status]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_transient_answer_is_retried_once(s3: LoopbackS3, source: S3Source, status: int) -> None:
    with pytest.raises(ObjectUnavailableError, match=f"S3 answered {status}"):
        source.read(BUCKET, f"refused/{status}", 0, 100)
    assert [one.status for one in s3.requests] == [status] * (1 + objects.RETRIES)


def test_a_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "REQUEST_S", 0.2)
    waits = threading.Event()
    with loopback_s3() as server:
        server.before = lambda _request: _wait(waits)
        server.put(BUCKET, "a/key", DATA)
        source = S3Source(frozenset({BUCKET}), endpoint=server.endpoint)
        began = time.monotonic()
        with pytest.raises(ObjectUnavailableError):
            source.first(BUCKET, "a/key", 100)
        assert time.monotonic() - began >= 0.2
        waits.set()


def _wait(event: threading.Event) -> None:
    event.wait(20)


def test_an_unreachable_server_is_a_transient_error() -> None:
    with loopback_s3() as server:
        gone = server.endpoint
    with pytest.raises(ObjectUnavailableError):
        S3Source(frozenset({BUCKET}), endpoint=gone).first(BUCKET, "a/key", 100)


@pytest.mark.parametrize("key", ["/a/key", "a//key", "a/key/"])
def test_a_key_with_an_empty_part_is_refused_rather_than_read_as_another(source: S3Source, key: str) -> None:
    with pytest.raises(InputError):
        source.first(BUCKET, key, 100)


@pytest.mark.parametrize("key", ["a/b:c", "with space", "a+b", "a%41b", "a#b", "~[x]", "é"])
def test_a_key_is_read_as_it_is(s3: LoopbackS3, source: S3Source, key: str) -> None:
    s3.put(BUCKET, key, DATA[:7])
    assert source.read(BUCKET, key, 0, 100) == DATA[:7]


def test_a_bucket_of_no_dataset_is_not_read(s3: LoopbackS3, source: S3Source) -> None:
    with pytest.raises(InputError):
        source.first("another", "a/key", 100)
    with pytest.raises(InputError):
        next(source.listed("another", ""))
    assert s3.requests == []


def test_all_threads_share_the_connections_of_a_bucket(s3: LoopbackS3, source: S3Source) -> None:
    before = s3.connections
    for _ in range(20):
        source.read(BUCKET, "a/key", 0, 100)
    assert s3.connections <= before + 5  # a connection that is not back in the pool yet is not waited for
