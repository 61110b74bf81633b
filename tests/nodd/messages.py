"""Messages of the feeds as they are delivered, to build on: S3 events, SNS envelopes, chunks."""

from __future__ import annotations

import json
from typing import Any

GOES = "ABI-L1b-RadM/2019/218/01/OR_ABI-L1b-RadM2-M6C03_G18_s20192180138575_e20192180139032_c20192180139073.nc"
GFS = "gfs.20260726/00/atmos/gfs.t00z.pgrb2.0p25.f003"
CHUNK = "KTLX/399/20261009-043037-048-I"
GFS_TOPIC = "arn:aws:sns:us-east-1:123901341784:NewGFSObject"


def record(key: str = GFS, bucket: str = "noaa-gfs-bdp-pds", **fields: Any) -> dict[str, Any]:
    """Return one record of an S3 event, as AWS writes it; `fields` replaces fields of the object or the record."""
    thing = {"key": key, "size": 1063054, "eTag": "7239138a465f83a247851a1a64ac8927", "sequencer": "005D48DA450E238E88"}
    outer = {
        "eventVersion": "2.1", "eventSource": "aws:s3", "awsRegion": "us-east-1",
        "eventTime": "2026-07-26T03:34:45.250Z", "eventName": "ObjectCreated:Put",
        "userIdentity": {"principalId": "AWS:AIDAEXAMPLE"}, "requestParameters": {"sourceIPAddress": "192.0.2.1"},
        "responseElements": {"x-amz-request-id": "EXAMPLE"},
    }  # fmt: skip
    for name, value in fields.items():
        (thing if name in thing or name == "versionId" else outer)[name] = value
    s3 = {
        "s3SchemaVersion": "1.0", "configurationId": "all", "object": thing,
        "bucket": {"name": bucket, "ownerIdentity": {"principalId": "A1"}, "arn": f"arn:aws:s3:::{bucket}"},
    }  # fmt: skip
    return {**outer, "s3": s3}


def event(*records: dict[str, Any]) -> str:
    """Return an S3 event: what raw delivery gives."""
    return json.dumps({"Records": list(records)})


def enveloped(message: str, topic: str = GFS_TOPIC, subject: str | None = "Amazon S3 Notification") -> str:
    """Return a message in the envelope of SNS."""
    envelope = {
        "Type": "Notification", "MessageId": "0b1c8fd4-1", "TopicArn": topic, "Subject": subject, "Message": message,
        "Timestamp": "2026-07-26T03:34:46.000Z", "SignatureVersion": "1", "Signature": "EXAMPLE",
        "SigningCertURL": "https://sns.us-east-1.amazonaws.com/cert.pem", "UnsubscribeURL": "https://example.org/",
    }  # fmt: skip
    return json.dumps(envelope)


def chunk(key: str = CHUNK, **fields: Any) -> str:
    """Return what the feed of chunks sends: not an S3 event."""
    message = {
        "S3Bucket": "unidata-nexrad-level2-chunks", "Key": key, "SiteID": "KTLX", "DateTime": "2026-10-09T04:30:37",
        "VolumeID": 399, "ChunkID": 48, "ChunkType": "I", "L2Version": "V06", **fields,
    }  # fmt: skip
    return json.dumps(message)
