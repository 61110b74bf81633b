"""Arguments of a call as a JSON object, where they are not JSON as they are: models, dataclasses, times, tuples.

Invariants: what is returned has only the types that `json.loads` returns.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.digest import Json


def json_object(arguments: object) -> dict[str, Json]:
    """Return the arguments of an operation as JSON; raise TypeError, or what msgspec raises."""
    payload = msgspec.to_builtins(arguments, enc_hook=_encoded, str_keys=True)
    if not isinstance(payload, dict):
        raise TypeError("the payload must be a JSON object with the handler's arguments")
    return _as_json(payload) if _has_tuple(payload) else payload


def _has_tuple(value: Any) -> bool:
    """Return whether a dict or list of builtins contains a tuple, at any depth."""
    for item in value.values() if type(value) is dict else value:
        kind = type(item)
        if kind is tuple or ((kind is dict or kind is list) and _has_tuple(item)):
            return True
    return False


def _as_json(value: Any) -> Any:
    """Return builtins with lists where msgspec leaves tuples: JSON has only the one."""
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, list | tuple) else value


def _encoded(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")
