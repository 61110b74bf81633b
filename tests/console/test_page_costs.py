"""What a page costs does not depend on how many jobs failed, or on whether it is the first one of the process."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.console.pages.live import Live
from holdfast.console.views import failures
from holdfast.console.views.failures import FailedGroups, failure_groups
from holdfast.console.views.find import find_hits
from holdfast.store.transaction import Reading
from holdfast.store.verbs.watch import WINDOW
from tests.console.sites import Site
from tests.console.test_many import failed

FAILED = 7
FIRST_REQUESTS = """
import sys
from holdfast import Ledger
from holdfast.console.app import create_app
from holdfast.console.settings import ConsoleSettings
from holdfast.console.templating import environment
from tests.console.sites import ORIGIN, Transport
from tests.console.test_pages import PAGES
import httpx

with Ledger(sys.argv[1]) as ledger:
    app = create_app(ledger, ConsoleSettings(origins=(ORIGIN,), open_to_all=True))
    modules, templates = set(sys.modules), set(environment().cache.keys())
    with httpx.Client(transport=Transport(app), base_url=ORIGIN) as client:
        for page in PAGES:
            assert client.get(page).status_code == 200, page
    print(sorted(name for name in set(sys.modules) - modules if name.startswith("holdfast")))
    print(sorted(name for _, name in set(environment().cache.keys()) - templates))
"""


@contextmanager
def rows_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Yield the most rows that one run of each statement has read."""
    found: Counter[str] = Counter()
    run = Reading.run

    def counted(self: Reading, name: str, **params: Any) -> Any:
        rows = run(self, name, **params)
        found[name] = max(found[name], len(rows))
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(Reading, "run", counted)
        yield found


def _groups(site: Site, rest: Callable[[float], object] | None = None) -> FailedGroups:
    with site.ledger.store.reading() as reading:
        return failure_groups(reading, site.ledger.store.now(), rest=rest)


def test_failures_are_read_in_slices_with_a_rest_after_each(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    failed(site, FAILED, "cost-a")
    whole = _groups(site)
    monkeypatch.setattr(failures, "SLICE", 2)
    rests: list[float] = []
    with rows_read(monkeypatch) as rows:
        sliced = _groups(site, rests.append)
    assert (rows["failed_facts"], len(rests)) == (2, whole.jobs // 2)
    assert (sliced.jobs, sliced.cut) == (whole.jobs, False)
    alike = [
        [(one.hash, one.jobs, one.first_at, one.last_at, one.samples) for one in made.groups]
        for made in (whole, sliced)
    ]
    assert alike[0] == alike[1]


def test_groups_of_the_newest_failures_say_that_there_are_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    failed(site, FAILED, "cost-b")
    total = _groups(site).jobs
    monkeypatch.setattr(failures, "SLICE", 2)
    for most, cut in ((total - 1, True), (total, False)):
        monkeypatch.setattr(failures, "GROUPED", most)
        groups = _groups(site)
        assert (groups.jobs, groups.cut) == (most, cut)


def test_no_request_reads_many_failures(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before they are grouped, not while a thread does that, not after it."""
    failed(site, FAILED, "cost-c")
    monkeypatch.setattr(failures, "FEW", 2)
    monkeypatch.setattr(Live, "_beside", lambda *_: None)
    with rows_read(monkeypatch) as rows, site.person("ann") as ann:
        before = [ann.get(page) for page in ("/", "/failures", "/failures/0123456789ab")]
    assert [page.status_code for page in before] == [200, 200, 200]
    assert all("The failed jobs are being grouped." in page.text for page in before)
    assert 'href="/failures/0123456789ab">Look again' in before[2].text
    assert rows["failed_facts"] == 0


def test_the_code_of_recent_jobs_is_found_among_few_of_them(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for job_id in failed(site, FAILED, "cost-d")[1:]:
        site.ledger.cancel(job_id, actor="ann", reason="one is left")
    windows: list[int] = []
    run = Reading.run

    def noted(self: Reading, name: str, **params: Any) -> Any:
        windows.extend([params["window"]] if params.get("state") == "failed" else [])
        return run(self, name, **params)

    monkeypatch.setattr(Reading, "run", noted)
    with site.ledger.store.reading() as reading:
        hits = find_hits(reading, "io_error")
    assert ("error code", "io_error") in {(hit.kind, hit.name) for hit in hits}
    assert max(windows) < WINDOW


def test_the_first_request_of_a_page_imports_and_compiles_nothing(new_sqlite_ledger: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FIRST_REQUESTS, new_sqlite_ledger], capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.stderr) == ("[]\n[]\n", "")
