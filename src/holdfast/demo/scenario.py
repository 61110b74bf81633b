"""The demonstration: a feed with injected faults, two workers that are killed, a drain of the dead-letter queue.

Invariants: every number shown is read back from the ledger; the exit code is 1 if one of them is not as expected.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
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
from holdfast.nodd.formats.nexrad import HEADER_BYTES

WAVE = 24
GIVE_UP_S = 120.0
LOG = "workers.log"
TERMINAL = frozenset({JobState.SUCCEEDED, JobState.QUARANTINED})


def run(url: str, folder: Path, console: Console) -> int:
    """Run the demonstration and print its result; return 0 if every number is as expected, else 1."""
    (folder / "outage").touch()
    with loopback_aws() as aws:
        scenario = _Scenario(url, folder, aws, console)
        try:
            return scenario.run()
        finally:
            scenario.end()


class _Scenario:
    """One run of the demonstration."""

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
        """Run the steps in order, print the proof, and return the exit code."""
        objects = demo_objects(self._now)
        indexes = sum(one.key.endswith(".idx") for one in objects)
        self._console.print(
            f"[bold]1.[/] A local S3 server gets {len(objects) - indexes} data files and {indexes} index files of"
            f" {len(BUCKETS)} datasets.\n   SNS and SQS announce them. Some files and messages are faulty on purpose."
        )
        self._workers = [self._start(), self._start()]
        self._console.print(f"[bold]2.[/] Two worker processes catalogue the objects: {self._pids()}.")
        self._publish(objects)
        self._console.print(
            f"[bold]3.[/] Each worker was killed once with SIGKILL during its work. Their replacements: {self._pids()}."
        )
        self._settle("cataloguing the rest of the feed", lambda: self._open() == self._held())
        self._drain(objects)
        self._settle("replaying the messages of the dead-letter queue", lambda: self._open() == 0)
        self._again()
        return self._show()

    def end(self) -> None:
        for process in self._workers:
            if process.poll() is None:
                process.terminate()
        for process in self._workers:
            process.wait()
        self._ledger.close()

    # -- steps --------------------------------------------------------------------------------------------------------

    def _publish(self, objects: list[DemoObject]) -> None:
        broken = self._break(objects)
        kills = {len(broken) // 3: 0, 2 * len(broken) // 3: 1}
        with self._bar("writing objects and reading the feed", len(broken)) as (progress, task):
            for number, one in enumerate(broken):
                self._aws.put(one)
                progress.advance(task)
                if number % WAVE == WAVE - 1:
                    self._poll()
                if number in kills:
                    self._kill(kills[number])
        self._by_hand(broken)
        self._poll()

    def _break(self, objects: list[DemoObject]) -> list[DemoObject]:
        """Return the objects as they are written: some damaged, one of them written twice."""
        files = [one for one in objects if one.dataset == "gfs" and not one.key.endswith(".idx")]
        truncated, stale = files[3], next(one for one in objects if one.key == f"{files[5].key}.idx")
        late = next(one for one in objects if one.dataset == "mrms")
        other = next(one for one in objects if one.dataset == "hrrr")
        twice = next(one for one in objects if one.dataset == "nexrad-l2" and OUT_OF_REACH not in one.key)
        alaska = next(one for one in objects if "/alaska/" in one.key)
        outage = [one for one in objects if OUT_OF_REACH in one.key]
        changed = {
            truncated.key: msgspec.structs.replace(truncated, data=truncated.data[:-7]),
            stale.key: msgspec.structs.replace(stale, data=b"1:0:d=x:TMP:\n2:77:d=x:TMP:\n"),
        }
        cut, ruled = "quarantined (integrity_missing_required_header)", "quarantined (governance_hard_fail)"
        done, doubted = "succeeded", "succeeded, suspect"
        self._faults += [
            InjectedFault(
                "truncation", "a GRIB file lacks its last 7 bytes", "quarantined", (_uri(truncated),), (cut,)
            ),
            InjectedFault(
                "stale index", "an index file has wrong offsets", "catalogued as suspect", (_uri(files[5]),), (doubted,)
            ),
            InjectedFault("governance", "a rule forbids this object", "quarantined", (_uri(alaska),), (ruled,)),
            InjectedFault(
                "overwrite", "an object is written twice", "second write catalogued", (_uri(twice),), (ANY, done)
            ),
            InjectedFault("late object", "announced before it exists", "catalogued", (_uri(late),), (done,)),
            InjectedFault(
                "outage", "S3 does not answer until step 4", "catalogued by replay", tuple(map(_uri, outage)), (done,)
            ),
        ]
        # Indexes are written before their files: the integrity check of a file reads its index.
        first = [changed.get(one.key, one) for one in objects if one.key.endswith(".idx")]
        rest = [
            changed.get(one.key, one) for one in objects if not one.key.endswith(".idx") and one not in (late, other)
        ]
        mixed = [*first, *(rest[n] for k in range(7) for n in range(k, len(rest), 7))]
        longer = msgspec.structs.replace(twice, data=twice.data[:HEADER_BYTES] + samples.nexrad_records(4, last=True))
        self._late = late, other
        return [*mixed, longer]

    def _by_hand(self, written: list[DemoObject]) -> None:
        """Send messages that the local server does not send by itself: duplicates, garbage, late and reordered ones."""
        now = datetime.now(UTC)
        some = [one for one in written if one.dataset == "mrms"][:5]
        self._bodies = [notice(one, now, etag=_md5(one.data)) for one in some]
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
                "duplicate",
                "5 notices are delivered twice",
                "processed once each",
                tuple(map(_uri, some)),
                ("succeeded",),
            ),
            InjectedFault("garbage", "a message that is not JSON", "stored as rejected"),
            InjectedFault("test event", "each bucket sends a test message", "ignored"),
            InjectedFault(
                "out of order", "notice of an older write comes last", "processed once", (_uri(other),), ("succeeded",)
            ),
            InjectedFault("kill -9", "both workers die during their work", "nothing lost or repeated"),
        ]
        self._poll()
        time.sleep(0.5)
        self._aws.put(late)
        self._aws.put(other)

    def _drain(self, objects: list[DemoObject]) -> None:
        outage = [one for one in objects if OUT_OF_REACH in one.key]
        now = datetime.now(UTC)
        self._aws.dead.send([notice(one, now, etag=_md5(one.data)) for one in outage])
        (self._folder / "outage").unlink()
        drain = Drain(self._ledger.store, self._aws.dead, shipped(), actor="demo", reason="S3 answers again", wait_s=0)
        done = drain.run()
        result = ", ".join(f"{n} {fate}" for fate, n in done.fates.items())
        self._console.print(f"[bold]4.[/] S3 answers again. Messages drained from the dead-letter queue: {result}.")

    def _again(self) -> None:
        """Deliver notices again, and count the executions that they cause: there must be none."""
        before = self._executions()
        self._aws.queue.send(self._bodies)
        self._poll()
        time.sleep(0.5)
        self._repeated = self._executions() - before
        self._console.print(f"[bold]5.[/] {len(self._bodies)} notices were delivered again. All were duplicates.\n")

    def _show(self) -> int:
        """Print the proof, write it as a page, and return 1 if a number is not as expected."""
        proof = Proof(self._ledger, self._folder, self._faults, self._fates, repeated=self._repeated)
        facts, ends = proof.facts(), proof.ends()
        table = Table("Check", "Found", "Expected", title=f"{proof.objects()} data files, each processed exactly once")
        for fact in facts:
            table.add_row(fact.name, f"[{'green' if fact.holds else 'red'}]{fact.found}[/]", str(fact.expected))
        self._console.print(table)
        rows = [(fault.name, fault.what, fault.expected, ended) for fault, ended in ends]
        faults = Table("Fault", "What happens", "Expected", "Result", title="Injected faults")
        for row in rows:
            faults.add_row(*row)
        self._console.print(faults)
        made = page.write(self._folder / "demo.html", self._ledger.store, facts, rows, dict(self._fates))
        self._console.print(f"Report with charts: {made}\nLog of the workers:  {self._folder / LOG}")
        self._show_commands()
        return 0 if all(fact.holds for fact in facts) else 1

    def _show_commands(self) -> None:
        if not Path(self._url).exists():
            self._console.print(
                "The database server of this run stops now. `make demo DB=sqlite` keeps a ledger that you can inspect."
            )
            return
        program = os.path.relpath(Path(sys.executable).with_name("holdfast"))
        self._console.print(f"Next commands:  {program} nodd records --db {self._url} --status quarantined")
        self._console.print(f"                {program} stats --db {self._url}")
        self._console.print(f"                {program} audit verify --db {self._url}")

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        while (polled := self._feed.poll(wait_s=0)).received:
            self._fates.update(polled.fates)

    def _settle(self, what: str, settled: Callable[[], bool]) -> None:
        deadline = time.monotonic() + GIVE_UP_S
        total = self._counts().total()
        with self._bar(what, total) as (progress, task):
            while not settled():
                if time.monotonic() > deadline:
                    raise SystemExit(
                        f"The demonstration did not finish within {GIVE_UP_S:.0f} s. To see the jobs that are left:"
                        f" holdfast jobs --db {self._url}"
                    )
                self._poll()
                progress.update(task, completed=total - self._open(), total=self._counts().total())
                time.sleep(0.1)
            progress.update(task, completed=total)

    def _start(self) -> subprocess.Popen[bytes]:
        command = ["--work", "--url", self._url, "--endpoint", self._aws.endpoint, "--folder", str(self._folder)]
        with (self._folder / LOG).open("ab") as log:
            return subprocess.Popen([sys.executable, "-m", "holdfast.demo", *command], stderr=log)

    def _kill(self, number: int) -> None:
        process = self._workers[number]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._workers[number] = self._start()

    def _pids(self) -> str:
        return " and ".join(str(process.pid) for process in self._workers)

    @contextmanager
    def _bar(self, what: str, total: int) -> Iterator[tuple[Progress, TaskID]]:
        """Show a progress bar during a block of code, if the output is a terminal."""
        columns = SpinnerColumn(), TextColumn("   {task.description}"), BarColumn(), MofNCompleteColumn()
        hidden = not self._console.is_terminal
        with Progress(*columns, TimeElapsedColumn(), console=self._console, transient=True, disable=hidden) as progress:
            yield progress, progress.add_task(what, total=total)

    # -- counting -----------------------------------------------------------------------------------------------------

    def _counts(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for count in self._ledger.counts():
            found[str(count.state)] += count.n
        return found

    def _open(self) -> int:
        return sum(n for state, n in self._counts().items() if state not in TERMINAL)

    def _held(self) -> int:
        """Return the number of jobs that failed because of the outage; -1 while there is none."""
        return self._counts()[JobState.FAILED] or -1

    def _executions(self) -> int:
        with self._ledger.store.reading() as reading:
            [[n]] = reading.execute("SELECT count(*) FROM holdfast_executions")
        return int(n)


def _uri(one: DemoObject) -> str:
    return f"s3://{one.bucket}/{one.key}"


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
