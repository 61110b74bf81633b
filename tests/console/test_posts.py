"""What people do through the forms of the pages: each act is journalled under their name, or refused with a code."""

from __future__ import annotations

import html
import re
import shlex
from typing import Any

import pytest

from holdfast.core.commands import Fail
from holdfast.core.journal import JournalRow
from holdfast.core.machines import GRANT
from holdfast.scheduling.schedules import Schedule, Schedules
from holdfast.store import Lease
from tests.cli.test_commands_in_texts import parsed
from tests.console.sites import ORIGIN, PASSWORD, Person, Site


def code_of(answer: Any) -> str:
    """Return the code that an error page names."""
    return str(answer.text.split("code <code>")[1].split("</code>")[0])


def new_job(site: Site, **settings: Any) -> int:
    return site.ledger.submit("noop", **settings).job_id


def failed_job(site: Site) -> int:
    """Return a new job that has failed once, with attempts left, and is not retried by itself."""
    job_id = new_job(site, queue=f"q{site.ledger.submit('noop').job_id}")
    queue = site.ledger.job(job_id).queue
    with site.ledger.store.transaction() as transaction:
        [attempt] = transaction.executions.claim(Lease(owner="w", seconds=600, queues=(queue,)))
        failure = Fail(attempt.execution.lease_token, "io_error", "<script>alert(1)</script>")
        transaction.executions.move([(attempt, failure)], actor="w")
    return job_id


def journal(site: Site, subject: int, machine: str = "JOB") -> list[JournalRow]:
    with site.ledger.store.reading() as reading:
        return reading.journal.of(subject, machine)


def version(site: Site, job_id: int) -> str:
    return str(site.ledger.job(job_id).version)


def test_an_operator_cancels_a_job_and_the_journal_names_the_person(site: Site) -> None:
    job_id = new_job(site)
    with site.person("ann") as ann:
        answer = ann.post(f"/jobs/{job_id}/cancel", reason="ordered twice", version=version(site, job_id))
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job_id}")
    last = journal(site, job_id)[-1]
    assert (last.event, last.actor, last.reason) == ("cancel", "console:ann", "ordered twice")


def test_retry_and_quarantine(site: Site) -> None:
    first, second = failed_job(site), new_job(site)
    with site.person("ann") as ann:
        assert ann.post(f"/jobs/{first}/retry", reason="the disk is back").status_code == 303
        assert ann.post(f"/jobs/{second}/quarantine", reason="poison", code="parse_error").status_code == 303
    assert (site.ledger.job(first).state, journal(site, first)[-1].actor) == ("pending", "console:ann")
    assert (site.ledger.job(second).state, journal(site, second)[-1].actor) == ("quarantined", "console:ann")


def test_a_release_in_dev_consumes_a_grant_of_its_own(site: Site) -> None:
    job_id = new_job(site)
    with site.person("ann") as ann:
        ann.post(f"/jobs/{job_id}/quarantine", reason="poison", code="parse_error")
        assert ann.post(f"/jobs/{job_id}/release", reason="mended").status_code == 303
    assert site.ledger.job(job_id).state == "pending"
    assert journal(site, job_id)[-1].grant_id is not None


def test_an_act_on_a_job_that_moved_meanwhile_is_shown_and_not_done(site: Site) -> None:
    job_id = new_job(site)
    seen = version(site, job_id)
    with site.person("ann") as ann:
        ann.post(f"/jobs/{job_id}/cancel", reason="first", version=seen)
        for act in ("retry", "cancel", "quarantine", "release"):
            answer = ann.post(f"/jobs/{job_id}/{act}", reason="second", version=seen, code="parse_error")
            assert (answer.status_code, code_of(answer)) == (409, "state_transition_race")
    assert [row.reason for row in journal(site, job_id)][-1] == "first"


@pytest.mark.parametrize("reason", ["", "   ", "x" * 5000])
def test_an_act_needs_a_reason(site: Site, reason: str) -> None:
    job_id = new_job(site)
    with site.person("ann") as ann:
        answer = ann.post(f"/jobs/{job_id}/cancel", reason=reason)
    assert (answer.status_code, code_of(answer)) == (400, "bad_input")
    assert site.ledger.job(job_id).state == "pending"


def test_a_queue_is_paused_and_resumed(site: Site) -> None:
    with site.person("ann") as ann:
        answer = ann.post("/queues/default/pause", reason="the service is down")
        assert (answer.status_code, answer.headers["location"]) == (303, "/queues/default")
        with site.ledger.store.reading() as reading:
            pause = reading.lists.pause_of("default")
            assert pause is not None
            assert (pause.by, pause.reason) == ("console:ann", "the service is down")
        assert ann.post("/queues/default/resume", reason="it is back").status_code == 303
        unknown = ann.post("/queues/nowhere/pause", reason="typo")
        assert (unknown.status_code, code_of(unknown)) == (400, "queue_unknown")
    with site.ledger.store.reading() as reading:
        assert reading.queues.paused() == []


def test_a_switch_is_thrown_and_lifted(site: Site) -> None:
    with site.person("ann") as ann:
        assert ann.post("/switches/operation:noop/throw", reason="it breaks things").status_code == 303
        with site.ledger.store.reading() as reading:
            assert reading.switches.on()["operation:noop"].thrown_by == "console:ann"
        assert ann.post("/switches/operation:noop/lift", reason="mended").status_code == 303
        assert code_of(ann.post("/switches/operation:nop/throw", reason="typo")) == "bad_input"
    with site.ledger.store.reading() as reading:
        assert reading.switches.on() == {}


def test_a_schedule_is_paused_resumed_and_triggered_by_a_person(site: Site) -> None:
    from holdfast.scheduling.schedules import Schedule, Schedules

    Schedules(site.ledger).add("nightly", Schedule(when="@daily", operation="noop"), actor="t", reason="t")
    with site.person("ann") as ann:
        assert ann.post("/schedules/nightly/pause", reason="moving").status_code == 303
        assert ann.post("/schedules/nightly/resume", reason="moved").status_code == 303
        done = ann.post("/schedules/nightly/trigger", reason="now, please")
    job_id = int(done.headers["location"].rpartition("/")[2])
    first = journal(site, job_id)[0]
    assert (first.event, first.actor, first.reason) == ("submit", "console:ann", "now, please")
    with site.ledger.store.reading() as reading:
        assert reading.configuration.history("schedule", "nightly", limit=1)[0].actor == "console:ann"


def test_stalled_work_is_recovered_by_a_person(site: Site) -> None:
    job_id = new_job(site, queue="stalls")
    with site.ledger.store.transaction() as transaction:
        transaction.executions.claim(Lease(owner="dead", seconds=0.001, queues=("stalls",)))
    with site.person("ann") as ann:
        assert ann.post("/recover", reason="the worker died").status_code == 303
    assert site.ledger.job(job_id).state == "pending"
    assert "console:ann" in {row.actor for row in journal(site, job_id)}


def test_a_replay_runs_exactly_what_its_dry_run_showed(site: Site) -> None:
    from holdfast.console import governed_acts
    from holdfast.console.context import Visit
    from holdfast.console.selections import ReplaySelectionBody

    jobs = [failed_job(site), failed_job(site)]
    console = site.app.state.console
    wanted = ReplaySelectionBody(jobs=tuple(map(str, jobs))).selection("dev")
    shown = governed_acts.dry_run(Visit(console, console.open_caller()), wanted)
    assert shown.total == 2
    form = {
        "jobs": ",".join(map(str, jobs)), "candidates_hash": shown.candidates_hash, "reason": "mended", "total": "2",
    }  # fmt: skip
    with site.person("ann") as ann:
        wrong = ann.post("/replays/new", **{**form, "total": "3"})
        assert (wrong.status_code, code_of(wrong)) == (400, "bad_input")
        stale = ann.post("/replays/new", **{**form, "candidates_hash": "0" * 64})
        assert (stale.status_code, code_of(stale)) == (409, "plan_stale")
        done = ann.post("/replays/new", **form)
        assert done.status_code == 303
    assert done.headers["location"].startswith("/replays/replay-")
    assert {site.ledger.job(job).state for job in jobs} == {"pending"}
    assert journal(site, jobs[0])[-1].actor == "console:ann"


@pytest.mark.parametrize("act", ["jobs/{job}/cancel", "jobs/{job}/quarantine", "schedules/nightly/pause",
                                 "schedules/nightly/resume", "schedules/nightly/trigger"])  # fmt: skip
def test_the_command_of_a_confirmation_can_be_pasted(site: Site, act: str) -> None:
    schedule = Schedule(when="@daily", operation="noop")
    Schedules(site.ledger).add("nightly", schedule, actor="test", reason="to be confirmed")
    with site.person("ann") as ann:
        page = ann.get(f"/{act.format(job=new_job(site))}").text
    [command] = re.findall(r"data-copy>(.*?)</div>", page)
    parsed(shlex.split(html.unescape(command))[1:])


# ---------------------------------------------------------------------------------------------------------------------
# Grants


def requested(site: Site, ann: Person, job_id: int) -> str:
    """Return the path of a grant that ann has requested, to release a job."""
    answer = ann.post(
        "/grants/new", action="job.release", target=f"job:{job_id}", reason="mended", rollback_plan="quarantine again"
    )
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def quarantined(site: Site, ann: Person) -> int:
    job_id = new_job(site)
    assert ann.post(f"/jobs/{job_id}/quarantine", reason="poison", code="parse_error").status_code == 303
    return job_id


def register(site: Site, name: str, **settings: Any) -> None:
    """Register the key of an account as an approver of the ledger."""
    from holdfast.governance.approval import register_approver

    account = site.accounts.get(name)
    assert account is not None
    assert account.public_key is not None
    with site.ledger.store.reading() as reading:
        if f"console:{name}" in reading.grants.approvers():
            return
    register_approver(
        site.ledger.store, f"console:{name}", account.public_key, actor="admin", reason="first", **settings
    )


def test_in_prod_a_release_needs_a_grant_that_another_person_signs_with_the_password(prod_site: Site) -> None:
    site = prod_site
    register(site, "bob", bootstrap=True)
    with site.person("ann") as ann, site.person("bob") as bob:
        job_id = quarantined(site, ann)
        bare = ann.post(f"/jobs/{job_id}/release", reason="mended")
        assert (bare.status_code, code_of(bare)) == (403, "REJECT_AUTH_MISSING")
        grant = requested(site, ann, job_id)
        without = bob.post(f"{grant}/approve", reason="looked")
        assert (without.status_code, code_of(without)) == (403, "password_needed")
        wrong = bob.post(f"{grant}/approve", reason="looked", password=PASSWORD.upper())
        assert (wrong.status_code, code_of(wrong)) == (401, "login_failed")
        assert bob.post(f"{grant}/approve", reason="looked", password=PASSWORD).status_code == 303
        grant_id = grant.rpartition("/")[2]
        done = ann.post(f"/jobs/{job_id}/release", reason="mended", grant_id=grant_id)
        assert (done.status_code, site.ledger.job(job_id).state) == (303, "pending")
        approval = next(row for row in journal(site, int(grant_id), GRANT.name) if row.event == "approve")
        assert (approval.actor, approval.reason) == ("console:bob", "looked")


@pytest.mark.attack("input")
def test_a_grant_works_once(prod_site: Site) -> None:
    site = prod_site
    register(site, "bob", bootstrap=True)
    with site.person("ann") as ann, site.person("bob") as bob:
        job_id = quarantined(site, ann)
        grant = requested(site, ann, job_id)
        bob.post(f"{grant}/approve", reason="looked", password=PASSWORD)
        grant_id = grant.rpartition("/")[2]
        assert ann.post(f"/jobs/{job_id}/release", reason="mended", grant_id=grant_id).status_code == 303
        ann.post(f"/jobs/{job_id}/quarantine", reason="again", code="parse_error")
        again = ann.post(f"/jobs/{job_id}/release", reason="mended", grant_id=grant_id)
        assert (again.status_code, code_of(again)) == (403, "REJECT_AUTH_ALREADY_CONSUMED")
    assert site.ledger.job(job_id).state == "quarantined"


@pytest.mark.attack("input")
def test_no_person_approves_what_they_requested(prod_site: Site) -> None:
    site = prod_site
    with site.person("oda") as oda:
        job_id = quarantined(site, oda)
        grant = requested(site, oda, job_id)
        own = oda.post(f"{grant}/approve", reason="looks good to me", password=PASSWORD)
        assert (own.status_code, code_of(own)) == (403, "self_approval")
    assert journal(site, int(grant.rpartition("/")[2]), GRANT.name)[-1].event == "request"


@pytest.mark.attack("input")
@pytest.mark.parametrize("requester", ["cli:oda", "oda", "cli:ODA", "token:oda-robot"])
def test_no_person_approves_what_they_requested_in_another_way(prod_site: Site, requester: str) -> None:
    from holdfast.console.security.callers import Role
    from tests.governance.granting import requested as requested_by_verb
    from tests.governance.granting import wanted

    site = prod_site
    if site.tokens.get("oda-robot") is None:
        site.tokens.add("oda-robot", owner="oda", role=Role.OPERATOR)
    made = requested_by_verb(site.ledger.store, wanted(site.ledger.store, f"job:{requester}"), requester=requester)
    with site.person("oda") as oda:
        own = oda.post(f"/grants/{made.grant_id}/approve", reason="ok", password=PASSWORD)
        assert (own.status_code, code_of(own)) == (403, "self_approval")
        assert oda.post(f"/grants/{made.grant_id}/revoke", reason="not needed").status_code == 303
    with site.ledger.store.reading() as reading:
        found = reading.grants.get(made.grant_id)
    assert found is not None
    assert (found.state, found.approved_by) == ("revoked", None)


@pytest.mark.attack("input")
def test_a_key_that_is_not_registered_approves_nothing_in_prod(prod_site: Site) -> None:
    site = prod_site
    with site.person("ann") as ann, site.person("oda") as oda:
        grant = requested(site, ann, quarantined(site, ann))
        answer = oda.post(f"{grant}/approve", reason="looked", password=PASSWORD)
        assert (answer.status_code, code_of(answer)) == (403, "approver_unknown")


@pytest.mark.attack("input")
def test_a_password_cannot_be_guessed_by_approving(local_site: Site) -> None:
    with local_site.person("ann") as ann, local_site.person("bob") as bob:
        grant = requested(local_site, ann, quarantined(local_site, ann))
        codes = [code_of(bob.post(f"{grant}/approve", reason="x", password=f"guess number {n}")) for n in range(7)]
        assert codes == ["login_failed"] * 5 + ["too_many_logins"] * 2
        right = bob.post(f"{grant}/approve", reason="x", password=PASSWORD)
        assert right.status_code == 429


@pytest.mark.attack("input")
@pytest.mark.parametrize(
    "path",
    ["/jobs/1/retry", "/jobs/1/cancel", "/queues/default/pause", "/switches/replay/throw", "/recover", "/grants/new",
     "/grants/1/approve", "/grants/1/revoke", "/replays/new", "/schedules/x/trigger"],
)  # fmt: skip
def test_a_viewer_cannot_act(shared_site: Site, path: str) -> None:
    with shared_site.person("eve") as eve:
        answer = eve.post(path, reason="because")
        assert (answer.status_code, code_of(answer)) == (403, "permission_denied")


@pytest.mark.attack("input")
def test_an_approver_cannot_act_and_an_operator_cannot_approve(shared_site: Site) -> None:
    with shared_site.person("bob") as bob, shared_site.person("ann") as ann:
        assert code_of(bob.post("/queues/default/pause", reason="x")) == "permission_denied"
        assert code_of(ann.post("/grants/1/approve", reason="x", password=PASSWORD)) == "permission_denied"


@pytest.mark.attack("input")
@pytest.mark.parametrize("origin", [None, "null", "https://evil.example", f"{ORIGIN}:81", "http://localhost"])
def test_an_act_from_another_site_is_refused(shared_site: Site, origin: str | None) -> None:
    with shared_site.person("ann") as ann:
        data = {"csrf_token": ann.csrf_token(), "reason": "x"}
        headers = {} if origin is None else {"Origin": origin}
        answer = ann.client.post("/queues/default/pause", data=data, headers=headers, follow_redirects=False)
        assert (answer.status_code, code_of(answer)) == (403, "origin_refused")


@pytest.mark.attack("input")
def test_an_act_without_the_token_of_its_session_is_refused(shared_site: Site) -> None:
    with shared_site.person("ann") as ann, shared_site.person("oda") as other:
        foreign = other.csrf_token()
        for token in ("", "x", foreign, "\N{SNOWMAN}"):
            answer = ann.post("/queues/default/pause", reason="x", csrf_token=token)
            assert (answer.status_code, code_of(answer)) == (403, "csrf_refused")
        missing = ann.client.post(
            "/queues/default/pause", data={"reason": "x"}, headers={"Origin": ORIGIN}, follow_redirects=False
        )
        assert code_of(missing) == "csrf_refused"
        files = ann.client.post(
            "/queues/default/pause", files={"csrf_token": ann.csrf_token().encode()}, headers={"Origin": ORIGIN}
        )
        assert files.status_code == 403
    with shared_site.ledger.store.reading() as reading:
        assert reading.queues.paused() == []


@pytest.mark.attack("input")
def test_without_a_session_nothing_is_done(shared_site: Site) -> None:
    with shared_site.client() as client:
        answer = client.post("/queues/default/pause", data={"reason": "x"}, headers={"Origin": ORIGIN})
        assert answer.status_code == 401


@pytest.mark.attack("input")
def test_words_of_an_attacker_are_escaped_on_the_error_page(shared_site: Site) -> None:
    hostile = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    with shared_site.person("ann") as ann:
        for answer in (
            ann.post("/switches/operation:noop/lift", reason=hostile),
            ann.post("/jobs/1/quarantine", reason="x", code=hostile),
            ann.post("/grants/new", action=hostile, target=hostile, reason="x", rollback_plan="x"),
            ann.get("/%3Cscript%3Ealert(1)%3C/script%3E"),
        ):
            assert answer.status_code >= 400
            assert "<script>alert" not in answer.text
            assert "<img src=x" not in answer.text
