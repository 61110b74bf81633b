"""The invariants of the application's tables: what must be true, what helps, and the rules that test it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.audit.check.findings import Finding, Invariant, Severity
from holdfast.audit.check.walker import Question
from holdfast.nodd.check import ledger_rules, row_rules
from holdfast.nodd.dataset import Datasets

Rule = Callable[[Any, Datasets], Iterator[Finding]]


class NoddInvariant(Invariant, frozen=True, kw_only=True):
    """An invariant of the application, and its rules: for each row of a kind, or for the whole."""

    of_unit: Rule | None = None
    of_item: Rule | None = None
    of_observation: Rule | None = None
    of_body: Rule | None = None
    of_whole: tuple[Question, ...] = ()


_RESTORE = "restore the newest backup: a snapshot of the ledger does not carry these tables"
_REPLACE = "restore the newest backup, or let a later version of the work replace the unit (`nodd-replay`)"

INVARIANTS: tuple[NoddInvariant, ...] = (
    NoddInvariant(
        name="tables",
        meaning="The application's tables and its view are there.",
        remedy=_RESTORE,
        of_whole=(ledger_rules.missing_tables,),
    ),
    NoddInvariant(
        name="units_have_jobs",
        meaning="Every unit has its job, and every job of nodd.ingest is about a unit that is there.",
        remedy=_RESTORE,
        of_unit=row_rules.has_job,
        of_whole=(ledger_rules.jobs_without_units,),
    ),
    NoddInvariant(
        name="units_as_announced",
        meaning="A unit says what its job was given, and its id follows from its dataset, object and time.",
        remedy=_RESTORE,
        of_unit=row_rules.as_announced,
    ),
    NoddInvariant(
        name="replacements_carry_on",
        meaning="A unit whose job replaces another has kept what was before; one whose job replaces none, nothing.",
        remedy=_RESTORE,
        of_unit=row_rules.carried_on,
    ),
    NoddInvariant(
        name="one_current_generation",
        meaning="An object's generations are 1 to n; each names the one it superseded and that superseded it.",
        remedy="set the names anew by hand, as the generations tell; the last alone may write",
        of_whole=(ledger_rules.broken_generations,),
    ),
    NoddInvariant(
        name="sequencers_grow",
        meaning="Of two generations whose notices have sequencers, the later one has the greater.",
        remedy="see which write is there now, and announce that one again",
        of_whole=(ledger_rules.sequencers_back,),
    ),
    NoddInvariant(
        name="outcomes_kept",
        meaning="A unit that succeeded says what came of it, as its job's result and its item do; any other, nothing.",
        remedy=_REPLACE,
        of_unit=row_rules.outcome_kept,
    ),
    NoddInvariant(
        name="succeeded_is_catalogued",
        meaning="A unit that succeeded was let through by every operator, and its item is of it or of a later one.",
        remedy=_REPLACE,
        of_unit=row_rules.is_catalogued,
    ),
    NoddInvariant(
        name="succeeded_has_provenance",
        meaning="A unit that succeeded has its provenance, unless its dataset may do without.",
        remedy=_REPLACE,
        of_unit=row_rules.has_provenance,
    ),
    NoddInvariant(
        name="written_at_commit",
        meaning="Items and provenance are of units whose job has committed.",
        remedy="find out who wrote them; a unit that has not succeeded can be replayed",
        of_whole=(ledger_rules.written_before_commit,),
    ),
    NoddInvariant(
        name="items_whole",
        meaning="An item says what it was catalogued with; its row, its text and its unit agree.",
        remedy=_RESTORE,
        of_item=row_rules.item_whole,
    ),
    NoddInvariant(
        name="items_fit_objects",
        meaning="An item's size, and the ETag that its provenance tells, are those of its unit.",
        remedy=_RESTORE,
        of_item=row_rules.item_fits,
    ),
    NoddInvariant(
        name="provenance_whole",
        meaning="A record of provenance is what was recorded: its id follows from what it says.",
        remedy=_RESTORE,
        of_unit=row_rules.provenance_unchanged,
    ),
    NoddInvariant(
        name="observations_agree",
        meaning="An observation lists items that are there, in their order; each is marked as its place asks for.",
        remedy=_RESTORE,
        of_observation=row_rules.observation_agrees,
    ),
    NoddInvariant(
        name="observations_complete",
        meaning="An item of a dataset that makes observations twice is listed in its observation.",
        remedy="nothing, if its dataset has come to tell observations since; else restore the newest backup",
        severity=Severity.WARNING,
        of_item=row_rules.item_listed,
    ),
    NoddInvariant(
        name="nothing_without_unit",
        meaning="Items, provenance and what was superseded belong to units that are there.",
        remedy=_RESTORE,
        of_whole=(ledger_rules.parts_without_units,),
    ),
    NoddInvariant(
        name="rejected_whole",
        meaning="A rejected body is what came; how often, when, and what became of it can be true.",
        remedy=_RESTORE,
        of_body=row_rules.body_whole,
    ),
    NoddInvariant(
        name="admitted_counted",
        meaning="As many are counted as admitted as there are units.",
        remedy="nothing: only the doctor's numbers are wrong",
        severity=Severity.WARNING,
        of_whole=(ledger_rules.miscounted_admissions,),
    ),
)
BY_NAME = {invariant.name: invariant for invariant in INVARIANTS}
