"""A client of the ledger's database that is not Holdfast: plain sqlite3 or psycopg, and rows written by hand.

Invariants: no SQL of Holdfast's own is used; what is legal to write is read from the transition table alone; a
statement that the database refuses leaves the client's transaction as it was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.core.machine import Machine, Path
from holdfast.core.machines import (
    GRANT,
    JOB,
    PROCEDURE,
    SETTING,
    STEP,
    SWITCH,
    VALUE,
    ExecutionStatus,
    GrantState,
    JobState,
    ValueState,
)
from holdfast.core.records import time_text
from holdfast.store.enforcement import Refusal
from holdfast.store.tables import GUARDED, Guarded

AT = "2030-01-02T03:04:05.000006Z"
LATER = "2030-01-02T03:04:05.000007Z"
DOOR = f"INSERT INTO holdfast_maintenance (who, why, opened_at) VALUES ('ann', 'a test', '{AT}')"
SHUT = "DELETE FROM holdfast_maintenance"
GUARDED_BY_NAME: Mapping[str, Guarded] = {guarded.machine.name: guarded for guarded in GUARDED}
MACHINES_WITH_TABLES: Mapping[str, Machine] = {name: guarded.machine for name, guarded in GUARDED_BY_NAME.items()}
REFUSALS = frozenset(map(str, Refusal))
# The CHECKs of a job and its attempt refuse a row whose parts disagree, before a trigger sees it.
JOINT_CHECKS = frozenset(f"holdfast_jobs_{name}_check" for name in ("due", "resting", "status", "lease"))
EXEC_IDS = 1_000_000
OF_CALL = (
    "operation_version", "client", "key", "payload", "digest", "max_attempts", "replay_attempts", "replaces",
    "created_at",
)  # fmt: skip

Statement = tuple[Any, ...]  # its text, then its parameters


class Sql(str):
    """A piece of SQL that stands for a value."""

    __slots__ = ()


JOURNAL_COLUMNS = (
    "machine", "subject", "version", "source", "target", "event", "actor", "reason", "attempt", "move_id", "grant_id",
    "maintenance_id", "at",
)  # fmt: skip


class Client:
    """One connection, with one transaction open from the start."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.dialect = "postgres" if url.startswith("postgres") else "sqlite"
        self.connection: Any
        if self.dialect == "sqlite":
            self.connection = sqlite3.connect(urlsplit(url).path[1:], isolation_level=None)
            self.connection.execute("PRAGMA foreign_keys = ON")
        else:
            self.connection = psycopg.connect(url, autocommit=True)
            self.connection.execute("SET timezone TO 'Asia/Kathmandu'")  # a shell is not always in UTC
        self.begun = 0
        self.settings_changed = False  # of the session, which no rollback undoes
        self.begin()

    def begin(self) -> None:
        self.connection.execute("BEGIN")
        self.begun += 1

    @property
    def in_transaction(self) -> bool:
        if self.dialect == "sqlite":
            return bool(self.connection.in_transaction)
        return self.connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def commit(self) -> None:
        self.connection.execute("COMMIT")

    def rollback(self) -> None:
        self.connection.execute("ROLLBACK")

    def close(self) -> None:
        self.connection.close()

    def run(self, sql: str, *params: object) -> list[tuple[Any, ...]]:
        """Run one statement, with `?` for each parameter, and return its rows."""
        if self.dialect == "sqlite" and sql.startswith(("PRAGMA", "ATTACH")):
            self.settings_changed = True
        if self.dialect == "postgres" and params:
            sql = sql.replace("%", "%%").replace("?", "%s")
        cursor = self.connection.execute(sql, params) if params else self.connection.execute(sql)
        return cursor.fetchall() if cursor.description else []

    def changed(self, sql: str, *params: object) -> int:
        """Run one statement and return how many rows it says it changed."""
        if self.dialect == "postgres":
            sql = sql.replace("?", "%s")
        return int(self.connection.execute(sql, params).rowcount)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what the block did if it raises."""
        self.connection.execute("SAVEPOINT raw")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK TO SAVEPOINT raw")
            self.connection.execute("RELEASE SAVEPOINT raw")
            raise
        self.connection.execute("RELEASE SAVEPOINT raw")

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Undo what the block did, in any case."""
        self.connection.execute("SAVEPOINT undone")
        try:
            yield
        finally:
            self.connection.execute("ROLLBACK TO SAVEPOINT undone")
            self.connection.execute("RELEASE SAVEPOINT undone")

    def refusal(self, sql: str, *params: object) -> str | None:
        """Try one statement; return the code it is refused with, or None if it was carried out."""
        try:
            with self.savepoint():
                self.run(sql, *params)
        except (sqlite3.Error, psycopg.Error) as error:
            return refusal_of(error)
        return None

    def verdict(self, sql: str, *params: object) -> str | None:
        """Try one statement, and undo it in any case; return the code it is refused with, or None."""
        with self.undone():
            try:
                self.run(sql, *params)
            except (sqlite3.Error, psycopg.Error) as error:
                return refusal_of(error)
        return None

    def journal(self, machine: str, subject: int) -> list[dict[str, Any]]:
        """Return every edge that the journal says one record took, oldest first, with its time as text."""
        rows = self.run(
            f"SELECT {', '.join(JOURNAL_COLUMNS)} FROM holdfast_edges WHERE machine = ? AND subject = ?"
            " ORDER BY version",
            machine,
            subject,
        )
        edges = [dict(zip(JOURNAL_COLUMNS, row, strict=True)) for row in rows]
        return [{**edge, "at": time_text(stored_time(edge["at"]))} for edge in edges]

    def count(self, table: str) -> int:
        [[n]] = self.run(f"SELECT count(*) FROM {table}")
        return int(n)


def refusal_of(error: sqlite3.Error | psycopg.Error) -> str:
    """Return the HF code of a refusal, or what the driver calls any other error."""
    if isinstance(error, psycopg.Error):
        if error.diag.constraint_name in JOINT_CHECKS:
            return Refusal.ILLEGAL_EDGE
        # The code stands at the head of the message too, for people.
        state = error.sqlstate or type(error).__name__
        assert (state in REFUSALS) == str(error).startswith("HF")
        return state
    head = str(error)[:5]
    if str(error).removeprefix("CHECK constraint failed: ") in JOINT_CHECKS:
        return Refusal.ILLEGAL_EDGE
    if head in REFUSALS:
        return head
    return getattr(error, "sqlite_errorname", type(error).__name__)


class Hand:
    """Writes records by hand: each with the right columns, and the event and version that the table wants."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._numbers = count(1)

    def unique(self, word: str) -> str:
        return f"{word}-{next(self._numbers)}"

    # -- single writes ------------------------------------------------------------------------------------------------

    def call(self, verb: str = "INSERT", /, **columns: object) -> Statement:
        """Return the INSERT of a call: what a client submitted, without its job."""
        row = {
            "operation_version": "1.0.0", "client": "raw", "key": self.unique("key"), "payload": "{}",
            "digest": "0" * 64, "max_attempts": 5, "replay_attempts": 5, "created_at": AT, **columns,
        }  # fmt: skip
        return _insert("holdfast_calls", row, "job_id", verb)

    def birth(self, machine: Machine, event: str, state: str, version: int, **columns: object) -> Statement:
        """Return the INSERT of a record; `columns` override what would be written.

        The call of a job is written at once, unless the id of the job is given.
        """
        guarded = GUARDED_BY_NAME[machine.name]
        created = {} if machine is JOB else {"created_at": AT}
        if machine is JOB:
            own = {name: columns.pop(name) for name in OF_CALL if name in columns}
            if "job_id" not in columns:
                [[columns["job_id"]]] = self.client.run(*self.call(**own))
        row: dict[str, object] = {
            **self._columns(machine),
            **({"consumed_by": "raw"} if machine is GRANT and state == GrantState.CONSUMED else {}),
            **(self.successor(state) if machine is VALUE else {}),
            **(job_shape(state) if machine is JOB else {}),
            **(HELD if machine is JOB and job_shape(state)["status"] else {}),
            guarded.state: state,
            "version": version,
            "event": event,
            **self._signature(),
            **created,
            "updated_at": AT,
            **columns,
        }
        if machine is JOB and "due_at" not in columns and row["due_at"] is not None:
            row["due_at"] = row["run_at"]
        return _insert(guarded.table, row, guarded.id)

    def move(self, machine: Machine, subject: int, event: str, target: str, edges: int, **columns: object) -> Statement:
        """Return the UPDATE that moves one record; a job moves with its attempt, whose status is by default the usual.

        A claim takes the next attempt number and a greater token.
        """
        guarded = GUARDED_BY_NAME[machine.name]
        row: dict[str, object] = {
            **({"consumed_by": "raw" if target == GrantState.CONSUMED else None} if machine is GRANT else {}),
            **(self.successor(target) if machine is VALUE else {}),
            **(job_shape(target, columns.pop("status", None)) if machine is JOB else {}),
            **(CLAIM if machine is JOB and event == "claim" else {}),
            guarded.state: target,
            "event": event,
            **self._signature(),
            "updated_at": AT,
            "version": Sql(f"version + {edges}"),
            **columns,
        }
        return _update(guarded.table, row, guarded.id, subject)

    def step(self, job: int, event: str, status: str, **columns: object) -> Statement:
        """Return the UPDATE that moves an attempt while its job stays running."""
        row = {"status": status, "event": event, **self._signature(), "updated_at": AT, **columns}
        return _update("holdfast_jobs", row, "job_id", job)

    # -- legal walks --------------------------------------------------------------------------------------------------

    def born(self, machine: Machine, path: Path | None = None, **columns: object) -> int:
        """Write a record by one of its machine's births, and return its id."""
        path = path or next(machine.births())
        extra = self.governed() if path.governed else {}
        birth = self.birth(machine, path.event, path.target, len(path.edges), **{**extra, **columns})
        [[subject]] = self.client.run(*birth)
        return int(subject)

    def take(self, machine: Machine, subject: int, path: Path, **columns: object) -> None:
        """Move a record along a path, with a grant of its own where the path is governed."""
        extra = self.governed() if path.governed else {}
        move = self.move(machine, subject, path.event, path.target, len(path.edges), **{**extra, **columns})
        assert self.client.changed(*move) == 1

    def put(self, machine: Machine, state: str) -> int:
        """Write a record and walk it to a state, by the fewest events."""
        first, *rest = shortest(machine, state)
        subject = self.born(machine, first)
        for path in rest:
            self.take(machine, subject, path)
        return subject

    def attempt(self, status: str) -> int:
        """Write a job whose current attempt has a status, and return the id of the job."""
        job = self.born(JOB)
        first = ExecutionStatus.LEASED if status == ExecutionStatus.LEASED else ExecutionStatus.IN_PROGRESS
        self.take(JOB, job, JOB.path("claim", JobState.PENDING), status=first)
        if status == ExecutionStatus.COMMITTED:
            assert self.client.changed(*self.step(job, "commit", status)) == 1
        elif status == ExecutionStatus.DONE:
            self.take(JOB, job, JOB.path("succeed", JobState.RUNNING))
        return job

    def consumed_grant(self, move_id: str | None = None) -> int:
        """Write a grant that was approved and then consumed, by a given move if one is named."""
        grant = self.put(GRANT, GrantState.ACTIVE)
        columns = {"move_id": move_id} if move_id else {}
        self.take(GRANT, grant, GRANT.path("consume", GrantState.ACTIVE), **columns)
        return grant

    def requested(self, status: str = ExecutionStatus.IN_PROGRESS) -> int:
        """Write a job with an attempt whose cancellation is requested, and return the id of the job."""
        job = self.attempt(status)
        assert self.client.changed(*self.request(job)) == 1
        return job

    def request(self, job: int, **columns: object) -> Statement:
        """Return the UPDATE that requests the cancellation of an attempt."""
        row = {"cancel_requested_at": LATER, "cancel_by": "ann", "cancel_reason": "not wanted",
               "cancel_move_id": self.unique("request"), **columns}  # fmt: skip
        return _update("holdfast_jobs", row, "job_id", job)

    def erased(self, job: int, key_hash: str = "hash") -> None:
        """Erase what a client submitted with a job: its payload, its key, its result."""
        grant, move_id = self.born(GRANT, action="erase"), self.unique("erase")
        self.take(GRANT, grant, GRANT.path("approve", GrantState.DRAFT))
        self.take(GRANT, grant, GRANT.path("consume", GrantState.ACTIVE), move_id=move_id)
        self.client.run(DOOR)
        row = {"job_id": job, "client": "raw", "key_hash": key_hash, "erased_at": AT, "actor": "ann",
               "reason": "by request", "grant_id": grant, "move_id": move_id}  # fmt: skip
        marks = ", ".join("?" for _ in row)
        self.client.run(f"INSERT INTO holdfast_erased ({', '.join(row)}) VALUES ({marks})", *row.values())
        self.client.run("UPDATE holdfast_calls SET payload = NULL, key = NULL WHERE job_id = ?", job)
        self.client.run("UPDATE holdfast_jobs SET result = NULL WHERE job_id = ?", job)
        self.client.run(SHUT)

    def governed(self) -> dict[str, object]:
        """Return a grant and the move that has consumed it: what a governed write needs."""
        move_id = self.unique("governed")
        return {"move_id": move_id, "grant_id": self.consumed_grant(move_id)}

    def _signature(self) -> dict[str, object]:
        return {"actor": "raw", "reason": "by hand", "move_id": self.unique("move")}

    def _columns(self, machine: Machine) -> dict[str, object]:
        if machine is JOB:
            return {"operation": "noop", "queue": "default", "run_at": AT}
        if machine is GRANT:
            return {
                "action": "release", "target": self.unique("job"), "scope": "{}", "requested_by": "raw",
                "expires_at": LATER,
            }  # fmt: skip
        if machine is PROCEDURE:
            return {"idempotency_root": self.unique("root"), "procedure": "build"}
        if machine is STEP:
            return {"run_id": self.born(PROCEDURE), "number": 0, "name": "S0", "outcome": "{}"}
        if machine is SWITCH:
            return {"name": self.unique("switch"), "thrown_by": "raw"}
        if machine is SETTING:
            return {"kind": "schedule", "name": self.unique("setting"), "value": "{}"}
        assert machine is VALUE
        return {
            "vocab_id": self.unique("vocab"), "collection": self.collection(), "operation_code": self.unique("code"),
            "protocol_version": "1.0.0", "act_type": "operation", "semantics": "{}", "authority_ref": "raw",
            "digest": "0" * 64, "status": "staged",
        }  # fmt: skip

    def successor(self, state: str) -> dict[str, object]:
        """Return what a value in a state says of the one that follows it: something if it is superseded."""
        if state != ValueState.SUPERSEDED:
            return {"successor_code": None, "successor_version": None}
        code = self.unique("code")
        self.born(VALUE, operation_code=code)
        return {"successor_code": code, "successor_version": "1.0.0"}

    def collection(self) -> str:
        """Write a collection of the registry, and return its name."""
        name = self.unique("collection")
        row = {
            "collection": name, "schema": "{}", "schema_digest": "0" * 64, "status": "staged",
            "run_id": self.born(PROCEDURE), "created_at": AT, "updated_at": AT,
        }  # fmt: skip
        marks = ", ".join("?" for _ in row)
        self.client.run(f"INSERT INTO holdfast_collections ({', '.join(row)}) VALUES ({marks})", *row.values())
        return name


CLAIM: Mapping[str, object] = {
    "attempts": Sql("attempts + 1"), "lease_token": Sql("coalesce(lease_token, 0) + 1"), "lease_owner": "raw",
    "last_attempt_at": AT,
}  # fmt: skip
HELD: Mapping[str, object] = {"attempts": 1, "lease_token": 1, "lease_owner": "raw", "last_attempt_at": AT}


def job_shape(state: str, status: object = None) -> dict[str, object]:
    """Return the columns of a job that agree with its state, and with the status of its attempt if that is named."""
    usual: dict[str, str] = {JobState.RUNNING: ExecutionStatus.IN_PROGRESS, JobState.SUCCEEDED: ExecutionStatus.DONE}
    return {
        "due_at": Sql("run_at") if state == JobState.PENDING else None,
        "resting": state if state in (JobState.FAILED, JobState.QUARANTINED) else None,
        "status": status or usual.get(state),
        "lease_expires_at": LATER if state == JobState.RUNNING else None,
    }


def _insert(table: str, row: Mapping[str, object], key: str, verb: str = "INSERT") -> Statement:
    marks = ", ".join("?" for _ in row)
    return f"{verb} INTO {table} ({', '.join(row)}) VALUES ({marks}) RETURNING {key}", *row.values()


def _update(table: str, row: Mapping[str, object], key: str, subject: int) -> Statement:
    sets = ", ".join(f"{column} = {value if isinstance(value, Sql) else '?'}" for column, value in row.items())
    values = (value for value in row.values() if not isinstance(value, Sql))
    return f"UPDATE {table} SET {sets} WHERE {key} = ?", *values, subject


def shortest(machine: Machine, state: str) -> list[Path]:
    """Return the fewest paths that lead from nothing to a state."""
    walks: list[list[Path]] = [[path] for path in machine.births()]
    seen: set[str] = set()
    for walk in walks:  # the list grows while it is walked: breadth first
        here = walk[-1].target
        if here == state:
            return walk
        if here not in seen:
            seen.add(here)
            walks += [[*walk, path] for path in machine.moves() if path.source == here]
    raise AssertionError(f"{state} is out of reach")


def stored_time(value: object) -> datetime:
    """Return the moment that a stored time names, as text or as a timestamp."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
