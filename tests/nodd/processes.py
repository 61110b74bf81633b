"""The poller and the worker of the application as processes of their own, to be killed."""

from __future__ import annotations

import sys
import threading

from holdfast import Ledger, Worker
from holdfast.engine.retry import RetryPolicy, Strategy
from holdfast.nodd.dataset import shipped
from holdfast.nodd.feed import Feed
from holdfast.nodd.ingest import Settings, declare
from holdfast.nodd.objects import S3Source
from holdfast.nodd.queues import Queue


def main(role: str, url: str, endpoint: str, queue: str) -> None:
    """Be the poller or the worker until killed."""
    ledger = Ledger(url)
    if role == "poller":
        Feed(ledger.store, Queue(queue, endpoint=endpoint), shipped()).run(threading.Event(), wait_s=1)
        return
    source = S3Source(shipped().buckets(), endpoint=endpoint)
    retry = RetryPolicy(strategy=Strategy.IMMEDIATE)
    declare(ledger, Settings(datasets=shipped(), source=source, lease_s=1.0, not_yet_s=0.2, retry=retry))
    Worker(ledger, queues=["gfs"], concurrency=2, poll_s=0.2).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
