"""One runner of a replay: it begins a run or takes one up, and goes from batch to batch until the end or a stop.

Invariants: one runner at a time, by a lease; the grant is consumed in the transaction of the first batch; a batch, its
record and, if it is the last, the end of the run are one transaction; between batches the runner waits for its rate,
and stops at a switch, at queues that do not recover, and at errors that come back.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.authority import Act, Wanted
from holdfast.core.decide import Refused
from holdfast.core.environments import DEV, PROD
from holdfast.core.errors import InputError, RuntimeLeaseError, StateTransitionRaceError, StoreError, invariant
from holdfast.core.machines import ProcedureState
from holdfast.core.records import ProcedureRun
from holdfast.core.selection import ReplayMode, Selection
from holdfast.engine.events import Bus, Transition
from holdfast.engine.world import World
from holdfast.governance.grants import authorise
from holdfast.governance.replay import pace
from holdfast.governance.replay.batch import Batch
from holdfast.governance.replay.candidates import Candidates
from holdfast.governance.replay.events import ReplayBatch
from holdfast.governance.replay.guards import PROCEDURE, is_global, judged, judged_again, require, switched_off
from holdfast.governance.replay.record import (
    BEGIN,
    CANDIDATES,
    BatchOutcome,
    Progress,
    ReplayReport,
    ReplayTerms,
    Stop,
    as_kept,
    candidates_of,
    candidates_text,
    progress_of,
    report_of,
    run_known,
)

if TYPE_CHECKING:
    from holdfast.store import Store, Transaction
    from holdfast.store.transaction import Reading


class Actor(NamedTuple):
    """The person or program that runs a replay: name, reason and grant."""

    actor: str
    reason: str
    grant_id: int | None


class Hooks(NamedTuple):
    """What a runner may not decide for itself."""

    world: World
    sleep: Callable[[float], object]
    on_batch: Callable[[ReplayBatch], object] | None
    bus: Bus | None
    stop_after: int | None


class _Done(NamedTuple):
    """A batch that was made: what is told of it once it is durable."""

    batch: ReplayBatch
    transitions: list[Transition]


class _Halt(Exception):
    """Ends a batch before anything of it is written. Without a reason, somebody else has stopped the run."""

    def __init__(self, reason: Stop | None, told: str) -> None:
        super().__init__(told)
        self.reason, self.told = reason, told


def wanted(selection: Selection, candidates_hash: str, *, environment: str, executor: str) -> Wanted:
    """Return what a grant for exactly this replay must permit."""
    return Wanted(
        act=Act.REPLACE if selection.mode is ReplayMode.REPAIR_AND_REPLACE else Act.REPLAY,
        target=f"{PROCEDURE}:{candidates_hash}",
        environment=environment,
        executor=executor,
        plan=selection.hash,
    )


def needs_grant(terms: ReplayTerms) -> bool:
    """Tell whether a run needs a grant: in prod always, elsewhere if it is large, replaces, or is about everybody."""
    if terms.total == 0:
        return False
    environment = terms.policy.environment
    replaces = terms.selection.mode is ReplayMode.REPAIR_AND_REPLACE
    broad = is_global(terms.selection) and environment != DEV
    return environment == PROD or replaces or broad or terms.total > terms.policy.grant_above


class Runner:
    """One attempt to bring one run forward."""

    def __init__(self, store: Store[Any], run_id: str, terms: ReplayTerms, who: Actor, hooks: Hooks) -> None:
        self._store, self._root, self._terms, self._who, self._hooks = store, run_id, terms, who, hooks
        self._policy, self._mode = terms.policy, terms.selection.mode
        self._lease = f"{PROCEDURE}:{run_id}"
        self._holder = f"{who.actor}/{hooks.world.new_name()}"
        self._token = 0
        self._progress = Progress()
        self._ids: list[int] = []
        self._versions: dict[int, int] = {}
        self._waited: Counter[str] = Counter()
        self._performed = 0  # by this runner

    # -- beginning ----------------------------------------------------------------------------------------------------

    def begin(self, candidates: Candidates) -> ReplayReport:
        """Record the run and its candidates, use its grant and make the first batch, in one transaction; then go on."""
        self._know(candidates.job_ids, candidates.versions)
        done: _Done | None = None
        self._hooks.world.reach("before batch 1")
        with self._store.transaction() as transaction:
            self._take_lease(transaction)
            transaction.replay.lock()
            require(judged(transaction, self._terms.selection, candidates, self._policy))
            asked = needs_grant(self._terms) or self._who.grant_id is not None
            grant_id = self._authorised(transaction) if asked else None
            run_id = transaction.runs.begin(
                self._root,
                PROCEDURE,
                params=self._terms.text,
                plan=self._terms.selection_hash,
                lease=self._lease,
                grant_id=grant_id,
                actor=self._who.actor,
                reason=self._who.reason,
            )
            invariant(run_id is not None, "two replays have one name")
            run = self._moved(transaction, "run")
            transaction.runs.add_evidence(
                CANDIDATES,
                f"{PROCEDURE}:{candidates.hash}",
                candidates_text(candidates.job_ids, candidates.versions),
                actor=self._who.actor,
                run_id=run_id,
                grant_id=grant_id,
            )
            begun = {"candidates_hash": candidates.hash, "total": candidates.total}
            self._record(transaction, run, 0, BEGIN, begun)
            if self._terms.total:
                done = self._perform(transaction, run, 1)
            else:
                self._finish(transaction, run)
            self._hooks.world.reach("inside batch 1")
        return self._go_on(2, done)

    def take_up(self) -> ReplayReport:
        """Go on after the last batch that is on record."""
        with self._store.transaction() as transaction:
            if run_known(transaction, self._root).state is ProcedureState.DONE:
                return report_of(transaction, self._root)
            # The lease first, always: whoever holds it waits for nobody that waits for it.
            self._take_lease(transaction)
            transaction.replay.lock()
            run = run_known(transaction, self._root)
            if run.state is ProcedureState.DONE:  # its runner has ended it meanwhile, and given the lease back
                transaction.leases.release(self._lease, self._holder, self._token)
                return report_of(transaction, self._root)
            require(judged_again(transaction, self._terms.scope, self._policy, own=self._root))
            if run.state is ProcedureState.RUNNING:
                told = "whoever ran it is gone"
                run = self._moved(transaction, "abort", stop_state=Stop.RUNNER_LOST, failure=told)
            fresh = self._authorised(transaction) if self._needs_another_grant(transaction, run) else None
            run = self._moved(transaction, "resume", grant_id=fresh)
            self._know(*candidates_of(transaction, run, self._terms))
            self._progress = progress_of(transaction, run)
        # What came back before is known to whoever takes the run up: only what comes back again stops it again.
        self._progress.recent.clear()
        return self._go_on(run.step + 1)

    def _needs_another_grant(self, transaction: Transaction, run: ProcedureRun) -> bool:
        """Tell whether the run's own grant is not for this actor, or another one was named."""
        if self._who.grant_id is not None:
            return self._who.grant_id != run.grant_id
        used = None if run.grant_id is None else transaction.grants.get(run.grant_id)
        return used is not None and used.consumed_by != self._who.actor

    def _authorised(self, transaction: Transaction) -> int:
        terms, environment = self._terms, self._policy.environment
        asked = wanted(terms.selection, terms.candidates_hash, environment=environment, executor=self._who.actor)
        return authorise(transaction, asked, grant_id=self._who.grant_id, reason=self._who.reason)

    def _take_lease(self, transaction: Transaction) -> None:
        token = transaction.leases.acquire(self._lease, self._holder, self._policy.lease_s)
        if token is None:
            raise RuntimeLeaseError(
                f"somebody else runs the replay {self._root}",
                next_step="Wait: if that runner is gone, its lease runs out within a minute or so.",
                context={"run_id": self._root, "lease": self._lease},
            )
        self._token = token

    def _know(self, job_ids: list[int], versions: list[int]) -> None:
        self._ids = job_ids
        self._versions = dict(zip(job_ids, versions, strict=True))

    # -- going on -----------------------------------------------------------------------------------------------------

    def _go_on(self, first: int, done: _Done | None = None) -> ReplayReport:
        """Make the batches from a number on, after the one that is done already."""
        try:
            if done is not None:
                self._tell(done)
            for number in range(first, self._terms.batches + 1):
                self._wait_for_turn()
                self._batch(number)
        except _Halt as halt:
            self._stop(halt)
        except KeyboardInterrupt:
            self._stop(_Halt(Stop.OPERATOR, "it was interrupted"))
        except Exception:
            self._let_go()
            raise
        with self._store.reading() as reading:
            return report_of(reading, self._root)

    def _wait_for_turn(self) -> None:
        """Return when the next batch may come; raise _Halt if it may not."""
        after, last_at = self._hooks.stop_after, self._progress.last_at
        if after is not None and self._performed >= after:
            raise _Halt(Stop.OPERATOR, f"it was to stop after {after} batches")
        if last_at is not None:
            wait_s = pace.seconds_after(self._progress.last_records, self._mode, self._policy)
            self._wait_until(last_at + timedelta(seconds=wait_s), pace.RATE)
        for _ in range(self._policy.slow_downs_max):
            suffers = self._look_around()
            if suffers is None:
                return
            self._wait_until(self._store.now() + timedelta(seconds=self._policy.slow_down_s), suffers.measure)
        suffers = self._look_around()
        if suffers is not None:
            raise _Halt(Stop.SLO_RISK, str(suffers))

    def _look_around(self) -> pace.Strain | None:
        """Return what the queues suffer from; raise _Halt if what was replayed comes back."""
        with self._store.reading() as reading:
            self._refuse_switched_off(reading)
            replayed = {job_id: self._versions[job_id] for o in self._progress.recent for job_id in o.replayed}
            errors = frozenset(code for outcome in self._progress.recent for code in outcome.errors)
            back = pace.returned(reading, replayed, errors)
            if back.too_many(self._policy):
                told = f"{back.same_error} of the last {back.ended} that ended have failed with the same error again"
                raise _Halt(Stop.SAME_ERROR, told)
            return pace.strain(reading, self._terms.queues, self._policy)

    def _refuse_switched_off(self, reading: Reading) -> None:
        off = switched_off(reading, self._terms.scope)
        if off is not None:
            raise _Halt(Stop.KILL_SWITCH, off)

    def _wait_until(self, moment: datetime, why: str) -> None:
        """Sleep until a moment, in naps short enough to keep the lease and to notice a stop."""
        now = self._store.now()
        if now < moment:
            self._waited[why] += 1
        while now < moment:
            self._hooks.sleep(min((moment - now).total_seconds(), self._policy.lease_s / 3))
            before, now = now, self._store.now()
            if now == before:
                raise InputError("the ledger's clock stands still", next_step="Give a sleep that moves it.")
            if now < moment:
                with self._store.transaction() as transaction:
                    self._hold(transaction)

    def _hold(self, transaction: Transaction) -> ProcedureRun:
        """Keep the lease, and return the run if it is still to go on."""
        if not transaction.leases.extend(self._lease, self._holder, self._token, self._policy.lease_s):
            raise RuntimeLeaseError(
                f"the lease of the replay {self._root} ran out, or somebody else has taken it",
                next_step=f"Look where it stands: `holdfast replay inspect {self._root}`.",
                context={"run_id": self._root, "lease": self._lease},
            )
        run = run_known(transaction, self._root)
        if run.state is not ProcedureState.RUNNING:
            raise _Halt(None, "somebody else has stopped it")
        return run

    def _batch(self, number: int) -> None:
        self._hooks.world.reach(f"before batch {number}")
        with self._store.transaction() as transaction:
            run = self._hold(transaction)
            if self._mode is ReplayMode.REPAIR_AND_REPLACE:
                transaction.replay.lock()  # or two runs could replace one job at the same moment
            self._refuse_switched_off(transaction)
            done = self._perform(transaction, run, number)
            self._hooks.world.reach(f"inside batch {number}")
        self._tell(done)

    def _tell(self, done: _Done) -> None:
        """Tell of a batch that is durable."""
        if self._hooks.bus is not None:
            self._hooks.bus.publish(done.transitions)
            self._hooks.bus.publish([done.batch])
        if self._hooks.on_batch is not None:
            self._hooks.on_batch(done.batch)
        self._hooks.world.reach(f"after batch {done.batch.number}")

    def _perform(self, transaction: Transaction, run: ProcedureRun, number: int) -> _Done:
        """Make a batch and record it; the last one ends the run."""
        if not transaction.runs.reach_step(run, number):
            raise _Halt(None, "somebody else has stopped it")
        size = self._terms.batch_size
        batch = Batch(transaction, self._terms, self._root, self._who.actor, self._who.reason)
        outcome = batch.make(self._ids[(number - 1) * size : number * size], self._versions, dict(self._waited))
        self._record(transaction, run, number, f"batch {number}", outcome)
        if number == self._terms.batches:
            self._finish(transaction, run)
        at = transaction.now()
        self._progress.add(outcome, at)
        self._waited.clear()
        self._performed += 1
        event = ReplayBatch(
            run_id=self._root,
            number=number,
            batches=self._terms.batches,
            mode=self._mode,
            replay_reason=self._terms.replay_reason,
            environment=self._policy.environment,
            replayed=outcome.queues,
            skipped=self._left_out(number, outcome),
            throttled=outcome.throttled,
            at=at,
        )
        return _Done(event, batch.transitions)

    def _left_out(self, number: int, outcome: BatchOutcome) -> dict[str, int]:
        """Return what is told of a batch as skipped; of the first, also what the selection has passed over."""
        counts = Counter({reason: len(job_ids) for reason, job_ids in outcome.skipped.items()})
        return dict(counts + Counter(self._terms.passed_over if number == 1 else {}))

    def _record(self, transaction: Transaction, run: ProcedureRun, number: int, name: str, outcome: object) -> None:
        who = self._who
        transaction.runs.perform_step(run.run_id, number, name, as_kept(outcome), actor=who.actor, reason=who.reason)

    # -- ending -------------------------------------------------------------------------------------------------------

    def _finish(self, transaction: Transaction, run: ProcedureRun) -> None:
        answer = transaction.runs.move(run, "finish", actor=self._who.actor, reason=self._who.reason)
        if isinstance(answer, Refused):
            raise _Halt(None, answer.message)
        transaction.leases.release(self._lease, self._holder, self._token)

    def _stop(self, halt: _Halt) -> None:
        """Record where the run stops and why, unless somebody else has, and give the lease back."""
        with self._store.transaction() as transaction:
            run = run_known(transaction, self._root)
            if halt.reason is not None:
                # A refusal means that somebody else has stopped it meanwhile: then that stop stands.
                transaction.runs.move(
                    run,
                    "abort",
                    actor=self._who.actor,
                    reason=self._who.reason,
                    stop_state=halt.reason,
                    failure=halt.told,
                )
            transaction.leases.release(self._lease, self._holder, self._token)

    def _let_go(self) -> None:
        """Give the lease back, so that somebody can go on at once; if that fails too, it runs out."""
        with contextlib.suppress(StoreError), self._store.transaction() as transaction:
            transaction.leases.release(self._lease, self._holder, self._token)

    def _moved(
        self,
        transaction: Transaction,
        event: str,
        *,
        stop_state: str | None = None,
        failure: str | None = None,
        grant_id: int | None = None,
    ) -> ProcedureRun:
        answer = transaction.runs.move(
            run_known(transaction, self._root),
            event,
            actor=self._who.actor,
            reason=self._who.reason,
            stop_state=stop_state,
            failure=failure,
            grant_id=grant_id,
        )
        if isinstance(answer, Refused):
            raise StateTransitionRaceError(answer.message, context={"run_id": self._root})
        return run_known(transaction, self._root)
