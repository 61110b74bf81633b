"""Snapshots: a whole ledger in one file that either database can write, and either can read.

The file is a gzip stream of JSON Lines: a header; the rows of every table that travels, in a fixed order, each as
`[table, value, …]`; and a trailer with the number of rows by table and the SHA-256 of all lines before it.

Invariants: a snapshot is of one moment; the same ledger gives the same lines; no more than a few rows are in memory;
a file under its final name is whole, and is never replaced. Whatever is not exactly so is SnapshotInvalidError.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from types import GenericAlias
from typing import IO, Annotated, Any, Literal, Protocol, Self
from uuid import uuid4

import msgspec

from holdfast.core.errors import (
    FileThereError,
    HoldfastError,
    InputError,
    SnapshotInvalidError,
)
from holdfast.core.records import time_text
from holdfast.store.files import give_name
from holdfast.store.migrations import migrations
from holdfast.store.portable import NUMBERED, TABLES, Kind, Row, Table, count_of, rows_of, sequences
from holdfast.store.reading import Reading
from holdfast.store.store import Store

FORMAT = 1
LEVEL = 3  # of compression: beyond it, a snapshot takes longer and is hardly smaller
CHUNK = 1 << 18
LINE_MAX = 1 << 30
EVERY = 2000  # rows between two words about progress
GZIP = b"\x1f\x8b"

Progress = Callable[[str, int, int], None]  # what is done, how far it is, and of how much

_TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"
_KINDS: dict[Kind, Any] = {
    Kind.TEXT: str,
    Kind.WHOLE: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    Kind.REAL: float,
    Kind.TIME: Annotated[str, msgspec.Meta(pattern=_TIME)],
    Kind.FLAG: Literal[0, 1],
}
BAD_LINE = (msgspec.MsgspecError, UnicodeDecodeError)
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_encode = msgspec.json.Encoder().encode


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: which ledger this is, when it was taken, and what its rows are."""

    holdfast_snapshot: int
    ledger_id: str
    epoch: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 2)]
    schema: int  # the number of the last migration
    created_at: str
    dialect: str
    environment: str
    governed: bool
    sequences: dict[str, _Number]  # the greatest id that each table has given out
    tables: dict[str, list[str]]  # the columns of each table


class Trailer(msgspec.Struct, frozen=True, kw_only=True):
    """The last line."""

    rows: dict[str, int]
    sha256: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be said of a snapshot that is whole."""

    file: str
    bytes: int
    header: Header
    trailer: Trailer


class Source(Protocol):
    """What can be read table by table, in order: a snapshot, or a ledger."""

    @property
    def header(self) -> Header: ...

    def rows(self, table: Table) -> Iterator[Row]: ...


def schema_number(dialect: str) -> int:
    """Return the number of the last migration that this version knows."""
    return migrations(dialect)[-1].number


# ---------------------------------------------------------------------------------------------------------------------
# A line


def line_of(table: Table, row: Row) -> bytes:
    """Return a row as its line."""
    return _encode([table.name, *row]) + b"\n"


def row_of(table: Table, line: bytes) -> Row:
    """Return the row that a line holds; raise one of BAD_LINE if it is no row of the table."""
    row: tuple[Any, ...] = _DECODERS[table.name].decode(line)
    return row[1:]


def _decoder(table: Table) -> msgspec.json.Decoder[Any]:
    kinds = (_KINDS[column.kind] | None if column.nullable else _KINDS[column.kind] for column in table.columns)
    shape: Any = GenericAlias(tuple, (str, *kinds))
    return msgspec.json.Decoder(shape)


_DECODERS = {table.name: _decoder(table) for table in TABLES}


# ---------------------------------------------------------------------------------------------------------------------
# Writing


class LiveLedger:
    """A ledger at one moment, as a source."""

    def __init__(self, store: Store[Any], reading: Reading) -> None:
        meta = reading.meta()
        self._reading = reading
        self.header = Header(
            holdfast_snapshot=FORMAT,
            ledger_id=meta["ledger_id"],
            epoch=int(meta["epoch"]),
            schema=schema_number(store.dialect),
            created_at=time_text(store.now()),
            dialect=store.dialect,
            environment=meta["environment"],
            governed=meta["governed"] == "yes",
            sequences=sequences(reading),
            tables={table.name: table.names for table in TABLES},
        )

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield a table's rows in the order of its key."""
        return rows_of(self._reading, table)

    def size(self) -> int:
        """Return how many rows there are."""
        return sum(count_of(self._reading, table) for table in TABLES)


def create(store: Store[Any], path: Path, *, progress: Progress | None = None) -> Summary:
    """Write a snapshot of a ledger to a new file."""
    with _drafted(path) as file, store.standing(path.parent) as reading:
        ledger = LiveLedger(store, reading)
        trailer = _write(ledger, file, progress, ledger.size() if progress else 0)
    return Summary(file=str(path), bytes=path.stat().st_size, header=ledger.header, trailer=trailer)


def _write(source: Source, file: IO[bytes], progress: Progress | None, total: int) -> Trailer:
    seen, lines, digest, counts = 0, bytearray(_encode(source.header) + b"\n"), sha256(), {}
    # No name and no time in it: the same lines are the same bytes.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=file, mtime=0) as packed:
        for table in TABLES:
            counts[table.name] = 0
            for row in source.rows(table):
                lines += line_of(table, row)
                counts[table.name] += 1
                seen += 1
                if len(lines) >= CHUNK:
                    digest.update(lines)
                    packed.write(lines)
                    lines.clear()
                if progress and seen % EVERY == 0:
                    progress("writing", seen, total)
        digest.update(lines)
        packed.write(lines)
        trailer = Trailer(rows=counts, sha256=digest.hexdigest())
        packed.write(_encode(trailer) + b"\n")
    return trailer


def _require_free(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise FileThereError(f"{path} exists already")
    if not path.parent.is_dir():
        raise InputError(f"there is no directory {path.parent}", next_step="Create it, or correct the path.")


@contextmanager
def _drafted(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that gets its name when the block has ended well, and is on disk then."""
    draft = path.parent / f".holdfast-{uuid4().hex}.part"
    try:
        _require_free(path)
        # For its owner only: it has every payload in it.
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if not give_name(draft, path):
            raise FileThereError(f"{path} exists already")
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror or error}",
            next_step="Make room on the disk, or name a file in a directory that can be written.",
            context={"path": str(path)},
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink()


# ---------------------------------------------------------------------------------------------------------------------
# Reading


class SnapshotFile:
    """A snapshot, read from its first line to its last. Use as a context; `finish` tells whether it was whole."""

    def __init__(self, path: Path, *, progress: Progress | None = None, doing: str = "reading") -> None:
        self.path = path
        self.bytes_read = 0  # of lines, unpacked
        self._progress, self._doing = progress, doing
        self._digest = sha256()
        self._number = 0
        self._counts = dict.fromkeys((table.name for table in TABLES), 0)
        self._greatest: dict[str, int] = {}
        try:
            self._file = path.open("rb")
        except (OSError, ValueError) as error:
            raise SnapshotInvalidError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from error
        try:
            self._size = os.fstat(self._file.fileno()).st_size
            self._lines = io.BufferedReader(gzip.GzipFile(fileobj=self._file, mode="rb"), CHUNK)
            self._line = self._next()
            self.header = self._header()
            self._advance()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield the rows of a table; tables are read in the order of TABLES."""
        begins = f'["{table.name}",'.encode()
        last: tuple[Any, ...] = ()
        while self._line.startswith(begins):
            try:
                row = row_of(table, self._line)
            except BAD_LINE as error:
                raise self._invalid(f"line {self._number} is no row of {table.name}: {error}") from None
            key = table.key_of(row)
            if last and key <= last:
                raise self._invalid(f"line {self._number} is out of order")
            last = key
            self._counts[table.name] += 1
            self._note(table, row)
            self._advance()
            yield row

    def finish(self) -> Summary:
        """Check what follows the last row: a trailer that agrees with everything before it, and then nothing."""
        if not self._line:
            raise self._invalid("it is cut short: the last line is missing")
        try:
            trailer = msgspec.json.decode(self._line, type=Trailer)
        except BAD_LINE:
            raise self._invalid(f"line {self._number} is neither a row in its place nor the last line") from None
        if trailer.rows != self._counts:
            raise self._invalid("its last line counts other rows than it has")
        if trailer.sha256 != self._digest.hexdigest():
            raise self._invalid("its SHA-256 is not that of its lines")
        if self._next():
            raise self._invalid("something follows its last line")
        return Summary(file=str(self.path), bytes=self._size, header=self.header, trailer=trailer)

    def given_out(self) -> dict[str, int]:
        """Return the greatest id of each table that was given out or read, by table."""
        known = self.header.sequences
        return {name: max(known.get(name, 0), self._greatest.get(name, 0)) for name in NUMBERED}

    def _header(self) -> Header:
        try:
            fields = msgspec.json.decode(self._line, type=dict[str, msgspec.Raw])
            version = msgspec.json.decode(fields.get("holdfast_snapshot", b"0"), type=int)
        except BAD_LINE:
            raise self._invalid("its first line is not a snapshot's") from None
        if version != FORMAT:
            unknown = f"its format is {version}, and this Holdfast knows {FORMAT}" if version else "it is no snapshot"
            raise self._invalid(unknown, format=version)
        try:
            header = msgspec.json.decode(self._line, type=Header)
        except BAD_LINE as error:
            raise self._invalid(f"its first line is not a snapshot's: {error}") from None
        known = schema_number("sqlite")  # both dialects have the same numbers
        if header.schema != known:
            raise SnapshotInvalidError(
                f"{self.path} has the schema {header.schema:04d}, and this Holdfast has {known:04d}",
                next_step="Restore it with the version of Holdfast that made it"
                + (
                    ", and run `holdfast migrate` with this one." if header.schema < known else ", or upgrade this one."
                ),
                context={"schema": header.schema, "holdfast": known},
            )
        if header.tables != {table.name: table.names for table in TABLES}:
            raise self._invalid("its tables are not those of its schema")
        return header

    def _note(self, table: Table, row: Row) -> None:
        if table.name in NUMBERED:
            self._greatest[table.name] = row[0]  # in order, so the last is the greatest
        if table.name == "journal" and row[3] == "MAINTENANCE":
            self._greatest["maintenance"] = max(row[4], self._greatest.get("maintenance", 0))

    def _advance(self) -> None:
        self._digest.update(self._line)
        self.bytes_read += len(self._line)
        self._line = self._next()
        if self._progress and self._number % EVERY == 0:
            self._progress(self._doing, self._file.tell(), self._size)

    def _next(self) -> bytes:
        try:
            line = self._lines.readline(LINE_MAX)
        except EOFError:
            raise self._invalid("it is cut short") from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise self._invalid(f"it cannot be unpacked: {error}") from None
        except OSError as error:
            raise SnapshotInvalidError(f"{self.path} cannot be read: {error.strerror}") from error
        self._number += 1
        if line and not line.endswith(b"\n"):
            raise self._invalid(f"line {self._number} does not end")
        return line

    def _invalid(self, what: str, **context: object) -> HoldfastError:
        return SnapshotInvalidError(f"{self.path} is not a snapshot that can be used: {what}", context=context)
