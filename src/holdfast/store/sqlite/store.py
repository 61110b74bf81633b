"""The store on an embedded SQLite file.

Invariants: WAL mode is asserted at open, and every transaction but a lone claim is synchronous=FULL, so a commit that
returned is on disk; every write is `BEGIN IMMEDIATE` under the turnstile, so no upgrade can deadlock and no writer
starves; a commit to a file that was replaced, or whose log was deleted, is not acknowledged; times are text in one
format.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from holdfast.core.errors import HoldfastError, NotALedgerError, StoreDamagedError, StoreError, StoreUnavailableError
from holdfast.core.records import time_text
from holdfast.store.migrations import Rules, unique_indexes
from holdfast.store.requests import Effect
from holdfast.store.requests import Params as AnyParams
from holdfast.store.sqlite.forks import close_for_forks, refuse_inherited
from holdfast.store.sqlite.identity import LOG_BYTES_MAX, LedgerConnection, LedgerFiles
from holdfast.store.sqlite.turnstile import Turnstile
from holdfast.store.statements import GOVERNED, encoded, generated, statements
from holdfast.store.store import Clock, Params, Store, host_clock
from holdfast.store.transaction import Reading, Transaction

if TYPE_CHECKING:
    from holdfast.store.upkeep import Upkeep
    from holdfast.store.verbs.bulk import Columns
    from holdfast.store.watch import Watch

SQLITE_OLDEST = (3, 40, 0)
CHECKPOINT_PAGES = 4000  # a write-ahead log of 16 MiB
# Each temporary table of a statement takes 87 KB until its end. The allocator of glibc would then return that to the
# kernel, and a claim would fault it in anew; once it has freed a block of this size, it keeps up to twice as much.
KEPT_BYTES = 512 << 10
BUSY_S = 30.0
SWITCH_S = 0.002
FULL = 2
NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "9p", "fuse.sshfs"})
MOUNTS = Path("/proc/self/mounts")


class SqliteStore(Store[sqlite3.Connection]):
    """A ledger in one file."""

    dialect = "sqlite"
    one_writer = True

    def __init__(self, path: Path, url: str, clock: Clock | None = None, *, create: bool = False) -> None:
        super().__init__(url, clock)
        if sqlite3.sqlite_version_info < SQLITE_OLDEST:
            raise StoreError(
                f"SQLite {sqlite3.sqlite_version} is too old",
                next_step="Use a Python that is built with SQLite 3.40 or newer.",
            )
        self._create = create
        try:
            # As SQLite does: the log and the locks are named after the file, not after a link.
            self.path = path.resolve()
            self._refuse_unusable(create=create)
        except OSError as error:  # a name that is too long, a directory that may not be entered
            raise StoreUnavailableError(f"cannot access {path}: {error.strerror}") from error
        self._turnstile = Turnstile(self.path, BUSY_S)
        self._files = LedgerFiles(self.path)
        close_for_forks(self.pool)
        self._statements = statements(self.dialect)

    def _refuse_unusable(self, *, create: bool) -> None:
        fit = self.path.is_file() or (create and self.path.parent.is_dir() and not self.path.exists())
        fit = fit or self.path.is_file()  # another process may have created it in between
        system = file_system_of(self.path.parent)
        if not fit or system in NETWORK_FILE_SYSTEMS:
            from holdfast.store.sqlite.unusable import unusable  # noqa: PLC0415 - most paths are usable

            raise unusable(self.path, system, create=create)

    def now(self) -> datetime:
        return (self.clock or host_clock)()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Yield a transaction, begun when this process and thread have the turn to write."""
        yield from self._turnstile.around(self._transaction())

    @contextmanager
    def alone(self) -> Iterator[Transaction]:
        """Yield a transaction that is not synced: the next one that is makes both durable, and a power cut neither."""
        yield from self._turnstile.around(self._transaction("NORMAL"))

    def run(self, connection: sqlite3.Connection, name: str, params: Params) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        try:
            for sql in self._statements[name]:
                rows = plain_cursor(connection).execute(sql, params).fetchall()
        except sqlite3.OperationalError as error:
            raise self.schema_damage(error) or error from None
        return rows

    def insert_jobs(self, session: Reading, columns: Columns, **params: object) -> list[int | None]:
        # Only one transaction writes at a time, so the ids after the last one are free.
        params["after"] = session.run("last_call")[0][0]
        rows = encoded([*zip(columns.which or repeat(0), *columns[:3])])  # noqa: B905 - the first may be longer
        found = session.run("insert_jobs", rows=rows, shapes=encoded(columns.shapes), **params)
        ids = {place: job_id for job_id, place in found}
        return [ids.get(place) for place in range(len(columns.keys))]

    def complete_jobs(self, session: Reading, rows: Sequence[tuple[int, int, str]], **params: object) -> int:
        [sql] = self._statements["complete_jobs"]
        return plain_cursor(session.connection).execute(sql, params | {"rows": encoded(rows)}).rowcount

    def execute(self, connection: sqlite3.Connection, sql: str, params: AnyParams = ()) -> list[tuple[Any, ...]]:
        try:
            return plain_cursor(connection).execute(sql, params).fetchall()
        except sqlite3.OperationalError as error:
            raise ("holdfast_" in sql and self.schema_damage(error)) or error from None

    def named(
        self, connection: sqlite3.Connection, sql: str, params: Params
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        cursor = plain_cursor(connection).execute(sql, params)
        return [column[0] for column in cursor.description or ()], cursor.fetchall()

    def apply(self, connection: sqlite3.Connection, effects: Sequence[Effect]) -> None:
        from holdfast.store.sqlite.effects import apply  # noqa: PLC0415 - many handlers stage none

        apply(self, connection, effects)

    def is_open(self, connection: sqlite3.Connection) -> bool:
        return connection.in_transaction

    def require_fit(self, connection: Any) -> None:
        from holdfast.store.sqlite.borrowed import require_fit  # noqa: PLC0415 - most connections are the store's own

        require_fit(self._files, connection)

    def stored(self, moment: datetime | None) -> str | None:
        return None if moment is None else time_text(moment)

    def time_parameter(self) -> str:
        return time_text(self.now())

    def judged_at(self, at: datetime) -> str:
        return time_text(at)

    def lease_until(self, seconds: float) -> str:
        return time_text(self.now() + timedelta(seconds=seconds))

    def moment(self, value: object) -> datetime:
        return datetime.fromisoformat(cast("str", value))

    def watch(self) -> Watch:
        from holdfast.store.sqlite.watch import log_watch  # noqa: PLC0415 - only where a worker waits for work

        return log_watch(self.path)

    def close(self) -> None:
        super().close()
        self._turnstile.close()

    def translate(self, error: Exception) -> HoldfastError | None:
        from holdfast.store.sqlite.errors import translated  # noqa: PLC0415 - most statements do not fail

        return translated(self.path, error)

    def schema_damage(self, error: sqlite3.OperationalError) -> StoreDamagedError | None:
        """Return the error for a failed statement of Holdfast if the schema differs from that of the migrations."""
        from holdfast.store.sqlite.errors import schema_damage  # noqa: PLC0415 - most statements do not fail

        return schema_damage(self.path, error)

    def _open(self) -> sqlite3.Connection:
        refuse_inherited(self.path)
        self._files.opening()
        bytes(KEPT_BYTES)
        connection = sqlite3.connect(
            self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False, cached_statements=256,
            factory=LedgerConnection,
        )  # fmt: skip
        try:
            self._assert_durable(connection)
            self._files.opened(connection)
        except BaseException:
            self._disconnect(connection)
            raise
        return connection

    def _assert_durable(self, connection: sqlite3.Connection) -> None:
        [mode] = connection.execute("PRAGMA journal_mode").fetchone()
        if mode != "wal":
            tables = self.tables(connection)
            if "holdfast_migrations" not in tables and (tables or not self._create):
                # Check this before the pragma, which would write to a file that is not a ledger.
                also = f", but has a table {min(tables)}" if tables else ""
                raise NotALedgerError(f"{self.path} contains no ledger{also}", context={"tables": sorted(tables)})
            mode = self._switched_to_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        # Fewer checkpoints: each costs two fsyncs, and writes pages that the next moves of the same jobs change again.
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_MAX}")  # a log that has grown shrinks again
        [synchronous] = connection.execute("PRAGMA synchronous").fetchone()
        if mode != "wal" or synchronous != FULL:
            from holdfast.store.sqlite.unusable import not_durable  # noqa: PLC0415 - most files are durable

            raise not_durable(self.path, mode, synchronous)

    @staticmethod
    def _switched_to_wal(connection: sqlite3.Connection) -> str:
        """Switch to WAL and return the mode. If two processes switch, SQLite refuses one at once; so poll here."""
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                [mode] = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            except sqlite3.OperationalError as error:
                if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                    raise
                time.sleep(SWITCH_S)
            else:
                connection.execute("SELECT 1 FROM sqlite_master").fetchall()  # the first read creates the log
                return str(mode)

    def _disconnect(self, connection: sqlite3.Connection) -> None:
        self._files.closing(connection)
        connection.close()

    def _begin(self, connection: sqlite3.Connection, *synchronous: str) -> None:
        # For each transaction, so that none leaves it changed.
        connection.execute(f"PRAGMA synchronous = {''.join(synchronous) or 'FULL'}")
        connection.execute("BEGIN IMMEDIATE")

    def _begin_reading(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")
        self._files.require_same()

    def take(self) -> sqlite3.Connection:
        """Take a connection from the pool; raise LedgerFileError as long as the file is not the one that was opened."""
        if self._files.changed:
            self._files.require_same()
            self._files.changed = False
        return super().take()

    def _commit_or_say(self, connection: sqlite3.Connection) -> None:
        super()._commit_or_say(connection)
        self._files.require_same()  # before the commit is acknowledged

    def _commit(self, connection: sqlite3.Connection) -> None:
        connection.execute("COMMIT")

    def _rollback(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def tables(self, connection: sqlite3.Connection) -> set[str]:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'holdfast_*'")
        return {name for (name,) in rows}

    def enforcement(self, connection: sqlite3.Connection, rules: Rules) -> list[str]:  # noqa: ARG002 - one journal
        return [
            statement
            for kind, texts in (("TRIGGER", _triggers(rules)), ("VIEW", generated("sqlite", "view")))
            for statement in (*(f"DROP {kind} IF EXISTS {name}" for name in texts), *texts.values())
        ]

    def foreign_enforcement(self, connection: sqlite3.Connection, rules: Rules) -> list[str]:
        foreign = sorted(_triggers_of(connection).keys() - _triggers(rules).keys())
        return ['DROP TRIGGER "{}"'.format(name.replace('"', '""')) for name in foreign]

    def enforcement_drift(self, connection: sqlite3.Connection, rules: Rules) -> list[str]:
        views = generated("sqlite", "view")
        found, expected = _triggers_of(connection), _triggers(rules) | views
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'view'")
        found |= {name: text for name, text in rows if name in views}
        differing = {name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)}
        return sorted(differing | self.missing_indexes(connection))

    def missing_indexes(self, connection: sqlite3.Connection) -> set[str]:
        present = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index'"))
        return {name for name, text in unique_indexes(self.dialect).items() if present.get(name) != text}

    @property
    def upkeep(self) -> Upkeep:
        from holdfast.store.sqlite.upkeep import SqliteUpkeep  # noqa: PLC0415 - beside the path of a job

        return SqliteUpkeep(self)

    @property
    def absolute_url(self) -> str:
        return str(self.path.absolute())

    @property
    def exists(self) -> bool:
        return self.path.exists()


def file_system_of(directory: Path, mounts: Path = MOUNTS) -> str | None:
    """Return the type of the file system of a directory; None if the system does not list its mounts."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    places = {Path(line.split()[1].replace("\\040", " ")): line.split()[2] for line in lines if len(line.split()) > 2}
    return next((places[place] for place in (directory, *directory.parents) if place in places), None)


def plain_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """Return a cursor that returns tuples, even if the owner of a borrowed connection has set a row factory."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


def _triggers(rules: Rules) -> dict[str, str]:
    texts = generated("sqlite", "trigger") | (generated("sqlite", GOVERNED) if rules.governed else {})
    return {name: text.replace("{epoch}", str(rules.epoch)) for name, text in texts.items()}


def _triggers_of(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the text of every trigger that has one of our names, or is on one of our tables."""
    rows = connection.execute("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    return {
        name: sql
        for name, table, sql in rows
        if name.startswith("holdfast_") or str(table).lower().startswith("holdfast_")
    }
