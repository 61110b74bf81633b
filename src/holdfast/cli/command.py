"""The decorator of every command: it adds --db, --schema and --json, opens the ledger, and prints the answer.

A command is a function that takes what it works on and returns an `Answer`:

    @command(Location.open)
    def stalled(store: Store[Any]) -> Answer: ...

The decorator adds --db, --schema and --json after the function's own options, opens the ledger that was named, closes
it, and then prints the answer: its value as JSON, or its text for people.

Invariants: nothing is printed before the ledger is closed; with --json exactly one value is printed.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, TypeVar, overload

import click

from holdfast.cli import output
from holdfast.cli.declare import Group
from holdfast.cli.options import Db, Json, Schema, ledger_url
from holdfast.store import Store, connect, open_store
from holdfast.store.configuration import configuration

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.engine.ledger import Ledger

T = TypeVar("T")


class Answer(NamedTuple):
    """The answer of a command: its JSON value, its text for people (or a function that prints it), its exit code."""

    value: object
    text: str | Callable[[], None]
    exit_code: int = 0


class Location(NamedTuple):
    """The location of a ledger, from --db and --schema; nothing is opened yet."""

    db: str | None
    schema_given: str | None

    @property
    def url(self) -> str:
        """Return the URL, or raise BadUrlError if there is none."""
        return ledger_url(self.db, self.schema_given)

    @property
    def schema(self) -> str:
        return configuration(schema=self.schema_given).schema

    def open(self) -> Store[Any]:
        """Return the store of the ledger, after verifying its schema and its triggers."""
        return open_store(self.url, schema=self.schema)

    def connect(self) -> Store[Any]:
        """Return the store of the ledger without verifying it: for commands that report what differs."""
        return connect(self.url, schema=self.schema)

    def ledger(self) -> Ledger:
        """Return the ledger, which must exist."""
        from holdfast.engine.ledger import Ledger  # noqa: PLC0415 - see above

        return Ledger(self.url, schema=self.schema, create=False)

    def unopened(self) -> AbstractContextManager[Location]:
        """Return the location itself: for a command that checks its arguments before it opens the ledger."""
        return nullcontext(self)


@overload
def command() -> Callable[[Callable[..., Answer | None]], Callable[..., None]]: ...
@overload
def command(
    opens: Callable[[Location], AbstractContextManager[T]],
) -> Callable[[Callable[Concatenate[T, ...], Answer | None]], Callable[..., None]]: ...
def command(opens: Callable[[Location], AbstractContextManager[Any]] | None = None) -> Any:
    """Return a decorator that makes a command of a function; without `opens` it works on no ledger.

    The function receives what `opens` yields as its first argument. It may declare `as_json` itself. A function that
    returns None has already printed its answer.
    """

    def decorate(function: Callable[..., Answer | None]) -> Callable[..., None]:
        own = list(inspect.signature(function).parameters.values())[0 if opens is None else 1 :]
        wants_json = any(parameter.name == "as_json" for parameter in own)

        @wraps(function)
        def run(**given: Any) -> None:
            as_json = given["as_json"] if wants_json else given.pop("as_json")
            if opens is None:
                answer = function(**given)
            else:
                with opens(Location(given.pop("db"), given.pop("schema"))) as opened:
                    answer = function(opened, **given)
            if answer is not None:
                _print(answer, as_json=as_json)

        _take(run, _parameters(own, function, opens_ledger=opens is not None))
        return run

    return decorate


def group(summary: str, guide: str | None = None) -> Group:
    """Return a group of commands; `guide` is its page in docs/."""
    epilog = None if guide is None else f"Every command takes --json. Guide: docs/{guide}.md."
    return Group(help=summary, epilog=epilog)


def _print(answer: Answer, *, as_json: bool) -> None:
    text = answer.text
    output.answer(answer.value, (lambda: output.line(text)) if isinstance(text, str) else text, as_json=as_json)
    if answer.exit_code:
        raise click.exceptions.Exit(answer.exit_code)


def _parameters(
    own: list[inspect.Parameter], function: Callable[..., Any], *, opens_ledger: bool
) -> list[inspect.Parameter]:
    """Return the function's own options, followed by those of every command."""
    annotations = {parameter.name: parameter.annotation for parameter in own}
    hints = typing.get_type_hints(
        SimpleNamespace(__annotations__=annotations), inspect.unwrap(function).__globals__, include_extras=True
    )
    parameters = [_option(p.name, hints[p.name], p.default) for p in own if p.name != "as_json"]
    if opens_ledger:
        parameters += [_option("db", Db, None), _option("schema", Schema, None)]
    return [*parameters, _option("as_json", Json, default=False)]


def _option(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _take(run: Callable[..., None], parameters: list[inspect.Parameter]) -> None:
    """Set the parameters that become options."""
    del run.__wrapped__  # type: ignore[attr-defined]  # it has other parameters than the command
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
