"""Named SQL statements, read from `.sql` files; `store/sql/` has those that both databases share.

Invariants: the folder of a dialect has only the statements that differ, with the same names in both dialects (a test
compares them); a name is defined once for each dialect; values are always parameters, written `:name`; a block may have
several statements, which run in order with the same parameters.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import get_args

import msgspec

from holdfast.core.errors import invariant
from holdfast.core.records import Submitted
from holdfast.store.requests import Shared

STORE = Path(__file__).parent  # not importlib.resources: it takes a tenth of the start of a command
TRIGGERS = "triggers.sql"  # generated: see store.generate
GOVERNED = "governed trigger"  # only a governed ledger has it
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$\n?", re.MULTILINE)
_GENERATED = re.compile(r"^-- (function|trigger|governed trigger|view|digest of the tables): (.+)$", re.MULTILINE)
_WORD = re.compile(r"\{(\w+)\}")


# The placeholders such as {job_columns}: the fields of a record in their order, each with the alias of its table. Those
# of records that no job needs are in `store.columns`.
COLUMNS = {
    "call_columns": ("records:Submitted", "c"),
    "job_columns": ("records:Job", "j"),
    "execution_columns": ("records:Execution", "e"),
    "current_attempt": ("records:Execution", "j"),
}


# The fields of a job that are in its call; a statement that reads them joins holdfast_calls as `c`.
OF_CALL = {*Submitted.__struct_fields__, "payload"} - {"job_id"}
# The current attempt as an execution, from the row of its job.
CURRENT_ATTEMPT = {
    "exec_id": "j.job_id * 1000000 + j.attempts", "attempt": "j.attempts",
    "version": "CASE j.status WHEN 'LEASED' THEN 1 WHEN 'IN_PROGRESS' THEN 2 WHEN 'COMMITTED' THEN 3 ELSE 4 END",
    "lease_expires_at": "coalesce(j.lease_expires_at, j.updated_at)", "excused": "j.status IS NULL",
    "error_code": "NULL", "error_message": "NULL", "created_at": "j.last_attempt_at",
    "finished_at": "CASE WHEN j.status = 'DONE' THEN j.updated_at END",
}  # fmt: skip


def of_submissions(casts: Mapping[type, str]) -> dict[str, str]:
    """Return the placeholders of `insert_jobs` and `insert_job`; `casts` are for the values of one JSON array."""
    kinds = {name: next(iter(get_args(kind)), kind) for name, kind in Shared.__annotations__.items()}
    values = [f"(value ->> {n}){casts.get(kind, '')} AS {name}" for n, (name, kind) in enumerate(kinds.items())]
    of_call = [name for name in kinds if name in OF_CALL]
    return {
        "shared_values": ", ".join(values),
        "set_columns": ", ".join(of_call),
        "set_parameters": ", ".join(f":{name}" for name in of_call),
    }


@cache
def columns(name: str) -> str:
    """Return the columns for a placeholder; the record is imported on first use."""
    home, alias = COLUMNS[name] if name in COLUMNS else import_module("holdfast.store.columns").MORE_COLUMNS[name]
    module, record = home.split(":")
    fields = getattr(import_module(f"holdfast.core.{module}"), record).__struct_fields__
    if name == "current_attempt":
        return ", ".join(CURRENT_ATTEMPT.get(field, f"j.{field}") for field in fields)
    return ", ".join(f"{'c' if record == 'Job' and field in OF_CALL else alias}.{field}" for field in fields)


class Statements(Mapping[str, tuple[str, ...]]):
    """Statements by name; their placeholders, columns and the idioms of a database, are replaced on first use."""

    def __init__(self, dialect: str, texts: Mapping[str, str]) -> None:
        idioms = import_module(f"holdfast.store.{dialect}.idioms")
        self._idioms: dict[str, str] = {**idioms.IDIOMS, **of_submissions(idioms.CASTS)}
        self._texts = texts
        self._filled: dict[str, tuple[str, ...]] = {}

    def __getitem__(self, name: str) -> tuple[str, ...]:
        if name not in self._filled:
            text = _COMMENT.sub("", self._texts[name])
            sql = _WORD.sub(lambda match: self._idioms.get(match[1]) or columns(match[1]), text)
            self._filled[name] = tuple(part.strip() for part in re.split(r";\s*\n", sql) if part.strip())
        return self._filled[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def encoded(rows: object) -> str:
    """Return rows as JSON text, the form of the parameter `rows`."""
    return msgspec.json.encode(rows).decode()


@cache
def statements(dialect: str) -> Statements:
    return gathered(dialect, STORE / "sql", STORE / dialect)


def gathered(dialect: str, *folders: Path) -> Statements:
    """Return the statements in the `.sql` files of folders, by name; raise BrokenError for a duplicate name."""
    found: dict[str, str] = {}
    for folder in folders:
        for file in sorted(folder.glob("*.sql")):
            if file.name == TRIGGERS:
                continue
            parts = _NAME.split(file.read_text(encoding="utf-8"))[1:]
            for name, body in zip(parts[::2], parts[1::2], strict=True):
                invariant(name not in found, f"two statements are called {name}")
                found[name] = body
    return Statements(dialect, found)


@cache
def generated(dialect: str, kind: str) -> dict[str, str]:
    """Return the generated statements that create the triggers, functions or views of a dialect, by name.

    The caller replaces `{epoch}`, and on PostgreSQL `{schema}`.
    """
    parts = _GENERATED.split((STORE / dialect / TRIGGERS).read_text(encoding="utf-8"))[1:]
    found = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return {name: text.strip().removesuffix(";") for of_kind, name, text in found if of_kind == kind}
