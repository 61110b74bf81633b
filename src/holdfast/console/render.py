"""Pages: what every template gets, and the page of an error.

Invariants: templates escape everything that they print; if a page cannot be rendered, no part of it is sent.
"""

from __future__ import annotations

from typing import Any

from litestar.response import Template

from holdfast.console.context import Console
from holdfast.console.injected import AnyRequest
from holdfast.console.problems import Problem
from holdfast.console.security.callers import Caller

SECTIONS = frozenset(
    {"jobs", "failures", "queues", "schedules", "workers", "quarantine", "replays", "switches", "grants"}
)


def base_of(request: AnyRequest) -> str:
    """Return the path under which the console is reached: of an application around it, and its own base path."""
    console: Console = request.app.state.console
    return str(request.scope.get("root_path") or "").rstrip("/") + console.settings.base_path


def page(request: AnyRequest, template: str, *, status_code: int = 200, **values: Any) -> Template:
    """Return a page. Every template has `base`, `caller`, `console`, `csrf_token`, `asset()` and the given values.

    A form contains `<input type="hidden" name="csrf_token" value="{{ csrf_token }}">`; a request of htmx carries the
    header `X-CSRF-Token`. `asset('console.css')` is the address of a file in static/.
    """
    console: Console = request.app.state.console
    caller: Caller | None = request.scope["state"].get("caller")
    base = base_of(request)
    assets = request.app.state.assets
    shared = {
        "base": base,
        "caller": caller,
        "console": console,
        "csrf_token": caller.csrf_token if caller else "",
        "asset": lambda name: f"{base}/static/{name}?v={assets[name].digest}",
        "path": request.scope["path"],  # not `url`, which is made of whatever Host the client sent
    }
    return Template(template_name=template, context={**shared, **values}, status_code=status_code)


def error_page(request: AnyRequest, problem: Problem) -> Template:
    """Return the page of an error: code, words, next step; with the navigation, if its last counts are known."""
    caller: Caller | None = request.scope["state"].get("caller")
    reads_all = caller is not None and not caller.limited
    live = request.app.state.get("live")
    frame = live.last if live is not None and reads_all else None
    framed = {"frame": frame, "now": frame.at, "here": "", "live": None, "address": ""} if frame else {}
    first = str(request.scope["path"]).removeprefix(base_of(request)).strip("/").partition("/")[0]
    section = (first.capitalize(), f"/{first}") if first in SECTIONS and reads_all else None
    return page(request, "error.html", status_code=problem.status, problem=problem, section=section, **framed)
