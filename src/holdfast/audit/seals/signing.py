"""Heads as files, and their Ed25519 signatures: who vouches for where the chain ended.

What is signed are the bytes `holdfast head v1`, a line feed, and the canonical JSON of the head's own fields; anybody
can check it with the public key and no Holdfast at all.

Invariants: a private key is written for its owner alone, and nothing is overwritten; a head whose signature does not
hold, or is not by the key that was named, is never compared with a ledger; without the extra `signing` everything but
keys and signatures works.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.audit.seals.sealer import Head
from holdfast.core.digest import canonical
from holdfast.core.errors import ExtraMissingError, HeadInvalidError, InputError, KeyInvalidError
from holdfast.store.files import new_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

HEAD_BYTES_MAX = 1 << 16
HEADS_BYTES_MAX = 1 << 24  # some years of them, one every hour
PREFIX = b"holdfast head v1\n"


class SignedHead(Head, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A head as it is kept, with a signature or without."""

    signature: str | None = None
    public_key: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no chain can contain, so that no comparison is passed over."""
        if min(self.epoch, self.seal, self.rows) < 0:
            msg = "a head has no negative numbers"
            raise ValueError(msg)

    @property
    def head(self) -> Head:
        """Return what is vouched for."""
        return Head(**{name: getattr(self, name) for name in Head.__struct_fields__})


def signed_bytes(head: Head) -> bytes:
    """Return what is signed."""
    return PREFIX + canonical({name: getattr(head, name) for name in Head.__struct_fields__}).encode()


# ---------------------------------------------------------------------------------------------------------------------
# Signing


def make_keys(path: Path) -> tuple[Path, Path]:
    """Write a new private key and, beside it, its public key; return both paths."""
    ed25519 = _ed25519()
    serialization = _serialization()
    private = ed25519.Ed25519PrivateKey.generate()
    public_path = path.with_name(f"{path.name}.pub")
    texts = {
        path: private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        public_path: private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    }
    made: list[Path] = []
    try:
        for place, mode in ((path, 0o600), (public_path, 0o644)):
            with new_file(place, mode=mode) as file:
                file.write(texts[place])
            made.append(place)
    except BaseException:
        for place in made:
            place.unlink()
        raise
    return path, public_path


def sign(head: Head, private: "Ed25519PrivateKey") -> SignedHead:
    """Return a head with the signature of a private key."""
    return SignedHead(
        **msgspec.structs.asdict(head),
        signature=private.sign(signed_bytes(head)).hex(),
        public_key=private.public_key().public_bytes_raw().hex(),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Checking


def read_head(path: Path, *, public_key: Path | None = None) -> SignedHead:
    """Return the head that a file holds; raise HeadInvalidError unless it is whole and its signature holds.

    With a public key it must be signed, and by that key.
    """
    return _Kept(path, public_key).head(str(path), _read(path, HeadInvalidError))


def read_heads(path: Path, *, public_key: Path | None = None) -> list[SignedHead]:
    """Return the heads that a file holds, one or one a line; raise HeadInvalidError unless each of them holds."""
    text = _read(path, HeadInvalidError, HEADS_BYTES_MAX)
    lines = [(n, line) for n, line in enumerate(text.split(b"\n"), start=1) if line.strip()]
    kept = _Kept(path, public_key)
    if len(lines) <= 1 or not _is_json(lines[0][1]):  # one head may be written over several lines
        return [kept.head(str(path), text)]
    return [kept.head(f"line {n} of {path}", line) for n, line in lines]


class _Kept:
    """A file of heads, and the key that must have signed them."""

    def __init__(self, path: Path, public_key: Path | None) -> None:
        self._context = {"path": str(path)}
        self._key_file = public_key
        self._key = public_key_text(public_key) if public_key is not None else None

    def head(self, where: str, text: bytes) -> SignedHead:
        """Return a head, read and checked."""
        try:
            head = msgspec.json.decode(text, type=SignedHead)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise HeadInvalidError(f"{where} holds no head: {error}", context=self._context) from None
        if (head.signature is None) != (head.public_key is None):
            raise HeadInvalidError(f"{where} has half of a signature", context=self._context)
        if self._key is not None and head.public_key is None:
            raise HeadInvalidError(f"the head in {where} is not signed", context=self._context)
        if self._key is not None and head.public_key != self._key:
            raise HeadInvalidError(
                f"the head in {where} was signed by another key than {self._key_file}",
                context={**self._context, "signed_by": head.public_key, "expected": self._key},
            )
        if head.signature is not None and head.public_key is not None:
            self._require_signature(where, head, head.signature, head.public_key)
        return head

    def _require_signature(self, where: str, head: SignedHead, signature: str, public_key: str) -> None:
        if not verified(signed_bytes(head), signature, public_key):
            raise HeadInvalidError(
                f"the signature in {where} does not hold: the head or its signature was altered",
                context=self._context,
            )


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------------
# Keys


def verified(message: bytes, signature: str, public_key: str) -> bool:
    """Tell whether a signature is that of a public key, both given in hexadecimal digits, under a message."""
    from_raw = _ed25519().Ed25519PublicKey.from_public_bytes
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra

    try:
        from_raw(bytes.fromhex(public_key)).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


def signature_of(message: bytes, path: Path) -> str:
    """Return the signature under a message by the private key in a file, in hexadecimal digits."""
    return private_key(path).sign(message).hex()


def public_key_text(path: Path) -> str:
    """Return the public key that a file holds, in hexadecimal digits."""
    return _public_key(path).public_bytes_raw().hex()


def private_key(path: Path) -> "Ed25519PrivateKey":
    """Return the private key that a file holds."""
    kind = _ed25519().Ed25519PrivateKey
    found = _loaded(path, lambda text: _serialization().load_pem_private_key(text, password=None))
    if not isinstance(found, kind):
        raise KeyInvalidError(f"{path} holds no private Ed25519 key", context={"path": str(path)})
    return cast("Ed25519PrivateKey", found)


def _public_key(path: Path) -> "Ed25519PublicKey":
    kind = _ed25519().Ed25519PublicKey
    found = _loaded(path, lambda text: _serialization().load_pem_public_key(text))
    if not isinstance(found, kind):
        raise KeyInvalidError(f"{path} holds no public Ed25519 key", context={"path": str(path)})
    return cast("Ed25519PublicKey", found)


def _loaded(path: Path, load: Any) -> object:
    text = _read(path, KeyInvalidError)
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - an extra

    try:
        return load(text)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None  # what it says may quote the key


def _read(path: Path, refusal: type[InputError], bytes_max: int = HEAD_BYTES_MAX) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(bytes_max + 1)
    except OSError as error:
        raise refusal(f"{path} cannot be read: {error.strerror}", context={"path": str(path)}) from None
    if len(text) > bytes_max:
        raise refusal(f"{path} is too large to be one", context={"path": str(path)})
    return text


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - an extra
    except ImportError:
        raise ExtraMissingError(
            "signatures are not installed", next_step="Install them with: pip install 'holdfast[signing]'"
        ) from None
    return ed25519


def _serialization() -> Any:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra, asked for above

    return serialization
