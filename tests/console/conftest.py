"""Consoles over new ledgers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from holdfast import Ledger
from holdfast.testing import virtual_world
from tests.console.scenes import Scene, fill
from tests.console.sites import Site
from tests.support.browsers import CHROMIUM
from tests.support.ledgers import Original, new_ledger
from tests.support.postgres import Server


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A console over a dev ledger of each kind in turn, with accounts. The tests of a module share it."""
    yield from made(request, tmp_path_factory, "dev")


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def prod_site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A console over a prod ledger of each kind in turn. The tests of a module share it."""
    yield from made(request, tmp_path_factory, "prod")


def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, environment: str) -> Iterator[Site]:
    """Yield a console over a new ledger of an environment."""
    folder = tmp_path_factory.mktemp("console")
    if request.param == "sqlite":
        url = f"sqlite:///{folder / 'ledger.db'}"
        new_ledger(environment).to_file(url)
        site = Site(url, folder)
        yield site
        site.close()
        return
    server: Server = request.getfixturevalue("pg_server")
    url, _ = new_ledger(environment).to_database(server)
    site = Site(url, folder)
    yield site
    site.close()
    server.start()
    server.drop_database(url)


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A console over a SQLite ledger that the tests of a module share."""
    folder = tmp_path_factory.mktemp("console")
    url = f"sqlite:///{folder / 'ledger.db'}"
    new_ledger().to_file(url)
    site = Site(url, folder)
    yield site
    site.close()


@pytest.fixture
def local_site(new_sqlite_ledger: str, tmp_path: Path) -> Iterator[Site]:
    """A console over a SQLite ledger of its own, for tests that change accounts."""
    site = Site(new_sqlite_ledger, tmp_path)
    yield site
    site.close()


def _fill(url: str) -> Scene:
    ledger, scene = fill(url)
    ledger.close()
    return scene


SCENE = Original(_fill)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def scene_url(request: pytest.FixtureRequest) -> Iterator[tuple[str, Scene]]:
    """The URL of a ledger with realistic data of each kind in turn, and what is in it."""
    with SCENE.each(request) as copy:
        yield copy


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ledger, Scene]]:
    """A ledger with realistic data, open at the time at which its scene ends, for tests of a module that only look."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('scene') / 'ledger.db'}"
        made = SCENE.to_file(url)
    else:
        url, made = SCENE.to_database(request.getfixturevalue("pg_server"))
    ledger = Ledger(url, create=False, world=virtual_world(made.clock, seed=9))
    yield ledger, made
    ledger.close()
    if request.param == "postgres":
        server: Server = request.getfixturevalue("pg_server")
        server.start()
        server.drop_database(url)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser of the system."""
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()
