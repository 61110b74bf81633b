"""What a handler gets by the names of its parameters: `console: ConsoleHere`, `caller: CallerHere`."""

from litestar.di import NamedDependency

from holdfast.console.context import Console
from holdfast.console.security.callers import Caller

ConsoleHere = NamedDependency[Console]
CallerHere = NamedDependency[Caller]
