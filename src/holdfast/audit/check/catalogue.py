"""The catalogue: what must be true of a ledger, what a repair does if it is not, and the rules that test it.

Invariants: the name of an invariant never changes; a rule about a job looks at that job alone, so that the same rules
verify a repair of it; `docs/invariants.md` is this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

from holdfast.audit.check import job_rules, ledger_rules, record_rules
from holdfast.audit.check.context import RuleContext
from holdfast.audit.check.findings import Finding, Invariant, Severity
from holdfast.store.verbs.histories import Case, History

RecordRule = Callable[[History, RuleContext], Iterator[Finding]]
JobRule = Callable[[Case, RuleContext], Iterator[Finding]]
LedgerRule = Callable[[RuleContext], Iterator[Finding | None]]
"""Yields findings, and None at the end of a page: after it, `context.evidence` is that of another read transaction."""


class LedgerInvariant(Invariant, frozen=True, kw_only=True):
    """An invariant of the ledger, and its rules: for each record, for each job, for the ledger, and at open."""

    of_record: RecordRule | None = None
    of_job: JobRule | None = None
    of_ledger: tuple[LedgerRule, ...] = ()
    at_open: LedgerRule | None = None  # the cheap form: reads partial indexes, catalogues or the last seals only

    @property
    def cheap(self) -> bool:
        """Whether it is tested whenever a ledger opens."""
        return self.at_open is not None


def _of_approvals(name: str) -> LedgerRule:
    """Return a rule of `approval_rules`, a module that is imported only if the ledger has approvals."""

    def rule(context: RuleContext) -> Iterator[Finding | None]:
        if context.evidence.has_approvals():
            yield from getattr(import_module("holdfast.audit.check.approval_rules"), name)(context)

    return rule


INVARIANTS: tuple[LedgerInvariant, ...] = (
    LedgerInvariant(
        name="database",
        meaning="The database finds no error in its own pages, indexes and constraints.",
        remedy="nothing: restore the newest snapshot or backup, or recreate the missing constraint",
        of_ledger=(ledger_rules.database,),
    ),
    LedgerInvariant(
        name="enforcement",
        meaning="Triggers, indexes and machines are those of this version; ids never repeat; no maintenance is open.",
        remedy="rewrites them, removes foreign triggers and rules, and moves the sequences past the greatest id",
        of_ledger=(ledger_rules.enforcement, ledger_rules.sequences),
        at_open=ledger_rules.enforcement,
    ),
    LedgerInvariant(
        name="settings_readable",
        meaning="The ledger's settings and the defaults of its operations exist and can be read.",
        remedy="nothing: write the missing setting by hand, or restore the newest snapshot",
        of_ledger=(ledger_rules.settings,),
    ),
    LedgerInvariant(
        name="one_state",
        meaning="A record exists once, in one state that its machine defines.",
        remedy="moves the record to the last state in its journal; if that is unknown, quarantines the job",
        of_record=record_rules.one_state,
        of_ledger=(ledger_rules.ids_once,),
    ),
    LedgerInvariant(
        name="state_is_projected",
        meaning="A job's stored state equals the state that follows from its executions and rulings.",
        remedy="writes the state that follows; quarantines the job if the journal contradicts it",
        of_job=job_rules.projected,
    ),
    LedgerInvariant(
        name="lease_overdue",
        meaning=f"An expired lease is ended within {ledger_rules.OVERDUE_S:g} s.",
        remedy="ends the lease, as a worker does",
        severity=Severity.WARNING,
        of_ledger=(ledger_rules.overdue,),
        at_open=ledger_rules.overdue,
    ),
    LedgerInvariant(
        name="succeeded_immutable",
        meaning="A succeeded job never changes state.",
        remedy="moves the job back to succeeded if its commit is in the journal; else quarantines it",
        of_job=job_rules.immutable,
    ),
    LedgerInvariant(
        name="attempts_monotonic",
        meaning="Attempts equal the claims in the journal, and each is stored exactly once; lease tokens only grow.",
        remedy="counts the attempts again; writes lost attempts from the journal, and removes invented ones",
        of_job=job_rules.attempts,
    ),
    LedgerInvariant(
        name="commits_equal_effects",
        meaning="An execution is committed exactly if the journal has its commit; so is the parent of a follow-up.",
        remedy="finishes committed executions; quarantines jobs that contradict themselves",
        of_job=job_rules.commits_equal_effects,
    ),
    LedgerInvariant(
        name="journal_continuous",
        meaning="The journal has every version of a record once, in an unbroken path that ends at the record's state.",
        remedy="moves the record to the last state in its journal; restarts a history with gaps",
        of_record=record_rules.continuous,
        of_job=job_rules.cut,
        of_ledger=(ledger_rules.maintenance,),
    ),
    LedgerInvariant(
        name="journal_legal",
        meaning="Each journalled move is in its machine's table; its grant and maintenance exist; times only increase.",
        remedy="restarts the history; quarantines the job unless an execution committed",
        of_record=record_rules.legal,
    ),
    LedgerInvariant(
        name="counts_true",
        meaning="The counts equal the number of jobs.",
        remedy="counts the jobs again",
        of_ledger=(ledger_rules.counts,),
    ),
    LedgerInvariant(
        name="slots_true",
        meaning="A slot of a limit belongs to a job that runs, and a job that runs under a limit has its slot.",
        remedy="frees and gives out slots, as a worker does once a second",
        severity=Severity.WARNING,
        of_ledger=(ledger_rules.slots,),
    ),
    LedgerInvariant(
        name="no_orphans",
        meaning="Each job has its call; executions, checkpoints, journal rows and replacements have their record.",
        remedy="restores records from their journal; removes checkpoints and attempts without a job",
        of_ledger=(ledger_rules.orphans,),
    ),
    LedgerInvariant(
        name="governance_whole",
        meaning="Steps, values and evidence belong to runs and collections that exist; evidence has its stored digest.",
        remedy="nothing: restore the newest snapshot, or insert the missing rows by hand",
        of_ledger=(ledger_rules.governance,),
    ),
    LedgerInvariant(
        name="grants_authentic",
        meaning="Used grants, registered keys, and rewrites under maintenance have the approval that they need.",
        remedy="writes the consumer from the journal; revokes grants without a valid approval",
        of_ledger=(
            ledger_rules.approvals,
            _of_approvals("authentic"),
            _of_approvals("registered"),
            _of_approvals("rewrites"),
        ),
    ),
    LedgerInvariant(
        name="keys_unique",
        meaning="No client has used a key for two jobs.",
        remedy="keeps the key on the first job, and quarantines the others",
        of_ledger=(ledger_rules.keys_once,),
    ),
    LedgerInvariant(
        name="results_present",
        meaning="A succeeded job has its result or is slimmed; only finished jobs are slimmed, and completely.",
        remedy="slims the job: submitting its key again returns result_expired",
        of_job=job_rules.results,
    ),
    LedgerInvariant(
        name="erasures_hold",
        meaning="An erased job has no payload, key, result, error message, progress note, checkpoint or traceback.",
        remedy="nothing: erase the job again, with `holdfast erase`",
        of_ledger=(ledger_rules.erased,),
    ),
    LedgerInvariant(
        name="fields_valid",
        meaning="Columns agree with each other and the journal: times, versions, attempts, errors, digests, codes.",
        remedy="recomputes them; quarantines a job whose payload differs from what was submitted",
        of_record=record_rules.fields,
        of_job=job_rules.fields,
    ),
    LedgerInvariant(
        name="seals_chained",
        meaning="Each seal contains the hash of the one before it; the settings name the last; no row escapes sealing.",
        remedy="nothing: keep the ledger unchanged, and compare it with a saved head",
        of_ledger=(ledger_rules.seals,),
        at_open=ledger_rules.last_seal,
    ),
)

BY_NAME = {invariant.name: invariant for invariant in INVARIANTS}
