"""Manifests: the values that a build puts in force.

`read_manifest` turns a decoded document into a `Manifest`, or refuses it with one code. The digests are `cser-v1`.

Invariants: a manifest is checked once, when it is read; equal manifests have equal digests, independent of the order of
their values; nothing here reads a clock or a ledger.
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
    """A collection, the act types of its values, and the values, in order."""

    collection: str
    environment: str | None
    act_types: tuple[str, ...]
    values: tuple[Value, ...]

    @property
    def schema(self) -> dict[str, Json]:
        """Return the description of the collection's values that the collection stores."""
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
        """Return the schema as canonical JSON, as the collection stores it."""
        return canonical(self.schema)

    @property
    def schema_digest(self) -> str:
        """Return the `cser-v1` digest of the schema."""
        return cser_digest(self.schema)

    @property
    def digest(self) -> str:
        """Return the `cser-v1` digest of the manifest: of its schema and of every value, in order."""
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
        """Return the document that `read_manifest` reads as this manifest."""
        return {
            "collection": self.collection,
            "environment": self.environment,
            "act_types": list(self.act_types),
            "values": [value.fields for value in self.values],
        }

    def with_values(self, values: Iterable[Value]) -> Manifest:
        """Return this manifest with other values."""
        return msgspec.structs.replace(self, values=tuple(sorted(values, key=lambda value: value.rank)))


_FIELDS = {"collection", "environment", "act_types", "values", "manifest_digest", "cser"}
_CLAIMS = {"state", "status", "in_force", "vocab_id"}


def read_manifest(document: Json) -> Manifest:
    """Return the manifest; raise SpecInvalidError for a wrong shape, RegistryError for values that are refused."""
    if not isinstance(document, dict):
        raise SpecInvalidError("A manifest must be a mapping.", context={"path": "$"})
    for field in sorted(set(document) - _FIELDS, key=str):
        raise _invalid(str(field), "unknown field")
    if document.get("cser", "v1") != "v1":
        raise _invalid("cser", "only v1 is supported")
    collection = _word(document.get("collection", OPERATIONS), "collection")
    environment = document.get("environment")
    if environment is not None and environment not in ENVIRONMENTS:
        raise _invalid("environment", f"must be one of {', '.join(ENVIRONMENTS)}")
    listed = document.get("values")
    if listed is None or listed == []:
        raise refusal(RegistryCode.MISSING_PLAN, "The manifest lists no values.")
    if not isinstance(listed, list):
        raise _invalid("values", "must be a list")
    values = [_value(item, f"values[{index}]") for index, item in enumerate(listed)]
    _refuse_duplicates(values)
    manifest = Manifest(
        collection=collection, environment=environment, act_types=_act_types(document, collection, values), values=()
    ).with_values(values)
    require_digest(manifest, document.get("manifest_digest"))
    return manifest


def require_digest(manifest: Manifest, expected: Json) -> None:
    """Raise RegistryError unless the manifest has the expected digest; None expects nothing."""
    if expected is not None and expected != manifest.digest:
        raise refusal(
            RegistryCode.MANIFEST_HASH_MISMATCH,
            f"The manifest has the digest {manifest.digest}, not {shown(expected)}.",
            digest=manifest.digest,
        )


def _value(item: Json, path: str) -> Value:
    if not isinstance(item, dict):
        raise _invalid(path, "must be a mapping")
    for field in sorted(set(item) & _CLAIMS):
        raise refusal(
            RegistryCode.RUNTIME_OVERCLAIM,
            f"{path}.{field}: a manifest cannot set this; only a build puts a value in force.",
            path=f"{path}.{field}",
        )
    for field in sorted(set(item) - set(Value.__struct_fields__), key=str):
        raise refusal(
            RegistryCode.VALUE_INJECTION, f"{path}.{field} is not a field of a value.", path=f"{path}.{field}"
        )
    reference = item.get("governing_authority_ref")
    if reference is None or (isinstance(reference, str) and not reference.strip()):
        raise refusal(
            RegistryCode.AUTHORITY_ABSENT,
            f"{path}.governing_authority_ref is required.",
            path=f"{path}.governing_authority_ref",
        )
    if "semantics_frozen" not in item:
        raise _invalid(f"{path}.semantics_frozen", "required; use null for no semantics")
    code = _word(item.get("operation_code"), f"{path}.operation_code")
    act_type = _word(item.get("act_type", OPERATION), f"{path}.act_type")
    precedence(item.get("protocol_version"), path=f"{path}.protocol_version")
    semantics = msgspec.json.decode(canonical(item["semantics_frozen"]))  # as it will be read back from the database
    return Value(
        operation_code=code,
        protocol_version=item["protocol_version"],
        act_type=act_type,
        governing_authority_ref=_word(reference, f"{path}.governing_authority_ref"),
        semantics_frozen=semantics,
    )


def _refuse_duplicates(values: Iterable[Value]) -> None:
    seen: set[tuple[str, str]] = set()
    for value in values:
        if value.key in seen:
            raise refusal(RegistryCode.DUPLICATE_VALUE, f"{value.name} is listed twice.", value=value.name)
        seen.add(value.key)
    for first, second in several_active(values):
        raise refusal(
            RegistryCode.WRONG_FOR_EFFECT,
            f"{first.name} and {second.name} cannot both be in force for {first.act_type}.",
            value=second.name,
        )


def several_active(values: Iterable[Value]) -> Iterator[tuple[Value, Value]]:
    """Yield pairs of values with the same code and act type, of which only one may be active."""
    by_act: dict[tuple[str, str], Value] = {}
    for value in values:
        first = by_act.setdefault((value.operation_code, value.act_type), value)
        if first.key != value.key:
            yield first, value


def _act_types(document: Mapping[str, Json], collection: str, values: Iterable[Value]) -> tuple[str, ...]:
    listed = document.get("act_types")
    used = {value.act_type for value in values}
    if listed is None:
        known = {OPERATION} if collection == OPERATIONS else used
    elif isinstance(listed, list) and listed:
        known = {_word(item, f"act_types[{index}]") for index, item in enumerate(listed)}
    else:
        raise _invalid("act_types", "must be a list of names")
    for act_type in sorted(used - known):
        raise refusal(
            RegistryCode.WRONG_CARRIER,
            f"The collection {collection} does not accept values of act type {act_type}.",
            act_type=act_type,
        )
    return tuple(sorted(known))


def _word(value: Json, path: str) -> str:
    if not isinstance(value, str) or not value.strip() or value != value.strip() or not value.isprintable():
        raise _invalid(path, "must be printable text, not empty, without spaces at either end")
    if len(value) > WORD_CHARACTERS_MAX:
        raise _invalid(path, f"must have at most {WORD_CHARACTERS_MAX} characters")
    if unicodedata.normalize("NFC", value) != value:
        raise _invalid(path, "must be in Unicode NFC, so that equal names have equal bytes")
    return value


def _invalid(path: str, message: str) -> SpecInvalidError:
    return SpecInvalidError(f"{path}: {message}.", context={"path": path})
