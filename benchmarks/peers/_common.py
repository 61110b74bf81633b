"""The scenarios, the same for every system: a driver says how its system is opened, fed and run.

Invariants:
- Runs inside the peers' environments, so it imports the standard library only.
- A drain is measured from the start of the first handler, in any process, until every handler has ended and the system
  says that nothing is left: no start-up, imports or seeding. CPU and fsyncs cover the same time.
- A run stops if jobs or effects are missing or double.
- A driver changes only what it has created: a scratch directory or a scratch database per run.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import os
import random
import shutil
import signal
import statistics
import string
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

try:
    from benchmarks.peers._peer import FAILS, RECORD_BYTES, WORK, Peer, Submit
except ImportError:  # in a peer's environment the drivers are scripts of this directory
    from _peer import FAILS, RECORD_BYTES, WORK, Peer, Submit  # type: ignore[import-not-found, no-redef]

SCENARIOS = ("submit", "bulk", "drain", "drain-effect", "drain-failing", "mixed", "idle")
BULK_CHUNK = 1000
BULK_BYTES = 4 << 20
FAILING_EVERY = 5  # 20 %
IDLE_WARM_UP = 10
MIXED_CALLERS = 16
PAUSE_S = 0.002
GIVE_UP_S = 240.0

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
PAYLOAD_BYTES = len(json.dumps(PAYLOAD, separators=(",", ":")))
if PAYLOAD_BYTES != 227:
    raise SystemExit(f"the payload must be 227 bytes, not {PAYLOAD_BYTES}")

# ---------------------------------------------------------------------------------------------------------------------
# Reading time, CPU and fsyncs


def fsyncs() -> int:
    """Return the fsyncs that the simulated disk has counted so far; 0 without a simulated disk."""
    path = os.environ.get("HOLDFAST_SHIM_COUNTER")
    if not path:
        return 0
    return sum(struct.unpack("=QQ", Path(path).read_bytes()))  # fsync, fdatasync


def cpu_ns(root: int) -> int:
    """Return the CPU time of a process and its descendants, those that have ended included."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            parents[int(entry.name)] = (int(fields[1]), int(fields[13]) + int(fields[14]))  # parent; ended children
    total = 0
    for pid, (_, ended_children) in parents.items():
        at = pid
        while at not in (root, 0):
            at = parents.get(at, (0, 0))[0]
        if at == root:
            try:
                total += time.clock_gettime_ns((~pid << 3) | 2)  # the CPU clock of that process
            except OSError:
                continue
            total += ended_children * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return total


def rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line) / 1024


class Stopwatch:
    """Time, fsyncs, CPU of clients and server, and bytes written, from `start` to `stop`."""

    def __init__(self, usage: Callable[[], dict[str, int]] = dict, clients: Callable[[], int] | None = None) -> None:
        self._server = int(os.environ.get("HOLDFAST_BENCH_SERVER", "0"))
        self._usage = usage
        self._clients = clients or time.process_time_ns
        self._begun: dict[str, int] = {}
        self._taken: dict[str, int] = {}

    def _read(self) -> dict[str, int]:
        return {"fsyncs": fsyncs(), "server": cpu_ns(self._server) if self._server else 0}

    def start(self, at_ns: int | None = None) -> None:
        usage = self._usage()
        # The clients last, and first in `stop`: to look at the server takes milliseconds of the CPU of this process.
        self._begun = {**usage, **self._read(), "client": self._clients(), "ns": at_ns or time.monotonic_ns()}

    def stop(self) -> None:
        ended = {"ns": time.monotonic_ns(), "client": self._clients(), **self._read(), **self._usage()}
        self._taken = {name: value - self._begun[name] for name, value in ended.items()}

    def figures(self, n: int) -> dict[str, Any]:
        taken = self._taken
        figures: dict[str, Any] = {
            "seconds": round(taken["ns"] / 1e9, 4),
            "per_second": round(n / taken["ns"] * 1e9, 1),
            "client_us": round(taken["client"] / 1000 / n, 1),
        }
        if self._server:
            figures["server_us"] = round(taken["server"] / 1000 / n, 1)
        if os.environ.get("HOLDFAST_SHIM_COUNTER"):
            figures["fsyncs_per_job"] = round(taken["fsyncs"] / n, 4)
        if "wal" in taken:
            figures["wal_per_job"] = round(taken["wal"] / n)
        return figures


# ---------------------------------------------------------------------------------------------------------------------
# Jobs and callers


@lru_cache
def _padding(size: int) -> str:
    """Return text that does not compress well: PostgreSQL compresses large values."""
    return "".join(random.Random(size).choices(string.ascii_letters + string.digits, k=size))


def payload_of(size: int = 0, *, number: int | None = None, fails: bool = False) -> dict[str, Any]:
    """Return the payload, padded to `size` bytes of JSON."""
    note = PAYLOAD["note"] + _padding(max(0, size - PAYLOAD_BYTES))
    made = {**PAYLOAD, "note": FAILS + note[1:] if fails else note}
    return made if number is None else {**made, "amount": number}


def payloads(n: int, size: int, *, failing: bool = False) -> Iterator[list[dict[str, Any]]]:
    """Yield `n` payloads in chunks for `put`."""
    good, bad = payload_of(size), payload_of(size, fails=failing)
    chunk = max(1, min(BULK_CHUNK, BULK_BYTES // max(size, 1)))
    for begin in range(0, n, chunk):
        yield [bad if i % FAILING_EVERY == 0 else good for i in range(begin, min(begin + chunk, n))]


async def put_all(peer: Peer, where: str, n: int, size: int, *, failing: bool = False) -> None:
    for chunk in payloads(n, size, failing=failing):
        if inspect.iscoroutinefunction(peer.put):
            await peer.put(where, chunk)
        else:
            await asyncio.to_thread(peer.put, where, chunk)


@asynccontextmanager
async def submitter(peer: Peer, where: str, callers: int) -> Any:
    if peer.is_async:
        async with peer.submitting(where, callers) as submit:
            yield submit
    else:
        with peer.submitting(where, callers) as submit:
            yield submit


async def call_all(peer: Peer, submit: Submit, callers: int, turns: Iterator[tuple[dict[str, Any], float]]) -> None:
    """Let `callers` threads or tasks submit each payload, not before its time on the monotonic clock."""
    if peer.is_async:

        async def task() -> None:
            for payload, due in turns:
                if due and (wait_s := due - time.monotonic()) > 0:
                    await asyncio.sleep(wait_s)
                await submit(payload)

        await asyncio.gather(*(task() for _ in range(callers)))
        return
    lock, gate = threading.Lock(), threading.Barrier(callers)

    def thread() -> None:
        gate.wait()
        while True:
            with lock:
                turn = next(turns, None)
            if turn is None:
                return
            payload, due = turn
            if due and (wait_s := due - time.monotonic()) > 0:
                time.sleep(wait_s)
            submit(payload)

    threads = [threading.Thread(target=thread) for _ in range(callers)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


# ---------------------------------------------------------------------------------------------------------------------
# Worker processes


class Workers:
    """Worker processes of one system, and the files in which they count."""

    def __init__(self, peer: Peer, where: str, args: argparse.Namespace, mode: str, setting: int | None) -> None:
        processes = 1 if mode != "drain" else args.processes
        shm = Path("/dev/shm")  # noqa: S108 -- the directory in it is private
        self.folder = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self._record = RECORD_BYTES[mode]
        config = {"where": where, "setting": setting, "mode": mode, "folder": str(self.folder), "processes": processes}
        config["effect"] = args.scenario == "drain-effect"
        self._errors = (self.folder / "errors").open("wb")
        self._children = [
            subprocess.Popen(
                [*peer.command, WORK, json.dumps(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if mode == "idle" else subprocess.DEVNULL,
                stderr=self._errors,
                start_new_session=True,
            )
            for _ in range(1 if peer.own_processes else processes)
        ]

    def __enter__(self) -> Self:
        self.until(lambda: len(list(self.folder.glob("ready-*"))) >= len(self._children))
        (self.folder / "gate").touch()
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            with child:
                child.wait()
        self._errors.close()
        shutil.rmtree(self.folder)

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self._children]

    def cpu_ns(self) -> int:
        return sum(cpu_ns(pid) for pid in self.pids)

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait; fail if a worker ends or it takes too long."""
        give_up = time.monotonic() + GIVE_UP_S
        while not reached():
            if any(child.poll() is not None for child in self._children) or time.monotonic() > give_up:
                self._errors.flush()
                text = (self.folder / "errors").read_text(errors="replace")[-4000:]
                raise SystemExit(f"a worker ended, or took longer than {GIVE_UP_S:g} s:\n{text}")
            time.sleep(PAUSE_S)

    def counts(self) -> list[int]:
        """Return how many jobs each process has ended."""
        return [file.stat().st_size // self._record for file in self.folder.glob("done-*")]

    def done(self) -> int:
        return sum(self.counts())

    def first_ns(self) -> int:
        """Wait for the first handler; return when it started."""
        first = self.folder / "first"
        self.until(lambda: first.exists() and first.stat().st_size > 0)
        return int(first.read_text())

    def times_ns(self) -> dict[int, int]:
        """Return when each job ended, by its number."""
        data = b"".join(file.read_bytes() for file in self.folder.glob("done-*"))
        return dict(struct.iter_unpack("<QQ", data))

    def line(self) -> bytes:
        """Return the next line that the one worker prints."""
        stdout = self._children[0].stdout
        if stdout is None:
            raise RuntimeError("a worker without a pipe")
        return stdout.readline()


# ---------------------------------------------------------------------------------------------------------------------
# Scenarios


async def submit(peer: Peer, args: argparse.Namespace) -> dict[str, Any]:
    with peer.scratch(args.url) as where:
        async with submitter(peer, where, args.callers) as submit_one:
            made = payload_of(args.payload)
            warm = peer.warm_up * args.callers
            await call_all(peer, submit_one, args.callers, iter([(made, 0.0)] * warm))
            watch = Stopwatch(lambda: peer.usage(where))
            watch.start()
            await call_all(peer, submit_one, args.callers, iter([(made, 0.0)] * args.n))
            watch.stop()
            if (rest := peer.rest(where)) != args.n + warm:
                raise SystemExit(f"{rest} jobs are stored, not {args.n + warm}")
    return {"callers": args.callers, **watch.figures(args.n)}


async def bulk(peer: Peer, args: argparse.Namespace) -> dict[str, Any]:
    if not peer.bulk:
        return {"per_second": None}
    with peer.scratch(args.url) as where:
        await put_all(peer, where, 1, 0)  # opens the system
        before = peer.usage(where)
        watch = Stopwatch(lambda: peer.usage(where))
        watch.start()
        await put_all(peer, where, args.n, args.payload)
        watch.stop()
        if (rest := peer.rest(where)) != args.n + 1:
            raise SystemExit(f"{rest} jobs are stored, not {args.n + 1}")
        figures = watch.figures(args.n)
        if before:
            figures["disk_per_job"] = round((peer.usage(where)["disk"] - before["disk"]) / args.n)
    return figures


async def drain(peer: Peer, args: argparse.Namespace, setting: int | None) -> dict[str, Any]:
    with peer.scratch(args.url) as where:
        empty = peer.usage(where)
        await put_all(peer, where, args.n, args.payload, failing=args.scenario == "drain-failing")
        peer.settle(where)
        with Workers(peer, where, args, "drain", setting) as workers:
            watch = Stopwatch(lambda: peer.usage(where), workers.cpu_ns)
            watch.start(workers.first_ns())
            workers.until(lambda: workers.done() >= args.n)
            workers.until(lambda: peer.rest(where) == 0)
            watch.stop()
            memory = max(rss_mb(pid) for pid in workers.pids)
            counts = workers.counts()
        if args.scenario == "drain-effect" and peer.effects(where) != args.n:
            raise SystemExit(f"{peer.effects(where)} effects of {args.n} jobs")
        if sum(counts) != args.n:
            raise SystemExit(f"{sum(counts)} handlers ended for {args.n} jobs")
        life = {name: value - empty[name] for name, value in peer.usage(where).items()}
    figures = {"processes": args.processes, "setting": setting, **watch.figures(args.n), "rss_mb": round(memory, 1)}
    if args.processes > 1 and not peer.own_processes:
        worked = [*counts, *[0] * args.processes][: args.processes]
        figures["least_share"] = round(min(worked) * args.processes / args.n, 2)  # 1 is a fair share
    return figures | {f"life_{name}_per_job": round(value / args.n) for name, value in life.items()}


async def mixed(peer: Peer, args: argparse.Namespace) -> dict[str, Any]:
    """Measure the latency of jobs that arrive at random: at `--rate`, or at half of what the system can do.

    What it can do is how fast jobs pass through while they are submitted without a pause.
    """
    due_s: list[float] = []  # when each job was to be submitted, by its number

    def turn(due: float) -> tuple[dict[str, Any], float]:
        due_s.append(due)
        return payload_of(number=len(due_s) - 1), due

    def at_once(seconds: float) -> Iterator[tuple[dict[str, Any], float]]:
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            yield turn(now)

    def arrivals(rate: float) -> Iterator[tuple[dict[str, Any], float]]:
        due = time.monotonic()
        end = due + args.seconds
        while (due := due + random.expovariate(rate)) < end:
            yield turn(due)

    with peer.scratch(args.url) as where, Workers(peer, where, args, "mixed", args.concurrency) as workers:
        async with submitter(peer, where, MIXED_CALLERS) as submit_one:

            async def phase(turns: Iterator[tuple[dict[str, Any], float]]) -> None:
                await call_all(peer, submit_one, MIXED_CALLERS, turns)
                workers.until(lambda: workers.done() >= len(due_s))

            await phase(at_once(args.seconds / 10))  # opens what is opened late
            if not (rate := args.rate):
                warm, began_s = len(due_s), time.monotonic()
                await phase(at_once(args.seconds / 3))
                capacity = (len(due_s) - warm) / (max(workers.times_ns().values()) / 1e9 - began_s)
                rate = capacity / 2
            first = len(due_s)
            watch = Stopwatch(lambda: peer.usage(where), lambda: time.process_time_ns() + workers.cpu_ns())
            watch.start()
            await phase(arrivals(rate))
            watch.stop()
        ended = workers.times_ns()
    latencies_ms = sorted(ended[number] / 1e6 - due_s[number] * 1e3 for number in range(first, len(due_s)))
    n = len(latencies_ms)
    figures = {**watch.figures(n), "rate": round(rate, 1), "jobs": n, "done": peer.done}
    return figures | {f"p{q:g}_ms": round(latencies_ms[int(n * q / 100)], 2) for q in (50, 99, 99.9)}


async def idle(peer: Peer, args: argparse.Namespace) -> dict[str, Any]:
    """Measure from the call here to the handler in a worker process, and the memory and CPU of that worker."""
    with peer.scratch(args.url) as where, Workers(peer, where, args, "idle", args.concurrency) as workers:
        async with submitter(peer, where, 1) as submit_one:
            latencies_ms = []
            since = (0, 0)
            for index in range(IDLE_WARM_UP + args.n):
                if index == IDLE_WARM_UP:
                    since = (workers.cpu_ns(), time.monotonic_ns())
                # A random pause, so that samples are not synchronised with a poll or a flush.
                await asyncio.sleep(random.uniform(0.05, 0.15))
                called_ns = time.monotonic_ns()
                if isinstance(called := submit_one(payload_of()), Awaitable):
                    await called
                # Blocking this loop is fine: nothing else runs on it.
                latencies_ms.append((int(workers.line()) - called_ns) / 1e6)
            busy, elapsed = workers.cpu_ns() - since[0], time.monotonic_ns() - since[1]
            memory = max(rss_mb(pid) for pid in workers.pids)
    latencies_ms = sorted(latencies_ms[IDLE_WARM_UP:])
    return {
        "p50_ms": round(statistics.median(latencies_ms), 2),
        "p95_ms": round(latencies_ms[int(len(latencies_ms) * 0.95) - 1], 2),
        "rss_mb": round(memory, 1),
        "cpu_percent": round(100 * busy / elapsed, 1),
    }


async def _measure(peer: Peer, args: argparse.Namespace) -> dict[str, Any]:
    if args.scenario in {"submit", "bulk", "mixed", "idle"}:
        scenario: Callable[..., Awaitable[dict[str, Any]]] = globals()[args.scenario]
        return await scenario(peer, args)
    settings = peer.settings if args.concurrency is None else (args.concurrency,)
    tries = [await drain(peer, args, setting) for setting in settings]
    winner = max(tries, key=lambda figures: figures["per_second"])
    return {**winner, "tried": {f"{peer.setting}={f['setting']}": f["per_second"] for f in tries}}


def measure(peer: Peer) -> None:
    """Measure the scenario that the command line names, and print its figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--url", required=True, help="a SQLite path or URL, a postgresql:// URL, a redis:// URL")
    parser.add_argument("--n", type=int, default=1000, help="jobs, or samples of an idle run")
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1, help="worker processes of a drain")
    parser.add_argument("--payload", type=int, default=0, help="bytes; default: 227")
    parser.add_argument("--seconds", type=float, default=6, help="of a mixed load")
    parser.add_argument("--rate", type=float, default=0, help="of a mixed load; default: half of the capacity")
    parser.add_argument("--concurrency", type=int, help="default: a drain tries the usual settings of the system")
    args = parser.parse_args()
    figures = peer.run(_measure(peer, args))
    head = {"scenario": args.scenario, "peer": peer.name, "version": version(peer.distribution or peer.name)}
    print(json.dumps({**head, "durability": peer.durability, "n": args.n, **figures}), flush=True)
