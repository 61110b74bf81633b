"""Objects that are announced and ingested, and their records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast import Ledger
from holdfast.nodd import samples
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.dataset import shipped
from holdfast.store import Store
from tests.nodd.messages import GFS, event, record
from tests.nodd.objects import MemorySource

BUCKET = "noaa-gfs-bdp-pds"
REFERENCE = datetime(2026, 7, 26, tzinfo=UTC)
GRIB = samples.grib2(REFERENCE, 3)


def announce(ledger: Ledger, data: bytes, source: MemorySource, key: str = GFS, **more: Any) -> None:
    etag = source.put(BUCKET, key, data)
    body = event(record(key=key, size=len(data), **{"eTag": etag, **more}))
    admit(ledger.store, [FeedMessage(body)], shipped())


def queried(store: Store[Any], sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with store.reading() as reading:
        return reading.query(sql, {})[1]


def records(ledger: Ledger) -> list[dict[str, Any]]:
    with ledger.store.reading() as reading:
        names, rows = reading.query("SELECT * FROM nodd_wal_records ORDER BY ext_generation, object_uri", {})
    return [dict(zip(names, row, strict=True)) for row in rows]
