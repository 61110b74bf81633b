"""Archives: files that hold the journal rows of some seals, and the executions that ended in them.

JSON Lines, compressed: a header with the seals, then each seal's rows in order, the executions, and a trailer.

Invariants: a file under its name is complete and durable, and was compared with its seals while it was written; the
same history makes the same bytes; an archive that was cut off or changed is refused with ArchiveInvalidError; one line
is in memory at a time, unless the caller reads all of it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Self, cast
from uuid import uuid4

import msgspec

from holdfast.audit.files.framed import LineReader, compressed, json_line
from holdfast.audit.seals.sealer import ROW_FORMAT, genesis, row_lines, seal_hash
from holdfast.core.errors import ArchiveInvalidError, ArchiveUnwritableError, SealsBrokenError, invariant
from holdfast.core.seals import Seal
from holdfast.store.files import Draft

VERSION = 2
LEVEL = 6
LINE_BYTES_MAX = 64 << 20
STALE_S = 3600.0  # no archive takes so long to write: an older draft was left by a killed process
_DRAFT = re.compile(r"\.journal-\d+-\d+\.[0-9a-f]{32}\.part")

Row = tuple[
    int, int, int, str, int, int, str | None, str, str, str, str | None, int | None, str, int | None, int | None, str,
    str | None, str | None,
]  # fmt: skip
"""A journal row as it is sealed: seq, epoch, xid, machine, subject, version, …, at, status_from, status_to."""


class ArchiveHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line: the ledger of the history, and the seals over it."""

    holdfast_archive: int
    ledger_id: str
    first_seal: int
    last_seal: int
    seals: tuple[Seal, ...]


class _JournalLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    journal: Row


class _ExecutionLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    execution: dict[str, str | int | float | bool | None]


class _Trailer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rows: int
    executions: int


class WrittenArchive(msgspec.Struct, frozen=True):
    """An archive that was written: its file name, its SHA-256 and its counts."""

    file: str
    sha256: str
    rows: int
    executions: int


class ArchiveContents(msgspec.Struct, frozen=True):
    """All lines of an archive."""

    header: ArchiveHeader
    journal: list[Row]
    executions: list[dict[str, str | int | float | bool | None]]


def archive_name(first_seal: int, last_seal: int) -> str:
    return f"journal-{first_seal}-{last_seal}.jsonl.gz"


# ---------------------------------------------------------------------------------------------------------------------
# Writing


def require_directory(directory: Path) -> None:
    """Raise ArchiveUnwritableError unless archives can be written here; remove old drafts of killed processes."""
    with _file_errors(directory):
        if not directory.is_dir():
            missing = errno.ENOTDIR if directory.exists() else errno.ENOENT
            raise OSError(missing, os.strerror(missing))
        for path in list(directory.iterdir()):
            with suppress(FileNotFoundError):  # another writer has renamed its draft meanwhile
                if _DRAFT.fullmatch(path.name) and path.stat().st_mtime < time.time() - STALE_S:
                    path.unlink()
        draft = directory / _draft_of(0, 0)
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        draft.unlink()


class ArchiveWriter:
    """Writes one archive: its blocks in order, then the executions, then its name. On an error it leaves no file."""

    def __init__(self, directory: Path, ledger_id: str, seals: Sequence[Seal]) -> None:
        self._header = ArchiveHeader(VERSION, ledger_id, seals[0].seal_id, seals[-1].seal_id, tuple(seals))
        self._path = directory / archive_name(self._header.first_seal, self._header.last_seal)
        self._left = list(self._header.seals)
        self._block = _BlockHash(self._left[0])
        self._rows = self._executions = 0

    def __enter__(self) -> Self:
        with _file_errors(self._path.parent):
            name = _draft_of(self._header.first_seal, self._header.last_seal)
            self._draft = Draft(self._path, mode=0o640, name=name)
            try:
                self._hashed = _HashedFile(self._draft.file)
                self._lines = compressed(cast("BinaryIO", self._hashed), level=LEVEL)
                self._lines.write(json_line(self._header))
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._draft.discard()

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Write the next rows of the present block."""
        with _file_errors(self._path):
            for row in rows:
                self._block.add(row_lines([row]))
                self._lines.write(json_line({"journal": row}))

    def end_block(self) -> None:
        """End the present block; raise SealsBrokenError if its rows differ from what was sealed."""
        flaw = self._block.flaw()
        if flaw:
            seal = self._left[0]
            raise SealsBrokenError(
                f"block {seal.seal_id} cannot be archived: {flaw[1]}",
                context={"seal_id": seal.seal_id, "kind": flaw[0]},
            )
        self._rows += self._block.rows
        del self._left[0]
        if self._left:
            self._block = _BlockHash(self._left[0])

    def add_execution(self, execution: Mapping[str, object]) -> None:
        """Write an execution, column by column."""
        with _file_errors(self._path):
            self._lines.write(json_line({"execution": execution}))
        self._executions += 1

    def finish(self) -> WrittenArchive:
        """Make the archive durable under its name, and return its SHA-256 and counts."""
        invariant(not self._left, "an archive has the rows of each of its seals")
        with _file_errors(self._path):
            self._lines.write(json_line(_Trailer(self._rows, self._executions)))
            self._lines.close()
            self._refuse_to_replace_another()
            self._draft.publish(replace=True)
        return WrittenArchive(self._path.name, self._hashed.sha256, self._rows, self._executions)

    def _refuse_to_replace_another(self) -> None:
        """Raise ArchiveUnwritableError if the file exists, unless it is an archive of the same seals, complete or not.

        A killed writer leaves no incomplete file under this name; a full disk or an interrupted copy may.
        """
        if not self._path.exists() or not self._path.stat().st_size:
            return
        try:
            there = read_header(self._path)
        except ArchiveInvalidError as error:
            raise ArchiveUnwritableError(
                f"{self._path} exists already, and its first line is not that of an archive",
                next_step=f"Move {self._path} to another directory, then run `holdfast gc` again.",
                context={"file": str(self._path), "why": error.message},
            ) from None
        if (there.ledger_id, there.seals) != (self._header.ledger_id, self._header.seals):
            raise ArchiveUnwritableError(
                f"{self._path} exists already, with history of ledger {there.ledger_id} under other seals",
                next_step="Use one directory for each ledger and each copy of a ledger: see `holdfast gc --help`.",
                context={"file": str(self._path), "ledger_id": there.ledger_id},
            )


class _HashedFile:
    """Writes to a file, and hashes what it writes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        if not self._file.closed:  # a compressor that is discarded still writes its buffer
            self._hash.update(data)
            self._file.write(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: `write` has no buffer."""

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


class _BlockHash:
    """Counts and hashes the rows of a seal."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._digest = hashlib.sha256()
        self.rows = 0

    def add(self, line: bytes) -> None:
        self._digest.update(line)
        self.rows += 1

    def flaw(self) -> tuple[str, str] | None:
        """Return what is wrong with the rows: a stable word and a sentence; None if they are as sealed."""
        if self._seal.format != ROW_FORMAT:
            return "row_format", f"its rows have format {self._seal.format}; this Holdfast knows format {ROW_FORMAT}"
        if self.rows != self._seal.rows:
            return "row_count", f"it has {self.rows} rows, but {self._seal.rows} were sealed"
        if self._digest.hexdigest() != self._seal.digest:
            return "rows_changed", "its rows differ from those that were sealed"
        if seal_hash(self._seal) != self._seal.hash:
            return "seal_changed", "the fields of its seal do not have the hash of the seal"
        return None


def _draft_of(first_seal: int, last_seal: int) -> str:
    return f".journal-{first_seal}-{last_seal}.{uuid4().hex}.part"


@contextmanager
def _file_errors(where: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ArchiveUnwritableError(
            f"cannot write an archive to {where}: {reason}",
            context={"path": str(where), "errno": errno.errorcode.get(error.errno or 0)},
        ) from error


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def verify(path: Path, *, sha256: str | None = None) -> ArchiveHeader:
    """Read an archive to its end and return its header; raise ArchiveInvalidError unless it is complete and unchanged.

    Its seals are compared with its rows and with each other; the caller compares them with the ledger's. No seal covers
    the executions: only the SHA-256, which is in the ledger and its journal, does.
    """
    lines = _checked(path, sha256)
    header = cast("ArchiveHeader", next(lines))
    for _ in lines:
        pass
    return header


def read_header(path: Path) -> ArchiveHeader:
    """Return the header of an archive, whether the rest of it is complete or not."""
    with _opened(path) as (_, lines):
        return _header(path, lines)


def read(path: Path, *, sha256: str | None = None) -> ArchiveContents:
    """Return all lines of an archive; raise ArchiveInvalidError unless it is complete and unchanged."""
    lines = _checked(path, sha256)
    contents = ArchiveContents(cast("ArchiveHeader", next(lines)), [], [])
    for line in lines:
        if isinstance(line, _JournalLine):
            contents.journal.append(line.journal)
        elif isinstance(line, _ExecutionLine):
            contents.executions.append(line.execution)
    return contents


_Line = ArchiveHeader | _JournalLine | _ExecutionLine


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BufferedReader, LineReader]]:
    try:
        with path.open("rb") as file:
            yield file, LineReader(file, partial(_invalid, path), line_bytes_max=LINE_BYTES_MAX)
    except OSError as error:
        raise _invalid(path, "unreadable", f"the file cannot be read: {error.strerror or error}") from None


def _checked(path: Path, sha256: str | None) -> Iterator[_Line]:
    """Yield the lines of an archive, each verified; if this ends without an error, the archive is complete."""
    with _opened(path) as (file, lines):
        if sha256 is not None:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != sha256:
                raise _invalid(path, "sha256", f"its SHA-256 is {found}, but the ledger has {sha256}")
            file.seek(0)
        yield from _parsed(path, lines)


def _parsed(path: Path, lines: LineReader) -> Iterator[_Line]:
    header = _header(path, lines)
    yield header
    rows = executions = 0
    for seal in header.seals:
        block = _BlockHash(seal)
        for text in islice(lines, seal.rows):
            parsed = lines.decode(text, _JournalLine)
            block.add(row_lines([parsed.journal]))
            yield parsed
        if flaw := block.flaw():
            raise _invalid(path, flaw[0], f"block {seal.seal_id}: {flaw[1]}")
        rows += block.rows
    for text in lines:
        if not text.startswith(b'{"execution"'):
            trailer = lines.decode(text, _Trailer)
            break
        yield lines.decode(text, _ExecutionLine)
        executions += 1
    else:
        raise _invalid(path, "cut_short", "the last line is missing")
    if trailer != _Trailer(rows, executions):
        raise _invalid(
            path,
            "counts",
            f"it has {rows} rows and {executions} executions, but its last line says {trailer.rows} and"
            f" {trailer.executions}",
        )
    if lines.read():
        raise _invalid(path, "trailing_data", "data follows the last line")


def _header(path: Path, lines: LineReader) -> ArchiveHeader:
    header = lines.decode(lines.read(), ArchiveHeader)
    if header.holdfast_archive != VERSION:
        raise _invalid(
            path, "version", f"its format has version {header.holdfast_archive}; this Holdfast reads version {VERSION}"
        )
    ids = [seal.seal_id for seal in header.seals]
    if not ids or ids != list(range(header.first_seal, header.last_seal + 1)):
        raise _invalid(path, "seal_range", f"its seals are not {header.first_seal} to {header.last_seal}")
    if header.first_seal == 1 and header.seals[0].previous != genesis(header.ledger_id):
        raise _invalid(path, "ledger", f"seal 1 does not belong to ledger {header.ledger_id}")
    for before, seal in zip(header.seals, header.seals[1:], strict=False):
        if seal.previous != before.hash:
            raise _invalid(path, "seal_order", f"seal {seal.seal_id} does not contain the hash of the seal before it")
    return header


def _invalid(path: Path, kind: str, detail: str) -> ArchiveInvalidError:
    return ArchiveInvalidError(f"{path} is not a valid archive: {detail}", context={"file": str(path), "kind": kind})
