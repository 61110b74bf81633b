"""`holdfast grant approvers`: who may approve by a key.

Invariants: everybody who was ever registered is listed, also those who were revoked; only public keys are read.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.audit.seals.keys import public_key_text
from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command, group
from holdfast.cli.options import ID_MAX, actor, word
from holdfast.cli.output import Column
from holdfast.cli.values import row_value
from holdfast.governance.approval import register_approver, revoke_approver
from holdfast.store import Store

approvers = group("Say who may approve by a key.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Whom.")]
As = Annotated[str | None, word("--as", "Who does this; without it, the user who types.", "--operator")]
Reason = Annotated[str, word("--reason", "Why: it stays in the journal.", metavar="TEXT")]


@approvers.command()
@command(Location.unopened)
def add(
    location: Location,
    *,
    name: Name,
    public_key: Annotated[
        Path, typer.Option("--public-key", metavar="FILE", help="Their public key (see `holdfast audit keygen`).")
    ],
    reason: Reason,
    grant: Annotated[
        int | None,
        typer.Option("--grant", metavar="ID", min=1, max=ID_MAX, help="In prod, for all but the first: the grant."),
    ] = None,
    as_: As = None,
) -> Answer:
    """Let somebody approve by the private half of a key."""
    key = public_key_text(public_key)
    with location.open() as store:
        added = register_approver(store, name, key, actor=as_ or actor(), reason=reason, grant_id=grant)
    text = f"{output.clean(name)} may approve by the key {added.public_key}, under grant {added.grant_id}"
    return Answer(row_value(added), text)


@approvers.command()
@command(Location.open)
def revoke(store: Store[Any], *, name: Name, reason: Reason, as_: As = None) -> Answer:
    """Let somebody approve no more, at once; grants that they approved and nobody has used are void with it."""
    revoked = revoke_approver(store, name, actor=as_ or actor(), reason=reason)
    return Answer(row_value(revoked), f"{output.clean(name)} may approve no more")


@approvers.command(name="list")
@command(Location.open)
def list_approvers(store: Store[Any]) -> Answer:
    """List everybody who is, or was, registered."""
    with store.reading() as reading:
        found = list(reading.grants.approvers().values())

    def human() -> None:
        if not found:
            output.line("no approvers")
            return
        output.table(
            [
                Column("NAME"), Column("SINCE"), Column("BY"), Column("GRANT", right=True), Column("REVOKED"),
                Column("PUBLIC KEY"),
            ],
            [
                (
                    one.name, output.instant(one.added_at), one.added_by, one.grant_id or "",
                    f"{output.instant(one.revoked_at)} by {one.revoked_by}" if one.revoked_at else "", one.public_key,
                )
                for one in found
            ],
        )  # fmt: skip

    return Answer([row_value(one) for one in found], human)
