"""Every listed corruption of the application's tables is found where it is, and nowhere else."""

from __future__ import annotations

import pytest

from holdfast.audit.check.findings import Severity
from holdfast.nodd.check.catalogue import BY_NAME
from holdfast.nodd.dataset import Datasets
from tests.nodd.busy import Busy, checked, pairs
from tests.nodd.corruptions import CORRUPTIONS, corrupt

pytestmark = pytest.mark.attack("sql")

pytest.importorskip("h5py")


@pytest.mark.req("K-01", "K-02", "K-05", "K-44", "K-45")
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corruption_is_found_where_it_is_and_nowhere_else(
    busy_ledger: tuple[str, Busy], busy_datasets: Datasets, name: str
) -> None:
    url, busy = busy_ledger
    expected = corrupt(url, busy, name)
    report = checked(url, busy_datasets)
    assert pairs(report.violations) == expected
    assert report.ok is all(BY_NAME[invariant].severity is Severity.WARNING for invariant, _ in expected)
    # One row at a time finds the same, in the same order.
    assert checked(url, busy_datasets, batch=1) == report
