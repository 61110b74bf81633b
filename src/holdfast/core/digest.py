"""Canonical JSON (`cser-v1`) and SHA-256 digests.

Invariants: equal values have equal bytes on every machine and Python version: keys sorted by code point, strings in
NFC, UTF-8, no white space, shortest numbers, null distinct from missing. A value that JSON cannot represent exactly is
refused, not rounded or renamed.
"""

import hashlib
import math
import unicodedata
from typing import Any

import msgspec

from holdfast.core.errors import InputError, PayloadNotJsonError, PayloadTooDeepError

DEPTH_MAX = 64
PAYLOAD_BYTES_MAX = 1 << 20
INTEGER_BITS_MAX = 1024  # more than any float, and few enough that parsing the digits is fast

# A text of so many characters has no integer beyond the limit and, with so few lists, not too many levels.
SHORT, LISTS = 308, 5
_SMALL = 1 << 63  # integers below it are written alike by every encoder
ENCODER = msgspec.json.Encoder(order="sorted")

Json = Any  # a value that json.loads returns


def canonical(value: Json) -> str:
    """Return the canonical text of a JSON value; raise PayloadNotJsonError or PayloadTooDeepError."""
    careful = refuse_foreign(value)
    try:
        if not careful:
            text = ENCODER.encode(value).decode()
            if text.isascii() or unicodedata.is_normalized("NFC", text):
                return text
        from holdfast.core.exact_json import written  # noqa: PLC0415 - most payloads need no other writer

        text = written(value)
        text.encode()
    except UnicodeEncodeError:
        msg = "a string contains half of a surrogate pair"
        raise PayloadNotJsonError(msg) from None
    return text


def read_back(value: Json) -> tuple[str, Json] | None:
    """Return the canonical text of an object, with what is read back from it; None if that takes a closer look.

    What an encoder makes of times, tuples and the like is JSON; but NaN becomes null, and equal keys stay two. A short
    text is decoded to compare it; of a long one its values are looked at, which are few beside its bytes.
    """
    try:
        encoded = ENCODER.encode(value)
        text = encoded.decode()
        if len(text) > SHORT:
            copy = msgspec.to_builtins(value, str_keys=True)
            odd = refuse_foreign(copy)
            text = text if copy == value else ENCODER.encode(copy).decode()
        else:
            copy = DECODER.decode(encoded)
            odd = copy != value and (b"null" in encoded or ENCODER.encode(copy) != encoded)
            odd = odd or encoded.count(b"[") > LISTS
    except (TypeError, ValueError, OverflowError, RecursionError, InputError):
        return None
    plain = not odd and type(copy) is dict and (text.isascii() or unicodedata.is_normalized("NFC", text))
    return (text, copy) if plain else None


# A float that has more than one text becomes NaN, which is equal to nothing.
DECODER = msgspec.json.Decoder(float_hook=lambda text: math.nan if _written_differently(float(text)) else float(text))


def is_storable(text: str) -> bool:
    """Return whether both databases can store a text: it has no zero character and no half of a surrogate pair."""
    if text.isascii():
        return "\0" not in text
    try:
        return "\0" not in text and bool(text.encode())
    except UnicodeEncodeError:
        return False


def payload_text(value: Json, *, size_max: int = PAYLOAD_BYTES_MAX) -> str:
    """Return the canonical text of a payload; raise PayloadTooLargeError or PayloadTooDeepError above the limits."""
    return within(canonical(value), size_max)


def within(text: str, size_max: int) -> str:
    """Return a text of no more than so many bytes; raise PayloadTooLargeError for a longer one."""
    size = len(text) if text.isascii() else len(text.encode())
    if size > size_max:
        from holdfast.core.json_input import too_large  # noqa: PLC0415 - it is refused

        raise too_large(size, size_max)
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


def refuse_foreign(value: Json, depth_left: int = DEPTH_MAX) -> bool:
    """Refuse values that an encoder would accept but change: other types, tuples, keys that are not text, NaN.

    Return whether it contains numbers that encoders write in different ways: integers beyond 64 bits, and floats that
    are whole, very small or very large.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return False
    if kind is int or kind is float:
        return _written_differently(value)
    if kind is not dict and kind is not list:
        raise PayloadNotJsonError(f"{kind.__name__} is not a JSON type")
    if depth_left == 0:
        raise PayloadTooDeepError(f"the payload has more than {DEPTH_MAX} levels", context={"limit": DEPTH_MAX})
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise PayloadNotJsonError(f"an object key is {type(key).__name__}, not text")
    careful = False
    for item in value.values() if kind is dict else value:
        # Most values of a payload are text or small integers: skip the call for them.
        kind = type(item)
        if kind is str or (kind is int and -_SMALL < item < _SMALL):
            continue
        if refuse_foreign(item, depth_left - 1):
            careful = True
    return careful


def _written_differently(number: float) -> bool:
    """Return whether encoders write a number in different ways; raise PayloadNotJsonError for one that is not JSON."""
    if isinstance(number, int):
        if -_SMALL <= number < _SMALL:
            return False
        if number.bit_length() > INTEGER_BITS_MAX:
            raise PayloadNotJsonError(f"an integer has more than {INTEGER_BITS_MAX} bits")
    elif 1e-3 < abs(number) < 1e15:
        return number == int(number)
    elif not math.isfinite(number):
        raise PayloadNotJsonError(f"{number} is not JSON")
    return True
