"""A busy ledger of the application: units at every end and on every way, made by the real operators.

Invariants: everything comes from the application's own verbs; a name of `Busy` is a unit in the state that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from holdfast import Ledger
from holdfast.audit.check.findings import CheckReport, Violation
from holdfast.engine.worker.retry import RetryPolicy, Strategy
from holdfast.engine.world import BETWEEN, Crash, World
from holdfast.nodd import rejected, samples
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.catalog_targets import DirectoryTarget
from holdfast.nodd.check.runner import check
from holdfast.nodd.dataset import Datasets, with_own
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.objects import ObjectHead
from holdfast.nodd.signatures import Signatures
from holdfast.nodd.tables import prepare
from holdfast.store import Lease, Submission, connect, create_store
from tests.nodd.ingesting import BUCKET, REFERENCE
from tests.nodd.messages import GFS, chunk, event, record
from tests.nodd.objects import MemorySource

GOES_BUCKET = "noaa-goes19"
GOES = "ABI-L2-CMIPF/2026/318/00/OR_ABI-L2-CMIPF-M6C{channel}_G19_s20263180000210_e20263180009529_c{created}.nc"
START, END = datetime(2026, 11, 14, 0, 0, 21, tzinfo=UTC), datetime(2026, 11, 14, 0, 9, 52, 900_000, tzinfo=UTC)
CREATED = ("20263180009597", "20263180109597", "20263190009597")


class Busy(msgspec.Struct, kw_only=True):
    """Which unit is which, by wal_id."""

    first: str = ""  # of three writes: succeeded, and superseded since
    second: str = ""  # succeeded: its item stands
    third: str = ""  # waits
    same: str = ""  # the second write of the same content: its item is a no-op
    overtaken: str = ""  # superseded before it was begun, and slimmed
    taking: str = ""  # the write that has overtaken it
    broken: str = ""  # quarantined
    failed: str = ""
    waived: str = ""  # succeeded without provenance
    carried: str = ""  # succeeded again, by a job that replaces the first, which was slimmed
    replacing: str = ""  # succeeded, and a job that is to replace its own waits
    slimmed: str = ""  # succeeded, long ago
    held: str = ""  # running
    committed: str = ""  # committed, and not yet done
    files: tuple[str, ...] = ()  # of one observation, in the order of their making
    alone: str = ""  # the one file of its observation


class Telling(MemorySource):
    """Objects in memory, some without an ETag."""

    def __init__(self) -> None:
        super().__init__()
        self.nameless: set[str] = set()

    def head(self, bucket: str, key: str) -> ObjectHead | None:
        """Return what is known of an object."""
        head = super().head(bucket, key)
        return head if head is None or key not in self.nameless else msgspec.structs.replace(head, etag=None)


def lenient(directory: Path) -> Datasets:
    """Return datasets of which one, GFS, allows missing provenance."""
    text = files("holdfast.nodd").joinpath("datasets/gfs.toml").read_text(encoding="utf-8")
    directory.mkdir(exist_ok=True)
    (directory / "gfs.toml").write_text(
        text.replace("[policy]\n", "[policy]\nprovenance_may_fail = true\n"), encoding="utf-8"
    )
    return with_own(directory)


def make_busy(url: str, directory: Path, look: Callable[[str], None] | None = None) -> Busy:
    """Make a busy ledger; `look` is called at every point that the engine passes, and after every message."""
    create_store(url).close()
    return _Maker(url, directory, look).make()


class _Maker:
    def __init__(self, url: str, directory: Path, look: Callable[[str], None] | None) -> None:
        self._url, self._directory = url, directory
        self._look = look or _nothing
        # `look` is called before each commit, too.
        self._world = World(reach=look, planned=lambda point: point == BETWEEN) if look else World()
        self._datasets, self._source = lenient(directory / "datasets"), Telling()
        self._busy = Busy()

    @contextmanager
    def _opened(self, world: World | None = None) -> Iterator[Ledger]:
        with Ledger(self._url, world=world or self._world) as ledger:
            prepare(ledger.store)
            once = RetryPolicy(strategy=Strategy.NO_RETRY)
            catalog = self._directory / "catalog"
            settings = IngestSettings(
                datasets=self._datasets, source=self._source, retry=once, catalog=DirectoryTarget(catalog)
            )
            declare(ledger, settings)
            yield ledger

    def make(self) -> Busy:
        with self._opened() as ledger:
            self._ended(ledger)
            self._observed(ledger)
            self._under_way(ledger)
        return self._busy

    def _write(self, ledger: Ledger, name: str, lead: int, data: bytes, **fields: Any) -> None:
        """Write an object and announce it; remember its unit under a name."""
        key = GFS.replace("f003", f"f{lead:03}")
        etag = self._source.put(BUCKET, key, data)
        body = event(record(key=key, size=len(data), **{"eTag": etag, **fields}))
        [found] = admit(ledger.store, [FeedMessage(body)], self._datasets)
        assert (str(found.fate), found.wal_id is not None) == ("admitted", True), found
        self._look("admitted")
        setattr(self._busy, name, found.wal_id)

    def _ended(self, ledger: Ledger) -> None:
        one = {lead: samples.grib2(REFERENCE, lead) for lead in range(0, 40, 3)}
        other = {lead: data + samples.grib2(REFERENCE, lead, parameter=1) for lead, data in one.items()}
        for name, data, sequencer in (("first", one[3], "0A"), ("second", other[3], "0B")):
            self._write(ledger, name, 3, data, sequencer=sequencer)
            ledger.run_until_idle()
        for sequencer in ("0099", "9A"):
            self._write(ledger, "same", 6, one[6], sequencer=sequencer)
            ledger.run_until_idle()
        self._write(ledger, "overtaken", 9, one[9], sequencer="0A")
        self._write(ledger, "taking", 9, other[9], sequencer="0B")
        self._write(ledger, "broken", 12, one[12][:-1])
        self._write(ledger, "carried", 21, one[21])
        self._write(ledger, "replacing", 24, one[24])
        self._write(ledger, "slimmed", 27, one[27])
        key = GFS.replace("f003", "f018")
        self._source.nameless.add(key)
        self._write(ledger, "waived", 18, one[18], eTag=None, sequencer=None)
        ledger.run_until_idle()
        self._source.down = True
        self._write(ledger, "failed", 15, one[15])
        ledger.run_until_idle()
        self._source.down = False
        first = self._replace(ledger, self._busy.carried)
        ledger.run_until_idle()
        self._slim(ledger, [first, self._job(ledger, self._busy.slimmed), self._job(ledger, self._busy.overtaken)])
        sidecar = event(record(key=f"{GFS}.idx", size=10))
        for body in (sidecar, "not json", "not json", chunk(), event(record(key="x"))):
            admit(ledger.store, [FeedMessage(body)], self._datasets)
        self._read_again(ledger)

    def _read_again(self, ledger: Ledger) -> None:
        """Let a body be rejected because it is not signed, and read it again."""
        admit(ledger.store, [FeedMessage(event(record(key="y")))], self._datasets, signatures=Signatures())
        [found] = rejected.replay(ledger.store, self._datasets, actor="tests", code="signature_missing")
        assert str(found.fate) == "ignored"
        assert sorted((one.times, one.fate) for one in rejected.listed(ledger.store)) == [(1, "ignored"), (2, None)]

    def _observed(self, ledger: Ledger) -> None:
        data = samples.goes_file(START, END, bbox=(-156.3, -81.33, 6.3, 81.33))
        other = samples.goes_file(START, END, bbox=(-150.0, -80.0, 0.0, 80.0))
        writes = [
            (CREATED[1], "0A", data),
            (CREATED[0], "0A", data),
            (CREATED[2], "0A", data),
            (CREATED[1], "0B", other),
        ]
        wal_ids: dict[str, str] = {}
        for created, sequencer, content in writes:
            wal_ids[created] = self._announce_goes(ledger, "13", created, content, sequencer)
        self._busy.files = tuple(wal_ids[created] for created in CREATED)
        self._busy.alone = self._announce_goes(ledger, "14", CREATED[0], data, "0A")

    def _announce_goes(self, ledger: Ledger, channel: str, created: str, data: bytes, sequencer: str) -> str:
        key = GOES.format(channel=channel, created=created)
        etag = self._source.put(GOES_BUCKET, key, data)
        body = event(record(key=key, bucket=GOES_BUCKET, size=len(data), eTag=etag, sequencer=sequencer))
        [found] = admit(ledger.store, [FeedMessage(body)], self._datasets)
        self._look("admitted")
        ledger.run_until_idle()
        return str(found.wal_id)

    def _under_way(self, ledger: Ledger) -> None:
        data = {lead: samples.grib2(REFERENCE, lead) for lead in (30, 33)}
        self._write(ledger, "committed", 33, data[33])
        dying = World(reach=self._die_between, planned=lambda point: point == BETWEEN)
        with self._opened(dying) as dead, suppress(Crash):
            dead.run_until_idle(queues=["gfs"], concurrency=1)
        self._write(ledger, "held", 30, data[30])
        with ledger.store.transaction() as transaction:
            assert len(transaction.executions.claim(Lease(owner="worker-1", seconds=3600, queues=("gfs",)))) == 1
        self._look("claimed")
        self._write(ledger, "third", 3, samples.grib2(REFERENCE, 3, parameter=2), sequencer="0C")
        self._replace(ledger, self._busy.replacing)

    def _job(self, ledger: Ledger, wal_id: str) -> int:
        with ledger.store.reading() as reading:
            [[job_id]] = reading.query("SELECT job_id FROM nodd_units WHERE wal_id = :wal_id", {"wal_id": wal_id})[1]
        return int(job_id)

    def _replace(self, ledger: Ledger, wal_id: str) -> int:
        """Submit a job that replaces that of a unit, and return the one that it replaces."""
        job_id = self._job(ledger, wal_id)
        with ledger.store.transaction() as transaction:
            job = transaction.jobs.get(job_id)
            again = Submission(
                operation=job.operation,
                payload=job.payload or "",
                client=job.client,
                key=f"{job.key}#again",
                queue=job.queue,
                replaces=job_id,
            )
            transaction.jobs.submit([again])
        return job_id

    def _slim(self, ledger: Ledger, job_ids: list[int]) -> None:
        with ledger.store.transaction() as transaction:
            later = transaction.now() + timedelta(seconds=1)
            with transaction.maintenance.open(who="tests", why="long ago") as door:
                assert transaction.retention.slim(job_ids, before=later) == sorted(job_ids)
                transaction.maintenance.note(door, "slim", jobs=len(job_ids), first=min(job_ids), last=max(job_ids))
        self._look("slimmed")

    def _die_between(self, point: str) -> None:
        self._look(point)
        if point == BETWEEN:
            raise Crash(point)


def _nothing(_point: str) -> None:
    """Look at nothing."""


def pairs(violations: Sequence[Violation]) -> set[tuple[str, str]]:
    return {(violation.invariant, violation.subject) for violation in violations}


def checked(url: str, datasets: Datasets, **how: Any) -> CheckReport:
    with connect(url) as store:
        return check(store, datasets, **how)
