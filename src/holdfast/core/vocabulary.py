"""The values of the registry: operation codes with a SemVer version, their digests, and the codes of refusals.

Invariants: two versions have equal precedence only if they are the same text; every refusal of the registry has a code
of `RegistryCode`; nothing here reads a clock or a ledger. The digests are `cser-v1`.
"""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID, uuid5

import msgspec

from holdfast.core.digest import Json, canonical, cser_digest
from holdfast.core.errors import RegistryError
from holdfast.core.governed import RegistryValue
from holdfast.core.protocol import Version, ranked

OPERATIONS = "operations"
"""The collection of the operations that a governed ledger accepts."""
BUILT_IN = "noop"
"""The operation that every ledger has, whatever its registry says."""
OPERATION = "operation"
"""The act type of the values in that collection."""

_NAMESPACE = UUID("8b0b1f0e-2f0a-5d0c-9d57-6c1f3b7f4e10")  # so that a value has the same id in every ledger


class RegistryStatus(StrEnum):
    """Whether a collection or a value is visible to `resolve`. Builds set it and take it back: it is not a state."""

    STAGED = "staged"
    IN_FORCE = "in force"
    WITHHELD = "withheld"


class RegistryCode(StrEnum):
    """Why the registry refuses: a closed set, in the order of the checks where several apply."""

    BAD_MODE = "REJECT_BAD_MODE"
    MISSING_PLAN = "REJECT_MISSING_PLAN"
    RUNTIME_OVERCLAIM = "VOCABULARY_RUNTIME_OVERCLAIM"
    VALUE_INJECTION = "REJECT_NON_GOVERNED_VALUE_INJECTION"
    AUTHORITY_ABSENT = "AUTH_ABSENT"
    BAD_VERSION = "REJECT_BAD_PROTOCOL_VERSION"
    DUPLICATE_VALUE = "DUPLICATE_VERSIONED_VALUE"
    WRONG_FOR_EFFECT = "WRONG_CANONICAL_OPERATION_FOR_EFFECT"
    MANIFEST_HASH_MISMATCH = "REJECT_MANIFEST_HASH_MISMATCH"
    PRODUCTION_TARGET = "REJECT_PRODUCTION_TARGET"
    WRONG_CARRIER = "REJECT_WRONG_CARRIER"
    WRITE_ONCE = "C1_WRITE_ONCE_VIOLATED"
    RETIRED = "CANONICAL_OPERATION_RETIRED_FOR_NEW_USE"
    CROSS_MUTATION = "REJECT_C2_CROSS_MUTATION"
    REAL_RUN_BLOCKED = "C1_PROD_REAL_RUN_BLOCKED"
    AUDIT_SINK_UNSOUND = "AUDIT_SINK_UNSOUND"
    DIGEST_MISMATCH = "MANIFEST_DIGEST_MISMATCH"
    VOCABULARY_ABSENT = "CANONICAL_OPERATION_VOCABULARY_REQUIRED_NOT_PRESENT"
    VALUE_ABSENT = "CANONICAL_OPERATION_VALUE_ABSENT"
    TARGET_UNVERSIONED = "ROLLBACK_TARGET_UNVERSIONED"
    ORPHANS_JOBS = "ROLLBACK_ORPHANS_DEPENDENCY"


NEXT_STEPS = {
    RegistryCode.BAD_MODE: "Use PLAN_ONLY, VERIFY_ONLY, DRY_RUN or REAL_RUN.",
    RegistryCode.MISSING_PLAN: "Write a manifest with values: `holdfast registry draft --help`.",
    RegistryCode.BAD_VERSION: "Write the version as SemVer without build metadata: 1.0.0 or 2.0.0-rc.1.",
    RegistryCode.WRONG_FOR_EFFECT: "Supersede the old version by the new one: `holdfast registry supersede --help`.",
    RegistryCode.MANIFEST_HASH_MISMATCH: "Compare the manifest with the one that was agreed on.",
    RegistryCode.PRODUCTION_TARGET: 'If the manifest is for this ledger, set "environment": "prod" in it.',
    RegistryCode.WRITE_ONCE: "Give the changed value a new protocol version.",
    RegistryCode.CROSS_MUTATION: "Build the value in its own collection, and finish the other run first.",
    RegistryCode.REAL_RUN_BLOCKED: "Lift the hold under a grant: `holdfast registry hold off --help`.",
    RegistryCode.TARGET_UNVERSIONED: "Name a version in the contract: CODE@VERSION. `holdfast registry list` has them.",
    RegistryCode.ORPHANS_JOBS: "Let the jobs end, or cancel them: `holdfast jobs`.",
    RegistryCode.AUDIT_SINK_UNSOUND: "Find the difference: `holdfast audit verify`.",
}


def refusal(code: RegistryCode, message: str, **context: object) -> RegistryError:
    """Return the error for a refusal of the registry, with the next step for its code."""
    return RegistryError(message, code=code, next_step=NEXT_STEPS.get(code), context=context)


# ---------------------------------------------------------------------------------------------------------------------
# Versions


def shown(value: Json) -> str:
    """Return a value of a manifest for a message: a quoted and shortened text, or the type of anything else."""
    return repr(value)[:80] if isinstance(value, str) else type(value).__name__


def precedence(text: Json, **context: object) -> Version:
    """Return a version in comparable form, or raise RegistryError: build metadata is refused, it has no precedence."""
    version = ranked(text) if isinstance(text, str) else None
    if version is None:
        raise refusal(RegistryCode.BAD_VERSION, f"{shown(text)} is not a protocol version.", **context)
    return version


# ---------------------------------------------------------------------------------------------------------------------
# Values


class ValueName(msgspec.Struct, frozen=True, order=True):
    """The name of a value: `CODE@VERSION`."""

    code: str
    version: str

    def __str__(self) -> str:
        return f"{self.code}@{self.version}"

    @classmethod
    def parsed(cls, text: str) -> ValueName | None:
        """Return the name that a text spells; None if the code or the version is missing."""
        code, _, version = text.partition("@")
        return cls(code, version) if code.strip() and version.strip() else None

    @classmethod
    def of(cls, row: RegistryValue) -> ValueName:
        """Return the name of a stored value."""
        return cls(row.operation_code, row.protocol_version)


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A value of the registry: an operation code at a protocol version, and its frozen semantics."""

    operation_code: str
    protocol_version: str
    act_type: str
    governing_authority_ref: str
    semantics_frozen: Json

    @property
    def key(self) -> tuple[str, str]:
        """Return the code and the version, which are unique together."""
        return self.operation_code, self.protocol_version

    @property
    def name(self) -> str:
        """Return the name, CODE@VERSION."""
        return f"{self.operation_code}@{self.protocol_version}"

    @property
    def rank(self) -> tuple[str, Version]:
        """Return the sort key in a manifest: the code, then the version."""
        return self.operation_code, precedence(self.protocol_version)

    @property
    def fields(self) -> dict[str, Json]:
        """Return the fields that the digest covers."""
        return msgspec.structs.asdict(self)

    @property
    def digest(self) -> str:
        """Return its `cser-v1` digest."""
        return cser_digest(self.fields)

    @property
    def semantics_text(self) -> str:
        """Return the semantics as canonical JSON, as they are stored."""
        return canonical(self.semantics_frozen)


def stored_value(row: RegistryValue) -> Value:
    """Return the value that a row of the registry holds."""
    try:
        semantics = msgspec.json.decode(row.semantics)
    except msgspec.DecodeError:
        semantics = row.semantics  # the row was changed by hand: its digest will not match
    return Value(
        operation_code=row.operation_code,
        protocol_version=row.protocol_version,
        act_type=row.act_type,
        governing_authority_ref=row.authority_ref,
        semantics_frozen=semantics,
    )


def vocab_id(collection: str, operation_code: str, protocol_version: str) -> str:
    """Return the id of a value: the same in every ledger, different for every other value."""
    return str(uuid5(_NAMESPACE, canonical([collection, operation_code, protocol_version])))
