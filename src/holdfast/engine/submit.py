"""How a call becomes a submission: which handler checks its arguments, and at which version it is submitted.

Invariants: a call that names a version is submitted at that version or not at all; one that names none goes by the
newest handler that is declared here. Where a registry governs, the submit's own transaction judges: if it says that
another version is in force, a call that names none is made again for that one, provided that a handler of exactly that
version is declared here, or none of the name at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.digest import Json
from holdfast.core.errors import ArgumentsError, RegistryError, UnknownOperationError
from holdfast.engine.operations import Call, Operation
from holdfast.store import Admission, Declared, Submission, Transaction

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

KNOWN_S = 5.0  # for how long what other processes have declared is taken as known
_FIELDS = {"operation", "payload", "client", "key", "run_at", "priority", "queue", "version"}


class Calling:
    """Turns the calls of one process into submissions."""

    def __init__(self, ledger: Ledger, size_max: int) -> None:
        self._ledger = ledger
        self._size_max = size_max
        self._known_at = float("-inf")

    def made(self, call: Call | str, payload: Mapping[str, Json] | None, **settings: Any) -> Call:
        """Return a call, by its operation's name or with what is given besides, checked where a handler is here."""
        given = {name: value for name, value in settings.items() if value is not None}
        if isinstance(call, Call):
            if payload is not None:
                raise ArgumentsError("a call has its payload already")
            return msgspec.structs.replace(call, **given)
        arguments = dict(payload or {})
        _, checked = self._checked(call, given.get("version"), arguments)
        return Call(operation=call, payload=checked, **given)

    def told(self, call: Call | Mapping[str, Any]) -> Call:
        """Return a call that may have been given as a mapping."""
        if isinstance(call, Call):
            return call
        if "operation" not in call or not set(call) <= _FIELDS:
            raise ArgumentsError(f"a call given as a mapping has operation, and may have {', '.join(sorted(_FIELDS))}")
        rest = {name: value for name, value in call.items() if name not in ("operation", "payload")}
        return self.made(call["operation"], call.get("payload"), **rest)

    def admitted(
        self,
        calls: Sequence[Call],
        submit: Callable[[list[Submission]], list[Admission]],
        transaction: Transaction | None = None,
    ) -> list[Admission]:
        """Submit calls; again, where a registry has told of another version that calls without one can be made for."""
        told: set[object] = set()
        while True:
            try:
                return submit([self._submission(call, transaction, told) for call in calls])
            except RegistryError as error:
                if not self.learned(error):
                    raise
                told.add(error.context["operation"])

    def submissions(self, calls: Sequence[Call], transaction: Transaction | None = None) -> list[Submission]:
        """Return what the store takes, for each call."""
        return [self._submission(call, transaction) for call in calls]

    def learned(self, error: RegistryError) -> bool:
        """Take in which version a registry says is in force; tell whether that was new."""
        operation, version = error.context.get("operation"), error.context.get("in_force")
        hints = self._ledger.in_force
        if not isinstance(operation, str) or not isinstance(version, str) or hints.get(operation) == version:
            return False
        hints[operation] = version
        return True

    def _submission(self, call: Call, transaction: Transaction | None, told: Collection[object] = ()) -> Submission:
        here = self._ledger.operations
        newest = here.get(call.operation)
        if newest is not None:
            self._ledger.declare_new(transaction)
        if call.version is None and self._hinted(call.operation) not in (None, newest):
            # It was checked when it was made, but perhaps for another version.
            handler, payload = self._checked(call.operation, None, call.payload, told)
            call = msgspec.structs.replace(call, payload=payload)
        else:
            handler = newest if call.version is None else here.get(call.operation, call.version)
        declared = self._declared_elsewhere(call.operation) if handler is None else handler.declared
        return call.submission(declared, size_max=self._size_max)

    def _hinted(self, name: str) -> Operation[Any, Any] | None:
        """Return the handler of the version that a registry last told of, if exactly that one is here."""
        version = self._ledger.in_force.get(name)
        here = self._ledger.operations
        return here.get(name, version) if version is not None and version in here.versions(name) else None

    def _checked(
        self, name: str, version: str | None, arguments: dict[str, Json], told: Collection[object] = ()
    ) -> tuple[Operation[Any, Any] | None, dict[str, Json]]:
        """Return the handler that a call goes by, with the arguments as it takes them; or raise ArgumentsError."""
        here = self._ledger.operations
        hinted = self._hinted(name) if version is None else None
        if hinted is not None:
            try:
                return hinted, hinted.checked(arguments)
            except ArgumentsError:
                if name in told:
                    raise
                del self._ledger.in_force[name]  # a hint may be old: let the registry say it again
        handler = here.get(name, version)
        return handler, handler.checked(arguments) if handler else arguments

    def _declared_elsewhere(self, name: str) -> Declared:
        """Return what other processes have declared of an operation, read anew now and then: they are upgraded too."""
        store = self._ledger.opened_store()
        known = store.operations
        if (name not in known and not store.governed) or time.monotonic() - self._known_at > KNOWN_S:
            with store.reading() as reading:
                known.update(reading.operations.declared())
                governed = reading.governed
            self._known_at = time.monotonic()
            if name not in known and not governed:
                raise UnknownOperationError(
                    f"no process has declared the operation {name!r} to this ledger", context={"operation": name}
                )
        declared = known.get(name, Declared())
        # Where a registry governs it makes the operation known, and says which version is meant.
        return msgspec.structs.replace(declared, version=self._ledger.in_force.get(name, declared.version))
