"""Every page: it answers, it escapes what users control, it says what to do next, and its acts lead to their forms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Execution, Ledger
from holdfast.console.app import create_app
from holdfast.console.settings import ConsoleSettings
from holdfast.console.templating import environment
from holdfast.governance.switches import throw
from holdfast.scheduling.schedules import Schedule, Schedules
from tests.console.scenes import Scene
from tests.console.sites import ORIGIN, Site, Transport

HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "a\u202eb\u0007c\u200bd",
    "</pre></textarea></title><svg/onload=alert(1)>",
)
PAGES = (
    "/", "/jobs", "/jobs?state=failed", "/failures", "/queues", "/workers", "/schedules", "/quarantine", "/replays",
    "/replays/new", "/replays/new?step=look", "/grants", "/switches", "/machines", "/checks", "/checks?run=quick",
    "/journal", "/find?q=nothing-has-this-name", "/recover", "/grants/new?action=job.release&target=job:1",
)  # fmt: skip


@pytest.fixture
def client(scene: tuple[Ledger, Scene]) -> Iterator[tuple[httpx.Client, Scene]]:
    """A browser at an open console over a ledger with realistic data of each kind in turn."""
    app = create_app(scene[0], ConsoleSettings(origins=(ORIGIN,), open_to_all=True))
    with httpx.Client(transport=Transport(app), base_url=ORIGIN) as made:
        yield made, scene[1]


def of_scene(scene: Scene) -> list[str]:
    ids = scene.succeeded, scene.failed, scene.held, scene.retried, scene.running, scene.quarantined, scene.cancelled
    return [
        *(f"/jobs/{job_id}" for job_id in ids),
        f"/jobs/{scene.retried}?move=2",
        f"/jobs/{scene.failed}/retry",
        f"/jobs/{scene.failed}/quarantine",
        f"/jobs/{scene.running}/cancel",
        f"/jobs/{scene.running}/revoke",
        f"/jobs/{scene.quarantined}/release",
        "/queues/goes-abi",
        "/queues/hrrr/pause",
        "/queues/mrms/resume",
        "/switches/operation:shop.charge/throw",
        "/switches/operation%3Amail.send/lift",
        "/schedules/nightly/pause",
        "/schedules/nightly/trigger",
        "/grants/1",
        "/grants/1/approve",
        "/grants/2/revoke",
        f"/replays/{scene.replay}",
        f"/replays/{scene.replay}/stop",
        "/replays/new?operation=nodd.ingest&step=look",
        "/replays/new?operation=nodd.ingest&step=run",
        "/replays/new?operation=nodd.ingest&step=request",
    ]


def test_every_page_answers_and_every_link_on_it_leads_somewhere(client: tuple[httpx.Client, Scene]) -> None:
    browser, scene = client
    seen: dict[str, int] = {}
    found: set[str] = set()
    for path in [*PAGES, *of_scene(scene)]:
        answer = browser.get(path)
        seen[path] = answer.status_code
        assert answer.headers["content-type"].startswith("text/html")
        assert "style=" not in answer.text
        assert not re.search(r"<script(?![^>]* src=)", answer.text)
        found |= {link.replace("&amp;", "&") for link in re.findall(r' href="(/[^"]*)"', answer.text)}
    assert seen == dict.fromkeys(seen, 200)
    # One link of each kind: those of jobs differ only in their number.
    kinds = {re.sub(r"\d+|[0-9a-f]{12}", "N", link.split("?")[0]): link for link in sorted(found)}
    dead = {link: code for link in kinds.values() if (code := browser.get(link).status_code) not in (200, 405)}
    assert dead == {}


def test_under_a_base_path_every_address_begins_with_it(scene: tuple[Ledger, Scene]) -> None:
    settings = ConsoleSettings(origins=(ORIGIN,), open_to_all=True, base_path="/team/ops")
    app = create_app(scene[0], settings)
    with httpx.Client(transport=Transport(app), base_url=ORIGIN) as browser:
        for path in ("/", "/jobs", f"/jobs/{scene[1].failed}", "/queues", "/jobs/999999"):
            page = browser.get(f"/team/ops{path}").text
            found = re.findall(r' (?:href|src|action|hx-get|sse-connect)="([^"#]*)"', page)
            assert found
            assert [address for address in found if not address.startswith("/team/ops/")] == []
            assert 'class="side"' in page  # also of an error: the navigation leads on


def test_the_live_parts_are_those_of_the_page(client: tuple[httpx.Client, Scene]) -> None:
    browser, _ = client
    page = browser.get("/").text
    assert 'sse-connect="/live/overview"' in page
    assert 'sse-swap="overview"' in page
    assert 'hx-trigger="sse:tick"' in browser.get("/queues").text
    assert "sse-connect" not in browser.get("/machines").text
    assert browser.get("/live/none").status_code == 404


def test_a_missing_record_names_the_next_step(client: tuple[httpx.Client, Scene]) -> None:
    browser, scene = client
    wanted = {
        "/jobs/999999": 404, "/jobs/0": 404, f"/jobs/{2**70}": 404, "/grants/77": 404, "/failures/none": 404,
        "/queues/none": 400, "/replays/none": 404, "/jobs?state=dead": 400, "/jobs?before=x": 400,
        "/jobs?state=failed&state=failed": 400, "/jobs?since=soon": 400, "/journal?machine=X": 400,
        f"/jobs/{scene.succeeded}/retry": 400, f"/jobs/{scene.failed}/dance": 404, "/replays/new?step=x": 400,
        f"/jobs/{scene.retried}?move=99": 400, "/switches/none/throw": 400, "/schedules/none/pause": 404,
    }  # fmt: skip
    got = {}
    for path in wanted:
        answer = browser.get(path)
        got[path] = answer.status_code
        assert "Next:" in answer.text
        assert "code <code>" in answer.text
        # Of an address that the console does not have, the caller is not known either: it leads to the overview alone.
        known = not path.startswith("/journal") and not path.endswith("/dance")
        section = path.split("?")[0].split("/")[1]
        assert (f'<a href="/{section}">' in answer.text.partition('class="foot"')[2]) is known, path
    assert got == wanted


def test_recovery_of_nothing_has_no_button(local_site: Site) -> None:
    with local_site.person("ann") as ann:
        answer = ann.get("/recover")
    assert (answer.status_code, "<button" in answer.text.partition("<main")[2].partition("</main>")[0]) == (200, False)


def test_a_cell_of_users_is_escaped_on_every_page(ledger_url: str, tmp_path: Path) -> None:
    with Ledger(ledger_url, create=False) as ledger:

        @ledger.operation("echo", queue="q", max_attempts=1)
        def echo(run: Execution, text: object) -> str:
            return str(text)

        ids = []
        for number, text in enumerate(HOSTILE):
            queue, client = f"q{text}"[:100], f"c{text}"[:100]
            key = f"k{number}{text}" if text.isprintable() else f"k{number}"
            ids.append(ledger.submit("echo", {"text": {text: text}}, key=key, client=client, queue=queue).job_id)
            ids.append(ledger.submit("echo", {"text": text}, client=client).job_id)
            ledger.pause(queue, actor=f"p{text}", reason=text)
            if text.isprintable():
                daily = Schedule(when="@daily", operation="echo", payload={"text": text})
                Schedules(ledger).add(f"s{text}", daily, actor=text, reason=text)
        throw(ledger.store, "operation:echo", actor="a<b>", reason=HOSTILE[0])
        pages = [*PAGES, *(f"/jobs/{job_id}" for job_id in ids), *(f"/jobs/{job_id}/cancel" for job_id in ids)]
        with ledger.store.transaction() as transaction:
            transaction.workers.seen(f"w{HOSTILE[0]}", [HOSTILE[1]], [HOSTILE[2]], 1)
        app = create_app(ledger, ConsoleSettings(origins=(ORIGIN,), open_to_all=True))
        with httpx.Client(transport=Transport(app), base_url=ORIGIN) as browser:
            pages += [f"/find?q={_quoted(text)}" for text in HOSTILE]
            pages += [f"/jobs?queue={_quoted(text)}" for text in HOSTILE]
            text = "".join(_checked(browser, path) for path in pages)
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert "\\u202e" in text
        assert "{{ 7 * 7 }}" in text


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def _checked(browser: httpx.Client, path: str) -> str:
    answer = browser.get(path, follow_redirects=True)
    assert answer.status_code == 200, (path, answer.text[-400:])
    for bad in ("<script>alert", "<img src=x", "<svg/onload", "\u202e", "\u0007", "\u200b"):
        assert bad not in answer.text, (path, bad)
    return answer.text


def test_failed_jobs_with_hostile_messages_are_escaped(local_site: Site) -> None:
    ledger = local_site.ledger

    @ledger.operation("boom", max_attempts=1)
    def boom(run: Execution, text: str) -> None:
        raise ValueError(text)

    ids = [ledger.submit("boom", {"text": text}).job_id for text in HOSTILE]
    ledger.run_until_idle()
    with local_site.person("eve") as person:
        groups = re.findall(r'href="(/failures/[0-9a-f]+)"', person.get("/failures").text)
        assert groups
        for path in ["/", "/failures", "/jobs?state=failed", *groups, *(f"/jobs/{job_id}" for job_id in ids)]:
            _checked(person.client, path)


def test_a_viewer_sees_the_confirmation_with_its_button_off(local_site: Site) -> None:
    job_id = local_site.ledger.submit("noop", {}).job_id
    with local_site.person("eve") as person:
        page = person.get(f"/jobs/{job_id}/cancel").text
        assert re.search(r"<button[^>]* disabled", page)
    with local_site.person("ann") as person:
        page = person.get(f"/jobs/{job_id}/cancel").text
        assert not re.search(r"<button[^>]* disabled>Cancel the job", page)
        fields = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', page))
        assert fields["version"] == "1"
        answer = person.post(f"/jobs/{job_id}/cancel", version=fields["version"], reason="a test")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job_id}")
        assert "cancelled" in person.get(f"/jobs/{job_id}").text


def test_a_limited_token_sees_no_page(local_site: Site) -> None:
    from holdfast.console.security.callers import Role

    secret = local_site.token("one", Role.VIEWER, queues=["q"])
    with local_site.client() as client:
        got: Any = client.get("/", headers={"Authorization": f"Bearer {secret}"})
        assert got.status_code == 403


def test_templates_mark_nothing_as_safe() -> None:
    folder = Path(str(environment().loader.get_source(environment(), "base.html")[1])).parent  # type: ignore[union-attr]
    texts = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.html")}
    assert len(texts) > 20
    assert [name for name, text in texts.items() if re.search(r"\|\s*safe|autoescape|Markup", text)] == []


def test_vendored_files_have_the_digests_that_are_written_beside_them() -> None:
    import hashlib

    import holdfast.console as package

    folder = Path(str(package.__file__)).parent / "static"
    lines = [line.split("  ") for line in (folder / "VENDORED.txt").read_text(encoding="utf-8").splitlines()]
    listed = {pair[1]: pair[0] for pair in lines if len(pair) == 2}
    assert set(listed) == {path.name for path in folder.glob("*.min.js")}
    assert {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in listed} == listed
