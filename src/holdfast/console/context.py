"""The context of a console: the ledger, the accounts and the settings that every handler works with.

Invariants: the ledger comes from the process that made the console, never from a request.
"""

from __future__ import annotations

import secrets
from typing import Any

from holdfast.console.security.accounts import Accounts
from holdfast.console.security.callers import Caller, CallerKind, Role
from holdfast.console.security.database import ConsoleDatabase
from holdfast.console.security.limiter import LoginLimiter
from holdfast.console.security.sessions import Sessions
from holdfast.console.security.tokens import Tokens
from holdfast.console.settings import ConsoleSettings
from holdfast.core.environments import DEV
from holdfast.core.errors import GovernanceError, RefusedError
from holdfast.engine.ledger import Ledger
from holdfast.governance.approval import environment_of
from holdfast.store import Store
from holdfast.store.urls import shown

LOCAL = "local"  # the name of the person at a console without accounts


class Console:
    """One ledger, and who may use it. A handler gets it as its parameter `console`."""

    def __init__(self, ledger: Ledger, settings: ConsoleSettings) -> None:
        self.ledger = ledger
        self.settings = settings
        with self.store.reading() as reading:
            self.environment = environment_of(reading)
        self.limiter = LoginLimiter()
        self.accounts: Accounts | None = None
        self.tokens: Tokens | None = None
        self.sessions: Sessions | None = None
        self._database: ConsoleDatabase | None = None
        self._csrf_token = secrets.token_urlsafe(32)
        if settings.open_to_all:
            self._require_harmless()
        else:
            self._open_accounts()

    @property
    def store(self) -> Store[Any]:
        return self.ledger.store

    @property
    def name(self) -> str:
        """The ledger as people name it: its URL without a password."""
        return shown(self.store.url)

    def open_caller(self) -> Caller:
        """Return the person at a console without accounts."""
        roles = frozenset({Role.VIEWER, Role.OPERATOR, Role.APPROVER})
        return Caller(name=LOCAL, kind=CallerKind.OPEN, roles=roles, csrf_token=self._csrf_token)

    def require_open(self) -> None:
        """Raise RefusedError if the ledger is no longer a dev ledger: a console without accounts may not change it."""
        with self.store.reading() as reading:
            self.environment = environment_of(reading)
        self._require_harmless()

    def check_password(self, name: str, password: str, address: str) -> None:
        """Raise GovernanceError unless this is the password of an account that can log in; failures are limited."""
        self.limiter.begin(name, address)
        if self.accounts is None or self.accounts.check_password(name, password) is None:
            raise GovernanceError(
                "The name or the password is wrong.",
                code="login_failed",
                next_step="Try again. To set a new password: `holdfast console users passwd NAME`.",
            )
        self.limiter.succeeded(name, address)

    def still_known(self, caller: Caller) -> bool:
        """Return whether the session of a caller has not ended; for streams, which outlive their request."""
        return self.sessions is None or self.sessions.caller(caller.session_id, used=False) is not None

    def close(self) -> None:
        """Close the file of accounts; the ledger belongs to the caller of `create_app`."""
        if self._database is not None:
            self._database.close()

    def _require_harmless(self) -> None:
        if self.environment != DEV or not self.settings.loopback:
            raise RefusedError(
                f"A console without accounts is only for a dev ledger on loopback; this is {self.environment}.",
                next_step="Add an account: `holdfast console users add NAME --role operator`.",
                context={"environment": self.environment, "loopback": self.settings.loopback},
            )

    def _open_accounts(self) -> None:
        database = self._database = ConsoleDatabase(self.settings.accounts)
        self.accounts, self.tokens, self.sessions = (
            Accounts(database),
            Tokens(database),
            Sessions(database, self.settings.session_idle_s),
        )
        if not any(account.enabled for account in self.accounts.all()):
            database.close()
            raise RefusedError(
                f"The file {self.settings.accounts} has no account that can log in.",
                next_step="Add one: `holdfast console users add NAME --role operator`.",
                context={"path": str(self.settings.accounts)},
            )


class Visit:
    """A request: the console that it reaches, its caller, and what acts use of both."""

    def __init__(self, console: Console, caller: Caller) -> None:
        self.console, self.caller = console, caller
        self.ledger, self.store, self.actor = console.ledger, console.store, caller.actor
