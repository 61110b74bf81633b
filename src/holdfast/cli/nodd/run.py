"""`holdfast nodd run`: reads the queue, and processes the objects that it announces."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import option
from holdfast.cli.nodd.options import CATALOG, Endpoint, Own, Region, TelemetryTarget
from holdfast.cli.nodd.processes import run_processes
from holdfast.core.errors import InputError
from holdfast.core.machines import JOB, JobState
from holdfast.engine.events import Bus, Transition
from holdfast.engine.ledger import Ledger
from holdfast.nodd import catalog as catalogue
from holdfast.nodd.catalog_targets import target_of
from holdfast.nodd.dataset import Datasets, with_own
from holdfast.nodd.feed import Feed
from holdfast.nodd.governance import GovernanceRules, rules_from
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.objects import S3Source
from holdfast.nodd.queues import Queue
from holdfast.nodd.reporter import TelemetryReporter
from holdfast.nodd.signatures import Signatures
from holdfast.nodd.tables import prepare
from holdfast.telemetry import Target, Telemetry, start

if TYPE_CHECKING:
    from holdfast.telemetry.reporter import LedgerReporter

POLLER_JOIN_S = 30
_ENDS = {
    "succeed": "succeeded",
    "fail": "failed",
    "retry": "retried",
    "quarantine": "quarantined",
    "cancel": "cancelled",
    "give_back": "given_back",
    "expire": "expired",
}
_WORDS = {
    "retried": "failed, to be retried",
    "given_back": "given back",
    "expired": "expired",
    "unknown": "with unknown end",
}


@command(Location.unopened)
def run(
    location: Location,
    *,
    queue: Annotated[
        str | None,
        option(
            "--queue",
            envvar="KFM_SQS_PRIMARY_QUEUE",
            metavar="URL",
            help="SQS queue to read; without it, only process admitted notices.",
        ),
    ] = None,
    catalog: Annotated[str | None, CATALOG] = None,
    rules: Annotated[Path | None, option("--rules", metavar="FILE", help="File with governance rules (TOML).")] = None,
    concurrency: Annotated[
        int, option("--concurrency", min=1, max=256, help="Maximum number of units at the same time.")
    ] = 8,
    processes: Annotated[
        int, option("--processes", min=1, max=64, help="Number of processes, each with its own concurrency.")
    ] = 1,
    until_idle: Annotated[bool, option("--until-idle", help="Stop when the queue is empty and no job is due.")] = False,
    ack_after_work: Annotated[
        bool, option("--ack-after-work", help="Delete a message only after its jobs have ended.")
    ] = False,
    verify_sns: Annotated[
        bool, option("--verify-sns", help="Accept only messages signed by SNS; not possible with raw delivery.")
    ] = False,
    telemetry: TelemetryTarget = Target.OFF,
    own: Own = None,
    endpoint: Endpoint = None,
    region: Region = "us-east-1",
) -> Answer | None:
    """Read the queue and process what it announces, until stopped."""
    if ack_after_work and until_idle:
        raise InputError(
            "--ack-after-work and --until-idle exclude each other.",
            next_step="Remove one of the two options.",
        )
    if not queue and (ack_after_work or verify_sns):
        raise InputError("--ack-after-work and --verify-sns need --queue.", next_step="Add --queue URL.")
    settings = RunSettings(
        url=location.url,
        schema=location.schema,
        queue=queue,
        catalog=catalog,
        rules=rules,
        concurrency=concurrency,
        ack_after_work=ack_after_work,
        verify_sns=verify_sns,
        telemetry=telemetry,
        own=own,
        endpoint=endpoint,
        region=region,
    )
    if until_idle:
        return _until_idle(settings, processes)
    if processes == 1:
        settings.work_until_stopped()
    else:
        run_processes(settings.work_until_stopped, processes)
    return None


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `nodd run`; another process gets them as they are."""

    url: str
    schema: str
    queue: str | None
    catalog: str | None
    rules: Path | None
    concurrency: int
    ack_after_work: bool
    verify_sns: bool
    telemetry: Target
    own: Path | None
    endpoint: str | None
    region: str

    def read_queue(self) -> dict[str, int]:
        """Read all messages of the queue, and return the number of notices by fate."""
        fates: Counter[str] = Counter()
        with self._opened() as (_, feed, _):
            while feed is not None and (polled := feed.poll(wait_s=0)).received:
                fates.update(polled.fates)
        return dict(sorted(fates.items()))

    def work_until_idle(self) -> dict[str, int]:
        """Run jobs until none is due; return the number of attempts by end."""
        with self._opened() as (ledger, _, _):
            ends = Ends(ledger.bus)
            return ends.counted(ledger.run_until_idle(concurrency=self.concurrency))

    def work_until_stopped(self) -> None:
        """Read the queue and run jobs until SIGTERM or SIGINT."""
        with self._opened() as (ledger, feed, datasets):
            _until_stopped(ledger, feed, self.concurrency, datasets, ack_after_work=self.ack_after_work)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Ledger, Feed | None, Datasets]]:
        """Open the ledger with the operations and the queue; send the last telemetry at the end."""
        signatures = Signatures() if self.verify_sns else None
        sink = start(self.telemetry, "holdfast-nodd")
        datasets = with_own(self.own)
        with Ledger(self.url, schema=self.schema, create=False) as ledger:
            prepare(ledger.store)
            reporter, of_ledger = _reporting(sink, ledger)
            ingest = IngestSettings(
                datasets=datasets,
                source=S3Source(datasets.buckets(), endpoint=self.endpoint, region=self.region),
                catalog=target_of(self.catalog, endpoint=self.endpoint, region=self.region) if self.catalog else None,
                rules=rules_from(self.rules) if self.rules else GovernanceRules(),
                reporter=reporter,
            )
            declare(ledger, ingest)
            feed = None
            if self.queue:
                read = Queue(self.queue, endpoint=self.endpoint, region=self.region)
                feed = Feed(ledger.store, read, datasets, reporter=reporter, bus=ledger.bus, signatures=signatures)
            yield ledger, feed, datasets
            _end(sink, reporter, of_ledger)


def _until_idle(settings: RunSettings, processes: int) -> Answer:
    """Read all messages of the queue, then run jobs until none is due."""
    fates = settings.read_queue() if settings.queue else {}
    if processes == 1:
        ended = settings.work_until_idle()
    else:
        counts = run_processes(settings.work_until_idle, processes)
        ended = {end: sum(count[end] for count in counts) for end in (counts[0] if counts else ())}
    done = sum(ended.values())
    text = f"Messages: {_in_words(fates) or 'none'}. Executions: {done}"
    text += f" ({_in_words(ended)})." if done else "."
    return Answer({"fates": fates, "executions": done, "ended": ended}, text)


def _until_stopped(
    ledger: Ledger, feed: Feed | None, concurrency: int, datasets: Datasets, *, ack_after_work: bool
) -> None:
    stop = threading.Event()
    poller = _polling(feed, stop, ack_after_work=ack_after_work) if feed else None
    _work(ledger, concurrency, datasets)
    stop.set()
    if feed is not None and poller is not None:
        until = time.monotonic() + POLLER_JOIN_S
        while poller.is_alive() and not feed.waiting and time.monotonic() < until:
            poller.join(0.05)


def _polling(feed: Feed, stop: threading.Event, *, ack_after_work: bool) -> threading.Thread:
    poll = partial(feed.run, stop, ack_after_work=ack_after_work)
    poller = threading.Thread(target=poll, name="nodd-feed", daemon=True)
    poller.start()
    return poller


def _reporting(sink: Telemetry | None, ledger: Ledger) -> tuple[TelemetryReporter | None, LedgerReporter | None]:
    """Return the reporters of the application and of its ledger, if telemetry is on."""
    if sink is None:
        return None, None
    from holdfast.telemetry.reporter import LedgerReporter  # noqa: PLC0415 - only where telemetry is on

    reporters = TelemetryReporter(sink, ledger.store), LedgerReporter(sink, ledger.store)
    for reporter in reporters:
        reporter.follow(ledger.bus)
    return reporters


def _end(sink: Telemetry | None, *reporters: TelemetryReporter | LedgerReporter | None) -> None:
    """Send the last telemetry."""
    for reporter in reporters:
        if reporter is not None:
            reporter.close()
    if sink is not None:
        sink.close()


def _work(ledger: Ledger, concurrency: int, datasets: Datasets) -> None:
    from holdfast.engine.worker.worker import Worker  # noqa: PLC0415 - only for the long run

    queues = [*(dataset.name for dataset in datasets), catalogue.PUBLISH_QUEUE]
    worker = Worker(ledger, queues=queues, concurrency=concurrency)
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: worker.stop())
    worker.run()


# ---------------------------------------------------------------------------------------------------------------------
# How attempts ended


class Ends:
    """Counts how the attempts that this process claimed end, from the events of a ledger.

    The counts add up to the number of attempts: one whose end was not received counts as unknown.
    """

    def __init__(self, bus: Bus) -> None:
        self._held: set[tuple[int | None, int | None]] = set()
        self._counts: Counter[str] = Counter()
        self._subscription = bus.subscribe(self._count, Transition)

    def _count(self, transition: Transition) -> None:
        if transition.machine != JOB.name:
            return
        attempt = (transition.job_id, transition.attempt)
        if transition.event == "claim":
            self._held.add(attempt)
        elif transition.source == JobState.RUNNING and attempt in self._held:
            self._held.remove(attempt)
            self._counts[_ENDS[transition.event]] += 1

    def counted(self, attempts: int) -> dict[str, int]:
        """Stop counting, and return the number of attempts per end."""
        self._subscription.flush()
        self._subscription.close()
        found = {end: self._counts[end] for end in _ENDS.values()}
        return {**found, "unknown": max(0, attempts - sum(found.values()))}


def _in_words(counts: dict[str, int]) -> str:
    """Return the counts as text, without zeros."""
    return ", ".join(f"{n} {_WORDS.get(end, end)}" for end, n in counts.items() if n)
