"""The console as an ASGI application, and the server that `holdfast console` runs.

Invariants: every route declares its permission, and one guard checks it; every response has the headers of
`security/headers.py`; the body of a request is limited in size and depth before it is parsed; the OpenAPI document is
JSON only, and no page of it loads anything from elsewhere.
"""

from __future__ import annotations

import asyncio
import pkgutil
from contextlib import suppress
from importlib import import_module
from typing import Any

from litestar import Litestar, Request, Response
from litestar.exceptions import HTTPException
from litestar.plugins.jinja import JinjaTemplateEngine
from litestar.response import Redirect
from litestar.template import TemplateConfig

from holdfast.console.api.document import api_router
from holdfast.console.api.ledger import metrics
from holdfast.console.assets import load_assets, static_file
from holdfast.console.context import Console
from holdfast.console.injected import PROVIDED, AnyRequest
from holdfast.console.pages import PAGES
from holdfast.console.pages.live import Live
from holdfast.console.problems import PROBLEM_JSON, Problem, problem_of, problem_of_status, problem_of_unknown
from holdfast.console.render import base_of, error_page
from holdfast.console.security.guard import protect
from holdfast.console.security.headers import add_headers
from holdfast.console.security.login import Login
from holdfast.console.settings import ConsoleSettings
from holdfast.console.templating import environment
from holdfast.core.digest import canonical
from holdfast.core.errors import GovernanceError, HoldfastError
from holdfast.core.json_input import loads
from holdfast.engine.ledger import Ledger
from holdfast.store import Store, verbs

API, METRICS = "/api/", "/metrics"  # for programs: errors are JSON, and nothing leads to the login page
BODY_S = 20.0  # for the body of a request
BODY_MORE = 64 << 10  # of a request, beside the payload of a job


class BoundedRequest(Request[Any, Any, Any]):
    """A request that must arrive in time, and whose JSON is parsed like a payload.

    Deep nesting, duplicate keys and infinite numbers are refused.
    """

    async def body(self) -> bytes:
        """Return the body; raise GovernanceError if it does not arrive in time."""
        try:
            return await asyncio.wait_for(super().body(), BODY_S)
        except TimeoutError:
            raise GovernanceError(
                f"The body did not arrive within {BODY_S:g} s.", code="too_slow", next_step="Send it again."
            ) from None

    async def json(self) -> Any:
        """Return the body as a JSON value; raise PayloadNotJsonError, PayloadTooDeepError or PayloadTooLargeError."""
        body = await self.body()
        value = loads(body or b"null", size_max=max(len(body), 4))  # the size was limited while it was read
        canonical(value)  # refuses halves of surrogate pairs, which no answer could repeat
        return value


def create_app(where: Ledger | Store[Any], settings: ConsoleSettings | None = None) -> Litestar:
    """Return the console of a ledger, as an ASGI application to run or to mount.

    A ledger is used as it is and stays the caller's to close; of a store only the address is used. Raise RefusedError
    if it has no account that can log in, unless `open_to_all` is set for a dev ledger on loopback.
    """
    ledger = where if isinstance(where, Ledger) else _ledger_of(where)
    settings = settings or ConsoleSettings()
    console = Console(ledger, settings)
    _load()
    app = Litestar(
        route_handlers=[static_file, Login, *PAGES, metrics, api_router()],
        path=settings.base_path or None,
        guards=[protect],
        dependencies=PROVIDED,
        template_config=TemplateConfig(engine=JinjaTemplateEngine(engine_instance=environment())),
        exception_handlers={HoldfastError: _refused, HTTPException: _http_error, Exception: _unexpected},
        before_send=[add_headers],
        on_startup=[_look_once],
        on_shutdown=[console.close],
        request_class=BoundedRequest,
        request_max_body_size=ledger.payload_bytes_max + BODY_MORE,
        openapi_config=None,
        logging_config=None,
        include_in_schema=False,
        debug=False,
    )
    app.state.console, app.state.live = console, Live(console)
    app.state.assets = load_assets()
    return app


async def _look_once(app: Litestar) -> None:
    with suppress(HoldfastError):  # the database is away: the pages say so
        await asyncio.to_thread(app.state.live.begin)


def _load() -> None:
    """Compile the templates and import what reads the ledger, so that no first request of a page has to."""
    for template in environment().list_templates():
        environment().get_template(template)
    import_module("holdfast.store.columns")
    for module in pkgutil.iter_modules(verbs.__path__):
        import_module(f"{verbs.__name__}.{module.name}")


def _ledger_of(store: Store[Any]) -> Ledger:
    return Ledger(store.absolute_url, schema=getattr(store, "schema", "public"), create=False)


# ---------------------------------------------------------------------------------------------------------------------
# Errors


def _refused(request: AnyRequest, error: HoldfastError) -> Response[Any]:
    problem = problem_of(error)
    if problem.code == "not_logged_in" and not _wants_json(request) and request.method == "GET":
        base = base_of(request)
        return Redirect(f"{base}/login", query_params={"next": _wanted_page(request)}, status_code=303)
    return _answered(request, problem)


def _http_error(request: AnyRequest, error: HTTPException) -> Response[Any]:
    return _answered(request, problem_of_status(error.status_code, error.extra))


def _unexpected(request: AnyRequest, error: Exception) -> Response[Any]:
    return _answered(request, problem_of_unknown(error))


def _answered(request: AnyRequest, problem: Problem) -> Response[Any]:
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
    if _wants_json(request):
        return Response(problem, status_code=problem.status, media_type=PROBLEM_JSON, headers=headers)
    page = error_page(request, problem)
    page.headers.update(headers)
    return page


def _wants_json(request: AnyRequest) -> bool:
    console: Console = request.app.state.console
    path = str(request.scope["path"]).removeprefix(console.settings.base_path)
    return path.startswith((API, METRICS))


def _wanted_page(request: AnyRequest) -> str:
    query = request.scope["query_string"].decode("latin-1")
    path = base_of(request) + str(request.scope["path"]).removeprefix(base_of(request))
    return f"{path}?{query}" if query else path
