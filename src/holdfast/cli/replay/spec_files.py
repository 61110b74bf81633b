"""Spec files: a selection as a document, which reads back as the same selection.

A `SpecFormat` says how a program writes its spec files: `holdfast replay` has `HOLDFAST_SPEC`; an application may have
its own version and its own names of the filters.

Invariants: any document gives a selection, or a SpecInvalidError with the path of the wrong field in that document; a
selection that is written reads back the same.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from holdfast.cli.documents import Tree, converted, invalid, require_kind, require_values
from holdfast.core.selection import Limits, Options, ReplayMode, Selection, SelectionFilters, selection_fault

F = TypeVar("F")
FILTERS = "spec.filters."


class SpecMetadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The metadata of a spec file."""

    name: str
    env: str
    description: str | None = None
    labels: dict[str, str] = {}


class SpecBody(msgspec.Struct, Generic[F], frozen=True, forbid_unknown_fields=True):
    """What a spec file selects and how it is replayed."""

    filters: F
    mode: ReplayMode = ReplayMode.FAILED_ONLY
    limits: Limits = Limits()
    options: Options = Options()


class SpecDocument(
    msgspec.Struct, Generic[F], frozen=True, forbid_unknown_fields=True, rename={"api_version": "apiVersion"}
):
    """A spec file with filters of the type F."""

    api_version: str
    kind: str
    metadata: SpecMetadata
    spec: SpecBody[F]


class SpecFormat(NamedTuple):
    """How a program writes its spec files."""

    api_version: str
    kind: str
    filters: type[msgspec.Struct]
    to_selection: Callable[[Any], SelectionFilters]  # from `filters`
    names: Mapping[str, str] = {}  # of the fields of SelectionFilters that `filters` calls by another name

    def name(self, field: str) -> str:
        """Return what this format calls a field of SelectionFilters."""
        return self.names.get(field, field)

    def path(self, path: str) -> str:
        """Return the path of a field of a selection as this format writes it."""
        field, bracket, index = path.removeprefix(FILTERS).partition("[")
        return f"{FILTERS}{self.name(field)}{bracket}{index}" if path.startswith(FILTERS) else path

    def filters_value(self, value: Mapping[str, Any]) -> Tree:
        """Return filters as plain data, under the names of this format."""
        known = self.filters.__struct_fields__
        return {self.name(field): item for field, item in value.items() if self.name(field) in known}

    def json_schema(self) -> Tree:
        return msgspec.json.schema(SpecDocument[self.filters])  # type: ignore[name-defined]


HOLDFAST_SPEC = SpecFormat("holdfast.replay/v1", "ReplaySelection", SelectionFilters, lambda filters: filters)


def selection_of(tree: Tree, spec: SpecFormat = HOLDFAST_SPEC, *, to_replay: bool = True) -> Selection:
    """Return the selection in a document, or raise SpecInvalidError; with `to_replay=False` only to inspect jobs."""
    require_kind(tree, spec.api_version, spec.kind)
    require_values(tree, "metadata.labels", str, "the label must be text; write it in quotes")
    document: Any = converted(_with_text_ids(tree, spec.name("jobs")), SpecDocument[spec.filters])  # type: ignore[name-defined]
    metadata, body = document.metadata, document.spec
    selection = Selection(
        name=metadata.name,
        env=metadata.env,
        description=metadata.description,
        labels=metadata.labels,
        mode=body.mode,
        filters=spec.to_selection(body.filters),
        limits=body.limits,
        options=body.options,
    )
    fault = selection_fault(selection, to_replay=to_replay)
    if fault:
        raise invalid(spec.path(fault.path), fault.message, fault.next_step)
    return selection


def tree_of(selection: Selection, spec: SpecFormat = HOLDFAST_SPEC) -> Tree:
    """Return the document of a selection, without the fields that have their default."""
    value = msgspec.to_builtins(selection)
    metadata = {name: value[name] for name in ("name", "env", "description", "labels") if value[name]}
    filters = {name: v for name, v in value["filters"].items() if name == "status" or v not in (None, ())}
    body = {"mode": value["mode"], "filters": {n: _compact(v) for n, v in spec.filters_value(filters).items()}}
    for name, defaults in (("limits", Limits()), ("options", Options())):
        differs = {key: v for key, v in value[name].items() if v != getattr(defaults, key)}
        if differs:
            body[name] = differs
    return {"apiVersion": spec.api_version, "kind": spec.kind, "metadata": metadata, "spec": body}


def _compact(value: Any) -> Any:
    """Return a tuple as a list, and a mapping without its empty fields."""
    if isinstance(value, dict):
        return {name: v for name, v in value.items() if v is not None}
    return list(value) if isinstance(value, tuple) else value


def _with_text_ids(tree: Tree, name: str) -> Tree:
    """Return a document in which ids that are written as numbers are text."""
    with suppress(KeyError, TypeError):
        filters = tree["spec"]["filters"]
        ids = [str(item) if type(item) is int else item for item in filters[name]]
        return {**tree, "spec": {**tree["spec"], "filters": {**filters, name: ids}}}
    return tree
