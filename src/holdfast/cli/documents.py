"""Documents: files in YAML or JSON, read strictly as plain data, and written so that they read back the same.

A `.json` file is JSON, a `.yaml` or `.yml` file is YAML; any other file is JSON if it begins with a brace. YAML may
contain plain data only: no tags, anchors, aliases, merge keys or second documents. A time stays text, so that it means
the same in both formats.

Invariants: any bytes give a mapping of plain data, or a SpecInvalidError with the path of the wrong field; an existing
file is never overwritten.
"""

import json
import re
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from holdfast.core.errors import InputError, SpecInvalidError
from holdfast.core.feature_errors import extra
from holdfast.store.files import new_file

Tree = dict[str, Any]
T = TypeVar("T")

FILE_BYTES_MAX = 1 << 16
DEPTH_MAX = 16
PATH_MAX = 200  # characters of a path in a message: a key can be as long as a file
DOCUMENT = "(document)"  # the path of a fault that is not in any one field
_PLACE = re.compile(r"(?P<why>.*?)(?: - at `(?P<key>key` in `)?\$\.?(?P<path>.*)`)?", re.DOTALL)
_FIELD = re.compile(r"Object (?:contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)


def invalid(path: str, why: str, next_step: str | None = None, **context: object) -> SpecInvalidError:
    """Return the error for a field that has a wrong value."""
    path = path if len(path) <= PATH_MAX else f"{path[:PATH_MAX]}…"
    path = path or DOCUMENT
    return SpecInvalidError(f"{path}: {why}", next_step=next_step, context={"path": path, **context})


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def read_file(path: Path, size_max: int | None = None, **context: object) -> bytes:
    """Return the bytes of a file, of a larger one `size_max` and one more; raise InputError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(-1 if size_max is None else size_max + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "the name is not valid"
        raise InputError(
            f"Cannot read {path}: {why}.", next_step="Give a readable file.", context={"file": str(path), **context}
        ) from None


def load_tree(path: Path, *, size_max: int = FILE_BYTES_MAX) -> Tree:
    """Return the mapping in a file; raise InputError or SpecInvalidError."""
    data = read_file(path, size_max)
    try:
        return parse_tree(data, kind=path.suffix, size_max=size_max)
    except SpecInvalidError as error:
        error.context["file"] = str(path)
        raise


def parse_tree(data: bytes, *, kind: str = "", size_max: int = FILE_BYTES_MAX) -> Tree:
    """Return the mapping in a document, or raise SpecInvalidError; `kind` is the ending of the file's name."""
    if len(data) > size_max:
        raise invalid(DOCUMENT, f"the document has more than {size_max} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise invalid(DOCUMENT, f"byte {error.start} is not UTF-8") from None
    kind = kind.lower()
    as_json = kind == ".json" or (kind not in (".yaml", ".yml") and text.lstrip().startswith("{"))
    try:
        tree = _plain(_parse_json(text) if as_json else _parse_yaml(text), "", DEPTH_MAX)
    except RecursionError:
        raise _too_deep(DOCUMENT) from None
    if not isinstance(tree, dict):
        raise invalid(DOCUMENT, "the document must be a mapping")
    return tree


class Pairs(list[tuple[str, Any]]):
    """A mapping as it was written: its keys may repeat."""


def _parse_json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=Pairs, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise invalid(DOCUMENT, f"not valid JSON: {error.msg}", line=error.lineno, column=error.colno) from None
    except ValueError:
        raise invalid(DOCUMENT, "a number is not finite, or too long") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _parse_yaml(text: str) -> object:
    yaml = _yaml()
    from holdfast.cli.yaml_loader import PlainLoader  # noqa: PLC0415 - needs the extra too

    try:
        return yaml.load(text, Loader=PlainLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = {"line": mark.line + 1, "column": mark.column + 1} if mark else {}
        raise invalid(DOCUMENT, f"not valid YAML: {error.problem or error.context}", **place) from None
    except (yaml.YAMLError, ValueError, OverflowError):
        # Characters that YAML does not allow, and escapes that are not a character.
        raise invalid(DOCUMENT, "not valid YAML: a character is not allowed") from None


def _plain(value: object, path: str, depth_left: int) -> object:
    """Return the data with mappings for pairs; refuse repeated keys, too much depth and lone surrogates."""
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise invalid(path, "the text has half of a surrogate pair")
    if isinstance(value, list) and depth_left == 0:
        raise _too_deep(path)
    if isinstance(value, Pairs):
        made: Tree = {}
        for key, item in value:
            _plain(key, path, depth_left)
            where = below(path, key)
            if key in made:
                raise invalid(where, "the key is repeated")
            made[key] = _plain(item, where, depth_left - 1)
        return made
    if isinstance(value, list):
        return [_plain(item, f"{path}[{i}]", depth_left - 1) for i, item in enumerate(value)]
    return value


def below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _too_deep(path: str) -> SpecInvalidError:
    return invalid(path, f"nested deeper than {DEPTH_MAX} levels")


# ---------------------------------------------------------------------------------------------------------------------
# Into declared types


def require_kind(tree: Tree, api_version: str, kind: str) -> None:
    """Raise unless a document says that it is of this version and kind."""
    for path, expected in (("apiVersion", api_version), ("kind", kind)):
        found = tree.get(path)
        if found != expected:
            what = "required" if path not in tree else f"{str(found)[:80]!r} is not supported"
            raise invalid(path, f"{what}; use {expected}")


def require_values(tree: Tree, path: str, kind: type, why: str) -> None:
    """Raise unless every value of a free mapping, if it exists, is of a type: msgspec does not say which one is not."""
    found: object = tree
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    for key, value in found.items() if isinstance(found, dict) else ():
        if not isinstance(value, kind):
            raise invalid(f"{path}.{key}", why)


def converted(tree: Tree, kind: type[T]) -> T:
    """Return plain data as a struct, or raise SpecInvalidError with the path of the wrong field."""
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        place = _PLACE.fullmatch(str(error))
        why, path = (place["why"], place["path"] or "") if place else (str(error), "")
        field = _FIELD.fullmatch(why)
        if field:
            path = f"{path}.{field['name']}".lstrip(".")
            why = "unknown field" if "unknown" in why else "required"
        if why.startswith("Invalid RFC3339"):
            why = "the time needs a zone, such as 2026-11-15T12:00:00Z"
        raise invalid(path, why.replace("`", "")) from None


# ---------------------------------------------------------------------------------------------------------------------
# Writing


def write_tree(path: Path, tree: Tree) -> None:
    """Write a document to a new file: JSON if its name ends so, else YAML; raise FileThereError if there is one."""
    as_json = path.suffix.lower() == ".json"
    write_new(path, json.dumps(tree, indent=2) + "\n" if as_json else yaml_text(tree))


def write_new(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all; raise FileThereError if there is one."""
    with new_file(path) as file:
        file.write(text.encode())


def yaml_text(value: object) -> str:
    """Return plain data as YAML that reads back the same."""
    yaml = _yaml()
    dumper: Any = type("Dumper", (yaml.SafeDumper,), {})
    dumper.add_representer(str, _represented)
    text: str = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=1 << 20)
    if not text.replace(
        "\n", ""
    ).isprintable():  # YAML treats characters that change the direction of a text as printable
        text = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=False, width=1 << 20)
    return text


def _represented(dumper: Any, text: str) -> Any:
    # PyYAML folds a line at a rare break where it writes plainly or in single quotes, and reads back another text.
    style = '"' if any(character in text for character in "\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _yaml() -> Any:
    with extra("yaml"):
        import yaml  # noqa: PLC0415 - an extra, and JSON needs none of it
    return yaml
