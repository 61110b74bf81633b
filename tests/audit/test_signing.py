"""Heads as files: the signed bytes, the signer, and every fault of such a file."""

from __future__ import annotations

import builtins
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from holdfast.audit.seals.heads import SignedHead, read_heads, sign, signed_bytes
from holdfast.audit.seals.keys import make_keys, private_key
from holdfast.audit.seals.sealer import Head
from holdfast.core.errors import ExtraMissingError, FileThereError, HeadInvalidError, InputError, KeyInvalidError

pytestmark = pytest.mark.attack("files")

HEAD = Head(
    ledger_id="0123456789abcdef0123456789abcdef",
    epoch=1,
    seal=3,
    hash="ab" * 32,
    rows=24,
    sealed_at="2026-03-14T09:26:53.589793Z",
)
TEXT = (
    b"holdfast head v1\n"
    b'{"epoch":1,"hash":"abababababababababababababababababababababababababababababababab",'
    b'"ledger_id":"0123456789abcdef0123456789abcdef","rows":24,"seal":3,"sealed_at":"2026-03-14T09:26:53.589793Z"}'
)
SIGNATURE = (
    "f2dfd9898e05069776a17acdf17397b00cd8502ed8a2f8669ad91b9f738340fc"
    "91e9682850c9180def28b9feb15ec540a0d35550cbdc9d3ce65aaaa958f2ad0e"
)


def read_head(path: Path, *, public_key: Path | None = None) -> SignedHead:
    [head] = read_heads(path, public_key=public_key)
    return head


def test_the_bytes_that_are_signed_never_change() -> None:
    assert signed_bytes(HEAD) == TEXT
    private = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    signed = sign(HEAD, private)
    assert signed.signature == SIGNATURE
    assert signed.public_key == "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    assert signed.head == HEAD


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return make_keys(tmp_path / "key")


@pytest.fixture
def kept(tmp_path: Path, keys: tuple[Path, Path]) -> Path:
    """A signed head in a file."""
    path = tmp_path / "head.json"
    path.write_bytes(msgspec.json.encode(sign(HEAD, private_key(keys[0]))))
    return path


def test_a_pair_of_keys_is_for_its_owner_and_replaces_nothing(tmp_path: Path) -> None:
    mask = os.umask(0o000)
    try:
        private, public = make_keys(tmp_path / "key")
    finally:
        os.umask(mask)
    assert (private.name, public.name) == ("key", "key.pub")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (private, public)] == [0o600, 0o644]
    before = private.read_bytes(), public.read_bytes()
    with pytest.raises(FileThereError):
        make_keys(private)
    assert (private.read_bytes(), public.read_bytes()) == before
    private.unlink()
    with pytest.raises(FileThereError):  # the public one is still there
        make_keys(private)
    assert not private.exists()
    assert public.read_bytes() == before[1]
    with pytest.raises(InputError):
        make_keys(tmp_path / "no" / "such" / "key")


def test_a_signature_can_be_checked_without_holdfast(kept: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    signed = msgspec.json.decode(kept.read_bytes())
    (tmp_path / "text").write_bytes(TEXT)
    (tmp_path / "signature").write_bytes(bytes.fromhex(signed["signature"]))
    command = [
        "openssl",
        "pkeyutl",
        "-verify",
        "-pubin",
        "-inkey",
        str(keys[1]),
        "-rawin",
        "-in",
        str(tmp_path / "text"),
    ]
    done = subprocess.run(
        [*command, "-sigfile", str(tmp_path / "signature")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "Signature Verified Successfully")


def test_a_saved_head_reads_back_as_written(kept: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    assert read_head(kept).head == HEAD
    assert read_head(kept, public_key=keys[1]).head == HEAD
    plain = tmp_path / "plain.json"
    plain.write_bytes(msgspec.json.encode(HEAD))
    assert read_head(plain) == SignedHead(**msgspec.structs.asdict(HEAD))
    assert read_head(plain).signature is None


def altered(**changes: object) -> Callable[[bytes], bytes]:
    return lambda text: msgspec.json.encode(msgspec.json.decode(text) | changes)


def without(name: str) -> Callable[[bytes], bytes]:
    return lambda text: msgspec.json.encode({k: v for k, v in msgspec.json.decode(text).items() if k != name})


BAD: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda text: text[:-10],
    "empty": lambda _: b"",
    "no JSON": lambda _: b"head",
    "no head": lambda _: b"[1, 2]",
    "not UTF-8": lambda text: text.replace(b"ledger_id", b"\xff\xfe"),
    "far too long": lambda text: text + b" " * (1 << 24),
    "another seal": altered(seal=2),
    "another hash": altered(hash="cd" * 32),
    "another ledger": altered(ledger_id="f" * 32),
    "another epoch": altered(epoch=2),
    "more rows": altered(rows=25),
    "another time": altered(sealed_at="2026-03-14T09:26:53.589794Z"),
    "a negative seal": altered(seal=-1),
    "a seal that is text": altered(seal="3"),
    "something more": altered(note="trust me"),
    "another signature": altered(signature="00" * 64),
    "a short signature": altered(signature="00"),
    "a signature that is no number": altered(signature="xyz"),
    "another's key": altered(public_key="03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"),
    "a key that is none": altered(public_key="00"),
    "no signature": without("signature"),
    "no key": without("public_key"),
    "no hash": without("hash"),
}


@pytest.mark.parametrize("how", BAD)
def test_a_head_that_was_changed_is_refused(kept: Path, keys: tuple[Path, Path], how: str) -> None:
    kept.write_bytes(BAD[how](kept.read_bytes()))
    for key in (None, keys[1]):
        with pytest.raises(HeadInvalidError) as refused:
            read_head(kept, public_key=key)
        assert (refused.value.code, refused.value.exit_code) == ("head_invalid", 2)


def test_a_head_that_is_not_signed_with_the_given_key_is_refused(kept: Path, tmp_path: Path) -> None:
    _, other = make_keys(tmp_path / "other")
    with pytest.raises(HeadInvalidError) as refused:
        read_head(kept, public_key=other)
    assert refused.value.context.keys() == {"path", "signed_by", "expected"}
    kept.write_bytes(msgspec.json.encode(HEAD))
    with pytest.raises(HeadInvalidError) as refused:
        read_head(kept, public_key=other)
    assert refused.value.context == {"path": str(kept)}
    with pytest.raises(HeadInvalidError):
        read_head(tmp_path / "nowhere.json")


def test_a_file_of_heads_one_a_line(kept: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    assert read_heads(kept, public_key=keys[1]) == [read_head(kept)]
    first, second = kept.read_bytes().strip(), msgspec.json.encode(msgspec.structs.replace(HEAD, seal=4))
    heads = tmp_path / "heads.jsonl"
    heads.write_bytes(first + b"\n\n" + second + b"\n" + first + b"\n")
    assert [(one.seal, one.signature is None) for one in read_heads(heads)] == [
        (3, False),
        (4, True),
        (3, False),
    ]
    with pytest.raises(HeadInvalidError) as refused:
        read_heads(heads, public_key=keys[1])
    assert refused.value.context == {"path": str(heads), "line": 3}
    heads.write_bytes(first + b"\n" + first[:-10])
    with pytest.raises(HeadInvalidError) as refused:
        read_heads(heads)
    assert refused.value.context == {"path": str(heads), "line": 2}
    heads.write_bytes(msgspec.json.format(first, indent=2))  # one head, formatted by a person
    assert read_heads(heads) == [read_head(kept)]
    heads.write_bytes((first + b"\n") * 1000)
    assert len(read_heads(heads)) == 1000


@pytest.mark.parametrize("how", BAD)
def test_a_changed_line_of_a_file_of_heads_is_refused(kept: Path, keys: tuple[Path, Path], how: str) -> None:
    good = kept.read_bytes().strip()
    bad = BAD[how](good)
    if not bad.strip():
        return  # an empty line is ignored
    kept.write_bytes(good + b"\n" + bad + b"\n")
    with pytest.raises(HeadInvalidError):
        read_heads(kept, public_key=keys[1])


def test_white_space_after_a_head_is_ignored(kept: Path) -> None:
    good = kept.read_bytes().strip()
    kept.write_bytes(good + b"\n" + good + b" " * (1 << 20) + b"\n")
    assert len(read_heads(kept)) == 2


def other_curve(kind: str) -> bytes:
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    if kind == "private":
        return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize("kind", ["private", "public"])
@pytest.mark.parametrize("what", ["nothing", "no key", "the other half", "another curve", "a directory", "cut off"])
def test_files_that_hold_no_key(keys: tuple[Path, Path], kept: Path, tmp_path: Path, kind: str, what: str) -> None:
    mine, theirs = keys if kind == "private" else reversed(keys)
    path = tmp_path / "bad"
    if what == "a directory":
        path.mkdir()
    elif what != "nothing":
        path.write_bytes(
            {
                "no key": b"-----BEGIN NOTHING-----",
                "the other half": theirs.read_bytes(),
                "another curve": other_curve(kind),
                "cut off": mine.read_bytes()[:60],
            }[what]
        )
    read = private_key if kind == "private" else lambda key: read_head(kept, public_key=key)
    with pytest.raises(KeyInvalidError) as refused:
        read(path)
    assert (refused.value.code, refused.value.exit_code) == ("key_invalid", 2)
    assert "PRIVATE" not in refused.value.message


def test_without_the_extra_heads_are_read_and_signatures_are_refused(
    kept: Path, keys: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "plain.json"
    plain.write_bytes(msgspec.json.encode(HEAD))
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert read_head(plain).head == HEAD
    for act in (
        lambda: make_keys(tmp_path / "new"),
        lambda: private_key(keys[0]),
        lambda: read_head(kept),
        lambda: read_head(plain, public_key=keys[1]),
    ):
        with pytest.raises(ExtraMissingError) as refused:
            act()
        assert (refused.value.code, refused.value.exit_code) == ("extra_missing", 2)
        assert "pip install 'holdfast[signing]'" in refused.value.hint
    assert not (tmp_path / "new").exists()
