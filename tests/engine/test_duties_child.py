"""Duties in a child process: done there, published here, and ended with the worker."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.audit.seals import sealer
from holdfast.engine.events import InvariantViolated
from holdfast.engine.upkeep.duties import Duty, Periods
from tests.engine.working import eventually, working

NONE = Periods(
    look_s=0.02, fold_s=None, seal_s=None, extend_s=None, gc_s=None, check_s=None, forget_s=None, retry_s=0.05,
    in_child=True,
)  # fmt: skip


def only(**periods: float) -> Periods:
    return Periods(**{**{name: getattr(NONE, name) for name in Periods.__struct_fields__}, **periods})


@pytest.fixture
def real(ledger_url: str) -> Iterator[Ledger]:
    with Ledger(ledger_url) as ledger:
        yield ledger


@pytest.fixture
def not_here(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Let no sealing succeed in this process; return what was tried."""
    tried: list[str] = []

    def fails(*_: Any, **__: Any) -> None:
        tried.append("sealing")
        raise AssertionError("sealed in the worker's process")

    monkeypatch.setattr(sealer, "seal_steps", fails)
    return lambda: tried


def query(ledger: Ledger, sql: str) -> list[tuple[Any, ...]]:
    with ledger.store.reading() as reading:
        return reading.execute(sql)


def children() -> set[int]:
    """Return the children of this process that do duties."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            parent = int(path.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == os.getpid() and b"holdfast.engine.upkeep.child" in path.joinpath("cmdline").read_bytes():
                found.add(int(path.name))
    return found


def test_the_duties_are_done_in_a_child_and_their_findings_are_published_here(
    real: Ledger, not_here: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(3):
        real.submit("noop", {"n": n})
    found: list[InvariantViolated] = []
    real.subscribe_to_violations(found.append)
    with real.store.transaction() as transaction:
        transaction.execute("INSERT INTO holdfast_counts VALUES ('ghost', 'attic', 'pending', 3)")
    caplog.set_level(logging.WARNING, logger="holdfast")
    with working(real, periods=only(fold_s=0.05, seal_s=0.05, check_s=0.05)):
        eventually(lambda: query(real, "SELECT count(*) FROM holdfast_count_deltas") == [(0,)], "folding")
        eventually(lambda: query(real, "SELECT count(*) FROM holdfast_seals") != [(0,)], "sealing")
        eventually(lambda: found, "checking")
    assert (found[0].invariant, found[0].subject) == ("counts_true", "COUNTS ghost/attic/pending")
    assert not_here() == []
    assert any("counts_true" in record.getMessage() for record in caplog.records)


def test_a_duty_of_the_application_stays_in_the_worker(real: Ledger) -> None:
    pids: list[int] = []
    with working(real, periods=only(seal_s=0.05), duties=[Duty("own", 0.05, lambda: pids.append(os.getpid()))]):
        eventually(lambda: pids and children())
    assert set(pids) == {os.getpid()}


def test_a_child_ends_with_its_worker(real: Ledger) -> None:
    with working(real, periods=only(seal_s=0.05)):
        eventually(lambda: "duty:seal" in dict(query(real, "SELECT name, value FROM holdfast_meta")))
        assert len(children()) == 1
    eventually(lambda: not children())


def test_a_child_that_is_killed_is_replaced(real: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="holdfast"), working(real, periods=only(seal_s=0.05)):
        [first] = eventually(children)
        os.kill(first, signal.SIGKILL)
        eventually(lambda: children() - {first})
        real.submit("noop")
        eventually(lambda: query(real, "SELECT count(*) FROM holdfast_seals") != [(0,)], "sealing")
    assert any("signal SIGKILL" in record.getMessage() for record in caplog.records)
    eventually(lambda: not children())
