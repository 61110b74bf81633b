"""What tests of the console share: a console over a ledger, people who log in, and programs with tokens.

Invariants: every client has its own cookies; the passwords are hashed cheaply, because tests log in often; requests run
in one event loop of this process, without a server.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from litestar import Litestar
from litestar.datastructures import State

from holdfast import Ledger
from holdfast.console.app import create_app
from holdfast.console.context import Console
from holdfast.console.pages.live import Live
from holdfast.console.security import passwords
from holdfast.console.security.accounts import Accounts
from holdfast.console.security.callers import Role
from holdfast.console.security.database import ConsoleDatabase
from holdfast.console.security.tokens import Tokens
from holdfast.console.settings import ConsoleSettings

ORIGIN = "http://testserver.local"
PASSWORD = "correct horse battery"  # noqa: S105 - of tests
PEOPLE = {
    "ann": (Role.OPERATOR,),
    "bob": (Role.APPROVER,),
    "eve": (Role.VIEWER,),
    "oda": (Role.OPERATOR, Role.APPROVER),
}

passwords.COST = 1 << 4
passwords.NO_ACCOUNT = passwords.hashed(PASSWORD[::-1])


@cache
def loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that all clients share, in a thread of its own."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="console-tests", daemon=True).start()
    return made


class Transport(httpx.BaseTransport):
    """Calls an ASGI application; Litestar's own test client leaves streams open that pytest then reports."""

    def __init__(self, app: Any) -> None:
        self._asgi = httpx.ASGITransport(app, raise_app_exceptions=True, client=("127.0.0.1", 1))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def answer() -> httpx.Response:
            found = await self._asgi.handle_async_request(request)
            return httpx.Response(found.status_code, headers=found.headers, content=await found.aread())

        return asyncio.run_coroutine_threadsafe(answer(), loop()).result(60)


_first: list[Litestar] = []


def app_like_the_first(ledger: Ledger, settings: ConsoleSettings) -> Litestar:
    """Return what `create_app` returns, with the routes of the first app: they take 70 ms, and hold no state.

    What the app does when its server starts and stops is done for the first ledger.
    """
    if not _first:
        _first.append(create_app(ledger, settings))
        return _first[0]
    app, console = copy(_first[0]), Console(ledger, settings)
    app.state = State({**app.state.dict(), "console": console, "live": Live(console)})
    return app


class Site:
    """A console under test."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        self.file = folder / "console.db"
        self.database = ConsoleDatabase(self.file, create=True)
        self.accounts, self.tokens = Accounts(self.database), Tokens(self.database)
        for name, roles in PEOPLE.items():
            if self.accounts.get(name) is None:
                self.accounts.add(name, PASSWORD, roles)
        self.secrets: dict[str, str] = {}
        self.ledger = Ledger(url, create=False)
        given = {"accounts": self.file, "origins": (ORIGIN,), **settings}
        self.app = (create_app if settings else app_like_the_first)(self.ledger, ConsoleSettings(**given))

    def client(self) -> httpx.Client:
        """Return a client without a session."""
        return httpx.Client(transport=Transport(self.app), base_url=ORIGIN)

    @contextmanager
    def person(self, name: str, password: str = PASSWORD) -> Iterator[Person]:
        """Yield the browser of a person who has logged in."""
        with self.client() as client:
            person = Person(client)
            answer = client.post(
                "/login", data={"name": name, "password": password}, headers={"Origin": ORIGIN}, follow_redirects=False
            )
            assert answer.status_code == 303, answer.text
            yield person

    def token(self, name: str, role: Role, *, queues: Iterable[str] = (), operations: Iterable[str] = ()) -> str:
        """Return the secret of a new token of ann."""
        return self.tokens.add(name, owner="ann", role=role, queues=queues, operations=operations)

    def close(self) -> None:
        self.app.state.console.close()
        self.ledger.close()
        self.database.close()


class Person:
    """The browser of a person: it sends the Origin and the token of its pages with every form."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def get(self, path: str) -> Any:
        return self.client.get(path, follow_redirects=False)

    def post(self, path: str, /, **fields: str) -> Any:
        """Send a form as a page of the console does."""
        data = {"csrf_token": self.csrf_token(), **fields}
        return self.client.post(path, data=data, headers={"Origin": ORIGIN}, follow_redirects=False)

    def csrf_token(self) -> str:
        found = re.search(r'name="csrf[-_]token" (?:content|value)="([^"]+)"', self.client.get("/").text)
        assert found is not None
        return found[1]
