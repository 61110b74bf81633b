"""Canonical JSON (`cser-v1`) and SHA-256 digests.

Invariants: equal values have equal bytes on every machine and Python version: keys sorted by code point, strings in
NFC, UTF-8, no white space, shortest numbers, null distinct from missing. A value that JSON cannot represent exactly is
refused, not rounded or renamed.
"""

import hashlib
import json
import math
import unicodedata
from json.encoder import encode_basestring
from typing import Any

import msgspec

from holdfast.core.errors import PayloadNotJsonError, PayloadTooDeepError, PayloadTooLargeError

DEPTH_MAX = 64
PAYLOAD_BYTES_MAX = 1 << 20
INTEGER_BITS_MAX = 1024  # more than any float, and few enough that parsing the digits is fast

_ENCODER = msgspec.json.Encoder(order="sorted")

Json = Any  # a value that json.loads returns


def canonical(value: Json, *, depth_max: int = DEPTH_MAX) -> str:
    """Return the canonical text of a JSON value; raise PayloadNotJsonError or PayloadTooDeepError."""
    careful = _refuse_foreign(value, depth_max, depth_max)
    try:
        if not careful:
            text = _ENCODER.encode(value).decode()
            if text.isascii() or unicodedata.is_normalized("NFC", text):
                return text
        text = _write(value)
        text.encode()
    except UnicodeEncodeError:
        msg = "a string contains half of a surrogate pair"
        raise PayloadNotJsonError(msg) from None
    return text


def is_storable(text: str) -> bool:
    """Return whether both databases can store a text: it has no zero character and no half of a surrogate pair."""
    if text.isascii():
        return "\0" not in text
    try:
        return "\0" not in text and bool(text.encode())
    except UnicodeEncodeError:
        return False


def loads(text: str | bytes, *, size_max: int = PAYLOAD_BYTES_MAX, depth_max: int = DEPTH_MAX) -> Json:
    """Parse JSON from outside; raise PayloadTooLargeError, PayloadNotJsonError or PayloadTooDeepError."""
    raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if len(raw) > size_max:
        raise _too_large(len(raw), size_max)
    try:
        value = json.loads(raw, parse_constant=_refuse_constant, object_pairs_hook=_refuse_duplicates)
    except RecursionError:
        msg = f"the payload has more than {depth_max} levels"
        raise PayloadTooDeepError(msg) from None
    except (ValueError, UnicodeDecodeError) as error:
        msg = f"the payload is not JSON: {error}"
        raise PayloadNotJsonError(msg) from None
    _refuse_foreign(value, depth_max, depth_max)
    return value


def payload_text(value: Json, *, size_max: int = PAYLOAD_BYTES_MAX, depth_max: int = DEPTH_MAX) -> str:
    """Return the canonical text of a payload; raise PayloadTooLargeError or PayloadTooDeepError above the limits."""
    text = canonical(value, depth_max=depth_max)
    size = len(text) if text.isascii() else len(text.encode())
    if size > size_max:
        raise _too_large(size, size_max)
    return text


def sha256(text: str) -> str:
    """Return the hex SHA-256 of a text's UTF-8 bytes."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest(value: Json) -> str:
    """Return the hex SHA-256 of a value's canonical text."""
    return sha256(canonical(value))


def cser_digest(fields: dict[str, Json]) -> str:
    """Return the `cser-v1` digest of an object: its canonical text with `"cser":"v1"` among its fields."""
    return digest({**fields, "cser": "v1"})


def _too_large(size: int, size_max: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(
        f"the payload has {size} bytes; the limit is {size_max}", context={"bytes": size, "limit": size_max}
    )


def _refuse_constant(name: str) -> Json:
    msg = f"{name} is not JSON"
    raise PayloadNotJsonError(msg)


def _refuse_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise PayloadNotJsonError("an object has a duplicate key", context={"keys": len(pairs)})
    return fields


def _refuse_foreign(value: Json, depth_left: int, depth_max: int) -> bool:
    """Refuse values that an encoder would accept but change: other types, tuples, keys that are not text, NaN.

    Return whether it contains numbers that encoders write in different ways: integers beyond 64 bits, and floats that
    are whole, very small or very large.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return False
    if kind is int or kind is float:
        _refuse_inexact(value)
        if kind is float:
            return not 1e-3 < abs(value) < 1e15 or value == int(value)
        return not -(1 << 63) <= value < 1 << 63
    if kind is not dict and kind is not list:
        raise PayloadNotJsonError(f"{kind.__name__} is not a JSON type")
    if depth_left == 0:
        raise PayloadTooDeepError(f"the payload has more than {depth_max} levels", context={"limit": depth_max})
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise PayloadNotJsonError(f"an object key is {type(key).__name__}, not text")
    careful = False
    for item in value.values() if kind is dict else value:
        # Most values of a payload are text: skip the call for them.
        if type(item) is not str and _refuse_foreign(item, depth_left - 1, depth_max):
            careful = True
    return careful


def _refuse_inexact(number: float) -> None:
    if isinstance(number, int):
        if number.bit_length() > INTEGER_BITS_MAX:
            raise PayloadNotJsonError(f"an integer has more than {INTEGER_BITS_MAX} bits")
    elif not math.isfinite(number):
        raise PayloadNotJsonError(f"{number} is not JSON")


def _write(value: Json) -> str:
    """Return the canonical text, without the fast encoder: for floats, large integers, and text that is not in NFC."""
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
        return "{" + ",".join([f"{encode_basestring(key)}:{_write(fields[key])}" for key in sorted(fields)]) + "}"
    if kind is list:
        return "[" + ",".join(map(_write, value)) + "]"
    return json.dumps(value)


def _shortest(number: float) -> str:
    """Return the shortest text that reads back as the same number: 1.0 as 1, 1e+22 as 1e22."""
    if number == int(number) and abs(number) < 2**53:
        return str(int(number))
    mantissa, _, exponent = repr(number).partition("e")
    mantissa = mantissa.removesuffix(".0")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa
