"""The verbs of the registry: its collections, and the one gateway through which a value comes in.

Invariants: nothing is decided here; a value is born through `admit_value` alone, under the grant of a run that is
running or of the very move, which the databases check; a collection and a value are put in force or withheld by
matching where they stand, never deleted; whoever asks what is in force sees no value, and no value of a collection,
that is staged or withheld.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.core.machines import VALUE
from holdfast.core.records import Collection, RegistryValue
from holdfast.core.vocabulary import RegistryStatus, Value, vocab_id
from holdfast.store.rows import reader
from holdfast.store.statements import encoded

if TYPE_CHECKING:
    from holdfast.store.store import Store

_read_collection = reader(Collection)
_read_value = reader(RegistryValue)


class RegistryReading(ABC):
    """The part of a Reading that tells of the registry."""

    _store: Store[Any]

    def collection(self, name: str) -> Collection | None:
        """Return a collection, wherever it stands."""
        rows = self._run("get_collection", collection=name)
        return _read_collection(rows[0], self._store.moment) if rows else None

    def collections(self) -> list[Collection]:
        """Return every collection by name, wherever it stands."""
        return [_read_collection(row, self._store.moment) for row in self._run("list_collections")]

    def value_in_force(self, operation_code: str, protocol_version: str) -> RegistryValue | None:
        """Return a value that is in force, also one that was superseded or retired since: its state tells."""
        rows = self._run("value_in_force", operation_code=operation_code, protocol_version=protocol_version)
        return self._value(rows[0]) if rows else None

    def values_in_force(self, collection: str | None = None) -> list[RegistryValue]:
        """Return the values that are in force, also those superseded or retired since, by code, oldest first."""
        return [self._value(row) for row in self._run("values_in_force", collection=collection)]

    def registry_value(self, operation_code: str, protocol_version: str) -> RegistryValue | None:
        """Return a value wherever it stands: for whoever builds and inspects, not for whoever resolves."""
        rows = self._run("get_value", operation_code=operation_code, protocol_version=protocol_version)
        return self._value(rows[0]) if rows else None

    def registry_values(
        self,
        *,
        collection: str | None = None,
        operation_code: str | None = None,
        standing: str | None = None,
        state: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[RegistryValue]:
        """Return a page of values wherever they stand, in the order of their admission."""
        rows = self._run(
            "list_values",
            collection=collection,
            operation_code=operation_code,
            standing=standing,
            state=state,
            after=after,
            n=limit,
        )
        return [self._value(row) for row in rows]

    def values_without_grant(self, limit: int = 10) -> list[tuple[str, str]]:
        """Return code and version of values that came in past the gateway: under no grant that was consumed."""
        return [(code, version) for code, version in self._run("values_without_grant", n=limit)]

    def values_without_approval(self, *, by_another: bool, limit: int = 10) -> list[tuple[str, str]]:
        """Return code and version of values whose grant nobody has approved; or, `by_another`, nobody else."""
        rows = self._run("values_without_approval", by_another=by_another, under='"method":"grant"', n=limit)
        return [(code, version) for code, version in rows]

    def _value(self, row: tuple[Any, ...]) -> RegistryValue:
        return _read_value(row, self._store.moment)

    @abstractmethod
    def _run(self, name: str, /, **params: object) -> list[tuple[Any, ...]]: ...


class RegistryWriting(ABC):
    """The part of a transaction that builds the registry."""

    _store: Store[Any]

    def stage_collection(self, name: str, schema: str, schema_digest: str, *, run_id: int) -> bool:
        """Record a new collection as staged; return False if the name is taken."""
        rows = self._run(
            "insert_collection",
            collection=name,
            schema=schema,
            schema_digest=schema_digest,
            standing=RegistryStatus.STAGED,
            run_id=run_id,
            now=self._store.time_parameter(),
        )
        return bool(rows)

    def place_collection(
        self, collection: Collection, standing: RegistryStatus, *, run_id: int, manifest_digest: str | None = None
    ) -> bool:
        """Let a collection stand elsewhere, matching where it stood; return False if that has changed."""
        rows = self._run(
            "place_collection",
            collection=collection.collection,
            was=collection.standing,
            standing=standing,
            run_id=run_id,
            manifest_digest=manifest_digest,
            now=self._store.time_parameter(),
        )
        return bool(rows)

    def admit_value(
        self,
        collection: str,
        value: Value,
        *,
        standing: RegistryStatus,
        grant_id: int | None,
        actor: str,
        reason: str | None,
        run_id: int | None = None,
        move_id: str | None = None,
    ) -> int:
        """Let one value into the registry: the only gateway. Under a run's grant, or under that of this very move."""
        birth = VALUE.path("admit", None)
        [[value_id]] = self._run(
            "insert_value",
            vocab_id=vocab_id(collection, value.operation_code, value.protocol_version),
            collection=collection,
            operation_code=value.operation_code,
            protocol_version=value.protocol_version,
            act_type=value.act_type,
            semantics=value.semantics_text,
            authority_ref=value.governing_authority_ref,
            digest=value.digest,
            standing=standing,
            state=birth.target,
            version=len(birth.edges),
            event=birth.event,
            run_id=run_id,
            grant_id=grant_id,
            **self._signature(actor, reason, move_id),
        )
        return int(value_id)

    def place_values(self, values: Iterable[RegistryValue], was: RegistryStatus, standing: RegistryStatus) -> int:
        """Let values stand elsewhere, those that stand where they did; return how many that were."""
        rows = encoded([value.value_id for value in values])
        now = self._store.time_parameter()
        return len(self._run("place_values", rows=rows, was=was, standing=standing, now=now))

    @abstractmethod
    def _run(self, name: str, /, **params: object) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _signature(self, actor: str | None, reason: str | None, move_id: str | None = None) -> dict[str, object]: ...
