"""In prod one person requests and another approves: each sees what it is about, and where it goes on."""

from __future__ import annotations

from html import escape
from typing import Any

from holdfast.console.views.failures import failure_groups
from holdfast.console.views.grants import grant_view, grants_view
from holdfast.console.views.needs import Need
from holdfast.console.views.overview import ledger_of, overview
from holdfast.core.authority import Act
from holdfast.core.machines import GrantState, JobState
from tests.console.sites import PASSWORD, Person, Site
from tests.console.test_many import failed, form_of, states
from tests.console.test_posts import register


def need(site: Site, code: str) -> Need | None:
    """Return a finding of the overview."""
    with site.ledger.store.reading() as reading:
        now = site.ledger.store.now()
        found = overview(reading, failure_groups(reading, now), ledger_of(reading, "sqlite:///x.db"), now).needs
    return next((one for one in found if one.code == code), None)


def approved(site: Site, bob: Person, grant: str) -> Any:
    """Approve a grant, and return what its page says then."""
    answer = bob.post(f"{grant}/approve", reason="looked", password=PASSWORD)
    assert answer.status_code == 303, answer.text
    with site.ledger.store.reading() as reading:
        return grant_view(reading, int(grant.rpartition("/")[2]), site.ledger.store.now())


def test_a_release_of_several_names_its_jobs_to_the_approver_and_its_page_to_the_operator(prod_site: Site) -> None:
    site = prod_site
    register(site, "bob", bootstrap=True)
    ids = [site.ledger.submit("noop", queue="two-a").job_id for _ in range(3)]
    for job_id in ids:
        site.ledger.quarantine(job_id, "parse_error", reason="no")
    with site.person("ann") as ann, site.person("bob") as bob:
        look = ann.get("/jobs/act?act=release&" + "&".join(f"id={job_id}" for job_id in ids))
        fields = form_of(look, "/quarantine/request")
        made = ann.post("/quarantine/request", **fields, reason="mended", rollback_plan="cancel them")
        grant = made.headers["location"]
        waits = need(site, "grants_wait")
        assert waits is not None
        assert "release of 3 quarantined jobs" in waits.detail
        assert [link.href for link in waits.links] == [grant]
        waiting = ann.get(grant).text
        assert "/jobs/act?act=release" not in waiting
        page = bob.get(f"{grant}/approve").text
        assert all(words in page for words in ("release of 3 quarantined jobs", "noop 3", "mended", "cancel them"))
        view = approved(site, bob, grant)
        assert (view.row.state, view.about.job_ids, view.operations) == (GrantState.ACTIVE, tuple(ids), {"noop": 3})
        assert (view.requested_why, view.executor) == ("mended", "console:ann")
        use = need(site, "grant_approved")
        assert use is not None
        assert use.links[0] == view.step
        assert f'href="{escape(use.links[0].href)}"' in ann.get(grant).text
        assert (
            f'href="{escape(use.links[0].href)}"' not in bob.get(grant).text
        )  # the executor uses it, not the approver
        act = form_of(ann.get(use.links[0].href))
        done = ann.post("/jobs/act", **{**act, "expected": "3"}, reason="mended")
        assert done.status_code == 200, done.text
    assert states(site, ids) == {JobState.PENDING}
    assert need(site, "grant_approved") is None
    number = int(grant.rpartition("/")[2])
    with site.ledger.store.reading() as reading:
        listed = grants_view(reading, site.ledger.store.now())
        parts = reading.grants.page(action=Act.RELEASE)
        assert {grant_view(reading, one.grant_id, site.ledger.store.now()).under for one in parts} == {number}
        last = grants_view(reading, site.ledger.store.now(), before=max(one.grant_id for one in parts) + 1)
    assert (listed.rows[0].grant.grant_id, listed.rows[0].permits) == (number, "release of 3 quarantined jobs")
    assert (listed.folded, last.folded, last.rows[0].grant.grant_id) == (3, 3, number)  # one for each job


def test_an_approved_replay_is_found_again_and_runs(prod_site: Site) -> None:
    site = prod_site
    register(site, "bob", bootstrap=True)
    ids = failed(site, 2, "two-b")
    draft = "/replays/new?queue=two-b&code=io_error&since=1h+ago"
    with site.person("ann") as ann, site.person("bob") as bob:
        fields = form_of(ann.get(f"{draft}&step=request"), "/grants/new")
        made = ann.post("/grants/new", **fields, reason="the disk is back", rollback_plan="stop it", ttl_minutes="60")
        assert made.status_code == 303, made.text[-1500:]
        view = approved(site, bob, made.headers["location"])
        assert view.about.words == "replay of failed jobs of queue two-b; code io_error"
        assert view.step is not None
        assert view.step.href.startswith("/replays/new?queue=two-b&code=io_error")
        run = form_of(ann.get(view.step.href.replace("step=look", "step=run")), "/replays/new")
        assert run["grant_id"] == str(view.row.grant.grant_id)
        done = ann.post("/replays/new", **run, total="2", reason="the disk is back", replay_reason="incident")
        assert done.status_code == 303, done.text
    assert states(site, ids) == {JobState.PENDING}


def test_a_lift_leads_from_its_grant_to_the_queue_or_the_switch(prod_site: Site) -> None:
    site = prod_site
    register(site, "bob", bootstrap=True)
    site.ledger.submit("noop", queue="two-c")
    with site.person("ann") as ann, site.person("bob") as bob:
        for throw, target, words, href in (
            ("/queues/two-c/pause", "queue:two-c", "resume of queue two-c", "/queues/two-c/resume"),
            ("/switches/replay/throw", "switch:replay", "lift of switch replay", "/switches/replay/lift"),
        ):
            assert ann.post(throw, reason="stop").status_code == 303
            request = ann.get(href).text
            assert (words[:1].upper() + words[1:] in request, "switch.lift of" in request) == (True, False)
            asked = ann.post("/grants/new", action="switch.lift", target=target, reason="mended", rollback_plan="again")
            view = approved(site, bob, asked.headers["location"])
            assert view.step is not None
            assert (view.about.words, view.step.href) == (words, href)
            assert form_of(ann.get(href), href)["grant_id"] == str(view.row.grant.grant_id)
            assert ann.post(href, reason="mended", grant_id=str(view.row.grant.grant_id)).status_code == 303
