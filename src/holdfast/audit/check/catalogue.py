"""The catalogue: what must be true of a ledger, what it means when it is not, and how it is asked.

Invariants: each has a name that stays, a meaning for people and a severity; what one job is judged by is asked of that
job alone, so that the same rules say whether a repair has mended it; `docs/invariants.md` is this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

import msgspec

from holdfast.audit.check import job_rules as jobs
from holdfast.audit.check import ledger_rules as surveys
from holdfast.audit.check import record_rules as histories
from holdfast.audit.check.page import Fault, Page
from holdfast.core.digest import Json
from holdfast.store.evidence import Case, History

RecordRule = Callable[[History, Page], Iterator[Fault]]
JobRule = Callable[[Case, Page], Iterator[Fault]]
LedgerRule = Callable[[Page], Iterator[Fault]]


class Severity(StrEnum):
    """How bad it is: an error is a broken promise, a warning wants a look."""

    ERROR = "error"
    WARNING = "warning"


class Violation(msgspec.Struct, frozen=True):
    """One invariant that one subject breaks."""

    invariant: str
    subject: str  # "JOB 5", "EXECUTION 17", "COUNTS noop/default/pending", "TRIGGER holdfast_jobs_move", "LEDGER"
    detail: str
    severity: Severity
    machine: str | None = None
    id: int | None = None
    evidence: dict[str, Json] = {}


class Invariant(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must be true, and how it is asked: of each record, of each job, of the ledger, and at open."""

    name: str
    meaning: str
    mending: str  # what `holdfast repair` does about it
    severity: Severity = Severity.ERROR
    of_record: RecordRule | None = None
    of_job: JobRule | None = None
    of_ledger: tuple[LedgerRule, ...] = ()
    at_open: LedgerRule | None = None  # the cheap form: from partial indexes or catalogues, or the end of a chain

    @property
    def cheap(self) -> bool:
        """Whether it is asked whenever a ledger opens."""
        return self.at_open is not None

    def violation(self, fault: Fault) -> Violation:
        """Return a fault as a violation of this invariant."""
        return Violation(self.name, fault.subject, fault.detail, self.severity, fault.machine, fault.id, fault.evidence)


INVARIANTS: tuple[Invariant, ...] = (
    Invariant(
        name="database",
        meaning="The database finds nothing wrong with its own pages, indexes and constraints.",
        mending="nothing: restore the newest snapshot or backup, or put back the constraint that is gone",
        of_ledger=(surveys.database,),
    ),
    Invariant(
        name="enforcement",
        meaning="Triggers, rules, unique indexes and machines are those of this version; ids go on; the door is shut.",
        mending="writes them anew, removes those of others, and lets ids go on where they were",
        of_ledger=(surveys.enforcement, surveys.sequences),
        at_open=surveys.enforcement,
    ),
    Invariant(
        name="settings_readable",
        meaning="The ledger's settings and the defaults of its operations are there, and can be read.",
        mending="nothing: write back what is missing, or restore the newest snapshot",
        of_ledger=(surveys.settings,),
    ),
    Invariant(
        name="one_state",
        meaning="A record exists once and is in one state that its machine knows.",
        mending="puts the record where its journal ends; if that is not known, quarantines the job",
        of_record=histories.one_state,
        of_ledger=(surveys.ids_once,),
    ),
    Invariant(
        name="state_is_projected",
        meaning="A job's stored state is what its executions and rulings add up to.",
        mending="writes the projected state; quarantines the job where the journal says otherwise",
        of_job=jobs.projected,
    ),
    Invariant(
        name="running_has_lease",
        meaning="A running job has exactly one open execution, and an open execution's job is running.",
        mending="puts job and execution where their journals end; else aborts the execution",
        of_job=jobs.leased,
        at_open=surveys.leases,
    ),
    Invariant(
        name="lease_overdue",
        meaning=f"A lease that ran out was reaped within {surveys.OVERDUE_S:g} s.",
        mending="recovers it, as a worker would",
        severity=Severity.WARNING,
        of_ledger=(surveys.overdue,),
        at_open=surveys.overdue,
    ),
    Invariant(
        name="succeeded_immutable",
        meaning="Nothing follows success, and a job that succeeded has its committed execution.",
        mending="puts the job back to succeeded if an execution committed; else quarantines it",
        of_job=jobs.immutable,
    ),
    Invariant(
        name="attempts_monotonic",
        meaning="Attempts never shrink, and equal the claims in the journal and the executions on record.",
        mending="counts them anew",
        of_job=jobs.attempts,
    ),
    Invariant(
        name="one_commit",
        meaning="At most one execution of a job has committed.",
        mending="quarantines the job, and aborts the commits after the first",
        of_job=jobs.one_commit,
    ),
    Invariant(
        name="commits_equal_effects",
        meaning="An execution has committed exactly if its job's effects count; follow-ups are of committed jobs.",
        mending="finishes what has committed; quarantines what is contradictory",
        of_job=jobs.commits_equal_effects,
    ),
    Invariant(
        name="journal_continuous",
        meaning="Every version of every record is journalled once, each from where the last led, to where it stands.",
        mending="puts the record where its journal ends; a history with gaps begins anew",
        of_record=histories.continuous,
        of_job=jobs.cut,
        of_ledger=(surveys.maintenance,),
    ),
    Invariant(
        name="journal_legal",
        meaning="Every edge is in the table under its event; grants and maintenance that it names were; time goes on.",
        mending="lets the history begin anew; quarantines the job unless an execution committed",
        of_record=histories.legal,
    ),
    Invariant(
        name="counts_true",
        meaning="The counts equal the number of jobs.",
        mending="counts anew",
        of_ledger=(surveys.counts,),
    ),
    Invariant(
        name="no_orphans",
        meaning="Executions, checkpoints, journal rows and replacements belong to something that is there.",
        mending="puts back what the journal tells of; removes checkpoints of nothing",
        of_ledger=(surveys.orphans,),
    ),
    Invariant(
        name="governance_whole",
        meaning="Steps, values and evidence belong to runs and collections that are there; evidence is what was kept.",
        mending="nothing: restore the newest snapshot, or put back what is missing",
        of_ledger=(surveys.governance,),
    ),
    Invariant(
        name="grants_authentic",
        meaning="A used grant says by whom; an active one was approved, and outside dev by another than asked for it.",
        mending="says who used it, as the journal tells; revokes what nobody, or nobody else, has approved",
        of_ledger=(surveys.approvals,),
    ),
    Invariant(
        name="keys_unique",
        meaning="No client has used a key for two jobs.",
        mending="leaves the key to the first job, and quarantines the others",
        of_ledger=(surveys.keys_once,),
    ),
    Invariant(
        name="results_present",
        meaning="A job that succeeded has its result or is slimmed; only ended jobs are slimmed, and then wholly.",
        mending="slims the job: a repeat of its key answers result_expired",
        of_job=jobs.results,
    ),
    Invariant(
        name="fields_valid",
        meaning="Columns fit each other and the journal: times, versions, attempts, errors, digests, quarantine codes.",
        mending="recomputes them; quarantines a job whose payload is not what was submitted",
        of_record=histories.fields,
        of_job=jobs.fields,
    ),
    Invariant(
        name="seals_chained",
        meaning="Each seal follows the one before it and says what was hashed; the last one is noted; none hides rows.",
        mending="nothing: keep the ledger, and compare it with an exported head",
        of_ledger=(surveys.seals,),
        at_open=surveys.last_seal,
    ),
)

BY_NAME = {invariant.name: invariant for invariant in INVARIANTS}
