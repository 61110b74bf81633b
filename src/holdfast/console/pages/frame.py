"""What the controllers of the pages share: the frame of a page, and the parameters of its address.

Invariants: every page of the ledger is for callers who may see all of it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from litestar import Controller
from litestar.response import Template

from holdfast.console.context import Console
from holdfast.console.injected import AnyRequest
from holdfast.console.pages.live import Live
from holdfast.console.render import base_of, page
from holdfast.console.security.callers import Caller, Permission
from holdfast.console.views.confirm import Confirmation
from holdfast.console.views.jobs import TEXT_MAX
from holdfast.core.errors import InputError, JobNotFoundError
from holdfast.store.transaction import Reading
from holdfast.store.verbs.known_queues import known_queues
from holdfast.store.verbs.watch import ID_MAX


class Page(Controller):
    """The base of all controllers of pages."""

    include_in_schema = False
    opt = {"permission": Permission.VIEW}  # noqa: RUF012 - Litestar's own convention


def live_of(request: AnyRequest) -> Live:
    """Return the live snapshot of a console."""
    live: Live = request.app.state.live
    return live


def params_of(request: AnyRequest) -> dict[str, str]:
    """Return the parameters of an address, each once; raise InputError for a repeated or an unreadable one."""
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in found:
            raise InputError(f"{name[:TEXT_MAX]!r} is given twice.", context={"field": name[:TEXT_MAX]})
        found[name] = value
    return found


def job_number(job_id: int) -> int:
    """Return the id of a job in a path; raise JobNotFoundError for a number that no job has."""
    if not 0 < job_id <= ID_MAX:
        raise JobNotFoundError(f"there is no job {job_id}", context={"job_id": str(job_id)[:TEXT_MAX]})
    return job_id


def shown(request: AnyRequest, template: str, here: str, *, live: str | None = None, **values: Any) -> Template:
    """Return a page with its frame; `here` is the entry of the navigation, `live` the stream that updates it."""
    caller: Caller = request.scope["state"]["caller"]
    caller.require_unlimited()
    console: Console = request.app.state.console
    frame = live_of(request).overview()
    query, base = request.scope["query_string"].decode("latin-1"), base_of(request)
    path = base + quote(str(request.scope["path"]).removeprefix(base))
    address = f"{path}?{query}" if query else path
    given = {"now": console.store.now(), "frame": frame, "here": here, "live": live, "address": address, **values}
    return page(request, template, **given)


def confirmed(
    request: AnyRequest, here: str, view: Confirmation, permission: Permission = Permission.OPERATE
) -> Template:
    """Return a page of confirmation; its button is off if the caller may not act, and the page says why."""
    return shown(request, "confirm.html", here, view=view, **permission_of(request, permission))


def permission_of(request: AnyRequest, permission: Permission = Permission.OPERATE) -> dict[str, Any]:
    """Return whether the caller may act, and why not, for a page with a form."""
    console: Console = request.app.state.console
    caller: Caller = request.scope["state"]["caller"]
    why_not = ""
    if console.settings.read_only:
        why_not = "This console only reads."
    elif not caller.may(permission):
        roles = ", ".join(sorted(caller.roles))
        why_not = f"You are {roles}; this needs the permission to {permission}."
    return {"may": not why_not, "why_not": why_not}


def names_of(reading: Reading) -> dict[str, Any]:
    """Return the names of queues and operations, for suggestions."""
    counts = reading.counts.current()
    operations = {*reading.operations.declared(), *(count.operation for count in counts)}
    return {"queue_names": known_queues(reading, counts), "operation_names": sorted(operations)}
