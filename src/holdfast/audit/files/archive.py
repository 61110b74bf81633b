"""Archives: files that hold the journal rows of some seals, and the executions that ended in them.

JSON Lines, compressed: a header with the seals, then each seal's rows in order, the executions, and a trailer.

Invariants: a file under its name is whole and durable, and was compared with its seals while it was written; the same
history makes the same bytes; an archive that was cut off, altered or mixed up is refused with ArchiveInvalidError; no
more of a file is held in memory than one line, unless the caller asks for all of it.
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
from holdfast.audit.seals.sealer import genesis, row_lines, seal_hash
from holdfast.core.errors import ArchiveInvalidError, ArchiveUnwritableError, SealsBrokenError, invariant
from holdfast.core.records import Seal
from holdfast.store.files import Draft

VERSION = 1
LEVEL = 6
LINE_BYTES_MAX = 64 << 20
STALE_S = 3600.0  # no archive takes so long to write: a draft as old as that was left by somebody who was killed
_DRAFT = re.compile(r"\.journal-\d+-\d+\.[0-9a-f]{32}\.part")

Row = tuple[
    int, int, int, str, int, int, str | None, str, str, str, str | None, int | None, str, int | None, int | None, str
]
"""A journal row as it is sealed: seq, epoch, xid, machine, subject, version, …, at."""


class ArchiveHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line: whose history this is, and the seals that close it."""

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
    """An archive that has just been written: its name and what is in it."""

    file: str
    sha256: str
    rows: int
    executions: int


class ArchiveContents(msgspec.Struct, frozen=True):
    """Everything that an archive holds."""

    header: ArchiveHeader
    journal: list[Row]
    executions: list[dict[str, str | int | float | bool | None]]


def archive_name(first_seal: int, last_seal: int) -> str:
    """Return the name of the archive that holds these seals."""
    return f"journal-{first_seal}-{last_seal}.jsonl.gz"


# ---------------------------------------------------------------------------------------------------------------------
# Writing


def require_directory(directory: Path) -> None:
    """Raise ArchiveUnwritableError unless archives can be written here; remove what a killed writer left."""
    with _file_errors(directory):
        if not directory.is_dir():
            missing = errno.ENOTDIR if directory.exists() else errno.ENOENT
            raise OSError(missing, os.strerror(missing))
        for path in list(directory.iterdir()):
            with suppress(FileNotFoundError):  # another writer's draft, which has got its name meanwhile
                if _DRAFT.fullmatch(path.name) and path.stat().st_mtime < time.time() - STALE_S:
                    path.unlink()
        draft = directory / _draft_of(0, 0)
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        draft.unlink()


class ArchiveWriter:
    """Writes one archive: its blocks in order, then the executions, then its name; nothing is left if that fails."""

    def __init__(self, directory: Path, ledger_id: str, seals: Sequence[Seal]) -> None:
        self._header = ArchiveHeader(VERSION, ledger_id, seals[0].seal_id, seals[-1].seal_id, tuple(seals))
        self._path = directory / archive_name(self._header.first_seal, self._header.last_seal)
        self._sealed = iter(self._header.seals)
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

    def add_block(self, rows: Iterable[Row]) -> None:
        """Write the rows of the next seal; raise SealsBrokenError if they are not what was sealed."""
        seal = next(self._sealed)
        block = _BlockHash(seal)
        with _file_errors(self._path):
            for row in rows:
                block.add(row_lines([row]))
                self._lines.write(json_line({"journal": row}))
        flaw = block.flaw()
        if flaw:
            raise SealsBrokenError(
                f"block {seal.seal_id} cannot be archived: {flaw}",
                context={"seal_id": seal.seal_id},
            )
        self._rows += block.rows

    def add_execution(self, execution: Mapping[str, object]) -> None:
        """Write an execution, column by column."""
        with _file_errors(self._path):
            self._lines.write(json_line({"execution": execution}))
        self._executions += 1

    def finish(self) -> WrittenArchive:
        """Make the archive durable, give it its name, and return what was written."""
        invariant(next(self._sealed, None) is None, "an archive without the rows of one of its seals")
        with _file_errors(self._path):
            self._lines.write(json_line(_Trailer(self._rows, self._executions)))
            self._lines.close()
            self._refuse_to_replace_another()
            self._draft.publish(replace=True)
        return WrittenArchive(self._path.name, self._hashed.sha256, self._rows, self._executions)

    def _refuse_to_replace_another(self) -> None:
        """Let this very history be replaced, whole or not, but never that of another ledger, or what nobody can read.

        A writer that was killed leaves no part of a file under this name; a disk or a copy may.
        """
        if not self._path.exists() or not self._path.stat().st_size:
            return
        try:
            there = read_header(self._path)
        except ArchiveInvalidError as error:
            raise ArchiveUnwritableError(
                f"{self._path} is there already, and nobody can tell whose history it holds",
                next_step="Move the file away, and look whose it is; then run `holdfast gc` again.",
                context={"file": str(self._path), "why": error.message},
            ) from None
        if (there.ledger_id, there.seals) != (self._header.ledger_id, self._header.seals):
            raise ArchiveUnwritableError(
                f"{self._path} holds the history of another ledger, or of another copy of this one",
                next_step="Give each ledger, and each copy of one, a directory of its own: holdfast gc --set …",
                context={"file": str(self._path), "ledger_id": there.ledger_id},
            )


class _HashedFile:
    """Writes to a file, and hashes what it writes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        if not self._file.closed:  # a compressor that is given up still writes what it kept back
            self._hash.update(data)
            self._file.write(data)
        return len(data)

    def flush(self) -> None:
        """Keep nothing back."""

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


class _BlockHash:
    """What is known of a seal's rows while they pass."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._digest = hashlib.sha256()
        self.rows = 0

    def add(self, line: bytes) -> None:
        self._digest.update(line)
        self.rows += 1

    def flaw(self) -> str | None:
        """Return what is wrong with the rows that have passed, or None."""
        if self.rows != self._seal.rows:
            return f"it has {self.rows} rows, and {self._seal.rows} were sealed"
        if self._digest.hexdigest() != self._seal.digest:
            return "its rows are not those that were sealed"
        if seal_hash(self._seal) != self._seal.hash:
            return "its seal was altered"
        return None


def _draft_of(first_seal: int, last_seal: int) -> str:
    return f".journal-{first_seal}-{last_seal}.{uuid4().hex}.part"


@contextmanager
def _file_errors(where: Path) -> Iterator[None]:
    """Turn what the file system refuses into words."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ArchiveUnwritableError(
            f"no archive can be written at {where}: {reason}",
            context={"path": str(where), "errno": errno.errorcode.get(error.errno or 0)},
        ) from error


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def verify(path: Path, *, sha256: str | None = None) -> ArchiveHeader:
    """Read an archive through and return its header; raise ArchiveInvalidError unless it is whole and unaltered.

    Its seals are compared with its rows and with each other; whether the ledger has the same seals is for the caller.
    Executions are under no seal: only the SHA-256, which the ledger has and its journal tells, speaks for them.
    """
    lines = _checked(path, sha256)
    header = cast("ArchiveHeader", next(lines))
    for _ in lines:
        pass
    return header


def read_header(path: Path) -> ArchiveHeader:
    """Return the header of an archive, whether the rest of it is whole or not."""
    with _opened(path) as (_, lines):
        return _header(path, lines)


def read(path: Path, *, sha256: str | None = None) -> ArchiveContents:
    """Return all that an archive holds; raise ArchiveInvalidError unless it is whole and unaltered."""
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
        raise _invalid(path, f"it cannot be read: {error.strerror or error}") from None


def _checked(path: Path, sha256: str | None) -> Iterator[_Line]:
    """Yield the lines of an archive, each checked as it passes; what ends without an error was whole."""
    with _opened(path) as (file, lines):
        if sha256 is not None:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != sha256:
                raise _invalid(path, "its SHA-256 is not the one that the ledger knows")
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
            raise _invalid(path, f"block {seal.seal_id}: {flaw}")
        rows += block.rows
    for text in lines:
        if not text.startswith(b'{"execution"'):
            trailer = lines.decode(text, _Trailer)
            break
        yield lines.decode(text, _ExecutionLine)
        executions += 1
    else:
        raise _invalid(path, "it has no end")
    if trailer != _Trailer(rows, executions):
        raise _invalid(path, f"it has {rows} rows and {executions} executions, and its end says otherwise")
    if lines.read():
        raise _invalid(path, "something follows its end")


def _header(path: Path, lines: LineReader) -> ArchiveHeader:
    header = lines.decode(lines.read(), ArchiveHeader)
    if header.holdfast_archive != VERSION:
        raise _invalid(path, f"it is of version {header.holdfast_archive}, and this Holdfast knows {VERSION}")
    ids = [seal.seal_id for seal in header.seals]
    if not ids or ids != list(range(header.first_seal, header.last_seal + 1)):
        raise _invalid(path, "its seals are not those that it names")
    if header.first_seal == 1 and header.seals[0].previous != genesis(header.ledger_id):
        raise _invalid(path, "its first seal is of another ledger")
    for before, seal in zip(header.seals, header.seals[1:], strict=False):
        if seal.previous != before.hash:
            raise _invalid(path, f"seal {seal.seal_id} does not follow the one before it")
    return header


def _invalid(path: Path, why: str) -> ArchiveInvalidError:
    return ArchiveInvalidError(f"{path} is not an archive to trust: {why}", context={"file": str(path)})
