"""Overlays: files that set the limits of replay for one environment.

Invariants: only the declared limits can be set; in prod an overlay can make a limit stricter and never weaker; sections
that belong to an application are accepted and not read.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.cli.documents import Tree, converted, invalid, load_tree, require_kind, require_values
from holdfast.core.environments import ENVIRONMENTS
from holdfast.core.selection import COUNT_MAX
from holdfast.governance.replay.guards import ReplayPolicy, policy_of

# A field of `replay_defaults` (a rate is below `rate_limits`) and the field of the policy that it sets.
LIMITS = {
    "max_selection_records": "max_selection_records",
    "max_batch_size": "max_batch_size",
    "max_batches": "max_batches",
    "rate_limits.max_records_per_second": "max_records_per_second",
    "rate_limits.max_batches_per_minute": "max_batches_per_minute",
}


class OverlayMetadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The metadata of an overlay."""

    env: str
    name: str | None = None
    description: str | None = None
    labels: dict[str, str] = {}


class _Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_records_per_second: float | None = None
    max_batches_per_minute: float | None = None


class _Defaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_attempts: int | None = None
    max_selection_records: int | None = None
    max_batch_size: int | None = None
    max_batches: int | None = None
    rate_limits: _Rates = _Rates()


class _Flags(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allow_global_replay: bool | None = None
    kill_switch_defaults: dict[str, bool] = {}


class OverlayDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"api_version": "apiVersion"}):
    """An overlay file. An application may derive from it to add sections of its own."""

    api_version: str
    kind: str
    metadata: OverlayMetadata
    replay_defaults: _Defaults = _Defaults()
    safety_flags: _Flags = _Flags()


class OverlayFormat(NamedTuple):
    """How a program writes its overlays."""

    api_version: str
    kind: str
    document: type[OverlayDocument] = OverlayDocument


HOLDFAST_OVERLAY = OverlayFormat("holdfast.env/v1", "EnvOverlay")


class Overlay(NamedTuple):
    """The limits that an overlay sets."""

    env: str
    policy: ReplayPolicy
    attempts_max: int | None  # jobs with more attempts than this are not replayed
    stopped: frozenset[str]  # queues whose kill switch is on by default


def load_overlay(path: Path, format_: OverlayFormat = HOLDFAST_OVERLAY) -> Overlay:
    """Read an overlay, or raise SpecInvalidError."""
    return overlay_of(load_tree(path), format_)


def overlay_of(tree: Tree, format_: OverlayFormat = HOLDFAST_OVERLAY) -> Overlay:
    """Return the overlay in a document, or raise SpecInvalidError."""
    require_kind(tree, format_.api_version, format_.kind)
    require_values(tree, "metadata.labels", str, "the label must be text; write it in quotes")
    require_values(tree, "safety_flags.kill_switch_defaults", bool, "the switch must be true or false")
    document = converted(tree, format_.document)
    env = document.metadata.env
    if env not in ENVIRONMENTS:
        raise invalid("metadata.env", f"{env!r} is not an environment; use one of {', '.join(ENVIRONMENTS)}")
    flags, defaults = document.safety_flags, document.replay_defaults
    if env == "prod" and flags.allow_global_replay:
        raise invalid("safety_flags.allow_global_replay", "in prod it must be false")
    most = defaults.max_attempts
    if most is not None and not 1 <= most <= COUNT_MAX:
        raise invalid("replay_defaults.max_attempts", f"{most} is not in the range 1 to {COUNT_MAX}")
    return Overlay(
        env,
        _overridden(policy_of(env), defaults, flags),
        # A job that has used as many attempts is not replayed.
        None if most is None else most - 1,
        frozenset(queue for queue, on in flags.kill_switch_defaults.items() if on),
    )


def _overridden(policy: ReplayPolicy, defaults: _Defaults, flags: _Flags) -> ReplayPolicy:
    changes: dict[str, Any] = {}
    for field, limit in LIMITS.items():
        section, _, rate = field.rpartition(".")
        value = getattr(defaults.rate_limits if section else defaults, rate)
        if value is None:
            continue
        path, present = f"replay_defaults.{field}", getattr(policy, limit)
        if not (math.isfinite(value) and 0 < value <= COUNT_MAX):
            raise invalid(path, f"{value:g} is not a number above 0")
        if policy.environment == "prod" and value > present:
            raise invalid(path, f"in prod the limit cannot be higher than {present:g}")
        changes[limit] = value
    if "max_batch_size" in changes:
        changes["batch_size"] = min(policy.batch_size, changes["max_batch_size"])
    if flags.allow_global_replay is not None:
        changes["allow_global_replay"] = flags.allow_global_replay
    return msgspec.structs.replace(policy, **changes)
