"""The same message again after every step of a unit's life, and a worker that is killed at each of them."""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.audit.check.runner import check
from holdfast.core.records import MAX_ATTEMPTS, REPLAY_ATTEMPTS
from holdfast.engine.worker.execution import Execution
from holdfast.engine.worker.retry import RetryPolicy, Strategy
from holdfast.engine.world import BETWEEN, World
from holdfast.nodd import samples
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.catalog_targets import DirectoryTarget
from holdfast.nodd.dataset import shipped
from holdfast.nodd.feed import Feed
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.queues import Queue
from holdfast.nodd.units import Operator
from holdfast.store import Store
from tests.nodd import processes as roles
from tests.nodd.aws import Cloud
from tests.nodd.ingesting import BUCKET, GRIB, REFERENCE, queried
from tests.nodd.messages import GFS, enveloped, event, record
from tests.nodd.objects import MemorySource
from tests.support.forkserver import ForkServer, shared_server

pytestmark = pytest.mark.attack("faults")

KEPT = [Operator.PARSE, Operator.INTEGRITY, Operator.METADATA, Operator.GOVERNANCE]
SHARED = 2  # records of provenance that all units share: the agent and the plan
OWN = 7  # and those that each has: three nodes and four edges


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")


@pytest.fixture(scope="module")
def children() -> Iterator[ForkServer]:
    with shared_server("tests.nodd.processes") as server:
        yield server


def edges(store: Store[Any]) -> Counter[str]:
    """Return how often each edge of PROV is in the ledger: by its kind and its ends."""
    found: Counter[str] = Counter()
    for [content] in queried(store, "SELECT content FROM nodd_provenance WHERE kind = 'prov'"):
        for kind, statements in json.loads(content).items():
            if kind not in ("entity", "activity", "agent"):
                found.update(f"{kind} {json.dumps(ends, sort_keys=True)}" for ends in statements.values())
    return found


def require_each_once(store: Store[Any], units: int, *, replays: int = 0) -> None:
    """Require that so many units have one item each, and every record of provenance once.

    A replay adds an activity of its own, which used the object and was informed by that of the unit.
    """
    assert queried(store, "SELECT count(*), count(DISTINCT item_id) FROM nodd_items") == [(units, units)]
    assert queried(store, "SELECT kind, count(*) FROM nodd_provenance GROUP BY kind ORDER BY kind") == [
        ("openlineage", units),
        ("prov", SHARED + OWN * units + 3 * replays),
    ]
    assert set(edges(store).values()) == {1}
    kinds = ("used", "wasGeneratedBy", "wasDerivedFrom", "wasAssociatedWith")
    expected = Counter(dict.fromkeys(kinds, units)) + Counter({"used": replays, "wasInformedBy": replays})
    assert Counter(edge.partition(" ")[0] for edge in edges(store)) == expected
    twice = (
        "SELECT count(*) FROM (SELECT subject / 1000000 AS job_id FROM holdfast_edges"
        " WHERE machine = 'EXECUTION' AND target = 'COMMITTED' GROUP BY 1 HAVING count(*) > 1) t"
    )
    assert queried(store, twice) == [(0,)]
    assert check(store).violations == ()


class Life:
    """One object, announced again at every step that its unit passes."""

    def __init__(self, store: Store[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self._store = store
        self.body = ""
        self.first_fates: dict[str, str] = {}  # by step, the fate of the first delivery there
        self.deliveries = 0
        self.quiet = False
        checkpoint, life = Execution.checkpoint, self

        def checkpointed(run: Execution, name: str, fn: Any, **how: Any) -> Any:
            life.deliver(f"before {name}")
            value = checkpoint(run, name, fn, **how)
            life.deliver(f"after {name}")
            return value

        monkeypatch.setattr(Execution, "checkpoint", checkpointed)

    def deliver(self, step: str) -> None:
        """Deliver the message again, raw or in an envelope."""
        self.deliveries += 1
        body = self.body if self.deliveries % 2 else enveloped(self.body)
        [found] = admit(self._store, [FeedMessage(body, f"m{self.deliveries}")], shipped())
        self.first_fates.setdefault(step, f"{found.fate}: {found.reason}")

    def reach(self, point: str) -> None:
        """Be at a point of the engine: between transactions, where another may come in."""
        if point.startswith("after_") and not self.quiet:
            self.deliver(point)

    def tell(self, data: bytes, source: MemorySource, sequencer: str) -> None:
        """Write the object, and announce it for the first time."""
        etag = source.put(BUCKET, GFS, data)
        self.body = event(record(size=len(data), eTag=etag, sequencer=sequencer))


@pytest.fixture
def life(store: Store[Any], monkeypatch: pytest.MonkeyPatch) -> Life:
    return Life(store, monkeypatch)


def opened(url: str, life: Life, source: MemorySource, catalog: Path | None = None) -> Ledger:
    retry = RetryPolicy(strategy=Strategy.IMMEDIATE)
    ledger = Ledger(url, world=World(reach=life.reach, planned=lambda point: point == BETWEEN))
    declare(
        ledger,
        IngestSettings(
            datasets=shipped(), source=source, catalog=DirectoryTarget(catalog) if catalog else None, retry=retry
        ),
    )
    return ledger


RUNNING = "duplicate: the record is in_progress"
OVER = "duplicate: the record is succeeded"
OLDER = "superseded: a later write is already known"


@pytest.mark.req("K-01", "K-30", "K-35", "K-44", "K-45")
def test_the_same_message_after_every_step_makes_one_item_and_each_edge_once(
    store: Store[Any], ledger_url: str, life: Life, source: MemorySource, tmp_path: Path
) -> None:
    life.tell(GRIB, source, "0A")
    life.deliver("first")
    life.deliver("admitted")
    with opened(ledger_url, life, source, tmp_path) as ledger:
        assert ledger.run_until_idle(queues=["gfs"]) == 1
        life.deliver("finished")
        assert ledger.run_until_idle() == 1
        life.deliver("published")
        assert ledger.run_until_idle() == 0
        steps = [f"{when} {operator}" for operator in KEPT for when in ("before", "after")]
        assert life.first_fates == {
            "first": "admitted: None",
            "admitted": "duplicate: the record is pending",
            "after_claim": RUNNING,
            **dict.fromkeys(steps, RUNNING),
            "after_commit": RUNNING,  # committed, and not yet finished
            BETWEEN: RUNNING,
            "finished": OVER,
            "published": OVER,
        }
        [[href]] = queried(store, "SELECT href FROM nodd_items")
        assert [path.name for path in (tmp_path / href).parent.glob("*-*.json")] == [Path(href).name]
        require_each_once(store, 1)
        # A later write follows; then the message of the earlier one comes again, and that of the later.
        earlier = life.body
        life.tell(GRIB + samples.grib2(REFERENCE, 3, parameter=1), source, "0B")
        later, life.body = life.body, earlier
        life.deliver("before the later one")
        life.body = later
        life.deliver("the later one")
        life.body = earlier
        life.deliver("superseded")
        assert ledger.run_until_idle() == 2
        life.deliver("superseded and done")
    seen = [
        life.first_fates[step]
        for step in ("before the later one", "the later one", "superseded", "superseded and done")
    ]
    assert seen == [
        OVER, "admitted: None", OLDER, OLDER,
    ]  # fmt: skip
    assert queried(store, "SELECT generation FROM nodd_items") == [(2,)]
    assert [status for [status] in queried(store, "SELECT status FROM nodd_wal_records")] == ["succeeded"] * 2
    # Three nodes and five edges more: the item is also derived from the one before.
    assert set(edges(store).values()) == {1}
    assert queried(store, "SELECT count(*) FROM nodd_provenance WHERE kind = 'prov'") == [(SHARED + 2 * OWN + 1,)]
    assert check(store).violations == ()


@pytest.mark.req("K-13", "K-30")
def test_the_same_message_after_a_failure_has_the_work_done_once(
    store: Store[Any], ledger_url: str, life: Life, source: MemorySource
) -> None:
    life.tell(GRIB, source, "0A")
    life.deliver("first")
    source.down, life.quiet = True, True
    with opened(ledger_url, life, source) as ledger:
        assert ledger.run_until_idle() == MAX_ATTEMPTS
        assert queried(store, "SELECT status FROM nodd_wal_records") == [("failed",)]
        source.down, life.quiet = False, False
        life.deliver("failed")
        life.deliver("pending again")
        assert ledger.run_until_idle() == 1
        life.deliver("done")
    assert [life.first_fates[step] for step in ("failed", "pending again", "done")] == [
        "duplicate: the failed record is retried",
        "duplicate: the record is pending",
        OVER,
    ]
    require_each_once(store, 1, replays=1)
    columns = "status, attempts, replay_reason, last_error_code"
    assert queried(store, f"SELECT {columns} FROM nodd_wal_records") == [
        ("succeeded", MAX_ATTEMPTS + 1, "incident", "io_error_upstream")  # the last error before the success
    ]
    assert queried(store, "SELECT count(*) FROM nodd_provenance WHERE content LIKE '%redelivery%'")[0][0] > 0


@pytest.mark.req("K-14", "K-30", "K-36")
def test_the_same_message_after_every_failure_uses_exactly_the_budget(
    store: Store[Any], ledger_url: str, life: Life, source: MemorySource
) -> None:
    life.tell(GRIB, source, "0A")
    life.deliver("first")
    source.down = True
    with opened(ledger_url, life, source) as ledger:
        ledger.run_until_idle()
        life.deliver("spent")
        source.down = False
        assert ledger.run_until_idle() == 0
    assert life.first_fates["spent"] == "duplicate: the record is quarantined"
    found = queried(store, "SELECT status, attempts, last_error_code FROM nodd_wal_records")
    assert found == [("quarantined", MAX_ATTEMPTS + REPLAY_ATTEMPTS, "io_error_upstream")]
    assert queried(store, "SELECT count(*) FROM nodd_items") == [(0,)]


@pytest.mark.req("K-16", "K-30", "K-37")
def test_the_same_message_after_a_quarantine_does_nothing(
    store: Store[Any], ledger_url: str, life: Life, source: MemorySource
) -> None:
    life.tell(GRIB[:-1], source, "0A")
    life.deliver("first")
    with opened(ledger_url, life, source) as ledger:
        ledger.run_until_idle()
        before = queried(store, "SELECT version, attempts FROM holdfast_jobs")
        life.deliver("quarantined")
        assert ledger.run_until_idle() == 0
    assert life.first_fates["quarantined"] == "duplicate: the record is quarantined"
    assert queried(store, "SELECT version, attempts FROM holdfast_jobs") == before
    assert queried(store, "SELECT count(*) FROM nodd_items") == [(0,)]
    assert queried(store, "SELECT count(*) FROM nodd_provenance") == [(0,)]


@pytest.mark.req("K-45")
@pytest.mark.parametrize("worked, derived_from", [((True, False, True), 1), ((False, False, True), None)])
def test_an_item_is_derived_from_the_last_one_that_was_made(
    *,
    store: Store[Any],
    ledger_url: str,
    life: Life,
    source: MemorySource,
    worked: tuple[bool, ...],
    derived_from: int | None,
) -> None:
    """Three writes, and a worker that does not come to all of them before the next."""
    with opened(ledger_url, life, source) as ledger:
        for number, works in enumerate(worked):
            life.tell(
                b"".join(samples.grib2(REFERENCE, 3, parameter=n) for n in range(number + 1)), source, f"{number}"
            )
            life.deliver(f"write {number}")
            if works:
                ledger.run_until_idle()
    [[item_id]] = queried(store, "SELECT item_id FROM nodd_items")
    revisions = [edge for edge in edges(store) if "prov:Revision" in edge]
    assert revisions == (
        []
        if derived_from is None
        else [
            "wasDerivedFrom "
            + json.dumps({
                "prov:generatedEntity": f"item:{item_id}-3", "prov:type": "prov:Revision",
                "prov:usedEntity": f"item:{item_id}-{derived_from}",
            })
        ]
    )  # fmt: skip


@pytest.mark.req("K-02", "X-10")
def test_content_that_returns_after_another_write_is_a_new_write(
    store: Store[Any], ledger_url: str, life: Life, source: MemorySource
) -> None:
    one, other = GRIB, GRIB + samples.grib2(REFERENCE, 3, parameter=1)
    with opened(ledger_url, life, source) as ledger:
        for number, data in enumerate((one, other, one, other)):
            life.tell(data, source, f"{number + 10:X}")
            life.deliver(f"write {number}")
            assert ledger.run_until_idle() == 1
    assert [life.first_fates[f"write {number}"] for number in range(4)] == ["admitted: None"] * 4
    found = queried(store, "SELECT object_uri, status, stac_status FROM nodd_wal_records ORDER BY ext_generation")
    uri, etags = f"s3://{BUCKET}/{GFS}", [source.put(BUCKET, GFS, data) for data in (one, other)]
    assert found == [
        (uri, "succeeded", "created"),
        (f"{uri}#etag={etags[1]}", "succeeded", "updated"),
        (f"{uri}#etag={etags[0]}&generation=3", "succeeded", "updated"),
        (f"{uri}#etag={etags[1]}&generation=4", "succeeded", "updated"),
    ]
    assert queried(store, "SELECT generation FROM nodd_items") == [(4,)]


# ---------------------------------------------------------------------------------------------------------------------
# Kills

DEATHS = [
    "during_claim", "after_claim", *(f"before {operator}" for operator in KEPT), f"after {KEPT[-1]}", "before_commit",
    BETWEEN, "after_commit",
]  # fmt: skip


def drained(store: Store[Any], queue: Queue) -> Counter[str]:
    """Poll until the queue is empty, and return what became of its messages."""
    fates: Counter[str] = Counter()
    feed = Feed(store, queue, shipped())
    until = time.monotonic() + 20
    while any(int(queue.attributes()[f"ApproximateNumberOfMessages{which}"]) for which in ("", "NotVisible")):
        fates.update(feed.poll(wait_s=1).fates)
        assert time.monotonic() < until
    return fates


def fates(store: Store[Any], *bodies: str) -> list[str]:
    return [str(found.fate) for found in admit(store, [FeedMessage(body) for body in bodies], shipped())]


def put(directory: Path, lead: int) -> str:
    """Write an object, and return the message that announces it."""
    key, data = GFS.replace("f003", f"f{lead:03}"), samples.grib2(REFERENCE, lead)
    (directory / BUCKET / key).parent.mkdir(parents=True, exist_ok=True)
    (directory / BUCKET / key).write_bytes(data)
    return event(record(key=key, size=len(data), eTag=hashlib.md5(data, usedforsecurity=False).hexdigest()))


def ends(wait_s: float, is_so: Callable[[], bool]) -> bool:
    until = time.monotonic() + wait_s
    while not is_so() and time.monotonic() < until:
        time.sleep(0.1)
    return is_so()


@pytest.mark.req("K-01", "K-30", "K-32", "K-35", "K-40", "K-44", "K-45")
def test_a_worker_killed_at_any_step_and_a_redelivered_message_make_one_item(
    store: Store[Any], ledger_url: str, children: ForkServer, tmp_path: Path
) -> None:
    bodies: list[str] = []
    for lead, die_at in enumerate(DEATHS):
        bodies.append(put(tmp_path, lead))
        assert fates(store, bodies[-1]) == ["admitted"]
        child = children.spawn("tests.nodd.processes:worker", url=ledger_url, objects=str(tmp_path), die_at=die_at)
        assert child.wait(30) == -signal.SIGKILL, (die_at, children.log)
        # The dead worker's unit is announced again, and so are all before it.
        assert set(fates(store, *bodies)) == {"duplicate"}
    open_units = "SELECT count(*) FROM nodd_wal_records WHERE status NOT IN ('succeeded', 'quarantined')"
    last = children.spawn("tests.nodd.processes:worker_to_the_end", url=ledger_url, objects=str(tmp_path))
    try:
        assert ends(10 * roles.KILLED_LEASE_S, lambda: queried(store, open_units) == [(0,)])
    finally:
        last.kill()
    assert set(fates(store, *bodies)) == {"duplicate"}
    assert queried(store, "SELECT status, count(*) FROM nodd_wal_records GROUP BY status") == [
        ("succeeded", len(DEATHS))
    ]
    require_each_once(store, len(DEATHS))


@pytest.mark.req("K-30", "K-35")
@pytest.mark.parametrize(
    "die_at, units, again",
    [("before_admission", 0, "admitted"), ("after_admission", 1, "duplicate"), ("after_delete", 1, None)],
)
def test_a_poller_that_is_killed_at_any_step(
    *,
    store: Store[Any],
    ledger_url: str,
    cloud: Cloud,
    children: ForkServer,
    die_at: str,
    units: int,
    again: str | None,
) -> None:
    queue = Queue(cloud.queue(visibility_s=1)[0], endpoint=cloud.endpoint)
    queue.send([event(record())])
    child = children.spawn(
        "tests.nodd.processes:poller", url=ledger_url, endpoint=cloud.endpoint, queue=queue.url, die_at=die_at
    )
    assert child.wait(30) == -signal.SIGKILL, children.log
    assert queried(store, "SELECT count(*) FROM nodd_units") == [(units,)]
    assert drained(store, queue) == ({} if again is None else {again: 1})
    assert queried(store, "SELECT count(*) FROM nodd_units") == [(1,)]
    assert queried(store, "SELECT count(*) FROM holdfast_jobs") == [(1,)]
