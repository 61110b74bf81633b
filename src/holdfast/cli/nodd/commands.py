"""`holdfast nodd`: NOAA's open data: datasets, admission, workers, records and the static catalogue.

Invariants: what reads only the ledger or a public bucket needs no account.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli import output
from holdfast.cli.ends import Ends
from holdfast.cli.ends import words as counts_in_words
from holdfast.cli.nodd import check as _check  # noqa: F401 - it registers its commands
from holdfast.cli.nodd import feed as _feed  # noqa: F401 - the same
from holdfast.cli.nodd.options import (
    DatasetName,
    Endpoint,
    Own,
    Reason,
    Region,
    Told,
    known,
    nodd,
    prepared,
    telling,
)
from holdfast.cli.options import Db, Json, Schema, actor, ledger_url
from holdfast.cli.output import Column
from holdfast.core.digest import loads
from holdfast.core.errors import InputError
from holdfast.engine.ledger import Ledger
from holdfast.nodd import catalog as catalogue
from holdfast.nodd import rejected as rejections
from holdfast.nodd.admission import Admitted, FeedMessage, admit
from holdfast.nodd.dataset import Datasets, with_own
from holdfast.nodd.feed import Feed
from holdfast.nodd.governance import GovernanceRules, rules_from
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.objects import S3Source
from holdfast.nodd.queues import Queue
from holdfast.nodd.records import RecordStatus
from holdfast.nodd.reporter import TelemetryReporter
from holdfast.nodd.signatures import Signatures
from holdfast.nodd.tables import prepare
from holdfast.telemetry import Target, Telemetry, start


@nodd.command("datasets")
def datasets_(*, own: Own = None, as_json: Json = False) -> None:
    """List the datasets, their buckets and topics."""
    found = list(with_own(own))
    value = [
        {
            "dataset": one.name,
            "title": one.spec.title,
            "format": one.spec.format,
            "buckets": one.spec.buckets,
        }
        for one in found
    ]
    columns = [Column("DATASET"), Column("FORMAT"), Column("BUCKET", folds=True), Column("TITLE", folds=True)]
    rows = [(one.name, one.spec.format, ", ".join(one.spec.buckets), one.spec.title) for one in found]
    output.answer(value, lambda: output.table(columns, rows), as_json=as_json)


@nodd.command("admit")
def admit_(
    *,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE…", help="Messages, one a file; - or none: stdin.")
    ] = None,
    telemetry: Told = Target.OFF,
    own: Own = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Admit notices from files or standard input; no queue is needed.

    A file holds the body of one message, or one message a line (JSON Lines).
    """
    messages = [FeedMessage(body) for body in _bodies(files or [])]
    if not messages:
        raise InputError("there is nothing to admit", next_step="Name files that hold messages.")
    sink, datasets = start(telemetry), with_own(own)
    with prepared(db, schema) as store, telling(sink, store) as (reporter, bus):
        found: list[Admitted] = []
        for part in _tens(messages):
            admitted = admit(store, part, datasets, actor=actor(), bus=bus)
            found += admitted
            if reporter is not None:
                reporter.admitted(admitted)
    value = [
        {
            "fate": str(one.fate),
            "dataset": one.dataset,
            "object_uri": one.object_uri,
            "wal_id": one.wal_id,
            "reason": one.reason,
        }
        for one in found
    ]
    output.answer(value, lambda: _print_fates(found), as_json=as_json)


def _bodies(files: list[Path]) -> list[str]:
    bodies: list[str] = []
    for path in files or [Path("-")]:
        try:
            text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}", context={"path": str(path)}) from None
        bodies += _split(text)
    return bodies


def _split(text: str) -> list[str]:
    """Return the messages of a file: one, if it is JSON as a whole; else each line is one, whatever is on it."""
    try:
        loads(text, size_max=len(text.encode(errors="surrogatepass")))
    except InputError:
        return [line for line in text.splitlines() if line.strip()]
    return [text]


def _tens(messages: list[FeedMessage]) -> list[list[FeedMessage]]:
    return [messages[start : start + 10] for start in range(0, len(messages), 10)]


def _print_fates(found: list[Admitted]) -> None:
    columns = [Column("FATE"), Column("DATASET"), Column("OBJECT", folds=True), Column("WHY", folds=True)]
    output.table(columns, [(str(one.fate), one.dataset or "", one.object_uri or "", one.reason or "") for one in found])


@nodd.command("run")
def run_(
    *,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue", envvar="KFM_SQS_PRIMARY_QUEUE", metavar="URL", help="The SQS queue to read; none: only work."
        ),
    ] = None,
    catalog: Annotated[
        Path | None, typer.Option("--catalog", metavar="DIR", help="Publish static STAC files here.")
    ] = None,
    rules: Annotated[Path | None, typer.Option("--rules", metavar="FILE", help="Governance rules (TOML).")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=256, help="Units at a time.")] = 8,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when there is nothing to do.")] = False,
    ack_after_work: Annotated[
        bool, typer.Option("--ack-after-work", help="Delete a message only when its work has ended.")
    ] = False,
    verify_sns: Annotated[
        bool, typer.Option("--verify-sns", help="Take only messages that SNS has signed: not with raw delivery.")
    ] = False,
    telemetry: Told = Target.OFF,
    own: Own = None,
    endpoint: Endpoint = None,
    region: Region = "us-east-1",
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Read the queue and carry out what it announces, until stopped."""
    if ack_after_work and until_idle:
        raise InputError(
            "--ack-after-work waits for the work of each batch, and --until-idle reads all of them first",
            next_step="Leave one of the two out.",
        )
    if not queue and (ack_after_work or verify_sns):
        raise InputError("--ack-after-work and --verify-sns are about a queue", next_step="Name one with --queue.")
    signatures = Signatures() if verify_sns else None
    sink = start(telemetry)
    datasets = with_own(own)
    with Ledger(ledger_url(db, schema), schema=schema or "public") as ledger:
        prepare(ledger.store)
        source = S3Source(datasets.buckets(), endpoint=endpoint, region=region)
        reporter = _reporting(sink, ledger)
        settings = IngestSettings(
            datasets=datasets,
            source=source,
            catalog=catalog,
            rules=rules_from(rules) if rules else GovernanceRules(),
            reporter=reporter,
        )
        declare(ledger, settings)
        told: dict[str, int] = {}
        stop = threading.Event()
        feed = None
        if queue:
            read = Queue(queue, endpoint=endpoint, region=region)
            feed = Feed(ledger.store, read, datasets, reporter=reporter, bus=ledger.bus, signatures=signatures)
        if until_idle:
            while feed is not None and (polled := feed.poll(wait_s=0)).received:
                told = {name: told.get(name, 0) + polled.fates.get(name, 0) for name in {*told, *polled.fates}}
            ends = Ends(ledger.bus)
            done = ledger.run_until_idle(concurrency=concurrency)
            ended, fates = ends.counted(done), dict(sorted(told.items()))
            value = {"fates": fates, "executions": done, "ended": ended}
            said = (
                f"announced: {counts_in_words(fates) or 'nothing'}; {done} {'execution' if done == 1 else 'executions'}"
            )
            said += f": {counts_in_words(ended)}" if done else ""
            output.answer(value, lambda: output.line(said), as_json=as_json)
            _end(reporter, sink)
            return
        poller = _polling(feed, stop, ack_after_work=ack_after_work) if feed else None
        _work(ledger, concurrency, datasets)
        stop.set()
        if feed is not None and poller is not None:
            until = time.monotonic() + 30
            while poller.is_alive() and not feed.waiting and time.monotonic() < until:
                poller.join(0.05)
        _end(reporter, sink)


def _polling(feed: Feed, stop: threading.Event, *, ack_after_work: bool) -> threading.Thread:
    poll = partial(feed.run, stop, ack_after_work=ack_after_work)
    poller = threading.Thread(target=poll, name="nodd-feed", daemon=True)
    poller.start()
    return poller


def _reporting(sink: Telemetry | None, ledger: Ledger) -> TelemetryReporter | None:
    if sink is None:
        return None
    reporter = TelemetryReporter(sink, ledger.store)
    reporter.follow(ledger.bus)
    return reporter


def _end(reporter: TelemetryReporter | None, sink: Telemetry | None) -> None:
    """Send what was told last."""
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


@nodd.command("records")
def records_(
    *,
    dataset: Annotated[str | None, typer.Option("--dataset", metavar="NAME", help="Of one dataset.")] = None,
    status: Annotated[RecordStatus | None, typer.Option("--status", help="Only those that stand so.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 50,
    own: Own = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """List the write-ahead records, newest first."""
    from holdfast.nodd.statements import statements  # noqa: PLC0415 - only here

    chosen = {
        "dataset": None if dataset is None else known(with_own(own), dataset).name,
        "status": None if status is None else str(status),
    }
    with prepared(db, schema) as store, store.reading() as reading:
        [sql] = statements(store.dialect)["wal_records"]
        names, rows = reading.ask(sql, {**chosen, "wal_id": None, "n": limit})
    value = [dict(zip(names, row, strict=True)) for row in rows]
    columns = [Column("JOB", right=True), *map(Column, ("STATUS", "DATASET"))]
    columns += [Column("OBJECT", folds=True), Column("ERROR")]
    shown = ("ext_job_id", "status", "dataset", "object_uri", "last_error_code")
    table = [[one[name] or "" for name in shown] for one in value]
    output.answer(
        msgspec.to_builtins(value),
        lambda: output.table(columns, table) if table else output.line("no records"),
        as_json=as_json,
    )


@nodd.command("rejected")
def rejected_(
    *,
    replay: Annotated[
        bool, typer.Option("--replay", help="Read them again, and admit what is understood now.")
    ] = False,
    code: Annotated[
        str | None, typer.Option("--code", metavar="CODE", help="Only these; unsigned ones are replayed only so.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 100,
    own: Own = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """List the messages that could not be understood, or read them again."""
    with prepared(db, schema) as store:
        if replay:
            found = rejections.replay(store, with_own(own), actor=actor(), code=code, limit=limit)
            value: list[Any] = [msgspec.to_builtins(one) for one in found]
            output.answer(value, lambda: _print_fates(found), as_json=as_json)
            return
        kept = rejections.listed(store, code=code, limit=limit)
    columns = [Column("SHA-256"), Column("CODE"), Column("TIMES"), Column("LAST"), Column("WHY", folds=True)]
    rows = [(one.sha256[:12], one.code, str(one.times), one.last_at, one.message) for one in kept]
    output.answer([msgspec.to_builtins(one) for one in kept], lambda: output.table(columns, rows), as_json=as_json)


@nodd.command("publish")
def publish_(
    *,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the static catalogue stands.")],
    own: Own = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Write the whole static catalogue from the rows of record."""
    with prepared(db, schema) as store:
        done = catalogue.rebuild(store, directory, with_own(own))
    words = f"{done.items} items, {done.written} of them written; {done.collections} collections written"
    output.answer(msgspec.to_builtins(done), lambda: output.line(words), as_json=as_json)


@nodd.command("pause")
def pause_(
    *,
    dataset: DatasetName,
    reason: Reason,
    own: Own = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Stop work on a dataset, and its replay; notices are still admitted."""
    name = known(with_own(own), dataset).name
    with prepared(db, schema) as store, store.transaction() as transaction:
        transaction.queues.pause(name, actor=actor(), reason=reason)
    output.answer({"dataset": name, "paused": True}, lambda: output.line(f"{name} is paused"), as_json=as_json)


@nodd.command("resume")
def resume_(
    *,
    dataset: DatasetName,
    reason: Reason,
    own: Own = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Go on with a dataset."""
    name = known(with_own(own), dataset).name
    with prepared(db, schema) as store, store.transaction() as transaction:
        resumed = transaction.queues.resume(name, actor=actor(), reason=reason)
    words = f"{name} goes on" if resumed else f"{name} was not paused"
    output.answer({"dataset": name, "resumed": resumed}, lambda: output.line(words), as_json=as_json)
