"""`holdfast machines`: draws the state machines from the transition table. Needs no ledger."""

from enum import StrEnum
from typing import Annotated

from holdfast.cli import output
from holdfast.cli.command import Answer, command
from holdfast.cli.declare import argument, option
from holdfast.cli.options import Json
from holdfast.core.errors import InputError
from holdfast.diagrams import ascii_text, diagrams, find, json_value, mermaid, svg


class Format(StrEnum):
    """The format of a drawing."""

    ASCII = "ascii"
    MERMAID = "mermaid"
    SVG = "svg"
    JSON = "json"


_DRAW = {Format.ASCII: ascii_text, Format.MERMAID: mermaid, Format.SVG: svg}


@command()
def machines(
    *,
    name: Annotated[str | None, argument(metavar="NAME", help="Name of one machine (default: all machines).")] = None,
    form: Annotated[Format | None, option("--format", help="Format of the drawing (default: ascii).")] = None,
    as_json: Json = False,
) -> Answer:
    """Draw the state machines.

    The drawings come from the transition table. Edges that need a grant, and paths that take several edges in one
    write, are marked.
    """
    if as_json and form not in (None, Format.JSON):
        raise InputError(f"--json and --format {form} exclude each other.", next_step="Remove one of the two options.")
    drawn = (find(name),) if name else diagrams()
    if as_json or form is Format.JSON:
        values = [json_value(diagram) for diagram in drawn]
        value = values[0] if name else values
        return Answer(value, lambda: output.json_line(value))
    return Answer(None, _DRAW[form or Format.ASCII](drawn).rstrip("\n"))
