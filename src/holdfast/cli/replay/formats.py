"""The output formats of `replay`: a table for people, JSON or YAML for programs, for answers and for errors.

Invariants: with JSON or YAML, standard output contains exactly one value, the answer or the error; the format is
checked before a command does anything.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import click

from holdfast.cli import output
from holdfast.cli.app import explained
from holdfast.cli.declare import Group
from holdfast.cli.documents import yaml_text
from holdfast.core.errors import ExtraMissingError


class OutputFormat(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def answer(value: object, human: Callable[[], None], fmt: OutputFormat) -> None:
    if fmt is OutputFormat.YAML:
        sys.stdout.write(_yaml_value(value))
    else:
        output.answer(value, human, as_json=fmt is OutputFormat.JSON)


def require_writable(fmt: OutputFormat) -> None:
    """Raise ExtraMissingError if the format needs a package that is not installed."""
    if fmt is OutputFormat.YAML:
        yaml_text(None)


def format_of(arguments: Sequence[str]) -> OutputFormat:
    """Return the output format that a command line names, even if the rest of it is invalid."""
    words = list(arguments[: arguments.index("--") if "--" in arguments else None])
    if "--json" in words:
        return OutputFormat.JSON
    for i, word in enumerate(words):
        flag, given, value = word.partition("=")
        if flag == "--output":
            name = value if given else "".join(words[i + 1 : i + 2])
            return OutputFormat(name) if name in list(OutputFormat) else OutputFormat.TABLE
    return OutputFormat.TABLE


class AnsweringGroup(Group):
    """A group of commands that prints errors in the requested format."""

    _format = OutputFormat.TABLE

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        self._format = format_of(args)
        with self._errors_printed():
            return super().make_context(info_name, args, parent=parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with self._errors_printed():
            return super().invoke(ctx)

    @contextmanager
    def _errors_printed(self) -> Iterator[None]:
        try:
            yield
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:  # it is printed here, and the command ends
            if self._format is OutputFormat.TABLE:
                raise
            value, code = explained(error)
            _print_error(value, self._format)
            raise click.exceptions.Exit(code) from None


def _yaml_value(value: object) -> str:
    # Through JSON, so that both formats say the same: YAML cannot represent enums and the like.
    return yaml_text(json.loads(json.dumps(output.steps_pasteable(value))))


def _print_error(value: dict[str, object], fmt: OutputFormat) -> None:
    try:
        text = _yaml_value(value) if fmt is OutputFormat.YAML else None
    except ExtraMissingError:
        text = None  # JSON is YAML too
    if text is None:
        output.error(value, as_json=True)
    else:
        sys.stdout.write(text)
