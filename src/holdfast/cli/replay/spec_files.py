"""Spec files: YAML or JSON that says what a replay is about, read strictly and written so that it reads back the same.

A `.json` file is JSON, a `.yaml` or `.yml` file is YAML; any other is JSON if it begins with a brace. Of YAML only
plain data is taken: no tags, anchors, aliases, merges or second documents; and whatever looks like a time stays text,
so that a time means the same in both.

Invariants: any bytes give a selection, or a SpecInvalidError that names the path of a field; nothing is ever guessed,
and no file is overwritten.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from uuid import uuid4

import msgspec

from holdfast.core.errors import ExtraMissingError, FileThereError, InputError, SpecInvalidError
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
from holdfast.store.files import give_name

if TYPE_CHECKING:
    from yaml import Event

Tree = dict[str, Any]
T = TypeVar("T")

FILE_BYTES_MAX = 1 << 16
DEPTH_MAX = 16
PATH_MAX = 200  # of a path that is told: a key can be as long as a file
DOCUMENT = "(document)"  # the path of a fault that is not in any one field
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?[0-9]{1,17}\.[0-9]{1,17}")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_PLACE = re.compile(r"(?P<why>.*?)(?: - at `(?P<key>key` in `)?\$\.?(?P<path>.*)`)?", re.DOTALL)
_FIELD = re.compile(r"Object (?:contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)


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


def invalid(path: str, why: str, **context: object) -> SpecInvalidError:
    """Return the error for a field that cannot be taken."""
    path = path if len(path) <= PATH_MAX else f"{path[:PATH_MAX]}…"
    return SpecInvalidError(f"{path}: {why}", context={"path": path, **context})


# ---------------------------------------------------------------------------------------------------------------------
# Selections


def load_tree(path: Path, *, size_max: int = FILE_BYTES_MAX) -> Tree:
    """Read a file as plain data, or raise."""
    try:
        with path.open("rb") as file:
            data = file.read(size_max + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name is no name"
        raise InputError(f"{path} cannot be read: {why}", context={"file": str(path)}) from None
    try:
        return parse_tree(data, kind=path.suffix, size_max=size_max)
    except SpecInvalidError as error:
        error.context["file"] = str(path)
        raise


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


def require_kind(tree: Tree, api_version: str, kind: str) -> None:
    """Raise unless a document says that it is of this version and kind."""
    for path, wanted in (("apiVersion", api_version), ("kind", kind)):
        told = tree.get(path)
        if told != wanted:
            what = "it is missing" if path not in tree else f"{str(told)[:80]} is not supported"
            raise invalid(path, f"{what}; this Holdfast reads {wanted}")


def require_values(tree: Tree, path: str, kind: type, why: str) -> None:
    """Raise unless every value of a free mapping, if it is there, is of a kind: msgspec would not say which is not."""
    found: object = tree
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    for key, value in found.items() if isinstance(found, dict) else ():
        if not isinstance(value, kind):
            raise invalid(f"{path}.{key}", why)


def converted(tree: Tree, kind: type[T]) -> T:
    """Return plain data as a struct, or raise SpecInvalidError with the path of what does not fit."""
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        place = _PLACE.fullmatch(str(error))
        why, path = (place["why"], place["path"] or "") if place else (str(error), "")
        field = _FIELD.fullmatch(why)
        if field:
            path = f"{path}.{field['name']}".lstrip(".")
            why = "there is no such field" if "unknown" in why else "it is missing"
        if why.startswith("Invalid RFC3339"):
            why = "it is no time with a zone: write it as 2030-01-31T12:00:00Z"
        raise invalid(path or DOCUMENT, why.replace("`", "")) from None


# ---------------------------------------------------------------------------------------------------------------------
# Writing


def write_tree(path: Path, tree: Tree) -> None:
    """Write a document to a new file: JSON if its name ends so, else YAML; raise FileThereError if there is one."""
    as_json = path.suffix.lower() == ".json"
    write_new(path, json.dumps(tree, indent=2) + "\n" if as_json else yaml_text(tree))


def write_new(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all."""
    draft = path.with_name(f".holdfast-{uuid4().hex}")
    there = FileThereError(f"{path} is there already", context={"file": str(path)})
    try:
        if path.exists():
            raise there
        with draft.open("xb") as sink:
            sink.write(text.encode())
            sink.flush()
            os.fsync(sink.fileno())
        if not give_name(draft, path):
            raise there
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}", context={"file": str(path)}) from None
    finally:
        with suppress(OSError):
            draft.unlink()


def yaml_text(value: object) -> str:
    """Return plain data as YAML that reads back the same."""
    yaml = _yaml()
    dumper: Any = type("Dumper", (yaml.SafeDumper,), {})
    dumper.add_representer(str, _represented)
    text: str = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=1 << 20)
    return text


def _represented(dumper: Any, text: str) -> Any:
    # PyYAML folds a line at a rare break where it writes plainly or in single quotes, and reads back another text.
    style = '"' if any(character in text for character in "\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


# ---------------------------------------------------------------------------------------------------------------------
# Plain data out of bytes


def parse_tree(data: bytes, *, kind: str = "", size_max: int = FILE_BYTES_MAX) -> Tree:
    """Return the mapping that a document is, or raise SpecInvalidError; `kind` is the ending of the file's name."""
    if len(data) > size_max:
        raise invalid(DOCUMENT, f"it has more than {size_max} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise invalid(DOCUMENT, f"byte {error.start} is not UTF-8") from None
    kind = kind.lower()
    as_json = kind == ".json" or (kind not in (".yaml", ".yml") and text.lstrip().startswith("{"))
    tree = _parse_json(text) if as_json else _parse_yaml(text)
    if not isinstance(tree, dict):
        raise invalid(DOCUMENT, "it is not a mapping of fields")
    _require_text(tree, "")
    return tree


def _require_text(value: object, path: str) -> None:
    """Refuse escapes that write half of a character: such text cannot even be told."""
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise invalid(path or DOCUMENT, "it has half of a character")
    if isinstance(value, dict):
        for key, item in value.items():
            _require_text(key, path)
            _require_text(item, _below(path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _require_text(item, f"{path}[{i}]")


class _Pairs(list[tuple[str, Any]]):
    """A JSON object whose keys may repeat."""


def _parse_json(text: str) -> object:
    try:
        return _plain(json.loads(text, object_pairs_hook=_Pairs, parse_constant=_no_constant), "", DEPTH_MAX)
    except json.JSONDecodeError as error:
        raise invalid(DOCUMENT, f"it is not JSON: {error.msg}", line=error.lineno, column=error.colno) from None
    except RecursionError:
        raise _too_deep(DOCUMENT) from None
    except ValueError:
        raise invalid(DOCUMENT, "it has a number that is none, or that is far too long") from None


def _plain(value: object, path: str, depth_left: int) -> object:
    """Return JSON with mappings for its objects; refuse keys that repeat, and too much depth."""
    if isinstance(value, (_Pairs, list)) and depth_left == 0:
        raise _too_deep(path)
    if isinstance(value, _Pairs):
        made: Tree = {}
        for key, item in value:
            where = _below(path, key)
            if key in made:
                raise _twice(where)
            made[key] = _plain(item, where, depth_left - 1)
        return made
    if isinstance(value, list):
        return [_plain(item, f"{path}[{i}]", depth_left - 1) for i, item in enumerate(value)]
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _parse_yaml(text: str) -> object:
    yaml = _yaml()
    try:
        return _Events(yaml.parse(text, Loader=yaml.SafeLoader)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = {"line": mark.line + 1, "column": mark.column + 1} if mark else {}
        raise invalid(DOCUMENT, f"it is not YAML: {error.problem or error.context}", **place) from None
    except (yaml.YAMLError, ValueError, OverflowError):
        # Characters that YAML does not take, and escapes of what is no character.
        raise invalid(DOCUMENT, "it is not YAML: it has characters that are not allowed") from None


class _Events:
    """Plain data out of the events of a YAML parser: everything that is more than data is refused where it begins."""

    def __init__(self, events: "Iterator[Event]") -> None:
        self._events = events

    def document(self) -> object:
        self._next()  # the stream begins
        first = self._next()
        if _named(first) == "StreamEnd":
            return None
        if getattr(first, "tags", None):
            raise invalid(DOCUMENT, "tags are not taken")
        value = self._node(self._next(), "", DEPTH_MAX)
        self._next()  # the document ends
        if _named(self._next()) != "StreamEnd":
            raise invalid(DOCUMENT, "it has several documents; a file holds one")
        return value

    def _next(self) -> Any:
        return next(self._events)

    def _node(self, event: Any, path: str, depth_left: int) -> object:
        kind = _named(event)
        if kind == "Alias" or event.anchor is not None:
            raise invalid(path or DOCUMENT, "anchors and aliases are not taken: write the value out")
        if event.tag is not None:
            raise invalid(path or DOCUMENT, "tags are not taken")
        if kind == "Scalar":
            return _scalar(event.value) if event.implicit[0] else event.value
        if depth_left == 0:
            raise _too_deep(path)
        return (self._mapping if kind == "MappingStart" else self._sequence)(path, depth_left - 1)

    def _mapping(self, path: str, depth_left: int) -> Tree:
        made: Tree = {}
        while _named(event := self._next()) != "MappingEnd":
            if _named(event) not in ("Scalar", "Alias"):
                raise invalid(path or DOCUMENT, "a key is text")
            self._node(event, path, depth_left)
            where = _below(path, event.value)
            if event.value in made:
                raise _twice(where)
            made[event.value] = self._node(self._next(), where, depth_left)
        return made

    def _sequence(self, path: str, depth_left: int) -> list[object]:
        made: list[object] = []
        while _named(event := self._next()) != "SequenceEnd":
            made.append(self._node(event, f"{path}[{len(made)}]", depth_left))
        return made


def _named(event: object) -> str:
    return type(event).__name__.removesuffix("Event")


def _scalar(text: str) -> object:
    """Return what an unquoted word means: fewer of them mean something than in YAML's own tables."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _twice(path: str) -> SpecInvalidError:
    return invalid(path, "it is there twice")


def _too_deep(path: str) -> SpecInvalidError:
    return invalid(path or DOCUMENT, f"it is nested deeper than {DEPTH_MAX} levels")


def _yaml() -> Any:
    try:
        import yaml  # noqa: PLC0415 - an extra, and JSON needs none of it
    except ImportError:
        raise ExtraMissingError(
            "YAML needs the package PyYAML", next_step="pip install 'holdfast[yaml]', or write the file as JSON."
        ) from None
    return yaml
