"""The pages of the console: a list of controllers that the application mounts.

A controller declares its permission (`opt = {"permission": Permission.VIEW}`) and stays out of the OpenAPI document
(`include_in_schema = False`). Its handlers take `console: ConsoleHere` and `caller: CallerHere` (`injected.py`) and
return `render.page(request, "name.html", …)`.
"""

from __future__ import annotations

from typing import Any

from litestar import Controller, Request, get
from litestar.response import Template

from holdfast.console.render import page
from holdfast.console.security.callers import Permission


class Overview(Controller):
    """The first page."""

    include_in_schema = False
    opt = {"permission": Permission.VIEW}  # noqa: RUF012 - Litestar's own convention

    @get("/", sync_to_thread=True)
    def show(self, request: Request[Any, Any, Any]) -> Template:
        """Show the first page."""
        return page(request, "overview.html")


PAGES: list[type[Controller]] = [Overview]
