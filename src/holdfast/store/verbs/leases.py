"""Verbs of named leases: an exclusive right to a name until a time.

Invariants: a lease is acquired only if it has expired or belongs to the same holder; its token only grows.
"""

from __future__ import annotations

from holdfast.core.governed import NamedLease
from holdfast.store.rows import reader
from holdfast.store.verbs.base import Verbs, WritingVerbs

_read_lease = reader(NamedLease)


class LeaseReads(Verbs):
    """Reads named leases."""

    def all(self) -> dict[str, NamedLease]:
        """Return every named lease, including the expired ones."""
        return {lease.name: lease for lease in self._all(_read_lease, "get_leases")}


class LeaseWrites(LeaseReads, WritingVerbs):
    """Acquires, extends and releases named leases."""

    def acquire(self, name: str, holder: str, seconds: float) -> int | None:
        """Acquire a lease that has expired or is the holder's; return its token, None if another holder has it."""
        rows = self._run("acquire_lease", name=name, holder=holder, **self._until(seconds))
        return int(rows[0][0]) if rows else None

    def extend(self, name: str, holder: str, token: int, seconds: float) -> bool:
        """Extend a lease; return False if it is lost."""
        return bool(self._run("hold_lease", name=name, holder=holder, token=token, **self._until(seconds)))

    def release(self, name: str, holder: str, token: int) -> bool:
        """Release a lease; return False if it was lost."""
        now = self._store.time_parameter()
        return bool(self._run("release_lease", name=name, holder=holder, token=token, now=now))

    def _until(self, seconds: float) -> dict[str, object]:
        return {"expires": self._store.lease_until(seconds), "now": self._store.time_parameter()}
