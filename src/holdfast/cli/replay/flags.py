"""The flags of replay, each declared once, and the selection that flags and a file make together.

A flag fills in what the file leaves open; one that says something else than the file is refused. So a file means what
it says, whoever types what beside it.

Invariants: flags and files become the same document and pass the same checks; a global flag may stand before or after
the name of the command, but not with two values; a flag wins over a variable of the environment.
"""

import inspect
import os
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import msgspec
import typer

from holdfast.cli.documents import Tree, invalid, load_tree
from holdfast.cli.options import Schema, db_named
from holdfast.cli.replay.forms import Form
from holdfast.cli.replay.spec_files import selection_of
from holdfast.core.errors import InputError, SpecInvalidError
from holdfast.core.selection import API_VERSION, COUNT_MAX, KIND, ReplayMode, ReplayReason, Selection
from holdfast.engine.events import Bus
from holdfast.store import Store

GLOBAL = "For every command"
SELECTING = "Which jobs"
ACTING = "Who and why"
UNNAMED = "command-line"  # the name of a selection that was made of flags


class Level(StrEnum):
    """What is logged to standard error."""

    ERROR = "error"
    WARN = "warn"
    INFO = "info"
    DEBUG = "debug"


def _flag(name: str, help_text: str, *, metavar: str = "TEXT", panel: str = SELECTING, **more: Any) -> Any:
    return typer.Option(*name.split(), metavar=metavar, help=help_text, rich_help_panel=panel, **more)


def _number(name: str, help_text: str, *, least: int = 1, panel: str = SELECTING) -> Any:
    return typer.Option(name, metavar="N", min=least, max=COUNT_MAX, help=help_text, rich_help_panel=panel)


Mode = Annotated[
    ReplayMode | None, typer.Option("--mode", help="What to do with them (failed-only).", rich_help_panel="How")
]


# ---------------------------------------------------------------------------------------------------------------------
# The flags


@dataclass(frozen=True, kw_only=True)
class Common:
    """The global flags, as `holdfast replay` has them."""

    program: ClassVar[str] = "holdfast replay"
    url_flag: ClassVar[str] = "--db"
    url_variable: ClassVar[str] = "HOLDFAST_URL"
    env_variable: ClassVar[str | None] = None
    reason_needed: ClassVar[bool] = True
    client: ClassVar[str | None] = None  # whose jobs are records, and are known by their keys
    records_step: ClassVar[str | None] = None  # how to find a record that is there
    record_fields: ClassVar[tuple[str, ...]] = ()  # what a value of a record has beside the fields of its job

    db: Annotated[
        str | None, _flag("--db", "The ledger; else HOLDFAST_URL.", metavar="URL", panel=GLOBAL, callback=db_named)
    ] = None
    schema: Schema = None
    env: Annotated[
        str | None, _flag("--env", "dev, stage or prod; else what the ledger is.", metavar="NAME", panel=GLOBAL)
    ] = None
    config: Annotated[Path | None, _flag("--config", "An overlay that sets limits.", metavar="FILE", panel=GLOBAL)] = (
        None
    )
    selection_file: Annotated[
        Path | None, _flag("--selection-file", "A spec: YAML or JSON.", metavar="FILE", panel=GLOBAL)
    ] = None
    output: Annotated[Form | None, typer.Option("--output", help="How to answer.", rich_help_panel=GLOBAL)] = None
    log_level: Annotated[
        Level | None, typer.Option("--log-level", help="What to log (warn).", rich_help_panel=GLOBAL)
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json.", rich_help_panel=GLOBAL)] = False

    def within(self, outer: object) -> Self:
        """Return these flags with those that stood before the command's name."""
        given: dict[str, Any] = {}
        for field in fields(self):
            inner, before = getattr(self, field.name), getattr(outer, field.name, field.default)
            if inner != field.default and before not in (field.default, inner):
                raise InputError(f"--{field.name.replace('_', '-')} was given twice, with two values")
            given[field.name] = inner if inner != field.default else before
        return type(self)(**given)

    @property
    def form(self) -> Form:
        """Return how to answer."""
        if self.as_json and self.output not in (None, Form.JSON):
            raise InputError(f"--json and --output {self.output} ask for two forms", next_step="Give one of them.")
        return Form.JSON if self.as_json else self.output or Form.TABLE

    @property
    def url(self) -> str | None:
        """Return where the ledger is."""
        return self.db or os.environ.get(self.url_variable)

    @property
    def environment(self) -> str | None:
        """Return which environment is meant; None if nobody said."""
        return self.env or (os.environ.get(self.env_variable) if self.env_variable else None)

    def require_endpoints(self, env: str | None) -> None:
        """Raise if something else that was named is not of an environment."""

    @contextmanager
    def telling(self, store: Store[Any]) -> Iterator[Bus | None]:  # noqa: ARG002 - of one that tells nobody
        """Yield the bus that what is done to a ledger is told on; None if nobody listens."""
        yield None


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The flags that select jobs."""

    dataset: Annotated[str | None, _flag("--dataset", "A dataset: the queue of its jobs.", metavar="NAME")] = None
    dataset_in: Annotated[str | None, _flag("--dataset-in", "Several, with commas.", metavar="NAMES")] = None
    operation: Annotated[str | None, _flag("--operation", "Only jobs of this operation.", metavar="NAME")] = None
    status: Annotated[str | None, _flag("--status", "A state, or several with commas (failed).")] = None
    error_code: Annotated[str | None, _flag("--error-code", "Only jobs that ended with it.", metavar="CODE")] = None
    error_code_in: Annotated[str | None, _flag("--error-code-in", "Several, with commas.", metavar="CODES")] = None
    event_time_start: Annotated[str | None, _flag("--event-time-start", "From then on.", metavar="TIME")] = None
    event_time_end: Annotated[str | None, _flag("--event-time-end", "Before then.", metavar="TIME")] = None
    created_after: Annotated[str | None, _flag("--created-after", "From then on.", metavar="TIME")] = None
    created_before: Annotated[str | None, _flag("--created-before", "Before then.", metavar="TIME")] = None
    attempts_max: Annotated[int | None, _number("--attempts-max", "No more attempts than these.", least=0)] = None
    limit: Annotated[int | None, _number("--limit", "How many jobs at most.")] = None


@dataclass(frozen=True, kw_only=True)
class Paced:
    """The flags of how it is done."""

    batch_size: Annotated[int | None, _number("--batch-size", "Jobs in a batch.", panel="How")] = None
    max_batches: Annotated[int | None, _number("--max-batches", "How many batches at most.", panel="How")] = None
    mode: Mode = None


@dataclass(frozen=True, kw_only=True)
class Acting:
    """The flags of who does it, why, and by whose leave."""

    operator: Annotated[
        str | None, _flag("--operator", "Who replays; else the user.", metavar="NAME", panel=ACTING)
    ] = None
    reason: Annotated[str | None, _flag("--reason", "Why: it stays on record.", panel=ACTING)] = None
    replay_reason: Annotated[
        ReplayReason | None, typer.Option("--replay-reason", help="Why, in one word.", rich_help_panel=ACTING)
    ] = None
    grant: Annotated[int | None, _number("--grant", "The grant that permits it.", panel=ACTING)] = None
    confirm: Annotated[bool, typer.Option("--confirm", help="Do it without asking.", rich_help_panel=ACTING)] = False
    stop_after: Annotated[int | None, _number("--stop-after", "Stop after so many batches.", panel="How")] = None


def expanded(function: Callable[..., None], **kinds: type) -> Callable[..., None]:
    """Return a command that has the fields of each dataclass `function` takes as flags of its own."""
    hints = typing.get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind = kinds.get(name, hints[name])
        if is_dataclass(kind):
            groups[name] = kind
            inner = typing.get_type_hints(kind, include_extras=True)
            parameters += [_parameter(field.name, inner[field.name], field.default) for field in fields(kind)]
        else:
            parameters.append(_parameter(name, kind, parameter.default))

    @wraps(function)
    def command(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)}) for name, kind in groups.items()
        }
        function(**given, **made)

    del command.__wrapped__  # its parameters are not those of the command
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


# ---------------------------------------------------------------------------------------------------------------------
# The selection that they make


class Said(NamedTuple):
    """What a flag says: the field of a spec that it stands for, and its value."""

    flag: str
    path: str
    value: Any


def said(chosen: Chosen, paced: Paced | None = None) -> list[Said]:
    """Return what the flags say, as fields of a spec."""
    return [told for told in _said(chosen, paced or Paced()) if told.value not in (None, [])]


def _said(chosen: Chosen, paced: Paced) -> Iterator[Said]:
    yield Said("--dataset", "spec.filters.datasets", _words(chosen.dataset, chosen.dataset_in))
    yield Said("--operation", "spec.filters.operations", _words(chosen.operation))
    yield Said("--status", "spec.filters.status", _words(None, chosen.status))
    yield Said("--error-code", "spec.filters.error_codes", _words(chosen.error_code, chosen.error_code_in))
    yield Said("--event-time-start", "spec.filters.event_time.start", chosen.event_time_start)
    yield Said("--event-time-end", "spec.filters.event_time.end", chosen.event_time_end)
    yield Said("--created-after", "spec.filters.created_at.start", chosen.created_after)
    yield Said("--created-before", "spec.filters.created_at.end", chosen.created_before)
    yield Said("--attempts-max", "spec.filters.attempts.max", chosen.attempts_max)
    yield Said("--limit", "spec.limits.max_records", chosen.limit)
    yield Said("--batch-size", "spec.limits.batch_size", paced.batch_size)
    yield Said("--max-batches", "spec.limits.max_batches", paced.max_batches)
    yield Said("--mode", "spec.mode", None if paced.mode is None else str(paced.mode))
    if paced.mode is ReplayMode.REPAIR_AND_REPLACE:
        # Typing the mode is saying so in so many words; the grant is asked for all the same.
        yield Said("--mode", "spec.options.allow_repair_and_replace", True)


def _words(one: str | None, several: str | None = None) -> list[str]:
    return ([] if one is None else [one]) + ([] if several is None else [word.strip() for word in several.split(",")])


class Asked(NamedTuple):
    """A document that selects jobs, and where it came from."""

    tree: Tree
    file: Path | None
    flags: dict[str, str]  # the flag that said a field, by its path

    @property
    def env(self) -> str | None:
        """Return the environment that the file is for."""
        metadata = self.tree.get("metadata")
        told = metadata.get("env") if isinstance(metadata, dict) else None
        return told if isinstance(told, str) else None

    def selection(self, env: str | None, *, to_replay: bool = True) -> Selection:
        """Return the selection for an environment, or raise SpecInvalidError; `to_replay`: not only to look at."""
        tree = self.tree if self.file else _with(self.tree, "metadata.env", env or "dev")
        try:
            made = selection_of(tree, to_replay=to_replay)
        except SpecInvalidError as error:
            flag = self.flags.get(str(error.context["path"]).partition("[")[0])
            error.context |= {"flag": flag} if flag else {"file": str(self.file)} if self.file else {}
            raise
        if env is not None and made.env != env:
            raise invalid("metadata.env", f"the selection is for {made.env}, and {env} was asked for")
        return made


def asked(file: Path | None, flags: list[Said]) -> Asked:
    """Return the document that a file, if there is one, and flags make together."""
    skeleton = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": UNNAMED}, "spec": {"filters": {}}}
    tree = load_tree(file) if file else skeleton
    for flag, path, value in flags:
        there = _at(tree, path) if file else None
        if there is not None and not _same(there, value):
            raise InputError(
                f"{flag} says something else than {path} of {file}",
                next_step="Leave the flag out, or change the file: a file means what it says.",
                context={"flag": flag, "path": path, "file": str(file)},
            )
        if there is None:
            tree = _with(tree, path, value)
    return Asked(tree, file, {path: flag for flag, path, _ in flags})


def _at(tree: object, path: str) -> object:
    for name in path.split("."):
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _with(tree: Tree, path: str, value: object) -> Tree:
    """Return a document with one more field; what is no mapping there is left for the checks to refuse."""
    name, _, rest = path.partition(".")
    if not rest:
        return {**tree, name: value}
    inner = {} if tree.get(name) is None else tree[name]
    return {**tree, name: _with(inner, rest, value)} if isinstance(inner, dict) else tree


def _same(one: object, other: object) -> bool:
    """Tell whether two values of a field mean the same: lists are sets, and a moment is a moment in any zone."""
    if isinstance(one, list) and isinstance(other, list):
        return {*map(str, one)} == {*map(str, other)}
    if isinstance(one, str) and isinstance(other, str) and one != other:
        return _moment(one) == _moment(other) is not None
    return one == other


def _moment(text: str) -> datetime | None:
    try:
        moment = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
    return moment if moment.utcoffset() is not None else None
