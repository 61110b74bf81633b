"""Login and logout.

Invariants: every login has a new session id; a failed login does not say whether the account exists; after a login the
browser goes to a path of this console, never to another site.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Controller, get, post
from litestar.params import QueryParameter, URLEncodedBody
from litestar.response import Redirect, Template

from holdfast.console.context import Console
from holdfast.console.injected import AnyRequest, ConsoleHere
from holdfast.console.problems import problem_of
from holdfast.console.render import base_of, page
from holdfast.console.security.callers import Permission
from holdfast.console.security.cookies import made_cookie
from holdfast.core.errors import GovernanceError, HoldfastError

NEXT_MAX = 2000


class LoginForm(msgspec.Struct, frozen=True):
    """What the login page sends."""

    name: str = ""
    password: str = ""
    next: str = ""


class Login(Controller):
    """The login page, and what it posts."""

    include_in_schema = False
    opt = {"permission": Permission.PUBLIC}  # noqa: RUF012 - Litestar's own convention

    @get("/login", sync_to_thread=True)
    def show(
        self, request: AnyRequest, target: Annotated[str, QueryParameter(name="next")] = ""
    ) -> Template | Redirect:
        """Show the login page; a console without accounts needs none."""
        base = base_of(request)
        if request.scope["state"]["caller"] is not None:  # logged in, or at a console without accounts
            return Redirect(local_path(target, base), status_code=303)
        return page(request, "login.html", next=local_path(target, base), problem=None)

    @post("/login", sync_to_thread=True)
    def log_in(
        self,
        request: AnyRequest,
        console: ConsoleHere,
        data: URLEncodedBody[LoginForm],
    ) -> Template | Redirect:
        """Begin a session, or show the login page again."""
        base = base_of(request)
        target = local_path(data.next, base)
        if console.sessions is None:
            return Redirect(f"{base}/", status_code=303)
        try:
            session_id = begin_session(console, data.name, data.password, address_of(request))
        except HoldfastError as error:
            problem = problem_of(error)
            response = page(request, "login.html", status_code=problem.status, next=target, problem=problem)
            if "retry_after_s" in problem.context:
                response.headers["Retry-After"] = str(problem.context["retry_after_s"])
            return response
        return Redirect(target, status_code=303, cookies=[made_cookie(console.settings, session_id, base)])

    @post("/logout", opt={"permission": Permission.VIEW}, sync_to_thread=True)
    def log_out(self, request: AnyRequest, console: ConsoleHere) -> Redirect:
        caller = request.scope["state"]["caller"]
        if console.sessions is not None:
            console.sessions.end(caller.session_id)
        base = base_of(request)
        return Redirect(f"{base}/login", status_code=303, cookies=[made_cookie(console.settings, "", base)])


def begin_session(console: Console, name: str, password: str, address: str) -> str:
    """Return the id of a new session; raise GovernanceError for a wrong name or password, or too many of them."""
    console.check_password(name, password, address)
    if console.sessions is None:
        raise GovernanceError("This console has no accounts.", code="login_failed")
    return console.sessions.begin(name)


def address_of(request: AnyRequest) -> str:
    """Return the address of the client. Behind a proxy that `--proxy` names, it is what the proxy says."""
    return request.client.host if request.client else ""


def local_path(text: str, base: str) -> str:
    """Return a path of this console to go to; the first page for anything else, such as another site."""
    start = f"{base}/"
    plain = text.isprintable() and text.isascii() and len(text) <= NEXT_MAX and not set(text) & {"\\", " "}
    return text if plain and text.startswith(start) and not text.startswith("//") else start
