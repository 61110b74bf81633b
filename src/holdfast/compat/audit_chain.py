"""Hash-chained JSON Lines files: append-only, rotated, and verified line by line.

A line is canonical JSON with `seq`, `logged_at`, `event`, `chain_prev` and `chain_hash`. `head.json` says where the
chain begins and ends, and has the last line itself.

Invariants: the head is replaced as a whole, durably, before its line is written, so a crash leaves at most one line
missing or torn, and the head has it; any other difference from the head or from a hash is tampering, and nothing is
appended after it; one lock serialises the writers of all processes; only whole files older than the retention
are removed, and the head then says where the chain begins.
"""

import fcntl
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.digest import canonical, digest
from holdfast.core.errors import InputError, SealsBrokenError, StoreUnavailableError
from holdfast.core.records import time_from, time_text
from holdfast.store import Clock
from holdfast.store.files import sync_directory

FILE_BYTES_MAX = 5 * 1024 * 1024
RETENTION = timedelta(days=30)
PROBLEMS_MAX = 100
GENESIS = "0" * 64
_PURGE_EVERY = timedelta(days=1)

logger = logging.getLogger(__name__)


class AuditProblem(msgspec.Struct, frozen=True):
    """A place where the chain differs from what was written. Lines are counted from 1."""

    file: str
    line: int
    what: str


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a verification; true if there are no problems."""

    events: int
    problems: tuple[AuditProblem, ...]

    def __bool__(self) -> bool:
        return not self.problems


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the chain begins and ends."""

    first_seq: int = 1
    first_prev: str = GENESIS
    seq: int = 0
    chain_hash: str = GENESIS
    file: str = ""
    offset: int = 0
    line: str = ""

    @property
    def end(self) -> int:
        return self.offset + len(self.line.encode())


class AuditChain:
    """The chained files of one directory."""

    def __init__(self, directory: Path, clock: Clock, *, file_bytes_max: int, retention: timedelta) -> None:
        if file_bytes_max < 1 or retention < timedelta(0):
            raise InputError(
                f"file_bytes_max must be at least 1 and retention not negative: {file_bytes_max}, {retention}"
            )
        self._directory = directory
        self._clock = clock
        self._file_bytes_max = file_bytes_max
        self._retention = retention
        self._purge_due: datetime | None = None
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unreachable(directory, error) from error

    def append(self, event: dict[str, Any]) -> int:
        """Write an event as the next line, durably, and return its number."""
        with self._locked():
            before = self._read_head()
            self._restore_last_line(before)
            now = self._clock()
            record = {
                "seq": before.seq + 1,
                "logged_at": time_text(now),
                "event": event,
                "chain_prev": before.chain_hash,
            }
            chain_hash = digest(record)
            line = canonical({**record, "chain_hash": chain_hash}) + "\n"
            fits = before.file and before.end + len(line.encode()) <= self._file_bytes_max
            file, offset = (before.file, before.end) if fits else (_name(before.seq + 1), 0)
            first_seq, first_prev, old = self._expired(before, now, rotated=not fits)
            after = _Head(
                first_seq=first_seq,
                first_prev=first_prev,
                seq=before.seq + 1,
                chain_hash=chain_hash,
                file=file,
                offset=offset,
                line=line,
            )
            self._write_head(after)
            self._write_line(after)
            for path in old:
                path.unlink(missing_ok=True)
                logger.info("Removed an audit file older than the retention", extra={"file": path.name})
        return after.seq

    def events_of(self, job_id: str) -> list[dict[str, Any]]:
        """Return the kept events of one job, oldest first; raise SealsBrokenError at an invalid line."""
        found = []
        with self._locked():
            for file, number, line in self._lines(self._read_head()):
                record = _parsed(line)
                if record is None:
                    raise _broken(AuditProblem(file, number, "is not a line of an audit log"))
                if record["event"].get("job_id") == job_id:
                    found.append(record["event"])
        return found

    def head(self) -> tuple[int, str]:
        """Return the number and the hash of the last event."""
        with self._locked():
            head = self._read_head()
        return head.seq, head.chain_hash

    # -- verifying ----------------------------------------------------------------------------------------------------

    def verify(self, known: tuple[int, str] | None) -> AuditReport:
        """Recompute every hash, and compare the last with the head."""
        with self._locked():
            try:
                head = self._read_head()
            except SealsBrokenError as error:
                return AuditReport(events=0, problems=(AuditProblem("head.json", 1, error.message),))
            check = _Check(head.first_seq, head.first_prev, known)
            for path in self._files(head):
                check.file(path)
        check.end(head)
        return AuditReport(events=check.events, problems=tuple(check.problems[:PROBLEMS_MAX]))

    # -- files --------------------------------------------------------------------------------------------------------

    def _files(self, head: _Head) -> list[Path]:
        """Return the files of the chain in order, without older files that an interrupted purge left behind."""
        return sorted(path for path in self._directory.glob("audit-*.jsonl") if path.name >= _name(head.first_seq))

    def _lines(self, head: _Head) -> Iterator[tuple[str, int, bytes]]:
        for path in self._files(head):
            text = path.read_bytes()
            if path.name == head.file:
                text = text[: head.offset] + head.line.encode()  # whole, also if the file's last line is torn
            for number, line in enumerate(text.splitlines(keepends=True), start=1):
                yield path.name, number, line

    def _restore_last_line(self, head: _Head) -> None:
        """Write the last line again if a crash left it torn or missing; refuse any other difference."""
        if not head.file:
            return
        wanted = head.line.encode()
        try:
            with (self._directory / head.file).open("rb") as file:
                file.seek(head.offset)
                found, size = file.read(), os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            found, size = b"", 0
        if found == wanted:
            return
        number = 1 + (0 if size < head.offset else self._lines_before(head))
        if size < head.offset or not wanted.startswith(found):
            raise _broken(AuditProblem(head.file, number, "is not the last line that was written"))
        logger.warning(
            "A crash left %d of %d bytes of the last audit line; writing it again",
            len(found),
            len(wanted),
            extra={"file": head.file, "line": number, "seq": head.seq},
        )
        self._write_line(head)

    def _lines_before(self, head: _Head) -> int:
        return (self._directory / head.file).read_bytes()[: head.offset].count(b"\n") if head.offset else 0

    def _expired(self, head: _Head, now: datetime, *, rotated: bool) -> tuple[int, str, list[Path]]:
        """Return where the chain is to begin, and the files before that; checks when a file is full, and once a day."""
        first_seq, first_prev, old = head.first_seq, head.first_prev, list[Path]()
        if not rotated and self._purge_due is not None and now < self._purge_due:
            return first_seq, first_prev, old
        self._purge_due = now + _PURGE_EVERY
        old += (path for path in self._directory.glob("audit-*.jsonl") if path.name < _name(first_seq))
        for path in self._files(head):
            check = _Check(first_seq, first_prev)
            if path.name != head.file:
                check.file(path)
            # A changed file is evidence and is kept: verify() must go on reporting it.
            if check.logged_at is None or check.problems or check.logged_at >= now - self._retention:
                break
            first_seq, first_prev = check.seq, check.prev
            old.append(path)
        return first_seq, first_prev, old

    def _read_head(self) -> _Head:
        path = self._directory / "head.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=_Head)
        except FileNotFoundError:
            if any(self._directory.glob("audit-*.jsonl")):
                raise SealsBrokenError("head.json of the audit log is missing", context={"file": "head.json"}) from None
            return _Head()
        except msgspec.MsgspecError:
            raise SealsBrokenError("head.json of the audit log is damaged", context={"file": "head.json"}) from None

    def _write_head(self, head: _Head) -> None:
        new = self._directory / "head.json.new"
        _write(new, 0, msgspec.json.encode(head))
        new.rename(self._directory / "head.json")
        sync_directory(self._directory)

    def _write_line(self, head: _Head) -> None:
        path = self._directory / head.file
        is_new = not path.exists()
        _write(path, head.offset, head.line.encode())
        if is_new:
            sync_directory(self._directory)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            lock = os.open(self._directory / "audit.lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            finally:
                os.close(lock)
        except OSError as error:
            raise _unreachable(self._directory, error) from error


class _Check:
    """One pass over the chain: what is expected next, and the differences found."""

    def __init__(self, seq: int, prev: str, known: tuple[int, str] | None = None) -> None:
        self.seq, self.prev = seq, prev
        self.events = 0
        self.logged_at: datetime | None = None
        self.problems: list[AuditProblem] = []
        self._known = known
        self._at = ("head.json", 1)

    def file(self, path: Path) -> None:
        """Check the lines of one file."""
        self._at = path.name, 1
        if path.name != _name(self.seq):
            self._found(f"is the first of a file that should be called {_name(self.seq)}")
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
            self._at = path.name, number
            self._line(line)

    def end(self, head: _Head) -> None:
        """Compare the end of the chain with the head."""
        last = _parsed(head.line.encode()) or {}
        if (self.seq, self.prev) == (last.get("seq"), last.get("chain_prev")):
            self._found(f"is not followed by event {head.seq}, which the head has: the next append writes it again")
        elif (self.seq - 1, self.prev) != (head.seq, head.chain_hash):
            self._found(f"ends the log with event {self.seq - 1}, but the head says {head.seq}")
        if self._known is not None and self._known[0] > head.seq:
            self._found(f"ends the log before event {self._known[0]}, which is known")

    def _line(self, line: bytes) -> None:
        record = _parsed(line)
        if record is None:
            self._found("is not a line of an audit log" if line.endswith(b"\n") else "is torn")
            return
        self.events += 1
        hashed = {name: record[name] for name in ("seq", "logged_at", "event", "chain_prev")}
        if line != (canonical(record) + "\n").encode() or digest(hashed) != record["chain_hash"]:
            self._found(f"has event {record['seq']}, which was edited")
        if record["seq"] != self.seq:
            self._found(f"has event {record['seq']} where {self.seq} belongs")
        elif record["chain_prev"] != self.prev:
            self._found(f"has event {record['seq']}, which does not follow the event before it")
        if self._known is not None and record["seq"] == self._known[0] and record["chain_hash"] != self._known[1]:
            self._found(f"has event {record['seq']}, which is not the one that is known")
        self.seq, self.prev, self.logged_at = record["seq"] + 1, record["chain_hash"], _time(record["logged_at"])

    def _found(self, what: str) -> None:
        self.problems.append(AuditProblem(*self._at, what))


def _time(text: str) -> datetime | None:
    try:
        return time_from(text)
    except ValueError:
        return None


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line, or None if the line is not one."""
    try:
        record = json.loads(line)
        shape = {"seq": int, "logged_at": str, "event": dict, "chain_prev": str, "chain_hash": str}
        fits = {name: type(value) for name, value in record.items()} == shape
        return record if fits and line.endswith(b"\n") else None
    except (ValueError, AttributeError, RecursionError):
        return None


def _name(seq: int) -> str:
    return f"audit-{seq:020d}.jsonl"


def _write(path: Path, offset: int, text: bytes) -> None:
    """Write at an offset, replace everything after it, and make it durable."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.ftruncate(file, offset)
        while text:
            written = os.pwrite(file, text, offset)
            text, offset = text[written:], offset + written
        os.fsync(file)
    finally:
        os.close(file)


def _broken(problem: AuditProblem) -> SealsBrokenError:
    return SealsBrokenError(
        f"Line {problem.line} of {problem.file} {problem.what}",
        next_step="Keep the files unchanged; AuditLogger.verify() lists every difference.",
        context={"file": problem.file, "line": problem.line},
    )


def _unreachable(directory: Path, error: OSError) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"The audit log in {directory} cannot be used: {error.strerror}",
        next_step="Make the directory writable, and free space on its disk.",
    )
