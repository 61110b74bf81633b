"""The runbooks: a ledger is brought into each incident, and every command of its section is run."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Execution, Ledger
from holdfast.explain import doctor, status
from tests.cli.commands import holdfast
from tests.support.guides import DOCS, run_console

LEDGER = "work.db"
PATIENCE_S = 60
HANGING = """
import os, sys, time
from holdfast import Execution, Ledger

ledger = Ledger("work.db")

@ledger.operation("hang", max_attempts=3, lease_s={lease_s})
def hang(run: Execution) -> None:
    {action}

ledger.submit(hang.call())
ledger.run_until_idle()
"""


class HttpError(Exception):
    """An answer of a service that says what went wrong by its status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status = status


@contextlib.contextmanager
def expired_key(patch: pytest.MonkeyPatch) -> Iterator[None]:
    failed_jobs("charge", HttpError(401, "Unauthorized"))
    yield


@contextlib.contextmanager
def poison(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with Ledger(LEDGER) as ledger:

        @ledger.operation("parse", max_attempts=3)
        def parse(run: Execution, line: str) -> int:
            return int(line)

        ledger.submit(parse.call(line="x"), client="web", key="line-7")
        ledger.run_until_idle()
    yield


@contextlib.contextmanager
def stuck_worker(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with hanging(lease_s=60, action="time.sleep(600)") as process:
        wait_for(lambda: bool(holdfast("jobs", "--state", "running", "--json").json))
        assert process.poll() is None
        yield


@contextlib.contextmanager
def thundering_retry(patch: pytest.MonkeyPatch) -> Iterator[None]:
    failed_jobs("call", ConnectionError("the service does not answer"))
    yield


@contextlib.contextmanager
def database_down(patch: pytest.MonkeyPatch) -> Iterator[None]:
    assert holdfast("init").code == 0
    yield


@contextlib.contextmanager
def disk_full(patch: pytest.MonkeyPatch) -> Iterator[None]:
    assert holdfast("init").code == 0
    for module in (doctor, status):
        patch.setattr(module, "DISK_WARNING_BYTES", 10**18)
    yield


@contextlib.contextmanager
def growing_log(patch: pytest.MonkeyPatch) -> Iterator[None]:
    assert holdfast("init").code == 0
    patch.setattr(doctor, "WAL_BYTES", 1)
    with contextlib.closing(sqlite3.connect(LEDGER, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM holdfast_jobs").fetchall()
        assert holdfast("submit", "noop").code == 0
        yield


@contextlib.contextmanager
def lost_leases(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with hanging(lease_s=1, action="os._exit(9)") as process:
        assert process.wait(PATIENCE_S) == 9
    wait_for(lambda: bool(holdfast("stalled", "--json").json))
    yield


@contextlib.contextmanager
def wrong_deploy(patch: pytest.MonkeyPatch) -> Iterator[None]:
    failed_jobs("mail", KeyError("subject"))
    yield


@contextlib.contextmanager
def damage(patch: pytest.MonkeyPatch) -> Iterator[None]:
    assert holdfast("init").code == 0
    assert holdfast("submit", "noop").code == 0
    with contextlib.closing(sqlite3.connect(LEDGER, isolation_level=None)) as connection:
        connection.execute("INSERT INTO holdfast_counts VALUES ('noop', 'default', 'pending', 5)")
    yield


INCIDENTS: dict[str, Callable[[pytest.MonkeyPatch], contextlib.AbstractContextManager[None]]] = {
    "An API key has expired": expired_key,
    "A poison payload": poison,
    "A stuck worker": stuck_worker,
    "A thundering retry": thundering_retry,
    "The database is down": database_down,
    "The disk is full": disk_full,
    "The write-ahead log grows": growing_log,
    "Lost leases": lost_leases,
    "A wrong deploy": wrong_deploy,
    "A damaged ledger": damage,
}


def sections() -> dict[str, str]:
    """Return the sections of the page that have commands to run."""
    _, *found = re.split(r"^## (.*)\n", (DOCS / "runbooks.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {title: text for title, text in zip(found[::2], found[1::2], strict=True) if "```console" in text}


def test_each_incident_is_reproduced() -> None:
    assert list(sections()) == list(INCIDENTS)


@pytest.mark.parametrize("title", INCIDENTS)
def test_runbook(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "section.md"
    page.write_text(sections()[title], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_URL", LEDGER)
    with INCIDENTS[title](monkeypatch):
        run_console(page, tmp_path, monkeypatch, steps_min=1)


def failed_jobs(operation: str, error: Exception) -> None:
    """Run three jobs whose handler raises `error`, once each."""
    with Ledger(LEDGER) as ledger:

        @ledger.operation(operation, max_attempts=1)
        def handler(run: Execution, n: int) -> None:
            raise error

        ledger.submit_many([handler.call(n=n) for n in range(3)])
        ledger.run_until_idle()


@contextlib.contextmanager
def hanging(*, lease_s: int, action: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process whose handler does not end; it is killed at the end."""
    assert holdfast("init").code == 0
    process = subprocess.Popen([sys.executable, "-c", HANGING.format(lease_s=lease_s, action=action)])
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)
