"""Named SQL statements, read from the `.sql` files beside each dialect.

Invariants: both dialects have the same files and the same names (a test compares them); values are always parameters,
written `:name`; a block may hold several statements, which run in order with the same parameters.
"""

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import msgspec

from holdfast.core.errors import invariant
from holdfast.core.records import (
    Approver,
    Archive,
    Collection,
    Evidence,
    Execution,
    Grant,
    Job,
    JournalRow,
    NamedLease,
    PerformedStep,
    ProcedureRun,
    RegistryValue,
    Seal,
    Switch,
)

FILES = (
    "jobs.sql",
    "executions.sql",
    "ledger.sql",
    "workers.sql",
    "history.sql",
    "seals.sql",
    "checks.sql",
    "snapshot.sql",
    "retention.sql",
    "governance.sql",
    "registry.sql",
    "supersession.sql",
    "replaying.sql",
    "quarantine.sql",
)

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$\n?", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)\b")


def _columns(record: type[msgspec.Struct], alias: str) -> str:
    prefix = f"{alias}." if alias else ""
    return ", ".join(prefix + field for field in record.__struct_fields__)


COLUMNS = {
    "job_columns": _columns(Job, "j"),
    "job_columns_bare": _columns(Job, ""),
    "execution_columns": _columns(Execution, "e"),
    "grant_columns": _columns(Grant, "g"),
    "journal_columns": _columns(JournalRow, "g"),
    "seal_columns": _columns(Seal, "s"),
    "archive_columns": _columns(Archive, "a"),
    "lease_columns": _columns(NamedLease, "l"),
    "run_columns": _columns(ProcedureRun, "p"),
    "step_columns": _columns(PerformedStep, "t"),
    "switch_columns": _columns(Switch, "w"),
    "approver_columns": _columns(Approver, "a"),
    "evidence_columns": _columns(Evidence, "v"),
    "collection_columns": _columns(Collection, "c"),
    "value_columns": _columns(RegistryValue, "v"),
}


def encoded(rows: object) -> str:
    """Return rows as the JSON text that the statements take."""
    return msgspec.json.encode(rows).decode()


@cache
def statements(dialect: str) -> dict[str, tuple[str, ...]]:
    """Return every statement of a dialect by its name, the columns of the records filled in."""
    return gathered(f"holdfast.store.{dialect}", FILES)


def gathered(package: str, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the statements in files of a package, by their names."""
    found: dict[str, tuple[str, ...]] = {}
    for file in names:
        text = files(package).joinpath(file).read_text(encoding="utf-8")
        parts = _NAME.split(text)[1:]
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            invariant(name not in found, f"two statements are called {name}")
            sql = _COMMENT.sub("", body)
            for placeholder, columns in COLUMNS.items():
                sql = sql.replace("{" + placeholder + "}", columns)
            found[name] = tuple(part.strip() for part in re.split(r";\s*\n", sql) if part.strip())
    return found


@cache
def pyformat(sql: str) -> str:
    """Return a statement with psycopg's placeholders in place of `:name`."""
    return _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%"))
