"""Spec files: a selection as a document, which reads back as the same selection.

Invariants: any document gives a selection, or a SpecInvalidError with the path of a field; nothing is ever guessed.
"""

from contextlib import suppress
from typing import Any

import msgspec

from holdfast.cli.documents import Tree, converted, invalid, require_kind, require_values
from holdfast.core.machines import JobState
from holdfast.core.selection import (
    API_VERSION,
    IN_PROGRESS,
    KIND,
    Limits,
    Options,
    ReplayMode,
    Selection,
    SelectionFilters,
    selection_fault,
)


class _Metadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    env: str
    description: str | None = None
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    filters: SelectionFilters
    mode: ReplayMode = ReplayMode.FAILED_ONLY
    limits: Limits = Limits()
    options: Options = Options()


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"api_version": "apiVersion"}):
    api_version: str
    kind: str
    metadata: _Metadata
    spec: _Spec


def selection_of(tree: Tree, *, to_replay: bool = True) -> Selection:
    """Return the selection that a document holds, or raise SpecInvalidError; `to_replay`: not only to look at."""
    require_kind(tree, API_VERSION, KIND)
    require_values(tree, "metadata.labels", str, "a label is text: put it in quotes")
    document = converted(_in_our_words(tree), _Document)
    metadata, spec = document.metadata, document.spec
    selection = Selection(
        name=metadata.name,
        env=metadata.env,
        description=metadata.description,
        labels=metadata.labels,
        mode=spec.mode,
        filters=spec.filters,
        limits=spec.limits,
        options=spec.options,
    )
    fault = selection_fault(selection, to_replay=to_replay)
    if fault:
        raise invalid(fault.path, fault.message)
    return selection


def tree_of(selection: Selection) -> Tree:
    """Return the document of a selection: what reads back as the same."""
    told = msgspec.to_builtins(selection)
    metadata = {name: told[name] for name in ("name", "env", "description", "labels") if told[name]}
    filters = {name: v for name, v in told["filters"].items() if name == "status" or v not in (None, ())}
    spec = {"mode": told["mode"], "filters": {name: _said(v) for name, v in filters.items()}}
    for name, defaults in (("limits", Limits()), ("options", Options())):
        differs = {key: v for key, v in told[name].items() if v != getattr(defaults, key)}
        if differs:
            spec[name] = differs
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def _said(value: Any) -> Any:
    """Return a filter as a list, or without those of its fields that say nothing."""
    if isinstance(value, dict):
        return {name: v for name, v in value.items() if v is not None}
    return list(value)


def _in_our_words(tree: Tree) -> Tree:
    """Let ids be written as numbers too, and states as the write-ahead record has them."""
    for name in ("wal_ids", "status"):
        with suppress(KeyError, TypeError):
            filters = tree["spec"]["filters"]
            words = [_in_our_word(item) for item in filters[name]]
            tree = {**tree, "spec": {**tree["spec"], "filters": {**filters, name: words}}}
    return tree


def _in_our_word(item: object) -> object:
    if item == IN_PROGRESS:
        return JobState.RUNNING.value
    return str(item) if type(item) is int else item
