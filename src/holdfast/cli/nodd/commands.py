"""`holdfast nodd`: NOAA's open data: datasets, admission, workers, records and the static catalogue."""

from holdfast.cli.command import group
from holdfast.cli.nodd.admit import admit, rejected
from holdfast.cli.nodd.check import check
from holdfast.cli.nodd.datasets import datasets, pause, publish, records, resume
from holdfast.cli.nodd.feed import backfill, doctor, drain_dlq, reconcile, subscribe
from holdfast.cli.nodd.run import run

nodd = group("NOAA's open data, catalogued exactly once.", "nodd")

for _one in (
    check, reconcile, backfill, drain_dlq, subscribe, doctor, datasets, admit, run, records, rejected, publish, pause,
    resume,
):  # fmt: skip
    nodd.command()(_one)
