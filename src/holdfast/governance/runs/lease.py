"""The lease and the grant of a run: how it begins, goes on, or is taken over by somebody else.

A step is one transaction that begins by taking the lease, so nobody else can take it before that transaction has ended,
however long it lasts. The time limit of a lease is for the pauses between two transactions, and for the dead.

Invariants: lease, grant and the record of a run are taken in one transaction, or none of them; a grant is used by the
one whom it names, once; what is wrong with a grant is said before who holds the lease; where a run was left in the
middle, no other begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.core.authority import Rejected
from holdfast.core.decide import Refused
from holdfast.core.digest import Json, canonical
from holdfast.core.errors import (
    GovernanceError,
    RuntimeLeaseError,
    StateTransitionRaceError,
    StoreBusyError,
)
from holdfast.core.machines import ProcedureState
from holdfast.governance.approval import environment_of
from holdfast.governance.grants import authorise, issue, rejection, verdict_on
from holdfast.governance.runs.steps import GO, NOT_ASKED, NOT_NEEDED, RunRequest

if TYPE_CHECKING:
    from holdfast.core.records import ProcedureRun
    from holdfast.store import Store
    from holdfast.store.transaction import Reading, Transaction

NO_LEASE = "ABORT_NO_LEASE"


class OvertakenError(Exception):
    """Somebody else has begun or moved the run since it was looked at."""


class Reservation:
    """What one attempt at a run holds: the lease by its token, and the word of its grant."""

    def __init__(self, store: Store[Any], asked: RunRequest) -> None:
        self._store, self._asked = store, asked
        self._token = 0  # of the lease; 0 before it was taken
        self.authority = NOT_NEEDED if asked.what.act is None else NOT_ASKED

    # -- the lease ----------------------------------------------------------------------------------------------------

    def hold(self, transaction: Transaction) -> None:
        """Take the lease, or extend it; raise RuntimeLeaseError if it is, or was meanwhile, somebody else's."""
        asked = self._asked
        try:
            token = transaction.leases.acquire(asked.target, asked.holder, asked.what.lease_s)
        except Exception as error:
            if isinstance(self._store.translated(error), StoreBusyError):  # its row is locked: a step is under way
                raise self._lease_held("by somebody who is at work") from error
            raise
        if token is None:
            self._refuse_bad_grant(transaction)
            raise self._lease_held(f"by {transaction.leases.all()[asked.target].holder}")
        if self._token and token > self._token + 1:  # one more is our own, run out and taken again
            raise self._lease_held("by somebody else meanwhile")
        self._token = token

    def release(self, transaction: Transaction) -> None:
        """Give the lease back."""
        transaction.leases.release(self._asked.target, self._asked.holder, self._token)

    def _lease_held(self, whose: str) -> RuntimeLeaseError:
        asked = self._asked
        context = {"lease": asked.target, "root": asked.root, "stop_state": NO_LEASE}
        if self._token == 0:
            return RuntimeLeaseError(f"{asked.target} is held {whose}", context=context)
        return RuntimeLeaseError(
            f"the lease of {asked.target} ran out between two steps, and was taken {whose}",
            next_step=f"Go on with `holdfast procedure resume {asked.root}`.",
            context=context,
        )

    def _refuse_bad_grant(self, transaction: Transaction) -> None:
        """Raise what is wrong with the grant that was named, if anything is: to wait for the lease would not help."""
        wanted = self._asked.wanted(environment_of(transaction))
        known = transaction.runs.get(self._asked.root)
        own = known is not None and known.grant_id == self._asked.grant_id
        if wanted is None or self._asked.grant_id is None or own:
            return
        verdict = verdict_on(transaction, wanted, self._asked.grant_id)
        if isinstance(verdict, Rejected):
            raise rejection(verdict, wanted)

    # -- the grant ----------------------------------------------------------------------------------------------------

    def look(self, reading: Reading, known: ProcedureRun | None) -> None:
        """Find out whether a run may begin, or go on, as things are; nothing is consumed."""
        wanted = self._asked.wanted(environment_of(reading))
        if wanted is None:
            return
        if known is not None and not self._needs_grant(reading, known):
            self.authority = GO
            return
        verdict = verdict_on(reading, wanted, self._asked.grant_id)
        self.authority = str(verdict.code) if isinstance(verdict, Rejected) else GO

    def _needs_grant(self, reading: Reading, known: ProcedureRun) -> bool:
        """Tell whether a run needs another grant than the one it has: that is for the one who used it."""
        if self._asked.what.act is None:
            return False
        own = reading.grants.get(known.grant_id) if known.grant_id else None
        return own is None or own.consumed_by != self._asked.actor or self._asked.grant_id not in (None, own.grant_id)

    def _consumed(self, transaction: Transaction, *, dry: bool) -> int | None:
        wanted = self._asked.wanted(environment_of(transaction))
        if wanted is None:
            return None
        if dry:
            self.look(transaction, None)
            # What follows is rolled back; the database wants to see a grant all the same.
            return issue(transaction, wanted, reason=self._asked.reason)
        return authorise(transaction, wanted, grant_id=self._asked.grant_id, reason=self._asked.reason)

    # -- the run ------------------------------------------------------------------------------------------------------

    def is_due(self, reading: Reading, known: ProcedureRun | None) -> bool:
        """Tell whether a run has to begin, to begin again, or to be taken over, before anything else."""
        if known is None or known.state == ProcedureState.STOPPED:
            return True
        return known.state == ProcedureState.RUNNING and self._needs_grant(reading, known)

    def make(
        self, transaction: Transaction, seen: ProcedureRun | None, outcomes: Mapping[str, Json], *, dry: bool
    ) -> ProcedureRun:
        """Take the lease, consume the grant and record the run with what its checks found: all of it, or nothing."""
        self.hold(transaction)
        if _place(transaction.runs.get(self._asked.root)) != _place(seen):
            raise OvertakenError
        self._refuse_unfinished(transaction)
        known = self._begun(transaction, dry=dry) if seen is None else self._gone_on(transaction, seen, dry=dry)
        self._record(transaction, known, outcomes)
        return known

    def _refuse_unfinished(self, transaction: Transaction) -> None:
        other = transaction.runs.unfinished(self._asked.target, self._asked.root)
        if other is not None:
            raise GovernanceError(
                f"the run {other.idempotency_root!r} has left {self._asked.target} in the middle: it is {other.state}",
                code="run_unfinished",
                next_step=f"Finish it: `holdfast procedure resume {other.idempotency_root}`; or have it undone.",
                context={"lease": self._asked.target, "root": other.idempotency_root},
            )

    def _begun(self, transaction: Transaction, *, dry: bool) -> ProcedureRun:
        asked = self._asked
        run_id = transaction.runs.begin(
            asked.root,
            asked.what.name,
            params=asked.params_text,
            plan=asked.plan,
            lease=asked.target,
            grant_id=self._consumed(transaction, dry=dry),
            actor=asked.actor,
            reason=asked.reason,
        )
        known = transaction.runs.get(asked.root)
        if run_id is None or known is None:
            # Somebody was faster, and with another target: with the same one, the lease would have told.
            raise OvertakenError
        return moved(transaction, asked, known, "run")

    def _gone_on(self, transaction: Transaction, known: ProcedureRun, *, dry: bool) -> ProcedureRun:
        # What was consumed stays so: the run goes on under its own grant, unless it needs, or is given, a fresh one.
        fresh = self._consumed(transaction, dry=dry) if self._needs_grant(transaction, known) else None
        if known.state == ProcedureState.RUNNING and fresh is not None:
            told = f"{self._asked.actor} takes over: {self._asked.reason}"
            known = moved(transaction, self._asked, known, "abort", reason=told)
        if known.state == ProcedureState.STOPPED:
            known = moved(transaction, self._asked, known, "resume", grant_id=fresh)
        return known

    def _record(self, transaction: Transaction, known: ProcedureRun, outcomes: Mapping[str, Json]) -> None:
        """Record the checks and the reservation itself as performed; it keeps which steps the run has."""
        what, asked = self._asked.what, self._asked
        stands = transaction.runs.performed_steps(known.run_id)
        left = {**outcomes, what.reserve: {"version": what.version, "steps": list(what.names)}}
        for number, name in enumerate(what.names[: what.first + 1]):
            if number not in stands:
                outcome = canonical(left.get(name))
                transaction.runs.perform_step(
                    known.run_id, number, name, outcome, actor=asked.actor, reason=asked.reason
                )
        transaction.runs.reach_step(known, what.first)


def _place(known: ProcedureRun | None) -> tuple[str, int] | None:
    return (known.state, known.version) if known else None


def moved(
    transaction: Transaction,
    asked: RunRequest,
    known: ProcedureRun,
    event: str,
    *,
    reason: str | None = None,
    stop_state: str | None = None,
    failure: str | None = None,
    grant_id: int | None = None,
) -> ProcedureRun:
    """Move a run and return it as it then stands; raise StateTransitionRaceError if somebody else has moved it."""
    answer = transaction.runs.move(
        known,
        event,
        actor=asked.actor,
        reason=reason or asked.reason,
        stop_state=stop_state,
        failure=failure,
        grant_id=grant_id,
    )
    after = transaction.runs.get(asked.root)
    if isinstance(answer, Refused) or after is None:
        raise StateTransitionRaceError(f"the run {asked.root!r} was moved meanwhile", context={"root": asked.root})
    return after
