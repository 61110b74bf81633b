"""What the registry governs: values with a SemVer version, manifests of them, and the digests that tell them apart.

`read_manifest` turns what somebody wrote into a `Manifest`, or refuses it with one code. The digests are `cser-v1`.

Invariants: a value and a manifest are checked once, where they are made; equal manifests have equal digests, in
whatever order they were written; two versions are never of equal rank unless they are the same text; every refusal of
the registry is one of `RegistryCode`; nothing here reads a clock or a ledger.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

import msgspec

from holdfast.core.digest import Json, canonical, cser_digest
from holdfast.core.environments import ENVIRONMENTS
from holdfast.core.errors import RegistryError, SpecInvalidError
from holdfast.core.protocol import Version, ranked
from holdfast.core.records import RegistryValue

OPERATIONS = "operations"
"""The collection that says which operations a governed ledger takes."""
OPERATION = "operation"
"""What the values of that collection are: their act_type."""

WORD_CHARACTERS_MAX = 200
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


def precedence(text: Json, **context: object) -> Version:
    """Return a version as what it ranks by, or raise RegistryError. Build metadata is refused: it would not rank."""
    version = ranked(text) if isinstance(text, str) else None
    if version is None:
        raise refusal(RegistryCode.BAD_VERSION, f"{_shown(text)} is not a protocol version", **context)
    return version


# ---------------------------------------------------------------------------------------------------------------------
# Values


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


# ---------------------------------------------------------------------------------------------------------------------
# Manifests


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a build is to put in force: a collection, what its values look like, and the values, in order."""

    collection: str
    environment: str | None
    act_types: tuple[str, ...]
    values: tuple[Value, ...]

    @property
    def schema(self) -> dict[str, Json]:
        """Return what a value of this collection looks like, and what is true of all of them."""
        return {
            "act_types": list(self.act_types),
            "fields": list(Value.__struct_fields__),
            "key": ["operation_code", "protocol_version"],
            "one_active_for_each": ["operation_code", "act_type"],
            "version": "semver",
            "write_once": list(Value.__struct_fields__),
        }

    @property
    def schema_text(self) -> str:
        """Return the schema as a collection keeps it."""
        return canonical(self.schema)

    @property
    def schema_digest(self) -> str:
        """Return the `cser-v1` digest of the schema."""
        return cser_digest(self.schema)

    @property
    def digest(self) -> str:
        """Return the `cser-v1` digest of the whole: of the schema, and of every value in the order of their codes."""
        return cser_digest(
            {
                "collection": self.collection,
                "environment": self.environment,
                "schema": self.schema_digest,
                "values": [value.digest for value in self.values],
            }
        )

    @property
    def text(self) -> dict[str, Json]:
        """Return it as it may be written down: what `read_manifest` reads."""
        return {
            "collection": self.collection,
            "environment": self.environment,
            "act_types": list(self.act_types),
            "values": [value.fields for value in self.values],
        }

    def with_values(self, values: Iterable[Value]) -> Manifest:
        """Return a manifest that has other values, and else is the same."""
        return msgspec.structs.replace(self, values=tuple(sorted(values, key=lambda value: value.rank)))


_FIELDS = {"collection", "environment", "act_types", "values", "manifest_digest", "cser"}
_CLAIMS = {"state", "status", "standing", "in_force", "vocab_id"}


def read_manifest(told: Json) -> Manifest:
    """Return the manifest that was written, or refuse it: SpecInvalidError for its shape, else one RegistryError."""
    if not isinstance(told, dict):
        raise SpecInvalidError("a manifest is a mapping", context={"path": "$"})
    for field in sorted(set(told) - _FIELDS, key=str):
        raise _invalid(str(field), "a manifest has no such field")
    if told.get("cser", "v1") != "v1":
        raise _invalid("cser", "only v1 is known")
    collection = _word(told.get("collection", OPERATIONS), "collection")
    environment = told.get("environment")
    if environment is not None and environment not in ENVIRONMENTS:
        raise _invalid("environment", "it is dev, stage or prod")
    listed = told.get("values")
    if listed is None or listed == []:
        raise refusal(RegistryCode.MISSING_PLAN, "the manifest lists no values: there is nothing to build")
    if not isinstance(listed, list):
        raise _invalid("values", "it is a list")
    values = [_value(item, f"values[{index}]") for index, item in enumerate(listed)]
    _refuse_twins(values)
    manifest = Manifest(
        collection=collection, environment=environment, act_types=_act_types(told, collection, values), values=()
    ).with_values(values)
    require_digest(manifest, told.get("manifest_digest"))
    return manifest


def require_digest(manifest: Manifest, expected: Json) -> None:
    """Raise RegistryError unless this is the manifest that somebody has agreed on."""
    if expected is not None and expected != manifest.digest:
        raise refusal(
            RegistryCode.MANIFEST_HASH_MISMATCH,
            f"the manifest has the digest {manifest.digest}, and not {_shown(expected)}",
            digest=manifest.digest,
        )


def _value(told: Json, path: str) -> Value:
    if not isinstance(told, dict):
        raise _invalid(path, "a value is a mapping")
    for field in sorted(set(told) & _CLAIMS):
        raise refusal(
            RegistryCode.RUNTIME_OVERCLAIM,
            f"a manifest does not say what is in force: only a build puts a value there ({path}.{field})",
            path=f"{path}.{field}",
        )
    for field in sorted(set(told) - set(Value.__struct_fields__), key=str):
        raise refusal(
            RegistryCode.VALUE_INJECTION, f"{path}.{field} is nothing that the registry governs", path=f"{path}.{field}"
        )
    reference = told.get("governing_authority_ref")
    if reference is None or (isinstance(reference, str) and not reference.strip()):
        raise refusal(
            RegistryCode.AUTHORITY_ABSENT,
            f"{path} names nobody who answers for it",
            path=f"{path}.governing_authority_ref",
        )
    if "semantics_frozen" not in told:
        raise _invalid(f"{path}.semantics_frozen", "what the value means is missing; null says: nothing")
    code = _word(told.get("operation_code"), f"{path}.operation_code")
    act_type = _word(told.get("act_type", OPERATION), f"{path}.act_type")
    precedence(told.get("protocol_version"), path=f"{path}.protocol_version")
    semantics = msgspec.json.decode(canonical(told["semantics_frozen"]))  # what it will be read back as
    return Value(
        operation_code=code,
        protocol_version=told["protocol_version"],
        act_type=act_type,
        governing_authority_ref=_word(reference, f"{path}.governing_authority_ref"),
        semantics_frozen=semantics,
    )


def _refuse_twins(values: Iterable[Value]) -> None:
    seen: set[tuple[str, str]] = set()
    for value in values:
        if value.key in seen:
            raise refusal(RegistryCode.DUPLICATE_VALUE, f"{value.name} is listed twice", value=value.name)
        seen.add(value.key)
    for first, second in several_active(values):
        raise refusal(
            RegistryCode.WRONG_FOR_EFFECT,
            f"{first.name} and {second.name} cannot both be in force for {first.act_type}",
            value=second.name,
        )


def several_active(values: Iterable[Value]) -> Iterator[tuple[Value, Value]]:
    """Yield pairs of values that claim the same code and act: at most one of them may be active."""
    by_act: dict[tuple[str, str], Value] = {}
    for value in values:
        first = by_act.setdefault((value.operation_code, value.act_type), value)
        if first.key != value.key:
            yield first, value


def _act_types(told: Mapping[str, Json], collection: str, values: Iterable[Value]) -> tuple[str, ...]:
    listed = told.get("act_types")
    used = {value.act_type for value in values}
    if listed is None:
        known = {OPERATION} if collection == OPERATIONS else used
    elif isinstance(listed, list) and listed:
        known = {_word(item, f"act_types[{index}]") for index, item in enumerate(listed)}
    else:
        raise _invalid("act_types", "it is a list of words")
    for act_type in sorted(used - known):
        raise refusal(
            RegistryCode.WRONG_CARRIER, f"{collection} carries no values of the act type {act_type}", act_type=act_type
        )
    return tuple(sorted(known))


def _word(told: Json, path: str) -> str:
    if not isinstance(told, str) or not told.strip() or told != told.strip() or not told.isprintable():
        raise _invalid(path, "it is a word: printable text, not empty, without blanks around it")
    if len(told) > WORD_CHARACTERS_MAX:
        raise _invalid(path, f"it has more than {WORD_CHARACTERS_MAX} characters")
    if unicodedata.normalize("NFC", told) != told:
        raise _invalid(path, "it can be written in two ways that look alike: write it in NFC")
    return told


def _invalid(path: str, message: str) -> SpecInvalidError:
    return SpecInvalidError(f"{path}: {message}", context={"path": path})


def _shown(told: Any) -> str:
    return repr(told)[:80] if isinstance(told, str) else type(told).__name__


# ---------------------------------------------------------------------------------------------------------------------
# What must be true of the values of a registry


def successor_faults(rows: Iterable[RegistryValue]) -> list[str]:
    """Return what is wrong with who follows whom: nobody there, an older version, or a circle."""
    known = {(row.operation_code, row.protocol_version): row for row in rows}
    faults = []
    for key, row in known.items():
        name = f"{row.operation_code}@{row.protocol_version}"
        follower = _follower(row)
        if follower is None:
            if row.state == "superseded":
                faults.append(f"{name} is superseded, and nothing follows it")
            continue
        if follower not in known:
            faults.append(f"{name} is followed by {follower[0]}@{follower[1]}, which does not exist")
        elif follower[0] == key[0] and _is_older(follower[1], key[1]):
            faults.append(f"{name} is followed by an older version, {follower[1]}")
        elif _in_circle(key, known):
            faults.append(f"{name} follows itself in the end")
    return faults


def _is_older(version: str, than: str) -> bool:
    new, old = ranked(version), ranked(than)
    return new is None or old is None or new < old  # what does not rank does not follow


def _follower(row: RegistryValue) -> tuple[str, str] | None:
    if row.successor_code is None or row.successor_version is None:
        return None
    return row.successor_code, row.successor_version


def _in_circle(start: tuple[str, str], known: Mapping[tuple[str, str], RegistryValue]) -> bool:
    seen: set[tuple[str, str]] = set()
    at: tuple[str, str] | None = start
    while at is not None and at in known and at not in seen:
        seen.add(at)
        at = _follower(known[at])
    return at == start
