"""The application's statements: the same names and parameters in both dialects, shared where they are the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast
from holdfast.nodd.statements import FOLDER, statements
from holdfast.store.postgres.idioms import pyformat
from holdfast.store.statements import gathered

DIALECTS = ("sqlite", "postgres")
PARAMETER = re.compile(r"%\((\w+)\)s")


def parameters(dialect: str, name: str) -> set[str]:
    return {found for part in statements(dialect)[name] for found in PARAMETER.findall(pyformat(part))}


def sql_files(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("*.sql")}


def test_both_dialects_have_the_same_statements() -> None:
    assert list(statements("sqlite")) == list(statements("postgres"))


def test_both_dialects_have_the_same_files() -> None:
    assert sql_files(FOLDER / "sqlite") == sql_files(FOLDER / "postgres")


def test_a_statement_that_is_the_same_in_both_dialects_is_shared() -> None:
    sqlite, postgres = (gathered(dialect, FOLDER / dialect) for dialect in DIALECTS)
    assert [name for name in sqlite if sqlite[name] == postgres[name]] == []


@pytest.mark.parametrize("name", statements("sqlite"))
def test_a_statement_takes_the_same_parameters(name: str) -> None:
    assert parameters("sqlite", name) == parameters("postgres", name)


def test_every_statement_is_used() -> None:
    folder = Path(holdfast.__file__).parent
    code = "\n".join(
        path.read_text(encoding="utf-8") for part in ("nodd", "cli") for path in (folder / part).rglob("*.py")
    )
    assert [name for name in statements("sqlite") if f'"{name}"' not in code] == []
