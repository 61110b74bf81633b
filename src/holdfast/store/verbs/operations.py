"""Verbs of operations: declare them, and check those of new work.

Invariants: the ledger stores the newest version of each operation; in a governed ledger, the transaction that submits
a job checks that its operation is in force, and locks that until it ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.core.errors import UnknownOperationError
from holdfast.core.protocol import newest
from holdfast.store.requests import Declared, Submission, patterns
from holdfast.store.settings import declared_from
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Verbs, WritingVerbs


class OperationReads(Verbs):
    """Reads the declared operations."""

    def declared(self) -> dict[str, Declared]:
        return {
            name: msgspec.structs.replace(declared_from(name, defaults), version=version)
            for name, version, defaults in self._run("known_operations")
        }


class OperationWrites(OperationReads, WritingVerbs):
    """Declares operations, and checks those of new work."""

    def declare(self, operations: Mapping[str, Declared]) -> None:
        """Declare operations to the ledger; an older version than the stored one changes nothing."""
        seen = self._store.operations
        if all(name in seen and not _replaces(declared, seen[name]) for name, declared in operations.items()):
            return  # the ledger has these versions or newer ones
        for _ in range(10):  # try again if another process has declared one of them since the read
            known = self.declared()
            rows = [
                [name, declared.version, encoded(declared), known[name].version if name in known else None]
                for name, declared in sorted(operations.items())
                if name not in known or _replaces(declared, known[name])
            ]
            now = self._store.time_parameter()
            if not rows:
                self._session.learned.update(known)
            if not rows or len(self._run("declare_operations", rows=encoded(rows), now=now)) == len(rows):
                written = {str(row[0]): operations[str(row[0])] for row in rows}
                for name, declared in written.items():
                    if declared.flow or (name in known and known[name].flow):
                        self._session.limits.declare(known.get(name), declared)
                return

    def require_usable(self, submissions: Sequence[Submission]) -> None:
        """Raise unless each operation was declared; in a governed ledger, unless each is in force at its version."""
        if self._session.governed:
            self._session.registry.require_in_force(submissions)
        else:
            self._require_known({submission.operation for submission in patterns(submissions)})

    def _require_known(self, operations: set[str]) -> None:
        known = self._store.operations
        if not operations <= known.keys():
            # This transaction may be rolled back: the store adds these to its cache after the commit.
            self._session.learned.update(self.declared())
        unknown = sorted(operations - known.keys() - self._session.learned.keys())
        if unknown:
            raise UnknownOperationError(
                f"no process has declared the operation {unknown[0]!r} to this ledger",
                context={"operation": unknown[0]},
            )


def _replaces(declared: Declared, known: Declared) -> bool:
    """Return whether a declaration is newer than the known one, or differs from it at the same version."""
    return declared != known and newest((declared.version, known.version)) == declared.version
