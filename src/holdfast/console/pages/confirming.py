"""The pages that lead to a form, each at the address that its form is posted to.

Litestar cannot merge two controllers at one address, so these extend those of `console/posts.py`, and take their place.
"""

from __future__ import annotations

import shlex
from typing import Any

from litestar import Controller, get
from litestar.params import FromPath
from litestar.response import Redirect, Template

from holdfast.console.forms import many_act_of
from holdfast.console.injected import CallerHere, ConsoleHere, Here
from holdfast.console.pages.frame import AnyRequest, confirmed, job_number, names_of, params_of, permission_of, shown
from holdfast.console.posts import GrantActs, JobActs, LedgerActs, QueueActs, ScheduleActs, SwitchActs
from holdfast.console.render import base_of
from holdfast.console.security.callers import Permission
from holdfast.console.selections import JobSelection
from holdfast.console.views.confirm import confirm_grant, confirm_job, request_grant
from holdfast.console.views.confirm_ledger import (
    confirm_queue,
    confirm_recovery,
    confirm_replay,
    confirm_replay_grant,
    confirm_run,
    confirm_schedule,
    confirm_switch,
)
from holdfast.console.views.grants import grant_view
from holdfast.console.views.jobs import job_query, number_in, text_in
from holdfast.console.views.links import name_of, path
from holdfast.console.views.many import many_view
from holdfast.console.views.replays import Draft, draft_of, replay_look
from holdfast.core.authority import Act
from holdfast.core.errors import InputError
from holdfast.governance.approval import existing_grant
from holdfast.governance.granted import granted
from holdfast.governance.releases import MANY_MAX
from holdfast.governance.replay.record import run_known
from holdfast.governance.switches import require_known_switch
from holdfast.scheduling.schedules import get as schedule_named
from holdfast.store.verbs.known_queues import require_queue

STEPS = ("select", "look", "request", "run")
VIEW: dict[str, Any] = {"opt": {"permission": Permission.VIEW}, "include_in_schema": False, "sync_to_thread": True}


def _act(request: AnyRequest) -> str:
    """Return the act that an address names: its last part."""
    return str(request.scope["path"]).rpartition("/")[2]


def _confirm_job_act(_forms: Controller, request: AnyRequest, console: ConsoleHere, job_id: FromPath[int]) -> Template:
    with console.store.reading() as reading:
        view = confirm_job(reading, job_number(job_id), _act(request))
    return confirmed(request, "/jobs", view)


def _confirm_queue_act(_forms: Controller, request: AnyRequest, console: ConsoleHere, queue: FromPath[str]) -> Template:
    with console.store.reading() as reading:
        name = text_in(name_of(queue), "queue")
        require_queue(reading, name)
        view = confirm_queue(reading, name, _act(request))
    return confirmed(request, "/queues", view)


def _confirm_switch_act(_forms: Controller, request: AnyRequest, console: ConsoleHere, name: FromPath[str]) -> Template:
    with console.store.reading() as reading:
        switch = text_in(name_of(name), "switch")
        require_known_switch(reading, switch)
        view = confirm_switch(reading, switch, _act(request))
    return confirmed(request, "/switches", view)


def _confirm_schedule_act(
    _forms: Controller, request: AnyRequest, console: ConsoleHere, name: FromPath[str]
) -> Template:
    with console.store.reading() as reading:
        found = schedule_named(reading, text_in(name_of(name), "schedule"))
    return confirmed(request, "/schedules", confirm_schedule(found.name, _act(request)))


def _confirm_replay_act(
    _forms: Controller, request: AnyRequest, console: ConsoleHere, run_id: FromPath[str]
) -> Template:
    with console.store.reading() as reading:
        run = text_in(name_of(run_id), "run")
        run_known(reading, run)
    return confirmed(request, "/replays", confirm_replay(run, _act(request)))


def _confirm_grant_act(
    _forms: Controller, request: AnyRequest, console: ConsoleHere, grant_id: FromPath[int]
) -> Template:
    act = _act(request)
    with console.store.reading() as reading:
        found = grant_view(reading, job_number(grant_id), console.store.now())
        view = confirm_grant(found, act, password=console.accounts is not None)
    return confirmed(request, "/grants", view, Permission.APPROVE if act == "approve" else Permission.REVOKE)


def _new_grant(_forms: Controller, request: AnyRequest) -> Template:
    """Request a grant for an act and a target of the address."""
    given = params_of(request)
    action, target = text_in(given.get("action", ""), "action"), text_in(given.get("target", ""), "target")
    if action not in list(Act) or not target:
        raise InputError(
            "The address needs an action and a target.", next_step=f"Use one of {', '.join(Act)} as the action."
        )
    plan = text_in(given.get("plan", ""), "plan")
    return confirmed(request, "/grants", request_grant(action, target, back="/grants", plan=plan))


def _confirm_recovery(_forms: Controller, request: AnyRequest, console: ConsoleHere) -> Template:
    with console.store.reading() as reading:
        _, expired = reading.lists.leases(console.store.now())
    return confirmed(request, "/workers", confirm_recovery(expired))


def _confirm_many(_forms: Controller, request: AnyRequest, here: Here) -> Template | Redirect:
    """Show what an act on several jobs would do: on those with these ids, or on all that match the filters."""
    given = request.query_params
    one = {name: values[-1] for name in given if (values := given.getall(name)) and name != "id"}
    query, every = job_query(one), one.get("all") == "yes"
    ticked = [] if every else given.getall("id", [])[: MANY_MAX + 1]
    ids = tuple(dict.fromkeys(number_in(text, "id") for text in ticked))
    if one.get("grant"):
        with here.store.reading() as reading:
            ids = granted(reading, existing_grant(reading, number_in(one["grant"], "grant"))).job_ids
    if not ids and not every:
        raise InputError(
            "No job is selected.", next_step="Go back, tick some jobs, or choose all that match the filters."
        )
    if one.get("act") == "replay":
        draft = path("/replays", "new", jobs=",".join(map(str, ids)), step="look") if ids else query.replay
        return Redirect(base_of(request) + draft, status_code=303)
    act, now = many_act_of(one.get("act", "")), here.store.now()
    selection = JobSelection(jobs=ids) if ids else query.selection(now)
    view = many_view(here, act, selection, back=query.address())
    return shown(request, "many.html", "/jobs", view=view, **permission_of(request))


def _new_replay(_forms: Controller, request: AnyRequest, console: ConsoleHere, caller: CallerHere) -> Template:
    """Lead from a selection through a dry run and a grant to the run."""
    given = params_of(request)
    step = given.get("step") or "select"
    if step not in STEPS:
        raise InputError(f"Unknown step; use one of {', '.join(STEPS)}.", context={"field": "step"})
    draft = draft_of(given, console.store.now())
    if step == "select":
        with console.store.reading() as reading:
            names = names_of(reading)
        return shown(request, "replay_new.html", "/replays", step=step, draft=draft, look=None, **names)
    look = replay_look(console.store, draft, actor=caller.actor)
    if step == "run":
        return confirmed(request, "/replays", confirm_run(look))
    if step == "request":
        return confirmed(request, "/replays", confirm_replay_grant(look))
    return shown(request, "replay_new.html", "/replays", step=step, draft=draft, look=look, command=_command(draft))


def _command(draft: Draft) -> str:
    """Return the command that makes the same dry run."""
    flags = {
        "--operation": draft.operation,
        "--queue": draft.queue,
        "--error-code": draft.code,
        "--created-after": draft.since,
        "--created-before": draft.until,
        "--limit": None if draft.limit is None else str(draft.limit),
    }
    named = [f"{flag} {shlex.quote(value)}" for flag, value in flags.items() if value]
    return " ".join(["holdfast replay dry-run", *named])


class JobForms(JobActs):
    """The acts on a job, and the pages that confirm them."""

    page_retry, page_cancel, page_quarantine, page_revoke, page_release = (
        get(f"/{act}", **VIEW)(_confirm_job_act) for act in ("retry", "cancel", "quarantine", "revoke", "release")
    )


class QueueForms(QueueActs):
    """The acts on a queue, and the pages that confirm them."""

    page_pause, page_resume = (get(f"/{act}", **VIEW)(_confirm_queue_act) for act in ("pause", "resume"))


class SwitchForms(SwitchActs):
    """The acts on a switch, and the pages that confirm them."""

    page_throw, page_lift = (get(f"/{act}", **VIEW)(_confirm_switch_act) for act in ("throw", "lift"))


class ScheduleForms(ScheduleActs):
    """The acts on a schedule, and the pages that confirm them."""

    page_pause, page_resume, page_trigger = (
        get(f"/{act}", **VIEW)(_confirm_schedule_act) for act in ("pause", "resume", "trigger")
    )


class LedgerForms(LedgerActs):
    """The acts on what spans the ledger, and the pages that lead to them."""

    page_stop, page_continue = (
        get(f"/replays/{{run_id:str}}/{act}", **VIEW)(_confirm_replay_act) for act in ("stop", "continue")
    )
    page_many = get("/jobs/act", **VIEW)(_confirm_many)
    page_recover = get("/recover", **VIEW)(_confirm_recovery)
    page_replay = get("/replays/new", **VIEW)(_new_replay)


class GrantForms(GrantActs):
    """The acts on a grant, and the pages that lead to them."""

    page_approve, page_revoke = (
        get(f"/{{grant_id:int}}/{act}", **VIEW)(_confirm_grant_act) for act in ("approve", "revoke")
    )
    page_new = get("/new", **VIEW)(_new_grant)


FORMS: list[type[Controller]] = [JobForms, QueueForms, SwitchForms, ScheduleForms, LedgerForms, GrantForms]
