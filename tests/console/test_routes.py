"""Every route declares a permission, and every response has the headers that protect a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from litestar import Litestar, get
from litestar.handlers import HTTPRouteHandler

from holdfast.console.security.callers import WRITES, Caller, CallerKind, Permission, Role
from holdfast.console.security.headers import CSP
from tests.console.sites import ORIGIN, Site

# A body that is too long for an address; nothing is written.
READS_BY_POST = {"/api/v1/replays/dry-run", "/api/v1/jobs/acts/dry-run"}
PUBLIC = {"/static/{name:str}", "/login", "/api/v1/health", "/api/v1/ready"}


def handlers(app: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    """Yield every method and path with its handler, without the answers to OPTIONS that Litestar adds."""
    for route in app.routes:
        for handler in getattr(route, "route_handlers", ()):
            for method in getattr(handler, "http_methods", ()):
                if method != "OPTIONS":
                    yield str(method), route.path, handler


def test_every_route_declares_its_permission(shared_site: Site) -> None:
    found = list(handlers(shared_site.app))
    assert len(found) > 40
    for method, path, handler in found:
        assert isinstance(handler.opt.get("permission"), Permission), f"{method} {path} declares no permission"


def test_every_route_that_changes_something_needs_a_permission_to_write(shared_site: Site) -> None:
    for method, path, handler in handlers(shared_site.app):
        writes = handler.opt["permission"] in WRITES
        if method == "GET":
            assert not writes, path
        elif path not in {"/login", "/logout", *READS_BY_POST}:
            assert writes, f"{method} {path}"


def test_only_a_few_routes_are_public(shared_site: Site) -> None:
    public = {path for _, path, handler in handlers(shared_site.app) if handler.opt["permission"] is Permission.PUBLIC}
    assert public == PUBLIC


def test_every_handler_that_is_not_a_coroutine_declares_its_thread(shared_site: Site) -> None:
    for method, path, handler in handlers(shared_site.app):
        assert handler.sync_to_thread is not None or handler.has_sync_callable is False, f"{method} {path}"


@pytest.mark.attack("input")
def test_a_route_without_a_permission_is_refused(local_site: Site) -> None:
    @get("/forgotten", sync_to_thread=False)
    def forgotten() -> str:
        return "open"

    local_site.app.register(forgotten)
    with local_site.person("ann") as ann:
        assert ann.get("/forgotten").status_code == 403


@pytest.mark.attack("input")
@pytest.mark.parametrize("path", ["/", "/login", "/nowhere", "/static/console.css", "/api/v1/jobs", "/api/v1/health"])
def test_every_response_has_the_headers(shared_site: Site, path: str) -> None:
    with shared_site.client() as client:
        answer = client.get(path, headers={"Origin": "https://evil.example"})
        assert answer.headers["content-security-policy"] == CSP
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["cache-control"] == "no-store" or path.startswith("/static/")


@pytest.mark.attack("input")
@pytest.mark.parametrize("host", ["evil.example", "testserver.local:81", "", "127.0.0.1", "testserver.local:x", "["])
def test_another_name_for_this_address_is_refused(shared_site: Site, host: str) -> None:
    with shared_site.person("ann") as ann:
        assert ann.client.get("/", headers={"Host": host}).status_code == 403


@pytest.mark.attack("input")
@pytest.mark.parametrize(
    "name", ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "%2e%2e%2fapp.py", "....//app.py", "/etc/passwd", "%00", "."]
)
def test_no_request_names_a_file(shared_site: Site, name: str) -> None:
    with shared_site.client() as client:
        answer = client.get(f"/static/{name}")
        assert answer.status_code in (400, 404)
        assert "Litestar" not in answer.text


def test_a_read_only_console_reads_and_refuses_to_write(tmp_path: Any, new_sqlite_ledger: str) -> None:
    site = Site(new_sqlite_ledger, tmp_path, read_only=True)
    secret = site.token("robot", Role.OPERATOR)
    with site.person("oda") as oda:
        assert oda.get("/").status_code == 200
        refused = oda.post("/queues/default/pause", reason="x")
        assert (refused.status_code, "<code>read_only</code>" in refused.text) == (403, True)
        header = {"Authorization": f"Bearer {secret}"}
        assert oda.client.get("/api/v1/jobs", headers=header).status_code == 200
        assert oda.client.post("/api/v1/recover", json={"reason": "x"}, headers=header).json()["code"] == "read_only"
        assert oda.post("/logout").status_code == 303
    site.close()


def test_under_a_base_path_everything_keeps_its_place(tmp_path: Any, new_sqlite_ledger: str) -> None:
    site = Site(new_sqlite_ledger, tmp_path, base_path="/team/ops", origins=("https://testserver.local",))
    with site.client() as client:
        outside = client.get("https://testserver.local/")
        assert outside.status_code == 404
        sent = client.get("https://testserver.local/team/ops/", follow_redirects=False)
        assert sent.headers["location"] == "/team/ops/login?next=%2Fteam%2Fops"
        assert sent.headers["content-security-policy"] == CSP
        page = client.get("https://testserver.local/team/ops/login")
        assert 'action="/team/ops/login"' in page.text
        form = {"name": "ann", "password": "correct horse battery", "next": "/team/ops/"}
        origin = {"Origin": "https://testserver.local"}
        done = client.post("https://testserver.local/team/ops/login", data=form, headers=origin, follow_redirects=False)
        assert (done.status_code, done.headers["location"]) == (303, "/team/ops/")
        cookie = done.headers["set-cookie"]
        assert cookie.startswith("holdfast_session=")
        assert "Path=/team/ops" in cookie
        assert "Secure" in cookie
        assert client.get("https://testserver.local/team/ops/api/v1/nowhere").json()["code"] == "not_found"
    site.close()


def test_by_https_the_cookie_belongs_to_this_host_alone(tmp_path: Any, new_sqlite_ledger: str) -> None:
    site = Site(new_sqlite_ledger, tmp_path, origins=("https://testserver.local",))
    with site.client() as client:
        form = {"name": "ann", "password": "correct horse battery"}
        origin = {"Origin": "https://testserver.local"}
        done = client.post("https://testserver.local/login", data=form, headers=origin, follow_redirects=False)
        cookie = done.headers["set-cookie"]
        assert cookie.startswith("__Host-holdfast_session=")
        assert {"Secure", "HttpOnly", "Path=/", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
    site.close()


def test_a_console_inside_another_application(tmp_path: Any, new_sqlite_ledger: str) -> None:
    from tests.console.sites import Transport

    site = Site(new_sqlite_ledger, tmp_path)

    app: Any = site.app

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        assert scope["path"].startswith("/admin")
        await app({**scope, "root_path": "/admin"}, receive, send)

    import httpx

    with httpx.Client(transport=Transport(outer), base_url=ORIGIN) as client:
        sent = client.get("/admin/", follow_redirects=False)
        assert sent.headers["location"] == "/admin/login?next=%2Fadmin%2F"
        assert 'action="/admin/login"' in client.get("/admin/login").text
    site.close()


def test_no_role_of_a_token_approves() -> None:
    from holdfast.console.security.tokens import TOKEN_ROLES

    for role in TOKEN_ROLES:
        token = Caller(name="t", kind=CallerKind.TOKEN, roles=frozenset({role}))
        assert not token.may(Permission.APPROVE)


def test_the_document_is_served_as_json_and_no_page_renders_it(shared_site: Site) -> None:
    with shared_site.person("eve") as eve:
        found = eve.get("/api/v1/openapi.json").json()
        assert found["openapi"].startswith("3.1")
        assert "/api/v1/jobs/{job_id}" in found["paths"]
        for path in ("/schema", "/schema/redoc", "/api/v1", "/api/v1/redoc", "/api/v1/swagger", "/docs"):
            assert eve.get(path).status_code == 404
