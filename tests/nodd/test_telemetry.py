"""Telemetry of real runs, read back from OpenTelemetry's own memory: names, labels, values, spans and log entries."""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import Ledger
from holdfast.core.errors import BrokenError, ExtraMissingError, ReplayGuardError
from holdfast.core.instruments import InstrumentKind
from holdfast.core.machines import JobState
from holdfast.core.selection import Options, ReplayMode, Selection, SelectionFilters, Window
from holdfast.engine.worker.retry import RetryPolicy, Strategy
from holdfast.governance.replay import replay
from holdfast.governance.replay.guards import policy_of
from holdfast.nodd import provenance, samples, validity
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.dataset import shipped
from holdfast.nodd.drain import Drain
from holdfast.nodd.feed import Feed
from holdfast.nodd.governance import GovernanceRule, GovernanceRules
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.metrics import INSTRUMENTS
from holdfast.nodd.queues import Queue
from holdfast.nodd.reporter import TelemetryReporter
from holdfast.telemetry import Target, Telemetry, start
from tests.cli.commands import holdfast
from tests.nodd.aws import Cloud
from tests.nodd.ingesting import BUCKET, GRIB, REFERENCE, announce, records
from tests.nodd.messages import GFS, event, record
from tests.nodd.objects import MemorySource

ROOT = Path(__file__).parents[2]

# Written from the list of the seed, kinds left out; `queue_age_seconds` is a histogram, and its quantile no label.
LISTED = {
    "queue_depth": "queue env",
    "queue_age_seconds": "queue env",
    "ingest_latency_seconds": "dataset env",
    "dlq_messages_total": "queue env dataset",
    "validation_errors_total": "dataset env error_type",
    "replays_total": "dataset env reason",
    "replay_mismatch_total": "dataset env",
    "bytes_ingested_total": "",
    "dlq_reprocessed_total": "",
    "messages_parsed_total": "dataset status",
    "parse_failures_total": "reason",
    "integrity_checks_total": "dataset status",
    "integrity_failures_total": "dataset issue",
    "metadata_extract_total": "dataset status",
    "metadata_extract_failures_total": "dataset issue",
    "stac_writes_total": "dataset outcome",
    "stac_write_latency_seconds": "",
    "provenance_emits_total": "dataset status",
    "provenance_failures_total": "dataset path",
    "wal_records_total": "dataset status",
    "wal_replays_total": "dataset replay_reason",
    "wal_attempts_histogram": "dataset",
    "replay_batches_total": "env replay_reason",
    "replay_batch_size": "env",
    "replay_guardrail_violations_total": "guard_type env",
    "replay_throttled_batches_total": "reason env",
    "replay_skipped_records_total": "reason env",
    "replay_cli_invocations_total": "command env",
    "replay_cli_failures_total": "command env error_code",
}
NOT_PRODUCED = ("energy_kwh_total", "carbon_gco2e_total", "watermark_lag_seconds")


class Scope:
    """A ledger with telemetry, and the values that it reported."""

    def __init__(self, ledger: Ledger) -> None:
        self.reader, self.exporter = InMemoryMetricReader(), InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.sink = Telemetry(MeterProvider([self.reader]), self.tracers)
        self.reporter = TelemetryReporter(self.sink, ledger.store)
        self.reporter.follow(ledger.bus)

    def points(self) -> dict[tuple[str, ...], Any]:
        """Return each value by its name and its labels, sorted: of a histogram (count, sum)."""
        self.reporter.flush()
        data = self.reader.get_metrics_data()
        found: dict[tuple[str, ...], Any] = {}
        for resource in data.resource_metrics if data else ():
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in metric.data.data_points:
                    labels = tuple(f"{name}={value!s}" for name, value in sorted(dict(point.attributes or {}).items()))
                    histogram = hasattr(point, "bucket_counts")
                    value = (point.count, point.sum) if histogram else point.value  # type: ignore[union-attr]
                    found[metric.name.removeprefix("nodd_sns."), *labels] = value
        return found

    def counts(self) -> dict[str, int]:
        """Return the counters alone, each as one text."""
        kinds = {name: row.kind for name, row in INSTRUMENTS.items()}
        return {" ".join(key): n for key, n in self.points().items() if kinds[key[0]] is InstrumentKind.COUNTER}

    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    """A ledger with the application's tables, and no operation yet."""
    with Ledger(ledger_url) as ledger:
        yield ledger


@pytest.fixture
def bare(ledger: Ledger) -> Iterator[Scope]:
    """Telemetry of the ledger."""
    scope = Scope(ledger)
    yield scope
    scope.reporter.close()
    scope.sink.close()


@pytest.fixture
def scope(ledger: Ledger, source: MemorySource, bare: Scope) -> Scope:
    """The same, over an ingest that is not tried again by itself."""
    watched(ledger, source, bare, retry=RetryPolicy(strategy=Strategy.NO_RETRY))
    return bare


def watched(ledger: Ledger, source: MemorySource, scope: Scope, **more: Any) -> None:
    declare(ledger, IngestSettings(datasets=shipped(), source=source, reporter=scope.reporter, **more))


def chosen(ledger: Ledger, **settings: Any) -> Selection:
    begin = ledger.store.now() - timedelta(days=1)
    filters = {"queues": ("gfs",), "created_at": Window(begin, begin + timedelta(days=2))}
    return Selection(
        name="s", env="dev", filters=SelectionFilters(**{**filters, **settings.pop("filters", {})}), **settings
    )


# ---------------------------------------------------------------------------------------------------------------------
# The table


@pytest.mark.req("K-60", "K-61")
def test_the_names_and_labels_are_those_of_the_list() -> None:
    assert {name: " ".join(row.labels) for name, row in INSTRUMENTS.items()} == LISTED


def test_the_page_names_every_metric_and_those_that_are_not_reported() -> None:
    page = (ROOT / "docs/telemetry.md").read_text(encoding="utf-8")
    reported, not_reported = page.split("## Not reported")
    for name, labels in LISTED.items():
        assert f"| `{name}` | {INSTRUMENTS[name].kind} | {labels.replace(' ', ', ')} |" in reported
    assert all(f"`{name}" in not_reported for name in NOT_PRODUCED)


def test_a_label_that_is_not_in_the_table_is_refused(scope: Scope) -> None:
    with pytest.raises(BrokenError, match="wal_records_total"):
        scope.sink.add("wal_records_total", dataset="gfs", wal_id="x")


# ---------------------------------------------------------------------------------------------------------------------
# Records


@pytest.mark.req("K-60", "K-62")
def test_a_successful_unit_is_counted_once_and_its_duplicate_is_not(
    ledger: Ledger, source: MemorySource, scope: Scope
) -> None:
    announce(ledger, GRIB, source)
    assert ledger.run_until_idle() == 1
    expected = {
        "wal_records_total dataset=gfs status=succeeded": 1,
        "integrity_checks_total dataset=gfs status=ok": 1,
        "metadata_extract_total dataset=gfs status=ok": 1,
        "stac_writes_total dataset=gfs outcome=created": 1,
        "provenance_emits_total dataset=gfs status=ok": 1,
        "bytes_ingested_total": len(GRIB),
    }
    assert scope.counts() == expected
    points = scope.points()
    assert points["wal_attempts_histogram", "dataset=gfs"] == (1, 1)
    assert points["stac_write_latency_seconds",][0] == 1
    n, seconds = points["ingest_latency_seconds", "dataset=gfs", "env=dev"]
    assert n == 1
    assert seconds > 3600  # the notice is of 2026-07-26
    announce(ledger, GRIB, source)
    assert ledger.run_until_idle() == 0
    assert scope.counts() == expected


@pytest.mark.req("K-60")
def test_a_failed_unit_and_its_replay_are_counted_and_logged(
    ledger: Ledger, source: MemorySource, scope: Scope, caplog: pytest.LogCaptureFixture
) -> None:
    source.down = True
    announce(ledger, GRIB, source)
    with caplog.at_level(logging.WARNING, "holdfast.nodd"):
        ledger.run_until_idle()
        counts = scope.counts()
    assert counts == {
        "wal_records_total dataset=gfs status=failed": 1,
        "integrity_checks_total dataset=gfs status=failed": 1,
        "integrity_failures_total dataset=gfs issue=transient_network_error": 1,
    }
    [found] = records(ledger)
    [entry] = [vars(one) for one in caplog.records if one.name == "holdfast.nodd"]
    [root] = [span for span in scope.spans() if span.name == "nodd_sns.ingest"]
    logged = {name: entry[name] for name in ("event", "wal_id", "dataset", "last_error_code", "status", "issues")}
    assert logged == {
        "event": "nodd.record_failed",
        "wal_id": found["wal_id"],
        "dataset": "gfs",
        "last_error_code": "io_error_upstream",
        "status": "failed",
        "issues": ["io_error_upstream"],
    }
    assert entry["trace_id"] == f"{root.context.trace_id:032x}"
    assert entry["object_uri_hash"] == hashlib.sha256(found["object_uri"].encode()).hexdigest()

    source.down = False
    report = replay.run(ledger.store, chosen(ledger), actor="ann", reason="r", replay_reason="incident", bus=ledger.bus)
    ledger.run_until_idle()
    points = scope.points()
    assert points["wal_replays_total", "dataset=gfs", "replay_reason=incident"] == 1
    assert points["replays_total", "dataset=gfs", "env=dev", "reason=incident"] == 1
    assert points["replay_batches_total", "env=dev", "replay_reason=incident"] == 1
    assert points["replay_batch_size", "env=dev"] == (1, 1)
    assert points["wal_attempts_histogram", "dataset=gfs"] == (2, 3)
    assert points["wal_records_total", "dataset=gfs", "status=succeeded"] == 1
    attributes = [span.attributes for span in scope.spans() if span.name == "nodd_sns.ingest"][-1]
    assert {name: value for name, value in attributes.items() if "replay" in name} == {
        "nodd.replay_reason": "incident",
        "nodd.replay_run_id": report.run_id,
        "nodd.replay_mode": "failed-only",
        "nodd.replay_original_run": f"{found['wal_id']}/1",
    }


@pytest.mark.req("K-60")
def test_a_failure_that_is_tried_again_is_one_failed_record_and_no_replay(
    ledger: Ledger, source: MemorySource, bare: Scope
) -> None:
    watched(ledger, source, bare)
    source.down = True
    announce(ledger, GRIB, source)
    ledger.run_until_idle()
    assert [found["status"] for found in records(ledger)] == ["pending"]
    counts = bare.counts()
    assert counts["wal_records_total dataset=gfs status=failed"] == 1
    assert not [name for name in counts if "replay" in name]


@pytest.mark.req("K-37", "K-60")
def test_a_quarantine_is_written_to_the_audit_log(
    ledger: Ledger, source: MemorySource, bare: Scope, caplog: pytest.LogCaptureFixture
) -> None:
    rules = GovernanceRules(rules=(GovernanceRule(id="none-of-it", asks="allowed", datasets=("gfs",), why="a test"),))
    watched(ledger, source, bare, rules=rules)
    announce(ledger, GRIB, source)
    with caplog.at_level(logging.WARNING, "holdfast.nodd"):
        ledger.run_until_idle()
        counts = bare.counts()
    assert counts["wal_records_total dataset=gfs status=quarantined"] == 1
    assert "wal_records_total dataset=gfs status=failed" not in counts
    assert counts["validation_errors_total dataset=gfs env=dev error_type=governance_hard_fail"] == 1
    [entry] = [vars(one) for one in caplog.records if one.name.startswith("holdfast.nodd")]
    assert (entry["name"], entry["event"]) == ("holdfast.nodd.audit", "nodd.record_quarantined")
    assert (entry["wal_id"], entry["quarantine_code"]) == (records(ledger)[0]["wal_id"], "governance_hard_fail")


def test_a_broken_object_is_counted_by_its_issue(ledger: Ledger, source: MemorySource, scope: Scope) -> None:
    announce(ledger, b"x" * 50, source)
    ledger.run_until_idle()
    assert scope.counts() == {
        "wal_records_total dataset=gfs status=quarantined": 1,
        "integrity_checks_total dataset=gfs status=failed": 1,
        "integrity_failures_total dataset=gfs issue=size_too_small": 1,
        "validation_errors_total dataset=gfs env=dev error_type=integrity_size_too_small": 1,
    }
    failed = {span.name: span.status.description for span in scope.spans() if not span.status.is_ok}
    assert failed == {"integrity_check": "integrity_size_too_small", "nodd_sns.ingest": "integrity_size_too_small"}
    assert [span.events for span in scope.spans() if span.events] == []  # no message, and no trace of the stack


def test_an_object_that_does_not_exist_yet_is_no_failure(ledger: Ledger, source: MemorySource, scope: Scope) -> None:
    body = event(record(eventTime=ledger.store.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")))
    admit(ledger.store, [FeedMessage(body)], shipped())
    assert ledger.run_until_idle() == 1
    assert [row["status"] for row in records(ledger)] == ["pending"]
    assert scope.counts() == {
        "integrity_checks_total dataset=gfs status=failed": 1,
        "integrity_failures_total dataset=gfs issue=not_published_yet": 1,
    }
    assert [span.name for span in scope.spans() if not span.status.is_ok] == []
    assert scope.reporter.waiting == 0


def test_an_item_and_provenance_that_cannot_be_made_are_counted_as_failed(
    ledger: Ledger, source: MemorySource, scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> list[Any]:
        raise OSError("no")

    with monkeypatch.context() as patch:
        patch.setattr(validity, "problems", lambda _item: ["wrong"])
        announce(ledger, GRIB, source)
        ledger.run_until_idle()
    with monkeypatch.context() as patch:
        patch.setattr(provenance, "described", broken)
        announce(ledger, GRIB, source, key=GFS.replace("f003", "f004"))
        ledger.run_until_idle()
    counts = scope.counts()
    assert counts["stac_writes_total dataset=gfs outcome=failed"] == 1
    assert counts["validation_errors_total dataset=gfs env=dev error_type=stac_validation_failed"] == 1
    assert counts["provenance_failures_total dataset=gfs path=both"] == 1
    assert "stac_writes_total dataset=gfs outcome=created" not in counts  # staged, and never committed


@pytest.mark.req("K-61")
def test_a_unit_that_gives_another_item_the_second_time_is_a_mismatch(
    ledger: Ledger, source: MemorySource, scope: Scope
) -> None:
    announce(ledger, GRIB, source)
    ledger.run_until_idle()
    options = {"mode": ReplayMode.REPAIR_AND_REPLACE, "options": Options(allow_repair_and_replace=True)}
    ended = chosen(ledger, filters={"status": (JobState.SUCCEEDED,)}, **options)
    who: Any = {"actor": "ann", "reason": "r", "replay_reason": "test", "bus": ledger.bus}
    policy = msgspec.structs.replace(policy_of("dev"), allow_same_version=True)
    replay.run(ledger.store, ended, policy=policy, **who)
    ledger.run_until_idle()
    points = scope.points()
    assert points["stac_writes_total", "dataset=gfs", "outcome=no_op"] == 1
    assert not [key for key in points if key[0] == "replay_mismatch_total"]
    with ledger.store.transaction() as transaction:
        transaction.query("UPDATE nodd_items SET content = 'what another version made of it'", {})
    replay.run(ledger.store, ended, policy=policy, **who)
    ledger.run_until_idle()
    assert scope.points()["replay_mismatch_total", "dataset=gfs", "env=dev"] == 1


def test_an_overwrite_is_counted_as_an_update_and_the_earlier_record_as_superseded(
    ledger: Ledger, source: MemorySource, scope: Scope
) -> None:
    announce(ledger, GRIB, source, sequencer="0A")
    later = GRIB + samples.grib2(REFERENCE, 3, parameter=1)
    etag = source.put(BUCKET, GFS, later)
    body = event(record(size=len(later), eTag=etag, sequencer="0B"))
    admit(ledger.store, [FeedMessage(body)], shipped(), bus=ledger.bus)  # before the first was worked on
    ledger.run_until_idle()
    announce(ledger, GRIB, source, sequencer="0C")
    ledger.run_until_idle()
    counts = scope.counts()
    assert counts["wal_records_total dataset=gfs status=quarantined"] == 1
    assert counts["wal_records_total dataset=gfs status=succeeded"] == 2
    assert counts["stac_writes_total dataset=gfs outcome=updated"] == 1
    assert not [name for name in counts if "mismatch" in name]


def test_a_replay_that_a_guard_refuses_is_counted(ledger: Ledger, scope: Scope) -> None:
    with pytest.raises(ReplayGuardError):
        replay.run(
            ledger.store, Selection(name="s", env="prod", filters=chosen(ledger).filters), actor="ann", reason="r",
            replay_reason="test", bus=ledger.bus,
        )  # fmt: skip
    assert scope.counts() == {"replay_guardrail_violations_total env=dev guard_type=env_mismatch": 1}


# ---------------------------------------------------------------------------------------------------------------------
# Spans, and values that must not be reported


@pytest.mark.req("K-61", "K-62")
def test_an_attempt_is_a_span_with_its_operators_and_neither_uri_nor_wal_id_is_a_label(
    ledger: Ledger, source: MemorySource, scope: Scope
) -> None:
    for n, data in enumerate((GRIB, b"x" * 50)):
        announce(ledger, data, source, key=GFS.replace("f003", f"f00{n + 3}"))
        ledger.run_until_idle()
    rows = records(ledger)
    assert [row["status"] for row in rows] == ["succeeded", "quarantined"]
    roots = [span for span in scope.spans() if span.name == "nodd_sns.ingest"]
    good = next(span for span in roots if span.attributes["nodd.wal_id"] == rows[0]["wal_id"])
    assert dict(good.attributes) == {
        "nodd.wal_id": rows[0]["wal_id"],
        "nodd.dataset": "gfs",
        "nodd.object_uri_hash": hashlib.sha256(rows[0]["object_uri"].encode()).hexdigest(),
        "nodd.bucket_provider": rows[0]["provider"],
        "nodd.run_mode": "hot-path",
    }
    children = [span.name for span in scope.spans() if span.parent and span.parent.span_id == good.context.span_id]
    assert children == ["message_parse", "integrity_check", "metadata_extract", "stac_register", "provenance_emit"]
    labels = " ".join(" ".join(key) for key in scope.points())
    spans = " ".join(span.to_json() for span in scope.spans())
    for row in rows:
        assert row["wal_id"] not in labels
        assert row["wal_id"] in spans
        assert row["object_uri"].rpartition("/")[2] not in labels + spans
    assert BUCKET not in labels + spans


# ---------------------------------------------------------------------------------------------------------------------
# The feed


@pytest.fixture
def queue(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Queue:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    return Queue(cloud.queue()[0], endpoint=cloud.endpoint)


def test_a_feed_measures_queue_depth_message_age_and_parse_results(ledger: Ledger, scope: Scope, queue: Queue) -> None:
    queue.send([event(record()), event(record(key="x")), "garbage"])
    feed = Feed(ledger.store, queue, shipped(), reporter=scope.reporter, bus=ledger.bus)
    assert scope.points() == {("queue_depth", "env=dev", "queue=nodd-primary"): 3}
    while feed.poll(wait_s=0).received:
        pass
    assert scope.counts() == {
        "messages_parsed_total dataset=gfs status=ok": 1,
        "messages_parsed_total dataset=unknown status=ignored": 1,
        "messages_parsed_total dataset=unknown status=failed": 1,
        "parse_failures_total reason=not_json": 1,
        "validation_errors_total dataset=unknown env=dev error_type=not_json": 1,
    }
    points = scope.points()
    assert points["queue_depth", "env=dev", "queue=nodd-primary"] == 0
    n, seconds = points["queue_age_seconds", "env=dev", "queue=nodd-primary"]
    assert n == 3
    assert 0 <= seconds < 180


def test_a_drain_counts_dead_letters_and_replays(
    ledger: Ledger, source: MemorySource, scope: Scope, queue: Queue
) -> None:
    source.down = True
    announce(ledger, GRIB, source)
    ledger.run_until_idle()
    queue.send([event(record()), event(record(key=GFS.replace("f003", "f009")))])
    drain = Drain(
        ledger.store, queue, shipped(), actor="ann", reason="r", wait_s=0, reporter=scope.reporter, bus=ledger.bus
    )
    assert drain.run().fates == {"replayed": 1, "uncorrelated": 1}
    counts = scope.counts()
    assert counts["dlq_messages_total dataset=gfs env=dev queue=nodd-dlq"] == 2
    assert counts["dlq_reprocessed_total"] == 1
    assert counts["wal_replays_total dataset=gfs replay_reason=dlq-drain"] == 1
    source.down = False
    ledger.run_until_idle()
    attributes = [span.attributes for span in scope.spans() if span.name == "nodd_sns.ingest"][-1]
    assert (attributes["nodd.replay_mode"], attributes["nodd.replay_reason"]) == ("dlq", "dlq-drain")


# ---------------------------------------------------------------------------------------------------------------------
# The extra, and the command


def test_telemetry_off_needs_no_extra_and_other_targets_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    assert start(Target.OFF) is None
    for target in (Target.CONSOLE, Target.OTLP):
        with pytest.raises(ExtraMissingError) as refused:
            start(target)
        assert "holdfast[telemetry]" in refused.value.hint


def test_the_command_says_what_to_install(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter", None)
    done = holdfast("nodd", "run", "--until-idle", "--telemetry", "otlp", "--db", sqlite_url, "--json")
    assert (done.code, done.error_code) == (2, "extra_missing")
    assert "opentelemetry-exporter-otlp-proto-http" in done.json["context"]["next_step"]


def test_the_command_writes_telemetry_to_standard_error_and_its_answer_to_standard_output(
    sqlite_url: str, cloud: Cloud, queue: Queue
) -> None:
    assert holdfast("init", "--db", sqlite_url).code == 0
    cloud.bucket(BUCKET)
    cloud.s3.put_object(Bucket=BUCKET, Key=GFS, Body=GRIB, ACL="public-read")
    etag = cloud.s3.head_object(Bucket=BUCKET, Key=GFS)["ETag"].strip('"')
    queue.send([event(record(size=len(GRIB), eTag=etag))])
    done = holdfast(
        "nodd", "run", "--until-idle", "--telemetry", "console", "--queue", queue.url, "--endpoint", cloud.endpoint,
        "--db", sqlite_url, "--json",
    )  # fmt: skip
    assert (done.code, json.loads(done.out)["executions"]) == (0, 1)
    for name in ("wal_records_total", "messages_parsed_total", "stac_writes_total", "queue_age_seconds"):
        assert f'"nodd_sns.{name}"' in done.err
    assert '"name": "nodd_sns.ingest"' in done.err


def test_without_telemetry_nothing_of_opentelemetry_is_imported() -> None:
    code = (
        "import sys, holdfast.cli.nodd.commands, holdfast.telemetry as t; assert t.start(t.Target.OFF) is None;"
        "sys.exit(any(name.partition('.')[0] == 'opentelemetry' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
