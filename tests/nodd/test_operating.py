"""Operating a feed: dead letters, listings, subscriptions, and the doctor; against a real server."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest

from holdfast.audit.check.runner import check
from holdfast.core.authority import Act, Wanted
from holdfast.core.commands import Fail, Quarantine
from holdfast.core.errors import AuthorityError, InputError, ReplayGuardError, StoreUnavailableError
from holdfast.core.machines import JobState
from holdfast.governance import switches
from holdfast.governance.grants import request
from holdfast.governance.quarantine import add
from holdfast.nodd import doctor, samples, subscription
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.dataset import shipped
from holdfast.nodd.drain import SAME_ERROR, Drain
from holdfast.nodd.objects import S3Source
from holdfast.nodd.queues import Queue
from holdfast.nodd.reconcile import ReconcileResult, reconcile
from holdfast.nodd.tables import prepare
from holdfast.store import Lease, Store, open_store
from tests.cli.commands import holdfast
from tests.governance.granting import approve_in_prod
from tests.nodd.aws import Cloud
from tests.nodd.messages import GFS, event, record

BUCKET = "noaa-gfs-bdp-pds"
GRIB = samples.grib2(datetime(2026, 7, 26, tzinfo=UTC), 3)
KEYS = [GFS.replace("f003", f"f{n:03}") for n in range(4)]


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")


@pytest.fixture
def dead(cloud: Cloud) -> Queue:
    return Queue(cloud.queue()[0], endpoint=cloud.endpoint)


@pytest.fixture
def failed(store: Store[Any]) -> Store[Any]:
    """A ledger with four units: failed, failed, quarantined, pending."""
    for key in KEYS:
        admit(store, [FeedMessage(event(record(key=key)))], shipped())
    with store.transaction() as transaction:
        jobs = transaction.jobs.get_many(range(1, 5))
        transaction.rulings.rule([(jobs[2], Quarantine("governance_hard_fail"))], actor="t")
        attempts = transaction.executions.claim_these([1, 2], Lease(owner="w", queues=("gfs",), n=2, seconds=30))
        fails = [(one, Fail(one.execution.lease_token, "io_error", "down")) for one in attempts]
        transaction.executions.move(fails, actor="w")
    return store


def states(store: Store[Any]) -> list[str]:
    with store.reading() as reading:
        return [str(job.state) for job in reading.jobs.get_many(range(1, 10))]


@pytest.mark.req("K-33", "K-56")
def test_a_drain_records_messages_first_and_replays_only_failed_units(failed: Store[Any], dead: Queue) -> None:
    dead.send([event(record(key=key)) for key in KEYS])
    done = Drain(failed, dead, shipped(), actor="ann", reason="ticket 7", wait_s=0).run()
    assert (done.received, done.deleted, done.stopped) == (4, 4, None)
    assert done.fates == {"already_pending": 1, "already_quarantined": 1, "replayed": 2}
    assert states(failed) == ["pending", "pending", "quarantined", "pending"]
    with failed.reading() as reading:
        assert [(row.event, row.actor, row.reason) for row in reading.journal.of(1)][-1] == (
            "replay",
            "ann",
            f"replay {done.run_id}: ticket 7",
        )
        run = reading.runs.get(done.run_id)
        assert run is not None
        assert (run.procedure, run.state) == ("replay", "done")
        assert reading.jobs.get(1).replay_reason == "dlq-drain"


@pytest.mark.req("K-56")
def test_a_message_without_a_record_stays_unless_admit_unknown_is_given(
    store: Store[Any], dead: Queue, cloud: Cloud
) -> None:
    dead.send([event(record())])
    drain = Drain(store, dead, shipped(), actor="ann", reason="r", wait_s=0)
    assert drain.run(limit=1).fates == {"uncorrelated": 1}
    assert states(store) == []
    other = Queue(cloud.queue()[0], endpoint=cloud.endpoint)
    other.send([event(record()), "garbage"])
    drained = Drain(store, other, shipped(), actor="ann", reason="r", wait_s=0, admit_unknown=True).run()
    assert (drained.fates, drained.deleted) == ({"admitted": 1, "rejected": 1}, 2)
    assert states(store) == ["pending"]


@pytest.mark.req("K-56")
def test_the_same_error_again_stops_a_drain(store: Store[Any], dead: Queue) -> None:
    """The second batch waits until the first has ended: the worker is slower than the drain."""
    keys = [GFS.replace("f003", f"f{n:03}") for n in range(1, 13)]
    ids = broken(store, keys, "io_error")
    dead.send([event(record(key=key)) for key in keys])
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) >= 3:  # only now a worker starts; by the clock of a server the jobs may be due a moment later
            fail(store, ids[:10], "io_error")

    done = Drain(store, dead, shipped(), actor="ann", reason="r", sleep=sleep).run()
    assert len(slept) >= 3
    assert (done.stopped, done.fates["replayed"], done.received, done.deleted) == (SAME_ERROR, 10, 12, 10)
    with store.reading() as reading:
        assert [job.state for job in reading.jobs.get_many(ids)] == ["failed"] * 12
        run = reading.runs.get(done.run_id)
        assert run is not None
        assert (run.state, run.stop_state) == ("stopped", SAME_ERROR)
    later = Drain(store, dead, shipped(), actor="ann", reason="r", wait_s=0).run()
    assert (later.received, later.fates) == (2, {"replayed": 2})  # the others were left in the queue


def test_the_same_error_is_noticed_after_the_last_batch_too(store: Store[Any], dead: Queue) -> None:
    ids = broken(store, KEYS[:1], "io_error")
    dead.send([event(record(key=KEYS[0]))])
    done = Drain(store, dead, shipped(), actor="ann", reason="r", sleep=lambda _: fail(store, ids, "io_error")).run()
    assert (done.stopped, done.deleted) == (SAME_ERROR, 1)


def broken(store: Store[Any], keys: list[str], code: str) -> list[int]:
    """Admit units whose first attempts fail for good, and return their jobs."""
    for key in keys:
        admit(store, [FeedMessage(event(record(key=key)))], shipped())
    with store.reading() as reading:
        ids = sorted(job.job_id for job in reading.replay.jobs_after(0, JobState.PENDING, limit=100))
    fail(store, ids, code)
    return ids


def fail(store: Store[Any], ids: list[int], code: str) -> None:
    with store.transaction() as transaction:
        lease = Lease(owner="w", queues=("gfs",), n=len(ids), seconds=30)
        for attempt in transaction.executions.claim_these(ids, lease):
            command = Fail(attempt.execution.lease_token, code, "down")
            transaction.executions.move([(attempt, command)], actor="w")


# -- under governance -------------------------------------------------------------------------------------------------


def test_a_permanent_error_is_quarantined_and_not_replayed(store: Store[Any], dead: Queue) -> None:
    ids = broken(store, KEYS[:2], "integrity_size_zero")
    dead.send([event(record(key=key)) for key in KEYS[:2]])
    done = Drain(store, dead, shipped(), actor="ann", reason="INC-7").run()
    assert (done.fates, done.deleted, done.stopped) == ({"quarantined": 2}, 2, None)
    with store.reading() as reading:
        assert [(job.state, job.quarantine_code) for job in reading.jobs.get_many(ids)] == [
            ("quarantined", "parse_error")
        ] * 2
        last = reading.journal.of(ids[0])[-1]
    assert (last.event, last.actor, last.reason) == ("quarantine", "ann", f"drain {done.run_id}: INC-7")


def test_a_damaged_object_is_not_advised_to_be_released(store: Store[Any]) -> None:
    """Its bytes are the same after a release: only a later write of it can help."""
    [job_id] = map(str, broken(store, KEYS[:1], "integrity_size_zero"))
    add(store, int(job_id), "integrity_size_zero", operator="ann", reason="empty")
    explained = holdfast("explain", job_id, "--db", store.url, "--json").json
    shown = holdfast("quarantine", "show", job_id, "--db", store.url, "--json").json
    assert shown["next"] == [explained["findings"][0]["next"]]
    assert shlex.split(shown["next"][0])[1:3] == ["nodd", "reconcile"]


@pytest.mark.parametrize("switch", ["replay", "replay:gfs", "operation:nodd.ingest"])
def test_a_switch_that_is_on_refuses_a_drain(failed: Store[Any], dead: Queue, switch: str) -> None:
    switches.throw(failed, switch, actor="sec", reason="harm was seen")
    dead.send([event(record(key=key)) for key in KEYS])
    before = states(failed)
    with pytest.raises(ReplayGuardError) as refused:
        Drain(failed, dead, shipped(), actor="ann", reason="r").run()
    assert refused.value.code == "kill_switch_active"
    assert states(failed) == before
    assert len(dead.receive(wait_s=0)) == 4  # nothing was deleted, and they are visible again


@pytest.fixture
def prod(prod_url: str) -> Iterator[Store[Any]]:
    with open_store(prod_url) as store:
        prepare(store)
        yield store


def test_in_prod_a_drain_needs_a_grant_for_exactly_its_records(prod: Store[Any], dead: Queue) -> None:
    store = prod
    ids = broken(store, KEYS[:2], "io_error")
    dead.send([event(record(key=key)) for key in KEYS[:2]])
    drain = Drain(store, dead, shipped(), actor="ann", reason="INC-7", wait_s=0)
    with pytest.raises(AuthorityError) as refused:
        drain.run()
    assert refused.value.code == "REJECT_AUTH_MISSING"
    with store.reading() as reading:
        assert [job.state for job in reading.jobs.get_many(ids)] == ["failed"] * 2
        assert reading.runs.get(drain.run_id) is None
    context = refused.value.context
    what = Wanted(
        act=Act(str(context["action"])), target=str(context["target"]), environment="prod", executor="ann",
        plan=str(context["plan"]),
    )  # fmt: skip
    draft = request(store, what, requester="ann", rollback_plan="quarantine them", reason="INC-7")
    approve_in_prod(store, draft.grant_id)
    done = Drain(store, dead, shipped(), actor="ann", reason="INC-7", grant_id=draft.grant_id, wait_s=0).run()
    assert (done.fates, done.deleted) == ({"replayed": 2}, 2)
    with store.reading() as reading:
        run = reading.runs.get(done.run_id)
        assert run is not None
        assert run.grant_id == draft.grant_id
    assert check(store, only=["grants_authentic"]).ok


def test_in_prod_a_pause_is_lifted_by_a_grant(prod: Store[Any]) -> None:
    store = prod
    with store.transaction() as transaction:
        transaction.queues.pause("gfs", actor="sec", reason="harm was seen")
    with pytest.raises(AuthorityError) as refused:
        switches.resume_queue(store, "gfs", actor="ann", reason="mended")
    assert (refused.value.code, refused.value.context["target"]) == ("REJECT_AUTH_MISSING", "queue:gfs")
    what = Wanted(act=Act.LIFT, target="queue:gfs", environment="prod", executor="ann")
    draft = request(store, what, requester="ann", rollback_plan="pause it", reason="mended")
    approve_in_prod(store, draft.grant_id)
    assert switches.resume_queue(store, "gfs", actor="ann", reason="mended", grant_id=draft.grant_id)
    assert not switches.resume_queue(store, "gfs", actor="ann", reason="again")  # it is not paused: no grant is used
    assert check(store, only=["grants_authentic"]).ok


# Of a day that no other test has objects of: the server is the session's.
OF_A_DAY = [key.replace("20260726", "20260802") for key in KEYS]


@pytest.fixture
def listed(cloud: Cloud) -> S3Source:
    cloud.bucket(BUCKET)
    for key in (*OF_A_DAY, f"{OF_A_DAY[0]}.idx", "gfs.20260802/00/atmos/readme.txt"):
        cloud.s3.put_object(Bucket=BUCKET, Key=key, Body=GRIB)
    return S3Source(shipped().buckets(), endpoint=cloud.endpoint)


def test_a_listing_finds_objects_without_a_notice(store: Store[Any], listed: S3Source) -> None:
    day, gfs = date(2026, 8, 2), shipped()["gfs"]
    etag = hashlib.md5(GRIB, usedforsecurity=False).hexdigest()
    admit(store, [FeedMessage(event(record(key=OF_A_DAY[0], eTag=etag)))], shipped())
    found = reconcile(store, listed, shipped(), gfs, day)
    assert found == ReconcileResult(
        dataset="gfs", date="2026-08-02", listed=4, known=1, missing=3, changed=0, admitted=0, others=1,
        examples=tuple(f"s3://{BUCKET}/{key}" for key in OF_A_DAY[1:]),
    )  # fmt: skip
    assert reconcile(store, listed, shipped(), gfs, day, admit_missing=True).admitted == 3
    again = reconcile(store, listed, shipped(), gfs, day, admit_missing=True)
    assert (again.known, again.missing, again.admitted) == (4, 0, 0)
    assert states(store) == ["pending"] * 4


@pytest.mark.parametrize("page", [1, 500])
def test_an_index_that_is_listed_is_admitted_with_its_file(
    store: Store[Any], listed: S3Source, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr("holdfast.nodd.reconcile.PAGE", page)
    day, gfs = date(2026, 8, 2), shipped()["gfs"]
    found = reconcile(store, listed, shipped(), gfs, day, admit_missing=True)
    assert (found.listed, found.admitted) == (4, 4)
    with store.reading() as reading:
        _, rows = reading.query("SELECT sidecar_uri, object_uri, size FROM nodd_sidecars", {})
    uri = f"s3://{BUCKET}/{OF_A_DAY[0]}"
    assert rows == [(f"{uri}.idx", uri, len(GRIB))]


def test_a_write_whose_notice_was_lost_is_missing_and_is_admitted_as_a_generation(
    store: Store[Any], listed: S3Source
) -> None:
    day, gfs = date(2026, 8, 2), shipped()["gfs"]
    admit(store, [FeedMessage(event(record(key=OF_A_DAY[0], eTag="0" * 32)))], shipped())
    prefixes = ["gfs.%Y%m%d/00/atmos/gfs.t00z.pgrb2.0p25.f000"]
    found = reconcile(store, listed, shipped(), gfs, day, prefixes=prefixes, admit_missing=True)
    assert (found.listed, found.known, found.missing, found.changed, found.admitted) == (1, 0, 1, 1, 1)
    with store.reading() as reading:
        _, rows = reading.query("SELECT generation, superseded_by IS NULL FROM nodd_units ORDER BY generation", {})
    assert [(generation, bool(last)) for generation, last in rows] == [(1, False), (2, True)]
    again = reconcile(store, listed, shipped(), gfs, day, prefixes=prefixes, admit_missing=True)
    assert (again.known, again.missing, again.admitted) == (1, 0, 0)


def test_products_are_listed_by_name(store: Store[Any], listed: S3Source) -> None:
    gfs = shipped()["gfs"]
    found = reconcile(store, listed, shipped(), gfs, date(2026, 8, 2), products=["pgrb2b.0p25"])
    assert (found.listed, found.others) == (0, 1)
    assert "gdas.%Y%m%d/" in gfs.spec.prefixes_of()
    mrms = shipped()["mrms"].spec
    assert mrms.prefixes_of(["GUAM/PrecipRate_00.00"]) == ["GUAM/PrecipRate_00.00/%Y%m%d/"]
    assert mrms.prefixes_of() == ["CONUS/PrecipRate_00.00/%Y%m%d/"]


def test_a_subscription_is_created_as_printed(cloud: Cloud) -> None:
    plan = subscription.plan(shipped()["gfs"], BUCKET, queue="nodd-t", account="123456789012")
    assert plan.subscription["FilterPolicyScope"] == "MessageBody"
    assert json.loads(plan.subscription["FilterPolicy"]) == {
        "Records": {"s3": {"object": {"key": [{"prefix": "gfs."}, {"prefix": "gdas."}]}}}
    }
    [statement] = plan.policy["Statement"]
    assert statement["Condition"] == {"ArnEquals": {"aws:SourceArn": plan.topic}}
    topic = cloud.sns.create_topic(Name="NewGFSObject")["TopicArn"]
    mine = msgspec.structs.replace(plan, topic=topic)
    made = subscription.carry_out(mine, endpoint=cloud.endpoint)
    assert subscription.carry_out(mine, endpoint=cloud.endpoint)["queue_url"] == made["queue_url"]
    attributes = cloud.sns.get_subscription_attributes(SubscriptionArn=made["subscription"])["Attributes"]
    assert doctor.look_at_subscription(attributes) == []
    assert [
        one.code for one in doctor.look_at_subscription({**attributes, "FilterPolicyScope": "MessageAttributes"})
    ] == ["wrong_filter_scope"]
    queue = Queue(made["queue_url"], endpoint=cloud.endpoint)
    assert doctor.look_at_queue(queue, None, shipped()) == []
    goes16 = {**attributes, "TopicArn": "arn:aws:sns:us-east-1:123901341784:NewGOES16Object"}
    assert [one.code for one in doctor.look_at_subscription(goes16)] == ["dead_topic"]
    bare = Queue(cloud.queue()[0], endpoint=cloud.endpoint)
    cloud.sqs.set_queue_attributes(QueueUrl=bare.url, Attributes={"Policy": ""})
    assert [one.code for one in doctor.look_at_queue(bare, None, shipped())] == ["no_policy"]


def test_a_topic_that_does_not_exist_is_named(cloud: Cloud) -> None:
    plan = subscription.plan(shipped()["gfs"], BUCKET, queue="nodd-t", account="123456789012")
    missing = msgspec.structs.replace(plan, topic="arn:aws:sns:us-east-1:123456789012:NewNothingObject")
    with pytest.raises(StoreUnavailableError) as refused:
        subscription.carry_out(missing, endpoint=cloud.endpoint)
    assert missing.topic in refused.value.hint


def test_two_datasets_of_one_topic_share_a_queue_and_both_are_admitted(cloud: Cloud) -> None:
    topic = cloud.sns.create_topic(Name="NewGOES19Object")["TopicArn"]
    made = []
    for name in ("goes-abi", "goes-glm", "goes-abi"):
        plan = subscription.plan(shipped()[name], "noaa-goes19", queue="nodd-goes", account="123456789012")
        made.append(subscription.carry_out(msgspec.structs.replace(plan, topic=topic), endpoint=cloud.endpoint))
    assert made[0] == made[1] == made[2]
    attributes = cloud.sns.get_subscription_attributes(SubscriptionArn=made[0]["subscription"])["Attributes"]
    assert attributes["FilterPolicyScope"] == "MessageBody"
    keys = json.loads(attributes["FilterPolicy"])["Records"]["s3"]["object"]["key"]
    assert keys == [{"prefix": "ABI-L2-CMIPF/"}, {"prefix": "GLM-L2-LCFA/"}]
    for key in ("ABI-L2-CMIPF/a.nc", "GLM-L2-LCFA/b.nc", "ABI-L1b-RadM/c.nc"):
        cloud.sns.publish(TopicArn=topic, Message=event(record(key=key, bucket="noaa-goes19")))
    queue = Queue(made[0]["queue_url"], endpoint=cloud.endpoint)
    heard = [
        json.loads(json.loads(one.body)["Message"])["Records"][0]["s3"]["object"]["key"]
        for one in queue.receive(wait_s=1)
    ]
    assert sorted(heard) == ["ABI-L2-CMIPF/a.nc", "GLM-L2-LCFA/b.nc"]


def test_chunks_are_subscribed_to_by_site() -> None:
    chunks, bucket = shipped()["nexrad-chunks"], "unidata-nexrad-level2-chunks"
    plan = subscription.plan(chunks, bucket, account="123456789012", sites=("KTLX", "KDMX"))
    assert plan.subscription["FilterPolicyScope"] == "MessageAttributes"
    assert json.loads(plan.subscription["FilterPolicy"]) == {"SiteID": ["KDMX", "KTLX"]}
    assert doctor.look_at_subscription({**plan.subscription, "TopicArn": plan.topic}) == []
    assert "FilterPolicy" not in subscription.plan(chunks, bucket, account="123456789012").subscription
    with pytest.raises(InputError):
        subscription.plan(shipped()["gfs"], BUCKET, account="123456789012", sites=("KTLX",))


def test_the_doctor_finds_pauses_with_a_backlog_and_buckets_of_no_dataset(store: Store[Any]) -> None:
    admit(store, [FeedMessage(event(record())), FeedMessage(event(record(bucket="noaa-himawari9")))], shipped())
    with store.transaction() as transaction:
        transaction.queues.pause("gfs", actor="ann", reason="bad feed")
        transaction.queues.pause("hrrr", actor="ann", reason="bad feed")  # nothing waits there
    found = doctor.look_at_ledger(store, store.now(), shipped())
    assert [(one.code, one.subject) for one in found] == [
        ("unknown_bucket", "noaa-himawari9"),
        ("paused_with_backlog", "gfs"),
    ]


def test_the_doctor_finds_silence_open_queues_dead_topics_and_dead_letters(
    store: Store[Any], cloud: Cloud, dead: Queue
) -> None:
    admit(store, [FeedMessage(event(record())), FeedMessage("garbage")], shipped())
    now = store.now()
    assert [one.code for one in doctor.look_at_ledger(store, now, shipped())] == ["rejected_messages"]
    between = doctor.look_at_ledger(store, now + timedelta(hours=1), shipped())  # it comes four times a day
    assert [one.code for one in between] == ["rejected_messages"]
    later = doctor.look_at_ledger(store, now + timedelta(hours=9), shipped())
    assert [(one.code, one.subject) for one in later] == [("rejected_messages", "not_json"), ("silent_feed", "gfs")]
    queue = Queue(cloud.queue()[0], endpoint=cloud.endpoint)
    goes16 = "arn:aws:sns:us-east-1:123901341784:NewGOES16Object"
    statements = [
        {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": cloud.arn(queue.url)},
        {
            "Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage",
            "Resource": cloud.arn(queue.url), "Condition": {"ArnEquals": {"aws:SourceArn": goes16}},
        },
    ]  # fmt: skip
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    cloud.sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"Policy": policy})
    dead.send(["x"])
    codes = [one.code for one in doctor.look_at_queue(queue, dead, shipped())]
    assert codes == ["open_queue", "dead_topic", "dead_letters_expire", "dead_letters"]
