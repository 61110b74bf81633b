"""The catalogue: what must be true of a ledger, what it means when it is not, and how it is asked.

Invariants: each has a name that stays, a meaning for people and a severity; what one job is judged by is asked of that
job alone, so that the same rules say whether a repair has mended it; `docs/invariants.md` is this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.audit.check import job_rules, ledger_rules, record_rules
from holdfast.audit.check.context import RuleContext
from holdfast.audit.check.findings import Finding, Invariant, Severity
from holdfast.store.verbs.evidence import Case, History

RecordRule = Callable[[History, RuleContext], Iterator[Finding]]
JobRule = Callable[[Case, RuleContext], Iterator[Finding]]
LedgerRule = Callable[[RuleContext], Iterator[Finding]]


class LedgerInvariant(Invariant, frozen=True, kw_only=True):
    """An invariant of the ledger, and its rules: for each record, for each job, for the ledger, and at open."""

    of_record: RecordRule | None = None
    of_job: JobRule | None = None
    of_ledger: tuple[LedgerRule, ...] = ()
    at_open: LedgerRule | None = None  # the cheap form: from partial indexes or catalogues, or the end of a chain

    @property
    def cheap(self) -> bool:
        """Whether it is asked whenever a ledger opens."""
        return self.at_open is not None


INVARIANTS: tuple[LedgerInvariant, ...] = (
    LedgerInvariant(
        name="database",
        meaning="The database finds nothing wrong with its own pages, indexes and constraints.",
        remedy="nothing: restore the newest snapshot or backup, or put back the constraint that is gone",
        of_ledger=(ledger_rules.database,),
    ),
    LedgerInvariant(
        name="enforcement",
        meaning="Triggers, rules, unique indexes and machines are those of this version; ids go on; the door is shut.",
        remedy="writes them anew, removes those of others, and lets ids go on where they were",
        of_ledger=(ledger_rules.enforcement, ledger_rules.sequences),
        at_open=ledger_rules.enforcement,
    ),
    LedgerInvariant(
        name="settings_readable",
        meaning="The ledger's settings and the defaults of its operations are there, and can be read.",
        remedy="nothing: write back what is missing, or restore the newest snapshot",
        of_ledger=(ledger_rules.settings,),
    ),
    LedgerInvariant(
        name="one_state",
        meaning="A record exists once and is in one state that its machine knows.",
        remedy="puts the record where its journal ends; if that is not known, quarantines the job",
        of_record=record_rules.one_state,
        of_ledger=(ledger_rules.ids_once,),
    ),
    LedgerInvariant(
        name="state_is_projected",
        meaning="A job's stored state is what its executions and rulings add up to.",
        remedy="writes the projected state; quarantines the job where the journal says otherwise",
        of_job=job_rules.projected,
    ),
    LedgerInvariant(
        name="running_has_lease",
        meaning="A running job has exactly one open execution, and an open execution's job is running.",
        remedy="puts job and execution where their journals end; else aborts the execution",
        of_job=job_rules.leased,
        at_open=ledger_rules.leases,
    ),
    LedgerInvariant(
        name="lease_overdue",
        meaning=f"A lease that ran out was reaped within {ledger_rules.OVERDUE_S:g} s.",
        remedy="recovers it, as a worker would",
        severity=Severity.WARNING,
        of_ledger=(ledger_rules.overdue,),
        at_open=ledger_rules.overdue,
    ),
    LedgerInvariant(
        name="succeeded_immutable",
        meaning="Nothing follows success, and a job that succeeded has its committed execution.",
        remedy="puts the job back to succeeded if an execution committed; else quarantines it",
        of_job=job_rules.immutable,
    ),
    LedgerInvariant(
        name="attempts_monotonic",
        meaning="Attempts never shrink, and equal the claims in the journal and the executions on record.",
        remedy="counts them anew",
        of_job=job_rules.attempts,
    ),
    LedgerInvariant(
        name="one_commit",
        meaning="At most one execution of a job has committed.",
        remedy="quarantines the job, and aborts the commits after the first",
        of_job=job_rules.one_commit,
    ),
    LedgerInvariant(
        name="commits_equal_effects",
        meaning="An execution has committed exactly if its job's effects count; follow-ups are of committed jobs.",
        remedy="finishes what has committed; quarantines what is contradictory",
        of_job=job_rules.commits_equal_effects,
    ),
    LedgerInvariant(
        name="journal_continuous",
        meaning="Every version of every record is journalled once, each from where the last led, to where it stands.",
        remedy="puts the record where its journal ends; a history with gaps begins anew",
        of_record=record_rules.continuous,
        of_job=job_rules.cut,
        of_ledger=(ledger_rules.maintenance,),
    ),
    LedgerInvariant(
        name="journal_legal",
        meaning="Every edge is in the table under its event; grants and maintenance that it names were; time goes on.",
        remedy="lets the history begin anew; quarantines the job unless an execution committed",
        of_record=record_rules.legal,
    ),
    LedgerInvariant(
        name="counts_true",
        meaning="The counts equal the number of jobs.",
        remedy="counts anew",
        of_ledger=(ledger_rules.counts,),
    ),
    LedgerInvariant(
        name="no_orphans",
        meaning="Executions, checkpoints, journal rows and replacements belong to something that is there.",
        remedy="puts back what the journal tells of; removes checkpoints of nothing",
        of_ledger=(ledger_rules.orphans,),
    ),
    LedgerInvariant(
        name="governance_whole",
        meaning="Steps, values and evidence belong to runs and collections that are there; evidence is what was kept.",
        remedy="nothing: restore the newest snapshot, or put back what is missing",
        of_ledger=(ledger_rules.governance,),
    ),
    LedgerInvariant(
        name="grants_authentic",
        meaning="A used grant says by whom; an active one was approved, and outside dev by another than asked for it.",
        remedy="says who used it, as the journal tells; revokes what nobody, or nobody else, has approved",
        of_ledger=(ledger_rules.approvals,),
    ),
    LedgerInvariant(
        name="keys_unique",
        meaning="No client has used a key for two jobs.",
        remedy="leaves the key to the first job, and quarantines the others",
        of_ledger=(ledger_rules.keys_once,),
    ),
    LedgerInvariant(
        name="results_present",
        meaning="A job that succeeded has its result or is slimmed; only ended jobs are slimmed, and then wholly.",
        remedy="slims the job: a repeat of its key answers result_expired",
        of_job=job_rules.results,
    ),
    LedgerInvariant(
        name="fields_valid",
        meaning="Columns fit each other and the journal: times, versions, attempts, errors, digests, quarantine codes.",
        remedy="recomputes them; quarantines a job whose payload is not what was submitted",
        of_record=record_rules.fields,
        of_job=job_rules.fields,
    ),
    LedgerInvariant(
        name="seals_chained",
        meaning="Each seal follows the one before it and says what was hashed; the last one is noted; none hides rows.",
        remedy="nothing: keep the ledger, and compare it with an exported head",
        of_ledger=(ledger_rules.seals,),
        at_open=ledger_rules.last_seal,
    ),
)

BY_NAME = {invariant.name: invariant for invariant in INVARIANTS}
