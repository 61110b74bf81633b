"""Limits: how many jobs run at once, and how many start in a time, for a queue, an operation or a key.

    @ledger.operation(limit=1, limit_key="customer.id")   # one job of a customer at a time
    @ledger.operation(limit="100/minute")                  # at most 100 starts a minute
    @ledger.operation(limit={"running": 5, "rate": "10/s"})

    Limits(ledger).set("queue:mail", running=20, actor="ann", reason="the provider is slow")

A limit is a setting of the ledger: a whole fleet follows it, the command can change it, and every change is journalled.

Invariants: a limit is checked when it is declared or set; a declaration that has not changed does not undo what an
operator has set.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.errors import ArgumentsError, LimitInvalidError
from holdfast.core.limit_texts import checked, limit_of
from holdfast.core.limits import DEPTH, KEY, OPERATION, Limit
from holdfast.engine.operations import Operation
from holdfast.store.requests import Declared
from holdfast.store.transaction import Transaction

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger
    from holdfast.engine.operations import Call

PARTS = {"running", "rate", "burst"}


class Limits:
    """The limits of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def all(self) -> dict[str, Limit]:
        """Return the limits by their subject: queue:NAME, operation:NAME or key:OPERATION."""
        with self._ledger.store.reading() as reading:
            return reading.limits.rules()

    def set(
        self,
        subject: str,
        *,
        running: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
        path: str | None = None,
        actor: str = "local",
        reason: str,
    ) -> bool:
        """Set a limit for the jobs that wait and run now too; return whether it changed. Raise LimitInvalidError."""
        limit = checked(subject, limit_of(running=running, rate=rate, burst=burst, path=path))
        return self._ledger.perform(lambda tx: tx.limits.set(subject, limit, actor=actor, reason=reason))

    def remove(self, subject: str, *, actor: str = "local", reason: str) -> bool:
        """Remove a limit, and let the jobs go that wait for it; return False if there is none."""
        if subject.startswith(DEPTH) and subject in self.all():
            self._ledger.limit(subject.removeprefix(DEPTH), None, actor=actor, reason=reason)
            return True
        return self._ledger.perform(lambda tx: tx.limits.set(subject, None, actor=actor, reason=reason))

    def sweep(self) -> None:
        """Repair what a crash has left: workers do it by themselves, about once a second."""

        def write(transaction: Transaction) -> None:
            transaction.limits.sweep(whole=True)

        self._ledger.perform(write)


def declared_with(declared: Declared, operation: Operation[..., Any], limit: object, path: str | None) -> Declared:
    """Return the declaration of an operation with its limit; raise LimitInvalidError if it is wrong."""
    given = limit if isinstance(limit, Mapping) else {"rate" if isinstance(limit, str) else "running": limit}
    parts: dict[str, Any] = dict(given)
    if not parts.keys() <= PARTS:
        raise LimitInvalidError(
            f"{operation.name}: a limit has the parts running, rate and burst, not {sorted(map(str, parts))}.",
            context={"operation": operation.name, "argument": "limit"},
        )
    subject = f"{OPERATION if path is None else KEY}:{operation.name}"
    made = checked(subject, limit_of(**parts, path=path))
    if path is not None:
        _require_argument(operation, path)
    flow = {**(declared.flow or {}), "limits": {subject: msgspec.to_builtins(made)}}
    return msgspec.structs.replace(declared, flow=flow)


def _require_argument(operation: Operation[..., Any], path: str) -> None:
    """Raise LimitInvalidError if the handler has no such argument."""
    parameters = list(inspect.signature(operation.fn).parameters.values())[1:]
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return  # it takes any arguments: a submit says whether this one is there
    first = path.partition(".")[0]
    if first not in {parameter.name for parameter in parameters}:
        raise LimitInvalidError(
            f"{operation.name}: limit_key is {path!r}, and the handler has no argument {first!r}.",
            context={"operation": operation.name, "argument": "limit_key", "path": path},
        )


def require_key(call: Call, limits: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ArgumentsError if the arguments of a call have no value where a limit of its operation looks for one."""
    for limit in limits.values():
        path = limit.get("path")
        value: object = call.payload
        for name in path.split(".") if path else ():
            value = value.get(name) if isinstance(value, dict) else None
        if value is None:
            raise ArgumentsError(
                f"{call.operation}: the arguments have no value at {path!r}, by which its jobs are limited.",
                next_step=f"Pass {path}.",
                context={"operation": call.operation, "limit_key": path},
            )
