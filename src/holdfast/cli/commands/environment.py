"""`holdfast environment`: raises the environment of a ledger."""

from typing import Annotated, Any

from holdfast.cli.command import Answer, Location, command
from holdfast.cli.commands.init import Environment
from holdfast.cli.declare import argument
from holdfast.cli.options import RequiredReason, actor
from holdfast.governance.environment import raise_environment
from holdfast.store import Store


@command(Location.open)
def environment(
    store: Store[Any],
    *,
    to: Annotated[Environment, argument(metavar="ENV", help="New environment: stage or prod.")],
    reason: RequiredReason,
) -> Answer:
    """Raise the environment of a ledger.

    From dev to stage or prod, or from stage to prod.

    It is never lowered, and not raised while a grant is active. The journal has who raised it and why.
    """
    before = raise_environment(store, to.value, actor=actor(), reason=reason)
    text = f"The ledger is {to.value}." if before == to.value else f"The ledger was {before}; it is {to.value} now."
    return Answer({"before": before, "environment": to.value}, text)
