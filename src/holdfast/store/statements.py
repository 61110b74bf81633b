"""Named SQL statements, read from `.sql` files: what both databases share stands once in `store/sql/`.

Invariants: a dialect's folder has only the statements that differ, under the same names in both (a test compares them);
no name stands in both places; values are always parameters, written `:name`; a block may hold several statements, which
run in order with the same parameters.
"""

import re
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

# How each database says what the shared statements write as {now}, {greatest}, {each} and {ordered}.
IDIOMS = {
    "sqlite": {"now": ":now", "greatest": "max", "each": "json_each", "ordered": "CROSS"},
    "postgres": {
        "now": "coalesce(:now, statement_timestamp())",
        "greatest": "greatest",
        "each": "json_array_elements_text",
        "ordered": "INNER",
    },
}

TRIGGERS = "triggers.sql"  # generated: see store.generate
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$\n?", re.MULTILINE)
_GENERATED = re.compile(r"^-- (?:function|trigger): (.+)$", re.MULTILINE)
_WORD = re.compile(r"\{\w+\}")
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
    return gathered(dialect, "holdfast.store.sql", f"holdfast.store.{dialect}")


def gathered(dialect: str, *packages: str) -> dict[str, tuple[str, ...]]:
    """Return the statements in the `.sql` files of packages, by their names; a name stands once in all of them."""
    words = {f"{{{name}}}": text for name, text in (COLUMNS | IDIOMS[dialect]).items()}
    found: dict[str, tuple[str, ...]] = {}
    for package in packages:
        for file in sorted(files(package).iterdir(), key=lambda each: each.name):
            if not file.name.endswith(".sql") or file.name == TRIGGERS:
                continue
            parts = _NAME.split(file.read_text(encoding="utf-8"))[1:]
            for name, body in zip(parts[::2], parts[1::2], strict=True):
                invariant(name not in found, f"two statements are called {name}")
                sql = _WORD.sub(lambda match: words[match[0]], _COMMENT.sub("", body))
                found[name] = tuple(part.strip() for part in re.split(r";\s*\n", sql) if part.strip())
    return found


@cache
def trigger_texts(dialect: str) -> dict[str, str]:
    """Return the generated statements that make a dialect's triggers and their functions, by name.

    `{epoch}`, and on PostgreSQL `{schema}`, are left for the caller to fill in.
    """
    parts = _GENERATED.split(files(f"holdfast.store.{dialect}").joinpath(TRIGGERS).read_text(encoding="utf-8"))[1:]
    return {name: text.strip().removesuffix(";") for name, text in zip(parts[::2], parts[1::2], strict=True)}


@cache
def pyformat(sql: str) -> str:
    """Return a statement with psycopg's placeholders in place of `:name`."""
    return _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%"))
