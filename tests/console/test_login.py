"""Login, sessions, and what ends them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.console.sites import ORIGIN, PASSWORD, Site

COOKIE = "holdfast_session"


def test_a_person_logs_in_and_out(shared_site: Site) -> None:
    with shared_site.client() as client:
        first = client.get("/jobs?state=failed", follow_redirects=False)
        assert first.status_code in (303, 404)
        form = {"name": "ann", "password": PASSWORD, "next": "/"}
        answer = client.post("/login", data=form, headers={"Origin": ORIGIN}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert client.get("/").status_code == 200
    with shared_site.person("ann") as ann:
        assert ann.post("/logout").status_code == 303
        assert ann.get("/").status_code == 303


def test_a_person_who_has_logged_in_needs_no_login_page(shared_site: Site) -> None:
    with shared_site.person("ann") as ann:
        assert ann.get("/login?next=/jobs").headers["location"] == "/jobs"
        assert ann.get("/login?next=https://evil.example").headers["location"] == "/"


def test_without_a_session_a_page_leads_to_the_login_and_back(shared_site: Site) -> None:
    with shared_site.client() as client:
        answer = client.get("/?q=1", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2F%3Fq%3D1")


@pytest.mark.attack("input")
@pytest.mark.parametrize("target", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_a_login_leads_to_no_other_site(shared_site: Site, target: str) -> None:
    with shared_site.client() as client:
        form = {"name": "ann", "password": PASSWORD, "next": target}
        answer = client.post("/login", data=form, headers={"Origin": ORIGIN}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")


@pytest.mark.attack("input")
def test_a_session_id_that_the_browser_brings_is_not_taken_over(shared_site: Site) -> None:
    with shared_site.client() as client:
        client.cookies.set(COOKIE, "chosen-by-the-attacker")
        form = {"name": "ann", "password": PASSWORD}
        answer = client.post("/login", data=form, headers={"Origin": ORIGIN}, follow_redirects=False)
        assert answer.cookies[COOKIE] != "chosen-by-the-attacker"
    with shared_site.client() as other:
        other.cookies.set(COOKIE, "chosen-by-the-attacker")
        assert other.get("/", follow_redirects=False).status_code == 303


@pytest.mark.attack("input")
def test_each_login_has_a_new_id_and_strict_cookies(shared_site: Site) -> None:
    ids = set()
    for _ in range(2):
        with shared_site.client() as client:
            form = {"name": "ann", "password": PASSWORD}
            answer = client.post("/login", data=form, headers={"Origin": ORIGIN}, follow_redirects=False)
            ids.add(answer.cookies[COOKIE])
            words = answer.headers["set-cookie"].lower()
            assert "httponly" in words
            assert "samesite=strict" in words
    assert len(ids) == 2


@pytest.mark.attack("input")
@pytest.mark.parametrize("change", ["password", "disable"])
def test_a_change_of_the_account_ends_its_sessions(local_site: Site, change: str) -> None:
    with local_site.person("ann") as ann:
        assert ann.get("/").status_code == 200
        if change == "password":
            local_site.accounts.set_password("ann", "another long password")
        else:
            local_site.accounts.disable("ann")
        assert ann.get("/").status_code == 303


def test_a_session_ends_after_an_hour_without_a_request(local_site: Site) -> None:
    with local_site.person("ann") as ann:
        local_site.app.state.console.sessions.idle = timedelta(0)
        assert ann.get("/").status_code == 303


@pytest.mark.attack("input")
def test_a_brute_force_is_stopped_by_account_before_the_password_is_looked_at(local_site: Site) -> None:
    with local_site.client() as client:
        codes = [
            client.post(
                "/login", data={"name": "ann", "password": f"guess {n}"}, headers={"Origin": ORIGIN}
            ).status_code
            for n in range(7)
        ]
        assert codes == [401] * 5 + [429] * 2
        right = client.post("/login", data={"name": "ann", "password": PASSWORD}, headers={"Origin": ORIGIN})
        assert right.status_code == 429
        assert int(right.headers["retry-after"]) > 0


@pytest.mark.attack("input")
def test_a_brute_force_is_stopped_by_address(local_site: Site) -> None:
    with local_site.client() as client:
        codes = [
            client.post("/login", data={"name": f"user{n}", "password": "x"}, headers={"Origin": ORIGIN}).status_code
            for n in range(22)
        ]
        assert codes == [401] * 20 + [429] * 2


@pytest.mark.attack("input")
@pytest.mark.parametrize("origin", [None, "null", "https://evil.example", "http://testserver.local.evil.example"])
def test_a_login_from_another_site_is_refused(shared_site: Site, origin: str | None) -> None:
    headers = {} if origin is None else {"Origin": origin}
    with shared_site.client() as client:
        form = {"name": "ann", "password": PASSWORD}
        answer = client.post("/login", data=form, headers=headers, follow_redirects=False)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
