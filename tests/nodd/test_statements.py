"""The application's statements: the same names and parameters in both dialects, and none that nobody uses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast
from holdfast.nodd.statements import statements
from holdfast.store.statements import pyformat

PARAMETER = re.compile(r"%\((\w+)\)s")


def parameters(dialect: str, name: str) -> set[str]:
    return {found for part in statements(dialect)[name] for found in PARAMETER.findall(pyformat(part))}


def test_both_dialects_have_the_same_statements() -> None:
    assert sorted(statements("sqlite")) == sorted(statements("postgres"))


@pytest.mark.parametrize("name", statements("sqlite"))
def test_a_statement_takes_the_same_parameters(name: str) -> None:
    assert parameters("sqlite", name) == parameters("postgres", name)


def test_every_statement_is_used() -> None:
    folder = Path(holdfast.__file__).parent
    code = "\n".join(
        path.read_text(encoding="utf-8") for part in ("nodd", "cli") for path in (folder / part).rglob("*.py")
    )
    assert [name for name in statements("sqlite") if f'"{name}"' not in code] == []
