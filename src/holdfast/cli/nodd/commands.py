"""`holdfast nodd`: ingests and catalogues NOAA's open data."""

from holdfast.cli.command import group
from holdfast.cli.nodd.admit import admit, ignored, rejected
from holdfast.cli.nodd.check import check
from holdfast.cli.nodd.datasets import datasets, pause, publish, records, resume
from holdfast.cli.nodd.feed import backfill, doctor, drain_dlq, reconcile, subscribe
from holdfast.cli.nodd.run import run
from holdfast.cli.nodd.runs import runs

nodd = group("Ingest and catalogue NOAA's open data.", "nodd")

for _one in (
    check, reconcile, backfill, drain_dlq, subscribe, doctor, datasets, admit, run, runs, records, rejected, ignored,
    publish, pause, resume,
):  # fmt: skip
    nodd.subcommand()(_one)
