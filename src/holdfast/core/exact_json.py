"""Writes canonical JSON where no fast encoder does: floats, integers beyond 64 bits, and text that is not in NFC.

Invariants: the text of a value is the one that `core.digest.canonical` promises.
"""

import json
import unicodedata
from json.encoder import encode_basestring

from holdfast.core.digest import Json
from holdfast.core.errors import PayloadNotJsonError


def written(value: Json) -> str:
    """Return the canonical text of a JSON value."""
    kind = type(value)
    if kind is str:
        return encode_basestring(unicodedata.normalize("NFC", value))
    if kind is float:
        return _shortest(value)
    if kind is dict:
        fields = {unicodedata.normalize("NFC", key): item for key, item in value.items()}
        if len(fields) != len(value):
            msg = "two keys of an object are equal after Unicode normalisation"
            raise PayloadNotJsonError(msg)
        return "{" + ",".join([f"{encode_basestring(key)}:{written(fields[key])}" for key in sorted(fields)]) + "}"
    if kind is list:
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value)


def _shortest(number: float) -> str:
    """Return the shortest text that reads back as the same number: 1.0 as 1, 1e+22 as 1e22."""
    if number == int(number) and abs(number) < 2**53:
        return str(int(number))
    mantissa, _, exponent = repr(number).partition("e")
    mantissa = mantissa.removesuffix(".0")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa
