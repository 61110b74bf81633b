"""Records of the application to replay: a ledger whose units failed, and what is in it before and after.

Invariants: the command is the real one, in this process; objects are in memory or in a server on loopback; every
unit's notice is a day old, so that an object that is not there is missing, neither awaited nor expired.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from holdfast import Ledger
from holdfast.core.records import time_text
from holdfast.engine.worker.retry import RetryPolicy, Strategy
from holdfast.nodd import provenance, samples
from holdfast.nodd.admission import DECLARED, FeedMessage, admit, admit_notices
from holdfast.nodd.dataset import shipped
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.objects import ObjectSource
from holdfast.nodd.tables import prepare
from holdfast.nodd.units import Unit
from holdfast.store import Store, create_store
from tests.cli.commands import Outcome
from tests.cli.replaying import nodd
from tests.governance.replays import checksum
from tests.nodd.ingesting import BUCKET, REFERENCE, records
from tests.nodd.messages import GFS, event, record
from tests.nodd.objects import MemorySource

ONCE = RetryPolicy(strategy=Strategy.NO_RETRY)
AT_ONCE = RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=DECLARED.max_attempts)
SINCE = ("--created-after", "2020-01-01T00:00:00Z")
GONE = "integrity_missing_object"
TABLES = (
    "nodd_units",
    "nodd_sidecars",
    "nodd_rejected",
    "nodd_counts",
    "nodd_items",
    "nodd_observations",
    "nodd_provenance",
)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KFM_ENV", "KFM_WAL_DSN", "KFM_SQS_PRIMARY_QUEUE", "KFM_SQS_DLQ_QUEUE", "HOLDFAST_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")


@contextmanager
def tried_once(ledger_url: str, source: ObjectSource) -> Iterator[Ledger]:
    """Make a ledger whose units are tried once, and then rest."""
    with Ledger(ledger_url) as ledger:
        declare(ledger, IngestSettings(datasets=shipped(), source=source, retry=ONCE))
        yield ledger


def key_of(hour: int) -> str:
    return GFS.replace("f003", f"f{hour:03}")


def data_of(hour: int) -> bytes:
    return samples.grib2(REFERENCE, hour)


def yesterday(store: Store[Any]) -> datetime:
    return store.now() - timedelta(days=1)


def notice(store: Store[Any], hour: int) -> FeedMessage:
    """Return the message that announces one file of a forecast, a day ago and `hour` minutes."""
    data = data_of(hour)
    at = (yesterday(store) + timedelta(minutes=hour)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return FeedMessage(event(record(key=key_of(hour), size=len(data), eTag=etag, eventTime=at)))


def failed(ledger: Ledger, hours: range) -> list[dict[str, Any]]:
    """Announce files that are not there, and let them fail."""
    admit(ledger.store, [notice(ledger.store, hour) for hour in hours], shipped())
    ledger.run_until_idle()
    found = records(ledger)
    assert [(one["status"], one["last_error_code"], one["attempts"]) for one in found] == [("failed", GONE, 1)] * len(
        hours
    )
    return found


def appear(source: MemorySource, hours: range) -> None:
    for hour in hours:
        source.put(BUCKET, key_of(hour), data_of(hour))


def replay(ledger: Ledger, command: str, *arguments: str) -> Outcome:
    here = {"KFM_ENV": "dev", "KFM_WAL_DSN": ledger.store.url}
    return nodd(command, *arguments, "--output", "json", env=here)


def contents(store: Store[Any]) -> str:
    """Return the SHA-256 of every row of the ledger and of the application."""
    digest = hashlib.sha256(checksum(store).encode())
    with store.reading() as reading:
        for table in TABLES:
            digest.update(
                json.dumps(sorted(str(row) for row in reading.query(f"SELECT * FROM {table}", {})[1])).encode()
            )
    return digest.hexdigest()


def items(store: Store[Any]) -> list[tuple[Any, ...]]:
    with store.reading() as reading:
        return reading.query("SELECT item_id, wal_id, generation, href, content FROM nodd_items ORDER BY item_id", {})[
            1
        ]


def lineage(store: Store[Any]) -> list[provenance.ProvenanceRecord]:
    with store.reading() as reading:
        rows = reading.query("SELECT record_id, kind, content FROM nodd_provenance ORDER BY record_id", {})[1]
    return [provenance.ProvenanceRecord(*row) for row in rows]


def undisturbed(ledger: Ledger, tmp_path: Path, hours: range) -> tuple[list[Any], set[str]]:
    """Return the items, and the ids of PROV, that the same notices give where every object is there."""
    with ledger.store.reading() as reading:
        payloads = [job.payload or "" for job in reading.lists.jobs(limit=100)]
    notices = [msgspec.json.decode(payload, type=Unit).notice for payload in payloads]
    source = MemorySource()
    appear(source, hours)
    url = str(tmp_path / f"{uuid4().hex}.db")
    create_store(url).close()
    with Ledger(url) as calm:
        prepare(calm.store)
        declare(calm, IngestSettings(datasets=shipped(), source=source))
        admit_notices(calm.store, list({one.key: one for one in notices}.values()), shipped())
        calm.run_until_idle()
        return items(calm.store), {one.record_id for one in lineage(calm.store) if one.kind == provenance.PROV}


def kinds(store: Store[Any]) -> Counter[str]:
    """Return how many statements of each kind PROV has, and how many events OpenLineage."""
    found: Counter[str] = Counter()
    for one in lineage(store):
        found.update(list(json.loads(one.content)) if one.kind == provenance.PROV else [one.kind])
    return found


def contents_of_application(store: Store[Any]) -> list[Any]:
    with store.reading() as reading:
        return [reading.query(f"SELECT * FROM {table} ORDER BY 1", {})[1] for table in TABLES]


def texts(found: dict[str, Any]) -> dict[str, Any]:
    return {name: time_text(value) if isinstance(value, datetime) else value for name, value in found.items()}


REPAIR = ("--dataset", "gfs", *SINCE, "--mode", "repair-and-replace", "--confirm")
