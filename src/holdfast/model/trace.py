"""Checks recorded journals against the model: each history must be a path of its machine that `decide` allows.

A trace is a ledger, a snapshot of one, an export of `holdfast audit export`, or an archive. Its journal rows are sorted
by record in a temporary database, and the moves of each record are made again (`history.py`).

Invariants: rows are taken one by one, and memory does not grow with their number; nothing is written but the temporary
file; a file that was cut off is refused, unless a wrong step says more about it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from holdfast.audit.files.archive import LINE_BYTES_MAX
from holdfast.audit.files.framed import BAD_LINE, LineReader
from holdfast.audit.files.snapshot import LiveLedger, Progress, SnapshotFile, SnapshotSource
from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.machines import EXEC_IDS, EXECUTION, JOB, ExecutionStatus
from holdfast.model.history import OF_A_JOB, LastRecord, RecordedHistory, Row, WrongStep, wrong_row, wrong_step
from holdfast.model.rules import Budget
from holdfast.store.store import Store
from holdfast.store.tables import GUARDED, MAINTENANCE, TABLES, Table

LIMIT = 1000
EVERY = 4096  # rows between two calls of `progress`
_MACHINES = {guarded.table: guarded.machine.name for guarded in GUARDED}
_SCHEMA = """
PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
CREATE TABLE rows (machine, subject, seq, body, PRIMARY KEY (machine, subject, seq)) WITHOUT ROWID;
CREATE TABLE records (machine, subject, state, version, history_from, attempts, status,
  PRIMARY KEY (machine, subject)) WITHOUT ROWID;
CREATE TABLE budgets (job_id PRIMARY KEY, max_attempts, replay_attempts) WITHOUT ROWID;
CREATE TABLE tokens (job_id, attempt, token, PRIMARY KEY (job_id, attempt)) WITHOUT ROWID;
"""


class TraceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked, and the first wrong step of each record that has one."""

    ok: bool
    rows: int
    jobs: int
    records: int  # of the other machines
    begun_earlier: int  # histories whose first rows are not in the trace
    wrong: tuple[WrongStep, ...]
    more: bool = False


def prove_ledger(store: Store[Any], *, limit: int = LIMIT, progress: Progress | None = None) -> TraceReport:
    """Check the journal of a ledger, as it is at one moment."""
    with _Trace() as trace, store.upkeep.long_view(trace.folder) as reading:
        trace.take(LiveLedger(store, reading), progress)
        return trace.report(limit, progress)


def prove_files(paths: Iterable[Path], *, limit: int = LIMIT, progress: Progress | None = None) -> TraceReport:
    """Check the journal in snapshots, exports and archives; those of one ledger that do not overlap count as one trace.

    Raise InputError if a file cannot be read, or is incomplete and nothing else is wrong with it.
    """
    with _Trace() as trace:
        incomplete: HoldfastError | None = None
        for path in paths:
            try:
                trace.take_file(path, progress)
            except _IncompleteError as error:  # a wrong step says more about a changed file
                incomplete = incomplete or error.error
        report = trace.report(limit, progress)
    if report.ok and incomplete is not None:
        raise incomplete
    return report


class _IncompleteError(Exception):
    """All rows of a file were taken, but its last line differs from them."""

    def __init__(self, error: HoldfastError) -> None:
        super().__init__(error.message)
        self.error = error


# ---------------------------------------------------------------------------------------------------------------------
# Sorting a trace


class _Trace(ExitStack):
    """The rows of a trace, sorted by record, and the records if it has them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(self.enter_context(TemporaryDirectory(prefix="holdfast-prove-")))
        self._db = self.enter_context(closing(sqlite3.connect(self.folder / "trace.db", isolation_level=None)))
        self._db.executescript(_SCHEMA + "BEGIN")
        self._has_records = False  # the trace has all rows and all records of the ledger
        self._begins_later = False  # a history may begin before the trace
        self._archived = False  # the first rows of a record may be in an archive
        self._ledgers: set[str] = set()
        self._rows = 0
        self._repeated: list[Row] = []

    def take(self, source: SnapshotSource, progress: Progress | None) -> None:
        """Take the records and the journal of a ledger or a snapshot."""
        self._take_ledger(source.header.ledger_id)
        self._has_records = True
        for table in TABLES:
            for row in source.rows(table):
                if table.name == "journal":
                    self._take_row(Row(*row), progress)
                else:
                    self._take_record(table, dict(zip(table.names, row, strict=True)))

    def take_file(self, path: Path, progress: Progress | None) -> None:
        """Take a file; its first line says which kind it is."""
        try:
            with path.open("rb") as file:
                lines = LineReader(file, partial(_invalid, path), line_bytes_max=LINE_BYTES_MAX, plain=True)
                first = lines.read()
                try:
                    header = msgspec.json.decode(first, type=dict[str, Any])
                except BAD_LINE:
                    header = {}
                if "holdfast_snapshot" not in header:
                    self._take_lines(path, header, lines, progress)
                    return
        except OSError as error:
            raise _invalid(path, "unreadable", error.strerror or str(error)) from None
        with SnapshotFile(path, progress=progress) as snapshot:
            self.take(snapshot, progress)
            try:
                snapshot.finish()
            except HoldfastError as error:
                raise _IncompleteError(error) from None

    def _take_lines(self, path: Path, header: dict[str, Any], lines: LineReader, progress: Progress | None) -> None:
        """Take an export or an archive: lines with a row, other lines, and a last line with the number of rows."""
        first_seal = header.get("first_seal", header.get("from_seal"))
        if not ({"holdfast_archive", "holdfast_export"} & header.keys()) or not isinstance(first_seal, int):
            raise _invalid(path, "header", "its first line is not that of a snapshot, an export or an archive")
        self._take_ledger(str(header.get("ledger_id")))
        self._begins_later |= first_seal > 1
        taken, counted = 0, None
        for text in lines:
            if text.startswith(b'{"journal":'):
                self._take_row(lines.decode(text, dict[str, Row])["journal"], progress)
                taken += 1
            elif text.startswith(b'{"seal":'):
                block = lines.decode(text, dict[str, Any])
                self._begins_later |= block["exported_rows"] < block["seal"]["rows"] and block["exported_rows"] == 0
            elif text.startswith((b'{"end":', b'{"rows":')):
                last = lines.decode(text, dict[str, Any])
                counted = last.get("end", last).get("rows")
        if counted != taken:
            found = "its last line is missing" if counted is None else f"its last line says {counted}"
            raise _IncompleteError(_invalid(path, "counts", f"it has {taken} journal rows; {found}"))

    def _take_ledger(self, ledger_id: str) -> None:
        self._ledgers.add(ledger_id)
        if len(self._ledgers) > 1:
            raise InputError(
                "The files are of different ledgers.",
                next_step="Check the files of each ledger alone.",
                context={"ledgers": sorted(self._ledgers)},
            )

    def _take_record(self, table: Table, row: dict[str, Any]) -> None:
        if table.full_name in _MACHINES:
            facts = (row[table.key[0]], row["state"], row["version"], row["history_from"])
            # Values of the registry have a status too, which is not that of an attempt.
            attempt = (row["attempts"], row["status"]) if table.name == "jobs" else (None, None)
            self._put("records", _MACHINES[table.full_name], *facts, *attempt)
        self._archived |= table.name == "archives"
        if table.name == "calls":
            self._put("budgets", row["job_id"], row["max_attempts"], row["replay_attempts"])
        elif table.name == "aborted":
            self._put("tokens", row["job_id"], row["attempt"], row["lease_token"])
        elif table.name == "jobs" and row["status"] not in (None, ExecutionStatus.ABORTED):
            self._put("tokens", row["job_id"], row["attempts"], row["lease_token"])

    def _take_row(self, row: Row, progress: Progress | None) -> None:
        machine, subject, seq = row.machine, row.subject, row.seq
        record = subject // EXEC_IDS if machine == EXECUTION.name else subject
        group = JOB.name if machine in OF_A_JOB else machine
        if not self._put("rows", group, record, seq, msgspec.json.encode(row)):
            self._repeated.append(row)
        self._rows += 1
        if progress and self._rows % EVERY == 0:
            progress("reading", self._rows, 0)

    def _put(self, table: str, *values: object) -> bool:
        places = ", ".join("?" * len(values))
        return self._db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({places})", values).rowcount == 1  # noqa: S608

    # -- the steps ----------------------------------------------------------------------------------------------------

    def report(self, limit: int, progress: Progress | None) -> TraceReport:
        """Make the moves of every record again, and return the report."""
        wrong = [
            wrong_row(row, "twice", f"the trace has row {row.seq} more than once") for row in self._repeated[:limit]
        ]
        jobs = records = earlier = done = 0
        maintenance = self._maintenance()
        for (machine, subject), rows in self._histories():
            if machine == MAINTENANCE or len(wrong) >= limit:
                continue
            history = self._history(machine, subject, maintenance)
            wrong += history.first_wrong(rows)
            jobs, records = jobs + (machine == JOB.name), records + (machine != JOB.name)
            earlier += history.begun_earlier
            done += history.taken
            if progress:
                progress("proving", done, self._rows)
        missing = """SELECT machine, subject, version FROM records r WHERE history_from <= version AND NOT EXISTS
            (SELECT 1 FROM rows j WHERE j.machine = r.machine AND j.subject = r.subject) LIMIT ?"""
        for machine, subject, version in self._db.execute(missing, (max(0, limit - len(wrong)),)):
            detail = f"the record has version {version}, but the trace has no row of it"
            wrong.append(wrong_step("gap", machine, subject, 1, detail))
        wrong.sort(key=lambda step: (step.seq is None, step.seq))
        return TraceReport(
            ok=not wrong,
            rows=self._rows,
            jobs=jobs,
            records=records,
            begun_earlier=earlier,
            wrong=tuple(wrong),
            more=len(wrong) >= limit,
        )

    def _histories(self) -> Iterator[tuple[tuple[str, int], Iterator[Row]]]:
        rows = self._db.execute("SELECT machine, subject, body FROM rows ORDER BY machine, subject, seq")
        for key, group in groupby(rows, key=lambda found: (found[0], found[1])):
            yield key, (msgspec.json.decode(body, type=Row) for _, _, body in group)

    def _maintenance(self) -> frozenset[int]:
        """Return the numbers of the acts of maintenance in the trace."""
        found = self._db.execute("SELECT DISTINCT subject FROM rows WHERE machine = ?", (MAINTENANCE,))
        return frozenset(number for (number,) in found)

    def _history(self, machine: str, subject: int, maintenance: frozenset[int]) -> RecordedHistory:
        key = (machine, subject)
        known = self._db.execute(
            "SELECT state, version, history_from, attempts, status FROM records WHERE machine = ? AND subject = ?", key
        ).fetchone()
        history = RecordedHistory(machine, subject, None if known is None else LastRecord(*known))
        history.may_begin_later = self._begins_later or (self._archived and known is not None and known[2] > 1)
        history.maintenance = None if self._begins_later else maintenance
        history.has_records = self._has_records
        if machine == JOB.name:
            budget = self._db.execute(
                "SELECT max_attempts, replay_attempts FROM budgets WHERE job_id = ?", (subject,)
            ).fetchone()
            if budget:
                history.budget = Budget(*budget)
            tokens = self._db.execute("SELECT attempt, token FROM tokens WHERE job_id = ? ORDER BY attempt", (subject,))
            history.tokens = dict(tokens)
        return history


def _invalid(path: Path, kind: str, detail: str) -> InputError:
    return InputError(
        f"{path} is not a trace: {detail}.",
        next_step="Give an archive, or a file of a snapshot or an export: `holdfast snapshot create FILE`.",
        context={"file": str(path), "kind": kind},
    )
