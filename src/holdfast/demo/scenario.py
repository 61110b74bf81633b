"""What happens in the demonstration: a feed with scripted faults, two workers, two kills, a drain, and the proof.

Invariants: everything shown is read back from the ledger, nothing is assumed; it exits 1 if any promise was broken.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from holdfast.core.machines import JobState
from holdfast.demo import page
from holdfast.demo.loopback import LoopbackAws, loopback_aws, notice
from holdfast.demo.objects import BUCKETS, DemoObject, demo_objects
from holdfast.demo.proof import ANY, InjectedFault, Proof
from holdfast.demo.worker import OUT_OF_REACH, open_ledger
from holdfast.nodd import samples
from holdfast.nodd.dataset import shipped
from holdfast.nodd.drain import Drain
from holdfast.nodd.feed import Feed

WAVE = 24
GIVE_UP_S = 120.0
TERMINAL = frozenset({JobState.SUCCEEDED, JobState.QUARANTINED})


def run(url: str, folder: Path, console: Console) -> int:
    """Run the demonstration and show it; return 1 if a promise was broken."""
    (folder / "outage").touch()
    with loopback_aws() as aws:
        scenario = _Scenario(url, folder, aws, console)
        try:
            return scenario.run()
        finally:
            scenario.end()


class _Scenario:
    """The demonstration as it goes on."""

    def __init__(self, url: str, folder: Path, aws: LoopbackAws, console: Console) -> None:
        self._url, self._folder, self._aws, self._console = url, folder, aws, console
        self._ledger = open_ledger(url, aws.endpoint, folder)
        self._feed = Feed(self._ledger.store, aws.queue, shipped(), actor="demo-poller")
        self._workers: list[subprocess.Popen[bytes]] = []
        self._fates: Counter[str] = Counter()
        self._faults: list[InjectedFault] = []
        self._now = datetime.now(UTC)
        self._bodies: list[str] = []

    def run(self) -> int:
        """Go through it, chapter by chapter."""
        objects = demo_objects(self._now)
        self._console.print(
            f"[bold]1.[/] {len(objects)} objects of {len(BUCKETS)} datasets are written to S3 on loopback;"
            " SNS and SQS announce them, with faults on purpose."
        )
        self._workers = [self._start(), self._start()]
        self._console.print(f"[bold]2.[/] Two workers catalogue them: processes {self._pids()}.")
        self._publish(objects)
        self._console.print(
            f"[bold]3.[/] Both were killed with SIGKILL in the middle, one after the other: now {self._pids()}."
        )
        self._settle("the feed is read, the rest is catalogued", lambda: self._open() == self._held())
        self._drain(objects)
        self._settle("the dead letters are replayed", lambda: self._open() == 0)
        self._again()
        return self._show()

    def end(self) -> None:
        """Stop the workers."""
        for process in self._workers:
            if process.poll() is None:
                process.terminate()
        for process in self._workers:
            process.wait()
        self._ledger.close()

    # -- chapters -----------------------------------------------------------------------------------------------------

    def _publish(self, objects: list[DemoObject]) -> None:
        broken = self._break(objects)
        kills = {len(broken) // 3: 0, 2 * len(broken) // 3: 1}
        with self._bar("writing and reading", len(broken)) as (progress, task):
            for number, thing in enumerate(broken):
                self._aws.put(thing)
                progress.advance(task)
                if number % WAVE == WAVE - 1:
                    self._poll()
                if number in kills:
                    self._kill(kills[number])
        self._by_hand(broken)
        self._poll()

    def _break(self, objects: list[DemoObject]) -> list[DemoObject]:
        """Return the objects as they are written: some broken, one of them twice."""
        files = [thing for thing in objects if thing.dataset == "gfs" and not thing.key.endswith(".idx")]
        truncated, stale = files[3], next(thing for thing in objects if thing.key == f"{files[5].key}.idx")
        late = next(thing for thing in objects if thing.dataset == "mrms")
        other = next(thing for thing in objects if thing.dataset == "hrrr")
        twice = next(thing for thing in objects if thing.dataset == "nexrad-l2" and OUT_OF_REACH not in thing.key)
        alaska = next(thing for thing in objects if "/alaska/" in thing.key)
        outage = [thing for thing in objects if OUT_OF_REACH in thing.key]
        changed = {
            truncated.key: msgspec.structs.replace(truncated, data=truncated.data[:-7]),
            stale.key: msgspec.structs.replace(stale, data=b"1:0:d=x:TMP:\n2:77:d=x:TMP:\n"),
        }
        cut, ruled = "quarantined (integrity_missing_required_header)", "quarantined (governance_hard_fail)"
        done, doubted = "succeeded", "succeeded, suspect"
        self._faults += [
            InjectedFault("truncation", "a GRIB file is cut off", "quarantined", (_uri(truncated),), (cut,)),
            InjectedFault(
                "stale index", "an .idx names the wrong offsets", "catalogued as suspect", (_uri(files[5]),), (doubted,)
            ),
            InjectedFault("governance", "a rule forbids the key", "quarantined", (_uri(alaska),), (ruled,)),
            InjectedFault(
                "overwrite", "an object is written twice", "the later write counts", (_uri(twice),), (ANY, done)
            ),
            InjectedFault("late object", "announced before it is there", "catalogued", (_uri(late),), (done,)),
            InjectedFault(
                "outage", "out of reach until the drain", "catalogued by replay", tuple(map(_uri, outage)), (done,)
            ),
        ]
        # Indexes come before their files, so that they are known when the files are looked at.
        first = [changed.get(thing.key, thing) for thing in objects if thing.key.endswith(".idx")]
        rest = [
            changed.get(thing.key, thing)
            for thing in objects
            if not thing.key.endswith(".idx") and thing not in (late, other)
        ]
        mixed = [*first, *(rest[n] for k in range(7) for n in range(k, len(rest), 7))]
        longer = msgspec.structs.replace(twice, data=twice.data + samples.nexrad_records(1))
        self._late = late, other
        return [*mixed, longer]

    def _by_hand(self, written: list[DemoObject]) -> None:
        """Send what the server does not do by itself."""
        now = datetime.now(UTC)
        some = [thing for thing in written if thing.dataset == "mrms"][:5]
        self._bodies = [notice(thing, now, etag=_md5(thing.data)) for thing in some]
        late, other = self._late
        self._aws.queue.send([
            *self._bodies,
            '{"Records": [{"broken"',
            notice(late, now, etag=_md5(late.data)),
            notice(other, now, sequencer="0B", etag=_md5(other.data)),
            notice(other, now - timedelta(minutes=1), sequencer="0A", etag="1" * 32),
        ])  # fmt: skip
        self._faults += [
            InjectedFault(
                "duplicate", "five notices are delivered again", "one unit each", tuple(map(_uri, some)), ("succeeded",)
            ),
            InjectedFault("garbage", "a body that is not JSON", "kept as rejected"),
            InjectedFault("test event", "S3's own test message", "ignored"),
            InjectedFault(
                "out of order", "an older write is announced last", "one unit", (_uri(other),), ("succeeded",)
            ),
            InjectedFault("kill -9", "both workers, in the middle of their work", "nothing lost, nothing twice"),
        ]
        self._poll()
        time.sleep(0.5)
        self._aws.put(late)
        self._aws.put(other)

    def _drain(self, objects: list[DemoObject]) -> None:
        outage = [thing for thing in objects if OUT_OF_REACH in thing.key]
        now = datetime.now(UTC)
        self._aws.dead.send([notice(thing, now, etag=_md5(thing.data)) for thing in outage])
        (self._folder / "outage").unlink()
        done = Drain(self._ledger.store, self._aws.dead, shipped(), actor="demo", reason="the outage is over").run()
        words = ", ".join(f"{n} {fate}" for fate, n in done.fates.items())
        self._console.print(f"[bold]4.[/] The store is back; the dead-letter queue is drained: {words}.")

    def _again(self) -> None:
        """Deliver everything once more: nothing may happen."""
        before = self._executions()
        self._aws.queue.send(self._bodies)
        self._poll()
        time.sleep(0.5)
        self._repeated = self._executions() - before
        self._console.print("[bold]5.[/] Notices are delivered once more: every one is known.\n")

    def _show(self) -> int:
        """Show the proof; return 1 if a fact does not hold."""
        proof = Proof(self._ledger, self._folder, self._faults, self._fates, repeated=self._repeated)
        facts, ends = proof.facts(), proof.ends()
        table = Table(
            "what must be true", "found", "expected", title=f"{proof.objects()} objects, catalogued exactly once"
        )
        for fact in facts:
            table.add_row(fact.name, f"[{'green' if fact.holds else 'red'}]{fact.found}[/]", str(fact.expected))
        self._console.print(table)
        rows = [(fault.name, fault.what, fault.expected, ended) for fault, ended in ends]
        faults = Table("fault", "what", "must end", "ended", title="What went wrong on purpose")
        for row in rows:
            faults.add_row(*row)
        self._console.print(faults)
        made = page.write(self._folder / "demo.html", self._ledger.store, facts, rows, dict(self._fates))
        self._console.print(f"The whole run on one page: {made}")
        self._show_commands()
        return 0 if all(fact.holds for fact in facts) else 1

    def _show_commands(self) -> None:
        if not Path(self._url).exists():
            self._console.print("Its server ends with it; `make demo` on SQLite leaves a ledger to look at.")
            return
        program = os.path.relpath(Path(sys.executable).with_name("holdfast"))
        self._console.print(f"Look further:  {program} nodd records --db {self._url} --status quarantined")
        self._console.print(f"               {program} stats --db {self._url}")
        self._console.print(f"               {program} audit verify --db {self._url}")

    # -- turns --------------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        while (polled := self._feed.poll(wait_s=0)).received:
            self._fates.update(polled.fates)

    def _settle(self, what: str, settled: Callable[[], bool]) -> None:
        deadline = time.monotonic() + GIVE_UP_S
        total = self._counts().total()
        with self._bar(what, total) as (progress, task):
            while not settled():
                if time.monotonic() > deadline:
                    raise SystemExit("the demonstration did not finish; see `holdfast jobs` for where its jobs stand")
                self._poll()
                progress.update(task, completed=total - self._open(), total=self._counts().total())
                time.sleep(0.1)
            progress.update(task, completed=total)

    def _start(self) -> subprocess.Popen[bytes]:
        command = ["--work", "--url", self._url, "--endpoint", self._aws.endpoint, "--folder", str(self._folder)]
        return subprocess.Popen([sys.executable, "-m", "holdfast.demo", *command])

    def _kill(self, number: int) -> None:
        process = self._workers[number]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._workers[number] = self._start()

    def _pids(self) -> str:
        return " and ".join(str(process.pid) for process in self._workers)

    def _bar(self, what: str, total: int) -> Any:
        return _Bar(what, total, self._console)

    # -- looking ------------------------------------------------------------------------------------------------------

    def _counts(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for count in self._ledger.counts():
            found[str(count.state)] += count.n
        return found

    def _open(self) -> int:
        return sum(n for state, n in self._counts().items() if state not in TERMINAL)

    def _held(self) -> int:
        """Return how many units the outage keeps from going on: they rest in failed."""
        return self._counts()[JobState.FAILED] or -1

    def _executions(self) -> int:
        with self._ledger.store.reading() as reading:
            [[n]] = reading.execute("SELECT count(*) FROM holdfast_executions")
        return int(n)


class _Bar:
    """A progress bar for a block; on something that is no terminal it is left out."""

    def __init__(self, what: str, total: int, console: Console) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("   {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._what, self._total = what, total

    def __enter__(self) -> tuple[Progress, Any]:
        self._progress.start()
        return self._progress, self._progress.add_task(self._what, total=self._total)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _uri(thing: DemoObject) -> str:
    return f"s3://{thing.bucket}/{thing.key}"


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
