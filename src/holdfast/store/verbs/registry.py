"""Verbs of the registry: collections and values, the admission of values, and supersession.

Invariants: only `admit` inserts values, under the grant of a running build or of the same move, which the databases
check; a value moves as `core.decide` says, matching id, state and version, under the grant that the same move has
consumed; the status of a collection or value changes by matching the old status; nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.core.decide import Move, Refused
from holdfast.core.errors import RegistryError
from holdfast.core.governed import Collection, RegistryValue, ValueEvent
from holdfast.core.machines import VALUE, JobState, ValueState
from holdfast.core.protocol import newest
from holdfast.core.vocabulary import BUILT_IN, OPERATIONS, RegistryCode, RegistryStatus, Value, ValueName, vocab_id
from holdfast.store.requests import Submission, patterns
from holdfast.store.rows import reader
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Verbs
from holdfast.store.verbs.moving import MovingVerbs

_read_collection = reader(Collection)
_read_value = reader(RegistryValue)


class RegistryReads(Verbs):
    """Reads collections and values."""

    def collection(self, name: str) -> Collection | None:
        """Return a collection of any status, or None."""
        return self._one(_read_collection, "get_collection", collection=name)

    def collections(self) -> list[Collection]:
        """Return every collection of any status, ordered by name."""
        return self._all(_read_collection, "list_collections")

    def value_in_force(self, operation_code: str, protocol_version: str) -> RegistryValue | None:
        """Return a value whose status is in force, or None; its state may be superseded or retired."""
        named = {"operation_code": operation_code, "protocol_version": protocol_version}
        return self._one(_read_value, "value_in_force", **named)

    def values_in_force(self, collection: str | None = None) -> list[RegistryValue]:
        """Return the values whose status is in force, of any state, ordered by code, oldest first."""
        return self._all(_read_value, "values_in_force", collection=collection)

    def value(self, operation_code: str, protocol_version: str) -> RegistryValue | None:
        """Return a value of any status, or None: for builds and inspection, not for choosing an operation."""
        named = {"operation_code": operation_code, "protocol_version": protocol_version}
        return self._one(_read_value, "get_value", **named)

    def values(
        self,
        *,
        collection: str | None = None,
        operation_code: str | None = None,
        status: str | None = None,
        state: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[RegistryValue]:
        """Return a page of values of any status, in the order of their admission."""
        return self._all(
            _read_value,
            "list_values",
            collection=collection,
            operation_code=operation_code,
            status=status,
            state=state,
            after=after,
            n=limit,
        )

    def value_named(self, vocab_id: str) -> RegistryValue | None:
        """Return the value with a vocab_id, of any status, or None."""
        return self._one(_read_value, "value_named", vocab_id=vocab_id)

    def successions(self) -> dict[ValueName, ValueName]:
        """Return the successor of each superseded value."""
        return {ValueName(*row[:2]): ValueName(*row[2:]) for row in self._run("successions")}

    def operation_in_force(self, operation: str) -> str | None:
        """Return the version of an operation for new jobs; None if no version is in force."""
        return newest(version for (version,) in self._run("operation_in_force", operation=operation, within=OPERATIONS))

    def open_jobs_of(self, operation: str, version: str) -> int:
        """Return how many jobs of one version of an operation are pending, running or failed."""
        states = [JobState.PENDING, JobState.RUNNING, JobState.FAILED]
        [[n]] = self._run("open_jobs_of", operation=operation, version=version, states=encoded(states))
        return int(n)

    def values_without_grant(self, limit: int = 10) -> list[tuple[str, str]]:
        """Return code and version of values that were not admitted under a consumed grant."""
        return [(code, version) for code, version in self._run("values_without_grant", n=limit)]

    def values_without_approval(self, *, by_another: bool, limit: int = 10) -> list[tuple[str, str]]:
        """Return code and version of values whose grant has no approval; with `by_another`, none by another person."""
        rows = self._run("values_without_approval", by_another=by_another, under='"method":"grant"', n=limit)
        return [(code, version) for code, version in rows]


class RegistryWrites(RegistryReads, MovingVerbs):
    """Adds collections and values, and changes their status and state."""

    def stage_collection(self, name: str, schema: str, schema_digest: str, *, run_id: int) -> bool:
        """Record a new collection as staged; return False if the name is taken."""
        rows = self._run(
            "insert_collection",
            collection=name,
            schema=schema,
            schema_digest=schema_digest,
            status=RegistryStatus.STAGED,
            run_id=run_id,
            now=self._store.time_parameter(),
        )
        return bool(rows)

    def place_collection(
        self, collection: Collection, status: RegistryStatus, *, run_id: int, manifest_digest: str | None = None
    ) -> bool:
        """Set the status of a collection, matching the one that was read; return False if it has changed."""
        rows = self._run(
            "place_collection",
            collection=collection.collection,
            was=collection.status,
            status=status,
            run_id=run_id,
            manifest_digest=manifest_digest,
            now=self._store.time_parameter(),
        )
        return bool(rows)

    def admit(
        self,
        collection: str,
        value: Value,
        *,
        status: RegistryStatus,
        grant_id: int | None,
        actor: str,
        reason: str | None,
        run_id: int | None = None,
        move_id: str | None = None,
    ) -> int:
        """Insert a value and return its id; needs the grant of a running build, or one that the same move consumes."""
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
            status=status,
            run_id=run_id,
            grant_id=grant_id,
            **self._birth(VALUE, "admit"),
            **self._signature(actor, reason, move_id),
        )
        return int(value_id)

    def place_values(self, values: Iterable[RegistryValue], was: RegistryStatus, status: RegistryStatus) -> int:
        """Set the status of those values whose status is still `was`; return how many were changed."""
        rows = encoded([value.value_id for value in values])
        now = self._store.time_parameter()
        return len(self._run("place_values", rows=rows, was=was, status=status, now=now))

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
        return self._move_one(
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

    def lock(self) -> None:
        """Lock the values against changes and new submits until this transaction ends; reads are possible."""
        self._run("lock_values")

    def require_in_force(self, submissions: Sequence[Submission]) -> None:
        """Raise RegistryError unless the operation of each submission is in force at its version."""
        wanted = {(s.operation, s.operation_version) for s in patterns(submissions) if s.operation != BUILT_IN}
        if not wanted:
            return
        rows = self._run("usable_values", rows=encoded(sorted(wanted)), within=OPERATIONS)
        refused = wanted - {(code, version) for code, version in rows}
        if refused:
            self._refuse_new([s for s in submissions if (s.operation, s.operation_version) in refused])

    def _refuse_new(self, submissions: Sequence[Submission]) -> None:
        """Raise RegistryError if a submission is new; one whose key already has a job is accepted."""
        keys = [(s.client, s.key) for s in submissions if s.key is not None]
        before = self._session.jobs.by_key(keys) if keys else {}
        new = {
            ValueName(s.operation, s.operation_version) for s in submissions if (s.client, s.key or "") not in before
        }
        if new:
            raise self._not_in_force(min(new))

    def _not_in_force(self, name: ValueName) -> RegistryError:
        collection = self.collection(OPERATIONS)
        context: dict[str, object] = {"operation": name.code, "version": name.version}
        if collection is None or collection.status != RegistryStatus.IN_FORCE:
            return RegistryError(
                f"the ledger is governed, but its registry of operations is not in force; {name} is refused",
                code=RegistryCode.VOCABULARY_ABSENT,
                next_step="Build the registry: `holdfast registry build --help`.",
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
                next_step="Use a version that is in force (`holdfast registry list`), or have this one added.",
                context=context,
            )
        successor = self._last_of_line(name)
        context["successor"] = None if successor is None else str(successor)
        then, next_step = f"it has no successor; {use}", None
        if successor is not None:
            last = self.value_in_force(successor.code, successor.version)
            usable = last is not None and last.state == ValueState.ACTIVE
            then = f"its successor is {successor}" + ("" if usable else ", which is not in force for new work either")
            next_step = f"Submit {successor} instead." if usable else None
        return RegistryError(
            f"{name} is {value.state} and cannot be used for new work: {then}",
            code=RegistryCode.RETIRED,
            next_step=next_step,
            context=context,
        )

    def _last_of_line(self, name: ValueName) -> ValueName | None:
        """Return the last value in the chain of successors; None if there is no successor."""
        follows, last = self.successions(), None
        while (after := follows.pop(last or name, None)) is not None:  # removed, so that a cycle ends too
            last = after
        return last
