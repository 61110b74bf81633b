"""A worker process of the demonstration, and the injected outage of S3.

Invariants: objects of one radar station cannot be read while the file `outage` exists; all others always can.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from holdfast import Ledger, Worker
from holdfast.demo.objects import BUCKETS
from holdfast.engine.worker.retry import RetryPolicy, Strategy
from holdfast.nodd.catalog import PUBLISH_QUEUE
from holdfast.nodd.catalog_targets import DirectoryTarget
from holdfast.nodd.dataset import shipped
from holdfast.nodd.governance import GovernanceRule, GovernanceRules
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.objects import FirstRange, ObjectUnavailableError, S3Source
from holdfast.nodd.tables import prepare

LEASE_S = 2.0
RULES = GovernanceRules(
    rules=(
        GovernanceRule(
            id="no-alaska", asks="allowed", datasets=("hrrr",), keys=("*/alaska/*",), why="for the demonstration"
        ),
    )
)
OUT_OF_REACH = "/KMUX/"


class Outage:
    """An object source that fails for some keys while a flag file exists."""

    def __init__(self, source: S3Source, flag: Path, marks: Sequence[str]) -> None:
        self._source, self._flag, self._marks = source, flag, tuple(marks)

    def first(self, bucket: str, key: str, length: int) -> FirstRange | None:
        """Return the head and the first bytes of an object; raise ObjectUnavailableError for keys of the outage."""
        if self._flag.exists() and any(mark in key for mark in self._marks):
            raise ObjectUnavailableError(f"s3://{bucket}/{key}: unavailable, an injected fault of the demonstration")
        return self._source.first(bucket, key, length)

    def read(self, bucket: str, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        return self._source.read(bucket, key, start, length, etag=etag)


def open_ledger(url: str, endpoint: str, folder: Path) -> Ledger:
    """Open the ledger, create the tables of nodd if they are missing, and declare its operations."""
    ledger = Ledger(url)
    prepare(ledger.store)
    datasets = shipped()
    source = Outage(S3Source(datasets.buckets(), endpoint=endpoint), folder / "outage", [OUT_OF_REACH])
    retry = RetryPolicy(strategy=Strategy.IMMEDIATE)
    settings = IngestSettings(
        datasets=datasets, source=source, rules=RULES, catalog=DirectoryTarget(folder / "catalog"), lease_s=LEASE_S,
        not_yet_s=1.0, retry=retry,
    )  # fmt: skip
    declare(ledger, settings)
    return ledger


def work(url: str, endpoint: str, folder: Path) -> None:
    worker = Worker(open_ledger(url, endpoint, folder), queues=[*BUCKETS, PUBLISH_QUEUE], concurrency=4, poll_s=0.2)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()
