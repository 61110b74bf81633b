"""How fast units are processed whose objects are in S3: as before, now, in a plain loop, and in two processes.

Invariants: the server is a process of its own on loopback that counts requests; the sides take turns in one ledger, on
the simulated disk; `before` is one request of botocore for each read and a validator in Python, with the same readers
and the same ledger; `plain` reads and validates as `now` does, without a ledger. Two processes are measured from when
both are warm until both are idle, without their start and exit. CPU is that of the workers, of the S3 server and of the
database's own processes. The run stops if a unit was not catalogued.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import multiprocessing
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.databases import fresh_database
from benchmarks.disk import SimulatedDisk
from benchmarks.nodd_bench import BUCKET, CONCURRENCY, NAMES, REFERENCE, ROOT, Figure, _admit, _plain, _require_items
from holdfast import Ledger
from holdfast.nodd import samples, validity
from holdfast.nodd.dataset import shipped
from holdfast.nodd.fetched import FetchedObjects
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.ingest_attempt import IngestAttempt
from holdfast.nodd.objects import ObjectHead, S3Source
from holdfast.nodd.tables import prepare
from holdfast.store import create_store
from tests.nodd.messages import event, record
from tests.nodd.test_validity import valid_in_python

ROUNDS, UNITS = 3, 1_200
ROUNDS_QUICK, UNITS_QUICK = 1, 20
BEFORE_SHARE = 4  # the slow side gets a fourth of the units
FIGURES = ("per_s", "requests", "cpu_ms", "s3_cpu_ms", "database_cpu_ms")
TARGETS = {
    "now": ("before", 5.0),
    "two processes": ("before", 1.7 * 5.0),
    "two processes beside one": ("now", 1.7),
    "now beside the loop": ("plain", 0.9),
}


def run(databases: Sequence[str], *, quick: bool, path: Path) -> None:
    """Measure these databases, print the table, and write the figures as JSON."""
    figures: list[Figure] = []
    with SimulatedDisk() as disk:
        for database in databases:
            with fresh_database(database, disk) as url:
                command = [sys.executable, "-m", "benchmarks.nodd_objects_bench", database, url]
                command += ["--quick"] if quick else []
                done = subprocess.run(command, env=disk.env(), cwd=ROOT, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
            figures.append(json.loads(done.stdout))
    machine = {"machine": platform.platform(), "python": platform.python_version(), "quick": quick}
    path.write_text(json.dumps({**machine, "figures": figures}, indent=1) + "\n", encoding="utf-8")
    parts = ("CPU ms a unit", "of S3", "of the database")
    table = Table("database", "side", "units/s", "requests a unit", *parts, "ratio", "target", box=SIMPLE)
    for figure in figures:
        for side, found in figure["sides"].items():
            cpu = (f"{found[name]:.2f}" for name in FIGURES[2:])
            table.add_row(
                NAMES[figure["database"]], side, f"{found['per_s']:,.0f}", f"{found['requests']:.2f}", *cpu, "", ""
            )
        for name, (of, target) in TARGETS.items():
            ratio = figure["ratios"][name]
            met = "met" if ratio >= target else "FALLS SHORT"
            blank = [""] * len(FIGURES)
            table.add_row(NAMES[figure["database"]], name, *blank, f"{ratio:.2f} of {of}", f"{target} {met}")
    Console(width=118).print(table)


def measure(database: str, url: str, *, quick: bool) -> Figure:
    """Return what each side processes in a second, and its requests for one unit."""
    rounds, units = (ROUNDS_QUICK, UNITS_QUICK) if quick else (ROUNDS, UNITS)
    data = samples.grib2(REFERENCE, 3)
    create_store(url).close()
    taken: dict[str, list[tuple[float, ...]]] = {}  # FIGURES of each round
    numbers = itertools.count()

    def notices(n: int) -> list[str]:
        return _notices(data, list(itertools.islice(numbers, n)))

    with _server(data) as server, _plain(database, url) as plain, Ledger(url) as ledger:
        prepare(ledger.store)
        source = S3Source(shipped().buckets(), endpoint=server.endpoint)
        declare(ledger, IngestSettings(datasets=shipped(), source=source))
        for _ in range(rounds):
            few = max(units // BEFORE_SHARE, 10)
            sides: dict[str, tuple[int, Callable[[], tuple[float, float]]]] = {
                "before": (few, lambda: _before(ledger, server.endpoint)),
                "now": (units, lambda: _timed(lambda: ledger.run_until_idle(concurrency=CONCURRENCY))),
                "plain": (units, lambda: _timed(lambda: plain.process(_Shared(source)))),
            }
            with _processes(ledger, server.endpoint, notices(few), 2) as both:
                for side, (n, work) in {**sides, "two processes": (units, both)}.items():
                    (plain.admit if side == "plain" else partial(_admit, ledger))(notices(n))
                    server.requests()
                    others = server.cpu_s(), _database_cpu_s(database, ledger)
                    seconds, cpu_s = work()
                    spent = (cpu_s, server.cpu_s() - others[0], _database_cpu_s(database, ledger) - others[1])
                    costs = (server.requests() / n, *(each / n * 1000 for each in spent))
                    taken.setdefault(side, []).append((n / seconds, *costs))
        _require_items(ledger, next(numbers) - rounds * units)  # all but those of the loop
    medians = {
        side: {name: statistics.median(one[number] for one in found) for number, name in enumerate(FIGURES)}
        for side, found in taken.items()
    }
    ratios = {}
    for name, (of, _) in TARGETS.items():
        pairs = zip(taken[name.partition(" beside ")[0]], taken[of], strict=True)
        ratios[name] = statistics.median(one[0] / other[0] for one, other in pairs)
    return {"database": database, "units": units, "rounds": rounds, "sides": medians, "ratios": ratios}


def _timed(step: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds that a step took, and the CPU time of this process."""
    began, cpu = time.perf_counter(), time.process_time()
    step()
    return time.perf_counter() - began, time.process_time() - cpu


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process; 0 if it has ended."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((one / "schedstat").read_text(encoding="ascii").split()[0]) for one in threads) / 1e9
    except OSError:
        return 0.0


def _database_cpu_s(database: str, ledger: Ledger) -> float:
    if database == "sqlite":
        return 0.0
    with ledger.store.reading() as reading:
        return sum(_cpu_s(pid) for (pid,) in reading.execute("SELECT pid FROM pg_stat_activity"))


def _notices(data: bytes, numbers: Sequence[int]) -> list[str]:
    etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
    keys = [f"gfs.{REFERENCE:%Y%m%d}/00/atmos/gfs.t00z.p{each}.0p25.f003" for each in numbers]
    return [event(record(key=key, size=len(data), eTag=etag)) for key in keys]


# ---------------------------------------------------------------------------------------------------------------------
# Sides


class _Botocore:
    """One request of botocore for each head and each read."""

    def __init__(self, endpoint: str) -> None:
        config = Config(signature_version=UNSIGNED, max_pool_connections=32, s3={"addressing_style": "path"})
        self._client = boto3.Session().client("s3", region_name="us-east-1", endpoint_url=endpoint, config=config)

    def head(self, bucket: str, key: str) -> ObjectHead | None:
        """Return the head of an object."""
        found = self._client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        return ObjectHead(size=int(found["ContentLength"]), etag=str(found["ETag"]).strip('"'))

    def read(self, bucket: str, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Return a part of an object."""
        match = {"IfMatch": f'"{etag}"'} if etag else {}
        found = self._client.get_object(Bucket=bucket, Key=key, Range=f"bytes={start}-{start + length - 1}", **match)
        body: bytes = found["Body"].read()
        return body


def _before(ledger: Ledger, endpoint: str) -> tuple[float, float]:
    reader = _Botocore(endpoint)
    with (
        mock.patch.object(IngestAttempt, "_fetched", return_value=reader),
        mock.patch.object(validity, "problems", lambda item: [] if valid_in_python(item) else ["invalid"]),
    ):
        return _timed(lambda: ledger.run_until_idle(concurrency=CONCURRENCY))


class _Shared:
    """Reads each unit of the plain loop as the ledger's side does: what was fetched of an object is kept."""

    def __init__(self, source: S3Source) -> None:
        self._source = source
        self._last: tuple[str, FetchedObjects] | None = None

    def _of(self, key: str) -> FetchedObjects:
        if self._last is None or self._last[0] != key:
            self._last = (key, FetchedObjects(self._source, "grib2", {key: 1000}))
        return self._last[1]

    def head(self, bucket: str, key: str) -> ObjectHead | None:
        """Return the head of an object."""
        return self._of(key).head(bucket, key)

    def read(self, bucket: str, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Return a part of an object."""
        return self._of(key).read(bucket, key, start, length, etag=etag)


@contextmanager
def _processes(
    ledger: Ledger, endpoint: str, warm: Sequence[str], n: int
) -> Iterator[Callable[[], tuple[float, float]]]:
    """Start processes that have done some units already; yield what lets them work until all are idle."""
    context = multiprocessing.get_context("spawn")
    _admit(ledger, warm)
    steps = [context.Barrier(n + 1) for _ in range(4)]  # warm, begin, idle, read
    spent = context.SimpleQueue()
    started = [context.Process(target=_process, args=(ledger.store.url, endpoint, steps, spent)) for _ in range(n)]
    for process in started:
        process.start()
    steps[0].wait(120)

    def work() -> tuple[float, float]:
        steps[1].wait(120)
        began = time.perf_counter()
        steps[2].wait(600)
        return time.perf_counter() - began, sum(spent.get() for _ in started)

    yield work
    steps[3].wait(120)  # until here the database's processes for their connections exist
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0] * n


def _process(url: str, endpoint: str, steps: Sequence[Any], spent: Any) -> None:
    with Ledger(url) as ledger:
        source = S3Source(shipped().buckets(), endpoint=endpoint)
        declare(ledger, IngestSettings(datasets=shipped(), source=source))
        ledger.run_until_idle(concurrency=CONCURRENCY)
        steps[0].wait(120)
        steps[1].wait(600)
        _, cpu_s = _timed(lambda: ledger.run_until_idle(concurrency=CONCURRENCY))
        spent.put(cpu_s)
        steps[2].wait(600)
        steps[3].wait(120)


class _Server:
    """The server's process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.endpoint = f"http://127.0.0.1:{self._line()}"

    def requests(self) -> int:
        """Return the number of requests since the last call."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._line())

    def cpu_s(self) -> float:
        """Return the CPU time that it has taken."""
        return _cpu_s(self._process.pid)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def _server(data: bytes) -> Iterator[_Server]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        command = [sys.executable, "-m", "tests.nodd.s3", f"{BUCKET}/any", file.name]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            try:
                yield _Server(process)
            finally:
                process.kill()


def _main() -> None:
    parser = argparse.ArgumentParser(description="Measure one database; the caller provides the simulated disk.")
    parser.add_argument("database", choices=NAMES)
    parser.add_argument("url")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    print(json.dumps(measure(args.database, args.url, quick=args.quick)))


if __name__ == "__main__":
    _main()
