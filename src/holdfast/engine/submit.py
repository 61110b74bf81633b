"""How a call becomes a submission: which handler checks its arguments, and at which version it is submitted.

Invariants: a call that names a version is submitted at that version or not at all; one that names none goes by the
newest handler that is declared here. Where a registry governs, the store's own submit decides: if it answers that
another version is in force, a call that names none is prepared again for that one, provided that a handler of exactly
that version is declared here, or none of the name at all. Nothing here writes; only `KnownOperations.refresh` reads.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core.digest import Json, payload_text
from holdfast.core.errors import ArgumentsError, RefusedError
from holdfast.core.guarded import guarded
from holdfast.engine.operations import Call, Given, Operation, Operations
from holdfast.store import Declared, Store, Submission
from holdfast.store.requests import ENGINE, patterns

KNOWN_S = 5.0  # for how long what other processes have declared is taken as known
FIELDS = frozenset(Call.__struct_fields__)


class KnownOperations:
    """What one process knows of a ledger's operations: its own handlers, and hints about all others."""

    def __init__(self, handlers: Operations, elsewhere: dict[str, Declared], size_max: int) -> None:
        self.handlers = handlers
        self.elsewhere = elsewhere  # by name, as any process has declared it
        self.in_force: dict[str, str] = {}  # by name, the version that the ledger's registry last gave
        self.size_max = size_max  # of a payload, in bytes
        self.governed = False
        self._read_at = float("-inf")

    def hinted(self, name: str, version: str | None) -> Operation[Any, Any] | None:
        """Return the handler of the version that is in force, if a call leaves that open and exactly it is here."""
        wanted = self.in_force.get(name) if version is None else None
        return self.handlers.get(name, wanted) if wanted and wanted in self.handlers.versions(name) else None

    def learn(self, error: RefusedError) -> bool:
        """Keep which version a registry says is in force; return whether that was new."""
        name, version = error.context.get("operation"), error.context.get("in_force")
        if not isinstance(name, str) or not isinstance(version, str) or self.in_force.get(name) == version:
            return False
        self.in_force[name] = version
        return True

    def refresh(self, store: Store[Any], calls: Sequence[Call]) -> None:
        """Read what other processes have declared, if a call needs it: now and then, because they are upgraded too."""
        get = self.handlers.get
        foreign = {call.operation for call in patterns(calls) if get(call.operation, call.version) is None}
        is_old = time.monotonic() - self._read_at > KNOWN_S
        if foreign and (is_old or not (store.governed or foreign <= self.elsewhere.keys())):
            with store.reading() as reading:
                self.elsewhere.update(reading.operations.declared())
                self.governed = reading.governed
            self._read_at = time.monotonic()

    def declared(self, name: str) -> Declared:
        """Return an operation that has no handler here, as another process has declared it."""
        if name not in self.elsewhere and not self.governed:
            from holdfast.engine.unfit import refuse_unknown  # noqa: PLC0415 - it is refused

            refuse_unknown(name, {*self.elsewhere, *(handler.name for handler in self.handlers)})
        declared = self.elsewhere.get(name, Declared())
        # Where a registry governs it makes the operation known, and gives the version.
        return msgspec.structs.replace(declared, version=self.in_force.get(name, declared.version))


@guarded
def call_of(call: Call | str, payload: Mapping[str, Json] | None, **settings: Any) -> Call:
    """Return a call, by its operation's name or with more settings."""
    given = {name: value for name, value in settings.items() if value is not None}
    if not isinstance(call, Call):
        return Call(operation=call, payload=Given(payload or ()), **given)
    if payload is not None:
        raise ArgumentsError("a Call has its own payload; do not pass another")
    return msgspec.structs.replace(call, **given)


@guarded
def call_from(call: Call | Mapping[str, Any]) -> Call:
    """Return a call that may be given as a mapping."""
    if isinstance(call, Call):
        return call
    if "operation" not in call or not call.keys() <= FIELDS:
        raise ArgumentsError(f"a call as a mapping needs operation; its fields are {', '.join(sorted(FIELDS))}")
    if type(call["operation"]) is str and type(call.get("payload")) is dict and None not in call.values():
        return Call(**{**call, "payload": Given(call["payload"])})
    rest = {name: value for name, value in call.items() if name not in ("operation", "payload")}
    return call_of(call["operation"], call.get("payload"), **rest)


@guarded
def prepare(call: Call, known: KnownOperations, confirmed: Collection[object] = ()) -> Submission:
    """Return what the store records for a call; `confirmed` are operations whose version the registry just gave.

    Its arguments are checked here if a handler is here: when it was made, that was perhaps for another version.
    """
    handler = known.handlers.found(call.operation, call.version)
    hinted = known.hinted(call.operation, call.version)
    if hinted is not None and hinted is not handler:
        try:
            return call.submission(hinted.declared, hinted.stored(call.payload, known.size_max))
        except ArgumentsError:
            if call.operation in confirmed:
                raise
            del known.in_force[call.operation]  # a hint may be old: the registry gives the version again
    if handler is not None:
        return call.submission(handler.declared, handler.stored(call.payload, known.size_max))
    return call.submission(known.declared(call.operation), payload_text(dict(call.payload), size_max=known.size_max))


def keyed(job_id: int, followups: Sequence[Submission]) -> list[Submission]:
    """Return the follow-ups of a job; each one without a key gets one of the job's own, `<job_id>/<n>`."""
    replace = msgspec.structs.replace
    return [
        replace(one, by_engine=True, **({} if one.key else {"client": ENGINE, "key": f"{job_id}/{n}"}))
        for n, one in enumerate(followups, start=1)
    ]
