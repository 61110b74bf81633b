"""The forms in which `replay` answers: a table for people, JSON or YAML for programs; its errors too.

Invariants: with JSON or YAML, standard output holds exactly one value, the answer or the error; the form is known
before anything is done, so nothing is done whose answer could not be told.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import typer
from typer.core import TyperGroup

from holdfast.cli import output
from holdfast.cli.app import explained
from holdfast.cli.documents import yaml_text
from holdfast.core.errors import ExtraMissingError


class Form(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def answer(value: object, human: Callable[[], None], form: Form) -> None:
    """Print an answer in a form."""
    if form is Form.YAML:
        sys.stdout.write(_yaml_value(value))
    else:
        output.answer(value, human, as_json=form is Form.JSON)


def require_writable(form: Form) -> None:
    """Raise ExtraMissingError if answers cannot be written in a form."""
    if form is Form.YAML:
        yaml_text(None)


def form_of(arguments: Sequence[str]) -> Form:
    """Return the form that a command line asks for, even one that cannot be understood."""
    told = list(arguments[: arguments.index("--") if "--" in arguments else None])
    if "--json" in told:
        return Form.JSON
    for i, word in enumerate(told):
        flag, given, value = word.partition("=")
        if flag == "--output":
            asked = value if given else "".join(told[i + 1 : i + 2])
            return Form(asked) if asked in list(Form) else Form.TABLE
    return Form.TABLE


class AnsweringGroup(TyperGroup):
    """A group of commands whose errors come in the form that was asked for."""

    _form = Form.TABLE

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        self._form = form_of(args)
        with self._told():
            return super().make_context(info_name, args, parent=parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with self._told():
            return super().invoke(ctx)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:  # what is printed here ends the command
            if self._form is Form.TABLE:
                raise
            value, code = explained(error)
            _print_error(value, self._form)
            raise typer.Exit(code) from None


def _yaml_value(value: object) -> str:
    # Through JSON, so that the two say the same: YAML has no words for enums and the like.
    return yaml_text(json.loads(json.dumps(output.steps_pasteable(value))))


def _print_error(value: dict[str, object], form: Form) -> None:
    try:
        text = _yaml_value(value) if form is Form.YAML else None
    except ExtraMissingError:
        text = None  # JSON is YAML too
    if text is None:
        output.error(value, as_json=True)
    else:
        sys.stdout.write(text)
