"""How many requests the operators of one unit make: exact counts, on a server that counts them."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache

import h5py
import msgspec
import pytest

from holdfast.nodd import integrity, metadata, samples
from holdfast.nodd.dataset import Dataset, Example, shipped
from holdfast.nodd.fetched import PART_BYTES, SMALL_BYTES_MAX, FetchedObjects
from holdfast.nodd.integrity import Sidecar
from holdfast.nodd.notices import listed_notice
from holdfast.nodd.objects import RANGE_MAX, ObjectChangedError, S3Source
from holdfast.nodd.units import OperatorVerdict, unit_of
from tests.nodd.objects import MemorySource
from tests.nodd.s3 import LoopbackS3, Request, loopback_s3
from tests.nodd.test_items import EXAMPLES, specimen

MIB = 1 << 20
GFS = "noaa-gfs-bdp-pds"
REFERENCE = datetime(2026, 7, 26, tzinfo=UTC)


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackS3]:
    with loopback_s3() as found:
        yield found


@pytest.fixture
def s3(server: LoopbackS3) -> LoopbackS3:
    server.requests.clear()
    return server


@cache
def source_of(endpoint: str) -> S3Source:
    """Return the source of a server; each request is its own, and a client takes longer to make than a request."""
    return S3Source(shipped().buckets(), endpoint=endpoint)


def processed(
    s3: LoopbackS3, dataset: Dataset, example: Example, data: bytes, index: bytes | None = None, *, known: bool = True
) -> tuple[OperatorVerdict, OperatorVerdict, Sequence[Request]]:
    """Check an object and extract its metadata; return both verdicts and the requests."""
    bucket = example.bucket or next(iter(dataset.spec.buckets))
    etag = s3.put(bucket, example.key, data)
    written = datetime.fromisoformat(example.start)
    notice = listed_notice(shipped(), bucket, example.key, size=len(data), etag=etag, written_at=written)
    assert notice is not None
    notice = notice if known else msgspec.structs.replace(notice, size=None)
    unit, sidecars = unit_of(notice), []
    if index is not None:
        s3.put(bucket, f"{example.key}.idx", index)
        sidecars = [Sidecar(f"s3://{bucket}/{example.key}.idx", None, len(index))]
    sizes = {example.key: notice.size, f"{example.key}.idx": None if index is None else len(index)}
    source = FetchedObjects(source_of(s3.endpoint), dataset.spec.format, sizes)
    checked = integrity.check(unit, dataset, source, sidecars, written)
    learned = metadata.extract(unit, dataset, source, checked)
    return checked, learned, list(s3.requests)


def padded(message: bytes, size: int) -> bytes:
    """Return a GRIB2 message with a data section of zeros, so that it has a size."""
    body, rest = message[:-9], size - len(message)  # its data section is empty
    data = struct.pack(">IB", 5 + rest, 7) + bytes(rest) + b"7777"
    return body[:8] + struct.pack(">Q", size) + body[16:] + data


@pytest.mark.parametrize("dataset, example", EXAMPLES, ids=[f"{dataset.name}:{one.key}" for dataset, one in EXAMPLES])
@pytest.mark.parametrize("known", [True, False], ids=["size announced", "size not announced"])
def test_a_small_object_takes_one_request(s3: LoopbackS3, dataset: Dataset, example: Example, known: bool) -> None:
    _, _, requests = processed(s3, dataset, example, specimen(dataset, example), known=known)
    assert [one.status for one in requests] == [206]


@pytest.mark.parametrize(
    "sizes, indexed, requests",
    [
        ([500_000] * 2, False, 1),
        ([700_000] * 2, False, 2),  # the first 64 KiB, and all the rest from the end of the first message
        ([700_000] * 40, False, 3),  # the first 64 KiB, the end of the first message, the end of the object
        ([500_000] * 2, True, 2),
        ([700_000] * 40, True, 5),  # also the index, the message in the middle, and the last one to the end
        ([3_000_000] * 30, True, 5),
    ],
)
def test_grib2_takes_at_most_four_requests_and_one_for_its_index(
    s3: LoopbackS3, sizes: list[int], indexed: bool, requests: int
) -> None:
    messages = [padded(samples.grib2(REFERENCE, 3), size) for size in sizes]
    dataset, key = shipped()["gfs"], "gfs.20260726/00/atmos/gfs.t00z.pgrb2.0p25.f003"
    example = Example(key=key, start="2026-07-26T03:00:00Z")
    index = samples.grib2_index(messages, REFERENCE) if indexed else None
    checked, learned, made = processed(s3, dataset, example, b"".join(messages), index)
    assert (checked.status, checked.issues, learned.status) == ("ok", (), "ok")
    assert len(made) == requests
    assert sum(one.path.endswith(".idx") for one in made) == indexed
    assert ("index_offsets" in checked.checks_run) == indexed


@pytest.mark.parametrize("mib, requests", [(0.9, 1), (7.9, 1), (15, 2), (24, 3)])
def test_a_nexrad_volume_is_read_in_ranges_of_eight_mib(s3: LoopbackS3, mib: float, requests: int) -> None:
    dataset = shipped()["nexrad-l2"]
    [example] = [one for one in dataset.spec.examples if one.key.endswith("_V06")][:1]
    records = int(mib * 10)
    head = samples.nexrad_volume(example.key.rpartition("/")[2][:4], datetime.fromisoformat(example.start), 1)[:24]
    body = b"BZh9" + bytes(MIB // 10 - 8)
    data = head + b"".join(
        struct.pack(">i", -len(body) if number == records - 1 else len(body)) + body for number in range(records)
    )
    checked, learned, made = processed(s3, dataset, example, data)
    assert (checked.status, checked.data["structure"]["records"], learned.status) == ("ok", records, "ok")
    assert len(made) == requests
    assert max(_length(one) for one in made) <= RANGE_MAX


def _length(request: Request) -> int:
    start, _, end = (request.range or "").removeprefix("bytes=").partition("-")
    return int(end) - int(start) + 1


def test_fetched_bytes_are_not_requested_again(s3: LoopbackS3) -> None:
    data = bytes(range(256)) * (40 * MIB // 256)
    s3.put(GFS, "k", data)
    source = FetchedObjects(S3Source(frozenset({GFS}), endpoint=s3.endpoint), "grib2", {"k": len(data)})
    reads = [
        (0, 100),
        (5, PART_BYTES),
        (20 * MIB, 4),
        (20 * MIB + 100, 50),
        (len(data) - 4, 4),
        (len(data) - 9999, 9999),
    ]
    for start, length in [*reads, *reads]:
        assert source.read(GFS, "k", start, length) == data[start : start + length]
    # One for the 5 bytes that the second read needs after the first 64 KiB.
    assert len(s3.requests) == 4
    assert sum(_length(one) for one in s3.requests) == 4 * PART_BYTES


def test_a_read_returns_what_the_object_has_there() -> None:
    source = MemorySource()
    data = bytes(range(256)) * (3 * MIB // 256)
    etag = source.put(GFS, "k", data)
    for form in ("grib2", "nexrad-l2"):
        read = FetchedObjects(source, form, {"k": 2 * SMALL_BYTES_MAX})
        for start in (0, PART_BYTES - 1, MIB, len(data) - PART_BYTES - 1, len(data) - 1, len(data), len(data) + 5):
            for length in (1, 300, PART_BYTES, 2 * MIB):
                assert read.read(GFS, "k", start, length, etag=etag) == data[start : start + length]


def test_another_write_between_two_reads_is_found(s3: LoopbackS3) -> None:
    first, second = bytes(20 * MIB), b"x" * (20 * MIB)
    etag = s3.put(GFS, "k", first)
    source = FetchedObjects(S3Source(frozenset({GFS}), endpoint=s3.endpoint), "grib2", {"k": len(first)})
    assert source.read(GFS, "k", 0, 4, etag=etag) == bytes(4)
    s3.put(GFS, "k", second)
    with pytest.raises(ObjectChangedError):
        source.read(GFS, "k", 10 * MIB, 4, etag=etag)
    again = FetchedObjects(S3Source(frozenset({GFS}), endpoint=s3.endpoint), "grib2", {"k": len(first)})
    with pytest.raises(ObjectChangedError):
        again.read(GFS, "k", 0, 4, etag=etag)


def test_an_object_that_does_not_exist_is_looked_for_once(s3: LoopbackS3) -> None:
    source = FetchedObjects(S3Source(frozenset({GFS}), endpoint=s3.endpoint), "grib2", {})
    assert source.head(GFS, "gone") is None
    assert source.read(GFS, "gone", 0, 10) == b""
    assert len(s3.requests) == 1


def large_netcdf4(parts: int, *, spread: bool) -> bytes:
    """Return a file with 9 MiB of data in each part, and its extent behind them; `spread` puts attributes between."""
    held = io.BytesIO()
    with h5py.File(held, "w") as file:
        file.attrs["time_coverage_start"] = "2026-11-14T00:00:21.0Z"
        for number in range(parts):
            file.create_dataset(f"data{number}", data=memoryview(bytes(9 * MIB)))
            if spread:
                file.attrs[f"note{number}"] = "x" * 5000  # too long for the heap of the one before
        extent = file.create_dataset("geospatial_lat_lon_extent", data=0.0)
        for side in ("westbound_longitude", "southbound_latitude", "eastbound_longitude", "northbound_latitude"):
            extent.attrs[f"geospatial_{side}"] = -9.0 if side[0] in "ws" else 9.0
    return held.getvalue()


@pytest.mark.parametrize("spread, status", [(False, "ok"), (True, "suspect")], ids=["together", "spread"])
def test_a_large_netcdf_file_takes_at_most_four_requests(s3: LoopbackS3, spread: bool, status: str) -> None:
    dataset = shipped()["goes-abi"]
    example = next(one for one in dataset.spec.examples if "CMIPF" in one.key)
    data = large_netcdf4(6, spread=spread)
    assert len(data) > 50 * MIB
    checked, learned, requests = processed(s3, dataset, example, data)
    assert (checked.status, learned.status) == ("ok", status)
    assert len(requests) <= 4
    assert ("missing_geolocation" in learned.issues) is spread
