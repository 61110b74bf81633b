"""What a handler gets by the names of its parameters: `console: ConsoleHere`, `caller: CallerHere`."""

from typing import Any

from litestar import Request
from litestar.di import NamedDependency, Provide

from holdfast.console.context import Console
from holdfast.console.security.callers import Caller

ConsoleHere = NamedDependency[Console]
CallerHere = NamedDependency[Caller]


def _console(request: Request[Any, Any, Any]) -> Console:
    console: Console = request.app.state.console
    return console


def _caller(request: Request[Any, Any, Any]) -> Caller:
    caller: Caller = request.scope["state"]["caller"]
    return caller


PROVIDED = {"console": Provide(_console, sync_to_thread=False), "caller": Provide(_caller, sync_to_thread=False)}
