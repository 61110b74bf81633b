"""The guard of every route: who calls, whether they may, and whether the request comes from the console's own pages.

Invariants: a route without a declared permission is refused; a request that changes something and is known by a cookie
has an Origin of this console and the token of its session; a program is known by its token and never by a cookie, and
reaches the API only, where its limits are kept; a Host that is not the console's is refused, which
prevents DNS rebinding.
"""

from __future__ import annotations

import asyncio
import hmac
from difflib import get_close_matches
from typing import Any

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from holdfast.console.context import Console
from holdfast.console.security.callers import WRITES, Caller, CallerKind, Permission
from holdfast.console.security.cookies import session_cookie
from holdfast.core.digest import is_storable
from holdfast.core.errors import GovernanceError, InputError

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_FIELD, CSRF_HEADER = "csrf_token", "x-csrf-token"
FORM = "application/x-www-form-urlencoded"
BEARER = "bearer "
COOKIE_BYTES_MAX = 256

Connection = ASGIConnection[Any, Any, Any, Any]


async def protect(connection: Connection, handler: BaseRouteHandler) -> None:
    """Let a request through to its handler, or raise GovernanceError."""
    console: Console = connection.app.state.console
    permission = handler.opt.get("permission")
    if not isinstance(permission, Permission):
        raise _refused("permission_denied", "This route declares no permission.", "Report this bug.")
    _require_storable(connection)
    caller = await asyncio.to_thread(_caller, connection, console)
    connection.scope["state"]["caller"] = caller
    if not (handler.opt.get("any_host") or (caller is not None and caller.kind is CallerKind.TOKEN)):
        _require_host(connection, console)
    if caller is not None and caller.kind is CallerKind.TOKEN and not handler.opt.get("tokens"):
        raise _refused(
            "permission_denied", "A token is for the API; the pages are for people.", "Use /api/v1, or log in."
        )
    unsafe = connection.scope.get("method", "GET") not in SAFE
    if unsafe and (caller is None or caller.kind is not CallerKind.TOKEN):
        await _require_own_page(connection, console, caller)
        if caller is not None and caller.kind is CallerKind.OPEN:
            await asyncio.to_thread(console.require_open)
    if permission is Permission.PUBLIC:
        return
    if caller is None:
        raise _refused("not_logged_in", "Log in first.", "Log in, or send a token: Authorization: Bearer TOKEN.")
    if console.settings.read_only and permission in WRITES:
        raise _refused("read_only", "This console only reads.", "Use the console that may write, or the command.")
    if not caller.may(permission):
        raise _refused(
            "permission_denied",
            f"{caller.name} may not do this: it needs the permission to {permission}.",
            "Use an account or a token with another role: `holdfast console users list`.",
        )
    _require_known_filters(connection, handler)


def _caller(connection: Connection, console: Console) -> Caller | None:
    """Return who sends a request. A wrong token is refused, even with a valid cookie in the same request."""
    header = connection.headers.get("authorization")
    if header is not None:
        found = None
        if console.tokens is None:
            raise _refused(
                "not_logged_in",
                "This console was started without accounts: it knows no tokens.",
                "Add an account and a token, then start the console again: `holdfast console users add --help`.",
            )
        if header.lower().startswith(BEARER):
            found = console.tokens.caller(header[len(BEARER) :].strip())
        if found is None:
            raise _refused("not_logged_in", "The token is not valid.", "Make one: `holdfast console tokens add`.")
        return found
    if console.sessions is None:
        return console.open_caller()
    session_id = connection.cookies.get(session_cookie(console.settings))
    return console.sessions.caller(session_id[:COOKIE_BYTES_MAX]) if session_id else None


def _require_storable(connection: Connection) -> None:
    """Raise InputError if the address has a character that no database can store, so that no statement ever sees it."""
    words = [str(connection.scope["path"]), *(text for pair in connection.query_params.multi_items() for text in pair)]
    if not all(is_storable(str(word)) for word in words):
        raise InputError("The address contains a character that cannot be stored.", context={"field": "address"})


def _require_known_filters(connection: Connection, handler: BaseRouteHandler) -> None:
    """Raise InputError for a query parameter that a list of the API does not have: it would be left out silently."""
    known: frozenset[str] | None = handler.opt.get("filters")
    if known is None:
        return
    for name in connection.query_params:
        if name not in known:
            near = next(iter(get_close_matches(name, sorted(known), n=1)), None)
            raise InputError(
                f"There is no parameter {name[:40]!r}" + (f"; the nearest is {near!r}." if near else "."),
                next_step=f"Use these: {', '.join(sorted(known)) or 'none'}.",
                context={"parameter": name[:40], "nearest": near},
            )


def _require_host(connection: Connection, console: Console) -> None:
    hosts = console.settings.hosts
    if connection.headers.get("host", "").lower() not in hosts:
        raise _refused(
            "host_refused",
            "The console is not reached by this name.",
            "Start it with --origin and the address that browsers use, such as https://ops.example.org.",
        )


async def _require_own_page(connection: Connection, console: Console, caller: Caller | None) -> None:
    """Raise unless a page of this console sent the request."""
    if connection.headers.get("origin") not in console.settings.origins:
        raise _refused(
            "origin_refused",
            "The request does not come from a page of this console.",
            "Reload the page. A program sends a token: `holdfast console tokens add --help`.",
        )
    if caller is None:
        return  # a login: there is no session yet whose token could be compared
    given = connection.headers.get(CSRF_HEADER)
    if given is None and isinstance(connection, Request) and connection.content_type[0] == FORM:
        given = (await connection.form()).get(CSRF_FIELD)
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), caller.csrf_token.encode()):
        raise _refused("csrf_refused", "The form is not of this session.", "Reload the page, and try again.")


def _refused(code: str, message: str, next_step: str) -> GovernanceError:
    return GovernanceError(message, code=code, next_step=next_step)
