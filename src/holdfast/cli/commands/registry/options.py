"""Options and the exit code that the commands of `holdfast registry` share."""

from typing import Annotated

from holdfast.cli.declare import option
from holdfast.cli.options import GRANT_HELP, ID_MAX, OPERATOR_HELP, REASON_HELP, word

REFUSED = 3

Operator = Annotated[str | None, word("--operator", OPERATOR_HELP)]
Reason = Annotated[str, word("--reason", REASON_HELP, metavar="TEXT")]
GrantId = Annotated[int | None, option("--grant", min=1, max=ID_MAX, metavar="ID", help=GRANT_HELP)]
