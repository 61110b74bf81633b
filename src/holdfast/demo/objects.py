"""The objects of the demonstration: about two hundred, of six datasets, each small and valid in its format.

Invariants: the same time gives the same objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from holdfast.nodd import samples

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
    """An object to write: its dataset, key and bytes."""

    dataset: str
    key: str
    data: bytes

    @property
    def bucket(self) -> str:
        return BUCKETS[self.dataset]


def demo_objects(now: datetime) -> list[DemoObject]:
    """Return the objects of the demonstration for a time: 175 data files and 40 indexes, of six datasets."""
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
        records = samples.nexrad_records(2, last=kind == "E")
        data = samples.nexrad_volume("KTLX", at, records=1) if kind == "S" else records
        yield DemoObject("nexrad-chunks", key, data)
