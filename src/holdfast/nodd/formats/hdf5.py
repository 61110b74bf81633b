"""HDF5, the format of NetCDF-4: the superblock has the size of the file; attributes are read only with h5py.

Invariants: the superblock is enough to find truncation; without h5py only the superblock is read, and `attributes`
returns None; attributes are read in at most RANGES_MAX ranges of the file.
"""

from __future__ import annotations

import io
import struct
from typing import Any

import msgspec

from holdfast.nodd.formats import Damaged, Read, exactly

SIGNATURE = b"\x89HDF\r\n\x1a\n"
HEAD_BYTES = 96
RANGE_BYTES = 8 << 20  # what one request returns at most
FIRST_BYTES = 1 << 20  # the first range, which is fetched with the head of an object
RANGES_MAX = 4  # read for the attributes of one file: they are in few places of even a large file
EXTENT, FIELD_OF_VIEW, GRID = "geospatial_lat_lon_extent", "field_of_view", "grid"
MAPPINGS = ("crs", "ProjectionCoordinateSystem")  # variables whose attributes describe the projection


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

    The area is that of an image (`EXTENT`), of a lightning mapper (`FIELD_OF_VIEW`) or of a grid (`GRID`: the first and
    last centre and the number of its columns and rows). The projection of a grid is `proj4`. Raises Damaged if h5py
    cannot read the file.
    """
    try:
        import h5py  # noqa: PLC0415 - optional
    except ImportError:
        return None
    try:
        with h5py.File(_Ranges(read, size), "r") as file:
            found = _attributes_of(file)
            if EXTENT in file:
                found[EXTENT] = _attributes_of(file[EXTENT])
            view = {axis: f"{axis}_field_of_view_bounds" for axis in ("lat", "lon")}
            if all(name in file for name in view.values()):
                found[FIELD_OF_VIEW] = {axis: _plain(file[name][()]) for axis, name in view.items()}
            for name in MAPPINGS:
                if name in file and "proj4" in file[name].attrs:
                    found.setdefault("proj4", _plain(file[name].attrs["proj4"]))
            axes = [file.get(axis) for axis in ("x", "y")]
            if "proj4" in found and all(axis is not None and axis.ndim == 1 and axis.size > 1 for axis in axes):
                found[GRID] = [[float(axis[0]), float(axis[-1]), int(axis.size)] for axis in axes]
    except _TooManyRangesError:
        return None
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise Damaged("unreadable", f"the file cannot be read: {type(error).__name__}") from None
    return found


class _TooManyRangesError(Exception):
    """More of the file would have to be read than its attributes are worth."""


def _attributes_of(part: Any) -> dict[str, Any]:
    return {name: _plain(value) for name, value in part.attrs.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    item = getattr(value, "tolist", None)
    plain = item() if item is not None else value
    if isinstance(plain, bytes):
        return plain.decode(errors="replace")
    return plain[0] if isinstance(plain, list) and len(plain) == 1 else plain


class _Ranges(io.RawIOBase):
    """An object as a file that h5py can seek in: it is read in few large ranges, which are kept."""

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
        wanted = max(0, min(len(buffer), self._size - self._at))
        got = 0
        while got < wanted:
            at = self._at + got
            start = max((start for start in self._kept if start <= at), default=-1)
            if start < 0 or at >= start + len(self._kept[start]):
                start = self._fetch(at)
            piece = self._kept[start][at - start : at - start + wanted - got]
            buffer[got : got + len(piece)] = piece
            got += len(piece)
        self._at += got
        return got

    def _fetch(self, at: int) -> int:
        """Read a range that contains an offset, up to the next one that was read; return where it begins."""
        if len(self._kept) >= RANGES_MAX:
            raise _TooManyRangesError
        length = RANGE_BYTES if self._kept else FIRST_BYTES
        before = max((start + len(part) for start, part in self._kept.items() if start <= at), default=0)
        after = min((start for start in self._kept if start > at), default=self._size)
        start = max(before, min(at, after - length)) if self._kept else 0
        self._kept[start] = exactly(self._read, start, min(length, after - start), "the file")
        return start
