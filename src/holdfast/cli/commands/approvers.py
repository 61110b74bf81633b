"""`holdfast grant approvers`: who may approve by a key.

Invariants: everybody who was ever registered is listed, also those who were revoked; only public keys are read.
"""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.audit.seals.signing import public_key_text
from holdfast.cli import output
from holdfast.cli.options import ID_MAX, Db, Json, Schema, actor, opened, word
from holdfast.cli.output import Column
from holdfast.cli.values import row_value
from holdfast.governance.approval import register_approver, revoke_approver

approvers = typer.Typer(help="Say who may approve by a key.", add_completion=False)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Whom.")]
As = Annotated[str | None, word("--as", "Who does this; without it, the user who types.", "--operator")]
Reason = Annotated[str, word("--reason", "Why: it stays in the journal.", metavar="TEXT")]


@approvers.command()
def add(
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
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Let somebody approve by the private half of a key."""
    key = public_key_text(public_key)
    with opened(db, schema) as store:
        added = register_approver(store, name, key, actor=as_ or actor(), reason=reason, grant_id=grant)
    said = f"{output.clean(name)} may approve by the key {added.public_key}, under grant {added.grant_id}"
    output.answer(row_value(added), lambda: output.line(said), as_json=as_json)


@approvers.command()
def revoke(
    *, name: Name, reason: Reason, as_: As = None, db: Db = None, schema: Schema = None, as_json: Json = False
) -> None:
    """Let somebody approve no more, at once; grants that they approved and nobody has used are void with it."""
    with opened(db, schema) as store:
        revoked = revoke_approver(store, name, actor=as_ or actor(), reason=reason)
    said = f"{output.clean(name)} may approve no more"
    output.answer(row_value(revoked), lambda: output.line(said), as_json=as_json)


@approvers.command(name="list")
def list_approvers(*, db: Db = None, schema: Schema = None, as_json: Json = False) -> None:
    """List everybody who is, or was, registered."""
    with opened(db, schema) as store, store.reading() as reading:
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

    output.answer([row_value(one) for one in found], human, as_json=as_json)
