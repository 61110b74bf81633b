"""The limit of a payload, from the environment of the process. Imported where the environment sets it.

Invariants: an explicit argument wins over the environment, and that over the default.
"""

import os

from holdfast.core.digest import PAYLOAD_BYTES_MAX
from holdfast.core.errors import InputError

PAYLOAD_MAX_VARIABLE = "HOLDFAST_PAYLOAD_MAX_BYTES"


def payload_bytes_max() -> int:
    """Return the maximum size of a payload in bytes, from the environment or the default."""
    text = os.environ.get(PAYLOAD_MAX_VARIABLE)
    if not text:
        return PAYLOAD_BYTES_MAX
    if not text.isdecimal() or not text.isascii() or int(text) < 1:
        raise InputError(
            f"{PAYLOAD_MAX_VARIABLE} must be a whole number of bytes; it is {text!r}.",
            next_step=f"Set it to a whole number above 0, such as {PAYLOAD_BYTES_MAX}, or unset it.",
            context={"variable": PAYLOAD_MAX_VARIABLE},
        )
    return int(text)
