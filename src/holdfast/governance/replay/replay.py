"""Replay: the jobs of a selection are replayed in bounded batches, within a rate, under guards, and on record.

Invariants: the candidates of a run are fixed when it begins; a batch, its record and the moves of its jobs are one
transaction, so a run that was killed continues after its last batch and replays no job twice; a dry run writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.authority import Rejected, require_words
from holdfast.core.decide import REPLAY_REASONS, Refused
from holdfast.core.errors import (
    InputError,
    InvalidStateTransitionError,
    PlanStaleError,
    ReplayGuardError,
    SpecInvalidError,
)
from holdfast.core.selection import Limits, ReplayMode, Selection
from holdfast.engine.events import Bus
from holdfast.engine.world import World
from holdfast.governance.acts import actor_and_reason
from holdfast.governance.approval import environment_of
from holdfast.governance.grants import verdict_on
from holdfast.governance.replay.candidates import Candidates, find
from holdfast.governance.replay.events import ReplayBatch, ReplayRefused
from holdfast.governance.replay.guards import GuardVerdict, ReplayPolicy, batch_size, judged, policy_of, require
from holdfast.governance.replay.pace import seconds_in_all
from holdfast.governance.replay.record import ReplayReport, ReplayTerms, report_of, run_known, terms_of, with_touched
from holdfast.governance.replay.run import Hooks, ReplayRunner, needs_grant, replay_request, wanted
from holdfast.governance.runs.runner import Stop

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.transaction import Reading

BACKFILL = "backfill"


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a run would do, and whether it may. A run can be required to agree with a saved dry run."""

    selection: Selection
    selection_hash: str
    candidates_hash: str
    total: int
    batch_size: int
    batches: int
    seconds_at_least: float
    skipped: dict[str, int]
    by_queue: dict[str, int]
    by_error: dict[str, int]
    environment: str
    guards: list[GuardVerdict]
    grant_needed: bool
    grant_target: str
    authority: str  # NOT_NEEDED, GO, or why no grant permits it: a REJECT_AUTH_* code
    made_by: str
    made_at: datetime
    ledger_id: str

    @property
    def ok(self) -> bool:
        """Return whether every guard passed."""
        return all(guard.passed for guard in self.guards)


def select(store: Store[Any], selection: Selection, *, limits: Limits | None = None, examples: int = 10) -> Candidates:
    """Return the candidates of a selection; `limits` replace its own."""
    with store.reading() as reading:
        policy = policy_of(environment_of(reading))
        return find(reading, selection, policy, limits=limits, examples=examples)


def dry_run(store: Store[Any], selection: Selection, *, actor: str, policy: ReplayPolicy | None = None) -> DryRun:
    """Return what a run would do and the verdict of every guard; nothing is written."""
    require_words(operator=actor)
    _require_sound(selection)
    with store.reading() as reading:
        environment = environment_of(reading)
        policy = policy or policy_of(environment)
        candidates = _found(reading, selection, policy)
        terms = _terms(selection, candidates, policy, actor=actor)
        needed = wanted(selection, candidates.hash, environment=environment, executor=actor)
        authority = "NOT_NEEDED"
        if needs_grant(terms):
            verdict = verdict_on(reading, needed, None)
            authority = str(verdict.code) if isinstance(verdict, Rejected) else "GO"
        sizes = [min(terms.batch_size, terms.total - done) for done in range(0, terms.total, terms.batch_size)]
        return DryRun(
            selection=selection,
            selection_hash=terms.selection_hash,
            candidates_hash=candidates.hash,
            total=terms.total,
            batch_size=terms.batch_size,
            batches=terms.batches,
            seconds_at_least=seconds_in_all(sizes, selection.mode, policy),
            skipped=candidates.skipped,
            by_queue=candidates.by_queue,
            by_error=candidates.by_error,
            environment=environment,
            guards=judged(reading, selection, candidates, policy),
            grant_needed=needs_grant(terms),
            grant_target=needed.target,
            authority=authority,
            made_by=actor,
            made_at=reading.now(),
            ledger_id=reading.settings.read()["ledger_id"],
        )


def run(
    store: Store[Any],
    selection: Selection,
    *,
    actor: str,
    reason: str,
    replay_reason: str,
    grant_id: int | None = None,
    expected: DryRun | None = None,
    policy: ReplayPolicy | None = None,
    root: str | None = None,
    stop_after: int | None = None,
    world: World | None = None,
    sleep: Callable[[float], object] = time.sleep,
    on_batch: Callable[[ReplayBatch], object] | None = None,
    bus: Bus | None = None,
) -> ReplayReport:
    """Replay the jobs of a selection, and return the report when the run is done or has stopped.

    `root` is the id of the run, if the caller has made one. The replay reason of a backfill is always `backfill`. With
    `expected`, raise PlanStaleError if a dry run would give another result now. Raise ReplayGuardError if a guard
    refuses, AuthorityError if no grant permits the run.
    """
    actor, reason = actor_and_reason(actor, reason)
    _require_sound(selection, replay_reason)
    hooks = _hooks(world, sleep, on_batch, bus, stop_after)
    with store.reading() as reading:
        environment = environment_of(reading)
        policy = policy or policy_of(environment)
        candidates = _found(reading, selection, policy)
        if expected is not None:
            _require_expected(reading, selection, candidates, expected)
        guards = judged(reading, selection, candidates, policy)
        run_id = root or f"replay-{hooks.world.new_name()}"
        while root is None and reading.runs.get(run_id) is not None:  # a world of tests may repeat its names
            run_id = f"replay-{hooks.world.new_name()}"
    cause = BACKFILL if selection.mode is ReplayMode.BACKFILL else replay_reason
    terms = _terms(selection, candidates, policy, actor=actor, reason=reason, replay_reason=cause)
    request = replay_request(run_id, terms, hooks.world, actor=actor, reason=reason, grant_id=grant_id)
    try:
        require(guards)
        return ReplayRunner(store, request, hooks).begin(candidates)
    except ReplayGuardError as refused:
        _publish_refusal(refused, environment, store, bus)
        raise


def continue_run(
    store: Store[Any],
    run_id: str,
    *,
    actor: str,
    reason: str,
    grant_id: int | None = None,
    stop_after: int | None = None,
    world: World | None = None,
    sleep: Callable[[float], object] = time.sleep,
    on_batch: Callable[[ReplayBatch], object] | None = None,
    bus: Bus | None = None,
) -> ReplayReport:
    """Continue a run that was stopped or killed, after its last batch and on its first terms.

    The grant of the run is good for the actor who consumed it; another actor needs a grant of their own.
    """
    actor, reason = actor_and_reason(actor, reason)
    hooks = _hooks(world, sleep, on_batch, bus, stop_after)
    with store.reading() as reading:
        terms = terms_of(run_known(reading, run_id))
    request = replay_request(run_id, terms, hooks.world, actor=actor, reason=reason, grant_id=grant_id)
    try:
        return ReplayRunner(store, request, hooks).take_up()
    except ReplayGuardError as refused:
        _publish_refusal(refused, terms.policy.environment, store, bus)
        raise


def stop(store: Store[Any], run_id: str, *, actor: str, reason: str) -> ReplayReport:
    """Stop a run from another process: it ends before its next batch, and can be continued."""
    actor, reason = actor_and_reason(actor, reason)
    with store.transaction() as transaction:
        known = run_known(transaction, run_id)
        answer = transaction.runs.move(
            known, "abort", actor=actor, reason=reason, stop_state=Stop.OPERATOR, failure=reason
        )
        if isinstance(answer, Refused):
            raise InvalidStateTransitionError(
                f"replay {run_id} is {known.state}; only a running replay can be stopped",
                next_step=f"See `holdfast replay inspect {run_id}`.",
                context={"run_id": run_id},
            )
        return report_of(transaction, run_id)


def inspect(store: Store[Any], run_id: str, *, after: int = 0, limit: int = 1000) -> ReplayReport:
    """Return the report of a run, with the jobs of its batches above the number `after`."""
    with store.reading() as reading:
        return with_touched(reading, report_of(reading, run_id), after=after, limit=limit)


# ---------------------------------------------------------------------------------------------------------------------
# Requests


def _found(reading: Reading, selection: Selection, policy: ReplayPolicy) -> Candidates:
    """Return the candidates, at most one more than the policy allows."""
    return find(reading, selection, policy, ceiling=policy.max_selection_records)


def _terms(
    selection: Selection,
    candidates: Candidates,
    policy: ReplayPolicy,
    *,
    actor: str,
    reason: str = "",
    replay_reason: str = "",
) -> ReplayTerms:
    return ReplayTerms(
        selection=selection,
        selection_hash=selection.hash,
        candidates_hash=candidates.hash,
        total=candidates.total,
        batch_size=batch_size(selection.limits, policy),
        replay_reason=replay_reason,
        policy=policy,
        queues=tuple(candidates.by_queue),
        operations=tuple(candidates.by_operation),
        actor=actor,
        reason=reason,
        passed_over=candidates.skipped,
    )


def _hooks(
    world: World | None,
    sleep: Callable[[float], object],
    on_batch: Callable[[ReplayBatch], object] | None,
    bus: Bus | None,
    stop_after: int | None,
) -> Hooks:
    if stop_after is not None and stop_after < 1:
        raise InputError(f"stop_after is {stop_after}; it must be at least 1", context={"field": "stop_after"})
    return Hooks(world or World(), sleep, on_batch, bus, stop_after)


def _require_sound(selection: Selection, replay_reason: str | None = None) -> None:
    if replay_reason is not None and replay_reason not in REPLAY_REASONS:
        known = ", ".join(sorted(REPLAY_REASONS))
        raise InputError(f"unknown replay reason {replay_reason!r}; known: {known}", context={"field": "replay_reason"})
    if selection.mode is ReplayMode.REPAIR_AND_REPLACE and not selection.options.allow_repair_and_replace:
        raise SpecInvalidError(
            "mode repair-and-replace requires spec.options.allow_repair_and_replace: true",
            next_step="Set spec.options.allow_repair_and_replace to true, and request a grant.",
            context={"path": "spec.options.allow_repair_and_replace"},
        )
    limits = selection.limits
    for name, bound in (("max_records", limits.max_records), ("batch_size", limits.batch_size),
                        ("max_batches", limits.max_batches)):  # fmt: skip
        if bound is not None and bound < 1:
            raise SpecInvalidError(f"{name} is {bound}; it must be at least 1", context={"path": f"spec.limits.{name}"})


def _require_expected(reading: Reading, selection: Selection, candidates: Candidates, expected: DryRun) -> None:
    """Raise PlanStaleError unless ledger, selection and candidates are those of the dry run."""
    for what, was, now in (
        ("ledger", expected.ledger_id, reading.settings.read()["ledger_id"]),
        ("selection", expected.selection_hash, selection.hash),
        ("set of candidates", expected.candidates_hash, candidates.hash),
    ):
        if was != now:
            raise PlanStaleError(
                f"the {what} has changed since the dry run",
                next_step="Make a new dry run and check it.",
                context={
                    "what": what,
                    "expected": was,
                    "found": now,
                    "total_expected": expected.total,
                    "total_found": candidates.total,
                },
            )


def _publish_refusal(refused: ReplayGuardError, environment: str, store: Store[Any], bus: Bus | None) -> None:
    if bus is not None:
        bus.publish([ReplayRefused(guard_type=refused.code, environment=environment, at=store.now())])
