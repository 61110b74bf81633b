"""Overlays of an environment: files that set the limits of replay, and nothing that was not declared.

Invariants: only what is declared here can be overridden; in prod an overlay can tighten a limit and never loosen one;
the sections that belong to the application are taken as they are and not read.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.cli.documents import converted, invalid, load_tree, require_kind, require_values
from holdfast.core.environments import ENVIRONMENTS
from holdfast.core.selection import COUNT_MAX
from holdfast.governance.replay.guards import ReplayPolicy, policy_of

API_VERSION = "kfm.nodd.env/v1alpha1"
KIND = "NoddEnvOverlay"
# A field of `replay_defaults` (a rate is below `rate_limits`) and the limit of the policy that it sets.
LIMITS = {
    "max_selection_records": "max_selection_records",
    "max_batch_size": "max_batch_size",
    "max_batches": "max_batches",
    "rate_limits.max_records_per_second": "max_records_per_second",
    "rate_limits.max_batches_per_minute": "max_batches_per_minute",
}


class _Metadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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


class _Overlay(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"api_version": "apiVersion"}):
    api_version: str
    kind: str
    metadata: _Metadata
    replay_defaults: _Defaults = _Defaults()
    safety_flags: _Flags = _Flags()
    sns: dict[str, Any] = {}
    sqs: dict[str, Any] = {}
    telemetry: dict[str, Any] = {}
    governance: dict[str, Any] = {}


class Overlay(NamedTuple):
    """What an overlay says about replay."""

    env: str
    policy: ReplayPolicy
    attempts_max: int | None  # of a job that may still be replayed
    stopped: frozenset[str]  # datasets whose kill switch is on unless somebody says otherwise


def load_overlay(path: Path) -> Overlay:
    """Read an overlay, or raise SpecInvalidError."""
    return overlay_of(load_tree(path))


def overlay_of(tree: dict[str, Any]) -> Overlay:
    """Return what a document overrides, or raise SpecInvalidError."""
    require_kind(tree, API_VERSION, KIND)
    require_values(tree, "metadata.labels", str, "a label is text: put it in quotes")
    require_values(tree, "safety_flags.kill_switch_defaults", bool, "a switch is true or false")
    told = converted(tree, _Overlay)
    env = told.metadata.env
    if env not in ENVIRONMENTS:
        raise invalid("metadata.env", f"the environment is one of {', '.join(ENVIRONMENTS)}")
    flags, defaults = told.safety_flags, told.replay_defaults
    if env == "prod" and flags.allow_global_replay:
        raise invalid("safety_flags.allow_global_replay", "in prod a replay always names what it is about")
    most = defaults.max_attempts
    if most is not None and not 1 <= most <= COUNT_MAX:
        raise invalid("replay_defaults.max_attempts", "it is a whole number above 0")
    return Overlay(
        env,
        _overridden(policy_of(env), defaults, flags),
        # A job that has spent as many is never replayed.
        None if most is None else most - 1,
        frozenset(dataset for dataset, on in flags.kill_switch_defaults.items() if on),
    )


def _overridden(policy: ReplayPolicy, defaults: _Defaults, flags: _Flags) -> ReplayPolicy:
    changes: dict[str, Any] = {}
    for field, limit in LIMITS.items():
        section, _, rate = field.rpartition(".")
        value = getattr(defaults.rate_limits if section else defaults, rate)
        if value is None:
            continue
        path, standing = f"replay_defaults.{field}", getattr(policy, limit)
        if not (math.isfinite(value) and 0 < value <= COUNT_MAX):
            raise invalid(path, "it is a number above 0")
        if policy.environment == "prod" and value > standing:
            raise invalid(path, f"in prod a limit can be tightened, not loosened: it stands at {standing}")
        changes[limit] = value
    if "max_batch_size" in changes:
        changes["batch_size"] = min(policy.batch_size, changes["max_batch_size"])
    if flags.allow_global_replay is not None:
        changes["allow_global_replay"] = flags.allow_global_replay
    return msgspec.structs.replace(policy, **changes)
