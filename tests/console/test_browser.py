"""The console in a real browser: every page and the main flows, accessibility by axe, both themes, phone width, keys.

Invariants: one browser serves the whole run; a page may log no error; nothing is loaded from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, expect

from holdfast import Ledger
from holdfast.testing import virtual_world
from tests.console.browsing import PATIENCE_MS, keep, served, tab
from tests.console.scenes import Scene
from tests.console.test_pages import PAGES, of_scene
from tests.support.browsers import CHROMIUM

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed; the end of the run says so")

SERIOUS = frozenset({"serious", "critical"})


# Every page is walked on PostgreSQL in `make prove`: what differs between the databases, the HTTP tests see on both.
on_both = pytest.mark.parametrize(
    "scene",
    ["sqlite", pytest.param("postgres", marks=[pytest.mark.pg, pytest.mark.slow])],
    indirect=True,
    scope="module",
)


@pytest.fixture(scope="module")
def site(scene: tuple[Ledger, Scene]) -> Iterator[tuple[str, Ledger, Scene]]:
    """A console over a ledger with realistic data, for tests that only look."""
    ledger, made = scene
    with served(ledger) as address:
        yield address, ledger, made


def violations(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:120]}" for one in found if one["impact"] in SERIOUS]


@on_both
def test_every_page_is_accessible_and_logs_no_error(browser: Browser, site: tuple[str, Ledger, Scene]) -> None:
    address, _, scene = site
    bad: dict[str, list[str]] = {}
    templates: set[str] = set()
    with tab(browser, address) as (page, wrong):
        for path in dict.fromkeys([*PAGES, *of_scene(scene)]):
            page.goto(path)
            kind = "form" if page.locator(".confirm form").count() else re.sub(r"\d+", "N", path.split("?")[0])
            # Axe takes a second a page on a busy machine: it looks once at pages of the same kind.
            if kind not in templates:
                keep(page, f"page-{kind}")
            found = [*(violations(page) if kind not in templates else ()), *wrong]
            templates.add(kind)
            wrong.clear()
            if found:
                bad[path] = found
    assert bad == {}


@on_both
@pytest.mark.parametrize(
    "theme, width", [("dark", 1400), ("light", 390), pytest.param("dark", 390, marks=pytest.mark.slow)]
)
def test_both_themes_and_phone_width(browser: Browser, site: tuple[str, Ledger, Scene], theme: str, width: int) -> None:
    address, _, scene = site
    bad: dict[str, list[str]] = {}
    viewport = {"width": width, "height": 844}
    with tab(browser, address, viewport=viewport, color_scheme=theme) as (page, wrong):
        for path in (
            "/",
            "/jobs?state=failed",
            f"/jobs/{scene.retried}",
            "/replays/new?step=look&operation=nodd.ingest",
        ):
            page.goto(path)
            keep(page, f"{theme}-{width}-{path.split('?')[0]}")
            # Axe has seen these pages in the light theme; it sees them at phone width in the slow case.
            found = [*(violations(page) if theme == "dark" else ()), *wrong]
            if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                found.append("the page is wider than the window")
            if found:
                bad[path] = found
    assert bad == {}


def test_without_script_every_page_reads_and_acts(browser: Browser, scene_url: tuple[str, Scene]) -> None:
    url, scene = scene_url
    with (
        Ledger(url, create=False, world=virtual_world(scene.clock, seed=9)) as ledger,
        served(ledger) as address,
        tab(browser, address, java_script_enabled=False) as (page, wrong),
    ):
        page.goto(f"/jobs/{scene.failed}")
        page.get_by_role("link", name="Cancel…").click()
        page.locator("[name=reason]").fill("a test without script")
        page.get_by_role("button", name="Cancel the job").click()
        page.wait_for_url(f"**/jobs/{scene.failed}")
        expect(page.get_by_text("a test without script").first).to_be_visible()
        expect(page.locator("h1 + .st")).to_have_text("quarantined")
        keep(page, f"no-script-{ledger.store.dialect}")
        assert wrong == []


def test_the_flow_from_a_failure_to_a_replay(browser: Browser, scene_url: tuple[str, Scene]) -> None:
    url, scene = scene_url
    with (
        Ledger(url, create=False, world=virtual_world(scene.clock, seed=9)) as ledger,
        served(ledger) as address,
        tab(browser, address) as (page, wrong),
    ):
        page.goto("/")
        page.get_by_role("link", name="Look at the group").click()
        page.get_by_role("link", name="Prepare a replay").click()
        page.get_by_role("button", name="Look").click()
        page.get_by_role("link", name=re.compile("Run 55 jobs")).click()
        page.locator("[name=reason]").fill("S3 is back")
        page.get_by_role("button", name="Run 55 jobs").click()
        page.wait_for_url(re.compile("/replays/replay-"))
        expect(page.locator("h1 + .st")).to_have_text("done")
        expect(page.locator(".sum b").first).to_have_text("55")
        keep(page, f"replay-{ledger.store.dialect}")
        with ledger.store.reading() as reading:
            assert not [count for count in reading.counts.current() if count.state == "failed" and count.n]
        assert wrong == []


def test_the_overview_follows_the_ledger_without_a_reload_and_can_be_paused(
    browser: Browser, scene_url: tuple[str, Scene]
) -> None:
    url, scene = scene_url
    with (
        Ledger(url, create=False, world=virtual_world(scene.clock, seed=9)) as ledger,
        served(ledger) as address,
        tab(browser, address) as (page, wrong),
    ):
        page.goto("/")
        pending = page.locator(".flow b").first
        expect(pending).to_have_text("61")
        ledger.submit("noop", {})
        expect(pending).to_have_text("62", timeout=PATIENCE_MS)
        page.keyboard.press(".")
        expect(page.locator("#live")).to_have_class(re.compile("paused"))
        assert wrong == []


LISTENERS = """
window.listeners = {};
const add = EventSource.prototype.addEventListener;
EventSource.prototype.addEventListener = function (name, act) {
  listeners[name] = (listeners[name] || 0) + 1;
  return add.call(this, name, (event) => { console.debug(name); act(event); });
};
"""


def ticks(page: Page, n: int) -> None:
    """Wait until the page has heard of so many new snapshots."""
    for _ in range(n):
        page.wait_for_event("console", lambda message: message.text == "tick")


def test_a_page_that_follows_reads_once_a_tick_and_not_while_it_is_paused(
    browser: Browser, scene_url: tuple[str, Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.console.pages.live.SNAPSHOT_S", 0.2)
    url, scene = scene_url
    with (
        Ledger(url, create=False, world=virtual_world(scene.clock, seed=9)) as ledger,
        served(ledger) as address,
        tab(browser, address, java_script_enabled=True) as (page, wrong),
    ):
        page.add_init_script(LISTENERS)
        page.goto("/queues")
        ticks(page, 5)
        assert page.evaluate("listeners") == {"clock": 1, "nav": 1, "tick": 1}
        page.keyboard.press(".")
        expect(page.locator("#live")).to_have_class(re.compile("paused"))
        read: list[str] = []
        page.on("request", lambda request: read.append(request.url))
        ticks(page, 3)
        assert read == []
        page.keyboard.press(".")
        page.wait_for_event("request")
        assert wrong == []


@on_both
def test_keyboard_shortcuts_navigate_and_never_act(browser: Browser, site: tuple[str, Ledger, Scene]) -> None:
    address, _, _ = site
    with tab(browser, address) as (page, wrong):
        page.goto("/")
        page.keyboard.press("/")
        expect(page.locator("#q")).to_be_focused()
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        expect(page.locator("#help")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        page.keyboard.press("j")
        page.wait_for_url("**/jobs")
        page.keyboard.press("j")
        page.keyboard.press("j")
        expect(page.locator("tr.at")).to_have_count(1)
        page.keyboard.press("]")
        page.wait_for_url("**/jobs?before=*")
        page.keyboard.press("[")
        page.wait_for_url("**/jobs")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"/jobs/\d+$"))
        assert wrong == []
