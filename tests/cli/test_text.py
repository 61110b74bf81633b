"""Tables, fields and colours: how they fold in a narrow terminal, and that the plain text is the same."""

from __future__ import annotations

import io
import re

import pytest

from holdfast.cli import output
from holdfast.cli.text import Column, Text, field_lines, table_lines

COLUMNS = (Column("ID", right=True), Column("NOTE", folds=True), Column("KEY"), Column("EMPTY"))
NOTE = "the header of the object says one thing and its key another"


def plain(text: str) -> Text:
    return Text((text, ""))


def drawn(width: int | None, *rows: tuple[str, ...]) -> list[str]:
    lines = table_lines(COLUMNS, [[plain(cell) for cell in row] for row in rows], width, "-")
    return [line.plain for line in lines]


def test_a_table_has_a_head_a_rule_and_columns_that_have_a_value() -> None:
    assert drawn(None, ("7", "short", "k", ""), ("1234", "", "", "")) == [
        "  ID   NOTE    KEY",
        "------------------",
        "   7   short   k",
        "1234",
    ]


def test_in_a_narrow_terminal_only_a_folding_column_gets_narrower() -> None:
    lines = drawn(50, ("7", NOTE, "order-99213/charge", ""))
    assert all(len(line) <= 50 for line in lines)
    assert " ".join(re.findall(r"(?<=   )[a-z][a-z ]*?(?=   |$)", "\n".join(lines[2:]), re.MULTILINE)) == NOTE
    assert sum("order-99213/charge" in line for line in lines) == 1
    # The narrowest that it gets; then the terminal wraps.
    assert drawn(10, ("7", NOTE, "k", "")) == drawn(20, ("7", NOTE, "k", ""))


@pytest.mark.parametrize("width", [16, 17, 40, 79])
def test_folding_loses_no_word_and_fits(width: int) -> None:
    text = f"{NOTE} {'x' * 100} 日本語の長い文字列がここにあります {NOTE}"
    lines = plain(text).lines(width)
    assert "".join(line.plain for line in lines).replace(" ", "") == text.replace(" ", "")
    assert max(len(line.plain) for line in lines) <= width
    assert plain("日本語日本語日本").lines(8)[0].plain == "日本語日"  # each takes two cells


def test_lines_of_a_cell_stay_below_each_other() -> None:
    assert drawn(None, ("1", "one\n\ntwo", "k", "")) == [
        "ID   NOTE   KEY",
        "---------------",
        " 1   one    k",
        "",
        "     two",
    ]
    assert [line.plain for line in field_lines([("result", plain("a\nb")), ("x", plain(""))], None)] == [
        "result  a",
        "        b",
        "x",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("colours, variable", [(True, ""), (False, "1")])
def test_colours_are_only_added(monkeypatch: pytest.MonkeyPatch, colours: bool, variable: str) -> None:
    terminal = Terminal()
    monkeypatch.setenv("NO_COLOR", variable)
    monkeypatch.setenv("TERM", "xterm")
    output.show(output.styled("job 7 ", "bold") + output.state("failed") + output.styled(" \x1b[2J"), terminal)
    shown = terminal.getvalue()
    assert shown == ("\x1b[1mjob 7 \x1b[0m\x1b[31mfailed\x1b[0m \\x1b[2J\n" if colours else "job 7 failed \\x1b[2J\n")
