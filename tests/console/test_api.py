"""The HTTP API: what programs submit, read and do with a token, and what a token does not reach."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from holdfast.console.security.callers import Role
from holdfast.console.views.links import part_of
from holdfast.core.selection import Selection, SelectionFilters
from holdfast.governance.replay import replay
from tests.console.sites import ORIGIN, Site
from tests.console.test_posts import failed_job, journal, quarantined

API = "/api/v1"


class Program:
    """A program with a token."""

    def __init__(self, client: httpx.Client, secret: str) -> None:
        self._client, self._headers = client, {"Authorization": f"Bearer {secret}"}

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self._client.get(API + path, params=query, headers=self._headers)

    def post(self, path: str, /, body: Any, **headers: str) -> httpx.Response:
        return self._client.post(API + path, json=body, headers={**self._headers, **headers})


def program(site: Site, name: str, role: Role, **limits: Any) -> Program:
    """Return a program with a token of this name, which the tests of a module share."""
    if site.tokens.get(name) is None:
        site.secrets[name] = site.token(name, role, **limits)
    return Program(site.client(), site.secrets[name])


@pytest.fixture
def robot(site: Site) -> Program:
    return program(site, "robot", Role.OPERATOR)


def test_a_submit_under_a_key_is_one_job(site: Site, robot: Program) -> None:
    body = {"operation": "noop", "payload": {"n": 1}, "queue": "slow", "priority": 3}
    first = robot.post("/jobs", body, **{"Idempotency-Key": "a"})
    again = robot.post("/jobs", body, **{"Idempotency-Key": "a"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert (first.json()["is_new"], again.json()["is_new"]) == (True, False)
    assert first.json()["job_id"] == again.json()["job_id"]
    job = site.ledger.job(first.json()["job_id"])
    assert (job.client, job.key, job.queue, job.priority, job.payload) == ("robot", "a", "slow", 3, '{"n":1}')
    assert journal(site, job.job_id)[0].actor == "token:robot"
    other = robot.post("/jobs", {**body, "payload": {"n": 2}}, **{"Idempotency-Key": "a"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")


def test_a_submit_without_a_key_is_a_job_each_time(site: Site, robot: Program) -> None:
    ids = {robot.post("/jobs", {"operation": "noop"}).json()["job_id"] for _ in range(2)}
    assert len(ids) == 2


@pytest.mark.parametrize(
    "body, status, code",
    [
        ({"operation": "unknown"}, 400, "operation_unknown"),
        ({}, 400, "bad_input"),
        ({"operation": "noop", "extra": 1}, 400, "bad_input"),
        ({"operation": "noop", "payload": []}, 400, "bad_input"),
        ({"operation": "noop", "priority": 2**40}, 400, "bad_input"),
        ({"operation": "noop", "run_at": "2030-01-31T12:00:00"}, 400, "bad_input"),
        ({"operation": "no\u0000op"}, 400, "operation_unknown"),
        ({"operation": "noop", "queue": "a\u0000b"}, 400, "bad_input"),
        ({"operation": "noop", "client": "holdfast"}, 400, "bad_input"),
        ([1], 400, "bad_input"),
    ],
)
def test_a_bad_submit_is_a_problem_with_a_code(robot: Program, body: Any, status: int, code: str) -> None:
    answer = robot.post("/jobs", body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert answer.json()["next_step"]


def test_jobs_are_listed_by_keyset_and_filtered(site: Site, robot: Program) -> None:
    made = [site.ledger.submit("noop", queue="listed", key=f"k{n}", client="lister").job_id for n in range(5)]
    seen, cursor = [], None
    while True:
        query = {"queue": "listed", "limit": 2, **({"cursor": cursor} if cursor else {})}
        page = robot.get("/jobs", **query).json()
        seen += [job["job_id"] for job in page["jobs"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == made[::-1]
    assert robot.get("/jobs", queue="listed", state="failed").json()["jobs"] == []
    [found] = robot.get("/jobs", client="lister", key="k3").json()["jobs"]
    assert found["job_id"] == made[3]
    assert robot.get("/jobs", client="lister", key="none").json()["jobs"] == []


def test_jobs_are_listed_by_error_and_time(site: Site, robot: Program) -> None:
    job_id = failed_job(site)
    created = site.ledger.job(job_id).created_at
    assert job_id in [one["job_id"] for one in robot.get("/jobs", code="io_error").json()["jobs"]]
    assert robot.get("/jobs", code="none_such").json() == {"jobs": [], "next_cursor": None}
    since = robot.get("/jobs", since=created.isoformat(), code="io_error").json()["jobs"]
    assert job_id in [one["job_id"] for one in since]
    until = robot.get("/jobs", until=created.isoformat(), code="io_error").json()["jobs"]
    assert job_id not in [one["job_id"] for one in until]
    assert robot.get("/jobs", since="2030-01-31T12:00:00").json()["code"] == "bad_input"
    assert robot.get("/jobs", since="0001-01-01T00:00:00+14:00").status_code == 400


def test_a_page_that_reached_its_bound_gives_the_next_position(
    site: Site, robot: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.console import selections
    from holdfast.store.verbs.watch import job_lines

    wanted = site.ledger.submit("noop", queue="rare").job_id
    for _ in range(5):
        site.ledger.submit("noop", queue="common")
    monkeypatch.setattr(selections, "job_lines", lambda *given, **more: job_lines(*given, **more, window=2))
    pages, cursor, found = 0, None, []
    while True:
        page = robot.get("/jobs", queue="rare", client="local", **({"cursor": cursor} if cursor else {})).json()
        pages, cursor = pages + 1, page["next_cursor"]
        found += [one["job_id"] for one in page["jobs"]]
        if cursor is None or found:
            break
    assert (found, pages > 1) == ([wanted], True)


def test_a_job_is_shown_without_secrets_and_explained(site: Site, robot: Program) -> None:
    job_id = site.ledger.submit("noop", {"password": "hunter2", "path": "a.png"}).job_id
    shown = robot.get(f"/jobs/{job_id}").json()
    assert shown["payload"] == {"password": "***", "path": "a.png"}
    assert shown["journal"][0]["event"] == "submit"
    explained = robot.get(f"/jobs/{job_id}/explain").json()
    assert (explained["verdict"], explained["findings"][0]["code"]) == ("blocked", "no_worker")
    missing = robot.get("/jobs/999999")
    assert (missing.status_code, missing.json()["code"]) == (404, "job_not_found")


def test_acts_on_jobs(site: Site, robot: Program) -> None:
    job_id = failed_job(site)
    version = site.ledger.job(job_id).version
    stale = robot.post(f"/jobs/{job_id}/retry", {"reason": "x", "version": version - 1})
    assert (stale.status_code, stale.json()["code"]) == (409, "state_transition_race")
    assert robot.post(f"/jobs/{job_id}/retry", {"reason": "mended", "version": version}).json()["state"] == "pending"
    assert robot.post(f"/jobs/{job_id}/quarantine", {"reason": "no", "code": "poison"}).json()["state"] == "quarantined"
    released = robot.post(f"/jobs/{job_id}/release", {"reason": "yes"}).json()
    assert (released["state"], released["grant_id"] > 0) == ("pending", True)
    assert robot.post(f"/jobs/{job_id}/cancel", {"reason": "enough"}).json()["state"] == "quarantined"
    last = journal(site, job_id)[-1]
    assert (last.actor, last.reason) == ("token:robot", "enough")
    assert robot.post(f"/jobs/{job_id}/retry", {"reason": ""}).status_code == 400


def test_endpoints_about_the_whole_ledger(site: Site, robot: Program) -> None:
    assert robot.post("/queues/default/pause", {"reason": "down"}).json() == {
        "name": "default", "changed": True, "job_id": None,
    }  # fmt: skip
    assert next(one for one in robot.get("/queues").json() if one["queue"] == "default")["paused"]
    assert robot.get("/stats").json()["paused"] == ["default"]
    assert robot.post("/queues/default/resume", {"reason": "up"}).json()["changed"]
    assert robot.post("/switches/operation:noop/throw", {"reason": "bad"}).json()["changed"]
    assert [one["name"] for one in robot.get("/switches").json()] == ["operation:noop"]
    assert robot.post("/switches/operation:noop/lift", {"reason": "good"}).json()["changed"]
    assert robot.get("/workers").json() == []
    assert robot.get("/schedules").json() == []
    assert robot.post("/recover", {"reason": "look"}).json()["job_ids"] == []
    assert sum(robot.get("/stats").json()["states"].values()) > 0


def test_health_and_readiness_need_no_token_and_no_name(site: Site) -> None:
    with site.client() as client:
        for path in ("/health", "/ready"):
            assert client.get(API + path, headers={"Host": "10.0.0.7:8420"}).json() == {"status": "ok"}


def test_readiness_reports_an_unreachable_database(local_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.core.errors import StoreUnavailableError

    def away() -> Any:
        raise StoreUnavailableError("the database does not answer")

    monkeypatch.setattr(local_site.ledger.store, "reading", away)
    with local_site.client() as client:
        answer = client.get(f"{API}/ready")
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        assert client.get(f"{API}/health").status_code == 200


def test_metrics_need_a_token(site: Site, robot: Program) -> None:
    with site.client() as client:
        assert client.get("/metrics", follow_redirects=False).status_code == 401  # a scraper follows no login
        answer = client.get("/metrics", headers=robot._headers)
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "# TYPE holdfast_jobs gauge" in answer.text


def test_a_name_with_a_slash_is_one_part_of_an_address(site: Site, robot: Program) -> None:
    root = "ann/50% of 2026-11"
    selection = Selection(name="named", env="dev", filters=SelectionFilters(jobs=(str(failed_job(site)),)))
    store = site.ledger.store
    replay.run(store, selection, actor="ann", reason="S3 is back", replay_reason="incident", root=root)
    address = f"/replays/{part_of(root)}"
    shown = robot.get(address)
    assert (shown.status_code, shown.json()["run_id"], shown.json()["replayed"]) == (200, root, 1)
    ended = robot.post(f"{address}/stop", {"reason": "too hot"})
    assert (ended.status_code, ended.json()["context"]["run_id"]) == (409, root)
    with site.person("ann") as ann:
        listed, page = ann.get("/replays"), ann.get(address)
    assert (f'href="{address}"' in listed.text, page.status_code, root in page.text) == (True, 200, True)
    robot.post("/jobs", {"operation": "noop", "queue": "eu/west"})
    paused = robot.post(f"/queues/{part_of('eu/west')}/pause", {"reason": "x"})
    assert paused.json()["name"] == "eu/west"
    with site.ledger.store.reading() as reading:
        assert "eu/west" in reading.queues.paused()


def test_a_replay_by_dry_run_and_run(site: Site, robot: Program) -> None:
    jobs = [str(failed_job(site)) for _ in range(2)]
    shown = robot.post("/replays/dry-run", {"jobs": jobs}).json()
    assert (shown["total"], shown["grant_needed"]) == (2, False)
    run = {"selection": {"jobs": jobs}, "candidates_hash": shown["candidates_hash"], "total": 2, "reason": "mended"}
    stale = robot.post("/replays", {**run, "candidates_hash": "0" * 64})
    assert (stale.status_code, stale.json()["code"]) == (409, "plan_stale")
    begun = robot.post("/replays", run)
    assert (begun.status_code, begun.json()["total"], begun.json()["actor"]) == (202, 2, "token:robot")
    assert robot.get(f"/replays/{begun.json()['run_id']}").json()["replayed"] == 2
    missing = robot.get("/replays/none")
    assert (missing.status_code, missing.json()["code"]) == (404, "record_not_found")


def test_grants_are_requested_by_programs_and_approved_by_people(prod_site: Site) -> None:
    site = prod_site
    robot = program(site, "robot", Role.OPERATOR)
    with site.person("ann") as ann:
        job_id = quarantined(site, ann)
    body = {"action": "job.release", "target": f"job:{job_id}", "reason": "mended", "rollback_plan": "quarantine"}
    made = robot.post("/grants", body)
    assert (made.status_code, made.json()["state"], made.json()["executor"]) == (201, "draft", "token:robot")
    grant_id = made.json()["grant_id"]
    twice = robot.post("/grants", body)
    assert (twice.status_code, twice.json()["code"]) == (403, "grant_exists")
    refused = robot.post(f"/jobs/{job_id}/release", {"reason": "mended", "grant_id": grant_id})
    assert (refused.status_code, refused.json()["code"]) == (403, "REJECT_AUTH_NOT_ACTIVE")
    assert robot.post(f"/grants/{grant_id}/approve", {"reason": "me"}).status_code == 404
    assert robot.get(f"/grants/{grant_id}").json()["journal"][0]["actor"] == "token:robot"
    assert grant_id in [one["grant_id"] for one in robot.get("/grants", state="draft").json()["grants"]]
    assert robot.post(f"/grants/{grant_id}/revoke", {"reason": "not needed"}).json()["state"] == "revoked"


# ---------------------------------------------------------------------------------------------------------------------
# Attacks


@pytest.mark.attack("input")
@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer hf_guess", "Basic YW5uOng=", "Bearer \N{SNOWMAN}", "x" * 9000]
)
def test_a_request_without_a_token_is_refused(site: Site, header: str) -> None:
    with site.client() as client:
        headers = [(b"Authorization", header.encode())] if header else []
        answer = client.get(f"{API}/jobs", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "not_logged_in")
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.attack("input")
def test_a_wrong_token_is_not_forgiven_because_of_a_cookie(site: Site) -> None:
    with site.person("ann") as ann:
        assert ann.client.get(f"{API}/jobs").status_code == 200
        assert ann.client.get(f"{API}/jobs", headers={"Authorization": "Bearer hf_x"}).status_code == 401


@pytest.mark.attack("input")
def test_a_cookie_alone_does_not_act_through_the_api(site: Site) -> None:
    with site.person("ann") as ann:
        body = {"reason": "x"}
        assert ann.client.post(f"{API}/recover", json=body).json()["code"] == "origin_refused"
        own = {"Origin": ORIGIN}
        assert ann.client.post(f"{API}/recover", json=body, headers=own).json()["code"] == "csrf_refused"
        own["X-CSRF-Token"] = ann.csrf_token()
        assert ann.client.post(f"{API}/recover", json=body, headers=own).status_code == 200


@pytest.mark.attack("input")
@pytest.mark.parametrize("change", ["revoke", "disable"])
def test_a_token_ends_with_its_revocation_and_with_its_owner(local_site: Site, change: str) -> None:
    robot = program(local_site, "robot", Role.VIEWER)
    assert robot.get("/jobs").status_code == 200
    if change == "revoke":
        local_site.tokens.revoke("robot")
    else:
        local_site.accounts.disable("ann")
    assert robot.get("/jobs").status_code == 401


@pytest.mark.attack("input")
def test_a_viewers_token_cannot_act_or_submit(site: Site) -> None:
    viewer = program(site, "viewer", Role.VIEWER)
    assert viewer.get("/jobs").status_code == 200
    for path, body in (
        ("/jobs", {"operation": "noop"}),
        ("/recover", {"reason": "x"}),
        ("/jobs/1/cancel", {"reason": "x"}),
    ):
        answer = viewer.post(path, body)
        assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")


@pytest.mark.attack("input")
def test_a_submitters_token_submits_only_as_itself_and_cannot_act(site: Site) -> None:
    shop = program(site, "shop", Role.SUBMITTER)
    assert shop.post("/jobs", {"operation": "noop"}).status_code == 201
    foreign = shop.post("/jobs", {"operation": "noop", "client": "bank"}, **{"Idempotency-Key": "1"})
    assert (foreign.status_code, foreign.json()["code"]) == (403, "token_scope")
    assert shop.post("/recover", {"reason": "x"}).json()["code"] == "permission_denied"


@pytest.mark.attack("input")
def test_a_limited_token_sees_and_changes_nothing_outside(site: Site) -> None:
    inside = site.ledger.submit("noop", queue="orders").job_id
    outside = site.ledger.submit("noop", queue="payroll").job_id
    token = program(site, "orders-only", Role.OPERATOR, queues=["orders"])
    assert token.get(f"/jobs/{inside}").status_code == 200
    for path in (f"/jobs/{outside}", f"/jobs/{outside}/explain"):
        assert (token.get(path).status_code, token.get(path).json()["code"]) == (404, "job_not_found")
    for act in ("cancel", "retry", "release"):
        answer = token.post(f"/jobs/{outside}/{act}", {"reason": "x"})
        assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")
    assert {job["queue"] for job in token.get("/jobs").json()["jobs"]} == {"orders"}
    assert token.get("/jobs", queue="payroll").json()["code"] == "token_scope"
    assert token.get("/jobs", client="local", key="k").json()["jobs"] == []
    assert token.post("/jobs", {"operation": "noop", "queue": "payroll"}).json()["code"] == "token_scope"
    assert token.post("/jobs", {"operation": "noop"}).json()["code"] == "token_scope"
    assert [one["queue"] for one in token.get("/queues").json()] == ["orders"]
    assert token.post("/queues/payroll/pause", {"reason": "x"}).json()["code"] == "token_scope"
    for path in ("/workers", "/grants", "/schedules", "/switches"):
        assert token.get(path).json()["code"] == "token_scope"
    for path in ("/recover", "/switches/replay/throw", "/schedules/x/trigger"):
        assert token.post(path, {"reason": "x"}).json()["code"] == "token_scope"
    assert token.post("/replays/dry-run", {}).json()["code"] == "token_scope"
    assert site.ledger.job(outside).state == "pending"


@pytest.mark.attack("input")
@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/1", "/queues", "/grants", "/journal", "/live/overview"])
def test_a_token_reaches_no_page(site: Site, robot: Program, path: str) -> None:
    with site.client() as client:
        answer = client.get(path, headers=robot._headers)
        assert answer.status_code == 403
        assert "permission_denied" in answer.text


@pytest.mark.attack("input")
def test_a_token_of_one_operation_covers_no_other_and_no_whole_queue(site: Site) -> None:
    token = program(site, "greets-only", Role.OPERATOR, operations=["greet"])
    job_id = site.ledger.submit("noop").job_id
    assert token.get(f"/jobs/{job_id}").status_code == 404
    assert token.post("/jobs", {"operation": "noop"}).json()["code"] == "token_scope"
    assert token.post("/queues/default/pause", {"reason": "x"}).json()["code"] == "token_scope"
    assert token.post("/switches/operation:noop/throw", {"reason": "x"}).json()["code"] == "token_scope"
    assert token.get("/stats").json()["operations"] == {}


@pytest.mark.attack("input")
@pytest.mark.parametrize(
    "text",
    [
        "' OR 1=1 --",
        '"; DROP TABLE holdfast_jobs; --',
        "%' UNION SELECT 1 --",
        "\\",
        "%",
        "_",
        "$1",
        ":queue",
        "\u202e",
    ],
)
def test_sql_in_filters_is_text(site: Site, robot: Program, text: str) -> None:
    for name in ("queue", "operation", "client", "key"):
        answer = robot.get("/jobs", **{name: text})
        assert (answer.status_code, answer.json()["jobs"]) == (200, [])
    assert robot.get("/grants", target=text).json()["grants"] == []
    assert robot.get("/jobs", state=text).status_code == 400
    assert robot.get("/jobs", cursor=text).status_code == 400
    assert robot.get("/stats").status_code == 200


@pytest.mark.attack("input")
@pytest.mark.parametrize(
    "path, name, near", [("/jobs", "stat", "state"), ("/grants", "target_", "target"), ("/stats", "zz", None)]
)
def test_a_filter_that_does_not_exist_is_refused(robot: Program, path: str, name: str, near: str | None) -> None:
    answer = robot.get(path, **{name: "failed"})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_input")
    assert answer.json()["context"] == {"parameter": name, "nearest": near}


@pytest.mark.attack("input")
def test_the_first_fault_of_a_request_is_named_in_its_detail(robot: Program) -> None:
    for answer, name in (
        (robot.post("/jobs", {"operation": "noop", "priorty": 1}), "priorty"),
        (robot.get("/jobs", limit="0"), "limit"),
        (robot.get("/jobs", state="lost"), "state"),
    ):
        assert name in answer.json()["detail"]


@pytest.mark.attack("input")
@pytest.mark.parametrize("limit", ["0", "-1", "1001", "99999999999999999999", "x", ""])
def test_numbers_have_ranges(robot: Program, limit: str) -> None:
    assert robot.get("/jobs", limit=limit).status_code == 400
    assert robot.get(f"/jobs/{limit or '-'}").status_code in (400, 404)


@pytest.mark.attack("input")
def test_an_oversized_body_is_refused(robot: Program) -> None:
    huge = {"operation": "noop", "payload": {"x": "y" * (2 << 20)}}
    answer = robot.post("/jobs", huge)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


@pytest.mark.attack("input")
@pytest.mark.parametrize(
    "content, code",
    [
        (b'{"operation": "noop", "payload": ' + b'{"a":' * 100 + b"1" + b"}" * 101, "payload_too_deep"),
        (b"[" * 100_000, "payload_too_deep"),
        (b'{"operation": "noop", "operation": "noop"}', "payload_not_json"),
        (b'{"operation": "noop", "payload": {"n": NaN}}', "payload_not_json"),
        (b'{"operation": "noop", "payload": {"n": 1' + b"0" * 5000 + b"}}", "payload_not_json"),
        (b"\xff\xfe", "payload_not_json"),
        (b'{"operation": "\\ud800"}', "payload_not_json"),
        (b"{", "payload_not_json"),
    ],
)
def test_a_deep_or_broken_body_is_refused(site: Site, robot: Program, content: bytes, code: str) -> None:
    with site.client() as client:
        answer = client.post(f"{API}/jobs", content=content, headers=robot._headers)
        assert (answer.status_code, answer.json()["code"]) == (400, code)


@pytest.mark.attack("input")
def test_hostile_text_stays_data(site: Site, robot: Program) -> None:
    hostile = '"><script>alert(1)</script>\u2028'
    body = {"operation": "noop", "payload": {"x": hostile}, "queue": hostile}
    job_id = robot.post("/jobs", body, **{"Idempotency-Key": "<script>"}).json()["job_id"]
    answer = robot.get(f"/jobs/{job_id}")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.json()["job"]["queue"] == hostile
