"""Heads in files, and their signatures.

The signed bytes are `holdfast head v1`, a line feed, and the canonical JSON of the head's own fields; they can be
verified with the public key and without Holdfast.

Invariants: a head whose signature is wrong, or not by the given key, is never compared with a ledger; without the extra
`signing`, heads without signatures can be read.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.audit.seals.keys import public_key_text, read_small, verified
from holdfast.audit.seals.sealer import Head
from holdfast.core.digest import canonical
from holdfast.core.errors import HeadInvalidError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

HEADS_BYTES_MAX = 1 << 24  # one head every hour for some years
PREFIX = b"holdfast head v1\n"


class SignedHead(Head, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A head as it is saved, with a signature or without."""

    signature: str | None = None
    public_key: str | None = None

    def __post_init__(self) -> None:
        """Refuse negative numbers: no chain contains them, so they would never be compared."""
        if min(self.epoch, self.seal, self.rows) < 0:
            msg = "epoch, seal and rows must not be negative"
            raise ValueError(msg)

    @property
    def head(self) -> Head:
        return Head(**{name: getattr(self, name) for name in Head.__struct_fields__})


def signed_bytes(head: Head) -> bytes:
    return PREFIX + canonical({name: getattr(head, name) for name in Head.__struct_fields__}).encode()


def sign(head: Head, private: "Ed25519PrivateKey") -> SignedHead:
    return SignedHead(
        **msgspec.structs.asdict(head),
        signature=private.sign(signed_bytes(head)).hex(),
        public_key=private.public_key().public_bytes_raw().hex(),
    )


def read_heads(path: Path, *, public_key: Path | None = None) -> list[SignedHead]:
    """Return the heads in a file, one in all or one on each line.

    Raise HeadInvalidError unless each is complete and its signature is right; with a public key, signed with that key.
    """
    text = read_small(path, HeadInvalidError, HEADS_BYTES_MAX)
    lines = [(n, line) for n, line in enumerate(text.split(b"\n"), start=1) if line.strip()]
    kept = _HeadFile(path, public_key)
    if len(lines) <= 1 or not _is_json(lines[0][1]):  # one head may be written over several lines
        return [kept.head(text)]
    return [kept.head(line, n) for n, line in lines]


class _HeadFile:
    """A file with heads, and the key that must have signed them."""

    def __init__(self, path: Path, public_key: Path | None) -> None:
        self._path = path
        self._key_file = public_key
        self._key = public_key_text(public_key) if public_key is not None else None

    def head(self, text: bytes, number: int | None = None) -> SignedHead:
        """Return the head in a text, or on a line with a number, with its signature verified."""
        where = f"line {number} of {self._path}" if number else str(self._path)
        context: dict[str, object] = {"path": str(self._path), **({"line": number} if number else {})}
        try:
            head = msgspec.json.decode(text, type=SignedHead)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise HeadInvalidError(f"{where} does not hold a head: {error}", context=context) from None
        if (head.signature is None) != (head.public_key is None):
            raise HeadInvalidError(f"{where} has only one of signature and public_key", context=context)
        if self._key is not None and head.public_key is None:
            raise HeadInvalidError(f"the head in {where} is not signed", context=context)
        if self._key is not None and head.public_key != self._key:
            raise HeadInvalidError(
                f"the head in {where} was not signed with the key of {self._key_file}",
                context={**context, "signed_by": head.public_key, "expected": self._key},
            )
        if head.signature is None or head.public_key is None:
            return head
        if not verified(signed_bytes(head), head.signature, head.public_key):
            raise HeadInvalidError(
                f"the signature in {where} is wrong: the head or its signature was changed", context=context
            )
        return head


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
