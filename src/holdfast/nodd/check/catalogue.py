"""The invariants of the application's tables: what each means, what to do if it is broken, and the rules that test it.

Invariants: every invariant has at least one rule; names are stable, because scripts use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.audit.check.findings import Finding, Invariant, Severity
from holdfast.audit.check.walker import WholeLedgerRule
from holdfast.nodd.check import ledger_rules, row_rules
from holdfast.nodd.dataset import Datasets

Rule = Callable[[Any, Datasets], Iterator[Finding]]


class NoddInvariant(Invariant, frozen=True, kw_only=True):
    """An invariant of the application with its rules: for each row of a kind, or for the whole ledger."""

    of_unit: Rule | None = None
    of_item: Rule | None = None
    of_observation: Rule | None = None
    of_body: Rule | None = None
    of_whole: tuple[WholeLedgerRule, ...] = ()


_RESTORE = "restore the newest database backup; snapshots of the ledger do not contain these tables"
_REPLACE = "restore the newest database backup, or process the unit again with a later version (`nodd-replay`)"

INVARIANTS: tuple[NoddInvariant, ...] = (
    NoddInvariant(
        name="tables",
        meaning="The application's tables and its view exist.",
        remedy=_RESTORE,
        of_whole=(ledger_rules.missing_tables,),
    ),
    NoddInvariant(
        name="units_have_jobs",
        meaning="Every unit has a job, and every job of nodd.ingest has a unit.",
        remedy=_RESTORE,
        of_unit=row_rules.has_job,
        of_whole=(ledger_rules.jobs_without_units,),
    ),
    NoddInvariant(
        name="units_as_announced",
        meaning="A unit agrees with the payload of its job, and its id is computed from its dataset, object and time.",
        remedy=_RESTORE,
        of_unit=row_rules.as_announced,
    ),
    NoddInvariant(
        name="replacements_carry_on",
        meaning="A unit whose job replaces another keeps the counts of the replaced job; other units have none.",
        remedy=_RESTORE,
        of_unit=row_rules.carried_on,
    ),
    NoddInvariant(
        name="one_current_generation",
        meaning="The generations of an object are 1 to n; each names the generation before it and the one after it.",
        remedy="correct `supersedes` and `superseded_by` by hand, in the order of the generations",
        of_whole=(ledger_rules.broken_generations,),
    ),
    NoddInvariant(
        name="sequencers_grow",
        meaning="The sequencer of a generation is greater than that of the generation before it, if both have one.",
        remedy="look at the object in its bucket, and send the notice of its current write again",
        of_whole=(ledger_rules.sequencers_back,),
    ),
    NoddInvariant(
        name="outcomes_kept",
        meaning="A unit that succeeded stores its outcome, as in its job's result and its item; others store none.",
        remedy=_REPLACE,
        of_unit=row_rules.outcome_kept,
    ),
    NoddInvariant(
        name="succeeded_is_catalogued",
        meaning="A unit that succeeded passed every operator, and has an item of its own or of a later generation.",
        remedy=_REPLACE,
        of_unit=row_rules.is_catalogued,
    ),
    NoddInvariant(
        name="succeeded_has_provenance",
        meaning="A unit that succeeded has its provenance, unless its dataset allows that to fail.",
        remedy=_REPLACE,
        of_unit=row_rules.has_provenance,
    ),
    NoddInvariant(
        name="written_at_commit",
        meaning="Items and provenance exist only for units whose job has committed.",
        remedy="find out which program wrote them; a unit that has not succeeded can be replayed",
        of_whole=(ledger_rules.written_before_commit,),
    ),
    NoddInvariant(
        name="items_whole",
        meaning="The text of an item is unchanged since it was catalogued, and agrees with its row and its unit.",
        remedy=_RESTORE,
        of_item=row_rules.item_whole,
    ),
    NoddInvariant(
        name="items_fit_objects",
        meaning="The size of an item, and the ETag in its provenance, are those of its unit.",
        remedy=_RESTORE,
        of_item=row_rules.item_fits,
    ),
    NoddInvariant(
        name="provenance_whole",
        meaning="A provenance record is unchanged: its id is the digest of its content.",
        remedy=_RESTORE,
        of_unit=row_rules.provenance_unchanged,
    ),
    NoddInvariant(
        name="observations_agree",
        meaning="An observation lists existing items in the order they were made; each item links its neighbours.",
        remedy=_RESTORE,
        of_observation=row_rules.observation_agrees,
    ),
    NoddInvariant(
        name="observations_complete",
        meaning="An item of a dataset with `same_observation` is listed in its observation.",
        remedy="nothing if the dataset got `same_observation` later; else restore the newest database backup",
        severity=Severity.WARNING,
        of_item=row_rules.item_listed,
    ),
    NoddInvariant(
        name="nothing_without_unit",
        meaning="Items, provenance and `supersedes` refer to units that exist.",
        remedy=_RESTORE,
        of_whole=(ledger_rules.parts_without_units,),
    ),
    NoddInvariant(
        name="rejected_whole",
        meaning="A rejected body is unchanged, and its counts, times and fate are consistent.",
        remedy=_RESTORE,
        of_body=row_rules.body_whole,
    ),
    NoddInvariant(
        name="admitted_counted",
        meaning="The number counted as admitted is the number of units.",
        remedy="nothing; only the numbers of `nodd doctor` are wrong",
        severity=Severity.WARNING,
        of_whole=(ledger_rules.miscounted_admissions,),
    ),
)
BY_NAME = {invariant.name: invariant for invariant in INVARIANTS}
