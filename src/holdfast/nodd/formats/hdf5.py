"""HDF5, the format of NetCDF-4: the superblock has the size of the file; attributes are read only with h5py.

Invariants: the superblock is enough to find truncation; without h5py only the superblock is read, and `attributes`
returns None.
"""

from __future__ import annotations

import io
import struct
from typing import Any

import msgspec

from holdfast.nodd.formats import Damaged, Read, exactly

SIGNATURE = b"\x89HDF\r\n\x1a\n"
HEAD_BYTES = 96
PART_BYTES = 1 << 20
PARTS_MAX = 48  # read for the attributes of one file: they are in few places of even a large file
EXTENT, FIELD_OF_VIEW = "geospatial_lat_lon_extent", "field_of_view"


class Superblock(msgspec.Struct, frozen=True):
    """The version of the superblock, and the size of the file that it gives."""

    version: int
    end: int


def superblock(read: Read, size: int) -> Superblock:
    """Return the superblock; raise Damaged if the object is not an HDF5 file, or is truncated."""
    head = read(0, HEAD_BYTES)
    if head[:8] != SIGNATURE:
        raise Damaged("bad_magic", "the object does not start with the signature of HDF5")
    try:
        found = _superblock(head)
    except (struct.error, IndexError):
        raise Damaged("truncated", "the superblock is not complete") from None
    if found.end > size:
        raise Damaged("truncated", f"the superblock gives {found.end} bytes, but the object has only {size}")
    return found


def _superblock(head: bytes) -> Superblock:
    version = head[8]
    if version in (0, 1):
        width, at = head[13], 24 if version == 0 else 28
        base, _, end = (_number(head, at + n * width, width) for n in range(3))
        return Superblock(version, base + end)
    if version in (2, 3):
        width = head[9]
        base, _, end = (_number(head, 12 + n * width, width) for n in range(3))
        return Superblock(version, base + end)
    raise Damaged("unsupported_version", f"version {version} of the superblock is not supported")


def _number(head: bytes, at: int, width: int) -> int:
    if width not in (2, 4, 8) or at + width > len(head):
        raise Damaged("truncated", "the superblock is not complete")
    return int.from_bytes(head[at : at + width], "little")


def attributes(read: Read, size: int) -> dict[str, Any] | None:
    """Return the attributes of the file and its area; None without h5py, or if they are in too many parts of the file.

    The area is that of an image (`EXTENT`) or of a lightning mapper (`FIELD_OF_VIEW`). Raises Damaged if h5py cannot
    read the file.
    """
    try:
        import h5py  # noqa: PLC0415 - optional
    except ImportError:
        return None
    try:
        with h5py.File(_Parts(read, size), "r") as file:
            found = {name: _plain(value) for name, value in file.attrs.items()}
            if EXTENT in file:
                found[EXTENT] = {name: _plain(value) for name, value in file[EXTENT].attrs.items()}
            view = {axis: f"{axis}_field_of_view_bounds" for axis in ("lat", "lon")}
            if all(name in file for name in view.values()):
                found[FIELD_OF_VIEW] = {axis: _plain(file[name][()]) for axis, name in view.items()}
    except _TooManyPartsError:
        return None
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise Damaged("unreadable", f"the file cannot be read: {type(error).__name__}") from None
    return found


class _TooManyPartsError(Exception):
    """More of the file would have to be read than its attributes are worth."""


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    item = getattr(value, "tolist", None)
    plain = item() if item is not None else value
    if isinstance(plain, bytes):
        return plain.decode(errors="replace")
    return plain[0] if isinstance(plain, list) and len(plain) == 1 else plain


class _Parts(io.RawIOBase):
    """An object as a file that h5py can seek in; ranges that were read are cached."""

    def __init__(self, read: Read, size: int) -> None:
        super().__init__()
        self._read, self._size, self._at = read, size, 0
        self._kept: dict[int, bytes] = {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._at)
        got = 0
        while got < wanted:
            number, within = divmod(self._at + got, PART_BYTES)
            if number not in self._kept:
                if len(self._kept) >= PARTS_MAX:
                    raise _TooManyPartsError
                length = min(PART_BYTES, self._size - number * PART_BYTES)
                self._kept[number] = exactly(self._read, number * PART_BYTES, length, "the file")
            piece = self._kept[number][within : within + wanted - got]
            buffer[got : got + len(piece)] = piece
            got += len(piece)
        self._at += max(got, 0)
        return max(got, 0)
