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
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from holdfast import Ledger, Worker
from holdfast.audit.check.runner import check
from holdfast.audit.seals.sealer import seal
from holdfast.audit.seals.verify import verify
from holdfast.core.machines import JobState
from holdfast.demo import page
from holdfast.demo.loopback import BUCKETS, DemoObject, LoopbackAws, demo_objects, loopback_aws, notice
from holdfast.engine.worker.retry import RetryPolicy, Strategy
from holdfast.nodd import samples
from holdfast.nodd.catalog import PUBLISH_QUEUE
from holdfast.nodd.dataset import shipped
from holdfast.nodd.drain import Drain
from holdfast.nodd.feed import Feed
from holdfast.nodd.governance import GovernanceRule, GovernanceRules
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.objects import ObjectHead, ObjectUnavailableError, S3Source
from holdfast.nodd.tables import prepare

WAVE = 24
ANY = "any end"  # an earlier write is catalogued or superseded, whichever comes first
GIVE_UP_S = 120.0
LEASE_S = 2.0
RULES = GovernanceRules(
    rules=(
        GovernanceRule(
            id="no-alaska", asks="allowed", datasets=("hrrr",), keys=("*/alaska/*",), why="for the demonstration"
        ),
    )
)
TERMINAL = frozenset({JobState.SUCCEEDED, JobState.QUARANTINED})


class InjectedFault(msgspec.Struct, frozen=True):
    """One thing that goes wrong on purpose: which objects it concerns, and how each of them must end."""

    name: str
    what: str
    expected: str
    uris: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()  # of the units of each object, in the order of their generations


class Outage:
    """Objects that are out of reach while a file exists: between the workers and the store."""

    def __init__(self, source: S3Source, flag: Path, marks: Sequence[str]) -> None:
        self._source, self._flag, self._marks = source, flag, tuple(marks)

    def head(self, bucket: str, key: str) -> ObjectHead | None:
        """Return what is known of an object, unless it is out of reach."""
        if self._flag.exists() and any(mark in key for mark in self._marks):
            raise ObjectUnavailableError(f"s3://{bucket}/{key}: out of reach, for the demonstration")
        return self._source.head(bucket, key)

    def read(self, bucket: str, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Return a part of an object."""
        return self._source.read(bucket, key, start, length, etag=etag)


OUT_OF_REACH = "/KMUX/"


def open_ledger(url: str, endpoint: str, folder: Path) -> Ledger:
    """Return the ledger with the application's operations declared."""
    ledger = Ledger(url)
    prepare(ledger.store)
    datasets = shipped()
    source = Outage(S3Source(datasets.buckets(), endpoint=endpoint), folder / "outage", [OUT_OF_REACH])
    retry = RetryPolicy(strategy=Strategy.IMMEDIATE)
    settings = IngestSettings(
        datasets=datasets, source=source, rules=RULES, catalog=folder / "catalog", lease_s=LEASE_S, not_yet_s=1.0,
        retry=retry,
    )  # fmt: skip
    declare(ledger, settings)
    return ledger


def work(url: str, endpoint: str, folder: Path) -> None:
    """Be one of the workers, until told to stop."""
    worker = Worker(open_ledger(url, endpoint, folder), queues=[*BUCKETS, PUBLISH_QUEUE], concurrency=4, poll_s=0.2)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()


def tell(url: str, folder: Path, console: Console) -> int:
    """Run the demonstration and show it; return 1 if a promise was broken."""
    (folder / "outage").touch()
    with loopback_aws() as above:
        story = _Story(url, folder, above, console)
        try:
            return story.tell()
        finally:
            story.end()


class _Story:
    """The demonstration as it goes on."""

    def __init__(self, url: str, folder: Path, above: LoopbackAws, console: Console) -> None:
        self._url, self._folder, self._sky, self._console = url, folder, above, console
        self._ledger = open_ledger(url, above.endpoint, folder)
        self._feed = Feed(self._ledger.store, above.queue, shipped(), actor="demo-poller")
        self._workers: list[subprocess.Popen[bytes]] = []
        self._fates: Counter[str] = Counter()
        self._faults: list[InjectedFault] = []
        self._now = datetime.now(UTC)
        self._bodies: list[str] = []

    def tell(self) -> int:
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
        return self._prove()

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
                self._sky.put(thing)
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
        self._sky.queue.send([
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
        self._sky.put(late)
        self._sky.put(other)

    def _drain(self, objects: list[DemoObject]) -> None:
        outage = [thing for thing in objects if OUT_OF_REACH in thing.key]
        now = datetime.now(UTC)
        self._sky.dead.send([notice(thing, now, etag=_md5(thing.data)) for thing in outage])
        (self._folder / "outage").unlink()
        done = Drain(self._ledger.store, self._sky.dead, shipped(), actor="demo", reason="the outage is over").run()
        words = ", ".join(f"{n} {fate}" for fate, n in done.fates.items())
        self._console.print(f"[bold]4.[/] The store is back; the dead-letter queue is drained: {words}.")

    def _again(self) -> None:
        """Deliver everything once more: nothing may happen."""
        before = self._executions()
        self._sky.queue.send(self._bodies)
        self._poll()
        time.sleep(0.5)
        self._repeated = self._executions() - before
        self._console.print("[bold]5.[/] Notices are delivered once more: every one is known.\n")

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
        command = ["--work", "--url", self._url, "--endpoint", self._sky.endpoint, "--folder", str(self._folder)]
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

    def _asked(self, sql: str) -> list[tuple[Any, ...]]:
        with self._ledger.store.reading() as reading:
            return reading.ask(sql, {})[1]

    def _prove(self) -> int:
        seal(self._ledger.store)
        checked, verified = check(self._ledger.store), verify(self._ledger.store)
        [[units, succeeded, items, objects]] = self._asked(
            "SELECT (SELECT count(*) FROM nodd_units),"
            " (SELECT count(*) FROM nodd_wal_records WHERE status = 'succeeded' AND ext_superseded_by IS NULL),"
            " (SELECT count(*) FROM nodd_items), (SELECT count(DISTINCT source_uri) FROM nodd_units)"
        )
        [[terminal]] = self._asked("SELECT count(*) FROM nodd_wal_records WHERE status IN ('succeeded', 'quarantined')")
        [[edges, distinct]] = self._asked("SELECT count(*), count(DISTINCT record_id) FROM nodd_provenance")
        [[twice]] = self._asked(
            "SELECT count(*) FROM (SELECT job_id FROM holdfast_executions WHERE status IN ('COMMITTED', 'DONE')"
            " GROUP BY job_id HAVING count(*) > 1) t"
        )
        files = sum(1 for _ in (self._folder / "catalog").rglob("????????-*.json"))
        ended = sum(self._as_it_must(fault) for fault in self._faults)
        facts = [
            ("admitted units that are over", terminal, units),
            ("objects that are catalogued", succeeded, objects - 2),  # all but the truncated and the forbidden one
            ("faults that ended as they must", ended, len(self._faults)),
            ("items, one for each object that succeeded", items, succeeded),
            ("files of the static catalogue", files, items),
            ("provenance records, none twice", edges, distinct),
            ("units that took effect twice", twice, 0),
            ("executions by notices delivered again", self._repeated, 0),
            ("violations that `check` finds", len(checked.violations), 0),
            ("problems that `audit verify` finds", len(verified.problems), 0),
        ]
        self._show(facts, objects)
        ok = all(found == expected for _, found, expected in facts)
        return 0 if ok else 1

    def _show(self, facts: list[tuple[str, int, int]], objects: int) -> None:
        table = Table("what must be true", "found", "expected", title=f"{objects} objects, catalogued exactly once")
        for name, found, expected in facts:
            table.add_row(name, f"[{'green' if found == expected else 'red'}]{found}[/]", str(expected))
        self._console.print(table)
        ends = [(fault, self._ended(fault)) for fault in self._faults]
        faults = Table("fault", "what", "must end", "ended", title="What went wrong on purpose")
        for fault, ended in ends:
            faults.add_row(fault.name, fault.what, fault.expected, ended)
        self._console.print(faults)
        made = page.write(self._folder / "demo.html", self._ledger.store, facts, [
            (fault.name, fault.what, fault.expected, ended) for fault, ended in ends
        ], dict(self._fates))  # fmt: skip
        url = self._url
        self._console.print(f"The whole run on one page: {made}")
        if self._ledger.store.dialect == "postgres":
            self._console.print("Its server ends with it; `make demo` on SQLite leaves a ledger to look at.")
            return
        program = os.path.relpath(Path(sys.executable).with_name("holdfast"))
        self._console.print(f"Look further:  {program} nodd records --db {url} --status quarantined")
        self._console.print(f"               {program} stats --db {url}")
        self._console.print(f"               {program} audit verify --db {url}")

    def _ended(self, fault: InjectedFault) -> str:
        if fault.name == "garbage":
            return f"{self._fates['rejected']} kept"
        if fault.name == "test event":
            return f"{self._fates['ignored']} ignored"
        if fault.name == "kill -9":
            [[again]] = self._asked(
                "SELECT count(DISTINCT job_id) FROM holdfast_executions WHERE error_code = 'lease_expired'"
            )
            return f"{again} units were begun again"
        words = Counter(word for uri in fault.uris for word in self._unit(uri))
        return "; ".join(f"{n} {word}" for word, n in sorted(words.items()))

    def _as_it_must(self, fault: InjectedFault) -> bool:
        if fault.uris:
            return all(_alike(self._unit(uri), fault.ends) for uri in fault.uris)
        return {"garbage": self._fates["rejected"] == 1, "test event": self._fates["ignored"] >= 1}.get(
            fault.name, True
        )

    def _unit(self, uri: str) -> list[str]:
        """Return how the units of an object ended, in the order of their generations."""
        with self._ledger.store.reading() as reading:
            _, rows = reading.ask(
                "SELECT w.status, w.ext_quarantine_code, w.integrity_status FROM nodd_wal_records w JOIN nodd_units u"
                " ON u.wal_id = w.wal_id WHERE u.source_uri = :uri ORDER BY u.generation",
                {"uri": uri},
            )
        return [
            f"{status}{f' ({code})' if code else ''}{', suspect' if integrity == 'suspect' else ''}"
            for status, code, integrity in rows
        ]


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


def _alike(ended: Sequence[str], expected: Sequence[str]) -> bool:
    return len(ended) == len(expected) and all(
        wanted in (ANY, found) for found, wanted in zip(ended, expected, strict=True)
    )


def _uri(thing: DemoObject) -> str:
    return f"s3://{thing.bucket}/{thing.key}"


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
