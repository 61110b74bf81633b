"""Every command that a text of the source names exists; every command of a next step parses, and is run if it can be.

The commands are collected from the syntax trees of the whole source, so that a new raise site is tested by being there:
a command with values in it must be listed in SITUATIONS, or have a test in test_refused_states.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from holdfast.cli.app import app
from tests.cli.commands import holdfast
from tests.cli.test_next_steps import worked
from tests.cli.test_refused_states import DRAINED, LISTED, PREPARED, TYPED

__all__ = ["worked"]

SOURCE = Path(__file__).parents[2] / "src/holdfast"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# What to type for a command with values in it, in the ledger of `worked`, in this order.
SITUATIONS = {
    "holdfast audit keygen PATH": "holdfast audit keygen bob",
    "holdfast explain ID": "holdfast explain 1",
    "holdfast explain {each.job_id}": "holdfast explain 6",
    "holdfast explain {job_id}": "holdfast explain 2",
    "holdfast grant request {what} {options} --rollback-plan TEXT --reason TEXT": (
        "holdfast grant request erase 3 --executor ann --rollback-plan TEXT --reason TEXT"
    ),
    "holdfast grant show {number}": "holdfast grant show 1",
    "holdfast grant revoke {grant.grant_id} --reason TEXT": "holdfast grant revoke 1 --reason TEXT",
    "holdfast jobs --queue {queue} --state pending": "holdfast jobs --queue later --state pending",
    "holdfast resume --queue {QUEUE}": "holdfast resume --queue default",
    "holdfast show ID": "holdfast show 1",
    "holdfast show {job.job_id}": "holdfast show 3",
    "holdfast show {job_id}": "holdfast show 4",
    "holdfast snapshot create FILE": "holdfast snapshot create work.snapshot",
    "holdfast init --env {to} --db another.db": "holdfast init --env stage --db another.db",
    "holdfast nodd subscribe DATASET --account NUMBER": "holdfast nodd subscribe gfs --account 123456789012",
}
ELSEWHERE = {DRAINED, LISTED, *PREPARED, *TYPED}


class Named(NamedTuple):
    """A command in a text, with `{expression}` for what is put in, and where it is."""

    command: str
    where: str
    is_step: bool  # it is in a next step: a reader pastes it


def texts(tree: ast.AST) -> Iterator[tuple[ast.AST, str, bool]]:
    """Yield the texts of a module that are not docstrings, and whether each is a next step."""
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr)
    }
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, is_step = pending.pop()
        if isinstance(node, ast.keyword):
            is_step = is_step or node.arg == "next_step"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            is_step = is_step or any(getattr(target, "id", None) == "next_step" for target in targets)
        if isinstance(node, ast.JoinedStr):
            yield (
                node,
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
                    for part in node.values
                    if isinstance(part, ast.Constant | ast.FormattedValue)
                ),
                is_step,
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield node, node.value, is_step
        else:
            pending += [(child, is_step) for child in ast.iter_child_nodes(node)]


@cache
def named() -> tuple[Named, ...]:
    """Return every command that the source names in backticks."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for node, text, is_step in texts(ast.parse(source)) if "`holdfast " in source else ():
            where = f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}"
            found += [Named(command, where, is_step) for command in re.findall(r"`(holdfast [^`]+)`", text)]
    return tuple(found)


def steps() -> set[str]:
    """Return the commands of next steps."""
    return {one.command for one in named() if one.is_step}


def parsed(words: list[str]) -> None:
    """Parse a command line as the command does, without running it; raise click.ClickException."""
    command: click.Command = app
    context = click.Context(app, info_name="holdfast")
    while isinstance(command, click.Group):
        if not words:
            return
        name, words = words[0], words[1:]
        inner = command.get_command(context, name)
        if inner is None:
            raise click.UsageError(f"there is no command {name}")
        command = inner
    if "--help" in words:
        words.remove("--help")
        known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known, words
        return
    command.make_context(command.name, words, parent=context)


def test_the_source_names_commands() -> None:
    assert len(named()) > 100
    assert len(steps()) > 40


VALUES = {
    "{to}": ["stage"],
    "{what}": ["erase", "1"],
    "{options}": ["--executor", "ann"],
}  # the others are ids or names


def refusal(one: Named) -> str | None:
    """Return why a command does not parse; None if it does. One that is only mentioned needs no arguments."""
    words = shlex.split(one.command.split(" > ")[0])[1:]
    if one.is_step:
        words = [value for word in words for value in VALUES.get(word, ["1" if word.startswith("{") else word])]
    else:
        while words and (words[-1].startswith(("{", "-", "…")) or words[-1].isupper()):
            words.pop()
        words.append("--help")
    try:
        parsed(words)
    except (click.ClickException, AssertionError) as error:
        return str(error)
    return None


def test_each_command_that_a_text_names_exists() -> None:
    assert {one: why for one in named() if one.command != "holdfast {instead}" and (why := refusal(one))} == {}


@pytest.mark.req("G-25")
def test_each_command_with_values_has_a_situation_or_a_reason() -> None:
    open_ended = {step for step in steps() if re.search(r"[{…]|\b[A-Z]{2,}\b", step)}
    assert open_ended - SITUATIONS.keys() - ELSEWHERE == set()
    assert (SITUATIONS.keys() | ELSEWHERE) - steps() == set()


@pytest.mark.req("G-25")
@pytest.mark.usefixtures("worked")
@pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)
def test_each_command_of_a_next_step_succeeds_when_it_is_pasted() -> None:
    refused = {}
    plain = {step for step in steps() if not step.endswith("--help")}
    for step in (*sorted(plain - SITUATIONS.keys() - ELSEWHERE), *SITUATIONS):
        done = holdfast(*shlex.split(SITUATIONS.get(step, step))[1:])
        if done.code != 0:
            refused[step] = done
    assert refused == {}
