"""Exactly once, end to end: duplicates, reordering, overwrites, and SIGKILL of the poller and the worker at random."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.audit.check.runner import check
from holdfast.nodd import samples
from holdfast.nodd.queues import Queue
from holdfast.store import Store
from tests.nodd.aws import Cloud
from tests.nodd.ingesting import queried
from tests.nodd.messages import GFS, event, record

pytestmark = pytest.mark.attack("faults")

BUCKET = "noaa-gfs-bdp-pds"
REFERENCE = datetime(2026, 7, 26, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")


def key_of(lead: int) -> str:
    return GFS.replace("f003", f"f{lead:03}")


class Fleet:
    """A poller and a worker that are killed and started again."""

    def __init__(self, url: str, cloud: Cloud, queue: str) -> None:
        self._arguments = [url, cloud.endpoint, queue]
        self._running = {role: self._start(role) for role in ("poller", "worker")}

    def _start(self, role: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "tests.nodd.processes", role, *self._arguments])

    def kill(self, role: str, *, again: bool = True) -> None:
        """Kill one of them, and start it again."""
        self._running[role].send_signal(signal.SIGKILL)
        self._running[role].wait()
        if again:
            self._running[role] = self._start(role)

    def end(self) -> None:
        """Kill both for good."""
        for role in self._running:
            self.kill(role, again=False)


@pytest.mark.req("K-01", "K-30", "K-35", "K-44", "K-45")
@pytest.mark.parametrize("objects, kills", [(12, 3), pytest.param(120, 30, marks=pytest.mark.slow)])
def test_every_object_is_catalogued_once_although_processes_are_killed(
    store: Store[Any], ledger_url: str, cloud: Cloud, objects: int, kills: int
) -> None:
    chance = random.Random(objects)
    url, _ = cloud.queue(visibility_s=1)
    queue = Queue(url, endpoint=cloud.endpoint)
    cloud.bucket(BUCKET)
    bodies = []
    for lead in range(objects):
        writes = [samples.grib2(REFERENCE, lead)]
        if lead % 4 == 0:
            writes.append(writes[0] + samples.grib2(REFERENCE, lead, parameter=1))
        for number, data in enumerate(writes):
            put = cloud.s3.put_object(Bucket=BUCKET, Key=key_of(lead), Body=data, ACL="public-read")
            notice = record(key=key_of(lead), size=len(data), eTag=put["ETag"].strip('"'), sequencer=f"{number:02X}A")
            bodies += [event(notice)] * chance.choice((1, 1, 2, 3))
    chance.shuffle(bodies)
    fleet = Fleet(ledger_url, cloud, url)
    try:
        for start in range(0, len(bodies), 10):
            queue.send(bodies[start : start + 10])
        for _ in range(kills):
            time.sleep(chance.uniform(0.3, 1.2))
            fleet.kill(chance.choice(("poller", "worker")))
        deadline = time.monotonic() + 120
        open_units = "SELECT count(*) FROM nodd_wal_records WHERE status NOT IN ('succeeded', 'quarantined')"
        while True:
            left = int(queue.attributes()["ApproximateNumberOfMessages"])
            held = int(queue.attributes()["ApproximateNumberOfMessagesNotVisible"])
            done = queried(store, "SELECT count(DISTINCT source_uri) FROM nodd_units") == [(objects,)]
            if done and left + held == 0 and queried(store, open_units) == [(0,)]:
                break
            assert time.monotonic() < deadline, (left, held, queried(store, open_units))
            time.sleep(0.2)
    finally:
        fleet.end()
    # One item for each object, of its last write, and nothing twice.
    assert queried(store, "SELECT count(*), count(DISTINCT item_id) FROM nodd_items") == [(objects, objects)]
    stale = (
        "SELECT count(*) FROM nodd_items i JOIN nodd_units u ON u.wal_id = i.wal_id WHERE u.superseded_by IS NOT NULL"
    )
    assert queried(store, stale) == [(0,)]
    ends = queried(store, "SELECT status FROM nodd_wal_records WHERE ext_superseded_by IS NULL")
    assert ends == [("succeeded",)] * objects
    twice = (
        "SELECT count(*) FROM (SELECT subject / 1000000 AS job_id FROM holdfast_edges"
        " WHERE machine = 'EXECUTION' AND target = 'COMMITTED' GROUP BY 1 HAVING count(*) > 1) t"
    )
    assert queried(store, twice) == [(0,)]
    edges = queried(store, "SELECT count(*) FROM nodd_provenance WHERE content LIKE '%wasGeneratedBy%'")
    succeeded = queried(store, "SELECT count(*) FROM nodd_wal_records WHERE status = 'succeeded'")
    assert edges == succeeded
    assert check(store).violations == ()
