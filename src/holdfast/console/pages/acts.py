"""The acts on one job, queue, switch, schedule or grant: at each address the page that confirms an act, and its form.

A form has `csrf_token` and `reason`; a form about a job also its `version` as the page showed it. A posted form calls
one act, then leads to the page that shows the result (303).

Invariants: a refused act is shown by the error page, with its code, its message and the next step; every form declares
a permission that writes.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from litestar import Controller, get, post
from litestar.params import FromPath, URLEncodedBody
from litestar.response import Redirect, Template

from holdfast.console import acts, governed_acts
from holdfast.console.forms import ActForm, ApproveForm, GrantForm, number
from holdfast.console.injected import AnyRequest, ConsoleHere, Here
from holdfast.console.pages.frame import confirmed, job_number, live_of, params_of
from holdfast.console.render import base_of
from holdfast.console.security.callers import Permission
from holdfast.console.security.login import address_of
from holdfast.console.views.confirm import confirm_grant, confirm_job, request_grant
from holdfast.console.views.confirm_ledger import confirm_queue, confirm_schedule, confirm_switch
from holdfast.console.views.grants import grant_view
from holdfast.console.views.jobs import text_in
from holdfast.console.views.links import name_of
from holdfast.core.authority import Act
from holdfast.core.errors import InputError
from holdfast.governance.switches import require_known_switch
from holdfast.scheduling.schedules import get as schedule_named
from holdfast.store.verbs.known_queues import require_queue

VIEW: dict[str, Any] = {"opt": {"permission": Permission.VIEW}, "sync_to_thread": True}
ActBody = URLEncodedBody[ActForm]


class Acts(Controller):
    """The base of all controllers of acts."""

    include_in_schema = False
    opt = {"permission": Permission.OPERATE}  # noqa: RUF012 - Litestar's own convention


def _confirm_job(_acts: Controller, request: AnyRequest, console: ConsoleHere, job_id: FromPath[int]) -> Template:
    with console.store.reading() as reading:
        view = confirm_job(reading, job_number(job_id), act_of(request))
    return confirmed(request, "/jobs", view)


class JobActs(Acts):
    """Acts on one job."""

    path = "/jobs/{job_id:int}"

    page_retry, page_cancel, page_quarantine, page_revoke, page_release = (
        get(f"/{act}", **VIEW)(_confirm_job) for act in ("retry", "cancel", "quarantine", "revoke", "release")
    )

    @post("/retry", sync_to_thread=True)
    def retry(self, request: AnyRequest, here: Here, job_id: FromPath[int], data: ActBody) -> Redirect:
        acts.retry(here, job_id, reason=data.reason, version=number(data.version, "version"))
        return _job(request, job_id)

    @post("/cancel", sync_to_thread=True)
    def cancel(self, request: AnyRequest, here: Here, job_id: FromPath[int], data: ActBody) -> Redirect:
        acts.cancel(here, job_id, reason=data.reason, version=number(data.version, "version"))
        return _job(request, job_id)

    @post("/revoke", sync_to_thread=True)
    def revoke(self, request: AnyRequest, here: Here, job_id: FromPath[int], data: ActBody) -> Redirect:
        acts.revoke_lease(here, job_id, reason=data.reason, version=number(data.version, "version"))
        return _job(request, job_id)

    @post("/quarantine", sync_to_thread=True)
    def quarantine(self, request: AnyRequest, here: Here, job_id: FromPath[int], data: ActBody) -> Redirect:
        version = number(data.version, "version")
        acts.quarantine(here, job_id, data.code, reason=data.reason, version=version)
        return _job(request, job_id)

    @post("/release", sync_to_thread=True)
    def release(self, request: AnyRequest, here: Here, job_id: FromPath[int], data: ActBody) -> Redirect:
        version, grant_id = number(data.version, "version"), number(data.grant_id, "grant_id")
        governed_acts.release(here, job_id, reason=data.reason, grant_id=grant_id, version=version)
        return _job(request, job_id)


def _confirm_queue(_acts: Controller, request: AnyRequest, console: ConsoleHere, queue: FromPath[str]) -> Template:
    with console.store.reading() as reading:
        name = text_in(name_of(queue), "queue")
        require_queue(reading, name)
        view = confirm_queue(reading, name, act_of(request))
    return confirmed(request, "/queues", view)


class QueueActs(Acts):
    """Acts on one queue."""

    path = "/queues/{queue:str}"

    page_pause, page_resume = (get(f"/{act}", **VIEW)(_confirm_queue) for act in ("pause", "resume"))

    @post("/pause", sync_to_thread=True)
    def pause(self, request: AnyRequest, here: Here, queue: FromPath[str], data: ActBody) -> Redirect:
        acts.pause_queue(here, name_of(queue), reason=data.reason)
        return to(request, "queues", queue)

    @post("/resume", sync_to_thread=True)
    def resume(self, request: AnyRequest, here: Here, queue: FromPath[str], data: ActBody) -> Redirect:
        grant_id = number(data.grant_id, "grant_id")
        acts.resume_queue(here, name_of(queue), reason=data.reason, grant_id=grant_id)
        return to(request, "queues", queue)


def _confirm_switch(_acts: Controller, request: AnyRequest, console: ConsoleHere, name: FromPath[str]) -> Template:
    with console.store.reading() as reading:
        switch = text_in(name_of(name), "switch")
        require_known_switch(reading, switch)
        view = confirm_switch(reading, switch, act_of(request))
    return confirmed(request, "/switches", view)


class SwitchActs(Acts):
    """Acts on one switch."""

    path = "/switches/{name:str}"

    page_throw, page_lift = (get(f"/{act}", **VIEW)(_confirm_switch) for act in ("throw", "lift"))

    @post("/throw", sync_to_thread=True)
    def throw(self, request: AnyRequest, here: Here, name: FromPath[str], data: ActBody) -> Redirect:
        acts.throw_switch(here, name_of(name), reason=data.reason)
        return to(request, "switches")

    @post("/lift", sync_to_thread=True)
    def lift(self, request: AnyRequest, here: Here, name: FromPath[str], data: ActBody) -> Redirect:
        grant_id = number(data.grant_id, "grant_id")
        acts.lift_switch(here, name_of(name), reason=data.reason, grant_id=grant_id)
        return to(request, "switches")


def _confirm_schedule(_acts: Controller, request: AnyRequest, console: ConsoleHere, name: FromPath[str]) -> Template:
    with console.store.reading() as reading:
        found = schedule_named(reading, text_in(name_of(name), "schedule"))
    return confirmed(request, "/schedules", confirm_schedule(found.name, act_of(request)))


class ScheduleActs(Acts):
    """Acts on one schedule."""

    path = "/schedules/{name:str}"

    page_pause, page_resume, page_trigger = (
        get(f"/{act}", **VIEW)(_confirm_schedule) for act in ("pause", "resume", "trigger")
    )

    @post("/pause", sync_to_thread=True)
    def pause(self, request: AnyRequest, here: Here, name: FromPath[str], data: ActBody) -> Redirect:
        acts.pause_schedule(here, name_of(name), reason=data.reason)
        return to(request, "schedules")

    @post("/resume", sync_to_thread=True)
    def resume(self, request: AnyRequest, here: Here, name: FromPath[str], data: ActBody) -> Redirect:
        acts.resume_schedule(here, name_of(name), reason=data.reason)
        return to(request, "schedules")

    @post("/trigger", sync_to_thread=True)
    def trigger(self, request: AnyRequest, here: Here, name: FromPath[str], data: ActBody) -> Redirect:
        return _job(request, acts.trigger_schedule(here, name_of(name), reason=data.reason))


def _confirm_grant(_acts: Controller, request: AnyRequest, console: ConsoleHere, grant_id: FromPath[int]) -> Template:
    act = act_of(request)
    with console.store.reading() as reading:
        found = grant_view(reading, job_number(grant_id), console.store.now())
        view = confirm_grant(found, act, password=console.accounts is not None)
    return confirmed(request, "/grants", view, Permission.APPROVE if act == "approve" else Permission.REVOKE)


class GrantActs(Acts):
    """Acts on grants."""

    path = "/grants"

    @get("/new", **VIEW)
    def new(self, request: AnyRequest) -> Template:
        """Request a grant for an act and a target of the address."""
        given = params_of(request)
        action, target = text_in(given.get("action", ""), "action"), text_in(given.get("target", ""), "target")
        if action not in list(Act) or not target:
            raise InputError(
                "The address needs an action and a target.", next_step=f"Use one of {', '.join(Act)} as the action."
            )
        plan = text_in(given.get("plan", ""), "plan")
        return confirmed(request, "/grants", request_grant(action, target, back="/grants", plan=plan))

    @post("/new", sync_to_thread=True)
    def request_grant(self, request: AnyRequest, here: Here, data: URLEncodedBody[GrantForm]) -> Redirect:
        selection = data.selection(here.console.environment, here.store.now())
        made = governed_acts.request_grant(here, data.request(), selection)
        return to(request, "grants", str(made.grant_id))

    page_approve, page_revoke = (
        get(f"/{{grant_id:int}}/{act}", **VIEW)(_confirm_grant) for act in ("approve", "revoke")
    )

    @post("/{grant_id:int}/approve", opt={"permission": Permission.APPROVE}, sync_to_thread=True)
    def approve(
        self, request: AnyRequest, here: Here, grant_id: FromPath[int], data: URLEncodedBody[ApproveForm]
    ) -> Redirect:
        governed_acts.approve_grant(
            here, grant_id, reason=data.reason, password=data.password, address=address_of(request)
        )
        return to(request, "grants", str(grant_id))

    @post("/{grant_id:int}/revoke", opt={"permission": Permission.REVOKE}, sync_to_thread=True)
    def revoke(self, request: AnyRequest, here: Here, grant_id: FromPath[int], data: ActBody) -> Redirect:
        governed_acts.revoke_grant(here, grant_id, reason=data.reason)
        return to(request, "grants", str(grant_id))


# ---------------------------------------------------------------------------------------------------------------------
# Addresses


def act_of(request: AnyRequest) -> str:
    """Return the act that an address names: its last part."""
    return str(request.scope["path"]).rpartition("/")[2]


def _job(request: AnyRequest, job_id: int) -> Redirect:
    return to(request, "jobs", str(job_id))


def to(request: AnyRequest, *parts: str) -> Redirect:
    """Return the redirect to the page that shows what an act did."""
    live_of(request).expire()
    return Redirect("/".join([base_of(request), *(quote(part, safe="") for part in parts)]), status_code=303)
