"""A worker of the demonstration: the application's operations, and an outage of the object store on purpose.

Invariants: objects are unreachable while the file `outage` exists, and at no other time.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from holdfast import Ledger, Worker
from holdfast.demo.objects import BUCKETS
from holdfast.engine.worker.retry import RetryPolicy, Strategy
from holdfast.nodd.catalog import PUBLISH_QUEUE
from holdfast.nodd.dataset import shipped
from holdfast.nodd.governance import GovernanceRule, GovernanceRules
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.objects import ObjectHead, ObjectUnavailableError, S3Source
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
