"""`nodd check`: every promise of the application, asked of a ledger.

Invariants: nothing is written; each page, and each question about the whole, is one short read transaction of its own,
and memory is that of one page; a rule that breaks down over a row is itself reported as a violation. A ledger without
the application's tables has nothing wrong with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.audit.check.findings import CheckReport, Finding, Invariant, Severity
from holdfast.audit.check.walker import LIMIT, Progress, Question, Walker, chosen
from holdfast.core.digest import Json
from holdfast.core.machines import JOB
from holdfast.nodd import evidence, promises
from holdfast.nodd.dataset import Datasets
from holdfast.nodd.evidence import Body, ItemCase, Observation, Page, UnitCase, decoded
from holdfast.nodd.statements import ask, schema
from holdfast.nodd.tables import is_prepared
from holdfast.nodd.units import OPERATION, Fate
from holdfast.store.evidence import Evidence
from holdfast.store.statements import encoded

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.reading import Reading

BATCH = 500
KINDS = ("units", "provenance", "items", "observations", "rejected")
BODIES_MAX = 50  # a body may be as large as a message can be

Rule = Callable[[Any, Datasets], Iterator[Finding]]


class Promise(Invariant, frozen=True, kw_only=True):
    """An invariant of the application, and its rules: for each row of a kind, or for the whole."""

    of_unit: Rule | None = None
    of_item: Rule | None = None
    of_observation: Rule | None = None
    of_body: Rule | None = None
    of_whole: tuple[Question, ...] = ()


# ---------------------------------------------------------------------------------------------------------------------
# Questions about the whole


def missing_tables(reading: Reading, _n: int) -> Iterator[Finding]:
    """Yield tables and views of the application that are not there."""
    made = re.findall(r"CREATE (?:OR REPLACE )?(TABLE|VIEW) (\w+)", "\n".join(schema(reading.dialect)))
    there = {name for (name,) in ask(reading, "tables_there")}
    for kind, name in made:
        if name not in there:
            yield Finding(f"{kind} {name}", "it is not there", evidence={"kind": "missing"})


def jobs_without_units(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield jobs that are about no unit, and those that carry none though they are no part of a replacement."""
    after = found = 0
    while rows := ask(reading, "jobs_beside_units", operation=OPERATION, after=after, n=BATCH):
        after = rows[-1][0]
        about = {job_id: _unit_named(payload, key) for job_id, _, key, _, payload, _ in rows}
        wal_ids = sorted({wal_id for wal_id in about.values() if wal_id is not None})
        units = {row[0]: row[1:] for row in ask(reading, "carriers_of", rows=encoded(wal_ids))}
        for job_id, _, _, replaces, payload, committed in rows:
            wal_id = about[job_id]
            if wal_id is None and payload is None:
                continue  # slimmed, and submitted without a key: nothing tells any more
            detail = _beside(units.get(wal_id or ""), replaces, committed=committed)
            if detail is not None:
                told: dict[str, Json] = {"kind": "no_unit", "job_id": job_id, "wal_id": wal_id}
                yield Finding(f"{JOB.name} {job_id}", detail, JOB.name, job_id, told)
                found += 1
                if found >= n:
                    return


def _unit_named(payload: str | None, key: str | None) -> str | None:
    """Return the unit that a job is about: by its payload, or by its key, which a replacement's begins with."""
    if payload is None:
        return None if key is None else key.partition("#")[0]
    said = decoded(payload)
    wal_id = said.get("wal_id") if isinstance(said, dict) else None
    return wal_id if isinstance(wal_id, str) else None


def _beside(unit: tuple[Any, ...] | None, replaces: int | None, *, committed: bool) -> str | None:
    if unit is None:
        return "it is about no unit"
    carrier, created_before = unit
    if created_before is not None or (replaces is not None and not committed):
        return None
    if replaces is None:
        return f"its unit is carried out by job {carrier}, which replaces none"
    return f"it has succeeded, and its unit is carried out by job {carrier} still"


def broken_generations(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield units that do not follow the generation before them, or are not followed by the one after."""
    for row in ask(reading, "broken_generations", n=n):
        wal_id, generation, number_before, supersedes, before, superseded_by, after = row
        faults = {
            "gap": f"it is generation {generation}, and the one before it is {number_before}",
            "supersedes": f"it supersedes {supersedes or 'nothing'}, and before it came {before or 'none'}",
            "superseded_by": f"it is superseded by {superseded_by or 'nothing'}, and after it came {after or 'none'}",
        }
        broken = {
            "gap": generation != number_before + 1,
            "supersedes": generation > 1 and supersedes != before,
            "superseded_by": superseded_by != after,
        }
        for kind in (kind for kind, is_broken in broken.items() if is_broken):
            yield Finding(f"UNIT {wal_id}", faults[kind], evidence={"kind": kind, "generation": generation})


def sequencers_back(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield units whose write came before that of the generation before them."""
    for wal_id, sequencer, before in ask(reading, "sequencers_back", n=n):
        told: dict[str, Json] = {"kind": "sequencer", "sequencer": sequencer, "before": before}
        yield Finding(f"UNIT {wal_id}", f"its sequencer {sequencer} does not follow {before}", evidence=told)


def written_before_commit(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield items and provenance of units that have not succeeded."""
    for kind, subject, wal_id, job_id, state in ask(reading, "written_before_commit", n=n):
        told: dict[str, Json] = {"kind": "uncommitted", "wal_id": wal_id, "job_id": job_id, "state": state}
        what = "it is catalogued" if kind == "ITEM" else "it has provenance"
        yield Finding(f"{kind} {subject}", f"{what}, and its job {job_id} is {state}", evidence=told)


def parts_without_units(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield what belongs to a unit that is not there."""
    for kind, subject, missing in ask(reading, "parts_without_units", n=n):
        yield Finding(
            f"{kind} {subject}", f"there is no unit {missing}", evidence={"kind": "orphan", "wal_id": missing}
        )


def miscounted_admissions(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield datasets of which another number was counted as admitted than there are units."""
    for dataset, told, found in ask(reading, "miscounted_admissions", fate=str(Fate.ADMITTED), n=n):
        yield Finding(
            f"COUNTS {dataset}/{Fate.ADMITTED}",
            f"{int(told)} are counted, and there are {int(found)}",
            evidence={"kind": "count", "dataset": dataset, "told": int(told), "found": int(found)},
        )


# ---------------------------------------------------------------------------------------------------------------------
# The catalogue

_RESTORE = "restore the newest backup: a snapshot of the ledger does not carry these tables"
_REPLACE = "restore the newest backup, or let a later version of the work replace the unit (`nodd-replay`)"

PROMISES: tuple[Promise, ...] = (
    Promise(
        name="tables",
        meaning="The application's tables and its view are there.",
        remedy=_RESTORE,
        of_whole=(missing_tables,),
    ),
    Promise(
        name="units_have_jobs",
        meaning="Every unit has its job, and every job of nodd.ingest is about a unit that is there.",
        remedy=_RESTORE,
        of_unit=promises.has_job,
        of_whole=(jobs_without_units,),
    ),
    Promise(
        name="units_as_announced",
        meaning="A unit says what its job was given, and its id follows from its dataset, object and time.",
        remedy=_RESTORE,
        of_unit=promises.as_announced,
    ),
    Promise(
        name="replacements_carry_on",
        meaning="A unit whose job replaces another has kept what was before; one whose job replaces none, nothing.",
        remedy=_RESTORE,
        of_unit=promises.carried_on,
    ),
    Promise(
        name="one_current_generation",
        meaning="An object's generations are 1 to n; each names the one it superseded and that superseded it.",
        remedy="set the names anew by hand, as the generations tell; the last alone may write",
        of_whole=(broken_generations,),
    ),
    Promise(
        name="sequencers_grow",
        meaning="Of two generations whose notices have sequencers, the later one has the greater.",
        remedy="see which write is there now, and announce that one again",
        of_whole=(sequencers_back,),
    ),
    Promise(
        name="outcomes_kept",
        meaning="A unit that succeeded says what came of it, as its job's result and its item do; any other, nothing.",
        remedy=_REPLACE,
        of_unit=promises.outcome_kept,
    ),
    Promise(
        name="succeeded_is_catalogued",
        meaning="A unit that succeeded was let through by every operator, and its item is of it or of a later one.",
        remedy=_REPLACE,
        of_unit=promises.is_catalogued,
    ),
    Promise(
        name="succeeded_has_provenance",
        meaning="A unit that succeeded has its provenance, unless its dataset may do without.",
        remedy=_REPLACE,
        of_unit=promises.has_provenance,
    ),
    Promise(
        name="written_at_commit",
        meaning="Items and provenance are of units whose job has committed.",
        remedy="find out who wrote them; a unit that has not succeeded can be replayed",
        of_whole=(written_before_commit,),
    ),
    Promise(
        name="items_whole",
        meaning="An item says what it was catalogued with; its row, its text and its unit agree.",
        remedy=_RESTORE,
        of_item=promises.item_whole,
    ),
    Promise(
        name="items_fit_objects",
        meaning="An item's size, and the ETag that its provenance tells, are those of its unit.",
        remedy=_RESTORE,
        of_item=promises.item_fits,
    ),
    Promise(
        name="provenance_whole",
        meaning="A record of provenance is what was recorded: its id follows from what it says.",
        remedy=_RESTORE,
        of_unit=promises.provenance_unchanged,
    ),
    Promise(
        name="observations_agree",
        meaning="An observation lists items that are there, in their order; each is marked as its place asks for.",
        remedy=_RESTORE,
        of_observation=promises.observation_agrees,
    ),
    Promise(
        name="observations_complete",
        meaning="An item of a dataset that makes observations twice is listed in its observation.",
        remedy="nothing, if its dataset has come to tell observations since; else restore the newest backup",
        severity=Severity.WARNING,
        of_item=promises.item_listed,
    ),
    Promise(
        name="nothing_without_unit",
        meaning="Items, provenance and what was superseded belong to units that are there.",
        remedy=_RESTORE,
        of_whole=(parts_without_units,),
    ),
    Promise(
        name="rejected_whole",
        meaning="A rejected body is what came; how often, when, and what became of it can be true.",
        remedy=_RESTORE,
        of_body=promises.body_whole,
    ),
    Promise(
        name="admitted_counted",
        meaning="As many are counted as admitted as there are units.",
        remedy="nothing: only the doctor's numbers are wrong",
        severity=Severity.WARNING,
        of_whole=(miscounted_admissions,),
    ),
)
BY_NAME = {promise.name: promise for promise in PROMISES}


# ---------------------------------------------------------------------------------------------------------------------
# The check


def check(
    store: Store[Any],
    datasets: Datasets,
    *,
    only: Collection[str] | None = None,
    limit: int = LIMIT,
    batch: int = BATCH,
    on_progress: Progress | None = None,
) -> CheckReport:
    """Hold the application's tables against each other and against the jobs; the store need not be verified."""
    walker = Walker(store.reading, KINDS, limit=limit, batch=batch, on_progress=on_progress)
    promises = chosen(PROMISES, only)
    with store.reading() as reading:
        Evidence(reading).require_ledger()
    if is_prepared(store):
        _check(walker, promises, datasets)
    return walker.report()


def _check(walker: Walker, promises: Sequence[Promise], datasets: Datasets) -> None:
    """Check every promise; of tables that are not there, report only that."""
    walker.ask(BY_NAME["tables"], missing_tables)
    if walker.violations:
        return
    for promise in promises:
        for question in promise.of_whole:
            walker.ask(promise, question)
    walk = partial(_walk, walker, datasets)
    walk("units", evidence.units, [(one, one.of_unit) for one in promises if one.of_unit])
    walk("items", evidence.items, [(one, one.of_item) for one in promises if one.of_item])
    walk("observations", evidence.observed, [(one, one.of_observation) for one in promises if one.of_observation])
    walk("rejected", evidence.bodies, [(one, one.of_body) for one in promises if one.of_body])


def _walk(walker: Walker, datasets: Datasets, kind: str, read: Page, rules: Sequence[tuple[Promise, Rule]]) -> None:
    batch = min(walker.batch, BODIES_MAX) if kind == "rejected" else walker.batch

    def step(reading: Reading, after: str) -> tuple[int, str | None]:
        cases, last = read(reading, after, batch, datasets)
        for case in cases:
            walker.apply_all(rules, case, datasets, subject=_subject(case))
            if isinstance(case, UnitCase):
                walker.checked["provenance"] += len(case.told)
        return len(cases), last

    if rules:
        walker.walk(step, "", kind=kind)


def _subject(case: object) -> str:
    match case:
        case UnitCase():
            return f"UNIT {case.unit.wal_id}"
        case ItemCase():
            return f"ITEM {case.item.item_id}"
        case Observation():
            return f"OBSERVATION {case.name}"
        case Body():
            return f"REJECTED {case.sha256}"
    return "LEDGER"
