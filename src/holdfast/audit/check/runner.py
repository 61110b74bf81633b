"""Check: every invariant of the catalogue, asked of a ledger.

Invariants: nothing is written; each page of jobs, and each question about the whole, is one short read transaction of
its own, and memory is that of one page; a rule that breaks down over a record is itself reported as a violation, and
a database that cannot be read is a violation of `database`, not an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import msgspec

from holdfast.audit.check.catalogue import BY_NAME, INVARIANTS, Invariant, Severity, Violation
from holdfast.audit.check.job_rules import parent_of
from holdfast.audit.check.page import Fault, Page
from holdfast.core.errors import HoldfastError, InputError, StoreDamagedError
from holdfast.core.machine import Machine
from holdfast.store.evidence import OTHERS, Case, Evidence, History
from holdfast.store.reading import Reading
from holdfast.store.store import Store

LIMIT = 1000
BATCH = 1000

Progress = Callable[[str, int], None]
"""Called with what is being looked at, and how many have been."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found."""

    ok: bool  # nothing of severity error, and nothing left unasked
    violations: tuple[Violation, ...]
    checked: dict[str, int]  # how many jobs, executions and journal rows were looked at
    more: bool = False  # it stopped at its limit: there may be more

    @classmethod
    def of(cls, found: Sequence[Violation], checked: Mapping[str, int], *, more: bool) -> Self:
        """Return the report of what was found; warnings alone leave a ledger sound."""
        ok = not more and all(violation.severity is not Severity.ERROR for violation in found)
        return cls(ok=ok, violations=tuple(found), checked=dict(checked), more=more)


def check(
    store: Store[Any],
    *,
    only: Collection[str] | None = None,
    cheap: bool = False,
    limit: int = LIMIT,
    batch: int = BATCH,
    on_progress: Progress | None = None,
) -> Report:
    """Check a ledger, page by page; the store need not be verified, so that one whose triggers are gone can be."""
    run = _Run(_chosen(only, cheap=cheap), cheap=cheap, limit=limit, batch=batch, on_progress=on_progress)
    with store.reading():  # one that cannot even be opened is an error
        pass
    run.ask(store.reading)
    return run.report()


def check_in(
    reading: Reading,
    *,
    only: Collection[str] | None = None,
    cheap: bool = False,
    limit: int = LIMIT,
    batch: int = BATCH,
) -> Report:
    """Check a ledger inside the caller's own view of it, or its own transaction."""

    @contextmanager
    def same() -> Iterator[Reading]:
        yield reading

    run = _Run(_chosen(only, cheap=cheap), cheap=cheap, limit=limit, batch=batch, on_progress=None)
    run.ask(same)
    return run.report()


def check_jobs(reading: Reading, job_ids: Iterable[int]) -> list[Violation]:
    """Return how the given jobs and their executions break the rules that a job is judged by alone."""
    run = _Run(INVARIANTS, cheap=False, limit=1 << 30, batch=BATCH, on_progress=None)
    page = run.page(reading)
    run.judge(page, page.evidence.cases_of(job_ids))
    return run.violations


def _chosen(only: Collection[str] | None, *, cheap: bool) -> Sequence[Invariant]:
    unknown = sorted(set(only or ()) - BY_NAME.keys())
    if unknown:
        raise InputError(
            f"there is no invariant {unknown[0]!r}",
            next_step=f"Choose among {', '.join(BY_NAME)}.",
            context={"unknown": unknown},
        )
    return [i for i in INVARIANTS if (only is None or i.name in only) and (i.cheap or not cheap)]


class _Run:
    """One check: the invariants that are asked, and what was found so far."""

    def __init__(
        self,
        invariants: Sequence[Invariant],
        *,
        cheap: bool,
        limit: int,
        batch: int,
        on_progress: Progress | None,
    ) -> None:
        if limit < 1 or batch < 1:
            raise InputError("a check looks at one job at a time or more, and reports one violation or more")
        self.violations: list[Violation] = []
        self._invariants = invariants
        self._of_record = [(one, one.of_record) for one in invariants if one.of_record]
        self._of_job = [(one, one.of_job) for one in invariants if one.of_job]
        self._cheap = cheap
        self._limit = limit
        self._batch = batch
        self._on_progress = on_progress or (lambda _what, _n: None)
        self._checked = {"jobs": 0, "executions": 0, "journal": 0}
        self._rows_walked = 0

    def report(self) -> Report:
        """Return what was found."""
        return Report.of(self.violations[: self._limit], self._checked, more=self._full)

    def page(self, reading: Reading) -> Page:
        """Return a page of evidence from a view of the ledger."""
        return Page(Evidence(reading), limit=max(1, self._limit - len(self.violations)), batch=self._batch)

    def ask(self, view: Callable[[], Any]) -> None:
        """Ask everything, each page and question in a view of its own."""
        try:
            with view() as reading:
                Evidence(reading).require_ledger()
            for invariant in self._invariants:
                rules = (invariant.at_open,) if self._cheap else invariant.of_ledger
                for rule in rules:
                    if rule and not self._full:
                        with view() as reading:
                            page = self.page(reading)
                            self._take(invariant, rule, page)
                            self._seen(page)
            if not self._cheap and (self._of_record or self._of_job):
                self._walk(view)
        except StoreDamagedError as error:
            # What else might be said would be said from pages that are not what was written.
            if any(invariant.name == "database" for invariant in self._invariants):
                fault = Fault("LEDGER", error.message, evidence={"kind": "unreadable", **_plain(error)})
                self.violations.append(BY_NAME["database"].violation(fault))
            else:
                raise

    def _walk(self, view: Callable[[], Any]) -> None:
        after = 0
        while not self._full:
            with view() as reading:
                page = self.page(reading)
                cases = page.evidence.cases(after, self._batch)
                self.judge(page, cases)
                self._seen(page, jobs=len(cases))
            if not cases:
                break
            after = cases[-1].job.job_id
            self._on_progress("jobs", self._checked["jobs"])
        for machine in OTHERS:
            self._walk_others(view, machine)

    def _walk_others(self, view: Callable[[], Any], machine: Machine) -> None:
        after = 0
        while not self._full:
            with view() as reading:
                page = self.page(reading)
                histories = page.evidence.others(machine, after, self._batch)
                page.look_up(histories)
                for history in histories:
                    self._judge_record(page, history)
                self._seen(page)
            if not histories:
                break
            after = histories[-1].subject

    def judge(self, page: Page, cases: Sequence[Case]) -> None:
        """Judge jobs and their executions by every rule that looks at one job."""
        parents = {parent for parent in map(parent_of, cases) if parent is not None}
        page.committed = frozenset(page.evidence.committed(parents))
        page.look_up(history for case in cases for history in (case.history, *(one.history for one in case.tried)))
        for case in cases:
            histories = [case.history, *(tried.history for tried in case.tried)]
            for history in histories:
                self._judge_record(page, history)
            if not any(history.unreadable for history in histories):
                for invariant, rule in self._of_job:
                    self._take(invariant, rule, case, page)
            if self._full:
                return

    def _judge_record(self, page: Page, history: History) -> None:
        for invariant, rule in self._of_record:
            # Of a record that cannot be read, only that can be said.
            if not history.unreadable or invariant.name in ("fields_valid", "one_state"):
                self._take(invariant, rule, history, page)

    def _take(self, invariant: Invariant, rule: Callable[..., Iterator[Fault]], *given: Any) -> None:
        try:
            for fault in rule(*given):
                self.violations.append(invariant.violation(fault))
        except _BREAKDOWNS as error:
            detail = f"Invariant check failed: {type(error).__name__}"
            fault = Fault(_subject(given[0]), detail, evidence={"kind": "failed"})
            self.violations.append(invariant.violation(fault))

    def _seen(self, page: Page, *, jobs: int = 0) -> None:
        self._checked["jobs"] += jobs
        self._checked["executions"] += page.evidence.executions_seen
        self._rows_walked += page.evidence.rows_walked
        # The walk reads the rows of records, the search for orphans those of nothing too.
        self._checked["journal"] = max(self._rows_walked, self._checked["journal"], page.evidence.rows_surveyed)

    @property
    def _full(self) -> bool:
        return len(self.violations) >= self._limit


# What a rule can stumble over in data that nobody wrote; errors of the database are none of these.
_BREAKDOWNS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


def _subject(given: object) -> str:
    history = given.history if isinstance(given, Case) else given
    return f"{history.machine.name} {history.subject}" if isinstance(history, History) else "LEDGER"


def _plain(error: HoldfastError) -> dict[str, object]:
    return {name: value for name, value in error.context.items() if isinstance(value, str | int)}
