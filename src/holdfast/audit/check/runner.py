"""Check: every invariant of the catalogue, tested on a ledger.

Invariants: nothing is written; jobs, with their executions, are walked page by page, and then the records of the other
machines; a database that cannot be read is a violation of `database`, not an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain
from typing import Any

from holdfast.audit.check.catalogue import BY_NAME, INVARIANTS, LedgerInvariant, LedgerRule
from holdfast.audit.check.context import RuleContext
from holdfast.audit.check.findings import CheckReport, Finding, Violation
from holdfast.audit.check.job_rules import parent_of
from holdfast.audit.check.walker import LIMIT, Progress, Walker, chosen
from holdfast.core.errors import HoldfastError, StoreDamagedError
from holdfast.core.machine import Machine
from holdfast.core.steps import Steps, run_steps
from holdfast.store.migrations import require_ledger
from holdfast.store.store import Store
from holdfast.store.transaction import Reading
from holdfast.store.verbs.evidence import OTHERS, Evidence
from holdfast.store.verbs.histories import Case, History

BATCH = 1000
KINDS = ("jobs", "executions", "journal")
UNLIMITED = 1 << 62


def check(
    store: Store[Any],
    *,
    only: Collection[str] | None = None,
    cheap: bool = False,
    limit: int = LIMIT,
    batch: int = BATCH,
    on_progress: Progress | None = None,
) -> CheckReport:
    """Check a ledger and return the report; the store need not be verified, so that missing triggers can be found."""
    return run_steps(check_steps(store, only=only, cheap=cheap, limit=limit, batch=batch, on_progress=on_progress))


def check_steps(
    store: Store[Any],
    *,
    only: Collection[str] | None = None,
    cheap: bool = False,
    limit: int = LIMIT,
    batch: int = BATCH,
    on_progress: Progress | None = None,
    on_found: Callable[[Sequence[Violation]], None] | None = None,
) -> Steps[CheckReport]:
    """Check a ledger in steps of one page, or of one rule about the whole ledger, and return the report.

    `on_found` is called after each step that found violations, with those that the report will have.
    """
    walker = Walker(store.reading, KINDS, limit=limit, batch=batch, on_progress=on_progress)
    invariants = [one for one in chosen(INVARIANTS, only) if one.cheap or not cheap]
    with store.reading():  # a database that cannot be opened is an error, not a violation
        pass
    reported = 0
    for left in chain(LedgerCheck(walker, invariants).run(cheap=cheap), (0,)):
        found, reported = walker.violations[reported:limit], len(walker.violations)
        if found and on_found is not None:
            on_found(found)
        yield left
    return walker.report()


def check_in(reading: Reading, *, limit: int = LIMIT) -> CheckReport:
    """Check a ledger inside the caller's read transaction or transaction, and return the report."""
    walker = Walker(lambda: nullcontext(reading), KINDS, limit=limit, batch=BATCH)
    run_steps(LedgerCheck(walker, INVARIANTS).run(cheap=False))
    return walker.report()


def check_jobs(reading: Reading, job_ids: Iterable[int]) -> list[Violation]:
    """Return the violations by these jobs and their executions of the rules that look at one job alone."""
    walker = Walker(lambda: nullcontext(reading), KINDS, limit=UNLIMITED, batch=BATCH)
    ledger_check = LedgerCheck(walker, INVARIANTS)
    context = ledger_check.context(reading)
    ledger_check.judge_jobs(context, context.evidence.cases_of(job_ids))
    return walker.violations


class LedgerCheck:
    """Applies invariants of the ledger through a walker."""

    def __init__(self, walker: Walker, invariants: Sequence[LedgerInvariant]) -> None:
        self._walker, self._invariants = walker, invariants
        self._of_record = [(one, one.of_record) for one in invariants if one.of_record]
        # On a record that cannot be read, the other rules would fail.
        self._of_unreadable = [pair for pair in self._of_record if pair[0].name in ("fields_valid", "one_state")]
        self._of_job = [(one, one.of_job) for one in invariants if one.of_job]
        self._rows_walked = 0

    def run(self, *, cheap: bool = False) -> Steps[None]:
        """Test every invariant, or only the cheap form of each."""
        try:
            with self._walker.view() as reading:
                require_ledger(reading.store, reading.connection)
            for invariant in self._invariants:
                for rule in (invariant.at_open,) if cheap else invariant.of_ledger:
                    if rule is not None:
                        yield from self._survey(invariant, rule)
            if not cheap and (self._of_record or self._of_job):
                yield from self._walker.walk(self._check_jobs, 0, kind="jobs")
                for machine in OTHERS:
                    yield from self._walker.walk(partial(self._check_records, machine), 0)
        except StoreDamagedError as error:
            # On damaged pages any other finding may be wrong, so this one alone is reported.
            if all(invariant.name != "database" for invariant in self._invariants):
                raise
            finding = Finding("LEDGER", error.message, evidence={"kind": "unreadable", **_plain(error)})
            self._walker.violations.append(BY_NAME["database"].violation(finding))

    def context(self, reading: Reading) -> RuleContext:
        return RuleContext(Evidence(reading), limit=self._walker.room, batch=self._walker.batch)

    def judge_jobs(self, context: RuleContext, cases: Sequence[Case]) -> None:
        """Apply every rule that looks at one job, or at one record, to jobs and their executions."""
        parents = {parent for parent in map(parent_of, cases) if parent is not None}
        context.committed = frozenset(context.evidence.committed(parents))
        context.look_up(history for case in cases for history in _histories(case))
        for case in cases:
            histories = _histories(case)
            for history in histories:
                self._judge_record(context, history)
            if not any(history.unreadable for history in histories):
                self._walker.apply_all(self._of_job, case, context, subject=_subject(case.history))
            if self._walker.full:
                return

    def _survey(self, invariant: LedgerInvariant, rule: LedgerRule) -> Steps[None]:
        """Apply a rule about the whole ledger; each of its pages is read in a transaction of its own."""
        context: RuleContext | None = None
        findings: Iterator[Finding | None] = iter(())
        more = True
        while more and not self._walker.full:
            with self._walker.view() as reading:
                if context is None:
                    context = self.context(reading)
                    findings = rule(context)
                context.evidence = Evidence(reading)
                more = self._walker.apply(invariant, lambda found=findings: found)
                self._count(context)
            yield None

    def _check_jobs(self, reading: Reading, after: int) -> tuple[int, int | None]:
        context = self.context(reading)
        cases = context.evidence.cases(after, context.batch)
        self.judge_jobs(context, cases)
        self._count(context)
        return len(cases), cases[-1].job.job_id if cases else None

    def _check_records(self, machine: Machine, reading: Reading, after: int) -> tuple[int, int | None]:
        context = self.context(reading)
        histories = context.evidence.others(machine, after, context.batch)
        context.look_up(histories)
        for history in histories:
            self._judge_record(context, history)
        self._count(context)
        return len(histories), histories[-1].subject if histories else None

    def _judge_record(self, context: RuleContext, history: History) -> None:
        rules = self._of_unreadable if history.unreadable else self._of_record
        self._walker.apply_all(rules, history, context, subject=_subject(history))

    def _count(self, context: RuleContext) -> None:
        checked, evidence = self._walker.checked, context.evidence
        checked["executions"] += evidence.executions_seen
        self._rows_walked += evidence.rows_walked
        # The walk reads the rows of records; the search for orphans also reads rows that belong to no record.
        checked["journal"] = max(self._rows_walked, checked["journal"], evidence.rows_surveyed)


def _histories(case: Case) -> list[History]:
    return [case.history, *(tried.history for tried in case.tried)]


def _subject(history: History) -> str:
    return f"{history.machine.name} {history.subject}"


def _plain(error: HoldfastError) -> dict[str, object]:
    return {name: value for name, value in error.context.items() if isinstance(value, str | int)}
