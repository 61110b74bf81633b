"""Four bad nights, each found and put right from the console alone, beginning at the overview.

An expired key, a poison payload, a stuck worker (one that was killed, and one whose handlers hang), a thundering retry.
Each walk counts the pages that it opens: so few take a person less than two minutes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta

import pytest
from playwright.sync_api import Browser, Page, expect

from holdfast import Execution, Ledger, Quarantine
from holdfast.core.commands import Fail
from holdfast.core.machines import JobState
from holdfast.store import Lease
from tests.console.browsing import keep, served, tab
from tests.engine.working import eventually, working
from tests.support.browsers import CHROMIUM
from tests.support.ledgers import new_ledger
from tests.support.postgres import Server

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed; the end of the run says so")

PAGES_MAX = 8
HUNG = 2  # the first attempts of so many jobs hang, in a worker with as many slots


class Night:
    """A ledger whose handlers do what the world lets them, and the console over it."""

    def __init__(self, url: str) -> None:
        self.ledger = Ledger(url, create=False)
        self.address = ""
        self.key_is_good = False
        self.parses_all = False
        self.camera_answers = threading.Event()
        self.grabs: list[tuple[int, int]] = []
        operation = self.ledger.operation
        operation("pay.charge", queue="pay", max_attempts=1)(self.charge)
        operation("feed.parse", queue="feed", max_attempts=3)(self.parse)
        operation("geo.tile", queue="geo", max_attempts=3)(self.tile)
        operation("cam.grab", queue="cam", max_attempts=3, lease_s=3.0)(self.grab)
        operation("crm.push", queue="crm", max_attempts=50)(self.push)

    def charge(self, _run: Execution, /, order: int) -> int:
        if not self.key_is_good:
            raise PermissionError(f"order {order}: the API key expired on 2026-11-15")
        return order

    def parse(self, _run: Execution, /, text: str) -> str:
        if text.startswith("\ufeff") and not self.parses_all:
            raise Quarantine("parse_error", "the first line cannot be parsed")
        return text

    def tile(self, _run: Execution, /, x: int) -> int:
        return x

    def grab(self, run: Execution, /, camera: int) -> int:
        self.grabs.append((camera, run.attempt))
        if run.attempt == 1 and camera < HUNG:
            self.camera_answers.wait(60)
        return camera

    def push(self, _run: Execution, /, n: int) -> int:
        return n

    def submit(self, operation: str, *payloads: Mapping[str, object]) -> list[int]:
        return [self.ledger.submit(operation, dict(payload)).job_id for payload in payloads]

    def work(self, queue: str) -> None:
        self.ledger.run_until_idle(queues=[queue])

    def states(self, ids: list[int]) -> set[JobState]:
        return {self.ledger.job(job_id).state for job_id in ids}


@pytest.fixture(scope="module")
def night(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    """One console for all walks over a database; each walk has a queue of its own."""
    server: Server | None = None
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('night') / 'shop.db'}"
        new_ledger("dev").to_file(url)
    else:
        server = request.getfixturevalue("pg_server")
        url, _ = new_ledger("dev").to_database(server)
    made = Night(url)
    with served(made.ledger) as made.address:
        yield made
    made.ledger.close()
    if server is not None:
        server.start()
        server.drop_database(url)


@pytest.fixture
def page(request: pytest.FixtureRequest, browser: Browser, night: Night) -> Iterator[Page]:
    """A tab at the overview; at the end it has opened few pages, and logged no error."""
    opened: list[str] = []
    with tab(browser, night.address) as (made, wrong):
        made.on("framenavigated", lambda frame: opened.append(frame.url))
        made.goto("/")
        yield made
        keep(made, f"night-{request.node.name}")
        assert wrong == []
        assert len(opened) <= PAGES_MAX, opened


def because(page: Page, reason: str, button: str | re.Pattern[str]) -> None:
    """Give the reason, and press the button of the form."""
    page.locator("textarea[name=reason]").fill(reason)
    page.locator("main form").get_by_role("button", name=button).click()


@pytest.mark.parametrize("night", ["sqlite", pytest.param("postgres", marks=pytest.mark.pg)], indirect=True)
def test_an_expired_key(night: Night, browser: Browser) -> None:
    ids = night.submit("pay.charge", *({"order": n} for n in range(12)))
    night.work("pay")
    assert night.states(ids) == {JobState.QUARANTINED}  # permission errors are not retried
    opened: list[str] = []
    with tab(browser, night.address) as (page, wrong):
        page.on("framenavigated", lambda frame: opened.append(frame.url))
        page.goto("/")
        need = page.locator(".need li", has_text="12 jobs of pay.charge went to quarantine")
        need.get_by_role("link", name="Show the jobs").click()
        expect(page.locator("main")).to_contain_text("the API key expired")
        night.key_is_good = True  # a person has put the new key in place
        page.get_by_label("All that match").check()
        page.get_by_role("button", name="Release…").click()
        because(page, "the key was renewed", "Release 12 jobs")
        expect(page.locator("h1")).to_have_text("12 jobs released")
        keep(page, f"night-expired-key-{night.ledger.store.dialect}")
        assert wrong == []
    assert len(opened) <= PAGES_MAX, opened
    night.work("pay")
    assert night.states(ids) == {JobState.SUCCEEDED}


@pytest.mark.parametrize("night", ["sqlite"], indirect=True)
def test_a_poison_payload(night: Night, page: Page) -> None:
    ids = night.submit("feed.parse", {"text": "good"}, {"text": "\ufeffbad"}, {"text": "\ufeffworse"})
    night.work("feed")
    poison = ids[1:]
    assert (night.states(ids[:1]), night.states(poison)) == ({JobState.SUCCEEDED}, {JobState.QUARANTINED})
    page.reload()
    need = page.locator(".need li", has_text="2 jobs of feed.parse went to quarantine")
    expect(need).to_contain_text("the first line cannot be parsed")
    page.get_by_role("link", name=re.compile("^Quarantine")).click()
    page.get_by_role("link", name=str(poison[0]), exact=True).click()
    expect(page.locator("main")).to_contain_text("the first line cannot be parsed")
    expect(page.locator("main")).to_contain_text("bad")  # the payload says why
    night.parses_all = True  # the new version of the handler is out
    page.go_back()
    for job_id in poison:
        page.get_by_label(f"Select job {job_id}").check()
    page.get_by_role("button", name="Release the selected…").click()
    because(page, "the parser takes a byte order mark now", "Release 2 jobs")
    expect(page.locator("h1")).to_have_text("2 jobs released")
    page.goto("/")
    expect(need).to_have_count(0)  # at once, not with the next snapshot
    night.work("feed")
    assert night.states(ids) == {JobState.SUCCEEDED}


@pytest.mark.parametrize("night", ["sqlite"], indirect=True)
def test_a_stuck_worker(night: Night, page: Page) -> None:
    """One worker was killed, and its leases have expired; another one hangs, and its lease is alive."""
    killed, hanging = night.submit("geo.tile", {"x": 1}, {"x": 2})
    ledger = night.ledger
    with ledger.store.transaction() as transaction:
        transaction.executions.claim_these([hanging], Lease(owner="geo-2/h4ng", seconds=3600))
        transaction.workers.seen("geo-2/h4ng", ("geo",), ("geo.tile",), 1)
        transaction.workers.stopped("geo-2/h4ng")
        transaction.executions.claim_these([killed], Lease(owner="geo-1/dead", seconds=1e-3))
    page.reload()
    page.get_by_role("link", name="Recover…").first.click()
    because(page, "geo-1 was killed", "Recover")
    page.wait_for_url("**/workers")
    assert night.states([killed]) == {JobState.PENDING}
    page.goto("/")
    need = page.locator(".need li", has_text="geo-2/h4ng")
    need.get_by_role("link", name="End the attempt…").click()
    because(page, "geo-2 hangs", "End the attempt")
    page.wait_for_url(f"**/jobs/{hanging}")
    night.work("geo")
    assert night.states([killed, hanging]) == {JobState.SUCCEEDED}


@pytest.mark.parametrize("night", ["sqlite", pytest.param("postgres", marks=pytest.mark.pg)], indirect=True)
def test_a_worker_whose_handlers_hang(night: Night, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers hold all slots of a worker that runs; the slot of an attempt that is ended is free for other jobs."""
    monkeypatch.setattr("holdfast.engine.worker.worker.UNLEASED_S", 0.3)
    monkeypatch.setattr("holdfast.console.views.needs.HANGS", timedelta(0))
    monkeypatch.setattr("holdfast.console.views.needs.LATE_S", 0.0)
    ids = night.submit("cam.grab", *({"camera": n} for n in range(HUNG + 2)))
    opened: list[str] = []
    with (
        working(night.ledger, queues=["cam"], concurrency=HUNG),
        tab(browser, night.address) as (page, wrong),
    ):
        eventually(lambda: len(night.grabs) == HUNG, "its handlers hang")
        page.on("framenavigated", lambda frame: opened.append(frame.url))
        page.goto("/")
        need = page.locator(".need li", has_text=f"cam does nothing: all {HUNG} slots are held")
        need.get_by_role("link", name="End the attempt…").click()
        because(page, "the camera does not answer", "End the attempt")
        page.wait_for_url(re.compile(r"/jobs/\d+$"))
        expect(page.locator("h1 + .st")).to_have_text("succeeded")  # the page follows the job
        ended = int(page.url.rpartition("/")[2])
        [hangs] = {*ids[:HUNG]} - {ended}
        eventually(lambda: night.states([ended, *ids[HUNG:]]) == {JobState.SUCCEEDED}, "the others run")
        page.goto("/workers?queue=cam")
        held = page.locator("tbody tr", has_text=f"1 / {HUNG}")
        expect(held.get_by_role("link", name=str(hangs), exact=True)).to_be_visible()
        keep(page, f"night-hung-handler-{night.ledger.store.dialect}")
        night.camera_answers.set()
        eventually(lambda: night.states(ids) == {JobState.SUCCEEDED}, "the last one ends")
        assert wrong == []
    assert len(opened) <= PAGES_MAX, opened
    assert sorted(night.grabs) == sorted([*((n, 1) for n in range(HUNG + 2)), (ids.index(ended), 2)])


@pytest.mark.parametrize("night", ["sqlite"], indirect=True)
def test_a_thundering_retry(night: Night, page: Page) -> None:
    """A service is down; its jobs fail and are retried at once, again and again."""
    ids = night.submit("crm.push", *({"n": n} for n in range(40)))
    store = night.ledger.store
    with store.transaction() as transaction:
        held = transaction.executions.claim(Lease(owner="crm-1/77", seconds=600, n=40, queues=("crm",)))
        fails = [(one, Fail(one.execution.lease_token, "http_503", "down", retry_at=store.now())) for one in held]
        transaction.executions.move(fails, actor="crm-1/77")
    page.goto("/")
    need = page.locator(".need li", has_text="crm.push fails and is retried")
    expect(need).to_contain_text("http_503")
    need.get_by_role("link", name="Switch it off…").click()
    because(page, "the CRM is down", "Throw the switch")
    page.wait_for_url("**/switches")
    night.work("crm")
    assert night.states(ids) == {JobState.PENDING}  # nothing of it starts
    page.get_by_role("link", name="Lift…").click()
    because(page, "the CRM is back", "Lift the switch")
    page.wait_for_url("**/switches")
    night.work("crm")
    assert night.states(ids) == {JobState.SUCCEEDED}
