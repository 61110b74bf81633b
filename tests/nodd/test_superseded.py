"""`explain` of a unit: the true cause, and a next command that can help."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast import Ledger
from holdfast.explain.explain import explain
from holdfast.governance.quarantine import show
from holdfast.governance.releases import release
from holdfast.nodd import samples
from holdfast.nodd.dataset import shipped
from tests.nodd.ingesting import GRIB, REFERENCE, announce, records
from tests.nodd.objects import MemorySource

LATER = GRIB + samples.grib2(REFERENCE, 3, parameter=1)


@pytest.mark.req("K-02", "G-21")
def test_a_superseded_unit_names_its_successor_and_advises_nothing(ledger: Ledger, source: MemorySource) -> None:
    announce(ledger, GRIB, source, sequencer="0A")
    announce(ledger, LATER, source, sequencer="0B")
    later = f"job 2, record {records(ledger)[1]['wal_id']}"
    for by in ("nodd", "a worker, after a release"):
        with ledger.store.reading() as reading:
            explanation, shown = explain(reading, 1, ledger.store.now()), show(reading, 1)
        [found] = explanation.findings
        assert (explanation.verdict, found.code, found.next) == ("finished", "superseded", "holdfast show 1"), by
        assert later in found.message, by
        assert (shown.reason, shown.next) == ("superseded", ("holdfast show 1",)), by
        release(ledger.store, 1, operator="ann", reason="try again")
        ledger.run_until_idle()
    assert [(one["status"], one["ext_quarantine_code"]) for one in records(ledger)] == [
        ("quarantined", "superseded"),
        ("succeeded", None),
    ]


FAR = "gfs.20260726/00/atmos/gfs.t00z.pgrb2.0p25.f186"  # valid a week after its cycle, whose day a listing has


@pytest.mark.parametrize(
    "data, fields, code",
    [
        (GRIB[:-1], {}, "integrity_missing_required_header"),
        (GRIB, {"eTag": "1" * 32}, "integrity_etag_mismatch"),
    ],
    ids=["damaged", "written again"],
)
def test_for_a_refused_object_a_reconcile_of_its_cycle_is_advised(
    ledger: Ledger, source: MemorySource, data: bytes, fields: dict[str, str], code: str
) -> None:
    """A release would read the same bytes again: only another write of the object can help."""
    announce(ledger, data, source, key=FAR, **fields)
    ledger.run_until_idle()
    with ledger.store.reading() as reading:
        [found] = explain(reading, 1, ledger.store.now()).findings
    assert (found.code, found.evidence["code"]) == ("quarantined", code)
    assert found.next == "holdfast nodd reconcile gfs --date 2026-07-26 --admit"
    prefixes = shipped()["gfs"].spec.list_prefixes
    assert any(FAR.startswith(datetime(2026, 7, 26, tzinfo=UTC).strftime(prefix)) for prefix in prefixes)


def test_a_unit_without_a_worker_waits_for_the_command_that_works_on_units(
    ledger: Ledger, source: MemorySource
) -> None:
    announce(ledger, GRIB, source)
    with ledger.store.reading() as reading:
        [found] = explain(reading, 1, ledger.store.now()).findings
    assert (found.code, found.next) == ("no_worker", "holdfast nodd run")
