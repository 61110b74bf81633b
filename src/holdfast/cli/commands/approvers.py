"""`holdfast grant approvers`: registers the people who may approve grants with a key.

Invariants: the list contains revoked approvers too; only public keys are read.
"""

from pathlib import Path
from typing import Annotated, Any

from holdfast.audit.seals.keys import public_key_text
from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command, group
from holdfast.cli.declare import argument, option
from holdfast.cli.options import ID_MAX, As, ReasonWord, actor
from holdfast.cli.text import Column
from holdfast.explain.values import row_value
from holdfast.governance.approval import register_approver, revoke_approver
from holdfast.store import Store

approvers = group("Register, revoke and list the approvers of grants.")

Name = Annotated[str, argument(metavar="NAME", help="Name of the approver.")]


@approvers.subcommand()
@command(Location.unopened)
def add(
    location: Location,
    *,
    name: Name,
    public_key: Annotated[
        Path,
        option("--public-key", metavar="FILE", help="Public key of the approver (see `holdfast audit keygen`)."),
    ],
    reason: ReasonWord,
    grant: Annotated[
        int | None,
        option(
            "--grant",
            metavar="ID",
            min=1,
            max=ID_MAX,
            help="Id of the grant; required in prod, except for the first approver.",
        ),
    ] = None,
    bootstrap: Annotated[
        bool,
        option("--bootstrap", help="Register the first approver of a prod ledger, whose key no approval confirms."),
    ] = False,
    as_: As = None,
) -> Answer:
    """Register an approver with a public key."""
    key = public_key_text(public_key)
    with location.open() as store:
        added = register_approver(
            store, name, key, actor=as_ or actor(), reason=reason, grant_id=grant, bootstrap=bootstrap
        )
    text = f"Approver {output.clean(name)} registered with the key {added.public_key}, under grant {added.grant_id}."
    if bootstrap:
        text += "\nThis is the bootstrap: no approval confirms the key. Compare it with the key of its owner."
    return Answer({**row_value(added), "bootstrap": bootstrap}, text)


@approvers.subcommand()
@command(Location.open)
def revoke(store: Store[Any], *, name: Name, reason: ReasonWord, as_: As = None) -> Answer:
    """Revoke an approver; unused grants that the approver approved become invalid."""
    revoked = revoke_approver(store, name, actor=as_ or actor(), reason=reason)
    return Answer(row_value(revoked), f"Approver {output.clean(name)} revoked.")


@approvers.subcommand("list")
@command(Location.open)
def list_approvers(store: Store[Any]) -> Answer:
    """List all approvers, including revoked ones."""
    with store.reading() as reading:
        found = list(reading.grants.approvers().values())

    def human() -> None:
        output.table(
            [
                Column("NAME"), Column("SINCE"), Column("ADDED BY"), Column("GRANT", right=True), Column("REVOKED"),
                Column("PUBLIC KEY"),
            ],
            [
                (
                    one.name, output.instant(one.added_at), one.added_by, one.grant_id or "",
                    f"{output.instant(one.revoked_at)} by {one.revoked_by}" if one.revoked_at else "", one.public_key,
                )
                for one in found
            ],
            none="No approvers.",
        )  # fmt: skip

    return Answer([row_value(one) for one in found], human)
