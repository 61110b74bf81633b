"""The pytest plugin: a ledger of its own for every test, on a virtual clock.

Invariants: no test sees another's ledger; the user's own ledger is as it was when the test is over.
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
    """Let the configuration name the ledger that the tests are about."""
    parser.addini(OPTION, "the ledger that the fixture holdfast_ledger rebinds, as module:name", default="")


@pytest.fixture
def holdfast_clock() -> VirtualClock:
    """The virtual clock of the test's ledger."""
    return VirtualClock()


@pytest.fixture
def holdfast_url(tmp_path: Path) -> str:
    """Where the test's ledger is: a temporary file. Override it to test on PostgreSQL."""
    return str(tmp_path / "holdfast.db")


@pytest.fixture
def holdfast_ledger(
    request: pytest.FixtureRequest, holdfast_url: str, holdfast_clock: VirtualClock
) -> Iterator[Ledger]:
    """An empty ledger on a virtual clock: the user's own, bound to a temporary file, or else a new one."""
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
