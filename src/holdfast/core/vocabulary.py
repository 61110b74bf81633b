"""What the registry governs: values with a SemVer version, the digests that tell them apart, and why it refuses.

Invariants: two versions are never of equal rank unless they are the same text; every refusal of the registry is one of
`RegistryCode`; nothing here reads a clock or a ledger. The digests are `cser-v1`.
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
"""The collection that says which operations a governed ledger takes."""
OPERATION = "operation"
"""What the values of that collection are: their act_type."""

_NAMESPACE = UUID("8b0b1f0e-2f0a-5d0c-9d57-6c1f3b7f4e10")  # the same value has the same id in every ledger


class RegistryStatus(StrEnum):
    """Whether a collection or a value may be seen by whoever resolves. Not a state: a build places, and takes back."""

    STAGED = "staged"
    IN_FORCE = "in force"
    WITHHELD = "withheld"


class RegistryCode(StrEnum):
    """Why the registry refuses: a closed set. The order is the order of the checks, where several would apply."""

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


_NEXT_STEPS = {
    RegistryCode.BAD_MODE: "Use PLAN_ONLY, VERIFY_ONLY, DRY_RUN or REAL_RUN.",
    RegistryCode.MISSING_PLAN: "List the values: `holdfast registry draft --app MODULE:LEDGER` writes a manifest.",
    RegistryCode.BAD_VERSION: "Write it as SemVer: 1.0.0, or 2.0.0-rc.1; no build metadata.",
    RegistryCode.WRONG_FOR_EFFECT: "Let the new version follow the old one: `holdfast registry supersede --help`.",
    RegistryCode.MANIFEST_HASH_MISMATCH: "Look at the manifest again: it is not the one that was agreed on.",
    RegistryCode.PRODUCTION_TARGET: 'Write "environment": "prod" into the manifest if it is meant for this ledger.',
    RegistryCode.WRITE_ONCE: "Give the changed value a new protocol version.",
    RegistryCode.CROSS_MUTATION: "Build it in its own collection, and finish what another run has begun there.",
    RegistryCode.REAL_RUN_BLOCKED: "Lift the hold under a grant: `holdfast registry hold off --help`.",
    RegistryCode.AUDIT_SINK_UNSOUND: "See what differs with `holdfast audit verify`.",
}


def refusal(code: RegistryCode, message: str, **context: object) -> RegistryError:
    """Return the error for something that the registry refuses."""
    return RegistryError(message, code=code, next_step=_NEXT_STEPS.get(code), context=context)


# ---------------------------------------------------------------------------------------------------------------------
# Versions


def shown(value: Json) -> str:
    """Return a value of a manifest for a message: a text in quotes and not too long, of anything else its type."""
    return repr(value)[:80] if isinstance(value, str) else type(value).__name__


def precedence(text: Json, **context: object) -> Version:
    """Return a version as what it ranks by, or raise RegistryError. Build metadata is refused: it would not rank."""
    version = ranked(text) if isinstance(text, str) else None
    if version is None:
        raise refusal(RegistryCode.BAD_VERSION, f"{shown(text)} is not a protocol version", **context)
    return version


# ---------------------------------------------------------------------------------------------------------------------
# Values


class ValueName(msgspec.Struct, frozen=True, order=True):
    """A value by what it is known by: `CODE@VERSION`."""

    code: str
    version: str

    def __str__(self) -> str:
        return f"{self.code}@{self.version}"

    @classmethod
    def parsed(cls, text: str) -> ValueName | None:
        """Return the value that a text names; None if it names none, or no version of it."""
        code, _, version = text.partition("@")
        return cls(code, version) if code.strip() and version.strip() else None

    @classmethod
    def of(cls, row: RegistryValue) -> ValueName:
        """Return what a row of the registry is known by."""
        return cls(row.operation_code, row.protocol_version)


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """One governed value: an operation code at a protocol version, and what is frozen about it."""

    operation_code: str
    protocol_version: str
    act_type: str
    governing_authority_ref: str
    semantics_frozen: Json

    @property
    def key(self) -> tuple[str, str]:
        """Return what no other value has."""
        return self.operation_code, self.protocol_version

    @property
    def name(self) -> str:
        """Return it as people write it."""
        return f"{self.operation_code}@{self.protocol_version}"

    @property
    def rank(self) -> tuple[str, Version]:
        """Return where it stands in a manifest: by code, then by version."""
        return self.operation_code, precedence(self.protocol_version)

    @property
    def fields(self) -> dict[str, Json]:
        """Return what its digest is made of."""
        return msgspec.structs.asdict(self)

    @property
    def digest(self) -> str:
        """Return its `cser-v1` digest."""
        return cser_digest(self.fields)

    @property
    def semantics_text(self) -> str:
        """Return its semantics as they are stored."""
        return canonical(self.semantics_frozen)


def stored_value(row: RegistryValue) -> Value:
    """Return the value that a row of the registry tells of."""
    try:
        semantics = msgspec.json.decode(row.semantics)
    except msgspec.DecodeError:
        semantics = row.semantics  # somebody changed it behind our back: the digest will say so
    return Value(
        operation_code=row.operation_code,
        protocol_version=row.protocol_version,
        act_type=row.act_type,
        governing_authority_ref=row.authority_ref,
        semantics_frozen=semantics,
    )


def vocab_id(collection: str, operation_code: str, protocol_version: str) -> str:
    """Return the id of a value: the same in every ledger, and never given to another."""
    return str(uuid5(_NAMESPACE, canonical([collection, operation_code, protocol_version])))
