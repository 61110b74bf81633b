"""What the ledger's enforcement costs: the store's own verbs beside bare SQL that writes the same rows.

Both sides have the same tables, columns, checks, references and indexes: the bare side is a ledger whose triggers were
dropped, so it writes no journal and no deltas and refuses nothing. Its statements are the fastest found for each
database, not the store's.

Invariants: both sides alternate, round by round, in one process, each in its own database, so that a slower moment of
the machine affects both, and neither pays for the other's write-ahead log; a batch is one durable transaction on the
simulated disk; a run stops if it did not write exactly the rows that it reports.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import msgspec
import psycopg
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.disk import SimulatedDisk
from benchmarks.peers._common import PAYLOAD, fsyncs
from holdfast.core.commands import Complete
from holdfast.core.digest import payload_text
from holdfast.core.records import Attempt, time_text
from holdfast.store import Lease, Store, Submission, create_store
from tests.support.postgres import Server, tmpfs_directory

ROOT = Path(__file__).parents[1]
VERBS = ("submit", "claim", "complete")
ALL = "all three"
ROWS = {1: 100, 10: 500, 100: 3000, 1000: 10_000}  # a round's rows by batch size: whole batches
ROWS_QUICK = {1: 4, 10: 20, 100: 200, 1000: 1000}
ROUNDS, ROUNDS_QUICK = 7, 1
TARGET_BATCH = 100
TARGETS = {"sqlite": 0.4, "postgres": 0.3}
JOURNAL_ROWS = 3  # of one job: its submit, its claim, its end

TEXT = payload_text(PAYLOAD)
RESULT = '{"ok":true}'
ACTOR = "bench"
LEASE_S = 300.0
# No checkpoint runs during a measurement.
SERVER_SETTINGS = {"checkpoint_timeout": "1h", "max_wal_size": "4GB"}


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line: a verb, or all three, at one batch size on one database."""

    database: str
    batch: int
    verb: str
    rows: int  # a side, over all rounds
    enforced_per_s: float
    bare_per_s: float
    ratio: float
    enforced_fsyncs_per_row: float
    bare_fsyncs_per_row: float
    target: float | None = None
    met: bool | None = None


class Measured(msgspec.Struct, frozen=True):
    """The result of a child: the figures, and the rows that each side left in its database."""

    figures: list[Figure]
    written: dict[str, dict[str, int]]


# ---------------------------------------------------------------------------------------------------------------------
# The two sides


class Side(Protocol):
    """Submits, claims and completes jobs. `prepare` is not measured; each other call is one durable transaction."""

    def prepare(self, keys: Sequence[str]) -> list[Any]: ...
    def submit(self, rows: list[Any]) -> None: ...
    def claim(self, n: int) -> list[Any]: ...
    def complete(self, claimed: list[Any]) -> None: ...


class Enforced:
    """The real verbs of the store."""

    def __init__(self, store: Store[Any]) -> None:
        self._store = store

    def prepare(self, keys: Sequence[str]) -> list[Submission]:
        return [Submission(operation="noop", payload=TEXT, client=ACTOR, key=key) for key in keys]

    def submit(self, rows: list[Submission]) -> None:
        with self._store.transaction() as transaction:
            transaction.jobs.submit(rows, actor=ACTOR)

    def claim(self, n: int) -> list[Attempt]:
        with self._store.transaction() as transaction:
            return transaction.executions.claim(Lease(owner=ACTOR, seconds=LEASE_S, n=n))

    def complete(self, claimed: list[Attempt]) -> None:
        moves = [(attempt, Complete(attempt.execution.lease_token, RESULT)) for attempt in claimed]
        with self._store.transaction() as transaction:
            transaction.executions.move(moves, actor=ACTOR)


_CALL = {
    "operation_version": "text", "client": "text", "key": "text", "max_attempts": "integer",
    "replay_attempts": "integer", "payload": "text", "digest": "text",
}  # fmt: skip
_PLACE = {"operation": "text", "queue": "text", "priority": "integer"}
_BORN = "state, version, run_at, due_at, updated_at, event, actor, move_id"


def _given(key: str, columns: Iterable[str]) -> tuple[object, ...]:
    """Return the fields of a job that a caller gives, in the order of the columns."""
    submission = Submission(operation="noop", payload=TEXT, client=ACTOR, key=key)
    return tuple(getattr(submission, column) for column in columns)


def _encoded(rows: object) -> str:
    return msgspec.json.encode(rows).decode()


class BareSqlite:
    """Bare SQL on SQLite: `executemany` inserts fastest, `UPDATE … FROM json_each` updates fastest."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def prepare(self, keys: Sequence[str]) -> list[tuple[tuple[object, ...], tuple[object, ...]]]:
        return [(_given(key, _CALL), _given(key, _PLACE)) for key in keys]

    def submit(self, rows: list[tuple[tuple[object, ...], tuple[object, ...]]]) -> None:
        now = _text_now()
        tail = (now, now, now, ACTOR, uuid4().hex)
        with self._transaction() as connection:
            [[last]] = connection.execute("SELECT coalesce(max(job_id), 0) FROM holdfast_calls").fetchall()
            connection.executemany(
                f"INSERT INTO holdfast_calls (job_id, created_at, {', '.join(_CALL)})"
                f" VALUES (?, ?, {', '.join('?' * len(_CALL))})",
                ((last + n, now, *call) for n, (call, _) in enumerate(rows, start=1)),
            )
            connection.executemany(
                f"INSERT INTO holdfast_jobs (job_id, {', '.join(_PLACE)}, {_BORN})"
                f" VALUES (?, {', '.join('?' * len(_PLACE))}, 'pending', 1, ?, ?, ?, 'submit', ?, ?)",
                ((last + n, *place, *tail) for n, (_, place) in enumerate(rows, start=1)),
            )

    def claim(self, n: int) -> list[tuple[Any, ...]]:
        now = datetime.now(UTC)
        given = {
            "n": n, "now": time_text(now), "until": time_text(now + timedelta(seconds=LEASE_S)),
            "actor": ACTOR, "move_id": uuid4().hex, "token": int(now.timestamp() * 1_000_000),
        }  # fmt: skip
        with self._transaction() as connection:
            claimed = connection.execute(
                "UPDATE holdfast_jobs SET state = 'running', status = 'IN_PROGRESS', version = version + 1,"
                " attempts = attempts + 1, due_at = NULL, lease_owner = :actor, lease_token = :token,"
                " lease_expires_at = :until, last_attempt_at = :now, started_at = :now, updated_at = :now,"
                " event = 'claim', actor = :actor, move_id = :move_id WHERE job_id IN (SELECT job_id FROM holdfast_jobs"
                " WHERE due_at IS NOT NULL AND queue = 'default' AND due_at <= :now ORDER BY priority, due_at, job_id"
                " LIMIT :n) RETURNING job_id, operation, attempts",
                given,
            ).fetchall()
            connection.execute(
                "SELECT c.job_id, c.payload FROM json_each(:ids) k CROSS JOIN holdfast_calls c ON c.job_id = k.value",
                {"ids": _encoded([row[0] for row in claimed])},
            ).fetchall()
        return claimed

    def complete(self, claimed: list[tuple[Any, ...]]) -> None:
        given = {"now": _text_now(), "actor": ACTOR, "move_id": uuid4().hex, "result": RESULT}
        with self._transaction() as connection:
            connection.execute(
                "UPDATE holdfast_jobs SET state = 'succeeded', status = 'DONE', version = version + 1,"
                " lease_expires_at = NULL, result = :result, updated_at = :now, event = 'succeed', actor = :actor,"
                " move_id = :move_id FROM json_each(:ids) k WHERE job_id = k.value",
                {**given, "ids": _encoded([row[0] for row in claimed])},
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        yield self._connection
        self._connection.execute("COMMIT")


class BarePostgres:
    """Bare SQL on PostgreSQL: rows as one JSON text, read by `json_to_recordset`; a verb is one statement."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection

    def prepare(self, keys: Sequence[str]) -> list[dict[str, object]]:
        given = {**_CALL, **_PLACE}
        return [dict(zip(given, _given(key, given), strict=True)) for key in keys]

    def submit(self, rows: list[dict[str, object]]) -> None:
        columns = ", ".join(f"{name} {kind}" for name, kind in {**_CALL, **_PLACE}.items())
        self._run(
            "WITH r AS MATERIALIZED (SELECT nextval('holdfast_calls_job_id_seq') AS job_id, r.*"
            f"   FROM json_to_recordset(%(rows)s) AS r ({columns})),"
            f" c AS (INSERT INTO holdfast_calls (job_id, created_at, {', '.join(_CALL)})"
            f"   SELECT job_id, statement_timestamp(), {', '.join(_CALL)} FROM r)"
            f" INSERT INTO holdfast_jobs (job_id, {', '.join(_PLACE)}, {_BORN})"
            f" SELECT job_id, {', '.join(_PLACE)}, 'pending', 1, statement_timestamp(), statement_timestamp(),"
            f" statement_timestamp(), 'submit', %(actor)s, %(move_id)s FROM r",
            rows=_encoded(rows),
        )

    def claim(self, n: int) -> list[tuple[Any, ...]]:
        return self._run(
            "WITH due AS MATERIALIZED (SELECT job_id FROM holdfast_jobs WHERE due_at IS NOT NULL AND queue = 'default'"
            "   AND due_at <= statement_timestamp() ORDER BY priority, due_at, job_id LIMIT %(n)s"
            "   FOR NO KEY UPDATE SKIP LOCKED),"
            " j AS (UPDATE holdfast_jobs j SET state = 'running', status = 'IN_PROGRESS', version = version + 1,"
            "   attempts = attempts + 1, due_at = NULL, lease_owner = %(actor)s,"
            "   lease_token = (extract(epoch FROM statement_timestamp()) * 1000000)::bigint,"
            "   lease_expires_at = statement_timestamp() + make_interval(secs => %(seconds)s),"
            "   last_attempt_at = statement_timestamp(), started_at = statement_timestamp(),"
            "   updated_at = statement_timestamp(), event = 'claim', actor = %(actor)s, move_id = %(move_id)s"
            "   WHERE job_id = ANY (ARRAY(SELECT job_id FROM due)) RETURNING j.job_id, j.operation, j.attempts)"
            " SELECT j.*, c.payload FROM j JOIN holdfast_calls c ON c.job_id = j.job_id",
            n=n,
            seconds=LEASE_S,
        )

    def complete(self, claimed: list[tuple[Any, ...]]) -> None:
        self._run(
            "UPDATE holdfast_jobs j SET state = 'succeeded', status = 'DONE', version = version + 1,"
            "   lease_expires_at = NULL, result = %(result)s, updated_at = statement_timestamp(), event = 'succeed',"
            "   actor = %(actor)s, move_id = %(move_id)s"
            " WHERE job_id = ANY (ARRAY(SELECT k::bigint FROM jsonb_array_elements_text(%(ids)s) k))",
            ids=_encoded([row[0] for row in claimed]),
            result=RESULT,
        )

    def _run(self, statement: str, **given: object) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        cursor.execute(statement.encode(), {**given, "actor": ACTOR, "move_id": uuid4().hex})
        rows = cursor.fetchall() if cursor.description else []
        self._connection.commit()
        return rows


def _text_now() -> str:
    return time_text(datetime.now(UTC))


@contextmanager
def _bare_side(url: str) -> Iterator[Side]:
    """Yield the bare side, over a new ledger whose triggers are dropped."""
    create_store(url).close()
    if url.startswith("sqlite"):
        connection = sqlite3.connect(_file(url), isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        yield BareSqlite(connection)
        connection.close()
        return
    with psycopg.connect(url) as server:
        triggers = server.execute(
            "SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal AND tgparentid = 0"
        ).fetchall()
        for name, table in triggers:
            server.execute(f"DROP TRIGGER {name} ON {table}".encode())
        # A plan from the time when the tables were small must not scan them after they have grown.
        server.execute("SET enable_seqscan TO off")
        server.commit()
        yield BarePostgres(server)


def _file(url: str) -> str:
    return url.removeprefix("sqlite:///")


# ---------------------------------------------------------------------------------------------------------------------
# Measuring, in a child process on the simulated disk


class Timing(msgspec.Struct):
    """Seconds and fsyncs of each verb in one round of one side."""

    seconds: dict[str, float]
    fsyncs: dict[str, int]


def _round(side: Side, rows: int, batch: int, name: str) -> Timing:
    prepared = side.prepare([f"{name}/{index}" for index in range(rows)])
    held: list[list[Any]] = []
    timing = Timing({}, {})

    def submit() -> None:
        for start in range(0, rows, batch):
            side.submit(prepared[start : start + batch])

    def claim() -> None:
        held.extend(side.claim(batch) for _ in range(rows // batch))

    def complete() -> None:
        for claimed in held:
            side.complete(claimed)

    for verb, work in zip(VERBS, (submit, claim, complete), strict=True):
        gc.collect()
        synced, began = fsyncs(), time.perf_counter()
        work()
        timing.seconds[verb], timing.fsyncs[verb] = time.perf_counter() - began, fsyncs() - synced
    assert [len(claimed) for claimed in held] == [batch] * (rows // batch)
    return timing


def measure(database: str, enforced_url: str, bare_url: str, *, quick: bool) -> Measured:
    """Return the figures of one database, in the order in which they are shown."""
    rounds = ROUNDS_QUICK if quick else ROUNDS
    figures: list[Figure] = []
    jobs = 0
    with create_store(enforced_url) as store, _bare_side(bare_url) as bare:
        sides: dict[str, Side] = {"enforced": Enforced(store), "bare": bare}
        for batch, rows in (ROWS_QUICK if quick else ROWS).items():
            timings: dict[str, list[Timing]] = {name: [] for name in sides}
            # The first round is a warm-up for caches and prepared statements, and is not counted.
            for number in range(rounds + 1):
                jobs += rows
                for name, side in sides.items():
                    timings[name].append(_round(side, rows, batch, f"{batch}.{number}"))
            figures += [
                _figure(database, batch, rows, label, {name: rounds[1:] for name, rounds in timings.items()})
                for label in (*VERBS, ALL)
            ]
    written = {"enforced": _written(enforced_url), "bare": _written(bare_url)}
    finished = {"jobs": jobs, "executions": jobs}
    assert written["enforced"] == finished | {"journal": JOURNAL_ROWS * jobs, "counted": jobs}, written
    assert written["bare"] == finished | {"journal": 0, "counted": 0}, written
    return Measured(figures=figures, written=written)


def _figure(database: str, batch: int, rows: int, label: str, timings: dict[str, list[Timing]]) -> Figure:
    verbs = VERBS if label == ALL else (label,)
    rounds = len(timings["bare"])
    seconds = {
        name: statistics.median(sum(timing.seconds[verb] for verb in verbs) for timing in side)
        for name, side in timings.items()
    }
    syncs = {
        name: sum(timing.fsyncs[verb] for timing in side for verb in verbs) / (rows * rounds)
        for name, side in timings.items()
    }
    ratio = seconds["bare"] / seconds["enforced"]
    target = TARGETS[database] if batch == TARGET_BATCH and label == ALL else None
    return Figure(
        database=database,
        batch=batch,
        verb=label,
        rows=rows * rounds,
        enforced_per_s=rows / seconds["enforced"],
        bare_per_s=rows / seconds["bare"],
        ratio=ratio,
        enforced_fsyncs_per_row=syncs["enforced"],
        bare_fsyncs_per_row=syncs["bare"],
        target=target,
        met=None if target is None else ratio >= target,
    )


def _written(url: str) -> dict[str, int]:
    """Return what a side left behind: finished jobs and executions, journal rows, jobs that were counted."""
    queries = {
        "jobs": "SELECT count(*) FROM holdfast_jobs WHERE state = 'succeeded'",
        "executions": "SELECT count(*) FROM holdfast_executions WHERE status = 'DONE'",
        "journal": "SELECT count(*) FROM holdfast_journal",
        "counted": "SELECT coalesce(sum(n), 0) FROM (SELECT n FROM holdfast_counts WHERE state = 'succeeded'"
        " UNION ALL SELECT n FROM holdfast_count_deltas WHERE target = 'succeeded') c",
    }
    if url.startswith("sqlite"):
        file = sqlite3.connect(_file(url))
        answers = {name: int(file.execute(query).fetchone()[0]) for name, query in queries.items()}
        file.close()
        return answers
    with psycopg.connect(url) as server:
        rows = {name: server.execute(query.encode()).fetchone() for name, query in queries.items()}
    return {name: int(row[0]) for name, row in rows.items() if row is not None}


# ---------------------------------------------------------------------------------------------------------------------
# The suite: a child a database, then the tables and the JSON


def run(databases: Sequence[str], *, quick: bool, path: Path) -> None:
    """Measure, print a table for each database, and write the figures to `path`."""
    console = Console(width=118)
    measured: dict[str, Measured] = {}
    with SimulatedDisk() as disk:
        for database in databases:
            with _two_databases(database, disk) as urls:
                measured[database] = _child(database, urls, disk, quick=quick)
            console.print(_table(database, measured[database].figures, disk, quick=quick))
        result = {
            "suite": "store",
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "quick": quick,
            "sync_us": disk.sync_us,
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "written": {database: answer.written for database, answer in measured.items()},
            "figures": [figure for answer in measured.values() for figure in answer.figures],
        }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    console.print(f"Figures: {path}")


@contextmanager
def _two_databases(database: str, disk: SimulatedDisk) -> Iterator[tuple[str, str]]:
    """Yield the URLs of two empty databases in memory, for the enforced side and for the bare one."""
    if database == "postgres":
        with Server(settings=SERVER_SETTINGS, env=disk.env()) as server:
            yield server.create_database(), server.create_database()
        return
    directory = tempfile.mkdtemp(prefix="holdfast-bench-", dir=tmpfs_directory())
    try:
        yield f"sqlite:///{directory}/enforced.db", f"sqlite:///{directory}/bare.db"
    finally:
        shutil.rmtree(directory)


def _child(database: str, urls: tuple[str, str], disk: SimulatedDisk, *, quick: bool) -> Measured:
    command = [sys.executable, "-m", "benchmarks.store_bench", database, *urls, *(["--quick"] if quick else [])]
    done = subprocess.run(command, env=disk.env(), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return msgspec.json.decode(done.stdout, type=Measured)


def _table(database: str, figures: Sequence[Figure], disk: SimulatedDisk, *, quick: bool) -> Table:
    name = {"sqlite": "SQLite", "postgres": "PostgreSQL"}[database]
    rounds = "one round: do not use its figures" if quick else f"medians of {ROUNDS} rounds"
    table = Table(
        title=f"{name}: the ledger's verbs beside bare SQL; {disk.sync_us / 1000:g} ms an fsync; {rounds}",
        box=SIMPLE,
        title_justify="left",
    )
    for heading in ("batch", "verb", "rows/s", "bare rows/s", "ratio", "fsyncs/row", "bare fsyncs/row", "target"):
        table.add_column(heading, justify="left" if heading in ("verb", "target") else "right", no_wrap=True)
    for figure in figures:
        table.add_row(
            str(figure.batch),
            figure.verb,
            f"{figure.enforced_per_s:,.0f}",
            f"{figure.bare_per_s:,.0f}",
            f"{figure.ratio:.2f}",
            f"{figure.enforced_fsyncs_per_row:.4f}",
            f"{figure.bare_fsyncs_per_row:.4f}",
            _verdict(figure),
            end_section=figure.verb == ALL,
        )
    return table


def _verdict(figure: Figure) -> str:
    if figure.target is None:
        return ""
    return f"at least {figure.target}: " + ("met" if figure.met else "FALLS SHORT")


def _main() -> None:
    parser = argparse.ArgumentParser(description="Measure one database; the caller provides the simulated disk.")
    parser.add_argument("database", choices=TARGETS)
    parser.add_argument("enforced_url")
    parser.add_argument("bare_url")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    measured = measure(args.database, args.enforced_url, args.bare_url, quick=args.quick)
    sys.stdout.buffer.write(msgspec.json.encode(measured))


if __name__ == "__main__":
    _main()
