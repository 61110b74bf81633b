"""Pages that confirm an act: what will happen, to what, on which ledger, and what it takes.

Invariants: a confirmation names the record and the environment; it carries the version that was shown, so that a move
made meanwhile is refused; it acts only when its form is posted.
"""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from holdfast.console.views.grants import GrantView
from holdfast.console.views.next_steps import NextStep
from holdfast.core.authority import Act
from holdfast.core.environments import DEV
from holdfast.core.errors import InputError
from holdfast.core.governed import Grant
from holdfast.core.machines import GrantState, JobState
from holdfast.core.records import Job
from holdfast.core.spans import counted
from holdfast.governance.approval import environment_of
from holdfast.governance.granted import act_words
from holdfast.governance.quarantine import JOB_TARGET
from holdfast.governance.reasons import Reason
from holdfast.store.transaction import Reading


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a form."""

    name: str
    label: str
    kind: str = "text"  # text, textarea, password or select
    value: str = ""
    help: str = ""
    required: bool = True
    options: tuple[str, ...] = ()


REASON = Field(name="reason", label="Reason", kind="textarea", help="It is stored in the journal with your name.")
ROLLBACK_HELP = "What you do if it turns out to be wrong."


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a page of confirmation shows."""

    title: str
    subject: str
    says: str
    facts: tuple[str, ...] = ()
    action: str  # the address that the form is posted to
    back: str
    button: str  # empty: there is nothing to do
    tone: str = "go"
    governed: bool = False
    hidden: tuple[tuple[str, str], ...] = ()
    fields: tuple[Field, ...] = (REASON,)
    command: str = ""
    links: tuple[NextStep, ...] = ()


def _require(job: Job, condition: bool, why_not: str) -> None:  # noqa: FBT001 - the condition
    if not condition:
        raise InputError(f"Job {job.job_id} is {job.state}{why_not}", next_step=f"See /jobs/{job.job_id}.")


# ---------------------------------------------------------------------------------------------------------------------
# Jobs


def confirm_job(reading: Reading, job_id: int, act: str) -> Confirmation:
    """Return the confirmation of an act on a job; raise InputError if its state does not allow it."""
    job = reading.jobs.get(job_id)
    makers = {"retry": _retry, "cancel": _cancel, "quarantine": _quarantine, "revoke": _revoke}
    if act == "release":
        return _release(reading, job)
    return makers[act](job)


def _of_job(job: Job, act: str) -> dict[str, Any]:
    """Return the fields that the confirmations of all acts on a job share."""
    page = f"/jobs/{job.job_id}"
    return {
        "subject": f"Job {job.job_id} ({job.operation})",
        "action": f"{page}/{act}",
        "back": page,
        "hidden": (("version", str(job.version)),),
        "command": f"holdfast {act} {job.job_id} --reason TEXT",
    }


def _retry(job: Job) -> Confirmation:
    can_retry = job.state is JobState.FAILED and job.may_replay
    _require(job, can_retry, "; only a failed job with attempts left can be retried.")
    left = job.max_attempts + job.replay_attempts - job.spent
    return Confirmation(
        **_of_job(job, "retry"),
        title=f"Retry job {job.job_id}",
        says="It becomes pending and runs as soon as a worker is free.",
        facts=(
            f"It has used {counted(job.spent, 'attempt')}; {left} more {'is' if left == 1 else 'are'} allowed.",
            "Its effects still take place once.",
            f"Last error: {job.last_error_code or 'none'}.",
        ),
        button="Retry the job",
    )


def _cancel(job: Job) -> Confirmation:
    _require(job, job.state in (JobState.PENDING, JobState.RUNNING, JobState.FAILED), " and cannot be cancelled.")
    running = job.state is JobState.RUNNING
    says = (
        "Its worker is requested to stop. If the attempt commits first, the job succeeds; else it goes to quarantine."
        if running
        else "It goes to quarantine; only a release brings it back."
    )
    title = f"Cancel job {job.job_id}"
    return Confirmation(**_of_job(job, "cancel"), title=title, says=says, button="Cancel the job", tone="bad")


def _quarantine(job: Job) -> Confirmation:
    can_wait = job.state in (JobState.PENDING, JobState.FAILED)
    _require(job, can_wait, "; only a pending or failed job can be quarantined.")
    codes = tuple(sorted(str(one) for one in Reason if one != Reason.CANCELLED))
    code = Field(name="code", label="Code", kind="select", options=codes, value=codes[0])
    return Confirmation(
        **_of_job(job, "quarantine") | {"command": f"holdfast quarantine add {job.job_id} --code CODE --reason TEXT"},
        title=f"Quarantine job {job.job_id}",
        says="It does not run until it is released.",
        button="Quarantine the job",
        tone="bad",
        fields=(code, REASON),
    )


def _revoke(job: Job) -> Confirmation:
    _require(job, job.state is JobState.RUNNING, "; it holds no lease.")
    return Confirmation(
        **_of_job(job, "revoke"),
        title=f"End the attempt of job {job.job_id}",
        says="The lease is taken from its worker, which can no longer write anything for the job. The attempt counts.",
        facts=("If its handler does not stop within 10 seconds, other jobs get its slot.",),
        button="End the attempt",
        tone="bad",
    )


def _release(reading: Reading, job: Job) -> Confirmation:
    gone = " and its payload is gone; it cannot be released."
    why_not = gone if job.slimmed else "; only a quarantined job is released."
    _require(job, job.state is JobState.QUARANTINED and not job.slimmed, why_not)
    made = Confirmation(
        **_of_job(job, "release") | {"command": f"holdfast quarantine release {job.job_id} --reason TEXT"},
        title=f"Release job {job.job_id}",
        says="It becomes pending and runs again.",
        button="Release the job",
    )
    return confirm_governed(reading, Act.RELEASE, f"{JOB_TARGET}{job.job_id}", made)


# ---------------------------------------------------------------------------------------------------------------------
# Governed acts: with a grant they are confirmed, without one the grant is requested


def open_grants(reading: Reading, act: str, target: str) -> list[Grant]:
    """Return the grants for an act on a target that wait or are approved, and have not expired."""
    return [grant for grant in reading.grants.open_for(act, target) if grant.expires_at > reading.now()]


def confirm_governed(reading: Reading, act: Act, target: str, made: Confirmation) -> Confirmation:
    """Return the confirmation of an act under its grant; if it needs one and has none, the request of the grant."""
    grants = open_grants(reading, act, target)
    grant = next((one for one in reversed(grants) if one.state is GrantState.ACTIVE), None)
    if grant is None and environment_of(reading) != DEV:
        return request_grant(act, target, back=made.back, waiting=grants[-1] if grants else None)
    if grant is None:
        fact = "In dev no other person has to approve: a grant is made and used at once, and the journal says so."
        return msgspec.structs.replace(made, governed=True, facts=(fact,))
    fact, named = f"It uses grant {grant.grant_id}, approved by {grant.approved_by}.", ("grant_id", str(grant.grant_id))
    return msgspec.structs.replace(made, governed=True, facts=(fact,), hidden=(*made.hidden, named))


def request_grant(
    act: str, target: str, *, back: str, plan: str = "", waiting: Grant | None = None, words: str | None = None
) -> Confirmation:
    """Return the page that requests a grant for one act on one target; `words` say it to people."""
    words = words or act_words(act, target)
    facts: tuple[str, ...] = ("Another person must approve it before the act.",)
    links: tuple[NextStep, ...] = ()
    if waiting is not None:
        facts = (f"Grant {waiting.grant_id} for this already waits for an approver.",)
        links = (NextStep(f"Grant {waiting.grant_id}", f"/grants/{waiting.grant_id}"),)
    return Confirmation(
        title="Request a grant",
        subject=words[:1].upper() + words[1:],
        says=f"A grant permits the {words}, once, until it expires.",
        facts=facts,
        action="/grants/new",
        back=back,
        button="Request the grant",
        governed=True,
        hidden=(("action", str(act)), ("target", target), *((("plan", plan),) if plan else ())),
        fields=(
            REASON,
            Field(name="rollback_plan", label="How it is undone", kind="textarea", help=ROLLBACK_HELP),
            Field(name="ttl_minutes", label="Expires after, in minutes", value="120"),
        ),
        command=f"holdfast grant request {act} {shlex.quote(target)} --executor NAME"
        " --rollback-plan TEXT --reason TEXT",
        links=links,
    )


def confirm_grant(found: GrantView, act: str, *, password: bool) -> Confirmation:
    grant, page = found.row.grant, f"/grants/{found.row.grant.grant_id}"
    exact = f"{found.about.words}, by {found.executor}"
    why = f"{grant.requested_by} requested it: “{found.requested_why}”."
    if act == "revoke":
        return Confirmation(
            title=f"Revoke grant {grant.grant_id}",
            subject=f"Grant {grant.grant_id}",
            says="It can no longer be approved or used.",
            facts=(f"It permits the {exact}.", why),
            action=f"{page}/revoke",
            back=page,
            button="Revoke the grant",
            tone="bad",
            command=f"holdfast grant revoke {grant.grant_id} --reason TEXT",
        )
    jobs = ", ".join(f"{name} {n}" for name, n in found.operations.items())
    field = Field(name="password", label="Your password", kind="password", help="It proves that it is you.")
    return Confirmation(
        title=f"Approve grant {grant.grant_id}",
        subject=f"Grant {grant.grant_id}",
        says=f"You permit exactly this, once: the {exact}.",
        facts=(
            why,
            *([f"Jobs by operation: {jobs}."] if jobs else []),
            f"How it is undone: “{found.rollback_plan}”.",
            f"It is for the {found.environment} ledger. Its page shows the target and samples of the jobs.",
        ),
        action=f"{page}/approve",
        back=page,
        button="Approve the grant",
        governed=True,
        fields=(msgspec.structs.replace(REASON, required=False), *((field,) if password else ())),
        command=f"holdfast grant approve {grant.grant_id} --reason TEXT",
    )
