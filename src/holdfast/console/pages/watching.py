"""The pages that watch: overview, jobs, failures, queues, schedules, workers, and the stream of the live ones."""

from __future__ import annotations

import shlex

from litestar import get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from litestar.response import Redirect, ServerSentEvent, Template

from holdfast.console.injected import AnyRequest, ConsoleHere
from holdfast.console.pages.frame import Page, job_number, live_of, names_of, params_of, shown
from holdfast.console.render import base_of
from holdfast.console.views.failures import RULE, group_page
from holdfast.console.views.find import find_hits
from holdfast.console.views.job import job_view
from holdfast.console.views.jobs import JobQuery, job_page, job_query, number_in, text_in
from holdfast.console.views.links import name_of
from holdfast.console.views.queue import queue_view
from holdfast.console.views.schedules import schedule_rows
from holdfast.console.views.workers import workers_view
from holdfast.core.machines import JOB, JobState
from holdfast.explain.times import past_moment

LIVE = frozenset({"overview", "tick"})


class OverviewPage(Page):
    """The first page, and the stream that updates the live ones."""

    @get("/", sync_to_thread=True)
    def show(self, request: AnyRequest) -> Template:
        return shown(request, "overview.html", "/", live="overview", view=live_of(request).overview())

    @get("/live/{name:str}")
    async def stream(self, request: AnyRequest, name: FromPath[str]) -> ServerSentEvent:
        """Stream what changes on the overview, or when the other live pages change."""
        if name not in LIVE:
            raise NotFoundException
        caller = request.scope["state"]["caller"]
        caller.require_unlimited()
        return ServerSentEvent(await live_of(request).stream(name, base_of(request), caller))

    @get("/find", sync_to_thread=True)
    def find(self, request: AnyRequest, console: ConsoleHere) -> Template | Redirect:
        """Find what a word names; one hit is opened at once."""
        word = params_of(request).get("q", "").strip()
        with console.store.reading() as reading:
            hits = find_hits(reading, word)
        if len(hits) == 1:
            return Redirect(base_of(request) + hits[0].href, status_code=303)
        return shown(request, "find.html", "", view=hits, word=word)


class JobPages(Page):
    """Lists of jobs, and one job."""

    @get("/jobs", sync_to_thread=True)
    def show(self, request: AnyRequest, console: ConsoleHere) -> Template:
        query = job_query(params_of(request))
        with console.store.reading() as reading:
            view, names = job_page(reading, query, console.store.now()), names_of(reading)
        states = [state.value for state in JobState]
        return shown(request, "jobs.html", "/jobs", view=view, states=states, command=_command(query), **names)

    @get("/jobs/{job_id:int}", sync_to_thread=True)
    def one(self, request: AnyRequest, console: ConsoleHere, job_id: FromPath[int]) -> Template:
        given, now = params_of(request), console.store.now()
        at = past_moment(text_in(given["at"], "at"), "at", now) if given.get("at") else None
        move = number_in(given["move"], "move", 1, 1_000_000) if given.get("move") else None
        with console.store.reading() as reading:
            view = job_view(reading, job_number(job_id), now, at=at, move=move)
        moving = view.at is None and view.job.state not in JOB.final
        return shown(request, "job.html", "/jobs", live="tick" if moving else None, view=view)


def _command(query: JobQuery) -> str:
    """Return the command that lists the same jobs, as far as it has the filters."""
    known = {name: value for name, value in query.named.items() if name in ("state", "operation", "queue", "client")}
    return " ".join(["holdfast jobs", *(f"--{name} {shlex.quote(value)}" for name, value in known.items())])


class FailurePages(Page):
    """Failed jobs, grouped by their error."""

    @get("/failures", sync_to_thread=True)
    def show(self, request: AnyRequest) -> Template:
        return shown(request, "failures.html", "/failures", view=live_of(request).groups(), rule=RULE)

    @get("/failures/{name:str}", sync_to_thread=True)
    def one(self, request: AnyRequest, console: ConsoleHere, name: FromPath[str]) -> Template:
        groups, name = live_of(request).groups(), text_in(name, "group")
        if groups.awaited:  # the console has just started, and this address was opened first
            return shown(request, "failures.html", "/failures", view=groups, rule=RULE)
        with console.store.reading() as reading:
            view = group_page(reading, groups, name)
        return shown(request, "failure.html", "/failures", view=view)


class QueuePages(Page):
    """Queues."""

    @get("/queues", sync_to_thread=True)
    def show(self, request: AnyRequest) -> Template:
        return shown(request, "queues.html", "/queues", live="tick", view=live_of(request).overview().queues)

    @get("/queues/{name:str}", sync_to_thread=True)
    def one(self, request: AnyRequest, console: ConsoleHere, name: FromPath[str]) -> Template:
        groups = live_of(request).groups()
        with console.store.reading() as reading:
            view = queue_view(reading, text_in(name_of(name), "queue"), groups, console.store.now())
        return shown(request, "queue.html", "/queues", live="tick", view=view)


class WorkerPages(Page):
    """Workers."""

    @get("/workers", sync_to_thread=True)
    def show(self, request: AnyRequest, console: ConsoleHere) -> Template:
        queue = params_of(request).get("queue") or None
        with console.store.reading() as reading:
            view = workers_view(reading, console.store.now(), queue=text_in(queue, "queue") if queue else None)
        return shown(request, "workers.html", "/workers", live="tick", view=view)


class SchedulePages(Page):
    """Schedules."""

    @get("/schedules", sync_to_thread=True)
    def show(self, request: AnyRequest, console: ConsoleHere) -> Template:
        with console.store.reading() as reading:
            view = schedule_rows(reading, console.store.now())
        return shown(request, "schedules.html", "/schedules", view=view)
