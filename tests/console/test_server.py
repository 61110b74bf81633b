"""The console on a real port: slow clients, bodies without an end, broken requests, and its stop."""

from __future__ import annotations

import json
import resource
import shlex
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.console import app as application
from holdfast.console import server
from holdfast.console.security.callers import Role
from tests.cli.commands import PROGRAM, clean_environment, holdfast
from tests.console.serving import PATIENCE_S, closed_by_server, free_port, served
from tests.console.sites import PASSWORD, Site
from tests.support.ledgers import new_ledger


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, int]]:
    """A console with accounts, on a port."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    url = f"sqlite:///{folder / 'ledger.db'}"
    new_ledger().to_file(url)
    patch = pytest.MonkeyPatch()
    patch.setattr(server, "HEAD_S", 1.0)
    patch.setattr(application, "BODY_S", 1.0)
    site = Site(url, folder, origins=(f"http://127.0.0.1:{port}",))
    site.secrets["robot"] = site.token("robot", Role.OPERATOR)
    with served(site, port):
        yield site, port
    site.close()
    patch.undo()


def bearer(site: Site) -> dict[str, str]:
    return {"Authorization": f"Bearer {site.secrets['robot']}"}


def test_a_person_logs_in_over_http(address: tuple[Site, int]) -> None:
    _, port = address
    origin = f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=origin, follow_redirects=True) as browser:
        assert browser.get("/").url.path == "/login"
        done = browser.post("/login", data={"name": "ann", "password": PASSWORD}, headers={"Origin": origin})
        assert (done.status_code, done.url.path) == (200, "/")
        assert "server" not in done.headers


@pytest.mark.attack("input")
def test_a_client_that_does_not_finish_its_head_is_cut_off(address: tuple[Site, int]) -> None:
    _, port = address
    with socket.create_connection(("127.0.0.1", port)) as slow, socket.create_connection(("127.0.0.1", port)) as silent:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        assert closed_by_server(slow)
        assert closed_by_server(silent)
    assert httpx.get(f"http://127.0.0.1:{port}/api/v1/health").status_code == 200


@pytest.mark.attack("input")
def test_a_client_that_does_not_finish_its_body_is_refused(address: tuple[Site, int]) -> None:
    site, port = address
    head = (
        f"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: {bearer(site)['Authorization']}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=30) as slow:
        slow.sendall(head.encode())
        answer = slow.recv(65536).decode()
    assert answer.startswith("HTTP/1.1 408")


@pytest.mark.attack("input")
def test_a_body_without_an_end_is_refused(address: tuple[Site, int]) -> None:
    site, port = address

    def endless() -> Iterator[bytes]:
        yield b'{"operation": "noop", "payload": {"x": "'
        for _ in range(1000):
            yield b"y" * 65536

    try:
        answer = httpx.post(f"http://127.0.0.1:{port}/api/v1/jobs", content=endless(), headers=bearer(site), timeout=30)
        assert answer.status_code == 413
    except httpx.WriteError:  # the server has closed the connection before everything was sent
        pass
    assert httpx.get(f"http://127.0.0.1:{port}/api/v1/jobs", headers=bearer(site)).json()["jobs"] == []


@pytest.mark.attack("input")
@pytest.mark.parametrize(
    "request_text",
    [
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET /%ff%fe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "\x00\x01\x02\r\n\r\n",
        "GET /../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET /static/../../app.py HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET / HTTP/1.1\r\nX: " + "a" * 200_000 + "\r\n\r\n",
    ],
)
def test_a_broken_request_gets_no_answer_from_inside(address: tuple[Site, int], request_text: str) -> None:
    _, port = address
    with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
        raw.sendall(request_text.encode("latin-1"))
        try:
            answer = raw.recv(1 << 20).decode(errors="replace")
        except ConnectionError:
            answer = ""
    assert not answer.startswith("HTTP/1.1 2")
    assert not answer.startswith("HTTP/1.1 5")
    assert "root:" not in answer


@pytest.mark.attack("input")
@pytest.mark.parametrize("n", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_streams_that_are_closed_abruptly_leave_nothing_behind(
    n: int, tmp_path: Path, new_sqlite_ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_S", 60.0)  # no connection is closed before its request is sent
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))  # both ends are in this process
    port = free_port()
    site = Site(new_sqlite_ledger, tmp_path, origins=(f"http://127.0.0.1:{port}",))
    reset = struct.pack("ii", 1, 0)
    with served(site, port) as running:
        head = stream_head(port)
        connections = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(n)]
        for place, connection in enumerate(connections):
            connection.sendall(head)
            if place % 2:  # every second one is read first, the others are gone before their answer begins
                assert connection.recv(16).startswith(b"HTTP/1.1 200")
        for connection in connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            connection.close()
        wait_for(lambda: site.app.state.live._streams == 0)
        wait_for(lambda: not running.server_state.connections and not running.server_state.tasks)
        assert httpx.get(f"http://127.0.0.1:{port}/api/v1/ready").status_code == 200
    site.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def stream_head(port: int) -> bytes:
    """Return a request for the live overview, of a person who has logged in."""
    origin = f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=origin) as browser:
        browser.post("/login", data={"name": "ann", "password": PASSWORD}, headers={"Origin": origin})
        cookie = browser.cookies["holdfast_session"]
    words = f"GET /live/overview HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: holdfast_session={cookie}\r\n\r\n"
    return words.encode()


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.mark.attack("input")
def test_a_stream_ends_with_the_session_of_its_reader(
    tmp_path: Path, new_sqlite_ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.console.pages import live

    monkeypatch.setattr(live, "PING_S", 0.1)
    monkeypatch.setattr(live, "SNAPSHOT_S", 0.1)
    port = free_port()
    site = Site(new_sqlite_ledger, tmp_path, origins=(f"http://127.0.0.1:{port}",))
    with served(site, port), socket.create_connection(("127.0.0.1", port), timeout=30) as stream:
        stream.sendall(stream_head(port))
        assert stream.recv(16).startswith(b"HTTP/1.1 200")
        wait_for(lambda: site.app.state.live._streams == 1)
        site.accounts.disable("ann")
        wait_for(lambda: site.app.state.live._streams == 0)
    site.close()


def test_a_port_that_is_taken_is_an_error_with_a_next_step(tmp_path: Path, new_sqlite_ledger: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        answer = holdfast("console", "--db", new_sqlite_ledger, "--port", port, "--json")
    assert (answer.code, answer.json["error_code"]) == (2, "bad_input")
    assert answer.json["context"]["port"] == int(port)


def test_a_console_stops_while_a_stream_is_open(tmp_path: Path, new_sqlite_ledger: str) -> None:
    port = free_port()
    site = Site(new_sqlite_ledger, tmp_path, origins=(f"http://127.0.0.1:{port}",))
    with served(site, port) as running, socket.create_connection(("127.0.0.1", port), timeout=30) as stream:
        stream.sendall(stream_head(port))
        assert stream.recv(16).startswith(b"HTTP/1.1 200")
        assert running.config.timeout_graceful_shutdown == 3
    site.close()  # `served` has waited for the end of the server


@pytest.mark.parametrize("stop, code", [(signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM)])
def test_the_command_serves_until_it_is_stopped(
    tmp_path: Path, new_sqlite_ledger: str, stop: signal.Signals, code: int
) -> None:
    port = free_port()
    command = [*PROGRAM, "console", "--db", new_sqlite_ledger, "--port", str(port), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=clean_environment()) as child:
        assert child.stdout is not None
        answer = json.loads(child.stdout.readline())
        assert (answer["url"], answer["accounts"]) == (f"http://127.0.0.1:{port}/", None)

        def answers() -> bool:
            try:
                return httpx.get(f"{answer['url']}api/v1/ready").status_code == 200
            except httpx.ConnectError:
                return False

        wait_for(answers)
        child.send_signal(stop)
        assert (child.wait(PATIENCE_S), child.stdout.read()) == (code, "")


def test_a_forwarded_address_is_believed_only_from_a_named_proxy(address: tuple[Site, int]) -> None:
    site, port = address
    origin = f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=origin) as browser:
        for n in range(3):
            headers = {"Origin": origin, "X-Forwarded-For": f"10.0.0.{n}"}
            answer = browser.post("/login", data={"name": f"user{n}", "password": "x"}, headers=headers)
            assert answer.status_code == 401
    failures: dict[tuple[str, str], Any] = site.app.state.console.limiter._failures
    assert ("address", "127.0.0.1") in failures
    assert not any(name.startswith("10.0.0.") for kind, name in failures if kind == "address")


def test_the_document_of_the_api_is_what_the_server_serves(address: tuple[Site, int]) -> None:
    from holdfast.console.api.document import document

    site, port = address
    served_document = httpx.get(f"http://127.0.0.1:{port}/api/v1/openapi.json", headers=bearer(site)).json()
    assert served_document == json.loads(json.dumps(document()))


def test_the_examples_of_the_guide(address: tuple[Site, int]) -> None:
    from tests.support.guides import DOCS, blocks

    site, port = address
    [block] = blocks(DOCS / "console.md", "sh")
    commands = [shlex.split(line.replace("$TOKEN", site.secrets["robot"])) for line in block.strip().splitlines()]
    assert len(commands) >= 8
    job = httpx.post(f"http://127.0.0.1:{port}/api/v1/jobs", json={"operation": "noop"}, headers=bearer(site)).json()
    for words in commands:
        url, headers, data = "", {}, None
        rest = iter(words[1:])
        for word in rest:
            if word == "-H":
                name, _, value = next(rest).partition(": ")
                headers[name] = value
            elif word == "-d":
                data = next(rest)
            elif word != "-s":
                url = word.replace(":8420/", f":{port}/").replace("/jobs/1", f"/jobs/{job['job_id']}")
        answer = httpx.request("GET" if data is None else "POST", url, headers=headers, content=data)
        assert answer.status_code in (200, 201), (url, answer.text)
