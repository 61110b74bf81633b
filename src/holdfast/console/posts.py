"""What the forms of the pages post: each route calls one act, then leads to the page that shows the result (303).

A form has `csrf_token` and `reason`; a form about a job also its `version` as the page showed it. Each address is that
of the page which confirms the act.

Invariants: a refused act is shown by the error page, with its code, its message and the next step; every route here
declares a permission that writes.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from litestar import Controller, Request, post
from litestar.params import FromPath, URLEncodedBody
from litestar.response import Redirect, Template

from holdfast.console import acts, governed_acts, many
from holdfast.console.forms import (
    ActForm,
    ApproveForm,
    GrantForm,
    ManyForm,
    ReleaseForm,
    ReplayForm,
    many_act_of,
    number,
)
from holdfast.console.injected import Here
from holdfast.console.pages.frame import live_of, shown
from holdfast.console.render import base_of
from holdfast.console.security.callers import Permission
from holdfast.console.security.login import address_of
from holdfast.console.views.links import name_of
from holdfast.core.errors import InputError

AnyRequest = Request[Any, Any, Any]
ActBody = URLEncodedBody[ActForm]


class _Acts(Controller):
    include_in_schema = False
    opt = {"permission": Permission.OPERATE}  # noqa: RUF012 - Litestar's own convention


class JobActs(_Acts):
    """Acts on one job."""

    path = "/jobs/{job_id:int}"

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


class QueueActs(_Acts):
    """Acts on one queue."""

    path = "/queues/{queue:str}"

    @post("/pause", sync_to_thread=True)
    def pause(self, request: AnyRequest, here: Here, queue: FromPath[str], data: ActBody) -> Redirect:
        acts.pause_queue(here, name_of(queue), reason=data.reason)
        return _to(request, "queues", queue)

    @post("/resume", sync_to_thread=True)
    def resume(self, request: AnyRequest, here: Here, queue: FromPath[str], data: ActBody) -> Redirect:
        grant_id = number(data.grant_id, "grant_id")
        acts.resume_queue(here, name_of(queue), reason=data.reason, grant_id=grant_id)
        return _to(request, "queues", queue)


class SwitchActs(_Acts):
    """Acts on one switch."""

    path = "/switches/{name:str}"

    @post("/throw", sync_to_thread=True)
    def throw(self, request: AnyRequest, here: Here, name: FromPath[str], data: ActBody) -> Redirect:
        acts.throw_switch(here, name_of(name), reason=data.reason)
        return _to(request, "switches")

    @post("/lift", sync_to_thread=True)
    def lift(self, request: AnyRequest, here: Here, name: FromPath[str], data: ActBody) -> Redirect:
        grant_id = number(data.grant_id, "grant_id")
        acts.lift_switch(here, name_of(name), reason=data.reason, grant_id=grant_id)
        return _to(request, "switches")


class ScheduleActs(_Acts):
    """Acts on one schedule."""

    path = "/schedules/{name:str}"

    @post("/pause", sync_to_thread=True)
    def pause(self, request: AnyRequest, here: Here, name: FromPath[str], data: ActBody) -> Redirect:
        acts.pause_schedule(here, name_of(name), reason=data.reason)
        return _to(request, "schedules")

    @post("/resume", sync_to_thread=True)
    def resume(self, request: AnyRequest, here: Here, name: FromPath[str], data: ActBody) -> Redirect:
        acts.resume_schedule(here, name_of(name), reason=data.reason)
        return _to(request, "schedules")

    @post("/trigger", sync_to_thread=True)
    def trigger(self, request: AnyRequest, here: Here, name: FromPath[str], data: ActBody) -> Redirect:
        return _job(request, acts.trigger_schedule(here, name_of(name), reason=data.reason))


class LedgerActs(_Acts):
    """Acts on what spans the ledger: recovery, releases of several jobs, replays, requests of grants."""

    @post("/recover", sync_to_thread=True)
    def recover(self, request: AnyRequest, here: Here, data: ActBody) -> Redirect:
        acts.recover(here, reason=data.reason)
        return _to(request, "workers")

    @post("/jobs/act", status_code=200, sync_to_thread=True)
    def act_on_many(self, request: AnyRequest, here: Here, data: URLEncodedBody[ManyForm]) -> Template:
        """Act on several jobs and show the result. A form sent twice changes nothing more: the jobs have moved."""
        grant_id = number(data.grant_id, "grant_id")
        act = many_act_of(data.act)
        done = many.perform(here, act, data.chosen(), reason=data.reason, grant_id=grant_id)
        live_of(request).expire()
        return shown(request, "many_done.html", "/jobs", view=done)

    @post("/quarantine/release", sync_to_thread=True)
    def release(self, request: AnyRequest, here: Here, data: URLEncodedBody[ReleaseForm]) -> Redirect:
        expected = number(data.expected, "expected")
        if expected is None:
            raise InputError("The number of jobs is required.", context={"field": "expected"})
        grant_id = number(data.grant_id, "grant_id")
        ids = data.ids()
        governed_acts.release_many(here, ids, reason=data.reason, expected=expected, grant_id=grant_id)
        return _to(request, "quarantine")

    @post("/quarantine/request", sync_to_thread=True)
    def request_release(self, request: AnyRequest, here: Here, data: URLEncodedBody[ReleaseForm]) -> Redirect:
        made = governed_acts.request_release(
            here,
            data.ids(),
            reason=data.reason,
            rollback_plan=data.rollback_plan,
            expected=number(data.expected, "expected"),
        )
        return _to(request, "grants", str(made.grant.grant_id))

    @post("/replays/new", sync_to_thread=True)
    def run_replay(self, request: AnyRequest, here: Here, data: URLEncodedBody[ReplayForm]) -> Redirect:
        run_id = governed_acts.run_replay(
            here,
            data.draft(here.store.now()).selection(here.console.environment),
            reason=data.reason,
            replay_reason=data.replay_reason,
            candidates_hash=data.candidates_hash,
            total=number(data.total, "total") or 0,
            grant_id=number(data.grant_id, "grant_id"),
        )
        return _to(request, "replays", run_id)

    @post("/replays/{run_id:str}/stop", sync_to_thread=True)
    def stop_replay(self, request: AnyRequest, here: Here, run_id: FromPath[str], data: ActBody) -> Redirect:
        governed_acts.stop_replay(here, name_of(run_id), reason=data.reason)
        return _to(request, "replays", run_id)

    @post("/replays/{run_id:str}/continue", sync_to_thread=True)
    def continue_replay(self, request: AnyRequest, here: Here, run_id: FromPath[str], data: ActBody) -> Redirect:
        grant_id = number(data.grant_id, "grant_id")
        governed_acts.continue_replay(here, name_of(run_id), reason=data.reason, grant_id=grant_id)
        return _to(request, "replays", run_id)


class GrantActs(_Acts):
    """Acts on grants."""

    path = "/grants"

    @post("/new", sync_to_thread=True)
    def request_grant(self, request: AnyRequest, here: Here, data: URLEncodedBody[GrantForm]) -> Redirect:
        selection = data.selection(here.console.environment, here.store.now())
        made = governed_acts.request_grant(here, data.request(), selection)
        return _to(request, "grants", str(made.grant_id))

    @post("/{grant_id:int}/approve", opt={"permission": Permission.APPROVE}, sync_to_thread=True)
    def approve(
        self, request: AnyRequest, here: Here, grant_id: FromPath[int], data: URLEncodedBody[ApproveForm]
    ) -> Redirect:
        governed_acts.approve_grant(
            here, grant_id, reason=data.reason, password=data.password, address=address_of(request)
        )
        return _to(request, "grants", str(grant_id))

    @post("/{grant_id:int}/revoke", opt={"permission": Permission.REVOKE}, sync_to_thread=True)
    def revoke(self, request: AnyRequest, here: Here, grant_id: FromPath[int], data: ActBody) -> Redirect:
        governed_acts.revoke_grant(here, grant_id, reason=data.reason)
        return _to(request, "grants", str(grant_id))


# ---------------------------------------------------------------------------------------------------------------------
# Addresses


def _job(request: AnyRequest, job_id: int) -> Redirect:
    return _to(request, "jobs", str(job_id))


def _to(request: AnyRequest, *parts: str) -> Redirect:
    live_of(request).expire()
    return Redirect("/".join([base_of(request), *(quote(part, safe="") for part in parts)]), status_code=303)
