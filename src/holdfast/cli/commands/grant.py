"""`holdfast grant`: requests, approves, revokes and lists grants.

Invariants: a grant past its time is shown as expired; how far the name of an approver is trusted depends on the
environment of the ledger; a private key is never printed.
"""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from holdfast.audit.files import slips
from holdfast.audit.seals import keys
from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command, group
from holdfast.cli.commands.approvers import approvers
from holdfast.cli.declare import argument, option
from holdfast.cli.options import ID_MAX, REASON_HELP, As, ReasonWord, actor, word
from holdfast.cli.text import Column
from holdfast.core.authority import CLAIMED, KEY, ROLE, Act, Wanted, act_named, effective_state, scope_of
from holdfast.core.environments import DEV
from holdfast.core.errors import ApprovalError, InputError
from holdfast.core.governed import Grant
from holdfast.core.journal import JournalRow
from holdfast.core.machines import GRANT, GrantState
from holdfast.explain.times import duration
from holdfast.explain.values import row_value
from holdfast.governance import grants
from holdfast.governance.approval import Identity, environment_of, existing_grant, text_to_approve
from holdfast.governance.granted import Granted, grant_value, granted
from holdfast.store import Store

grant = group("Request, approve, revoke and list grants.", "grants")
grant.add_command(approvers, "approvers")

STYLES = {"draft": "cyan", "active": "green", "consumed": "dim", "revoked": "red", "expired": "yellow"}
PAGE_MAX = 1000
ID = Annotated[int, argument(metavar="ID", min=1, max=ID_MAX, help="Id of the grant.")]
RollbackPlan = Annotated[str, word("--rollback-plan", "How to undo the action.", metavar="TEXT")]
Executor = Annotated[str, word("--executor", "Name of the person who will act.")]
Ttl = Annotated[str, word("--ttl", "Time until the grant expires: 30m, 2h, 1d.", metavar="TIME")]
KeyFile = Annotated[
    Path | None, option("--key", metavar="FILE", help="Private key to sign with (see `holdfast audit keygen`).")
]


# ---------------------------------------------------------------------------------------------------------------------
# request, approve, revoke


@grant.subcommand()
@command(Location.unopened)
def request(
    location: Location,
    *,
    action: Annotated[
        str, argument(metavar="ACTION", help=f"Action that the grant permits. One of: {', '.join(Act)}.")
    ],
    target: Annotated[str, argument(metavar="TARGET", help="Target of the action, such as job:558.")],
    executor: Executor,
    reason: ReasonWord,
    rollback_plan: RollbackPlan,
    plan: Annotated[str | None, word("--plan", "Digest of the plan that the grant permits.", metavar="DIGEST")] = None,
    manifest: Annotated[
        str | None, word("--manifest", "Digest of the manifest that the grant permits.", metavar="DIGEST")
    ] = None,
    actions: Annotated[
        str | None, word("--actions", "Exact list of actions, if more than ACTION.", metavar="A,B")
    ] = None,
    ttl: Ttl = "2h",
    approve: Annotated[bool, option("--approve", help="Approve the grant too; only in a dev ledger.")] = False,
    as_: As = None,
) -> Answer:
    """Request a grant: a permission for one action, used once, that expires.

    The grant names the action, its target, the person who acts and how to undo it. Another person must approve it; in a
    dev ledger the requester may.
    """
    wanted_act, lasts, who = act_named(action), duration(ttl, "--ttl"), as_ or actor()
    named = tuple(part.strip() for part in actions.split(",")) if actions else ()
    with location.open() as store:
        with store.reading() as reading:
            environment = environment_of(reading)
        if approve and environment != DEV:
            raise ApprovalError(
                f"In a {environment} ledger another person must approve the grant.",
                code="self_approval",
                next_step="Remove --approve.",
            )
        wanted = Wanted(
            act=wanted_act,
            target=target,
            environment=environment,
            executor=executor,
            actions=named,
            plan=plan,
            manifest=manifest,
        )
        made = grants.request(store, wanted, requester=who, rollback_plan=rollback_plan, reason=reason, ttl=lasts)
        if approve:
            made = grants.approve(store, made.grant_id, Identity(name=who), reason=reason)
        now = store.now()
    return Answer(grant_value(made, now), lambda: _print_made(made))


def _print_made(made: Grant) -> None:
    output.line(f"Grant {made.grant_id} is {'a draft' if made.state == GrantState.DRAFT else made.state}.")
    if made.state == GrantState.DRAFT:
        output.line(f"Another person must approve it: holdfast grant approve {made.grant_id} --as NAME")


@grant.subcommand()
@command(Location.unopened)
def approve(
    location: Location,
    *,
    grant_id: ID,
    as_: As = None,
    key: KeyFile = None,
    role: Annotated[bool, option("--role", help="Approve as the PostgreSQL role of this session.")] = False,
    signature: Annotated[
        str | None, word("--signature", "Signature that `holdfast grant sign` printed.", metavar="HEX")
    ] = None,
    reason: Annotated[str | None, word("--reason", REASON_HELP, metavar="TEXT")] = None,
) -> Answer:
    """Approve a draft grant.

    In dev any person may approve; in stage any person except the requester. In prod an approval must be signed with a
    registered key (--key, or --signature with --as) or come from a PostgreSQL role (--role), not the requester's.
    """
    if sum((key is not None, role, signature is not None)) > 1:
        raise InputError("--key, --signature and --role exclude each other.", next_step="Give only one of them.")
    with location.open() as store:
        who = _identity(store, grant_id, as_, key, signature, role=role)
        made = grants.approve(store, grant_id, who, reason=reason)
        now = store.now()
    return Answer(grant_value(made, now), f"Grant {grant_id} is active until {output.instant(made.expires_at)} UTC.")


def _identity(
    store: Store[Any], grant_id: int, name: str | None, key: Path | None, signature: str | None, *, role: bool
) -> Identity:
    with store.reading() as reading:
        if role:
            found = reading.grants.session_role()
            if found is None:
                raise ApprovalError(
                    "--role needs PostgreSQL; a SQLite ledger has no roles.", code="approver_not_authenticated"
                )
            return Identity(name=name or found, method=ROLE)
        if key is not None:
            made = keys.signature_of(text_to_approve(reading, existing_grant(reading, grant_id)), key)
            public = _public_key(key)
            owner = next((a.name for a in reading.grants.approvers().values() if a.public_key == public), None)
            if name is None and owner is None:
                raise ApprovalError("No approver is registered with this key.", code="approver_unknown")
            return Identity(name=name or owner or "", method=KEY, signature=made)
    if signature is not None:
        if name is None:
            raise InputError(
                "--signature needs --as.", next_step="Add --as NAME with the name of the approver who signed."
            )
        return Identity(name=name, method=KEY, signature=signature)
    return Identity(name=name or actor(), method=CLAIMED)


def _public_key(key: Path) -> str:
    return keys.private_key(key).public_key().public_bytes_raw().hex()


@grant.subcommand()
@command(Location.open)
def sign(
    store: Store[Any],
    *,
    grant_id: ID,
    key: Annotated[Path, option("--key", metavar="FILE", help="Private key to sign with.")],
) -> Answer:
    """Sign a draft grant and print the signature, for `holdfast grant approve --signature`."""
    with store.reading() as reading:
        text = text_to_approve(reading, existing_grant(reading, grant_id))
    value = {"grant_id": grant_id, "signature": keys.signature_of(text, key), "public_key": _public_key(key)}
    return Answer(value, str(value["signature"]))


@grant.subcommand()
@command(Location.open)
def revoke(store: Store[Any], *, grant_id: ID, reason: ReasonWord, as_: As = None) -> Answer:
    """Revoke a grant that is not consumed."""
    made = grants.revoke(store, grant_id, actor=as_ or actor(), reason=reason)
    return Answer(grant_value(made, store.now()), f"Grant {grant_id} revoked.")


# ---------------------------------------------------------------------------------------------------------------------
# list, show


@grant.subcommand("list")
@command(Location.unopened)
def list_grants(
    location: Location,
    *,
    state: Annotated[
        str | None, word("--state", "List only grants in this state: " + ", ".join(GrantState) + ".", metavar="STATE")
    ] = None,
    action: Annotated[str | None, word("--action", "List only grants for this action.", metavar="ACTION")] = None,
    target: Annotated[str | None, word("--target", "List only grants for this target.", metavar="TARGET")] = None,
    before: Annotated[
        int | None,
        option(
            "--before", metavar="ID", min=1, max=ID_MAX, help="List only grants with a smaller id, to continue a page."
        ),
    ] = None,
    limit: Annotated[int, option("--limit", metavar="N", min=1, max=PAGE_MAX, help="Maximum number of grants.")] = 100,
) -> Answer:
    """List grants, newest first."""
    if state is not None and state not in GRANT.states:
        raise InputError(f"Unknown state {state!r} of a grant.", next_step=f"Give one of: {', '.join(GrantState)}.")
    with location.open() as store:
        with store.reading() as reading:
            act = act_named(action) if action else None
            found = reading.grants.page(state=state, action=act, target=target, before=before, limit=limit)
        now = store.now()
    return Answer([grant_value(one, now) for one in found], lambda: _print_list(found, now, limit))


def _print_list(found: list[Grant], now: datetime, limit: int) -> None:
    columns = (
        Column("ID", right=True), Column("STATE"), Column("ACTION"), Column("TARGET", folds=True), Column("EXECUTOR"),
        Column("REQUESTED BY"), Column("APPROVED BY"), Column("EXPIRES"),
    )  # fmt: skip
    rows = [
        (
            one.grant_id, _state(one, now), one.action, one.target, _executor(one), one.requested_by,
            one.approved_by or "", output.age(one.expires_at, now) if one.state not in GRANT.final else "",
        )
        for one in found
    ]  # fmt: skip
    output.table(columns, rows, none="No grants.")
    if len(found) == limit:
        output.line(f"There may be more grants; to continue, add --before {found[-1].grant_id}")


@grant.subcommand()
@command(Location.open)
def show(store: Store[Any], *, grant_id: ID) -> Answer:
    """Show one grant: what it permits, who approved it, and its history."""
    with store.reading() as reading:
        found = existing_grant(reading, grant_id)
        text = text_to_approve(reading, found).decode()
        journal = reading.journal.of(grant_id, GRANT.name)
        about = granted(reading, found)
    now = store.now()
    value = {
        "grant": grant_value(found, now),
        "permits": about.words,
        "jobs": len(about.job_ids) or None,
        "next": (about.command or None) if effective_state(found, now) == GrantState.ACTIVE else None,
        "journal": [row_value(row) for row in journal],
        "approval_text": text,
    }
    return Answer(value, lambda: _print_grant(found, about, journal, now))


def _print_grant(found: Grant, about: Granted, journal: list[JournalRow], now: datetime) -> None:
    output.show(output.styled(f"grant {found.grant_id} ", "bold") + _state(found, now))
    shown = {"permits": about.words, **grant_value(found, now)}
    names = ("permits", "action", "target", "environment", "executor", "actions", "plan", "manifest", "rollback_plan",
             "requested_by", "approved_by", "approved_via", "consumed_by", "expires_at", "reason")  # fmt: skip
    output.fields((name.replace("_", " "), _words(shown[name])) for name in names if shown[name])
    output.line("")
    columns = (Column("TIME (UTC)"), Column("EVENT"), Column("STATE"), Column("ACTOR"), Column("REASON", folds=True))
    rows = [
        (
            output.instant(row.at),
            row.event,
            output.styled(row.target, STYLES.get(row.target, "")),
            row.actor,
            row.reason or "",
        )
        for row in journal
    ]
    output.table(columns, rows, title="history")
    if about.command and effective_state(found, now) == GrantState.ACTIVE:
        output.line(f"next: {about.command}")


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _state(found: Grant, now: datetime) -> Any:
    word = effective_state(found, now)
    return output.styled(word, STYLES.get(word, ""))


def _executor(found: Grant) -> str:
    scope = scope_of(found)
    return scope.executor if scope else "?"


# ---------------------------------------------------------------------------------------------------------------------
# slip


@grant.subcommand()
@command()
def slip(
    *,
    action: Annotated[str, word("--action", f"Action: {Act.RESTORE}.", metavar="ACTION")],
    target: Annotated[str, word("--target", "SHA-256 of the snapshot.", metavar="DIGEST")],
    executor: Executor,
    reason: ReasonWord,
    rollback_plan: RollbackPlan,
    as_: As = None,
    key: KeyFile = None,
    ttl: Ttl = "2h",
) -> Answer:
    """Print a slip: a grant as a file, to restore a snapshot where no ledger exists.

    Save the output and give it to `holdfast snapshot restore FILE --grant slip.json`.
    """
    made = slips.write_slip(
        action=str(act_named(action)),
        target=target,
        executor=executor,
        rollback_plan=rollback_plan,
        reason=reason,
        approved_by=as_ or actor(),
        ttl=duration(ttl, "--ttl"),
        key=key,
    )
    value = msgspec.to_builtins(made)
    return Answer(value, lambda: output.json_line(value))
