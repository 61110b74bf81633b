"""Named leases: an exclusive right to do something, by name, for a limited time.

    token = acquire(store, "registry", "ann", timedelta(minutes=5))      # None: another holder has it
    with held(store, "registry", "ann", timedelta(minutes=5)) as lease:  # RuntimeLeaseError: another holder has it
        lease.hold()                                                     # extend; RuntimeLeaseError if it was lost

Invariants: a lease can be acquired only if it is free, expired, or already the holder's own; each acquisition gets a
greater token; only its holder can extend or release it, with its token and before it expires; a holder that crashes
blocks others no longer than the lease lasts. Time is the database's on PostgreSQL, the host's on SQLite.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.authority import TTL_MAX, require_words
from holdfast.core.errors import InputError, RuntimeLeaseError

if TYPE_CHECKING:
    from holdfast.store import Store


def acquire(store: Store[Any], name: str, holder: str, ttl: timedelta) -> int | None:
    """Acquire a lease and return its token; None if another holder has it. The holder's own lease is extended."""
    require_words(name=name, holder=holder)
    seconds = _seconds(ttl)
    with store.transaction() as transaction:
        return transaction.leases.acquire(name, holder, seconds)


def hold(store: Store[Any], name: str, holder: str, token: int, ttl: timedelta) -> bool:
    """Extend a lease to `ttl` from now, if that is later; return False if it was lost."""
    seconds = _seconds(ttl)
    with store.transaction() as transaction:
        return transaction.leases.extend(name, holder, token, seconds)


def release(store: Store[Any], name: str, holder: str, token: int) -> bool:
    """Release a lease; return False if it was already lost."""
    with store.transaction() as transaction:
        return transaction.leases.release(name, holder, token)


class NamedLease(msgspec.Struct, frozen=True):
    """A lease that is held, with its token."""

    store: Any
    name: str
    holder: str
    ttl: timedelta
    token: int

    def hold(self) -> None:
        """Extend the lease to its full length from now; raise RuntimeLeaseError if it was lost."""
        if not hold(self.store, self.name, self.holder, self.token, self.ttl):
            raise RuntimeLeaseError(
                f"{self.holder} lost the lease {self.name}: it expired or was taken over.",
                next_step="Stop the work that it protects, and start again with a new lease.",
                context={"lease": self.name, "holder": self.holder},
            )


@contextmanager
def held(store: Store[Any], name: str, holder: str, ttl: timedelta) -> Iterator[NamedLease]:
    """Hold a lease for a block, then release it; raise RuntimeLeaseError if another holder has it."""
    token = acquire(store, name, holder, ttl)
    if token is None:
        other = _holder(store, name)
        raise RuntimeLeaseError(f"The lease {name} is held by {other}.", context={"lease": name, "holder": other})
    try:
        yield NamedLease(store, name, holder, ttl, token)
    finally:
        release(store, name, holder, token)


def _holder(store: Store[Any], name: str) -> str | None:
    with store.reading() as reading:
        lease = reading.leases.all().get(name)
    return lease.holder if lease else None


def _seconds(ttl: timedelta) -> float:
    if not timedelta(0) < ttl <= TTL_MAX:
        raise InputError(
            f"A lease lasts more than 0 seconds and at most {TTL_MAX.days} days.", context={"field": "ttl"}
        )
    return ttl.total_seconds()
