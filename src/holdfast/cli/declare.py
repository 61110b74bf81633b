"""Builds click commands from functions: the annotation of a parameter declares its option or argument.

    def jobs(*, limit: Annotated[int, option("--limit", min=1, help="At most N jobs.")] = 50) -> None: ...

Invariants: a command is built when it is looked up, so a group costs nothing for the commands that do not run; the type
of a parameter decides how its text is converted: text, number, flag, path, word of an enum, or a list of these.
"""

import inspect
import types
import typing
from collections.abc import Callable
from enum import Enum, EnumType
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
ARGUMENTS = "Arguments"
OPTIONS = "Options"


class Declared(NamedTuple):
    """How a parameter is given: click's class of it, its names, and the settings of that class."""

    kind: "type[_Option | _Argument]"
    names: tuple[str, ...]
    settings: dict[str, Any]


def option(*names: str, help: str, **settings: Any) -> Any:  # noqa: A002 - click's word
    """Declare an option, such as `--limit`; `min` and `max` bound a number, `panel` is its heading in the help."""
    return Declared(_Option, names, {"help": help, **settings})


def argument(*, metavar: str, help: str, **settings: Any) -> Any:  # noqa: A002 - click's word
    """Declare a positional argument."""
    return Declared(_Argument, (), {"metavar": metavar, "help": help, **settings})


class _Option(click.Option):
    def __init__(self, *given: Any, panel: str = OPTIONS, **settings: Any) -> None:
        settings.setdefault("show_default", settings.get("default") not in (None, False, ()))
        super().__init__(*given, **settings)
        self.panel = panel


class _Argument(click.Argument):
    panel = ARGUMENTS

    def __init__(self, *given: Any, help: str, **settings: Any) -> None:  # noqa: A002 - click's word
        super().__init__(*given, **settings)
        self._text = help

    def make_metavar(self, ctx: click.Context) -> str:
        """Return the placeholder for the usage line, in brackets if the argument is optional."""
        word = super().make_metavar(ctx)
        return word if self.required or word.startswith("[") else f"[{word}]"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the help line of the argument; click itself writes one for options only."""
        extra = "  [required]" if self.required else f"  [default: {self.default}]" if self.default else ""
        return super().make_metavar(ctx), self._text + extra


class _Word(click.Choice[Enum]):
    """An enum: the user types the value of a member, not its name."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        """Return the text that the user types for a member."""
        return super().normalize_choice(choice.value if isinstance(choice, Enum) else choice, ctx)


class Command(click.Command):
    """A command whose help has its arguments, and its options under their headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the parameters, one section for each heading."""
        sections: dict[str, list[tuple[str, str]]] = {ARGUMENTS: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "panel", OPTIONS), []).append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example of a command, but not of a group that only holds commands; then write the epilog."""
        program, _, path = ctx.command_path.partition(" ")
        paragraphs = [self.epilog] if self.epilog else []
        if program == "holdfast" and path and getattr(self, "invoke_without_command", True):
            from holdfast.cli.examples import example_of  # noqa: PLC0415 - for the help only

            paragraphs[:0] = example_of(self, path)
        for paragraph in paragraphs:
            formatter.write_paragraph()
            formatter.write_text(paragraph)


class Group(Command, click.Group):
    """A group of commands, each made of a function when it is looked up."""

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        super().__init__(name, no_args_is_help=False, **settings)
        self._functions: dict[str, Callable[..., Any]] = {}

    def subcommand(self, name: str | None = None) -> Callable[[F], F]:
        """Return a decorator that adds a function as a command; its name is that of the function."""

        def add(function: F) -> F:
            self._functions[name or _dashed(function)] = function
            return function

        return add

    def alone(self, *, runs: bool = True) -> Callable[[F], F]:
        """Return a decorator for the function of the group itself; with `runs` it needs no command after it."""

        def add(function: F) -> F:
            self.params, self.callback = _taken_from(function)
            self.invoke_without_command = runs
            return function

        return add

    def names(self) -> list[str]:
        """Return the names of the commands, in the order of their declaration."""
        return [*self._functions, *(name for name in self.commands if name not in self._functions)]

    def find(self, name: str) -> click.Command | None:
        """Return a command, built; None if there is none of that name."""
        if name not in self.commands and name in self._functions:
            self.commands[name] = built(self._functions[name], name)
        return self.commands.get(name)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return self.names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        return self.find(cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let a group that can list its things do so if no command is named."""
        unnamed = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        if unnamed and not self.invoke_without_command and "list" in self.names():
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is named and the words after it, or fail with the nearest name."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(error.command_name, possibilities=self.names(), ctx=ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        Command.format_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)


def built(function: Callable[..., Any], name: str | None = None) -> Command:
    """Return the command of a function: its docstring is the help, its parameters are the options and arguments."""
    params, callback = _taken_from(function)
    help_text = inspect.cleandoc(function.__doc__ or "")
    return Command(name or _dashed(function), callback=callback, params=params, help=help_text)


def _taken_from(function: Callable[..., Any]) -> tuple[list[click.Parameter], Callable[..., Any]]:
    """Return the parameters of a function, and the function without one of type `click.Context`, which is filled in."""
    taken = inspect.signature(function, eval_str=True).parameters.values()
    params = [_parameter(one.name, one.annotation, one.default) for one in taken if one.annotation is not click.Context]
    contexts = [one.name for one in taken if one.annotation is click.Context]
    if not contexts:
        return params, function
    return params, lambda **given: function(**dict.fromkeys(contexts, click.get_current_context()), **given)


def _parameter(name: str, annotation: Any, default: Any) -> click.Parameter:
    annotated, declared = typing.cast("tuple[Any, Declared]", typing.get_args(annotation))
    many, kind = _kind(annotated)
    settings = dict(declared.settings)
    least, most = settings.pop("min", None), settings.pop("max", None)
    settings["type"] = _type(kind, least, most)
    if kind in (int, float):
        settings.setdefault("metavar", "N")
    settings["required"] = default is inspect.Parameter.empty
    if not settings["required"]:
        settings["default"] = default
    if declared.kind is _Argument:
        settings |= {"nargs": -1} if many else {}
    elif kind is bool:
        settings |= {"is_flag": True}
    else:
        settings |= {"multiple": True} if many else {}
    return declared.kind([name, *declared.names], **settings)


def _kind(annotated: Any) -> tuple[bool, Any]:
    """Return whether a type is a list, and the type of one value, without `| None`."""
    if isinstance(annotated, types.UnionType):
        [annotated] = [kind for kind in typing.get_args(annotated) if kind is not types.NoneType]
    if typing.get_origin(annotated) is list:
        return True, typing.get_args(annotated)[0]
    return False, annotated


def _type(kind: Any, least: Any, most: Any) -> Any:
    if isinstance(kind, EnumType):
        return _Word(typing.cast("type[Enum]", kind))
    if kind is Path:
        return click.Path(path_type=Path)
    if least is None and most is None:
        return kind
    return (click.IntRange if kind is int else click.FloatRange)(least, most)


def _dashed(function: Callable[..., Any]) -> str:
    return function.__name__.replace("_", "-")
