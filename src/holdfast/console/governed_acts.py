"""The acts that need a permission, and the permissions themselves: releases, replays, and grants.

Invariants: as in `acts.py`; a person approves with the password, at the moment of the approval, and never what they
requested themselves, by whatever way; a replay runs exactly what its dry run showed, or not at all.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import uuid4

import msgspec

from holdfast.console.acts import reason_given, seen_job
from holdfast.console.context import Visit
from holdfast.console.security.callers import CallerKind
from holdfast.core.authority import CLAIMED, CONSOLE, TTL, Act, Wanted
from holdfast.core.environments import PROD
from holdfast.core.errors import ApprovalError, GovernanceError, InputError
from holdfast.core.governed import Grant
from holdfast.core.selection import Selection
from holdfast.governance import grants, release_runs, releases
from holdfast.governance.approval import Identity, existing_grant, text_to_approve
from holdfast.governance.quarantine import QuarantineFilters
from holdfast.governance.release_runs import ReleaseRequest
from holdfast.governance.releases import BulkRelease, ReleaseResult
from holdfast.governance.replay import replay
from holdfast.governance.replay.record import ReplayReport
from holdfast.governance.replay.replay import DryRun

logger = logging.getLogger("holdfast")

START_S = 30.0  # how long an act waits for the first batch of a run; the run continues in any case


# ---------------------------------------------------------------------------------------------------------------------
# Releases


def release(
    here: Visit,
    job_id: int,
    *,
    reason: str,
    grant_id: int | None = None,
    version: int | None = None,
) -> ReleaseResult:
    """Release a quarantined job under a grant, which is consumed; in dev one is made."""
    why = reason_given(reason)
    seen_job(here, job_id, version)
    return releases.release(here.ledger, job_id, operator=here.actor, reason=why, grant_id=grant_id)


def release_many(
    here: Visit,
    which: QuarantineFilters | Sequence[int],
    *,
    reason: str,
    expected: int,
    grant_id: int | None = None,
) -> BulkRelease:
    """Release exactly `expected` jobs together, under one grant."""
    why = reason_given(reason)
    here.caller.require_unlimited()
    return releases.release_many(
        here.store, which, operator=here.actor, reason=why, expected=expected, grant_id=grant_id
    )


def request_release(
    here: Visit,
    which: QuarantineFilters | Sequence[int],
    *,
    reason: str,
    rollback_plan: str,
    expected: int | None = None,
    executor: str | None = None,
) -> ReleaseRequest:
    """Request the grant to release these jobs, and store which they are."""
    why = reason_given(reason)
    here.caller.require_unlimited()
    return release_runs.request_release(
        here.store,
        which,
        requester=here.actor,
        executor=executor or here.actor,
        reason=why,
        rollback_plan=rollback_plan,
        expected=expected,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Replays


def dry_run(here: Visit, selection: Selection) -> DryRun:
    """Return what a replay would do and the verdict of every guard; nothing is written."""
    here.caller.require_unlimited()
    return replay.dry_run(here.store, selection, actor=here.actor)


def run_replay(
    here: Visit,
    selection: Selection,
    *,
    reason: str,
    replay_reason: str,
    candidates_hash: str,
    total: int,
    grant_id: int | None = None,
) -> str:
    """Begin the replay that a dry run showed, and return the id of its run, which continues in a thread.

    Raise PlanStaleError if the dry run would show other jobs now, ReplayGuardError or AuthorityError if it may not run.
    """
    why = reason_given(reason)
    shown = dry_run(here, selection)
    if shown.candidates_hash == candidates_hash and total != shown.total:
        raise InputError(
            f"The number {total} was given, but the replay has {shown.total} jobs. Nothing was replayed.",
            next_step="Look at the dry run again, and give the number of its jobs.",
            context={"field": "total", "given": total, "found": shown.total},
        )
    expected = msgspec.structs.replace(shown, candidates_hash=candidates_hash, total=total)
    run_id = f"replay-{uuid4().hex[:12]}"

    def run(begun: Callable[[object], None]) -> ReplayReport:
        return replay.run(
            here.store,
            selection,
            actor=here.actor,
            reason=why,
            replay_reason=replay_reason,
            grant_id=grant_id,
            expected=expected,
            root=run_id,
            on_batch=begun,
        )

    _in_thread(run_id, run)
    return run_id


def continue_replay(here: Visit, run_id: str, *, reason: str, grant_id: int | None = None) -> str:
    """Continue a replay that was stopped or killed, in a thread; return the id of its run."""
    why = reason_given(reason)
    here.caller.require_unlimited()

    def run(begun: Callable[[object], None]) -> ReplayReport:
        return replay.continue_run(here.store, run_id, actor=here.actor, reason=why, grant_id=grant_id, on_batch=begun)

    _in_thread(run_id, run)
    return run_id


def stop_replay(here: Visit, run_id: str, *, reason: str) -> ReplayReport:
    """Stop a replay: it ends before its next batch, and can be continued."""
    why = reason_given(reason)
    here.caller.require_unlimited()
    return replay.stop(here.store, run_id, actor=here.actor, reason=why)


def _in_thread(run_id: str, run: Callable[[Callable[[object], None]], object]) -> None:
    """Run a replay in a thread; return when its first batch is durable, it has ended, or some time has passed.

    Raise the error of a run that did not begin. A run that is cut off with the process can be continued.
    """
    begun = threading.Event()
    errors: list[Exception] = []

    def work() -> None:
        try:
            run(lambda _: begun.set())
        except Exception as error:
            errors.append(error)
            if begun.is_set():
                logger.exception("replay %s has stopped", run_id)
        finally:
            begun.set()

    threading.Thread(target=work, name=f"holdfast-{run_id}", daemon=True).start()
    begun.wait(START_S)
    if errors:
        raise errors[0]


# ---------------------------------------------------------------------------------------------------------------------
# Grants


class GrantRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A grant to request: one act, on one target, by one person."""

    action: Act
    target: str
    reason: str
    rollback_plan: str
    executor: str | None = None  # None: the caller
    plan: str | None = None
    manifest: str | None = None
    ttl_s: int | None = None


def request_grant(here: Visit, request: GrantRequest, selection: Selection | None = None) -> Grant:
    """Request a grant; `selection` is that of a replay, and is stored for its approver."""
    why = reason_given(request.reason)
    here.caller.require_unlimited()
    wanted = Wanted(
        act=request.action,
        target=request.target,
        environment=here.console.environment,
        executor=request.executor or here.actor,
        plan=request.plan,
        manifest=request.manifest,
    )
    ttl = TTL if request.ttl_s is None else timedelta(seconds=request.ttl_s)
    return grants.request(
        here.store,
        wanted,
        requester=here.actor,
        rollback_plan=request.rollback_plan,
        reason=why,
        ttl=ttl,
        selection=selection,
    )


def approve_grant(here: Visit, grant_id: int, *, reason: str, password: str, address: str = "") -> Grant:
    """Approve a draft as a person, with the password; raise ApprovalError for the requester, or for a token.

    In prod, and for a person whose key is registered, the approval is signed with the key of the account.
    """
    why = reason_given(reason)
    if here.caller.kind is CallerKind.TOKEN:
        raise ApprovalError("A token cannot approve a grant.", code="approver_not_authenticated")
    with here.store.reading() as reading:
        grant = existing_grant(reading, grant_id)
        text = text_to_approve(reading, grant)
        registered = here.actor in reading.grants.approvers()
    if here.caller.kind is CallerKind.OPEN:
        return grants.approve(here.store, grant_id, Identity(name=here.actor, method=CLAIMED), reason=why)
    if is_own_grant(here, grant):
        raise ApprovalError(
            f"Grant {grant_id} was requested by {grant.requested_by}: another person must approve it.",
            code="self_approval",
            context={"grant_id": grant_id},
        )
    if not password:
        raise GovernanceError("To approve, enter your password again.", code="password_needed")
    here.console.check_password(here.caller.name, password, address)
    if here.console.environment == PROD or registered:
        signature = here.console.accounts.signature(here.caller.name, password, text) if here.console.accounts else None
        approver = Identity(name=here.actor, method=CONSOLE, signature=signature)
    else:
        approver = Identity(name=here.actor, method=CLAIMED)
    return grants.approve(here.store, grant_id, approver, reason=why)


def is_own_grant(here: Visit, grant: Grant) -> bool:
    """Return whether a person requested a grant: here, by the command under the same name, or by a token of theirs."""
    kind, _, name = grant.requested_by.rpartition(":")
    if kind == "token" and here.console.tokens is not None:
        token = here.console.tokens.get(name)
        return token is not None and token.owner == here.caller.name
    return name.casefold() == here.caller.name.casefold()


def revoke_grant(here: Visit, grant_id: int, *, reason: str) -> Grant:
    """Revoke a grant that is not consumed."""
    why = reason_given(reason)
    here.caller.require_unlimited()
    return grants.revoke(here.store, grant_id, actor=here.actor, reason=why)
