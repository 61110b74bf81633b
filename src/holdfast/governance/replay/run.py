"""One attempt at a run of a replay: it begins a run or continues one, batch by batch, until the end or a stop.

Invariants: one process at a time runs a replay, by its lease; the grant is consumed in the transaction of the first
batch; a batch, its record and, if it is the last, the end of the run are one transaction; between batches the runner
waits for its rate, and stops if a switch is on, if the queues do not recover, or if the same errors come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.authority import Act as GrantedAct
from holdfast.core.authority import Wanted
from holdfast.core.environments import DEV, PROD
from holdfast.core.errors import InputError
from holdfast.core.governed import ProcedureRun
from holdfast.core.machines import ProcedureState
from holdfast.core.records import time_text
from holdfast.core.selection import ReplayMode, Selection
from holdfast.engine.events import Bus, Transition
from holdfast.engine.world import World
from holdfast.governance.acts import stored_text
from holdfast.governance.replay import pace
from holdfast.governance.replay.batch import Batch
from holdfast.governance.replay.candidates import Candidates
from holdfast.governance.replay.events import ReplayBatch
from holdfast.governance.replay.guards import PROCEDURE, is_global, judged, judged_again, require
from holdfast.governance.replay.record import (
    BEGIN,
    CANDIDATES,
    BatchOutcome,
    Progress,
    ReplayReport,
    ReplayTerms,
    candidates_of,
    candidates_text,
    progress_of,
    report_of,
    run_known,
)
from holdfast.governance.runs.batches import BatchRunner
from holdfast.governance.runs.request import RunRequest
from holdfast.governance.runs.runner import Act, RunHalted, Stop

if TYPE_CHECKING:
    from holdfast.store import Store, Transaction


class Hooks(NamedTuple):
    """What a runner gets from its caller: the world, how to sleep, who listens, and when to stop."""

    world: World
    sleep: Callable[[float], object]
    on_batch: Callable[[ReplayBatch], object] | None
    bus: Bus | None
    stop_after: int | None  # batches of this attempt


class ReplayRequest(RunRequest, frozen=True, kw_only=True):
    """A requested run of a replay."""

    terms: ReplayTerms

    @property
    def resume_command(self) -> str:
        """Return the command that continues the run."""
        return f"holdfast replay run --continue {self.root}"

    def wanted(self, environment: str) -> Wanted | None:
        """Return what the grant of the run must permit, or None if it needs none and none was named."""
        if not needs_grant(self.terms) and self.grant_id is None:
            return None
        return self.permission(environment)

    def permission(self, environment: str) -> Wanted:
        """Return what a grant for this run must permit."""
        terms = self.terms
        return wanted(terms.selection, terms.candidates_hash, environment=environment, executor=self.actor)


def replay_request(
    run_id: str, terms: ReplayTerms, world: World, *, actor: str, reason: str, grant_id: int | None
) -> ReplayRequest:
    """Return the request for one attempt at a replay."""
    return ReplayRequest(
        root=run_id,
        procedure=PROCEDURE,
        params_text=terms.text,
        plan=terms.selection_hash,
        target=f"{PROCEDURE}:{run_id}",
        lease_s=terms.policy.lease_s,
        holder=f"{actor}/{world.new_name()}",
        actor=actor,
        reason=reason,
        grant_id=grant_id,
        terms=terms,
    )


def wanted(selection: Selection, candidates_hash: str, *, environment: str, executor: str) -> Wanted:
    """Return what a grant for exactly this replay must permit."""
    return Wanted(
        act=GrantedAct.REPLACE if selection.mode is ReplayMode.REPAIR_AND_REPLACE else GrantedAct.REPLAY,
        target=f"{PROCEDURE}:{candidates_hash}",
        environment=environment,
        executor=executor,
        plan=selection.hash,
    )


def needs_grant(terms: ReplayTerms) -> bool:
    """Return whether a run needs a grant: in prod always, elsewhere if it is large, replaces jobs, or is global."""
    if terms.total == 0:
        return False
    environment = terms.policy.environment
    replaces = terms.selection.mode is ReplayMode.REPAIR_AND_REPLACE
    broad = is_global(terms.selection) and environment != DEV
    return environment == PROD or replaces or broad or terms.total > terms.policy.grant_above


class _DurableBatch(NamedTuple):
    """What is published of a batch once it is durable."""

    batch: ReplayBatch
    transitions: list[Transition]


class ReplayRunner(BatchRunner):
    """One attempt to advance one replay."""

    def __init__(self, store: Store[Any], request: ReplayRequest, hooks: Hooks) -> None:
        terms = request.terms
        super().__init__(
            store, request, hooks.world, batches=terms.batches, scope=terms.scope, stop_after=hooks.stop_after
        )
        self._request, self._hooks, self._terms = request, hooks, terms
        self._policy, self._mode = terms.policy, terms.selection.mode
        self._progress = Progress()
        self._ids: list[int] = []
        self._versions: dict[int, int] = {}
        self._waited: Counter[str] = Counter()
        self._last: _DurableBatch | None = None

    # -- beginning ----------------------------------------------------------------------------------------------------

    def begin(self, candidates: Candidates) -> ReplayReport:
        """Record the run and its candidates, consume its grant and make the first batch, in one transaction; go on."""
        self._set_candidates(candidates.job_ids, candidates.versions)
        request, first = self._request, Act("batch 1", 1)
        self._world.reach(f"before {first.point}")
        with self._store.transaction() as transaction:
            self._runner.acquire(transaction)
            transaction.replay.lock()
            require(judged(transaction, self._terms.selection, candidates, self._policy))
            permission = request.wanted(self._policy.environment)
            grant_id = None if permission is None else self._runner.consume(transaction, permission)
            run = self._runner.begin(transaction, grant_id)
            transaction.runs.add_evidence(
                CANDIDATES,
                f"{PROCEDURE}:{candidates.hash}",
                candidates_text(candidates.job_ids, candidates.versions),
                actor=request.actor,
                run_id=run.run_id,
                grant_id=grant_id,
            )
            begun = {"candidates_hash": candidates.hash, "total": candidates.total}
            self._runner.record(transaction, run, 0, BEGIN, stored_text(begun))
            run = self.take(transaction, run, first) if self._terms.total else self._runner.finish(transaction, run)
            self._world.reach(f"inside {first.point}")
        return self._ended(run, first if self._terms.total else None)

    def take_up(self) -> ReplayReport:
        """Continue a run after its last recorded batch."""
        with self._store.transaction() as transaction:
            if run_known(transaction, self._root).state is ProcedureState.DONE:
                return report_of(transaction, self._root)
            # Always the lease first: its holder then never waits for a process that waits for the lease.
            self._runner.acquire(transaction)
            transaction.replay.lock()
            run = run_known(transaction, self._root)
            if run.state is ProcedureState.DONE:  # its runner has ended it in the meantime, and released the lease
                self._runner.lease.release(transaction)
                return report_of(transaction, self._root)
            require(judged_again(transaction, self._terms.scope, self._policy, own=self._root))
            permission = self._request.permission(self._policy.environment)
            run = self._runner.resume(transaction, run, permission, governed=False)
            self._set_candidates(*candidates_of(transaction, run, self._terms))
            self._progress = progress_of(transaction, run)
        # The operator has seen what came back before: only new returns stop the run again.
        self._progress.recent.clear()
        return self._ended(run)

    def _set_candidates(self, job_ids: list[int], versions: list[int]) -> None:
        self._ids = job_ids
        self._versions = dict(zip(job_ids, versions, strict=True))

    # -- advancing ----------------------------------------------------------------------------------------------------

    def _ended(self, run: ProcedureRun, durable: Act | None = None) -> ReplayReport:
        self.run_to_end(run, durable)
        with self._store.reading() as reading:
            return report_of(reading, self._root)

    def wait_for_turn(self) -> None:
        """Return when the rate, the queues and the jobs of the last batch allow the next one, or raise RunHalted."""
        super().wait_for_turn()
        last_at = self._progress.last_at
        if last_at is not None:
            wait_s = pace.seconds_after(self._progress.last_records, self._mode, self._policy)
            self._wait_until(last_at + timedelta(seconds=wait_s), pace.RATE)
            self._await_outcome()
        for _ in range(self._policy.slow_downs_max):
            strain = self._look_at_queues()
            if strain is None:
                return
            self._wait_until(self._store.now() + timedelta(seconds=self._policy.slow_down_s), strain.measure)
        strain = self._look_at_queues()
        if strain is not None:
            raise RunHalted(Stop.SLO_RISK, str(strain))

    def _await_outcome(self) -> None:
        """Return when the jobs of the last batch have ended; raise RunHalted if that takes too long."""
        until = self._store.now() + timedelta(seconds=self._policy.await_outcome_s)
        replayed = {job_id: self._versions[job_id] for o in self._progress.recent for job_id in o.replayed}
        while self._policy.await_outcome_s > 0:
            with self._store.reading() as reading:
                ended = pace.returned(reading, replayed, frozenset()).ended
            if ended >= len(replayed):
                return
            if self._store.now() >= until:
                message = (
                    f"{len(replayed) - ended} replayed jobs have not ended after {self._policy.await_outcome_s:g} s"
                )
                raise RunHalted(Stop.SLO_RISK, f"{message}; are workers running?")
            self._wait_until(self._store.now() + pace.OUTCOME_POLL, pace.OUTCOME)

    def _look_at_queues(self) -> pace.Strain | None:
        """Return the measure of the queues above its threshold; raise RunHalted at a switch or if errors come back."""
        with self._store.reading() as reading:
            self.refuse_switched_off(reading)
            replayed = {job_id: self._versions[job_id] for o in self._progress.recent for job_id in o.replayed}
            errors = frozenset(code for outcome in self._progress.recent for code in outcome.errors)
            back = pace.returned(reading, replayed, errors)
            if back.too_many(self._policy):
                message = f"{back.same_error} of the last {back.ended} replayed jobs failed with the same error again"
                raise RunHalted(Stop.SAME_ERROR, message)
            return pace.strain(reading, self._terms.queues, self._policy)

    def _wait_until(self, moment: datetime, measure: str) -> None:
        """Sleep until a moment, in parts that are short enough to keep the lease and to notice a stop."""
        now = self._store.now()
        if now < moment:
            self._waited[measure] += 1
        while now < moment:
            self._hooks.sleep(min((moment - now).total_seconds(), self._policy.lease_s / 3))
            before, now = now, self._store.now()
            if now == before:
                raise InputError(
                    "the clock of the ledger does not advance",
                    next_step="Give a sleep that advances it.",
                    context={"now": time_text(now)},
                )
            if now < moment:
                with self._store.transaction() as transaction:
                    self.hold(transaction)

    def make(self, transaction: Transaction, number: int) -> BatchOutcome:
        """Replay the jobs of a batch."""
        if self._mode is ReplayMode.REPAIR_AND_REPLACE:
            transaction.replay.lock()  # or two runs could replace one job at the same moment
        size, request = self._terms.batch_size, self._request
        batch = Batch(transaction, self._terms, self._root, request.actor, request.reason)
        outcome = batch.make(self._ids[(number - 1) * size : number * size], self._versions, dict(self._waited))
        at = transaction.now()
        self._progress.add(outcome, at)
        self._waited.clear()
        self._last = _DurableBatch(self._event(number, outcome, at), batch.transitions)
        return outcome

    def _event(self, number: int, outcome: BatchOutcome, at: datetime) -> ReplayBatch:
        skipped = Counter({reason: len(job_ids) for reason, job_ids in outcome.skipped.items()})
        if number == 1:
            skipped.update(self._terms.passed_over)
        return ReplayBatch(
            run_id=self._root,
            number=number,
            batches=self._terms.batches,
            mode=self._mode,
            replay_reason=self._terms.replay_reason,
            environment=self._policy.environment,
            replayed=outcome.queues,
            skipped=dict(skipped),
            throttled=outcome.throttled,
            at=at,
        )

    def committed(self, act: Act) -> None:
        """Publish a batch that is durable."""
        super().committed(act)
        if self._last is None:
            return
        if self._hooks.bus is not None:
            self._hooks.bus.publish(self._last.transitions)
            self._hooks.bus.publish([self._last.batch])
        if self._hooks.on_batch is not None:
            self._hooks.on_batch(self._last.batch)
