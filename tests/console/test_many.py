"""Acts on several jobs: the dry run, the act on exactly what it showed, and the release of many under one grant."""

from __future__ import annotations

import re
from typing import Any

from holdfast.console.security.callers import Role
from holdfast.core.commands import Fail
from holdfast.core.machines import JobState
from holdfast.store import Lease
from tests.console.sites import Site


def failed(site: Site, n: int, queue: str) -> list[int]:
    """Return new jobs of a queue that have failed, with attempts left."""
    ids = [site.ledger.submit("noop", queue=queue).job_id for _ in range(n)]
    with site.ledger.store.transaction() as transaction:
        held = transaction.executions.claim(Lease(owner="w", seconds=600, n=n, queues=(queue,)))
        moves = [(one, Fail(one.execution.lease_token, "io_error", "no disk")) for one in held]
        transaction.executions.move(moves, actor="w")
    return ids


def states(site: Site, ids: list[int]) -> set[JobState]:
    return {site.ledger.job(job_id).state for job_id in ids}


def form_of(answer: Any, action: str = "/jobs/act") -> dict[str, str]:
    """Return the hidden fields of the form that a page posts to an address."""
    part = answer.text.partition(f'method="post" action="{action}"')[2].partition("</form>")[0]
    found = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', part))
    found.pop("csrf_token", None)
    return found


def test_all_that_match_are_retried_after_a_dry_run_that_writes_nothing(site: Site) -> None:
    ids = failed(site, 3, "many-a")
    with site.person("ann") as ann:
        shown = ann.get("/jobs/act?act=retry&all=yes&state=failed&queue=many-a")
        fields = form_of(shown)
        assert [pair.partition(":")[0] for pair in fields["jobs"].split(",")] == [str(job_id) for job_id in ids]
        assert states(site, ids) == {JobState.FAILED}
        done = ann.post("/jobs/act", **fields, reason="the disk is back")
        again = ann.post("/jobs/act", **fields, reason="the disk is back")
    assert (done.status_code, again.status_code) == (200, 200)
    assert states(site, ids) == {JobState.PENDING}
    assert again.text.count(">race<") == 3  # to send it again changes nothing
    with site.ledger.store.reading() as reading:
        last = reading.journal.of(ids[0])[-1]
    assert (last.event, last.actor, last.reason) == ("retry", "console:ann", "the disk is back")


def test_selected_jobs_are_cancelled_and_one_that_moved_is_passed_over(site: Site) -> None:
    first, second = failed(site, 2, "many-b")
    other = site.ledger.submit("noop", queue="many-b").job_id
    with site.person("ann") as ann:
        fields = form_of(ann.get(f"/jobs/act?act=cancel&id={first}&id={second}"))
        site.ledger.retry(second)
        assert ann.post("/jobs/act", **fields, reason="not needed").status_code == 200
    assert states(site, [first]) == {JobState.QUARANTINED}
    assert states(site, [second, other]) == {JobState.PENDING}


def test_a_wrong_number_a_viewer_and_an_empty_selection_are_refused(site: Site) -> None:
    [job_id] = failed(site, 1, "many-c")
    address = f"/jobs/act?act=retry&id={job_id}"
    with site.person("ann") as ann, site.person("eve") as eve:
        fields = form_of(ann.get(address))
        assert ann.post("/jobs/act", **{**fields, "expected": "2"}, reason="why").status_code == 400
        assert eve.get(address).status_code == 200
        assert eve.post("/jobs/act", **fields, reason="why").status_code == 403
        assert ann.get("/jobs/act?act=retry").status_code == 400
        assert ann.get("/jobs/act?act=erase&all=yes").status_code == 400
        replay = ann.get(f"/jobs/act?act=replay&id={job_id}")
    assert (replay.status_code, replay.headers["location"]) == (303, f"/replays/new?jobs={job_id}&step=look")
    assert states(site, [job_id]) == {JobState.FAILED}


def test_many_are_released_through_the_api(site: Site) -> None:
    ids = [site.ledger.submit("noop", queue="many-d").job_id for _ in range(3)]
    for job_id in ids:
        site.ledger.quarantine(job_id, "poison", reason="no")
    headers = {"Authorization": f"Bearer {site.token('many', Role.OPERATOR)}"}
    with site.client() as client:
        given = {"act": "release", "queue": "many-d"}
        plan = client.post("/api/v1/jobs/acts/dry-run", json=given, headers=headers).json()
        assert (plan["total"], plan["authority"]) == (3, "OWN")
        stale = [{**job, "version": job["version"] + 1} for job in plan["jobs"]]
        given = {"act": "release", "reason": "mended"}
        refused = client.post("/api/v1/jobs/acts", json={**given, "jobs": stale}, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (409, "plan_stale")
        done = client.post("/api/v1/jobs/acts", json={**given, "jobs": plan["jobs"]}, headers=headers).json()
    assert (done["done"], done["refused"]) == (3, [])
    assert states(site, ids) == {JobState.PENDING}


def test_outside_dev_several_are_released_under_one_grant_of_another_person(prod_site: Site) -> None:
    ids = [prod_site.ledger.submit("noop", queue="many-e").job_id for _ in range(2)]
    for job_id in ids:
        prod_site.ledger.quarantine(job_id, "poison", reason="no")
    address = "/jobs/act?act=release&" + "&".join(f"id={job_id}" for job_id in ids)
    with prod_site.person("ann") as ann:
        shown = ann.get(address)
        assert form_of(shown) == {}
        fields = form_of(shown, "/quarantine/request")
        made = ann.post("/quarantine/request", **fields, reason="mended", rollback_plan="cancel them")
        assert made.headers["location"].startswith("/grants/")
        assert form_of(ann.get(address), "/quarantine/request") == {}  # it waits for an approver
    assert states(prod_site, ids) == {JobState.QUARANTINED}
