"""Manifests: the values that a build is to put in force, read from what somebody wrote.

`read_manifest` turns what somebody wrote into a `Manifest`, or refuses it with one code. The digests are `cser-v1`.

Invariants: a manifest is checked once, where it is made; equal manifests have equal digests, in whatever order they
were written; nothing here reads a clock or a ledger.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from holdfast.core.digest import Json, canonical, cser_digest
from holdfast.core.environments import ENVIRONMENTS
from holdfast.core.errors import SpecInvalidError
from holdfast.core.vocabulary import OPERATION, OPERATIONS, RegistryCode, Value, precedence, refusal, shown

WORD_CHARACTERS_MAX = 200


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
            f"the manifest has the digest {manifest.digest}, and not {shown(expected)}",
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
