"""`nodd run --processes`: several processes share the work, are replaced when they die, and end together."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.dataset import shipped
from holdfast.nodd.tables import prepare
from holdfast.store import open_store
from tests.cli.commands import PROGRAM, clean_environment, holdfast
from tests.nodd.ingesting import BUCKET, GRIB
from tests.nodd.messages import GFS, event, record
from tests.nodd.s3 import LoopbackS3, loopback_s3

PATIENCE_S = 60


@pytest.fixture
def s3() -> Iterator[LoopbackS3]:
    with loopback_s3() as server:
        yield server


def announce(ledger: str, s3: LoopbackS3, first: int, n: int) -> None:
    keys = [f"{GFS[:-3]}{number:03}" for number in range(first, first + n)]
    etags = {key: s3.put(BUCKET, key, GRIB) for key in keys}
    bodies = [FeedMessage(event(record(key=key, size=len(GRIB), eTag=etag))) for key, etag in etags.items()]
    with open_store(ledger) as store:
        prepare(store)
        admit(store, bodies, shipped())


def succeeded(ledger: str) -> int:
    with open_store(ledger) as store, store.reading() as reading:
        [[n]] = reading.execute("SELECT count(*) FROM nodd_items")
    return int(n)


def test_two_processes_do_all_the_work_and_add_up_what_they_did(ledger: str, s3: LoopbackS3) -> None:
    announce(ledger, s3, 0, 60)
    command = ("nodd", "run", "--until-idle", "--processes", "2", "--concurrency", "2", "--endpoint", s3.endpoint)
    done = holdfast(*command, "--db", ledger, "--json").json
    assert (done["executions"], done["ended"]["succeeded"], succeeded(ledger)) == (60, 60, 60)
    assert len(s3.requests) == 60


def test_a_wrong_setting_ends_all_processes(new_sqlite_ledger: str, s3: LoopbackS3, tmp_path: Path) -> None:
    ledger = new_sqlite_ledger
    announce(ledger, s3, 0, 1)
    rules = tmp_path / "rules.toml"
    rules.write_text("[[rules]]\nid = 3\n", encoding="utf-8")
    command = ("nodd", "run", "--until-idle", "--processes", "2", "--rules", str(rules), "--endpoint", s3.endpoint)
    one = holdfast("nodd", "run", "--until-idle", "--rules", str(rules), "--db", ledger, "--json")
    both = holdfast(*command, "--db", ledger, "--json")
    assert (one.code, one.error_code) == (both.code, both.error_code)
    assert both.code != 0


def children(pid: int) -> list[int]:
    """Return the processes that work for a process."""
    found = []
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            with suppress(OSError):
                if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text(encoding="utf-8"):
                    found.append(int(child))
    return found


def wait_for(condition: Callable[[], Any]) -> Any:
    until = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return found


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    return False


@contextmanager
def running(ledger: str, endpoint: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [*PROGRAM, "nodd", "run", "--processes", "2", "--endpoint", endpoint, "--db", ledger]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=clean_environment()) as run:
        try:
            yield run
        finally:
            run.kill()


def test_a_killed_process_is_replaced_and_a_stop_ends_all(new_sqlite_ledger: str, s3: LoopbackS3) -> None:
    ledger = new_sqlite_ledger
    announce(ledger, s3, 0, 3)
    with running(ledger, s3.endpoint) as run:
        first = wait_for(lambda: len(found := children(run.pid)) == 2 and found)
        wait_for(lambda: succeeded(ledger) == 3)
        os.kill(first[0], signal.SIGKILL)
        second = wait_for(lambda: len(found := children(run.pid)) == 2 and found != first and found)
        assert first[1] in second
        announce(ledger, s3, 100, 5)
        wait_for(lambda: succeeded(ledger) == 8)
        run.send_signal(signal.SIGTERM)
        assert run.wait(PATIENCE_S) == 0
        assert [pid for pid in second if alive(pid)] == []


def test_the_processes_end_with_the_one_that_started_them(new_sqlite_ledger: str, s3: LoopbackS3) -> None:
    with running(new_sqlite_ledger, s3.endpoint) as run:
        found = wait_for(lambda: len(found := children(run.pid)) == 2 and found)
        run.kill()
        run.wait(PATIENCE_S)
        wait_for(lambda: not any(map(alive, found)))
