"""The help of each command has an example that the command accepts, and each act says how it is undone."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from holdfast.cli.app import app
from holdfast.cli.examples import EXAMPLES
from tests.cli.commands import holdfast
from tests.cli.test_docs_cli import EVERY, paths

LEAVES = [path for name, command in EVERY.items() for path in paths(command, name)]


def leaf(path: str) -> Any:
    found: Any = app
    for word in path.split():
        found = found.find(word)
    return found


def help_of(path: str) -> str:
    return holdfast(*path.split(), "--help").out


@pytest.mark.parametrize("path", LEAVES)
def test_every_help_has_an_example(path: str) -> None:
    assert f"Example: holdfast {path}" in help_of(path)


@pytest.mark.parametrize("path", EXAMPLES)
def test_the_command_accepts_its_example(path: str) -> None:
    words = shlex.split(EXAMPLES[path].line)
    assert words[: len(path.split())] == path.split()
    leaf(path).make_context(path, words[len(path.split()) :], resilient_parsing=False)


def test_examples_are_of_commands_that_exist() -> None:
    assert EXAMPLES.keys() <= set(LEAVES)


READS = {
    "machines", "jobs", "show", "explain", "queues", "workers", "metrics", "status", "health", "top", "doctor",
    "config show", "stats", "stalled", "check", "prove", "simulate", "batches list", "batches show", "limits list",
    "limits show", "queues history", "snapshot create", "snapshot diff", "snapshot verify", "audit verify",
    "audit head", "audit export", "schedules list", "schedules history", "console users list", "console tokens list",
    "grant sign", "grant list", "grant show", "grant approvers list", "procedure show", "procedure list",
    "registry list", "registry show", "registry verify", "registry dispatch", "registry rollback-check",
    "replay select", "replay dry-run", "replay inspect", "quarantine list", "quarantine show",
    "quarantine statistics", "quarantine history", "switch list", "nodd check", "nodd doctor", "nodd datasets",
    "nodd runs", "nodd records", "nodd ignored",
}  # fmt: skip


@pytest.mark.parametrize("path", [path for path in LEAVES if path not in READS])
def test_the_help_of_an_act_says_how_to_undo_it_or_that_it_is_final(path: str) -> None:
    undo = EXAMPLES[path].undo
    assert undo
    assert " ".join(undo.split()) in " ".join(help_of(path).split())
