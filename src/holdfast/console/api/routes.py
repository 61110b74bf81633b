"""How the API declares its routes: each with its permission, its possible refusals, and its thread.

Invariants: every route of the API has a permission, runs in a thread, and documents the refusals that it can give.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, cast

from litestar import get, post
from litestar.openapi import ResponseSpec
from litestar.params import HeaderParameter, PathParameter, QueryParameter

from holdfast.console.acts import ID_MAX
from holdfast.console.problems import PROBLEM_JSON, STATE, Problem
from holdfast.console.security.callers import Permission

F = TypeVar("F", bound=Callable[..., Any])

REFUSALS = {
    400: "The request is not valid.",
    401: "There is no valid token or session.",
    403: "The caller, the token or the grant does not permit it.",
    404: "There is no such record, or the token does not cover it.",
    408: "The body did not arrive in time.",
    409: "The state of the record does not allow it, or it has changed.",
    413: "The body is too large.",
    429: "The queue is full.",
    500: "An unexpected error.",
    503: "The database is out of reach.",
}
_READS = (400, 401, 403, 404, 409, 500, 503)

IdPath = Annotated[int, PathParameter(ge=1, le=ID_MAX)]
NamePath = Annotated[
    str, PathParameter(min_length=1, max_length=1024, description="A name with a slash or `%` is quoted twice.")
]
WordQuery = Annotated[str | None, QueryParameter(min_length=1, max_length=1024)]
Cursor = Annotated[str | None, QueryParameter(pattern="^[1-9][0-9]{0,18}$", description="`next_cursor` of a page.")]
Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="Maximum number of records.")]
IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        min_length=1,
        max_length=512,
        description="The key of the job: a second submit with the same key and call gives the same job.",
    ),
]


def reads(path: str, **settings: Any) -> Callable[[F], F]:
    def declared(fn: F) -> F:
        opt = {"permission": Permission.VIEW, "filters": _filters(fn)}
        return cast("F", get(path, opt=opt, sync_to_thread=True, responses=_refusals(_READS), **settings)(fn))

    return declared


def _filters(fn: Callable[..., Any]) -> frozenset[str]:
    """Return the names of the query parameters of a route: its parameters that can be left out."""
    optional = [name for name, one in inspect.signature(fn).parameters.items() if one.default is not one.empty]
    return frozenset("state" if name == STATE else name for name in optional)


def acts(
    path: str, permission: Permission = Permission.OPERATE, status_code: int = 200, **settings: Any
) -> Callable[[F], F]:
    responses = {**_refusals(tuple(REFUSALS)), **settings.pop("responses", {})}
    opt = {"permission": permission}
    made = post(path, opt=opt, status_code=status_code, sync_to_thread=True, responses=responses, **settings)
    return cast("Callable[[F], F]", made)


def _refusals(statuses: tuple[int, ...]) -> Mapping[int, ResponseSpec]:
    return {
        status: ResponseSpec(Problem, description=REFUSALS[status], media_type=PROBLEM_JSON, generate_examples=False)
        for status in statuses
    }


def before(cursor: str | None) -> int | None:
    """Return the id below which a page begins."""
    return None if cursor is None else min(int(cursor), ID_MAX)


def next_cursor(ids: list[int], limit: int) -> str | None:
    """Return the cursor of the next page; None if this one was not full."""
    return str(ids[-1]) if len(ids) == limit else None
