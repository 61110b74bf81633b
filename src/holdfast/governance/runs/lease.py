"""The lease of a run: one holder at a time may move it.

A transaction of a run begins by taking or extending the lease, so that no other holder can take it before that
transaction ends, however long it lasts. The time limit covers pauses between transactions, and crashed processes.

Invariants: an attempt never continues under a lease that another holder took in the meantime; the token shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.errors import RuntimeLeaseError, StoreBusyError

if TYPE_CHECKING:
    from holdfast.governance.runs.request import RunRequest
    from holdfast.store import Store
    from holdfast.store.transaction import Transaction

NO_LEASE = "ABORT_NO_LEASE"


class RunLease:
    """The lease of one attempt at a run, by its token."""

    def __init__(self, store: Store[Any], request: RunRequest) -> None:
        self._store, self._request = store, request
        self._token = 0  # 0 before it was taken

    def acquire(self, transaction: Transaction) -> bool:
        """Take the lease, or extend it; return False if another holder has it.

        Raise RuntimeLeaseError if a step of another holder is under way, or if another holder took it in the meantime.
        """
        request = self._request
        try:
            token = transaction.leases.acquire(request.target, request.holder, request.lease_s)
        except Exception as error:
            if isinstance(self._store.translated(error), StoreBusyError):  # its row is locked: a step is under way
                raise self.held("another process, which is at work on a step") from error
            raise
        if token is None:
            return False
        if self._token and token > self._token + 1:  # one more is our own lease, expired and taken again
            raise self.held("another holder in the meantime")
        self._token = token
        return True

    def extend(self, transaction: Transaction) -> None:
        """Extend the lease; raise RuntimeLeaseError if it has expired or another holder has it."""
        request = self._request
        if not transaction.leases.extend(request.target, request.holder, self._token, request.lease_s):
            raise self.held("another holder, or by none")

    def release(self, transaction: Transaction) -> None:
        """Give the lease back, so that another holder need not wait until it expires."""
        transaction.leases.release(self._request.target, self._request.holder, self._token)

    def held(self, holder: str) -> RuntimeLeaseError:
        """Return the error for a lease that this attempt does not hold."""
        request = self._request
        context = {
            "lease": request.target,
            "root": request.root,
            "stop_state": NO_LEASE,
            "holder": holder,
            "expired": self._token != 0,
        }
        if self._token == 0:
            return RuntimeLeaseError(
                f"the lease {request.target} is held by {holder}",
                next_step=f"Wait until it is free, {request.lease_s:g} s at most if its process crashed; then repeat.",
                context=context,
            )
        return RuntimeLeaseError(
            f"the lease {request.target} expired between two steps, and is held by {holder}",
            next_step=f"Continue the run with `{request.resume_command}`.",
            context=context,
        )
