"""The pytest plugin: a separate ledger for every test, on a virtual clock.

Invariants: tests do not share a ledger; after the test the user's ledger is bound to its own database again.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from holdfast.engine.ledger import Ledger
from holdfast.testing import VirtualClock, virtual_world

OPTION = "holdfast_ledger"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the ledger under test."""
    parser.addini(OPTION, "the ledger that the fixture holdfast_ledger rebinds, as module:name", default="")


@pytest.fixture
def holdfast_clock() -> VirtualClock:
    """The virtual clock of the test's ledger."""
    return VirtualClock()


@pytest.fixture
def holdfast_url(tmp_path: Path) -> str:
    """The URL of the test's ledger: a temporary file. Override it to test on PostgreSQL."""
    return str(tmp_path / "holdfast.db")


@pytest.fixture
def holdfast_ledger(
    request: pytest.FixtureRequest, holdfast_url: str, holdfast_clock: VirtualClock
) -> Iterator[Ledger]:
    """An empty ledger on a virtual clock: the configured one, bound to a temporary file, or a new one."""
    world = virtual_world(holdfast_clock)
    named = str(request.config.getini(OPTION))
    if not named:
        with Ledger(holdfast_url, world=world) as ledger:
            yield ledger
        return
    module, _, name = named.partition(":")
    own = getattr(import_module(module), name or "ledger")
    if not isinstance(own, Ledger):
        raise pytest.UsageError(f"{OPTION} = {named} is not a Ledger")
    with own.bound_to(holdfast_url, world=world) as ledger:
        yield ledger
