"""`nodd check`: every promise of the application, asked of a ledger.

Invariants: nothing is written; each page, and each question about the whole, is one short read transaction of its own,
and memory is that of one page; a rule that breaks down over a row is itself reported as a violation. A ledger without
the application's tables has nothing wrong with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.audit.check.catalogue import Severity, Violation
from holdfast.audit.check.page import Fault
from holdfast.audit.check.runner import LIMIT, Progress, Report
from holdfast.core.digest import Json
from holdfast.core.errors import InputError
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
BODIES_MAX = 50  # a body may be as large as a message can be

Rule = Callable[[Any, Datasets], Iterator[Fault]]
Question = Callable[["Reading", int], Iterator[Fault]]


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must be true, and how it is asked: of each row of a kind, or of the whole."""

    name: str
    meaning: str
    mending: str  # what helps
    severity: Severity = Severity.ERROR
    of_unit: Rule | None = None
    of_item: Rule | None = None
    of_observation: Rule | None = None
    of_body: Rule | None = None
    of_whole: tuple[Question, ...] = ()

    def violation(self, fault: Fault) -> Violation:
        """Return a fault as a violation of this promise."""
        return Violation(self.name, fault.subject, fault.detail, self.severity, fault.machine, fault.id, fault.evidence)


# ---------------------------------------------------------------------------------------------------------------------
# Questions about the whole


def missing_tables(reading: Reading, _n: int) -> Iterator[Fault]:
    """Yield tables and views of the application that are not there."""
    made = re.findall(r"CREATE (?:OR REPLACE )?(TABLE|VIEW) (\w+)", "\n".join(schema(reading.dialect)))
    there = {name for (name,) in ask(reading, "tables_there")}
    for kind, name in made:
        if name not in there:
            yield Fault(f"{kind} {name}", "it is not there", evidence={"kind": "missing"})


def jobs_without_units(reading: Reading, n: int) -> Iterator[Fault]:
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
                yield Fault(f"{JOB.name} {job_id}", detail, JOB.name, job_id, told)
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


def broken_generations(reading: Reading, n: int) -> Iterator[Fault]:
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
            yield Fault(f"UNIT {wal_id}", faults[kind], evidence={"kind": kind, "generation": generation})


def sequencers_back(reading: Reading, n: int) -> Iterator[Fault]:
    """Yield units whose write came before that of the generation before them."""
    for wal_id, sequencer, before in ask(reading, "sequencers_back", n=n):
        told: dict[str, Json] = {"kind": "sequencer", "sequencer": sequencer, "before": before}
        yield Fault(f"UNIT {wal_id}", f"its sequencer {sequencer} does not follow {before}", evidence=told)


def written_before_commit(reading: Reading, n: int) -> Iterator[Fault]:
    """Yield items and provenance of units that have not succeeded."""
    for kind, subject, wal_id, job_id, state in ask(reading, "written_before_commit", n=n):
        told: dict[str, Json] = {"kind": "uncommitted", "wal_id": wal_id, "job_id": job_id, "state": state}
        what = "it is catalogued" if kind == "ITEM" else "it has provenance"
        yield Fault(f"{kind} {subject}", f"{what}, and its job {job_id} is {state}", evidence=told)


def parts_without_units(reading: Reading, n: int) -> Iterator[Fault]:
    """Yield what belongs to a unit that is not there."""
    for kind, subject, missing in ask(reading, "parts_without_units", n=n):
        yield Fault(f"{kind} {subject}", f"there is no unit {missing}", evidence={"kind": "orphan", "wal_id": missing})


def miscounted_admissions(reading: Reading, n: int) -> Iterator[Fault]:
    """Yield datasets of which another number was counted as admitted than there are units."""
    for dataset, told, found in ask(reading, "miscounted_admissions", fate=str(Fate.ADMITTED), n=n):
        yield Fault(
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
        mending=_RESTORE,
        of_whole=(missing_tables,),
    ),
    Promise(
        name="units_have_jobs",
        meaning="Every unit has its job, and every job of nodd.ingest is about a unit that is there.",
        mending=_RESTORE,
        of_unit=promises.has_job,
        of_whole=(jobs_without_units,),
    ),
    Promise(
        name="units_as_announced",
        meaning="A unit says what its job was given, and its id follows from its dataset, object and time.",
        mending=_RESTORE,
        of_unit=promises.as_announced,
    ),
    Promise(
        name="replacements_carry_on",
        meaning="A unit whose job replaces another has kept what was before; one whose job replaces none, nothing.",
        mending=_RESTORE,
        of_unit=promises.carried_on,
    ),
    Promise(
        name="one_current_generation",
        meaning="An object's generations are 1 to n; each names the one it superseded and that superseded it.",
        mending="set the names anew by hand, as the generations tell; the last alone may write",
        of_whole=(broken_generations,),
    ),
    Promise(
        name="sequencers_grow",
        meaning="Of two generations whose notices have sequencers, the later one has the greater.",
        mending="see which write is there now, and announce that one again",
        of_whole=(sequencers_back,),
    ),
    Promise(
        name="outcomes_kept",
        meaning="A unit that succeeded says what came of it, as its job's result and its item do; any other, nothing.",
        mending=_REPLACE,
        of_unit=promises.outcome_kept,
    ),
    Promise(
        name="succeeded_is_catalogued",
        meaning="A unit that succeeded was let through by every operator, and its item is of it or of a later one.",
        mending=_REPLACE,
        of_unit=promises.is_catalogued,
    ),
    Promise(
        name="succeeded_has_provenance",
        meaning="A unit that succeeded has its provenance, unless its dataset may do without.",
        mending=_REPLACE,
        of_unit=promises.has_provenance,
    ),
    Promise(
        name="written_at_commit",
        meaning="Items and provenance are of units whose job has committed.",
        mending="find out who wrote them; a unit that has not succeeded can be replayed",
        of_whole=(written_before_commit,),
    ),
    Promise(
        name="items_whole",
        meaning="An item says what it was catalogued with; its row, its text and its unit agree.",
        mending=_RESTORE,
        of_item=promises.item_whole,
    ),
    Promise(
        name="items_fit_objects",
        meaning="An item's size, and the ETag that its provenance tells, are those of its unit.",
        mending=_RESTORE,
        of_item=promises.item_fits,
    ),
    Promise(
        name="provenance_whole",
        meaning="A record of provenance is what was recorded: its id follows from what it says.",
        mending=_RESTORE,
        of_unit=promises.provenance_unchanged,
    ),
    Promise(
        name="observations_agree",
        meaning="An observation lists items that are there, in their order; each is marked as its place asks for.",
        mending=_RESTORE,
        of_observation=promises.observation_agrees,
    ),
    Promise(
        name="observations_complete",
        meaning="An item of a dataset that makes observations twice is listed in its observation.",
        mending="nothing, if its dataset has come to tell observations since; else restore the newest backup",
        severity=Severity.WARNING,
        of_item=promises.item_listed,
    ),
    Promise(
        name="nothing_without_unit",
        meaning="Items, provenance and what was superseded belong to units that are there.",
        mending=_RESTORE,
        of_whole=(parts_without_units,),
    ),
    Promise(
        name="rejected_whole",
        meaning="A rejected body is what came; how often, when, and what became of it can be true.",
        mending=_RESTORE,
        of_body=promises.body_whole,
    ),
    Promise(
        name="admitted_counted",
        meaning="As many are counted as admitted as there are units.",
        mending="nothing: only the doctor's numbers are wrong",
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
) -> Report:
    """Hold the application's tables against each other and against the jobs; the store need not be verified."""
    run = _Run(_chosen(only), datasets, limit=limit, batch=batch, on_progress=on_progress)
    with store.reading() as reading:
        Evidence(reading).require_ledger()
    if is_prepared(store):
        run.ask(store)
    return run.report()


def _chosen(only: Collection[str] | None) -> Sequence[Promise]:
    unknown = sorted(set(only or ()) - BY_NAME.keys())
    if unknown:
        raise InputError(
            f"there is no invariant {unknown[0]!r}",
            next_step=f"Choose among {', '.join(BY_NAME)}.",
            context={"unknown": unknown},
        )
    return [promise for promise in PROMISES if only is None or promise.name in only]


class _Run:
    """One check: the promises that are asked, and what was found so far."""

    def __init__(
        self,
        chosen: Sequence[Promise],
        datasets: Datasets,
        *,
        limit: int,
        batch: int,
        on_progress: Progress | None,
    ) -> None:
        if limit < 1 or batch < 1:
            raise InputError("a check looks at one row at a time or more, and reports one violation or more")
        self._chosen, self._datasets = chosen, datasets
        self._limit, self._batch = limit, batch
        self._on_progress = on_progress or (lambda _what, _n: None)
        self._violations: list[Violation] = []
        self._checked = {"units": 0, "provenance": 0, "items": 0, "observations": 0, "rejected": 0}

    def report(self) -> Report:
        """Return what was found."""
        return Report.of(self._violations[: self._limit], self._checked, more=self._full)

    def ask(self, store: Store[Any]) -> None:
        """Ask everything, each page and question in a view of its own; of tables that are not there, only that."""
        with store.reading() as reading:
            missing = list(missing_tables(reading, self._limit))
        if missing:
            self._violations += [BY_NAME["tables"].violation(fault) for fault in missing]
            return
        for promise in self._chosen:
            for question in promise.of_whole:
                if not self._full:
                    with store.reading() as reading:
                        self._take(promise, question, reading, self._limit - len(self._violations), subject="LEDGER")
        self._walk(store, "units", evidence.units, [(one, one.of_unit) for one in self._chosen if one.of_unit])
        self._walk(store, "items", evidence.items, [(one, one.of_item) for one in self._chosen if one.of_item])
        rules = [(one, one.of_observation) for one in self._chosen if one.of_observation]
        self._walk(store, "observations", evidence.observed, rules)
        self._walk(store, "rejected", evidence.bodies, [(one, one.of_body) for one in self._chosen if one.of_body])

    def _walk(self, store: Store[Any], what: str, read: Page, rules: Sequence[tuple[Promise, Rule]]) -> None:
        after: str | None = ""
        n = min(self._batch, BODIES_MAX) if what == "rejected" else self._batch
        while rules and after is not None and not self._full:
            with store.reading() as reading:
                cases, after = read(reading, after, n, self._datasets)
            for case in cases:
                for promise, rule in rules:
                    self._take(promise, rule, case, self._datasets, subject=_subject(case))
                if isinstance(case, UnitCase):
                    self._checked["provenance"] += len(case.told)
            self._checked[what] += len(cases)
            self._on_progress(what, self._checked[what])

    def _take(self, promise: Promise, rule: Callable[..., Iterator[Fault]], *given: Any, subject: str) -> None:
        try:
            for fault in rule(*given):
                self._violations.append(promise.violation(fault))
        except _BREAKDOWNS as error:
            detail = f"Invariant check failed: {type(error).__name__}"
            self._violations.append(promise.violation(Fault(subject, detail, evidence={"kind": "failed"})))

    @property
    def _full(self) -> bool:
        return len(self._violations) >= self._limit


# What a rule can stumble over in data that nobody wrote; errors of the database are none of these.
_BREAKDOWNS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


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
