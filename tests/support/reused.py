"""A copy of a ledger on PostgreSQL that tests use one after the other, instead of a database for each.

To copy and to drop a database takes 13 ms of CPU, and its first sessions read the whole catalogue. To put back the
rows takes two to four.

Invariants: after `restore` has returned True, tables, sequences and catalogue are as they were at first, and no session
but kept ones is left. The files may be larger, up to where the planner would notice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from tests.support import sessions

USES_MAX = 50
WAITS_S = (0.002, 0.01, 0.05, 0.2, 0.0)  # a process of the server ends a moment after its client
BYTES_MAX = 10 * 8192  # the planner takes each table that was never analyzed to be at least as large

OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND pid <> ALL(%s)"""
RELATIONS = """
SELECT relname, relkind::text FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'S') AND NOT relispartition
ORDER BY relname"""
FUNCTIONS = "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = current_schema()::regnamespace"
# A change to a catalogue writes a new version of a row; VACUUM and ANALYZE change rows of pg_class where they are.
CATALOGUES = """
attrdef attribute class constraint db_role_setting default_acl description event_trigger extension index inherits
namespace operator policy proc publication rewrite sequence statistic statistic_ext trigger type
"""
CATALOGUE = " UNION ALL ".join(
    f"SELECT '{name}', count(*), count(*) FILTER (WHERE age(xmin) < age(%(since)s::xid)) FROM pg_{name}"
    for name in CATALOGUES.split()
)
CATALOGUE += " UNION ALL SELECT 'analyzed', sum(relpages), sum(reltuples)::bigint FROM pg_class"
# Tests that switch guards off and on again leave other versions of the same rows in these catalogues.
SWITCHED = ("class", "trigger")
SAME = " UNION ALL ".join(
    f"SELECT '{name}', md5(string_agg(one::text, ',' ORDER BY oid)) FROM pg_{name} one" for name in SWITCHED
)
BYTES = "SELECT max(pg_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND oid >= 16384"


class ReusedLedger:
    """One database, and the session that restores it."""

    def __init__(self, url: str) -> None:
        self.url, self.name = url, url.rpartition("/")[2]
        self._uses = 0
        self._session = psycopg.connect(url, autocommit=True, prepare_threshold=1)
        self._session.execute("SET lock_timeout = '1s'")
        self._session.execute("SET session_replication_role = replica")  # without foreign keys
        relations: dict[str, str] = dict(self._read(RELATIONS))
        self._tables = [name for name, kind in relations.items() if kind != "S"]
        self._take_off_guards()
        self._rows = {name: rows for name in self._tables if (rows := self._copied(name))}
        self._versions = " UNION ALL ".join(
            f"SELECT '{name}', count(*), sum(xmin::text::bigint) FROM {name}" for name in self._rows
        )
        self._at_first = self._read(self._versions)
        self._empty = "; ".join(f"DELETE FROM {name}" for name in self._tables if name not in self._rows)
        sequences = [name for name, kind in relations.items() if kind == "S"]
        values = [(name, *self._read(f"SELECT last_value, is_called FROM {name}")[0]) for name in sequences]
        self._set_sequences = "SELECT " + ", ".join(
            f"setval('{name}', {value}, {used})" for name, value, used in values
        )
        self._functions = self._read(FUNCTIONS)
        self._same = self._read(SAME)
        self._learn_catalogue()

    def restore(self) -> bool:
        """Make the ledger what it was at first; return False if that cannot be done, or is not worth it."""
        self._uses += 1
        try:
            return self._uses < USES_MAX and self._alone() and self._restored()
        except psycopg.Error:  # this session has to read a table again, and so its guards; or the server was stopped
            return False

    def close(self) -> None:
        sessions.release(self.name)
        self._session.close()

    def _alone(self) -> bool:
        for wait_s in WAITS_S:
            [[others]] = self._read(OTHERS, [sessions.processes(self.name)])
            if not others:
                return True
            time.sleep(wait_s)
        return False

    def _restored(self) -> bool:
        for name in [name for name, kind in self._read(RELATIONS) if kind != "S" and name not in self._tables]:
            self._session.execute(sql.SQL("DROP TABLE IF EXISTS {} CASCADE").format(sql.Identifier(name)))
        changed = self._changed_catalogues()
        if "proc" in changed:
            for (function,) in [one for one in self._read(FUNCTIONS) if one not in self._functions]:
                self._session.execute(f"DROP FUNCTION {function} CASCADE")
            changed = self._changed_catalogues()
        if changed and changed <= set(SWITCHED) and self._read(SAME) == self._same:
            self._take_off_guards()
            self._learn_catalogue()
        elif changed:
            return False
        if self._read(BYTES)[0][0] > BYTES_MAX:
            return False
        self._session.execute(self._empty)
        written = [now for now in self._read(self._versions) if now not in self._at_first]
        for name, _, _ in written:
            with self._session.transaction(), self._session.cursor() as cursor:
                cursor.execute(f"DELETE FROM {name}")
                with cursor.copy(f"COPY {name} FROM STDIN") as copy:
                    copy.write(self._rows[name])
        if written:
            self._at_first = self._read(self._versions)
        self._session.execute(self._set_sequences)
        return True

    def _read(
        self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        return self._session.execute(statement, parameters).fetchall()

    def _learn_catalogue(self) -> None:
        [[self._since]] = self._read("SELECT pg_current_xact_id()::xid")
        self._catalogue = self._read_catalogue()

    def _read_catalogue(self) -> set[tuple[Any, ...]]:
        return set(self._read(CATALOGUE, {"since": self._since}))

    def _changed_catalogues(self) -> set[str]:
        """Return the names of the catalogues that are not as they were at first."""
        return {name for name, *_ in self._read_catalogue() - self._catalogue}

    def _copied(self, name: str) -> bytes:
        with self._session.cursor() as cursor, cursor.copy(f"COPY (TABLE {name}) TO STDOUT") as copy:
            return b"".join(bytes(row) for row in copy)

    def _take_off_guards(self) -> None:
        """Let this session, and no other, delete rows: it reads all tables while their triggers are off."""
        with self._session.transaction(force_rollback=True):
            self._session.execute("UPDATE pg_trigger SET tgenabled = 'D' WHERE NOT tgisinternal")
            for name in self._tables:
                self._session.execute(f"DELETE FROM {name}")
