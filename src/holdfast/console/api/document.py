"""The router of the API, and its OpenAPI document, which is served as JSON only.

Invariants: no page renders the document: such pages load code from elsewhere.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

from litestar import Litestar, Router, get
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ControllerRouterHandler

from holdfast.console.api.governed import Grants, Replays
from holdfast.console.api.jobs import Jobs
from holdfast.console.api.ledger import LedgerRoutes, Queues, ScheduleRoutes, Switches
from holdfast.console.api.many import ManyActs
from holdfast.console.injected import PROVIDED, ConsoleHere
from holdfast.console.security.callers import Permission

PATH = "/api/v1"


def api_router() -> Router:
    handlers: list[ControllerRouterHandler] = [
        Jobs, ManyActs, Replays, Grants, Queues, Switches, ScheduleRoutes, LedgerRoutes, openapi_document,
    ]  # fmt: skip
    return Router(PATH, route_handlers=handlers, include_in_schema=True, opt={"tokens": True})


@get("/openapi.json", opt={"permission": Permission.VIEW}, sync_to_thread=True, include_in_schema=False)
def openapi_document(console: ConsoleHere) -> dict[str, Any]:
    return document(console.settings.base_path)


@cache
def document(base_path: str = "") -> dict[str, Any]:
    """Return the OpenAPI document of the API under a base path.

    It is made by an application that serves nothing: Litestar adds pages of its own to one that has a document.
    """
    config = OpenAPIConfig(
        title="Holdfast",
        version=version("holdfast"),
        description="The HTTP API of a Holdfast ledger. Errors are problem+json with a code and a next step.",
        components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
        security=[{"token": []}],
        use_handler_docstrings=True,
    )
    silent = Litestar(
        [api_router()], path=base_path or None, dependencies=PROVIDED, openapi_config=config, logging_config=None
    )
    return silent.openapi_schema.to_schema()
