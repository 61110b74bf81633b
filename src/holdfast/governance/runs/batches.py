"""A run of batches, such as a replay or a release: one attempt makes batch after batch, until the end or a stop.

Invariants: a batch, its record and, if it is the last, the end of the run are one transaction; between batches the
attempt stops if a switch is on, if its caller wants it to, or if another process has stopped the run.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import StateTransitionRaceError
from holdfast.core.machines import ProcedureState
from holdfast.governance.acts import stored_text
from holdfast.governance.replay.guards import switched_off
from holdfast.governance.runs.runner import Act, RunHalted, Runner, Stop

if TYPE_CHECKING:
    import msgspec

    from holdfast.core.governed import ProcedureRun
    from holdfast.engine.world import World
    from holdfast.governance.replay.guards import ReplayScope
    from holdfast.governance.runs.request import RunRequest
    from holdfast.store import Store
    from holdfast.store.transaction import Reading, Transaction


class BatchRunner(ABC):
    """One attempt to advance one run of batches; the work of a `Runner`. A kind of run adds what a batch does."""

    def __init__(
        self,
        store: Store[Any],
        request: RunRequest,
        world: World,
        *,
        batches: int,
        scope: ReplayScope,
        stop_after: int | None,
    ) -> None:
        self._store, self._root, self._world = store, request.root, world
        self._batches, self._scope, self._stop_after = batches, scope, stop_after
        self._runner = Runner(store, request, world)
        self._performed = 0  # batches of this attempt

    @abstractmethod
    def make(self, transaction: Transaction, number: int) -> msgspec.Struct:
        """Make a batch and return its outcome."""

    def wait_for_turn(self) -> None:
        """Return when the next batch may come; raise RunHalted if it may not."""
        if self._stop_after is not None and self._performed >= self._stop_after:
            raise RunHalted(Stop.OPERATOR, f"stopped after {self._stop_after} batches, as --stop-after says")

    def run_to_end(self, run: ProcedureRun, durable: Act | None = None) -> None:
        """Make the remaining batches; `durable` is one that is committed and not yet published."""
        try:
            if durable is not None:
                self.committed(durable)
                self._world.reach(f"after {durable.point}")
            while run.state is ProcedureState.RUNNING:
                self.wait_for_turn()
                run = self._runner.advance(self)
        except RunHalted as halt:
            self._stop(halt)
        except KeyboardInterrupt:
            self._stop(RunHalted(Stop.OPERATOR, "interrupted by the operator"))
        except Exception:
            self._runner.let_go()
            raise

    def due(self, transaction: Transaction) -> tuple[ProcedureRun, Act]:
        """Return the run and its next batch; raise RunHalted if the run must stop."""
        run = self.hold(transaction)
        self.refuse_switched_off(transaction)
        number = run.step + 1
        return run, Act(f"batch {number}", number)

    def take(self, transaction: Transaction, run: ProcedureRun, act: Act) -> ProcedureRun:
        """Make a batch and record it; the last one ends the run."""
        if not transaction.runs.reach_step(run, act.number):
            raise RunHalted(None, "stopped by another process")
        outcome = self.make(transaction, act.number)
        self._runner.record(transaction, run, act.number, act.point, stored_text(outcome))
        return self._runner.finish(transaction, run) if act.number == self._batches else run

    def committed(self, act: Act) -> None:  # noqa: ARG002 - of any batch
        """Count a batch that is durable."""
        self._performed += 1

    def failed(self, act: Act | None, error: Exception) -> ProcedureRun:  # noqa: ARG002 - of any batch
        """Raise the error: a batch that was rolled back leaves nothing to undo."""
        raise error

    def hold(self, transaction: Transaction) -> ProcedureRun:
        """Extend the lease, and return the run; raise RunHalted if another process has stopped it."""
        self._runner.lease.extend(transaction)
        run = self._runner.run(transaction)
        if run.state is not ProcedureState.RUNNING:
            raise RunHalted(None, "stopped by another process")
        return run

    def refuse_switched_off(self, reading: Reading) -> None:
        """Raise RunHalted if a switch or a pause stops the run now."""
        off = switched_off(reading, self._scope)
        if off is not None:
            raise RunHalted(Stop.KILL_SWITCH, off)

    def _stop(self, halt: RunHalted) -> None:
        """Record the stop, unless another process has stopped the run, and release the lease."""
        with self._store.transaction() as transaction:
            if halt.reason is not None:
                run = self._runner.run(transaction)
                with contextlib.suppress(StateTransitionRaceError):  # the stop by another process counts
                    self._runner.move(transaction, run, "abort", stop_state=halt.reason, failure=halt.message)
            self._runner.lease.release(transaction)
