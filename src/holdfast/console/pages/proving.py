"""The pages that prove and govern: quarantine, replays, grants, switches, journal, checks and machines."""

from __future__ import annotations

from typing import NamedTuple

from litestar import get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from litestar.response import Template

from holdfast.console.injected import AnyRequest, CallerHere, ConsoleHere
from holdfast.console.pages.frame import Page, job_number, params_of, permission_of, shown
from holdfast.console.views.grants import grant_view, grants_view
from holdfast.console.views.jobs import number_in
from holdfast.console.views.journal import checks_view, journal_view
from holdfast.console.views.links import name_of
from holdfast.console.views.machines import machines_view
from holdfast.console.views.quarantine import quarantine_view
from holdfast.console.views.replays import run_view, runs_view
from holdfast.console.views.switches import switches_view
from holdfast.core.machines import MACHINES


class QuarantinePages(Page):
    """Quarantined jobs."""

    @get("/quarantine", sync_to_thread=True)
    def show(self, request: AnyRequest, console: ConsoleHere) -> Template:
        with console.store.reading() as reading:
            view = quarantine_view(reading, params_of(request), console.store.now())
        return shown(request, "quarantine.html", "/quarantine", view=view)


class ReplayPages(Page):
    """Replays: the list, and one run."""

    @get("/replays", sync_to_thread=True)
    def show(self, request: AnyRequest, console: ConsoleHere) -> Template:
        with console.store.reading() as reading:
            view = runs_view(reading, console.store.now())
        return shown(request, "replays.html", "/replays", view=view)

    @get("/replays/{run_id:str}", sync_to_thread=True)
    def one(self, request: AnyRequest, console: ConsoleHere, run_id: FromPath[str]) -> Template:
        view = run_view(console.store, name_of(run_id), console.store.now())
        live = "tick" if view.report.state == "running" else None
        return shown(request, "replay.html", "/replays", live=live, view=view)


class GrantPages(Page):
    """Grants."""

    @get("/grants", sync_to_thread=True)
    def show(self, request: AnyRequest, console: ConsoleHere) -> Template:
        text = params_of(request).get("before")
        before = number_in(text, "before") if text else None
        with console.store.reading() as reading:
            view = grants_view(reading, console.store.now(), before=before)
        return shown(request, "grants.html", "/grants", view=view)

    @get("/grants/{grant_id:int}", sync_to_thread=True)
    def one(self, request: AnyRequest, console: ConsoleHere, caller: CallerHere, grant_id: FromPath[int]) -> Template:
        with console.store.reading() as reading:
            view = grant_view(reading, job_number(grant_id), console.store.now())
        own = view.row.grant.requested_by == caller.actor and view.environment != "dev"
        may_use = view.executor == caller.actor and permission_of(request)["may"]
        return shown(request, "grant.html", "/grants", view=view, own=own, may_use=may_use)


class SwitchPages(Page):
    """Switches."""

    @get("/switches", sync_to_thread=True)
    def show(self, request: AnyRequest, console: ConsoleHere) -> Template:
        with console.store.reading() as reading:
            view = switches_view(reading, console.store.now())
        return shown(request, "switches.html", "/switches", view=view)


class ByCommand(NamedTuple):
    """What only the command shows: its title, what it is, and the commands."""

    title: str
    says: str
    commands: tuple[str, ...]


BY_COMMAND = {
    "procedures": ByCommand(
        "Procedures",
        "A procedure is a governed act of several steps that can be continued or undone.",
        ("holdfast procedure list", "holdfast procedure show RUN"),
    ),
    "registry": ByCommand(
        "Registry",
        "The registry holds the versions of operations that a governed ledger accepts.",
        ("holdfast registry list", "holdfast registry verify"),
    ),
    "repair": ByCommand(
        "Repair",
        "A repair sets right what a check finds, by a plan that is shown before it is applied.",
        ("holdfast check", "holdfast repair"),
    ),
    "noaa": ByCommand(
        "NOAA",
        "The ingest of NOAA's open data runs as jobs of this ledger.",
        ("holdfast nodd runs", "holdfast nodd check"),
    ),
}


class ByCommandPages(Page):
    """Subjects without a page: each lists the commands that show it."""

    @get("/by-command/{name:str}", sync_to_thread=True)
    def show(self, request: AnyRequest, name: FromPath[str]) -> Template:
        if name not in BY_COMMAND:
            raise NotFoundException
        return shown(request, "by_command.html", f"/by-command/{name}", view=BY_COMMAND[name])


class ProofPages(Page):
    """The journal, the checks and the machines."""

    @get("/journal", sync_to_thread=True)
    def journal(self, request: AnyRequest, console: ConsoleHere) -> Template:
        with console.store.reading() as reading:
            view = journal_view(reading, params_of(request), console.store.now())
        return shown(request, "journal.html", "/journal", view=view, machine_names=list(MACHINES))

    @get("/checks", sync_to_thread=True)
    def checks(self, request: AnyRequest, console: ConsoleHere) -> Template:
        """Show seals, duties and invariants; with `run=quick`, run the quick checks."""
        run = params_of(request).get("run") == "quick"
        view = checks_view(console.store, console.store.now(), run=run)
        return shown(request, "checks.html", "/checks", view=view)

    @get("/machines", sync_to_thread=True)
    def machines(self, request: AnyRequest, console: ConsoleHere) -> Template:
        with console.store.reading() as reading:
            view = machines_view(reading)
        return shown(request, "machines.html", "/machines", view=view)
