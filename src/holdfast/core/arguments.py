"""Finds the argument that made a call fail, by the annotations of the function: wrong kinds, and values out of range.

Invariants: an argument is never printed, only its kind; looking at an argument runs none of its code. Imported after an
error.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from enum import Enum
from typing import Any, NoReturn

import msgspec

from holdfast.core.digest import is_storable
from holdfast.core.errors import HoldfastError, InputError, PayloadTooDeepError

INTEGER_BITS = 63
Fits = Callable[[Any], bool]


def refuse_wrong(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception) -> None:
    """Raise InputError if an argument explains the error; return if none does."""
    if isinstance(error, HoldfastError):
        return
    if fn is msgspec.StructMeta.__call__:
        fn, *args = args  # the constructor of a record
    parameters = inspect.signature(fn).parameters
    try:
        given = inspect.signature(fn).bind(*args, **kwargs).arguments
    except TypeError:
        if all(one.kind is not one.VAR_KEYWORD for one in parameters.values()):
            settings = [name for name in parameters if name != "self"]
            _refuse_unknown(kwargs.keys() - parameters.keys(), settings)
        return  # an argument too many or too few: the error says so
    hints = {name: parameter.annotation for name, parameter in parameters.items()}
    for name, value in given.items():
        if name == "settings" and isinstance(value, dict):
            _refuse_unknown(value.keys() - _SETTINGS.keys(), [*_SETTINGS])
            _refuse_fields(value, _SETTINGS)
        elif isinstance(value, msgspec.Struct):
            refuse_unfit(name, value, hints[name])
            fields = {field: getattr(value, field) for field in value.__struct_fields__}
            _refuse_fields(fields, type(value).__annotations__)
        else:
            refuse_unfit(name, value, hints[name])
    if isinstance(error, RecursionError):
        raise PayloadTooDeepError("an argument is nested too deeply, or contains itself") from None


def refuse_unfit(name: str, value: object, hint: object) -> None:
    """Raise InputError if a value is not of the kind that an annotation says."""
    text = hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))
    if "|" in str(hint) or "[" in str(hint):
        text = str(hint)
    kinds = [_kind(one) for one in _alternatives(text)]
    known = [kind for kind in kinds if kind is not None]
    if len(known) == len(kinds) and not any(fits(value) for _, fits in known):
        refuse(name, value, " or ".join(words for words, _ in known))


def refuse(name: str, value: object, expected: str) -> NoReturn:
    """Raise InputError: an argument is not what is expected."""
    kind = "None" if value is None else f"of type {type(value).__name__}"
    if isinstance(value, str | int | float | datetime) and not isinstance(value, bool):
        kind += " with a value that cannot be used"
    raise InputError(
        f"{name} must be {expected}; it is {kind}",
        next_step=f"Give {name} as {expected}.",
        context={"argument": name, "given": type(value).__name__},
    ) from None


def _refuse_fields(fields: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if name in hints:
            refuse_unfit(name, value, hints[name])


def _refuse_unknown(unknown: Iterable[str], known: Sequence[str]) -> None:
    for name in unknown:
        near = next(iter(get_close_matches(name, known, n=1, cutoff=0.0)), None)
        if near is None:
            return
        raise InputError(
            f"there is no setting {name}; the nearest is {near}",
            next_step=f"Use one of {', '.join(known)}.",
            context={"argument": name, "nearest": near},
        ) from None


def _alternatives(hint: str) -> list[str]:
    """Return the parts of a union, as they are written; `|` in brackets does not separate."""
    parts, depth = [""], 0
    for character in hint:
        depth += (character in "[(") - (character in "])")
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _kind(hint: str) -> tuple[str, Fits] | None:
    """Return the words and the test for one annotation; None if nothing can be said about it."""
    hint = hint.rpartition(".")[2] if "[" not in hint else re.sub(r"^(?:\w+\.)+(?=\w+\[)", "", hint)
    if hint in _KINDS:
        return _KINDS[hint]
    head = hint.partition("[")[0]
    if head in _KINDS:
        return _KINDS[head]
    if head in _CLASSES:
        return f"a {head}", lambda value: head in {each.__name__ for each in type(value).__mro__}
    return None


def _is_text(value: Any) -> bool:
    # The encoder takes text and enumerations of text, and no other subclass.
    return (type(value) is str or isinstance(value, Enum)) and isinstance(value, str) and is_storable(value)


def _is_function(value: Any) -> bool:
    try:
        return callable(value) and bool(inspect.signature(value))
    except (TypeError, ValueError):
        return False  # such as `int`: nothing says what it takes


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= INTEGER_BITS


def _is_number(value: Any) -> bool:
    return _is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def _is_moment(value: Any) -> bool:
    # Years near the ends cannot be written in UTC from every zone.
    return isinstance(value, datetime) and value.tzinfo is not None and 1 < value.year < 9999


def _is_texts(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and all(map(_is_text, value))


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, value))


_KINDS: dict[str, tuple[str, Fits]] = {
    "None": ("None", lambda value: value is None),
    "str": ("text", _is_text),
    "int": ("a whole number", _is_integer),
    "float": ("a number", _is_number),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "datetime": ("a time with a zone", _is_moment),
    "Callable": ("a function with a signature", _is_function),
    "Sequence[str]": ("a sequence of texts", _is_texts),
    "Sequence": ("a sequence", lambda value: isinstance(value, Sequence) and not isinstance(value, str | bytes)),
    "Iterable": ("a sequence", lambda value: hasattr(type(value), "__iter__") and not isinstance(value, str | bytes)),
    "Mapping": ("a mapping with text as keys", _is_mapping),
    "dict": ("a mapping with text as keys", _is_mapping),
    "Params": ("a mapping or a sequence", lambda value: isinstance(value, Mapping | list | tuple)),
}
_CLASSES = frozenset(
    [
        "Call",
        "Ledger",
        "Operation",
        "Operations",
        "Procedure",
        "Receipt",
        "RetryPolicy",
        "Step",
        "Store",
        "World",
        "Periods",
        "Executor",
        "Job",
        "Strategy",
        "Mode",
    ]
)
_SETTINGS = {
    "client": "str | None", "key": "str | None", "run_at": "datetime | None", "priority": "int | None",
    "queue": "str | None", "version": "str | None", "unique": "str | Mapping | None", "deadline_at": "datetime | None",
    "deadline_s": "float | None", "after": "Sequence | None", "if_unsuccessful": "str | None",
}  # fmt: skip
