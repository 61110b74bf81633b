"""The options and the exit code that the commands of `holdfast registry` share."""

from typing import Annotated

import typer

from holdfast.cli.options import ID_MAX, word

REFUSED = 3

Operator = Annotated[str | None, word("--operator", "Who does this; without it, the user who types.")]
Reason = Annotated[str, word("--reason", "Why: it stays in the journal.", metavar="TEXT")]
GrantId = Annotated[
    int | None, typer.Option("--grant", min=1, max=ID_MAX, metavar="ID", help="The grant that permits it.")
]
