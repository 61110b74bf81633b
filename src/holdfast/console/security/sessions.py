"""Sessions of people who have logged in: kept by the server, named by a random id that only the browser has.

Invariants: every login makes a new id, and an id that a browser brings along is never taken over; a session ends after
a time without a request (an hour), twelve hours after its login, at logout, and with any change of its account.
"""

from __future__ import annotations

import secrets
from datetime import timedelta

from holdfast.console.security.callers import Caller, CallerKind, Role
from holdfast.console.security.database import ConsoleDatabase, now
from holdfast.console.security.tokens import digest_of
from holdfast.core.records import time_from, time_text

LONGEST = timedelta(hours=12)
SEEN = timedelta(minutes=1)  # how exact the time of the last request is


class Sessions:
    """The sessions of one console."""

    def __init__(self, database: ConsoleDatabase, idle_s: float = 3600) -> None:
        self._database = database
        self.idle = timedelta(seconds=idle_s)

    def begin(self, account: str) -> str:
        """Begin a session and return its id; sessions that have ended are deleted."""
        session_id, at = secrets.token_urlsafe(32), now()
        with self._database.transaction() as connection:
            connection.execute(
                "DELETE FROM sessions WHERE seen_at < ? OR created_at < ?",
                (time_text(at - self.idle), time_text(at - LONGEST)),
            )
            connection.execute(
                "INSERT INTO sessions (digest, account, csrf_token, created_at, seen_at) VALUES (?, ?, ?, ?, ?)",
                (digest_of(session_id), account, secrets.token_urlsafe(32), time_text(at), time_text(at)),
            )
        return session_id

    def caller(self, session_id: str, *, used: bool = True) -> Caller | None:
        """Return the person of a session; None if there is no such session, or it has ended.

        A look that is not a request of the person (`used=False`) does not make the session last longer.
        """
        digest, at = digest_of(session_id), now()
        rows = self._database.read(
            "SELECT s.account, s.csrf_token, s.created_at, s.seen_at, a.roles FROM sessions s"
            " JOIN accounts a ON a.name = s.account AND a.disabled_at IS NULL WHERE s.digest = ?",
            (digest,),
        )
        if not rows:
            return None
        account, csrf_token, created_at, seen_at, roles = map(str, rows[0])
        if time_from(seen_at) < at - self.idle or time_from(created_at) < at - LONGEST:
            return None
        if used and time_from(seen_at) < at - SEEN:
            with self._database.transaction() as connection:
                connection.execute("UPDATE sessions SET seen_at = ? WHERE digest = ?", (time_text(at), digest))
        return Caller(
            name=account,
            kind=CallerKind.SESSION,
            roles=frozenset(Role(word) for word in roles.split(",")),
            csrf_token=csrf_token,
            session_id=session_id,
        )

    def end(self, session_id: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM sessions WHERE digest = ?", (digest_of(session_id),))
