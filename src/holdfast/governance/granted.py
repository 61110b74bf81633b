"""What a grant is about, for the person who approves it and the person who uses it.

The target of some grants is a hash. What was requested is stored beside the grant, and is believed only if it has that
hash.
"""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.authority import Act, effective_state, scope_of
from holdfast.core.candidates import unpacked
from holdfast.core.records import time_text
from holdfast.core.selection import Selection, candidates_hash
from holdfast.core.spans import counted
from holdfast.governance.approval import approval_method
from holdfast.governance.grants import SELECTION
from holdfast.governance.quarantine import JOB_TARGET
from holdfast.governance.releases import MANY_TARGET
from holdfast.governance.switches import PAUSE_TARGET, TARGET

if TYPE_CHECKING:
    from holdfast.core.governed import Grant
    from holdfast.store.transaction import Reading

SCOPE = ("environment", "executor", "actions", "plan", "manifest", "rollback_plan")  # that a grant is shown with
CANDIDATES = "candidates"  # the kind of the evidence that says what a release selects; `check` reads it too


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """What a grant permits, in words, and the command that uses it; the command is empty if none is known."""

    words: str
    command: str = ""
    job_ids: tuple[int, ...] = ()
    selection: Selection | None = None


def granted(reading: Reading, grant: Grant) -> Granted:
    """Return what a grant is about."""
    number, target = grant.grant_id, grant.target
    use = f"--grant {number} --reason TEXT"
    match grant.action:
        case Act.RELEASE | Act.ERASE:
            job = target.removeprefix(JOB_TARGET)
            act = "quarantine release" if grant.action == Act.RELEASE else "erase"
            return Granted(words=act_words(grant.action, target), command=f"holdfast {act} {job} {use}")
        case Act.RELEASE_MANY:
            ids, _ = release_candidates(reading, grant) or ((), ())
            what = counted(len(ids), "quarantined job") if ids else "quarantined jobs"
            return Granted(words=f"release of {what}", command=f"holdfast quarantine release {use}", job_ids=tuple(ids))
        case Act.REPLAY | Act.REPLACE:
            found = replay_selection(reading, grant)
            words = "replay of " + (_selected(found) if found else "failed jobs")
            return Granted(words=words, command=f"holdfast replay run --dry-run-file FILE {use}", selection=found)
        case Act.LIFT if target.startswith(PAUSE_TARGET):
            queue = target.removeprefix(PAUSE_TARGET)
            command = f"holdfast resume --queue {shlex.quote(queue)} {use}"
            return Granted(words=act_words(grant.action, target), command=command)
        case Act.LIFT:
            name = target.removeprefix(TARGET)
            command = f"holdfast switch lift {shlex.quote(name)} {use}"
            return Granted(words=act_words(grant.action, target), command=command)
    return Granted(words=act_words(grant.action, target))


def act_words(action: str, target: str) -> str:
    """Return what an act on a target is, in words; the target of an act on many is a hash, which stays as it is."""
    match action:
        case Act.RELEASE:
            return f"release of job {target.removeprefix(JOB_TARGET)}"
        case Act.ERASE:
            return f"erasure of job {target.removeprefix(JOB_TARGET)}"
        case Act.LIFT if target.startswith(PAUSE_TARGET):
            return f"resume of queue {target.removeprefix(PAUSE_TARGET)}"
        case Act.LIFT:
            return f"lift of switch {target.removeprefix(TARGET)}"
        case Act.APPROVER:
            return f"registration of approver {target}"
        case Act.PROCEDURE if target.startswith("procedure:"):
            return f"run of procedure {target.removeprefix('procedure:')}"
        case Act.REPAIR:
            return "repair of the ledger"
    return f"{action} of {target}"


def grant_value(grant: Grant, now: datetime) -> dict[str, object]:
    """Return a grant as a JSON object; one past its time is expired, and fields that its scope lacks are null."""
    scope = scope_of(grant)
    return {
        "grant_id": grant.grant_id,
        "state": str(effective_state(grant, now)),
        "version": grant.version,
        "action": grant.action,
        "target": grant.target,
        **{name: getattr(scope, name, None) for name in SCOPE},
        "requested_by": grant.requested_by,
        "approved_by": grant.approved_by,
        "approved_via": approval_method(grant),
        "consumed_by": grant.consumed_by,
        "reason": grant.reason,
        "expires_at": time_text(grant.expires_at),
        "created_at": time_text(grant.created_at),
        "updated_at": time_text(grant.updated_at),
    }


def release_candidates(reading: Reading, grant: Grant) -> tuple[list[int], list[int]] | None:
    """Return the jobs that a release was requested for: their ids, and the version of each; None if none are stored."""
    for content in reading.grants.evidence(grant.grant_id, CANDIDATES):
        job_ids, versions = unpacked(content)
        if MANY_TARGET + candidates_hash(job_ids) == grant.target:
            return job_ids, versions
    return None


def replay_selection(reading: Reading, grant: Grant) -> Selection | None:
    """Return the selection that a replay was requested for; None if it is not stored."""
    scope = scope_of(grant)
    for content in reading.grants.evidence(grant.grant_id, SELECTION):
        found = msgspec.json.decode(content, type=Selection)
        if scope is not None and found.hash == scope.plan:
            return found
    return None


def _selected(selection: Selection) -> str:
    filters = selection.filters
    named = {
        "operation": filters.operations,
        "queue": filters.queues,
        "code": filters.error_codes,
        "job": filters.jobs,
    }
    said = [
        f"{name} {', '.join(values[:5])}{', …' if len(values) > 5 else ''}" for name, values in named.items() if values
    ]
    return "failed jobs" + (f" of {'; '.join(said)}" if said else "")
