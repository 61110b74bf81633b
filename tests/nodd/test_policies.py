"""Policies: provenance that fails, the gates before the catalogue, and the defaults of the queues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Ledger
from holdfast.audit.check.runner import check
from holdfast.core.errors import SpecInvalidError
from holdfast.core.machines import JobState
from holdfast.core.records import MAX_ATTEMPTS, time_text
from holdfast.core.selection import Options, ReplayMode, Selection, SelectionFilters, Window
from holdfast.engine.worker.retry import RetryPolicy, Strategy
from holdfast.governance.replay import replay
from holdfast.nodd import doctor, ingest, provenance, subscription
from holdfast.nodd.admission import DECLARED, FeedMessage, admit
from holdfast.nodd.dataset import Datasets, load, shipped, with_own
from holdfast.nodd.governance import GovernanceRule, GovernanceRules, rules_from
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.notices import parse
from holdfast.nodd.objects import ObjectHead
from holdfast.nodd.queues import Queue
from holdfast.nodd.records import broken_rules
from holdfast.nodd.units import Operator, OperatorVerdict, Unit, unit_of
from holdfast.store import Store
from tests.nodd.aws import REGION, Cloud
from tests.nodd.ingesting import BUCKET, GRIB, announce, queried, records
from tests.nodd.messages import GFS, event, record
from tests.nodd.objects import MemorySource

GFS_TOML = files("holdfast.nodd").joinpath("datasets/gfs.toml").read_text(encoding="utf-8")
MAY_FAIL = GFS_TOML.replace("[policy]\n", "[policy]\nprovenance_may_fail = true\n")


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")


def kept(store: Store[Any], name: str) -> Any:
    """Return what is kept under the name of a checkpoint; None if nothing is."""
    with store.reading() as reading:
        text = reading.notes.checkpoints(1).get(name)
    return None if text is None else json.loads(text)


@contextmanager
def opened(url: str, source: MemorySource, **how: Any) -> Iterator[Ledger]:
    """Open a ledger in which what fails is tried again at once."""
    settings = {"datasets": shipped(), "retry": RetryPolicy(strategy=Strategy.IMMEDIATE), **how}
    with Ledger(url) as ledger:
        declare(ledger, IngestSettings(source=source, **settings))
        yield ledger


# ---------------------------------------------------------------------------------------------------------------------
# Provenance that fails


class Nameless(MemorySource):
    """A store that gives no ETag until `tells` is set."""

    tells = False

    def head(self, bucket: str, key: str) -> ObjectHead | None:
        """Return what is known of an object."""
        head = super().head(bucket, key)
        return head if head is None or self.tells else msgspec.structs.replace(head, etag=None)


def unnamed(source: MemorySource) -> str:
    """Write an object, and return a notice without ETag and sequencer."""
    source.put(BUCKET, GFS, GRIB)
    return event(record(size=len(GRIB), eTag=None, sequencer=None))


def with_text_times(found: dict[str, Any]) -> dict[str, Any]:
    """Return a record with its times as text: PostgreSQL gives them as times."""
    return {name: time_text(value) if isinstance(value, datetime) else value for name, value in found.items()}


@pytest.fixture
def lenient(tmp_path: Path) -> Datasets:
    (tmp_path / "gfs.toml").write_text(MAY_FAIL, encoding="utf-8")
    return with_own(tmp_path)


STATUSES = ("status", "stac_status", "provenance_status", "last_error_code", "attempts")
UNTOLD = "the object has no ETag, version or sequencer that identifies its write"


@pytest.mark.req("K-12", "K-21", "K-40", "K-45")
def test_provenance_that_fails_is_no_success(store: Store[Any], ledger_url: str) -> None:
    source = Nameless()
    body = unnamed(source)
    admit(store, [FeedMessage(body)], shipped())
    with opened(ledger_url, source) as ledger:
        assert ledger.run_until_idle() == MAX_ATTEMPTS
        [found] = records(ledger)
        assert [found[name] for name in STATUSES] == ["failed", "unknown", "failed", "provenance_failed", MAX_ATTEMPTS]
        assert found["last_error_message"].endswith(UNTOLD)
        assert list(broken_rules(with_text_times(found), shipped())) == []
        # Nothing was catalogued, so nothing has to be taken back.
        assert queried(store, "SELECT count(*) FROM nodd_items") == [(0,)]
        assert queried(store, "SELECT count(*) FROM nodd_provenance") == [(0,)]
        # It is announced again, by a notice with an ETag: a later write, which is catalogued.
        named = event(record(size=len(GRIB), eTag=source.put(BUCKET, GFS, GRIB), sequencer=None))
        source.tells = True
        admit(store, [FeedMessage(named)], shipped())
        ledger.run_until_idle()
        [_, later] = records(ledger)
    assert [later[name] for name in STATUSES] == ["succeeded", "created", "ok", None, 1]
    assert queried(store, "SELECT kind, count(*) FROM nodd_provenance GROUP BY kind ORDER BY kind")[0] == (
        "openlineage",
        1,
    )


@pytest.mark.req("K-12", "K-21", "K-40", "K-45", "K-57")
def test_if_provenance_is_optional_the_item_is_catalogued_and_a_replay_emits_it(
    store: Store[Any], ledger_url: str, lenient: Datasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Nameless()
    admit(store, [FeedMessage(unnamed(source))], lenient)
    with opened(ledger_url, source, datasets=lenient) as ledger:
        assert ledger.run_until_idle() == 1
        [found] = records(ledger)
    assert [found[name] for name in STATUSES] == ["succeeded", "created", "failed", None, 1]
    assert queried(store, "SELECT count(*) FROM nodd_items") == [(1,)]
    assert queried(store, "SELECT count(*) FROM nodd_provenance") == [(0,)]
    assert kept(store, "provenance-emit") == {
        "operator": "provenance-emit", "status": "failed", "issues": ["prov_source_unidentified"],
        "checks_run": ["source", "prov", "openlineage"], "data": {"problems": [UNTOLD]},
    }  # fmt: skip
    # The record keeps the rules of its dataset, and would break those of one that requires provenance.
    assert list(broken_rules(with_text_times(found), lenient)) == []
    assert list(broken_rules(with_text_times(found), shipped())) == ["success_of_every_operator"]

    # A later version of the work, which replaces succeeded work, has the ETag.
    source.tells = True
    monkeypatch.setattr(ingest, "DECLARED", msgspec.structs.replace(DECLARED, version="1.1.0"))
    with opened(ledger_url, source, datasets=lenient) as ledger:
        ledger.run_until_idle()
        begin = store.now() - timedelta(days=1)
        window = Window(begin, begin + timedelta(days=2))
        selection = Selection(
            name="s",
            env="dev",
            mode=ReplayMode.REPAIR_AND_REPLACE,
            filters=SelectionFilters(queues=("gfs",), status=(JobState.SUCCEEDED,), created_at=window),
            options=Options(allow_repair_and_replace=True),
        )
        done = replay.run(store, selection, actor="ann", reason="provenance is owed", replay_reason="incident")
        assert (done.replayed, str(done.state)) == (1, "done")
        assert ledger.run_until_idle() == 1
        [mended] = records(ledger)
    assert (mended["wal_id"], mended["status"], mended["provenance_status"]) == (found["wal_id"], "succeeded", "ok")
    assert mended["stac_item_id"] == found["stac_item_id"]
    assert queried(store, "SELECT count(*) FROM nodd_items") == [(1,)]
    assert dict(queried(store, "SELECT kind, count(*) FROM nodd_provenance GROUP BY kind"))["openlineage"] == 1
    assert check(store).violations == ()


@pytest.mark.req("K-21")
def test_the_flag_is_one_of_the_policy_and_must_be_true_or_false() -> None:
    assert [dataset.name for dataset in shipped() if dataset.spec.policy.provenance_may_fail] == []
    assert load("gfs", MAY_FAIL).spec.policy.provenance_may_fail is True
    with pytest.raises(SpecInvalidError) as refused:
        load("gfs", MAY_FAIL.replace("may_fail = true", 'may_fail = "yes"'))
    assert refused.value.context == {"dataset": "gfs", "path": "policy.provenance_may_fail"}


def facts() -> provenance.RunFacts:
    return provenance.RunFacts(
        job_id=1, attempt=1, software={"holdfast-nodd": "1.0.0"},
        at="2026-07-26T03:00:00.000000Z",
    )  # fmt: skip


def unit_and_verdicts() -> tuple[Unit, dict[Operator, OperatorVerdict]]:
    [notice] = parse(event(record()), shipped()).notices
    verdict = OperatorVerdict(
        operator=Operator.INTEGRITY, status="ok", data={"actual_etag": "e", "actual_size_bytes": 1}
    )
    return unit_of(notice), {Operator.INTEGRITY: verdict}


@pytest.mark.req("K-45")
@pytest.mark.parametrize(
    "at, item, status, issues, kinds",
    [
        ("2026-07-26T03:00:00.000000Z", {"collection": "c", "id": "i"}, "ok", (), {"prov", "openlineage"}),
        ("2026-07-26T03:00:00.000000Z", {"collection": "c", "id": "no name"}, "failed", ("prov_invalid",), set()),
        ("yesterday", {"collection": "c", "id": "i"}, "failed", ("prov_invalid", "openlineage_emit_failed"), set()),
    ],
)
def test_invalid_prov_or_openlineage_is_not_recorded(
    at: str, item: dict[str, str], status: str, issues: tuple[str, ...], kinds: set[str]
) -> None:
    unit, verdicts = unit_and_verdicts()
    run = msgspec.structs.replace(facts(), at=at)
    verdict, recorded = provenance.emitted(unit, shipped()["gfs"], verdicts, item, run=run)
    assert (verdict.status, verdict.issues, {one.kind for one in recorded}) == (status, issues, kinds)


@pytest.mark.req("K-45")
def test_without_its_event_provenance_is_partial() -> None:
    unit, verdicts = unit_and_verdicts()
    nowhere = msgspec.structs.replace(unit, notice=msgspec.structs.replace(unit.notice, key=""))
    item = {"collection": "c", "id": "i"}
    verdict, recorded = provenance.emitted(nowhere, shipped()["gfs"], verdicts, item, run=facts())
    assert (verdict.status, verdict.issues) == ("partial", ("openlineage_emit_failed",))
    assert [one.kind for one in recorded] == ["prov"] * 9


# ---------------------------------------------------------------------------------------------------------------------
# The gates

CARE = GovernanceRule(id="not-ours", asks="allowed", gate="care", why="a test")
FAIR = GovernanceRule(id="checked", asks="checksum", gate="fair", then="hold", why="another test")
PASSED = {"A-schema": "pass", "B-fair": "pass", "C-care": "pass", "D-prov": "pass"}


@pytest.mark.req("K-46")
def test_a_unit_that_passes_every_gate_is_promoted_with_the_results_on_record(
    store: Store[Any], ledger_url: str, source: MemorySource
) -> None:
    with opened(ledger_url, source) as ledger:
        announce(ledger, GRIB, source)
        ledger.run_until_idle()
    [[result]] = queried(store, "SELECT result FROM holdfast_jobs")
    assert (result if isinstance(result, dict) else json.loads(result))["gates"] == PASSED
    assert kept(store, "governance-gate")["data"]["gates"] == dict.fromkeys(("A-schema", "B-fair", "C-care"), "pass")
    assert queried(store, "SELECT count(*) FROM nodd_items") == [(1,)]


@pytest.mark.req("K-37", "K-46")
@pytest.mark.parametrize(
    "data, rules, code, results",
    [
        # Each stops at the first gate that refuses, in any order of the rules; later gates do not run.
        (GRIB[:-1], (CARE, FAIR), "integrity_missing_required_header", {"A-schema": "fail"}),
        (GRIB, (CARE, msgspec.structs.replace(FAIR, asks="allowed")), "governance_hold",
         {"A-schema": "pass", "B-fair": "fail"}),
        (GRIB, (CARE, FAIR), "governance_hard_fail", {"A-schema": "pass", "B-fair": "pass", "C-care": "fail"}),
    ],
)  # fmt: skip
def test_the_gates_are_passed_in_order_and_each_result_is_kept(
    *,
    store: Store[Any],
    ledger_url: str,
    source: MemorySource,
    data: bytes,
    rules: tuple[GovernanceRule, ...],
    code: str,
    results: dict[str, str],
) -> None:
    with opened(ledger_url, source, rules=GovernanceRules(rules=rules)) as ledger:
        announce(ledger, data, source)
        assert ledger.run_until_idle() == 1
        [found] = records(ledger)
    assert (found["status"], found["last_error_code"]) == ("quarantined", code)
    assert kept(store, "validation-gates/1") == results
    assert queried(store, "SELECT count(*) FROM nodd_items") == [(0,)]


@pytest.mark.req("K-21", "K-46")
def test_the_last_gate_is_provenance_and_may_be_waived(store: Store[Any], ledger_url: str, lenient: Datasets) -> None:
    nameless = Nameless()
    admit(store, [FeedMessage(unnamed(nameless))], shipped())
    with opened(ledger_url, nameless, retry=RetryPolicy(strategy=Strategy.NO_RETRY)) as ledger:
        assert ledger.run_until_idle() == 1
    assert kept(store, "validation-gates/1") == {**PASSED, "D-prov": "fail"}
    admit(store, [FeedMessage(unnamed(nameless))], shipped())  # it had failed, and is pending again
    with opened(ledger_url, nameless, datasets=lenient) as ledger:
        assert ledger.run_until_idle() == 1
    [[result]] = queried(store, "SELECT result FROM holdfast_jobs")
    assert (result if isinstance(result, dict) else json.loads(result))["gates"] == {**PASSED, "D-prov": "waived"}


@pytest.mark.req("K-46")
def test_a_rule_at_an_unknown_gate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rules]]\nid = "a"\nasks = "license"\ngate = "fair"\n', encoding="utf-8")
    assert [rule.gate for rule in rules_from(path).rules] == ["fair"]
    path.write_text('[[rules]]\nid = "a"\nasks = "license"\ngate = "back"\n', encoding="utf-8")
    with pytest.raises(SpecInvalidError) as refused:
        rules_from(path)
    assert refused.value.context == {"path": "rules[0]"}


# ---------------------------------------------------------------------------------------------------------------------
# The defaults of the queues


@pytest.mark.req("K-34")
@pytest.mark.parametrize("env, visibility_s", [("prod", "300"), ("stage", "300"), ("dev", "120")])
def test_a_queue_is_made_with_these_defaults(cloud: Cloud, env: str, visibility_s: str) -> None:
    topic = str(cloud.sns.create_topic(Name="NewGFSObject")["TopicArn"])
    account = topic.split(":")[4]
    wanted = subscription.plan(shipped()["gfs"], BUCKET, account=account, env=subscription.SubscriptionEnv(env))
    assert (wanted.queue, wanted.dead_letter_queue) == ("nodd-primary-queue", "nodd-dlq")
    made = subscription.carry_out(msgspec.structs.replace(wanted, topic=topic), endpoint=cloud.endpoint)
    found = attributes(cloud, made["queue_url"])
    dead = attributes(cloud, str(cloud.sqs.get_queue_url(QueueName="nodd-dlq")["QueueUrl"]))
    assert made["queue_url"].endswith("/nodd-primary-queue")
    assert (found["VisibilityTimeout"], found["MessageRetentionPeriod"]) == (visibility_s, "1209600")
    assert {name: str(value) for name, value in json.loads(found["RedrivePolicy"]).items()} == {
        "deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{account}:nodd-dlq",
        "maxReceiveCount": "5",
    }
    assert dead["MessageRetentionPeriod"] == "1209600"


def attributes(cloud: Cloud, url: str) -> dict[str, str]:
    return dict(cloud.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"])


@pytest.mark.req("K-34")
def test_a_queue_of_another_name_has_dead_letters_of_its_own() -> None:
    wanted = subscription.plan(shipped()["gfs"], BUCKET, queue="mine", account="123456789012")
    assert (wanted.queue, wanted.dead_letter_queue) == ("mine", "mine-dlq")


def test_another_topic_on_the_same_queue_keeps_the_first_allowed(cloud: Cloud) -> None:
    let_in, url = [], ""
    for name, bucket in (("goes-abi", "noaa-goes18"), ("goes-abi", "noaa-goes19"), ("gfs", BUCKET), ("gfs", BUCKET)):
        wanted = subscription.plan(shipped()[name], bucket, queue="nodd-shared", account="123456789012")
        topic = str(cloud.sns.create_topic(Name=wanted.topic.rpartition(":")[2])["TopicArn"])
        url = subscription.carry_out(msgspec.structs.replace(wanted, topic=topic), endpoint=cloud.endpoint)["queue_url"]
        let_in.append(wanted.topic)
    statements = json.loads(attributes(cloud, url)["Policy"])["Statement"]
    # Each topic once, by its whole ARN, and no statement without one.
    assert [one["Condition"] for one in statements] == [
        {"ArnEquals": {"aws:SourceArn": topic}} for topic in dict.fromkeys(let_in)
    ]
    assert [one["Sid"] for one in statements] == [
        "Let123901341784NewGOES18Object", "Let123901341784NewGOES19Object", "Let123901341784NewGFSObject",
    ]  # fmt: skip


@pytest.mark.req("K-34")
def test_the_doctor_compares_the_visibility_timeout_with_the_duration_of_the_work(
    store: Store[Any], ledger_url: str, cloud: Cloud, source: MemorySource
) -> None:
    long, short = (Queue(cloud.queue(visibility_s=seconds)[0], endpoint=cloud.endpoint) for seconds in (120, 20))
    assert doctor.look_at_visibility(store, short) == []  # nothing has been done yet
    with opened(ledger_url, source) as ledger:
        announce(ledger, GRIB, source)
        ledger.run_until_idle()
    assert doctor.look_at_visibility(store, long) == []
    [finding] = doctor.look_at_visibility(store, short)
    assert (finding.code, finding.severity) == ("visibility_too_short", "warning")
    assert " 20 s" in finding.detail
    assert finding.next_step.startswith("Set VisibilityTimeout to 3")
