"""The session's cookie: read by this server only, sent to this console only, by its own pages only.

Invariants: the name begins with `__Host-` wherever browsers allow it: by https, without a base path; else the path of
the cookie is the base path. It lives as long as the browser; the server decides when a session ends.
"""

from __future__ import annotations

from litestar.datastructures import Cookie

from holdfast.console.settings import ConsoleSettings

NAME = "holdfast_session"


def session_cookie(settings: ConsoleSettings) -> str:
    return f"__Host-{NAME}" if settings.secure and not settings.base_path else NAME


def made_cookie(settings: ConsoleSettings, value: str, base: str) -> Cookie:
    """Return the cookie of a session; an empty value deletes it. `base` is where the browser sees the console."""
    name = session_cookie(settings)
    return Cookie(
        key=name,
        value=value,
        path="/" if name != NAME else base or "/",
        max_age=None if value else 0,
        secure=settings.secure,
        httponly=True,
        samesite="strict",
    )
