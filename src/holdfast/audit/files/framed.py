"""JSON Lines: the framing of snapshots and archives, which are compressed, and of exports, which are not.

Invariants: the same lines make the same bytes; a stream that was cut off or cannot be decompressed, and a line that is
too long or does not end, raise the error of the kind of file, with a stable `kind`; one line is in memory at a time.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeVar

import msgspec

from holdfast.core.errors import HoldfastError

GZIP = b"\x1f\x8b"  # the first bytes of a compressed file
BAD_LINE = (msgspec.MsgspecError, UnicodeDecodeError)

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


def json_line(value: object) -> bytes:
    return _encode(value) + b"\n"


def compressed(file: BinaryIO, *, level: int) -> gzip.GzipFile:
    """Return a stream that compresses into a file, without a name or a time, which would differ each time."""
    return gzip.GzipFile(filename="", mode="wb", compresslevel=level, fileobj=file, mtime=0)


class LineReader:
    """Reads the lines of a compressed file; `refuse(kind, detail)` makes the error if the file is not valid.

    With `plain` a file that is not compressed is read too.
    """

    def __init__(
        self,
        file: BinaryIO,
        refuse: Callable[[str, str], HoldfastError],
        *,
        line_bytes_max: int,
        plain: bool = False,
    ) -> None:
        packed = not plain or file.read(len(GZIP)) == GZIP
        file.seek(0)
        self._stream = gzip.GzipFile(fileobj=file, mode="rb") if packed else file
        self._refuse, self._line_bytes_max = refuse, line_bytes_max
        self.number = 0  # of the line that was read last

    def read(self) -> bytes:
        """Return the next line with its line feed, or nothing after the last."""
        try:
            text = self._stream.readline(self._line_bytes_max)
        except EOFError:
            raise self._refuse("cut_short", "the file was cut off") from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise self._refuse("not_compressed", f"the file cannot be decompressed: {error}") from None
        except OSError as error:
            raise self._refuse("unreadable", f"the file cannot be read: {error.strerror or error}") from error
        self.number += 1
        if text and not text.endswith(b"\n"):
            raise self._refuse("line_without_end", f"line {self.number} has no line feed, or is too long")
        return text

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.read, b"")

    def decode(self, text: bytes, shape: type[T]) -> T:
        """Return the value of the line that was read last."""
        try:
            return msgspec.json.decode(text, type=shape)
        except BAD_LINE as error:
            raise self._refuse("bad_line", f"line {self.number} is not valid: {error}") from None
