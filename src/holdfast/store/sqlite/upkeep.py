"""The upkeep of a ledger in a SQLite file: copies to read from, drafts to make a ledger in, and the file's own check.

Invariants: a long read is of a copy, so that it does not keep the log from being written back; a new ledger appears
under its name whole or not at all.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from holdfast.core.digest import sha256
from holdfast.core.errors import (
    HoldfastError,
    NotALedgerError,
    StoreBusyError,
    StoreDamagedError,
    StoreUnavailableError,
)
from holdfast.store.migrations import RECORD, migrations, unique_indexes
from holdfast.store.sqlite.drafts import drafted
from holdfast.store.sqlite.errors import free_space
from holdfast.store.sqlite.forks import refuse_inherited
from holdfast.store.sqlite.store import BUSY_S, plain_cursor
from holdfast.store.statements import generated
from holdfast.store.transaction import Reading
from holdfast.store.upkeep import Upkeep
from holdfast.store.verbs.seals import SEQ_MAX

if TYPE_CHECKING:
    from holdfast.store.sqlite.store import SqliteStore
    from holdfast.store.store import Store

FAULTS_MAX = 100
_MADE = "SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'index') AND name GLOB 'holdfast_*'"


class SqliteUpkeep(Upkeep):
    """The upkeep of one file."""

    store: SqliteStore

    @contextmanager
    def long_view(self, beside: Path) -> Iterator[Reading]:
        """Yield a view of a copy: a long read of the file itself would block checkpoints of its log."""
        draft = beside / f".holdfast-{uuid4().hex}.copy"
        try:
            copied = self._copied(draft)
        except (sqlite3.Error, OSError) as error:
            known = self.store.translate(error)
            if isinstance(known, StoreDamagedError | NotALedgerError):
                raise known from error
            is_full = known is not None and "full" in known.context
            raise StoreUnavailableError(
                f"could not copy {self.store.path} to {beside.absolute()}: {error}",
                next_step=free_space(beside) if is_full else None,
            ) from error
        finally:
            with suppress(OSError):
                draft.unlink()  # an open file stays readable without a name; the system deletes it at close
        try:
            yield Reading(self.store, copied)
        except HoldfastError:
            raise
        except Exception as error:
            raise self.store.translated(error) from error
        finally:
            copied.close()

    def _copied(self, draft: Path) -> sqlite3.Connection:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        source = self.store.take()
        sound = False
        try:
            with closing(sqlite3.connect(draft, isolation_level=None)) as copy:
                copy.execute("PRAGMA journal_mode = OFF")
                copy.execute("PRAGMA synchronous = OFF")
                source.backup(copy)  # in one step: between steps, any write would restart the backup
            sound = True
        finally:
            self.store.pool.give(source, sound=sound)
        place = f"file:{quote(str(draft.resolve()))}?immutable=1"
        copied = sqlite3.connect(place, uri=True, isolation_level=None, check_same_thread=False)
        copied.execute("SELECT count(*) FROM sqlite_master").fetchall()  # opens the file, while it has a name
        return copied

    def stream(self, connection: sqlite3.Connection, sql: str, kinds: Sequence[str]) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002 - a cursor knows
        yield from plain_cursor(connection).execute(sql)

    def load(
        self, connection: sqlite3.Connection, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> None:
        names = ", ".join(f'"{column}"' for column in columns)
        connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})", rows)

    def tables_beside(self) -> list[str]:
        if not self.store.path.exists():
            return []
        # Not through `_open`, which would change the journal mode of a file that may not be a ledger.
        refuse_inherited(self.store.path)
        place = f"file:{quote(str(self.store.path.resolve()))}?mode=ro"
        try:
            with closing(sqlite3.connect(place, uri=True, timeout=BUSY_S)) as connection:
                return [name for (name,) in self.store.run(connection, "tables_beside", {})]
        except sqlite3.Error as error:
            raise self.store.translated(error) from error

    @contextmanager
    def drafted(self) -> Iterator[Store[sqlite3.Connection]]:
        with drafted(self.store.path) as path:
            store = type(self.store)(path, str(path), self.store.clock, create=True)
            with store:
                yield store
                SqliteUpkeep(store).settle()

    def settle(self) -> None:
        """Checkpoint the log, so that the file alone contains the whole ledger; raise StoreBusyError if it is read."""
        connection = self.store.take()
        try:
            [[busy, *_]] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            raise self.store.translated(error) from error
        finally:
            self.store.pool.give(connection, sound=True)
        if busy:
            raise StoreBusyError(f"cannot checkpoint {self.store.path}: another connection is reading it")

    def journal_is_full(self, connection: sqlite3.Connection) -> bool:
        [[last]] = connection.execute("SELECT max(seq) FROM holdfast_journal").fetchall()
        return last is not None and last >= SEQ_MAX

    def faults(self, connection: sqlite3.Connection) -> list[tuple[str, str]]:
        try:
            pages = plain_cursor(connection).execute(f"PRAGMA integrity_check({FAULTS_MAX})").fetchall()
            references = plain_cursor(connection).execute("PRAGMA foreign_key_check").fetchall()
        except sqlite3.OperationalError as error:
            raise self.store.schema_damage(error) or error from None
        found = [("LEDGER", text) for (text,) in pages if text != "ok"]
        if not references:
            return found + _altered(connection)
        from holdfast.store.tables import GUARDED  # noqa: PLC0415 - few ledgers are damaged

        machines = {guarded.table: guarded.machine.name for guarded in GUARDED}
        for table, rowid, parent, _ in references:
            if table.startswith("holdfast_") and table != "holdfast_maintenance":  # the reference of a door is deferred
                subject = f"{machines[table]} {rowid}" if table in machines else f"TABLE {table}"
                found.append((subject, f"a row of {table} refers to a row of {parent} that does not exist"))
        return found + _altered(connection)


def _altered(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return the tables and unique indexes that are not as the migrations make them: a subject and the words."""
    found = _made(connection)
    # With the digest of what the migrations make, no table need be compared with a new one: that takes longer than all
    # the rest of a check of a small ledger.
    if digest_of_tables(found) in generated("sqlite", "digest of the tables"):
        return []
    expected = expected_tables()
    wrong = [name for name, text in expected.items() if name in found and found[name] != text]
    return [(f"{kind.upper()} {name}", "it is not as the migrations make it") for kind, name in sorted(wrong)]


def _made(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    cursor = connection.cursor()
    cursor.row_factory = None
    return {
        (kind, name): " ".join(text.split())
        for kind, name, text in cursor.execute(_MADE).fetchall()
        if isinstance(text, str) and (kind == "table" or name in unique_indexes("sqlite"))
    }


def digest_of_tables(made: dict[tuple[str, str], str]) -> str:
    """Return one digest of the texts of tables and indexes."""
    return sha256("\n".join(text for _, text in sorted(made.items())))


@cache
def expected_tables() -> dict[tuple[str, str], str]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in (RECORD, *(text for migration in migrations("sqlite") for text in migration.statements())):
            connection.execute(statement)
        return _made(connection)
