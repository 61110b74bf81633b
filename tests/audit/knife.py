"""A raw client that edits a ledger past its triggers: guards off, the edit, guards on again.

Invariants: nothing of Holdfast's verbs is used for the edit; afterwards every trigger and every CHECK is as it was, so
that what the edit left behind is all that can be found, but for a unique index that the edit itself makes impossible.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.core.machines import EXEC_IDS
from holdfast.store import connect
from holdfast.store.reinstall import advance_sequences
from holdfast.store.tables import GUARDED, table_named
from tests.audit.rich import Rich
from tests.enforcement.raw import Client

TABLES = {guarded.machine.name: (guarded.table, guarded.id) for guarded in GUARDED}
CALLS = table_named("calls")
CHECKED = ", ".join(f"'holdfast_{name}'::regclass" for name in ("calls", "jobs", "aborted", "grants", "values"))
LONG_AGO = "2020-01-01T00:00:00.000000Z"


class Knife:
    """A raw client of a rich ledger, with the guards off."""

    def __init__(self, client: Client, rich: Rich) -> None:
        self.client = client
        self.rich = rich
        self.dialect = client.dialect
        self.keep_counts = True
        self.after: list[str] = []  # statements for when the guards are on again
        self.run = client.run

    def set(self, machine: str, subject: int, /, **columns: object) -> None:
        """Edit columns of one record; for another state of a job also those that its CHECKs tie to the state."""
        table, identity = TABLES[machine]
        if machine == "JOB":
            of_call = {name: columns.pop(name) for name in tuple(columns) if name in CALLS.names and name != "job_id"}
            if of_call:
                self._update("holdfast_calls", of_call, job_id=subject)
            if "state" in columns:
                columns = {**self._fitting(subject, str(columns["state"])), **columns}
        if columns:
            self._update(table, columns, **{identity: subject})

    def set_aborted(self, exec_id: int, /, **columns: object) -> None:
        """Edit columns of an attempt that ended without success."""
        self._update("holdfast_aborted", columns, job_id=exec_id // EXEC_IDS, attempt=exec_id % EXEC_IDS)

    def invent_aborted(self, job_id: int, attempt: int, **columns: object) -> None:
        """Write an attempt that ended without success, as a copy of another one."""
        [[other]] = self.run("SELECT min(job_id) FROM holdfast_aborted")
        given = {"job_id": job_id, "attempt": attempt, "move_id": "by hand", **columns}
        names = [column.name for column in table_named("aborted").columns]
        values = ", ".join("?" if name in given else name for name in names)
        ordered = [given[name] for name in names if name in given]
        self.run(
            f"INSERT INTO holdfast_aborted ({', '.join(names)}) SELECT {values} FROM holdfast_aborted WHERE job_id = ?",
            *ordered,
            other,
        )

    def forget_aborted(self, exec_id: int) -> None:
        """Delete an attempt that ended without success."""
        where = (exec_id // EXEC_IDS, exec_id % EXEC_IDS)
        assert self.client.changed("DELETE FROM holdfast_aborted WHERE job_id = ? AND attempt = ?", *where) == 1

    def _update(self, table: str, columns: dict[str, object], **which: object) -> None:
        sets = ", ".join(f"{column} = ?" for column in columns)
        where = " AND ".join(f"{column} = ?" for column in which)
        sql = f"UPDATE {table} SET {sets} WHERE {where}"
        assert self.client.changed(sql, *columns.values(), *which.values()) == 1

    def _fitting(self, job_id: int, state: str) -> dict[str, object]:
        """Return the columns that make a job's row agree with a state, as far as its CHECKs look at them."""
        names = ("run_at", "updated_at", "lease_owner", "lease_token", "last_attempt_at")
        [[run_at, updated_at, *lease]] = self.run(
            f"SELECT {', '.join(names)} FROM holdfast_jobs WHERE job_id = ?", job_id
        )
        status = {"running": "IN_PROGRESS", "succeeded": "DONE"}.get(state)
        fitting: dict[str, object] = {
            "due_at": run_at if state == "pending" else None,
            "resting": state if state in ("failed", "quarantined") else None,
            "status": status,
            "lease_expires_at": "2100-01-01T00:00:00.000000Z" if state == "running" else None,
        }
        if status:
            for name, value, otherwise in zip(names[2:], lease, ("raw", 1, updated_at), strict=True):
                fitting[name] = otherwise if value is None else value
        return fitting

    def set_row(self, row: int, /, **columns: object) -> None:
        """Edit columns of one journal row."""
        sets = ", ".join(f"{column} = ?" for column in columns)
        assert self.client.changed(f"UPDATE holdfast_journal SET {sets} WHERE seq = ?", *columns.values(), row) == 1

    def get(self, machine: str, subject: int, column: str) -> object:
        table, identity = TABLES[machine]
        [[value]] = self.run(f"SELECT {column} FROM {table} WHERE {identity} = ?", subject)
        return value

    def executions(self, job_id: int) -> list[int]:
        """Return the executions of a job, first attempt first."""
        rows = self.run("SELECT exec_id FROM holdfast_executions WHERE job_id = ? ORDER BY attempt", job_id)
        return [exec_id for (exec_id,) in rows]

    def row(self, machine: str, subject: int, event: str) -> int:
        """Return the first journal row of a record with an event."""
        rows = self.run(
            "SELECT min(seq) FROM holdfast_journal WHERE machine = ? AND subject = ? AND event = ?",
            machine, subject, event,
        )  # fmt: skip
        return int(rows[0][0])

    def forge(self, machine: str, subject: int, /, **columns: object) -> None:
        """Write a journal row that follows the last one of a record."""
        table, identity = TABLES[machine]
        [[version, attempts]] = self.run(
            f"SELECT version, {'attempts' if machine == 'JOB' else 'NULL'} FROM {table} WHERE {identity} = ?", subject
        )
        given_out = self.dialect == "postgres"  # SQLite's own count follows what is inserted
        next_seq = "nextval('holdfast_journal_seq')" if given_out else "max(seq) + 1 FROM holdfast_journal"
        [[seq]] = self.run(f"SELECT {next_seq}")
        [[at]] = self.run("SELECT max(at) FROM holdfast_journal WHERE machine = ? AND subject = ?", machine, subject)
        row = {
            "seq": seq, "epoch": 1, "xid": 0, "machine": machine, "subject": subject, "version": version + 1,
            "actor": "raw", "attempt": attempts, "move_id": f"forged-{seq}", "at": at, **columns,
        }  # fmt: skip
        marks = ", ".join("?" for _ in row)
        self.run(f"INSERT INTO holdfast_journal ({', '.join(row)}) VALUES ({marks})", *row.values())

    def going_on_after(self, table: str, column: str, number: int) -> str:
        """Return the statement after which the next id of a table follows a number."""
        if self.dialect == "sqlite":
            return f"UPDATE sqlite_sequence SET seq = {number} WHERE name = '{table}'"
        return f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), {number})"

    def recount(self) -> None:
        """Make the counts true again."""
        self.run("DELETE FROM holdfast_count_deltas")
        self.run("DELETE FROM holdfast_counts")
        self.run(
            "INSERT INTO holdfast_counts (operation, queue, state, n)"
            " SELECT operation, queue, state, count(*) FROM holdfast_jobs GROUP BY operation, queue, state"
        )


@contextmanager
def unguarded(url: str, rich: Rich) -> Iterator[Knife]:
    """Yield a knife; when the block ends, what it did is committed and the guards are on again."""
    client = Client(url)
    client.rollback()
    if client.dialect == "sqlite":
        client.run("PRAGMA foreign_keys = OFF")
        client.run("PRAGMA ignore_check_constraints = ON")
    else:
        client.run("SET session_replication_role = replica")  # no foreign keys
        client.run("SET timezone TO 'UTC'")
    try:
        client.begin()
        knife = Knife(client, rich)
        with without_triggers(client), _without_checks(client):
            yield knife
            if knife.keep_counts:
                knife.recount()
        client.commit()
    finally:
        client.close()
    with connect(url) as store, store.transaction() as transaction:
        advance_sequences(store, transaction)
    if knife.after:
        _run_guarded(url, knife.after)


def _run_guarded(url: str, statements: list[str]) -> None:
    client = Client(url)
    client.rollback()
    if client.dialect == "sqlite":
        client.run("PRAGMA foreign_keys = OFF")
    client.begin()
    for statement in statements:
        client.run(statement)
    client.commit()
    client.close()


@contextmanager
def without_triggers(client: Client) -> Iterator[None]:
    """Take all triggers off inside the client's transaction; if the block raises nothing, they are as before.

    By the catalogue: to drop and create a hundred triggers takes as long as the rest of a test. On PostgreSQL the
    session must not have used a guarded table before, because it would know its triggers already.
    """
    if client.dialect == "postgres":
        client.run("UPDATE pg_trigger SET tgenabled = 'D' WHERE NOT tgisinternal")
        yield
        client.run("UPDATE pg_trigger SET tgenabled = 'A' WHERE NOT tgisinternal")
        return
    columns = "type, name, tbl_name, rootpage, sql"
    rows = client.run(f"SELECT {columns} FROM sqlite_master WHERE type = 'trigger'")
    client.run("PRAGMA writable_schema = ON")
    client.run("DELETE FROM sqlite_master WHERE type = 'trigger'")
    client.run("PRAGMA writable_schema = RESET")  # the session reads the schema again
    yield
    client.run("PRAGMA writable_schema = ON")
    for row in rows:
        client.run(f"INSERT INTO sqlite_master ({columns}) VALUES (?, ?, ?, ?, ?)", *row)
    client.run("PRAGMA writable_schema = RESET")


def drop_triggers(client: Client) -> None:
    """Drop every trigger of the ledger, inside the client's transaction."""
    if client.dialect == "sqlite":
        rows = client.run("SELECT 'DROP TRIGGER ' || name FROM sqlite_master WHERE type = 'trigger'")
    else:
        rows = client.run(
            "SELECT format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass) FROM pg_trigger"
            " WHERE NOT tgisinternal AND tgparentid = 0"
        )
    for (statement,) in rows:
        client.run(statement)


@contextmanager
def _without_checks(client: Client) -> Iterator[None]:
    """Ignore the CHECKs of the tables that are edited inside the client's transaction, as `without_triggers` does.

    SQLite has a setting for that.
    """
    if client.dialect == "sqlite":
        yield
        return
    client.run(f"UPDATE pg_class SET relchecks = 0 WHERE oid IN ({CHECKED})")
    yield
    counted = "SELECT count(*) FROM pg_constraint WHERE contype = 'c' AND conrelid = pg_class.oid"
    client.run(f"UPDATE pg_class SET relchecks = ({counted}) WHERE oid IN ({CHECKED})")
