"""The two dialects: the same files, the same statements by name, the same parameters; values are never text."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

import holdfast.store
from holdfast.store import create_store
from holdfast.store.columns import MORE_COLUMNS
from holdfast.store.migrations import migrations
from holdfast.store.postgres.idioms import pyformat
from holdfast.store.statements import COLUMNS, of_submissions, statements

DIALECTS = ("sqlite", "postgres")
PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)

# PostgreSQL measures leases and makes tokens by its own clock; SQLite gets both. Only PostgreSQL has a sequence of ids,
# and decides in a statement whether its transaction is synced.
OWN = {
    "claim_jobs": {
        "sqlite": {"expires", "started", "token"},
        "postgres": {"lease_s", "begins", "payload_max", "durable"},
    },
    "claim_these": {"sqlite": {"expires", "started", "token"}, "postgres": {"lease_s", "begins", "payload_max"}},
    "insert_jobs": {"sqlite": {"after", "rows"}, "postgres": {"payloads", "between", "digests", "keys", "which"}},
    "complete_jobs": {"sqlite": {"rows"}, "postgres": {"ids", "tokens", "results"}},
}


def texts(folder: str) -> dict[str, str]:
    """Return the files of a folder of the store that hold named statements."""
    entries = files(f"holdfast.store.{folder}").iterdir()
    found = {entry.name: entry.read_text(encoding="utf-8") for entry in entries if entry.name.endswith(".sql")}
    return {name: text for name, text in found.items() if NAME.search(text)}


def parameters(dialect: str, name: str) -> set[str]:
    found = {match for part in statements(dialect)[name] for match in PARAMETER.findall(part)}
    own: set[str] = OWN[name][dialect] if name in OWN else set()
    assert own <= found
    return found - own


def test_both_dialects_have_the_same_files() -> None:
    assert texts("sqlite").keys() == texts("postgres").keys()


def test_both_dialects_have_the_same_migrations() -> None:
    numbered = [[(migration.number, migration.name) for migration in migrations(dialect)] for dialect in DIALECTS]
    assert numbered[0] == numbered[1]
    assert [number for number, _ in numbered[0]] == list(range(1, len(numbered[0]) + 1))


@pytest.mark.parametrize("file", texts("sqlite"))
def test_a_file_has_the_same_statements_in_the_same_order(file: str) -> None:
    sqlite, postgres = (NAME.findall(texts(dialect)[file]) for dialect in DIALECTS)
    assert sqlite == postgres
    assert len(sqlite) == len(set(sqlite)) > 0


def test_a_statement_equal_in_both_dialects_is_shared() -> None:
    twice = [
        name
        for file in texts("sqlite")
        for name in NAME.findall(texts("sqlite")[file])
        if statements("sqlite")[name] == statements("postgres")[name]
    ]
    assert twice == []


@pytest.mark.parametrize("name", statements("sqlite"))
def test_a_statement_takes_the_same_parameters(name: str) -> None:
    sqlite, postgres = (parameters(dialect, name) for dialect in DIALECTS)
    # SQLite always gets the time as a parameter; PostgreSQL uses its own clock, or a parameter in tests.
    assert sqlite == postgres


@pytest.mark.parametrize("dialect", DIALECTS)
def test_values_are_parameters_and_no_placeholder_is_left(dialect: str) -> None:
    for name, parts in statements(dialect).items():
        for part in parts:
            assert "%" not in part, name
            assert not re.search(r"[{}]", part), name
    # A dialect's own statement needs no idiom, except for the call of a job: it is written in one place.
    known = COLUMNS.keys() | MORE_COLUMNS.keys() | of_submissions({}).keys() | {"with_call"}
    for text in texts(dialect).values():
        assert set(re.findall(r"\{(\w+)\}", text)) <= known


def test_every_statement_is_used() -> None:
    folder = Path(holdfast.store.__file__).parent.parent  # the rules of `check` name statements too
    code = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    unused = [name for name in statements("sqlite") if f'"{name}"' not in code]
    assert unused == []


@pytest.mark.parametrize(
    "written, sent",
    [
        ("SELECT :a, :b_c, :sha256", "SELECT %(a)s, %(b_c)s, %(sha256)s"),
        ("SELECT x::text, ':a'::json ->> 'k'", "SELECT x::text, '%(a)s'::json ->> 'k'"),
        ("WHERE a % 2 = :n", "WHERE a %% 2 = %(n)s"),
        ("coalesce(:now, now())", "coalesce(%(now)s, now())"),
    ],
)
def test_placeholders_become_psycopgs(written: str, sent: str) -> None:
    assert pyformat(written) == sent


def test_running_jobs_are_read_by_their_leases_on_sqlite(tmp_path: Path) -> None:
    """Of all jobs, few run: a walk by id would read those that have ended too."""
    [sql] = statements("sqlite")["list_running_jobs"]
    params = {"state": "running", "operation": None, "queue": None, "client": None, "before": None, "n": 10}
    with create_store(str(tmp_path / "ledger.db")) as store, store.transaction() as transaction:
        plan = [row[3] for row in transaction.connection.execute(f"EXPLAIN QUERY PLAN {sql}", params)]
    assert plan[0] == "SEARCH j USING INDEX holdfast_jobs_leased (lease_expires_at>?)"
