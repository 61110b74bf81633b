"""A small sky for the demonstration: S3, SNS and SQS on loopback, and some two hundred objects of six datasets.

Invariants: nothing leaves this machine; every object is small and valid in its format, but for those that are broken on
purpose; the same plan has the same objects and the same faults.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from holdfast.core.errors import ExtraMissingError
from holdfast.nodd import samples
from holdfast.nodd.queues import Queue, client

REGION = "us-east-1"
BUCKETS = {
    "gfs": "noaa-gfs-bdp-pds",
    "hrrr": "noaa-hrrr-bdp-pds",
    "mrms": "noaa-mrms-pds",
    "goes-abi": "noaa-goes19",
    "nexrad-l2": "unidata-nexrad-level2",
    "nexrad-chunks": "unidata-nexrad-level2-chunks",
}
STATIONS = ("KTLX", "KDMX", "KABR", "KAMX", "KOKX", "KLOT", "KFWS", "KMUX")
FULL_DISK = (-156.3, -81.33, 6.3, 81.33)


class DemoObject(msgspec.Struct, frozen=True):
    """One object: where it stands, and its bytes."""

    dataset: str
    key: str
    data: bytes

    @property
    def bucket(self) -> str:
        """Return the bucket of its dataset."""
        return BUCKETS[self.dataset]


def demo_objects(now: datetime) -> list[DemoObject]:
    """Return the objects of the demonstration: some two hundred, of six datasets."""
    run = now.replace(hour=now.hour - now.hour % 6, minute=0, second=0, microsecond=0) - timedelta(hours=6)
    return [*_gfs(run), *_hrrr(run), *_mrms(now), *_goes(now), *_volumes(now), *_chunks(now)]


def _gfs(run: datetime) -> Iterator[DemoObject]:
    for lead in range(0, 120, 3):
        message = samples.grib2(run, lead)
        more = samples.grib2(run, lead, parameter=1)
        key = f"gfs.{run:%Y%m%d}/{run:%H}/atmos/gfs.t{run:%H}z.pgrb2.0p25.f{lead:03}"
        yield DemoObject("gfs", key, message + more)
        yield DemoObject("gfs", f"{key}.idx", samples.grib2_index([message, more], run))


def _hrrr(run: datetime) -> Iterator[DemoObject]:
    for lead in range(36):
        key = f"hrrr.{run:%Y%m%d}/conus/hrrr.t{run:%H}z.wrfsfcf{lead:02}.grib2"
        yield DemoObject("hrrr", key, samples.grib2(run, lead, grid=samples.lambert()))
    key = f"hrrr.{run:%Y%m%d}/alaska/hrrr.t{run:%H}z.wrfsfcf00.ak.grib2"
    yield DemoObject("hrrr", key, samples.grib2(run, 0, grid=samples.lambert()))


def _mrms(now: datetime) -> Iterator[DemoObject]:
    start = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    for number in range(40):
        at = start + timedelta(minutes=2 * number)
        key = f"CONUS/PrecipRate_00.00/{at:%Y%m%d}/MRMS_PrecipRate_00.00_{at:%Y%m%d-%H%M%S}.grib2.gz"
        yield DemoObject("mrms", key, samples.gzipped(samples.grib2(at, 0, grid=samples.conus_box())))


def _goes(now: datetime) -> Iterator[DemoObject]:
    start = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
    for number in range(16):
        at = start + timedelta(minutes=10 * number, seconds=20, milliseconds=500)
        end = at + timedelta(minutes=9, seconds=31)
        stamps = "_".join(f"{letter}{moment:%Y%j%H%M%S}{moment.microsecond // 100_000}" for letter, moment in
                          (("s", at), ("e", end), ("c", end + timedelta(seconds=7))))  # fmt: skip
        key = f"ABI-L2-CMIPF/{at:%Y}/{at:%j}/{at:%H}/OR_ABI-L2-CMIPF-M6C13_G19_{stamps}.nc"
        yield DemoObject("goes-abi", key, samples.goes_file(at, end, bbox=FULL_DISK))


def _volumes(now: datetime) -> Iterator[DemoObject]:
    for number, station in enumerate(STATIONS * 4):
        at = now.replace(microsecond=0) - timedelta(minutes=5 * number)
        key = f"{at:%Y/%m/%d}/{station}/{station}{at:%Y%m%d_%H%M%S}_V06"
        yield DemoObject("nexrad-l2", key, samples.nexrad_volume(station, at))


def _chunks(now: datetime) -> Iterator[DemoObject]:
    at = now.replace(microsecond=0) - timedelta(minutes=3)
    for number in range(1, 11):
        kind = "S" if number == 1 else "E" if number == 10 else "I"
        key = f"KTLX/399/{at:%Y%m%d-%H%M%S}-{number:03}-{kind}"
        data = samples.nexrad_volume("KTLX", at, records=1) if kind == "S" else samples.nexrad_records(2)
        yield DemoObject("nexrad-chunks", key, data)


# ---------------------------------------------------------------------------------------------------------------------
# The server


class LoopbackAws:
    """The server, its queue and its topics."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._s3, self._sns, self._sqs = (client(name, endpoint=endpoint) for name in ("s3", "sns", "sqs"))
        dead = str(self._sqs.create_queue(QueueName="nodd-dlq")["QueueUrl"])
        url = str(self._sqs.create_queue(QueueName="nodd-primary-queue")["QueueUrl"])
        self.queue, self.dead = (Queue(found, endpoint=endpoint) for found in (url, dead))
        attributes = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        self._arn = str(attributes["Attributes"]["QueueArn"])
        self._topic = ""
        for dataset, bucket in BUCKETS.items():
            self._s3.create_bucket(Bucket=bucket, ACL="public-read")
            self._announce(dataset, bucket)

    def _announce(self, dataset: str, bucket: str) -> None:
        topic = str(self._sns.create_topic(Name=f"New-{dataset}")["TopicArn"])
        self._sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=self._arn)
        if dataset == "nexrad-chunks":
            self._topic = topic  # its notices are no events of S3: they are sent by hand
            return
        configuration = {"TopicConfigurations": [{"TopicArn": topic, "Events": ["s3:ObjectCreated:*"]}]}
        self._s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=configuration)

    def put(self, thing: DemoObject) -> None:
        """Write an object; its bucket announces it."""
        self._s3.put_object(Bucket=thing.bucket, Key=thing.key, Body=thing.data, ACL="public-read")
        if thing.dataset == "nexrad-chunks":
            self._sns.publish(TopicArn=self._topic, Message=chunk_notice(thing))

    def remove(self, thing: DemoObject) -> None:
        """Take an object away."""
        self._s3.delete_object(Bucket=thing.bucket, Key=thing.key)


def chunk_notice(thing: DemoObject) -> str:
    """Return the notice of a chunk, as its feed sends it."""
    station, volume, name = thing.key.split("/")
    day, time, chunk, kind = name.split("-")
    when = datetime.strptime(f"{day}{time}", "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    told = {
        "S3Bucket": thing.bucket, "Key": thing.key, "SiteID": station, "DateTime": f"{when:%Y-%m-%dT%H:%M:%S}",
        "VolumeID": int(volume), "ChunkID": int(chunk), "ChunkType": kind, "L2Version": "V06",
    }  # fmt: skip
    return json.dumps(told)


def notice(thing: DemoObject, now: datetime, *, sequencer: str | None = None, etag: str = "0" * 32) -> str:
    """Return an event of S3 made by hand: for what the server does not do by itself."""
    told: dict[str, Any] = {"key": thing.key, "size": len(thing.data), "eTag": etag}
    if sequencer is not None:
        told["sequencer"] = sequencer
    record = {
        "eventVersion": "2.1", "eventName": "ObjectCreated:Put", "eventTime": now.isoformat(),
        "s3": {"bucket": {"name": thing.bucket}, "object": told},
    }  # fmt: skip
    return json.dumps({"Records": [record]})


@contextmanager
def loopback_aws() -> Iterator[LoopbackAws]:
    """Run the server on a free port of loopback for a block."""
    try:
        from moto.server import ThreadedMotoServer  # noqa: PLC0415 - only for the demonstration
    except ImportError:
        raise ExtraMissingError(
            "the demonstration needs the parts that tests need", next_step="Run it by `make demo`."
        ) from None
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.setdefault(name, "demonstration")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield LoopbackAws(f"http://{host}:{port}")
    finally:
        server.stop()
