"""The configuration of a process: arguments, then the environment, then `holdfast.toml` or `[tool.holdfast]`.

Invariants: this is the only place that reads HOLDFAST_* settings and configuration files; every value is checked, also
one that is not used; an unknown key of a file is an error that names the nearest key; a file of another user is not
read, because it could name another ledger. No error contains a value, which may be a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from holdfast.core.digest import PAYLOAD_BYTES_MAX
from holdfast.core.errors import ConfigurationError

PREFIX, FILE_VARIABLE = "HOLDFAST_", "HOLDFAST_CONFIG"
NO_SETTINGS = ("config", "debug", "aws_endpoint")  # variables that are no settings
NEAR = 0.65  # as alike as ULR and URL
FILE, PYPROJECT, SECTION = "holdfast.toml", "pyproject.toml", "tool.holdfast"
DEFAULT, ARGUMENT = "default", "argument"
_SQLITE = "sqlite:///"


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a process; the name of a variable is HOLDFAST_ and the name in capitals."""

    url: str | None = None  # of the ledger; None: an argument must name it, or `holdfast.db`
    schema: Annotated[str, msgspec.Meta(min_length=1, max_length=63)] = "public"  # of the ledger on PostgreSQL
    pooler: Literal["any", "session"] = "any"  # session: a pooler before PostgreSQL keeps the session of a connection
    payload_max_bytes: Annotated[int, msgspec.Meta(ge=1)] = PAYLOAD_BYTES_MAX
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 8  # handlers of `holdfast worker`
    drain_s: Annotated[float, msgspec.Meta(ge=0)] = 30.0  # for handlers that run when a worker is stopped
    log: Literal["text", "json"] = "text"
    telemetry: Literal["off", "console", "otlp"] = "off"
    metrics: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None  # port of /metrics
    console: dict[str, Any] | None = None  # the table [console]: see `console/options.py`, which checks it


class Resolved(NamedTuple):
    """A configuration, and where each of its values comes from."""

    configuration: Configuration
    origins: dict[str, str]


_WHOLE = frozenset({"payload_max_bytes", "concurrency", "metrics"})
_TYPES = {field.encode_name: field.type for field in msgspec.structs.fields(Configuration)}


def configuration(**arguments: object) -> Configuration:
    """Return the configuration; an argument that is not None wins over all else. Raise ConfigurationError."""
    return resolved(arguments).configuration


def resolved(arguments: Mapping[str, object] | None = None) -> Resolved:
    """Return the configuration with its origins; raise ConfigurationError."""
    given = {name: value for name, value in (arguments or {}).items() if value is not None}
    path, section = _file()
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name in _TYPES:
        variable = variable_of(name)
        if os.environ.get(variable):
            _take(values, origins, name, os.environ[variable], variable)
        if name in section:  # checked even if the environment wins
            kept = dict(values), dict(origins)
            _take(values, origins, name, section[name], str(path))
            values, origins = (values, origins) if name not in kept[0] else kept
        if name in given:
            _take(values, origins, name, given[name], ARGUMENT)
        origins.setdefault(name, DEFAULT)
    if path is not None and origins["url"] == str(path):
        values["url"] = _beside(path, values["url"])
    return Resolved(Configuration(**values), origins)


def variable_of(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def misspelt(prefix: str = PREFIX, known: Sequence[str] = (*_TYPES, *NO_SETTINGS)) -> dict[str, str]:
    """Return the variables of the environment that are nearly a known one, each with that one.

    Others are left alone: a program may have variables of its own. The options of the console are not settings.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - most processes do not look

    every = {prefix + name.upper() for name in known}
    given = {name: name.removeprefix(prefix).lower() for name in os.environ.keys() - every if name.startswith(prefix)}
    near = {
        name: get_close_matches(end, known, n=1, cutoff=NEAR)
        for name, end in given.items()
        if not end.startswith("console_")
    }
    return {name: prefix + nearest[0].upper() for name, nearest in sorted(near.items()) if nearest}


def _take(values: dict[str, Any], origins: dict[str, str], name: str, value: object, origin: str) -> None:
    # A variable is text, also where a number is meant; 1e6 is no whole number.
    strict = origin != variable_of(name) or (name in _WHOLE and not str(value).isdecimal())
    try:
        values[name] = msgspec.convert(value, _TYPES[name], strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"The setting {name} is wrong ({origin}): {error}.", context={"setting": name, "origin": origin}
        ) from None
    origins[name] = origin


# ---------------------------------------------------------------------------------------------------------------------
# Files


def _file() -> tuple[Path | None, dict[str, Any]]:
    """Return the configuration file and its settings: the nearest one in this folder or those above it."""
    named = os.environ.get(FILE_VARIABLE)
    if named:
        path = Path(named).absolute()
        if not path.is_file():
            raise ConfigurationError(
                f"{FILE_VARIABLE} names a file that does not exist.",
                next_step=f"Correct or unset {FILE_VARIABLE}.",
                context={"setting": FILE_VARIABLE, "origin": FILE_VARIABLE},
            )
        return path, _settings(path) or {}
    here = Path.cwd()
    for folder in (here, *here.parents):
        for name in (FILE, PYPROJECT):
            found = _settings(folder / name) if _is_ours(folder / name) else None
            if found is not None:
                return folder / name, found
    return None, {}


def _is_ours(path: Path) -> bool:
    try:
        return path.stat().st_uid in (os.getuid(), 0)
    except OSError:
        return False


def _settings(path: Path) -> dict[str, Any] | None:
    """Return the settings in a file; None for a pyproject.toml without the section [tool.holdfast]."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}.",
            next_step=f"Correct or remove {path}.",
            context={"origin": str(path)},
        ) from None
    ours = path.name != PYPROJECT
    if not ours and SECTION.encode() not in data:
        return None
    import tomllib  # noqa: PLC0415 - most processes have no file

    try:
        found: Any = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        place = re.search(r"line \d+, column \d+", str(error))  # the rest of the text may quote the file
        at = place[0] if place else "end of the file" if "end of document" in str(error) else "text"
        raise ConfigurationError(
            f"{path} is not TOML ({at}).", next_step=f"Correct {path}.", context={"origin": str(path), "at": at}
        ) from None
    section = found if ours else found.get("tool", {}).get("holdfast")
    if section is None:
        return None
    for name in section:
        if name not in _TYPES:
            raise _unknown(name, path)
    return dict(section)


def _unknown(name: str, path: Path) -> ConfigurationError:
    from difflib import get_close_matches  # noqa: PLC0415 - most files are right

    near = get_close_matches(name, _TYPES, n=1, cutoff=0.0)
    return ConfigurationError(
        f"{path} has the unknown setting {name!r}; the nearest is {near[0]!r}.",
        next_step=f"Write {near[0]} in its place, or remove it. All settings: {', '.join(_TYPES)}.",
        context={"setting": name, "nearest": near[0], "origin": str(path)},
    )


def _beside(path: Path, url: str) -> str:
    """Return the URL with a relative path of a file made absolute: it is relative to the configuration file."""
    if "://" not in url:
        return str(path.parent / url)
    if url.startswith(_SQLITE) and not url.startswith(f"{_SQLITE}/"):
        return f"{_SQLITE}{path.parent / url.removeprefix(_SQLITE)}"
    return url
