"""Whether an item or a collection is valid by the schemas of STAC and of its extensions, offline.

Invariants: no schema is fetched: those of STAC are files of pystac-core, those of the extensions our own; formats, such
as times and addresses, are checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.feature_errors import extra
from holdfast.nodd.stac import EXTENSIONS, STAC_VERSION

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

PROBLEMS_MAX = 10


def problems(item: Mapping[str, Any]) -> list[str]:
    """Return up to 10 errors of an item by the schemas of STAC and of its extensions; none if it is valid."""
    return [_problem(error) for error in islice(errors(item), PROBLEMS_MAX)]


def collection_problems(collection: Mapping[str, Any]) -> list[str]:
    """Return up to 10 errors of a collection by the schema of STAC; none if it is valid."""
    return [_problem(error) for error in islice(_validator("collection").iter_errors(collection), PROBLEMS_MAX)]


def errors(item: Mapping[str, Any]) -> Iterator[ValidationError]:
    """Yield the errors of an item as the validator reports them."""
    found = item.get("stac_extensions")
    named = found if isinstance(found, list) else []
    validator = _validator("item", tuple(name for name, url in EXTENSIONS.items() if url in named))
    yield from validator.iter_errors(item)


def _problem(error: ValidationError) -> str:
    where = "/".join(str(part) for part in error.instance_path)
    return f"{where}: {error.message}"[:200]


@cache
def schemas() -> dict[str, Any]:
    """Return the schemas of STAC and GeoJSON by their URLs."""
    with extra("nodd"):
        root = files("pystac.validation.jsonschemas")
    found: dict[str, Any] = {}
    for directory in (root / "geojson", root / "stac-spec" / f"v{STAC_VERSION}"):
        for entry in directory.iterdir():
            if entry.name.endswith(".json"):
                schema = msgspec.json.decode(entry.read_bytes())
                # By the directory of its $id and its file name: the $id of one schema lacks the dot of ".json".
                found[schema["$id"].rpartition("/")[0] + "/" + entry.name] = schema
    return found


def core_url(kind: str) -> str:
    """Return the URL of the schema of an `item`, a `collection` or a `catalog`."""
    return f"https://schemas.stacspec.org/v{STAC_VERSION}/{kind}-spec/json-schema/{kind}.json"


@cache
def extension_schemas() -> dict[str, Any]:
    """Return our schemas of the extensions by their names."""
    text = files("holdfast.nodd.schemas").joinpath("extensions.json").read_text(encoding="utf-8")
    found: dict[str, Any] = msgspec.json.decode(text)["definitions"]
    return found


@cache
def _validator(kind: str, extensions: tuple[str, ...] = ()) -> Validator:
    """Return one validator of STAC and extensions together: each validator converts the whole item."""
    with extra("nodd"):
        import jsonschema_rs as rs  # noqa: PLC0415 - an extra
    registry = rs.Registry(list(schemas().items()), draft=rs.Draft7)
    schema = {"allOf": [{"$ref": core_url(kind)}, *(extension_schemas()[name] for name in extensions)]}
    made: Validator = rs.Draft7Validator(schema, registry=registry, validate_formats=True)
    return made
