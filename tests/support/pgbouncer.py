"""A real PgBouncer for tests, with a directory and a port of its own.

Invariants: it signals only the process that it started; where the program is not installed, PGBOUNCER is None and the
end of the run says what was not tested.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import psycopg

from tests.support.postgres import _free_port, _identity

PGBOUNCER = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
START_S = 20


class Pooler:
    """PgBouncer before the server of a URL; `url` is the same database through it.

    With `turns` the sessions of the server take turns: the next transaction gets the one that was idle for longest.
    """

    def __init__(self, url: str, *, size: int = 3, mode: str = "transaction", turns: bool = False) -> None:
        parts = urlsplit(url)
        self._directory = Path(tempfile.mkdtemp(prefix="holdfast-pgbouncer-"))
        self._port = _free_port()
        self.url = urlunsplit(parts._replace(netloc=f"postgres@127.0.0.1:{self._port}"))
        settings = self._directory / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={parts.port} user=postgres\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = {mode}\ndefault_pool_size = {size}\nmax_client_conn = 200\n"
            f"server_round_robin = {int(turns)}\n"
            f"logfile = {self._directory / 'log'}\n",
            encoding="utf-8",
        )
        own = _identity()
        if own:
            for path in (self._directory, settings):
                shutil.chown(path, own["user"], own["group"])
        assert PGBOUNCER is not None
        self._process = subprocess.Popen(
            [PGBOUNCER, "-q", str(settings)], cwd=self._directory, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **own,
        )  # fmt: skip

    def __enter__(self) -> Self:
        deadline = time.monotonic() + START_S
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self._directory / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
