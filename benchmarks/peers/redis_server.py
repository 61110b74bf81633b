"""A Redis server of the benchmark's own: loopback, in memory, with an append-only file on the simulated disk.

Invariants: the binary is that of a package in an environment of its own; the server and its files are gone afterwards.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from benchmarks.peers import venvs
from tests.support.postgres import tmpfs_directory


@contextmanager
def redis_server(appendfsync: str, env: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield the URL and the process id of a new server."""
    binary = venvs.ensure(venvs.REDIS).with_name("redis-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(dir=tmpfs_directory()) as folder:
        options = {"port": port, "bind": "127.0.0.1", "dir": folder, "save": "", "appendonly": "yes"}
        options |= {"appendfsync": appendfsync, "auto-aof-rewrite-percentage": 0, "loglevel": "warning"}
        command = [str(binary)] + [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        with subprocess.Popen(command, env=dict(env), stdout=subprocess.DEVNULL) as server:
            try:
                _wait_for(port, server)
                yield f"redis://127.0.0.1:{port}/0", server.pid
            finally:
                server.terminate()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    for _ in range(500):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if server.poll() is not None:
            break
        time.sleep(0.02)
    raise venvs.PeerUnavailable("redis-server did not start.")
