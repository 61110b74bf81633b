"""Makes a public function answer a wrong argument with an InputError that names the argument.

Invariants: a call that succeeds is not looked at; an error that no argument explains is raised as it is.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from msgspec import StructMeta

P = ParamSpec("P")
R = TypeVar("R")


def guarded(fn: Callable[P, R]) -> Callable[P, R]:
    """Return the function; if it fails because an argument is of a wrong kind, it raises InputError instead."""

    @wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            from holdfast.core.arguments import refuse_wrong  # noqa: PLC0415 - only after an error

            refuse_wrong(fn, args, kwargs, error)
            raise

    return call


class GuardedMeta(StructMeta):
    """The type of a public record: its constructor answers so, too."""

    __call__ = guarded(StructMeta.__call__)
