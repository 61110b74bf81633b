"""Passwords: hashed with scrypt and a salt of their own, and compared in constant time.

Invariants: a password is never stored, logged or printed; a hash says its own cost, so that the cost can be raised.
"""

from __future__ import annotations

import hashlib
import hmac
import os

from holdfast.core.errors import InputError

COST, BLOCK, LANES = 1 << 15, 8, 1  # 32 MiB and about 60 ms
MEMORY_MAX = 128 << 20
LENGTH_MIN, LENGTH_MAX = 12, 1024


def hashed(password: str) -> str:
    """Return the hash of a password, with its salt and its cost; raise InputError if it is too short or too long."""
    if not LENGTH_MIN <= len(password) <= LENGTH_MAX:
        raise InputError(
            f"The password has {len(password)} characters; it must have {LENGTH_MIN} to {LENGTH_MAX}.",
            context={"field": "password"},
        )
    salt = os.urandom(16)
    return f"scrypt${COST}${BLOCK}${LANES}${salt.hex()}${_derived(password, salt, COST, BLOCK, LANES).hex()}"


def matches(password: str, stored: str) -> bool:
    _, cost, block, lanes, salt, digest = stored.split("$")
    if len(password) > LENGTH_MAX:
        password = ""  # no password is that long, and hashing it takes as long as for any other
    made = _derived(password, bytes.fromhex(salt), int(cost), int(block), int(lanes))
    return hmac.compare_digest(made, bytes.fromhex(digest))


def _derived(password: str, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    raw = password.encode(errors="surrogatepass")
    return hashlib.scrypt(raw, salt=salt, n=cost, r=block, p=lanes, maxmem=MEMORY_MAX, dklen=32)


# What a login for an unknown account is compared with, so that it takes as long as for a known one.
NO_ACCOUNT = f"scrypt${COST}${BLOCK}${LANES}${'00' * 16}${'00' * 32}"
