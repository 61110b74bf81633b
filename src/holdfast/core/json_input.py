"""Reads JSON from outside.

Invariants: what is returned can be written again exactly; anything else is refused.
"""

import json

from holdfast.core.digest import DEPTH_MAX, PAYLOAD_BYTES_MAX, Json, refuse_foreign
from holdfast.core.errors import PayloadNotJsonError, PayloadTooDeepError, PayloadTooLargeError


def loads(text: str | bytes, *, size_max: int = PAYLOAD_BYTES_MAX) -> Json:
    """Parse JSON from outside; raise PayloadTooLargeError, PayloadNotJsonError or PayloadTooDeepError."""
    raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if len(raw) > size_max:
        raise too_large(len(raw), size_max)
    try:
        value = json.loads(raw, parse_constant=_refuse_constant, object_pairs_hook=_refuse_duplicates)
    except RecursionError:
        msg = f"the payload has more than {DEPTH_MAX} levels"
        raise PayloadTooDeepError(msg) from None
    except (ValueError, UnicodeDecodeError) as error:
        msg = f"the payload is not JSON: {error}"
        raise PayloadNotJsonError(msg) from None
    refuse_foreign(value)
    return value


def too_large(size: int, size_max: int) -> PayloadTooLargeError:
    """Return the error for a payload above the limit."""
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
