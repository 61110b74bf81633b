"""The validator in Rust against the one in Python: the same verdict on every item, whole or broken."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema_rs
import pytest
import referencing
from jsonschema import validators

from holdfast.nodd import stac, validity
from holdfast.nodd.dataset import shipped
from holdfast.nodd.stac_catalog import Extent, collection_of
from tests.nodd.test_items import EXAMPLES, WRONG, item_of

# jsonschema checks these only with packages that nothing else here needs; jsonschema-rs always does.
ONLY_IN_RUST = ("date-time", "iri", "iri-reference")


@cache
def oracle(name: str) -> Any:
    """Return the validator in Python of STAC's items, or of an extension."""
    draft, resource = validators.Draft7Validator, referencing.Resource.from_contents
    registry: Any = referencing.Registry().with_resources(
        (url, resource(schema)) for url, schema in validity.schemas().items()
    )
    core = {f"core {kind}": validity.schemas()[validity.core_url(kind)] for kind in ("item", "collection")}
    schema = {**validity.extension_schemas(), **core}[name]
    return draft(schema, registry=registry, format_checker=draft.FORMAT_CHECKER)


def valid_in_python(item: dict[str, Any]) -> bool:
    listed = item.get("stac_extensions")
    named = [name for name, url in stac.EXTENSIONS.items() if isinstance(listed, list) and url in listed]
    return all(oracle(name).is_valid(item) for name in ("core item", *named))


def require_the_same(item: dict[str, Any]) -> bool:
    """Return whether an item is valid, which both validators must agree on."""
    found = list(validity.errors(item))
    formats = [error.kind for error in found]
    beyond = all(
        isinstance(kind, jsonschema_rs.ValidationErrorKind.Format) and kind.format in ONLY_IN_RUST for kind in formats
    )
    if valid_in_python(item):
        assert beyond, found
    else:
        assert found
    return not found


@pytest.mark.parametrize("dataset, example", EXAMPLES, ids=[f"{dataset.name}:{one.key}" for dataset, one in EXAMPLES])
def test_both_accept_every_item(dataset: Any, example: Any) -> None:
    assert require_the_same(item_of(dataset, example))


@pytest.mark.parametrize("where, field, value", WRONG)
def test_both_refuse_what_an_extension_forbids(where: str, field: str, value: Any) -> None:
    dataset = shipped()["gfs"]
    item = item_of(dataset, dataset.spec.examples[0])
    place = item["assets"]["data"] if where == "asset" else item["properties"]
    place[field] = value
    assert not require_the_same(item)


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inner:
        yield (*at, name)
        yield from _places(part, (*at, name))


def test_both_judge_an_item_alike_without_any_of_its_parts_and_with_another_in_its_place() -> None:
    dataset = shipped()["gfs"]
    whole = item_of(dataset, dataset.spec.examples[0])
    refused = broken = 0
    for number, (*before, last) in enumerate(_places(whole)):
        values: tuple[Any, ...] = (-1, "x", [], {}, True)
        for wrong in (None, values[number % 5], "2026-13-01T00:00:00Z"):
            item = copy.deepcopy(whole)
            place = item
            for name in before:
                place = place[name]
            if wrong is None:
                del place[last]
            else:
                place[last] = wrong
            broken += 1
            refused += not require_the_same(item)
    assert broken > 200
    assert broken / 3 < refused < broken


def test_both_judge_collections_alike() -> None:
    for dataset in shipped():
        extent = Extent(
            (-10.0, -5.0, 10.0, 5.0), "2026-07-26T00:00:00Z", "2026-07-27T00:00:00Z", frozenset({"2026/207"})
        )
        collection = collection_of(dataset, extent)
        assert validity.collection_problems(collection) == []
        assert oracle("core collection").is_valid(collection)
        for name in collection:
            without = {field: value for field, value in collection.items() if field != name}
            assert (validity.collection_problems(without) == []) == oracle("core collection").is_valid(without)
