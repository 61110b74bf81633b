"""Applies the numbered migrations, and verifies a ledger before it is used.

Invariants: a migration is one numbered `.sql` file for each dialect; all are applied in order, in one transaction, with
the triggers that follow from the transition table; each applied migration is recorded with its digest; a ledger with
unknown, changed or newer migrations, or with other machines or triggers, is refused and not changed.
"""

import re
from functools import cache
from typing import Any, NamedTuple

import msgspec

from holdfast.core.digest import sha256
from holdfast.core.errors import NotALedgerError
from holdfast.core.machines import MACHINES
from holdfast.core.records import time_text
from holdfast.store.requests import Declared
from holdfast.store.settings import Settings
from holdfast.store.statements import STORE
from holdfast.store.store import Store

RECORD = (
    "CREATE TABLE holdfast_migrations"
    " (number integer PRIMARY KEY, name text NOT NULL, digest text NOT NULL, applied_at text NOT NULL)"
)
_UNIQUE_INDEX = re.compile(r"CREATE UNIQUE INDEX (\w+)")
BUILT_IN = {"noop": Declared()}
DOOR_OPEN = "the maintenance door is open"


class Migration(msgspec.Struct, frozen=True):
    """One numbered step of the schema."""

    number: int
    name: str
    text: str

    @property
    def digest(self) -> str:
        return sha256(self.text)

    def statements(self) -> list[str]:
        """Return its statements: each ends with a semicolon at the end of a line, as there are no trigger bodies."""
        text = re.sub(r"^\s*--.*$\n?", "", self.text, flags=re.MULTILINE)
        return [part.strip() for part in re.split(r";\s*\n", text) if part.strip()]


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """Return the dialect's migrations, in order."""
    texts = {file.stem: file.read_text(encoding="utf-8") for file in (STORE / dialect / "migrations").glob("*.sql")}
    return tuple(Migration(int(name[:4]), name[5:], text) for name, text in sorted(texts.items()))


@cache
def unique_indexes(dialect: str) -> dict[str, str]:
    """Return the statements that create the unique indexes, by name of the index."""
    every = (statement for migration in migrations(dialect) for statement in migration.statements())
    return {match[1]: statement for statement in every if (match := _UNIQUE_INDEX.match(statement))}


class Rules(NamedTuple):
    """What the triggers of a ledger depend on, besides its machines."""

    epoch: int
    governed: bool  # a governed ledger has one more: see `enforcement.in_force`


class Plan(msgspec.Struct, frozen=True):
    """What `migrate` executes: the migrations to apply, and all statements in order."""

    pending: tuple[Migration, ...]
    statements: tuple[str, ...]


def plan(
    store: Store[Any], connection: Any, *, environment: str = "dev", governed: bool = False, epoch: int | None = None
) -> Plan:
    """Return the migrations and statements that a ledger needs; raise SchemaVersionError if it is newer or changed.

    With an epoch, the triggers are those of that epoch; the caller writes the setting. `governed` is of a new ledger.
    """
    applied = _applied(store, connection)
    pending = tuple(m for m in migrations(store.dialect) if m.number not in applied)
    made = [text for migration in pending for text in (*migration.statements(), _recorded(store, migration))]
    if not applied:
        first = [RECORD, *made, *_first_settings(store, environment, governed=governed), *machine_rows()]
        return Plan(pending, (*first, *store.enforcement(connection, Rules(1 if epoch is None else epoch, governed))))
    from holdfast.store.reinstall import lost_indexes, rewritten  # noqa: PLC0415 - an older ledger

    rules = rules_of(store, connection)
    again = rewritten(store, connection, rules if epoch is None else rules._replace(epoch=epoch))
    return Plan(pending, (*made, *again, *(() if pending else lost_indexes(store, connection))))


def migrate(
    store: Store[Any], *, environment: str = "dev", governed: bool = False, only_empty: bool = False
) -> tuple[str, ...]:
    """Bring a ledger, or an empty database, to this version; return the names of the applied migrations.

    With `only_empty`, nothing happens if another process has created a ledger since the caller looked.
    """
    with store.transaction() as transaction:
        connection = transaction.connection
        store.lock_schema(connection)
        if only_empty and store.tables(connection):
            return ()
        todo = plan(store, connection, environment=environment, governed=governed)
        for statement in todo.statements:
            store.execute(connection, statement)
    return tuple(migration.name for migration in todo.pending)


def is_empty(store: Store[Any]) -> bool:
    """Return whether the database has no tables of Holdfast."""
    with store.reading() as reading:
        return not store.tables(reading.connection)


def verify(store: Store[Any]) -> dict[str, str]:
    """Return the settings of the ledger; raise a StoreError if this version of Holdfast cannot use it."""
    with store.reading() as reading:
        connection = reading.connection
        require_ledger(store, connection)
        store.require_present(connection, rules_of(store, connection).epoch)
        differing = drift(store, connection)
        if differing:
            from holdfast.store.unknown import other_enforcement  # noqa: PLC0415 - most ledgers have not drifted

            raise other_enforcement(differing)
        return reading.settings.read()


def require_ledger(store: Store[Any], connection: Any) -> None:
    """Raise a StoreError unless the database contains a ledger with the schema of this version."""
    applied = _applied(store, connection)
    missing = [m.number for m in migrations(store.dialect) if m.number not in applied]
    if missing:
        from holdfast.store.unknown import older  # noqa: PLC0415 - most ledgers are of this version

        raise older(missing) if applied else NotALedgerError("the database contains no ledger", context={"tables": []})


def drift(store: Store[Any], connection: Any) -> list[str]:
    """Return the names of what differs from this version: an open door, machines, triggers, functions, indexes."""
    return [
        *([DOOR_OPEN] if door_is_open(store, connection) else []),
        *_machine_drift(store, connection),
        *store.enforcement_drift(connection, rules_of(store, connection)),
    ]


def _applied(store: Store[Any], connection: Any) -> dict[int, str]:
    tables = store.tables(connection)
    if "holdfast_migrations" not in tables:
        if tables:
            from holdfast.store.unknown import other_tables  # noqa: PLC0415 - most databases have none

            raise other_tables(tables)
        return {}
    rows = store.execute(connection, "SELECT number, digest FROM holdfast_migrations ORDER BY number")
    applied = {int(number): str(digest) for number, digest in rows}
    known = {migration.number: migration.digest for migration in migrations(store.dialect)}
    if not applied or not applied.items() <= known.items():
        from holdfast.store.unknown import other_version  # noqa: PLC0415 - most ledgers are of a known version

        raise other_version(applied, known)
    return applied


def _recorded(store: Store[Any], migration: Migration) -> str:
    at = store.now().isoformat()
    return (
        f"INSERT INTO holdfast_migrations VALUES ({migration.number}, '{migration.name}', '{migration.digest}', '{at}')"
    )


def machine_rows() -> list[str]:
    """Return the statements that write the digest of each machine, and the transitions for people to read."""
    machines = [f"('{machine.name}', '{machine.digest}')" for machine in MACHINES.values()]
    edges = [
        f"('{machine.name}', '{path.event}', {step}, {_literal(edge.source)}, '{edge.target}', '{path}', '{path.rule}')"
        for machine in MACHINES.values()
        for path in machine.paths
        for step, edge in enumerate(path.edges, start=1)
    ]
    return [
        "DELETE FROM holdfast_machines",
        f"INSERT INTO holdfast_machines (machine, digest) VALUES\n  {_lines(machines)}",
        "DELETE FROM holdfast_transitions",
        "INSERT INTO holdfast_transitions (machine, event, step, source, target, path, rule) VALUES\n  "
        + _lines(edges),
    ]


def _lines(rows: list[str]) -> str:
    return ",\n  ".join(rows)


def _literal(word: str | None) -> str:
    return "NULL" if word is None else f"'{word}'"


def _machine_drift(store: Store[Any], connection: Any) -> list[str]:
    stored = dict(store.execute(connection, "SELECT machine, digest FROM holdfast_machines"))
    expected = {machine.name: machine.digest for machine in MACHINES.values()}
    return [f"machine {name}" for name in sorted(expected) if stored.get(name) != expected[name]]


def rules_of(store: Store[Any], connection: Any) -> Rules:
    rows = store.execute(connection, "SELECT name, value FROM holdfast_meta WHERE name IN ('epoch', 'governed')")
    settings = Settings((name, value) for name, value in rows)
    return Rules(int(settings["epoch"]), settings.get("governed") == "yes")  # if it is missing, `check` says so


def door_is_open(store: Store[Any], connection: Any) -> bool:
    """Return whether a finished transaction has left the maintenance door open."""
    return bool(store.execute(connection, "SELECT 1 FROM holdfast_maintenance"))


def _first_settings(store: Store[Any], environment: str, *, governed: bool) -> list[str]:
    settings = {"epoch": "1", "environment": environment, "governed": "yes" if governed else "no"}
    at = time_text(store.now())
    operations = [
        f"('{name}', '{declared.version}', '{msgspec.json.encode(declared).decode()}', '{at}')"
        for name, declared in BUILT_IN.items()
    ]
    return [
        "INSERT INTO holdfast_meta (name, value) VALUES\n  " + _lines([f"('{n}', '{v}')" for n, v in settings.items()]),
        "INSERT INTO holdfast_operations (operation, version, defaults, declared_at) VALUES\n  " + _lines(operations),
    ]
