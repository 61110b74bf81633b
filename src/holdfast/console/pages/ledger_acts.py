"""The acts on what spans the ledger, and the pages that lead to them: recovery, several jobs, replays.

Invariants: as in `acts.py`.
"""

from __future__ import annotations

import shlex

from litestar import Controller, get, post
from litestar.params import FromPath, URLEncodedBody
from litestar.response import Redirect, Template

from holdfast.console import acts, governed_acts, many
from holdfast.console.forms import ManyForm, ReleaseForm, ReplayForm, many_act_of, number
from holdfast.console.injected import AnyRequest, CallerHere, ConsoleHere, Here
from holdfast.console.pages.acts import VIEW, ActBody, Acts, act_of, to
from holdfast.console.pages.frame import confirmed, live_of, names_of, params_of, permission_of, shown
from holdfast.console.render import base_of
from holdfast.console.selections import JobSelection
from holdfast.console.views.confirm_ledger import confirm_recovery, confirm_replay, confirm_replay_grant, confirm_run
from holdfast.console.views.jobs import job_query, number_in, text_in
from holdfast.console.views.links import name_of, path
from holdfast.console.views.many import many_view
from holdfast.console.views.replays import Draft, draft_of, replay_look
from holdfast.core.errors import InputError
from holdfast.governance.approval import existing_grant
from holdfast.governance.granted import granted
from holdfast.governance.releases import MANY_MAX
from holdfast.governance.replay.record import run_known

STEPS = ("select", "look", "request", "run")


def _confirm_replay(_acts: Controller, request: AnyRequest, console: ConsoleHere, run_id: FromPath[str]) -> Template:
    with console.store.reading() as reading:
        run = text_in(name_of(run_id), "run")
        run_known(reading, run)
    return confirmed(request, "/replays", confirm_replay(run, act_of(request)))


class LedgerActs(Acts):
    """Acts on what spans the ledger: recovery, releases of several jobs, replays."""

    @get("/recover", **VIEW)
    def recovery_page(self, request: AnyRequest, console: ConsoleHere) -> Template:
        with console.store.reading() as reading:
            _, expired = reading.lists.leases(console.store.now())
        return confirmed(request, "/workers", confirm_recovery(expired))

    @post("/recover", sync_to_thread=True)
    def recover(self, request: AnyRequest, here: Here, data: ActBody) -> Redirect:
        acts.recover(here, reason=data.reason)
        return to(request, "workers")

    @get("/jobs/act", **VIEW)
    def many_page(self, request: AnyRequest, here: Here) -> Template | Redirect:
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
        return to(request, "quarantine")

    @post("/quarantine/request", sync_to_thread=True)
    def request_release(self, request: AnyRequest, here: Here, data: URLEncodedBody[ReleaseForm]) -> Redirect:
        made = governed_acts.request_release(
            here,
            data.ids(),
            reason=data.reason,
            rollback_plan=data.rollback_plan,
            expected=number(data.expected, "expected"),
        )
        return to(request, "grants", str(made.grant.grant_id))

    @get("/replays/new", **VIEW)
    def replay_page(self, request: AnyRequest, console: ConsoleHere, caller: CallerHere) -> Template:
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
        return to(request, "replays", run_id)

    page_stop, page_continue = (
        get(f"/replays/{{run_id:str}}/{act}", **VIEW)(_confirm_replay) for act in ("stop", "continue")
    )

    @post("/replays/{run_id:str}/stop", sync_to_thread=True)
    def stop_replay(self, request: AnyRequest, here: Here, run_id: FromPath[str], data: ActBody) -> Redirect:
        governed_acts.stop_replay(here, name_of(run_id), reason=data.reason)
        return to(request, "replays", run_id)

    @post("/replays/{run_id:str}/continue", sync_to_thread=True)
    def continue_replay(self, request: AnyRequest, here: Here, run_id: FromPath[str], data: ActBody) -> Redirect:
        grant_id = number(data.grant_id, "grant_id")
        governed_acts.continue_replay(here, name_of(run_id), reason=data.reason, grant_id=grant_id)
        return to(request, "replays", run_id)


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
