"""Named leases: an exclusive right to do something, by name, for some time.

    token = acquire(store, "registry", "ann", timedelta(minutes=5))    # None: somebody else has it
    with held(store, "registry", "ann", timedelta(minutes=5)) as lease:  # RuntimeLeaseError: somebody else has it
        lease.hold()                                                   # longer; RuntimeLeaseError if it was lost

Invariants: a lease is won only if it has run out, or is the holder's own; a token is given to one holder, and later
ones are greater; only its holder can hold or release it, by its token and while it lasts; a holder who dies keeps
nobody waiting for longer than the lease lasts. Time is the database's on PostgreSQL, the host's on SQLite.
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
    """Take a lease and return its token, or None if somebody else has it; the holder's own is renewed."""
    require_words(name=name, holder=holder)
    seconds = _seconds(ttl)
    with store.transaction() as transaction:
        return transaction.leases.acquire(name, holder, seconds)


def hold(store: Store[Any], name: str, holder: str, token: int, ttl: timedelta) -> bool:
    """Let a lease last for some time from now, if that is longer; return False if it was lost."""
    seconds = _seconds(ttl)
    with store.transaction() as transaction:
        return transaction.leases.extend(name, holder, token, seconds)


def release(store: Store[Any], name: str, holder: str, token: int) -> bool:
    """Give a lease back; return False if it was lost before."""
    with store.transaction() as transaction:
        return transaction.leases.release(name, holder, token)


class NamedLease(msgspec.Struct, frozen=True):
    """A lease that is held, to be shown by its token."""

    store: Any
    name: str
    holder: str
    ttl: timedelta
    token: int

    def hold(self) -> None:
        """Let it last as long again from now; raise RuntimeLeaseError if it was lost."""
        if not hold(self.store, self.name, self.holder, self.token, self.ttl):
            raise RuntimeLeaseError(
                f"the lease {self.name} ran out, or somebody else has taken it",
                next_step="Stop what it was for, and begin anew with a new lease.",
                context={"lease": self.name, "holder": self.holder},
            )


@contextmanager
def held(store: Store[Any], name: str, holder: str, ttl: timedelta) -> Iterator[NamedLease]:
    """Hold a lease for a block, and give it back; raise RuntimeLeaseError if somebody else has it."""
    token = acquire(store, name, holder, ttl)
    if token is None:
        raise RuntimeLeaseError(
            f"{name} is held by somebody else", context={"lease": name, "holder": _holder(store, name)}
        )
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
        raise InputError(f"a lease lasts for some time, and for {TTL_MAX.days} days at most", context={"field": "ttl"})
    return ttl.total_seconds()
