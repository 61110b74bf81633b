"""Ed25519 keys in files, and signatures by them.

Invariants: a private key is written for its owner alone, and nothing is overwritten; no message quotes a key; without
the extra `signing` this module can be imported, and using it raises ExtraMissingError.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from holdfast.core.errors import InputError, KeyInvalidError
from holdfast.core.feature_errors import extra
from holdfast.store.files import new_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SMALL_BYTES_MAX = 1 << 16  # of a file with one key or one head


def make_keys(path: Path) -> tuple[Path, Path]:
    """Write a new private key and, in PATH.pub, its public key; return both paths.

    Raise FileThereError if a file exists, and InputError if one cannot be written.
    """
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


def verified(message: bytes, signature: str, public_key: str) -> bool:
    """Return whether a signature of a message was made with a key; signature and public key are hexadecimal."""
    from_raw = _ed25519().Ed25519PublicKey.from_public_bytes
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra

    try:
        from_raw(bytes.fromhex(public_key)).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


def signature_of(message: bytes, path: Path) -> str:
    """Return the signature of a message with the private key in a file, as hexadecimal digits."""
    return private_key(path).sign(message).hex()


def public_key_text(path: Path) -> str:
    """Return the public key in a file, as hexadecimal digits."""
    kind = _ed25519().Ed25519PublicKey
    found = cast("Ed25519PublicKey", _loaded(path, _serialization().load_pem_public_key, kind, "public"))
    return found.public_bytes_raw().hex()


def private_key(path: Path) -> "Ed25519PrivateKey":
    """Return the private key in a file; raise KeyInvalidError if it holds none."""
    kind = _ed25519().Ed25519PrivateKey
    load = partial(_serialization().load_pem_private_key, password=None)
    return cast("Ed25519PrivateKey", _loaded(path, load, kind, "private"))


def _loaded(path: Path, load: Callable[[bytes], object], kind: Any, which: str) -> object:
    text = read_small(path, KeyInvalidError)
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - an extra

    found = None
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):  # the message of the error may contain the key
        found = load(text)
    if not isinstance(found, kind):
        raise KeyInvalidError(f"{path} does not hold a {which} Ed25519 key", context={"path": str(path)})
    return found


def read_small(path: Path, refusal: type[InputError], bytes_max: int = SMALL_BYTES_MAX) -> bytes:
    """Return what a file holds; raise `refusal` if it cannot be read or is too large."""
    try:
        with path.open("rb") as file:
            text = file.read(bytes_max + 1)
    except OSError as error:
        raise refusal(f"{path} cannot be read: {error.strerror}", context={"path": str(path)}) from None
    if len(text) > bytes_max:
        raise refusal(f"{path} has more than {bytes_max} bytes", context={"path": str(path)})
    return text


def _ed25519() -> Any:
    with extra("signing"):
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - an extra
    return ed25519


def _serialization() -> Any:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra, required above

    return serialization
