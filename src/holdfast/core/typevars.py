"""The type variables of the public API: the parameters of a handler, and what it returns.

Invariants: a Call or a Receipt can be named without a type; then its type is Any.
"""

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
if TYPE_CHECKING:
    import typing_extensions as later  # `typing` has defaults of type variables since Python 3.13

    R = later.TypeVar("R", default=Any)
    R_co = later.TypeVar("R_co", covariant=True, default=Any)
else:
    R, R_co = TypeVar("R"), TypeVar("R_co", covariant=True)
