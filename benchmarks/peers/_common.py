"""The common parts of the drivers: the command line, the payload, the stopwatch, the idle sampler.

Invariants:
- Runs inside the peers' environments, so it imports the standard library only.
- The stopwatch and the fsync count cover only the measured work: no start-up, imports or seeding.
- A driver changes only what it has created: a scratch directory or a scratch database per run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

SCENARIOS = ("submit", "bulk", "drain", "drain-effect", "idle")
BULK_CHUNK = 1000
IDLE_WARM_UP = 20

PAYLOAD: dict[str, Any] = {
    "order": "ord-7f3a91c2e4",
    "customer": "cus-20418",
    "amount": 12999,
    "currency": "EUR",
    "lines": [
        {"sku": "A-1001", "quantity": 2, "price": 4500},
        {"sku": "B-2040", "quantity": 1, "price": 3999},
    ],
    "note": "leave it at the door, ring twice, please",
}
PAYLOAD_TEXT = json.dumps(PAYLOAD, separators=(",", ":"))
PAYLOAD_BYTES = PAYLOAD_TEXT.encode()
if len(PAYLOAD_BYTES) != 227:
    raise SystemExit(f"the payload must be 227 bytes, not {len(PAYLOAD_BYTES)}")

EFFECTS_TABLE = "CREATE TABLE effects (job TEXT NOT NULL, amount INTEGER NOT NULL)"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--url", required=True, help="a SQLite path or URL, or a postgresql:// URL")
    parser.add_argument("--n", type=int, default=1000, help="jobs, or samples of an idle run")
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--concurrency", type=int, help="default: try the peer's usual settings and report the best")
    return parser.parse_args()


def fsyncs() -> int:
    """Return the fsyncs that the simulated disk has counted so far; 0 without a simulated disk."""
    path = os.environ.get("HOLDFAST_SHIM_COUNTER")
    if not path:
        return 0
    return sum(struct.unpack("=QQ", Path(path).read_bytes()))  # fsync, fdatasync


class Stopwatch:
    """Time and fsyncs from the first `start` to the last `stop`."""

    def __init__(self) -> None:
        self._begun: tuple[int, int] | None = None
        self.seconds = 0.0
        self.fsyncs = 0

    def start(self) -> None:
        if self._begun is None:
            self._begun = (fsyncs(), time.monotonic_ns())

    def stop(self) -> None:
        if self._begun is None:
            raise RuntimeError("stopped before it started")
        self.seconds = (time.monotonic_ns() - self._begun[1]) / 1e9
        self.fsyncs = fsyncs() - self._begun[0]

    def figures(self, n: int) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "seconds": round(self.seconds, 4),
            "per_second": round(n / self.seconds, 1),
        }
        if os.environ.get("HOLDFAST_SHIM_COUNTER"):
            figures |= {"fsyncs": self.fsyncs, "fsyncs_per_job": round(self.fsyncs / n, 4)}
        return figures


def report(peer: str, args: argparse.Namespace, durability: str, figures: dict[str, Any]) -> None:
    head = {"scenario": args.scenario, "peer": peer, "version": version(peer)}
    print(json.dumps({**head, "durability": durability, "n": args.n, **figures}), flush=True)


def best(tries: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of the fastest setting, with the rate of every setting in `tried`."""
    tries = list(tries)
    winner = max(tries, key=lambda figures: figures["per_second"])
    return {**winner, "tried": {figures["setting"]: figures["per_second"] for figures in tries}}


def share(n: int, callers: int) -> list[int]:
    return [n // callers + (index < n % callers) for index in range(callers)]


def by_threads(n: int, callers: int, submit: Callable[[], object]) -> dict[str, Any]:
    """Measure `n` single enqueues by `callers` threads, from the time when all threads are ready."""
    watch = Stopwatch()
    gate = threading.Barrier(callers, action=watch.start)

    def caller(count: int) -> None:
        gate.wait()
        for _ in range(count):
            submit()

    threads = [threading.Thread(target=caller, args=(count,)) for count in share(n, callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watch.stop()
    return {"callers": callers, **watch.figures(n)}


async def by_tasks(n: int, callers: int, submit: Callable[[], Awaitable[object]]) -> dict[str, Any]:
    """Measure `n` single enqueues by `callers` tasks."""
    watch = Stopwatch()

    async def caller(count: int) -> None:
        for _ in range(count):
            await submit()

    watch.start()
    await asyncio.gather(*(caller(count) for count in share(n, callers)))
    watch.stop()
    return {"callers": callers, **watch.figures(n)}


@contextmanager
def scratch_file(url: str, name: str = "queue.db") -> Iterator[Path]:
    """Yield a new path next to the file that the URL names; its directory is removed afterwards."""
    beside = Path(url.removeprefix("sqlite:///"))
    directory = beside.with_name(f"{beside.name}.peer-{os.getpid()}-{time.monotonic_ns()}")
    directory.mkdir(parents=True)
    try:
        yield directory / name
    finally:
        shutil.rmtree(directory)


def scratch_database(url: str) -> tuple[str, str]:
    """Return the name of a new database, and its URL."""
    name = f"peer_{os.getpid()}_{time.monotonic_ns()}"
    return name, urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def sample_idle(
    peer: str, where: str, n: int, submit: Callable[[], Awaitable[object]], command: list[str] | None = None
) -> dict[str, Any]:
    """Return the latency from the call here to the handler in a worker process, and the memory of that worker."""
    with subprocess.Popen(
        command or [sys.executable, str(Path(__file__).with_name(f"{peer}_worker.py")), where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as worker:
        if worker.stdin is None or worker.stdout is None:
            raise RuntimeError("a worker without pipes")
        latencies_ms = []
        since = (0.0, 0.0)
        for index in range(IDLE_WARM_UP + n):
            if index == IDLE_WARM_UP:
                since = (cpu_seconds(worker.pid), time.monotonic())
            # A random pause, so that samples are not synchronised with a poll or a flush.
            await asyncio.sleep(random.uniform(0.05, 0.15))
            called_ns = time.monotonic_ns()
            await submit()
            # Blocking this loop is fine: nothing else runs on it.
            latencies_ms.append((int(worker.stdout.readline()) - called_ns) / 1e6)
        status = Path(f"/proc/{worker.pid}/status").read_text()
        rss_kb = next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line)
        busy = cpu_seconds(worker.pid) - since[0]
        elapsed = time.monotonic() - since[1]
        worker.stdin.close()
    latencies_ms = sorted(latencies_ms[IDLE_WARM_UP:])
    return {
        "p50_ms": round(statistics.median(latencies_ms), 2),
        "p95_ms": round(latencies_ms[int(len(latencies_ms) * 0.95) - 1], 2),
        "rss_mb": round(rss_kb / 1024, 1),
        "cpu_percent": round(100 * busy / elapsed, 1),
    }
