"""`nodd check`: tests every invariant of the application on a ledger.

Invariants: nothing is written; each page and each rule about the whole ledger has a short read transaction of its own,
and memory use is bounded by the page; a rule that raises for a row is reported as a violation. A ledger without the
application's tables has no violations.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.audit.check.findings import CheckReport
from holdfast.audit.check.walker import LIMIT, Progress, Walker, chosen
from holdfast.core.steps import Steps, run_steps
from holdfast.nodd.check import rows
from holdfast.nodd.check.catalogue import BY_NAME, INVARIANTS, NoddInvariant, Rule
from holdfast.nodd.check.ledger_rules import missing_tables
from holdfast.nodd.check.rows import ItemCase, ObservationCase, Page, RejectedRow, UnitCase
from holdfast.nodd.dataset import Datasets
from holdfast.nodd.tables import is_prepared
from holdfast.store.migrations import require_ledger

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.transaction import Reading

BATCH = 500
KINDS = ("units", "provenance", "items", "observations", "rejected")
BODIES_MAX = 50  # per page: a rejected body can have 1 MiB


def check(
    store: Store[Any],
    datasets: Datasets,
    *,
    only: Collection[str] | None = None,
    limit: int = LIMIT,
    batch: int = BATCH,
    on_progress: Progress | None = None,
) -> CheckReport:
    """Test the invariants of the application's tables, and return a report; `only` names invariants.

    Raises InputError if `only` names an unknown invariant. The enforcement of the store need not be verified.
    """
    walker = Walker(store.reading, KINDS, limit=limit, batch=batch, on_progress=on_progress)
    row_rules = chosen(INVARIANTS, only)
    with store.reading() as reading:
        require_ledger(reading.store, reading.connection)
    if is_prepared(store):
        run_steps(_check(walker, row_rules, datasets))
    return walker.report()


def _check(walker: Walker, row_rules: Sequence[NoddInvariant], datasets: Datasets) -> Steps[None]:
    """Test every invariant; if tables are missing, report only that."""
    yield from walker.check_whole(BY_NAME["tables"], missing_tables)
    if walker.violations:
        return
    for invariant in row_rules:
        for rule in invariant.of_whole:
            yield from walker.check_whole(invariant, rule)
    walk = partial(_walk, walker, datasets)
    yield from walk("units", rows.unit_cases, [(one, one.of_unit) for one in row_rules if one.of_unit])
    yield from walk("items", rows.item_cases, [(one, one.of_item) for one in row_rules if one.of_item])
    yield from walk(
        "observations", rows.observation_cases, [(one, one.of_observation) for one in row_rules if one.of_observation]
    )
    yield from walk("rejected", rows.rejected_rows, [(one, one.of_body) for one in row_rules if one.of_body])


def _walk(
    walker: Walker, datasets: Datasets, kind: str, read: Page, rules: Sequence[tuple[NoddInvariant, Rule]]
) -> Steps[None]:
    batch = min(walker.batch, BODIES_MAX) if kind == "rejected" else walker.batch

    def step(reading: Reading, after: str) -> tuple[int, str | None]:
        cases, last = read(reading, after, batch, datasets)
        for case in cases:
            walker.apply_all(rules, case, datasets, subject=_subject(case))
            if isinstance(case, UnitCase):
                walker.checked["provenance"] += len(case.provenance)
        return len(cases), last

    if rules:
        yield from walker.walk(step, "", kind=kind)


def _subject(case: object) -> str:
    match case:
        case UnitCase():
            return f"UNIT {case.unit.wal_id}"
        case ItemCase():
            return f"ITEM {case.item.item_id}"
        case ObservationCase():
            return f"OBSERVATION {case.name}"
        case RejectedRow():
            return f"REJECTED {case.sha256}"
    return "LEDGER"
