"""The verbs of supersession: what follows what in the registry, and what may no longer be used for new work.

Invariants: a value moves as `core.decide` says, matching id, state and version, under the grant that the same move has
consumed; in a governed ledger the transaction that records new work judges whether its operation is in force, and holds
that for its own length: nobody supersedes a value between the judgement and the commit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.commands import ValueEvent
from holdfast.core.decide import Move, Refused
from holdfast.core.errors import RegistryError
from holdfast.core.machines import VALUE, JobState, ValueState
from holdfast.core.protocol import newest
from holdfast.core.records import Collection, Job, RegistryValue
from holdfast.core.rollback import ValueName
from holdfast.core.vocabulary import OPERATIONS, RegistryCode, RegistryStatus
from holdfast.store.moving import Moving
from holdfast.store.requests import Declared, Submission
from holdfast.store.rows import reader
from holdfast.store.statements import encoded

if TYPE_CHECKING:
    from holdfast.store.store import Store

BUILT_IN = "noop"

_read_value = reader(RegistryValue)


class SupersessionReading(ABC):
    """The part of a Reading that tells what follows what."""

    _store: Store[Any]

    @property
    def governed(self) -> bool:
        """Whether a registry says which operations this ledger takes: written once, when it was made."""
        if self._store.governed is None:
            self._store.governed = self.meta().get("governed") == "yes"
        return self._store.governed

    def value_named(self, vocab_id: str) -> RegistryValue | None:
        """Return the value that has an id, wherever it stands."""
        rows = self._run("value_named", vocab_id=vocab_id)
        return _read_value(rows[0], self._store.moment) if rows else None

    def successions(self) -> dict[ValueName, ValueName]:
        """Return which value each superseded one was followed by."""
        return {ValueName(*row[:2]): ValueName(*row[2:]) for row in self._run("successions")}

    def operation_in_force(self, operation: str) -> str | None:
        """Return the version of an operation that new work is recorded at; None if the registry has none."""
        return newest(version for (version,) in self._run("operation_in_force", operation=operation, within=OPERATIONS))

    def open_jobs_of(self, operation: str, version: str) -> int:
        """Return how many jobs of one version of an operation have not ended."""
        states = [JobState.PENDING, JobState.RUNNING, JobState.FAILED]
        [[n]] = self._run("open_jobs_of", operation=operation, version=version, states=encoded(states))
        return int(n)

    @abstractmethod
    def meta(self) -> dict[str, str]: ...

    @abstractmethod
    def _run(self, name: str, /, **params: object) -> list[tuple[Any, ...]]: ...


class SupersessionWriting(SupersessionReading, Moving):
    """The part of a transaction that lets one value follow another, and keeps new work to what is in force."""

    learned: dict[str, Declared]

    def move_value(
        self,
        value: RegistryValue,
        event: str,
        *,
        successor: ValueName | None = None,
        rollback_ref: str,
        grant_id: int,
        actor: str,
        reason: str,
        move_id: str,
    ) -> Move | Refused:
        """Supersede or retire a value under a grant that the same move has consumed, matching id, state and version."""
        follows = (successor.code, successor.version) if successor else None
        return self._moved(
            "move_value",
            VALUE,
            value,
            ValueEvent(event, grant_id, follows),
            str(ValueName(value.operation_code, value.protocol_version)),
            value_id=value.value_id,
            successor_code=successor.code if successor else None,
            successor_version=successor.version if successor else None,
            rollback_ref=rollback_ref,
            grant_id=grant_id,
            **self._signature(actor, reason, move_id),
        )

    def lock_values(self) -> None:
        """Let nobody submit or move anything by the registry until this transaction ends; many may read it."""
        self._run("lock_values")

    # -- operations ---------------------------------------------------------------------------------------------------

    def declare(self, operations: Mapping[str, Declared]) -> None:
        """Make operations known to the ledger. It keeps the newest version of each, whoever declares it when."""
        seen = self._store.operations
        if all(name in seen and not _replaces(declared, seen[name]) for name, declared in operations.items()):
            return  # the ledger keeps what it was told, and only ever something newer
        for _ in range(10):  # again, if another process has declared one of them meanwhile
            known = self.operations()
            rows = [
                [name, declared.version, encoded(declared), known[name].version if name in known else None]
                for name, declared in sorted(operations.items())
                if name not in known or _replaces(declared, known[name])
            ]
            now = self._store.time_parameter()
            if not rows:
                self.learned.update(known)
            if not rows or len(self._run("declare_operations", rows=encoded(rows), now=now)) == len(rows):
                return

    def require_usable(self, submissions: Sequence[Submission]) -> None:
        """Raise unless each operation was declared; in a governed ledger, unless each is in force at its version."""
        if not self.governed:
            self._require_known({submission.operation for submission in submissions})
            return
        asked = {
            (submission.operation, submission.operation_version)
            for submission in submissions
            if submission.operation != BUILT_IN
        }
        if not asked:
            return
        rows = self._run("usable_values", rows=encoded(sorted(asked)), within=OPERATIONS)
        refused = asked - {(code, version) for code, version in rows}
        if refused:
            self._refuse_new([s for s in submissions if (s.operation, s.operation_version) in refused])

    def _refuse_new(self, submissions: Sequence[Submission]) -> None:
        """Refuse what is new; what was recorded before under the same key is answered as ever."""
        keys = [(s.client, s.key) for s in submissions if s.key is not None]
        before = self.jobs_by_key(keys) if keys else {}
        new = {
            ValueName(s.operation, s.operation_version) for s in submissions if (s.client, s.key or "") not in before
        }
        if new:
            raise self._not_in_force(min(new))

    def _not_in_force(self, name: ValueName) -> RegistryError:
        collection = self.collection(OPERATIONS)
        context: dict[str, object] = {"operation": name.code, "version": name.version}
        if collection is None or collection.standing != RegistryStatus.IN_FORCE:
            return RegistryError(
                f"this ledger is governed, and no registry says which operations it takes: {name} is refused",
                code=RegistryCode.VOCABULARY_ABSENT,
                next_step="Build one: `holdfast registry build --help`.",
                context=context,
            )
        instead = self.operation_in_force(name.code)
        use = f"{name.code} is in force at {instead}" if instead else f"no version of {name.code} is in force"
        context["in_force"] = instead
        value = self.value_in_force(name.code, name.version)
        if value is None or value.collection != OPERATIONS or value.state == ValueState.ACTIVE:
            return RegistryError(
                f"{name} is not in the registry of operations; {use}",
                code=RegistryCode.VALUE_ABSENT,
                next_step="Use a version that is in force (`holdfast registry list`), or have this one admitted.",
                context=context,
            )
        successor = self._last_of_line(name)
        context["successor"] = None if successor is None else str(successor)
        then, next_step = f"nothing follows it; {use}", None
        if successor is not None:
            last = self.value_in_force(successor.code, successor.version)
            usable = last is not None and last.state == ValueState.ACTIVE
            then = f"it was followed by {successor}" + ("" if usable else ", which is not for new work either")
            next_step = f"Submit {successor} instead." if usable else None
        return RegistryError(
            f"{name} is {value.state}, and not for new work: {then}",
            code=RegistryCode.RETIRED,
            next_step=next_step,
            context=context,
        )

    def _last_of_line(self, name: ValueName) -> ValueName | None:
        """Return the value at the end of those that have followed one; None if nothing has."""
        follows, last = self.successions(), None
        while (after := follows.pop(last or name, None)) is not None:  # taken out: a circle would end too
            last = after
        return last

    @abstractmethod
    def collection(self, name: str) -> Collection | None: ...

    @abstractmethod
    def value_in_force(self, operation_code: str, protocol_version: str) -> RegistryValue | None: ...

    @abstractmethod
    def operations(self) -> dict[str, Declared]: ...

    @abstractmethod
    def jobs_by_key(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Job]: ...

    @abstractmethod
    def _require_known(self, operations: set[str]) -> None: ...


def _replaces(declared: Declared, known: Declared) -> bool:
    """Tell whether a declaration is the newer one, or another one of the same version."""
    return declared != known and newest((declared.version, known.version)) == declared.version
