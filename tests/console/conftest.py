"""A console over a new ledger of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.sites import Site


@pytest.fixture
def site(ledger_url: str, tmp_path: Path) -> Iterator[Site]:
    """A console over a dev ledger of each kind in turn, with accounts."""
    site = Site(ledger_url, tmp_path)
    yield site
    site.close()


@pytest.fixture
def local_site(new_sqlite_ledger: str, tmp_path: Path) -> Iterator[Site]:
    """A console over a SQLite ledger, for what does not depend on the database."""
    site = Site(new_sqlite_ledger, tmp_path)
    yield site
    site.close()
