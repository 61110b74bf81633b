"""A laid out condition says the same, with one condition a line."""

from __future__ import annotations

import re

from holdfast.store.layout import WIDTH, laid_out
from holdfast.store.postgres import triggers as postgres
from holdfast.store.postgres.functions import functions
from holdfast.store.sqlite import triggers as sqlite

LONG = "column_with_a_long_name_{} IS DISTINCT FROM another_column_with_a_long_name"


def test_a_condition_that_fits_stays_as_it_is() -> None:
    assert laid_out("a = 1 AND (b OR c)", 4) == "a = 1 AND (b OR c)"


def test_each_condition_of_a_long_one_has_its_line() -> None:
    first, second, third = (LONG.format(n) for n in range(3))
    assert laid_out(f"({first} OR {second}) AND {third}", 2).splitlines() == [
        "(",
        f"    {first}",
        f"    OR {second}",
        "  )",
        f"  AND {third}",
    ]


def test_the_and_of_between_and_the_words_of_a_literal_join_nothing() -> None:
    word = "'sugar AND spice OR (nice'"
    span = f"{LONG} BETWEEN 1 AND 2"
    assert laid_out(f"{span} AND a = {word}", 0).splitlines() == [span, f"AND a = {word}"]


def test_only_white_space_changes() -> None:
    condition = f"NOT EXISTS (SELECT 1 FROM t WHERE {LONG} AND (x BETWEEN 1 AND 2 OR {LONG})) OR ({LONG})"
    assert re.sub(r"\s", "", laid_out(condition, 6)) == re.sub(r"\s", "", condition)


def test_no_line_of_a_trigger_or_view_is_long() -> None:
    """PostgreSQL prints the text of a trigger in one line, so that one is compared in one line."""
    schema = '"holdfast".'
    texts = [
        *sqlite.triggers("1").values(),
        *sqlite.views().values(),
        *functions(schema, "1").values(),
        *postgres.views(schema).values(),
    ]
    assert max(len(line) for text in texts for line in text.splitlines()) <= WIDTH + 10
