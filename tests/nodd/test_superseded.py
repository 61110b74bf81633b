"""A record whose object was written again: what the operator reads says what took its place, and advises nothing."""

from __future__ import annotations

import pytest

from holdfast import Ledger
from holdfast.explain.explain import explain
from holdfast.governance.quarantine import show
from holdfast.governance.releases import release
from holdfast.nodd import samples
from tests.nodd.ingesting import GRIB, REFERENCE, announce, records
from tests.nodd.objects import MemorySource

LATER = GRIB + samples.grib2(REFERENCE, 3, parameter=1)


@pytest.mark.req("K-02", "G-21")
def test_what_took_its_place_is_named_and_nothing_is_advised(ledger: Ledger, source: MemorySource) -> None:
    announce(ledger, GRIB, source, sequencer="0A")
    announce(ledger, LATER, source, sequencer="0B")
    later = f"job 2, record {records(ledger)[1]['wal_id']}"
    for by in ("nodd", "a worker, after a release"):
        with ledger.store.reading() as reading:
            told, shown = explain(reading, 1, ledger.store.now()), show(reading, 1)
        [found] = told.findings
        assert (told.verdict, found.code, found.next) == ("finished", "superseded", "holdfast show 1"), by
        assert later in found.message, by
        assert (shown.reason, shown.next) == ("superseded", ("holdfast show 1",)), by
        release(ledger.store, 1, operator="ann", reason="try again")
        ledger.run_until_idle()
    assert [(one["status"], one["ext_quarantine_code"]) for one in records(ledger)] == [
        ("quarantined", "superseded"),
        ("succeeded", None),
    ]
