"""The options of `holdfast console`: arguments, then HOLDFAST_CONSOLE_* variables, then [console] of the file.

Invariants: every value is checked, also one that is not used; an unknown name in the table is an error that names the
nearest one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holdfast.console.settings import PORT
from holdfast.core.errors import ConfigurationError
from holdfast.store.configuration import configuration, misspelt

PREFIX = "HOLDFAST_CONSOLE_"
TABLE = "[console]"


class ConsoleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How `holdfast console` listens, and what it refuses."""

    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65535)] = PORT
    read_only: bool = False
    base_path: str = ""
    origin: tuple[str, ...] = ()
    proxy: tuple[str, ...] = ()
    session_idle_s: Annotated[int, Meta(ge=60, le=43_200)] = 3600  # without a request


_TYPES = {field.name: field.type for field in msgspec.structs.fields(ConsoleOptions)}


def console_options(arguments: Mapping[str, object]) -> ConsoleOptions:
    """Return the options; an argument that is not None wins over all else. Raise ConfigurationError."""
    table = configuration().console or {}
    for name in table:
        if name not in _TYPES:
            near = get_close_matches(name, _TYPES, n=1, cutoff=0.0)[0]
            raise ConfigurationError(
                f"{TABLE} has the unknown setting {name!r}; the nearest is {near!r}.",
                next_step=f"Write {near} in its place, or remove it. All settings: {', '.join(_TYPES)}.",
                context={"setting": name, "nearest": near, "origin": TABLE},
            )
    for variable, nearest in misspelt(PREFIX, (*_TYPES, "accounts")).items():
        raise ConfigurationError(
            f"{variable} is not a setting; the nearest is {nearest}.",
            next_step=f"Write {nearest} in its place, or unset it.",
            context={"setting": variable, "nearest": nearest, "origin": variable},
        )
    values: dict[str, Any] = {}
    for name in _TYPES:
        variable = PREFIX + name.upper()
        text = os.environ.get(variable)
        if name in table:
            values[name] = _checked(name, table[name], TABLE)
        if text:
            parts = text.split(",") if name in ("origin", "proxy") else text
            values[name] = _checked(name, parts, variable, strict=False)
        if arguments.get(name) is not None:
            values[name] = _checked(name, arguments[name], "argument")
    return ConsoleOptions(**values)


def _checked(name: str, value: object, origin: str, *, strict: bool = True) -> Any:
    try:
        return msgspec.convert(value, _TYPES[name], strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"The setting {name} of the console is wrong ({origin}): {error}.",
            context={"setting": name, "origin": origin},
        ) from None
