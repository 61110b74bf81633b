"""The walker: applies the rules of a catalogue to a ledger, page by page, and collects the violations.

Invariants: nothing is written; each page of records, and each rule about the whole ledger or a page of it, is one read
transaction and one step, and memory is that of one page; a rule that fails on a record is itself reported as a
violation; a check stops at its limit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from holdfast.audit.check.findings import CheckReport, Finding, Invariant, Violation
from holdfast.core.errors import InputError
from holdfast.core.steps import Steps
from holdfast.store.transaction import Reading

LIMIT = 1000

SomeInvariant = TypeVar("SomeInvariant", bound=Invariant)
Key = TypeVar("Key")

View = Callable[[], AbstractContextManager[Reading]]
"""Opens a read transaction."""
WholeLedgerRule = Callable[[Reading, int], Iterator[Finding]]
"""Yields what is wrong with the whole ledger; the number is the greatest number of findings to yield."""
Progress = Callable[[str, int], None]
"""Called after each page with the kind of record, and how many of them have been checked."""

# The errors that a rule can raise on data that Holdfast did not write; errors of the database are none of these.
_RULE_ERRORS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


def chosen(catalogue: Iterable[SomeInvariant], only: Collection[str] | None) -> list[SomeInvariant]:
    """Return the invariants with the names in `only`, or all; raise InputError if a name is unknown."""
    by_name = {invariant.name: invariant for invariant in catalogue}
    unknown = sorted(set(only or ()) - by_name.keys())
    if unknown:
        raise InputError(
            f"unknown invariant {unknown[0]!r}",
            next_step=f"Use one of: {', '.join(by_name)}.",
            context={"unknown": unknown},
        )
    return [invariant for name, invariant in by_name.items() if only is None or name in only]


class Walker:
    """One check: opens the read transactions, applies the rules, and keeps the violations and the counts."""

    def __init__(
        self,
        view: View,
        kinds: Iterable[str],
        *,
        limit: int = LIMIT,
        batch: int,
        on_progress: Progress | None = None,
    ) -> None:
        if limit < 1 or batch < 1:
            raise InputError("limit and batch of a check must be at least 1")
        self.violations: list[Violation] = []
        self.checked = dict.fromkeys(kinds, 0)
        self.batch = batch
        self.view = view
        self._limit, self._on_progress = limit, on_progress

    @property
    def full(self) -> bool:
        """Whether the check has found as many violations as its limit allows."""
        return len(self.violations) >= self._limit

    @property
    def room(self) -> int:
        """How many more violations the limit allows, at least 1."""
        return max(1, self._limit - len(self.violations))

    def report(self) -> CheckReport:
        return CheckReport.of(self.violations[: self._limit], self.checked, more=self.full)

    def check_whole(self, invariant: Invariant, rule: WholeLedgerRule) -> Steps[None]:
        """Apply a rule about the whole ledger in one step, unless the report is full."""
        if not self.full:
            with self.view() as reading:
                self.apply(invariant, rule, reading, self.room)
            yield None

    def walk(
        self, step: Callable[[Reading, Key], tuple[int, Key | None]], start: Key, *, kind: str | None = None
    ) -> Steps[None]:
        """Call `step` page after page, each in a step of its own, until it returns no next key or the report is full.

        `step` gets the key after which its page begins, and returns the number of records in the page, which are
        counted under `kind`, and the key for the next page.
        """
        key: Key | None = start
        while key is not None and not self.full:
            with self.view() as reading:
                n, key = step(reading, key)
            if kind is not None and n:
                self.checked[kind] += n
                if self._on_progress is not None:
                    self._on_progress(kind, self.checked[kind])
            yield None

    def apply(
        self,
        invariant: Invariant,
        rule: Callable[..., Iterator[Finding | None]],
        *arguments: Any,
        subject: str = "LEDGER",
    ) -> bool:
        """Apply one rule, and keep what it finds; if the rule fails, that is a violation by `subject`.

        Return whether the rule has ended one of its pages by None, and has more.
        """
        try:
            for finding in rule(*arguments):
                if finding is None:
                    return True
                self.violations.append(invariant.violation(finding))
        except _RULE_ERRORS as error:
            detail = f"Invariant check failed: {type(error).__name__}"
            self.violations.append(invariant.violation(Finding(subject, detail, evidence={"kind": "failed"})))
        return False

    def apply_all(
        self, rules: Sequence[tuple[Invariant, Callable[..., Iterator[Finding]]]], *arguments: Any, subject: str
    ) -> None:
        for invariant, rule in rules:
            self.apply(invariant, rule, *arguments, subject=subject)
