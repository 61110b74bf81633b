"""What a handler gets by the names of its parameters: `console: ConsoleHere`, `caller: CallerHere`, or `here: Here`."""

from typing import Any

from litestar import Request
from litestar.di import NamedDependency, Provide

from holdfast.console.context import Console, Visit
from holdfast.console.security.callers import Caller

AnyRequest = Request[Any, Any, Any]
ConsoleHere = NamedDependency[Console]
CallerHere = NamedDependency[Caller]
Here = NamedDependency[Visit]


def _console(request: AnyRequest) -> Console:
    console: Console = request.app.state.console
    return console


def _caller(request: AnyRequest) -> Caller:
    caller: Caller = request.scope["state"]["caller"]
    return caller


def _here(request: AnyRequest) -> Visit:
    return Visit(_console(request), _caller(request))


PROVIDED = {
    "console": Provide(_console, sync_to_thread=False),
    "caller": Provide(_caller, sync_to_thread=False),
    "here": Provide(_here, sync_to_thread=False),
}
