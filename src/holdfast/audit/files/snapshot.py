"""Snapshots: a whole ledger in one file, which both databases can write and read.

The file is a gzip stream of JSON Lines: a header; the rows of each table, in a fixed order, each as
`[table, value, …]`; and a trailer with the number of rows by table and the SHA-256 of all lines before it.

Invariants: a snapshot shows one moment; the same ledger gives the same lines; only a few rows are in memory; a file
under its final name is complete, and is never replaced. Any other file raises SnapshotInvalidError.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, BinaryIO, Literal, Protocol, Self

import msgspec

from holdfast.audit.files.framed import BAD_LINE, LineReader, compressed, json_line
from holdfast.core.errors import HoldfastError, InputError, SnapshotInvalidError
from holdfast.core.records import time_text
from holdfast.store.configuration import configuration
from holdfast.store.files import new_file
from holdfast.store.migrations import migrations
from holdfast.store.store import Store
from holdfast.store.tables import NUMBERED, TABLES, Kind, Row, Table
from holdfast.store.transaction import Reading

FORMAT = 2
LEVEL = 3  # of compression: a higher level takes longer and saves little
CHUNK = 1 << 18
LINE_MAX = 64 << 20  # bytes of a line, unless larger payloads are allowed: a small file can hold a line of gigabytes
ESCAPED_MAX = 8  # escaped, a payload in a line is at most so many times as long
PROGRESS_ROWS = 2000  # rows between two calls of `progress`

Progress = Callable[[str, int, int], None]  # what is being done, how much of it is done, and the total

_TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"
_KINDS: dict[Kind, Any] = {
    Kind.TEXT: str,
    Kind.WHOLE: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    Kind.REAL: float,
    Kind.TIME: Annotated[str, msgspec.Meta(pattern=_TIME)],
    Kind.FLAG: Literal[0, 1],
}
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


def _line_max() -> int:
    """Return how many bytes of a line are read: more if the environment allows larger payloads."""
    return max(LINE_MAX, ESCAPED_MAX * configuration().payload_max_bytes)


class SnapshotHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: the ledger, the time of the snapshot, and the columns of its rows."""

    holdfast_snapshot: int
    ledger_id: str
    epoch: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 2)]
    schema: int  # the number of the last migration
    created_at: str
    dialect: str
    environment: str
    governed: bool
    sequences: dict[str, _Number]  # the greatest id that each table has assigned
    tables: dict[str, list[str]]  # the columns of each table


class SnapshotTrailer(msgspec.Struct, frozen=True, kw_only=True):
    """The last line: the number of rows by table, and the SHA-256 of all lines before it."""

    rows: dict[str, int]
    sha256: str


class SnapshotSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A complete snapshot: its file, size, first and last line."""

    file: str
    bytes: int
    header: SnapshotHeader
    trailer: SnapshotTrailer


class SnapshotSource(Protocol):
    """A snapshot or a ledger, read table by table, in order."""

    @property
    def header(self) -> SnapshotHeader: ...

    def rows(self, table: Table) -> Iterator[Row]: ...


def schema_number(dialect: str) -> int:
    """Return the number of the last migration of this version."""
    return migrations(dialect)[-1].number


# ---------------------------------------------------------------------------------------------------------------------
# A line


def line_of(table: Table, row: Row) -> bytes:
    return json_line([table.name, *row])


def row_of(table: Table, text: bytes) -> Row:
    """Return the row in a line; raise one of BAD_LINE if it is not a row of the table."""
    row: tuple[Any, ...] = _DECODERS[table.name].decode(text)
    return row[1:]


def _decoder(table: Table) -> msgspec.json.Decoder[Any]:
    kinds = (_KINDS[column.kind] | None if column.nullable else _KINDS[column.kind] for column in table.columns)
    shape: Any = GenericAlias(tuple, (str, *kinds))
    return msgspec.json.Decoder(shape)


_DECODERS = {table.name: _decoder(table) for table in TABLES}


# ---------------------------------------------------------------------------------------------------------------------
# Writing


class LiveLedger:
    """A ledger at one moment, as the source of a snapshot."""

    def __init__(self, store: Store[Any], reading: Reading) -> None:
        meta = reading.settings.read()
        self._reading = reading
        self.header = SnapshotHeader(
            holdfast_snapshot=FORMAT,
            ledger_id=meta["ledger_id"],
            epoch=int(meta["epoch"]),
            schema=schema_number(store.dialect),
            created_at=time_text(store.now()),
            dialect=store.dialect,
            environment=meta["environment"],
            governed=meta["governed"] == "yes",
            sequences=reading.portable.sequences(),
            tables={table.name: table.names for table in TABLES},
        )

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield a table's rows in the order of its key."""
        return self._reading.portable.rows_of(table)

    def size(self) -> int:
        return sum(self._reading.portable.count_of(table) for table in TABLES)


def create(store: Store[Any], path: Path, *, progress: Progress | None = None) -> SnapshotSummary:
    """Write a snapshot of a ledger to a new file, and return its summary.

    Raise FileThereError if the file exists, and InputError if it cannot be written.
    """
    if not path.parent.is_dir():
        raise InputError(f"the directory {path.parent} does not exist", next_step="Create it, or correct the path.")
    # Readable by its owner only: it contains every payload.
    with new_file(path, mode=0o600) as file, store.upkeep.long_view(path.parent) as reading:
        ledger = LiveLedger(store, reading)
        trailer = _write(ledger, file, progress, ledger.size() if progress else 0)
    return SnapshotSummary(file=str(path), bytes=path.stat().st_size, header=ledger.header, trailer=trailer)


def _write(source: SnapshotSource, file: BinaryIO, progress: Progress | None, total: int) -> SnapshotTrailer:
    seen, lines, digest, counts = 0, bytearray(json_line(source.header)), sha256(), {}
    with compressed(file, level=LEVEL) as packed:
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
                if progress and seen % PROGRESS_ROWS == 0:
                    progress("writing", seen, total)
        digest.update(lines)
        packed.write(lines)
        trailer = SnapshotTrailer(rows=counts, sha256=digest.hexdigest())
        packed.write(json_line(trailer))
    return trailer


# ---------------------------------------------------------------------------------------------------------------------
# Reading


class SnapshotFile:
    """A snapshot, read from its first line to its last. Use as a context; `finish` verifies that it is complete."""

    def __init__(self, path: Path, *, progress: Progress | None = None, doing: str = "reading") -> None:
        self.path = path
        self.bytes_read = 0  # of lines, unpacked
        self._progress, self._doing = progress, doing
        self._digest = sha256()
        self._counts = dict.fromkeys((table.name for table in TABLES), 0)
        self._greatest: dict[str, int] = {}
        try:
            self._file = path.open("rb")
        except (OSError, ValueError) as error:
            raise SnapshotInvalidError(
                f"{path} cannot be read: {getattr(error, 'strerror', error)}",
                context={"kind": "unreadable", "path": str(path)},
            ) from error
        try:
            self._size = os.fstat(self._file.fileno()).st_size
            self._lines = LineReader(self._file, self._invalid, line_bytes_max=_line_max())
            self._line = self._lines.read()
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
                raise self._invalid(
                    "bad_line", f"line {self._lines.number} is not a row of {table.name}: {error}"
                ) from None
            key = table.key_of(row)
            if last and key <= last:
                raise self._invalid("order", f"line {self._lines.number} is out of order")
            last = key
            self._counts[table.name] += 1
            self._note(table, row)
            self._advance()
            yield row

    def finish(self) -> SnapshotSummary:
        """Verify the last line and the end of the file, and return the summary."""
        if not self._line:
            raise self._invalid("cut_short", "the last line is missing")
        try:
            trailer = msgspec.json.decode(self._line, type=SnapshotTrailer)
        except BAD_LINE:
            raise self._invalid(
                "order", f"line {self._lines.number} is neither the next row nor the last line"
            ) from None
        if trailer.rows != self._counts:
            raise self._invalid("counts", "the number of rows differs from the last line")
        if trailer.sha256 != self._digest.hexdigest():
            raise self._invalid("sha256", "the SHA-256 of the lines differs from the last line")
        if self._lines.read():
            raise self._invalid("trailing_data", "data follows the last line")
        return SnapshotSummary(file=str(self.path), bytes=self._size, header=self.header, trailer=trailer)

    def given_out(self) -> dict[str, int]:
        """Return the greatest id that each table has assigned or contains."""
        known = self.header.sequences
        return {name: max(known.get(name, 0), self._greatest.get(name, 0)) for name in NUMBERED}

    def _header(self) -> SnapshotHeader:
        try:
            fields = msgspec.json.decode(self._line, type=dict[str, msgspec.Raw])
            version = msgspec.json.decode(fields.get("holdfast_snapshot", b"0"), type=int)
        except BAD_LINE:
            raise self._invalid("header", "its first line is not that of a snapshot") from None
        if version != FORMAT:
            age = "too old" if version < FORMAT else "too new"
            detail = f"its format {version} is {age}: this Holdfast reads format {FORMAT}"
            raise self._invalid("format", detail if version else "it has no snapshot format", format=version)
        try:
            header = msgspec.json.decode(self._line, type=SnapshotHeader)
        except BAD_LINE as error:
            raise self._invalid("header", f"its first line is not that of a snapshot: {error}") from None
        known = schema_number("sqlite")  # both dialects have the same numbers
        if header.schema != known:
            raise SnapshotInvalidError(
                f"{self.path} has schema {header.schema:04d}; this Holdfast has schema {known:04d}",
                next_step="Restore it with the Holdfast that made it, then run `holdfast migrate` with this version."
                if header.schema < known
                else "Upgrade Holdfast to the version that made it.",
                context={"kind": "schema", "schema": header.schema, "holdfast": known},
            )
        if header.tables != {table.name: table.names for table in TABLES}:
            raise self._invalid("tables", "its tables differ from those of its schema")
        return header

    def _note(self, table: Table, row: Row) -> None:
        if table.name in NUMBERED:
            self._greatest[table.name] = row[0]  # in order, so the last is the greatest
        if table.name == "journal" and row[3] == "MAINTENANCE":
            self._greatest["maintenance"] = max(row[4], self._greatest.get("maintenance", 0))

    def _advance(self) -> None:
        self._digest.update(self._line)
        self.bytes_read += len(self._line)
        self._line = self._lines.read()
        if self._progress and self._lines.number % PROGRESS_ROWS == 0:
            self._progress(self._doing, self._file.tell(), self._size)

    def _invalid(self, kind: str, detail: str, **context: object) -> HoldfastError:
        return SnapshotInvalidError(f"{self.path} is not a valid snapshot: {detail}", context={"kind": kind, **context})
