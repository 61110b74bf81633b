"""What a call says about unique work, deadlines and the jobs that it follows, and what the store needs of it.

    @ledger.operation(unique="active")                                  # one pending or running job of equal arguments
    @ledger.operation(unique={"window_s": 3600, "by": ["customer.id"]})  # one job an hour for a customer
    ledger.submit(refresh.call(page=7), deadline_s=60)                  # not needed after a minute
    ledger.submit(publish.call(), after=[receipt])                      # when the job of the receipt has succeeded

All of it is data: an operation's settings are stored in the ledger, so a submit by name follows them too.

Invariants: a setting is checked when it is declared or submitted; equal arguments give equal scopes in every process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.digest import payload_text, sha256
from holdfast.core.errors import FlowInvalidError
from holdfast.store.requests import Declared
from holdfast.store.verbs.flow import POLICIES, WAIT, Flow

if TYPE_CHECKING:
    from holdfast.engine.operations import Call

ACTIVE = "active"
SECONDS_MAX = 366 * 86_400.0
BY_MAX = 16
PARENTS_MAX = 1000


class Unique(msgspec.Struct, frozen=True, omit_defaults=True):
    """How jobs of one operation are unique: while one is active, or within a window; by all arguments, or by some."""

    window_s: float | None = None
    by: tuple[str, ...] = ()

    def scope(self, operation: str, payload: Mapping[str, Any]) -> str:
        """Return the scope of a call: the operation, and the digest of the arguments that count."""
        values = {path: _at(payload, path) for path in self.by} if self.by else payload
        return f"{operation} {sha256(payload_text(dict(values)))}"


def declared_with(declared: Declared, unique: object, deadline_s: float | None) -> Declared:
    """Return a declaration with these settings; raise FlowInvalidError if one of them is wrong."""
    flow: dict[str, Any] = {}
    if unique is not None:
        flow["unique"] = msgspec.to_builtins(unique_of(unique))
    if deadline_s is not None:
        flow["deadline_s"] = _seconds("deadline_s", deadline_s)
    return msgspec.structs.replace(declared, flow=flow)


def flow_of(call: Call, declared: Declared) -> Flow:
    """Return what the store needs of a call; what the call does not set, its operation does."""
    defaults = declared.flow or {}
    given = defaults.get("unique") if call.unique is None else call.unique
    unique = None if given is None else unique_of(given)
    if call.deadline_at is not None and call.deadline_s is not None:
        raise _refusal("deadline_twice", "Give deadline_at or deadline_s, not both.")
    if call.if_unsuccessful is not None and call.after is None:
        raise _refusal("policy_without_after", "if_unsuccessful is about the jobs in after; give both, or neither.")
    deadline_s = call.deadline_s
    if deadline_s is None and call.deadline_at is None:
        deadline_s = defaults.get("deadline_s")
    return Flow(
        scope=None if unique is None else unique.scope(call.operation, call.payload),
        window_s=None if unique is None else unique.window_s,
        deadline_at=_moment(call.deadline_at),
        deadline_s=None if deadline_s is None else _seconds("deadline_s", deadline_s),
        after=() if call.after is None else parents_of(call.after),
        policy=policy_of(call.if_unsuccessful),
    )


def parents_of(given: Sequence[Any]) -> tuple[int, ...]:
    """Return the ids of jobs that are given as receipts or ids; raise FlowInvalidError."""
    found = tuple(dict.fromkeys(getattr(one, "job_id", one) for one in given))
    if not all(isinstance(one, int) and not isinstance(one, bool) and one.bit_length() < 64 for one in found):
        raise _refusal("parent_unknown", "after must be a list of receipts or ids of jobs.")
    if not 0 < len(found) <= PARENTS_MAX:
        raise _refusal(
            "parents_out_of_range",
            f"after must name from 1 to {PARENTS_MAX} jobs; for more, use ledger.batch(…, then=…).",
        )
    return found


def policy_of(given: str | None) -> str:
    """Return what happens if a job that is waited for does not succeed; raise FlowInvalidError."""
    if given is not None and given not in POLICIES:
        raise _refusal("policy_unknown", f"if_unsuccessful must be one of {', '.join(POLICIES)}.")
    return given or WAIT


def unique_of(given: object) -> Unique:
    """Return how work is unique: "active", or a mapping with `window_s` and `by`; raise FlowInvalidError."""
    if given == ACTIVE:
        return Unique()
    if not isinstance(given, Mapping) or not given.keys() <= {"window_s", "by"}:
        raise _refusal("unique_unknown", 'unique must be "active", or a mapping with window_s and by.')
    window_s, by = given.get("window_s"), given.get("by", ())
    known = isinstance(by, Sequence) and not isinstance(by, str) and len(by) <= BY_MAX
    if not known or not all(isinstance(path, str) and path for path in by):
        raise _refusal("unique_unknown", f"by must be a list of at most {BY_MAX} paths into the arguments.")
    return Unique(None if window_s is None else _seconds("window_s", window_s), tuple(by))


def _seconds(name: str, given: object) -> float:
    is_number = isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given)
    if not is_number or not 0 < given <= SECONDS_MAX:  # type: ignore[operator]  # it is a number
        raise _refusal("seconds_out_of_range", f"{name} must be greater than 0 and at most 366 days, in seconds.")
    return float(given)  # type: ignore[arg-type]  # it is a number


def _moment(at: datetime | None) -> datetime | None:
    if at is not None and at.tzinfo is None:
        raise _refusal("deadline_without_zone", "deadline_at needs a time zone, such as datetime.now(UTC).")
    return at


def _at(payload: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path such as `customer.id`; raise FlowInvalidError if the arguments have none."""
    found: Any = payload
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            raise _refusal("path_not_found", f"The arguments have nothing at {path!r}.", path=path)
        found = found[name]
    return found


def _refusal(code: str, message: str, **context: object) -> FlowInvalidError:
    return FlowInvalidError(message, context={"refusal": code, **context})
