# mypy: ignore-errors
# The library is installed in this worker's own environment only.
"""An idle huey worker: one thread that polls at a fixed pace."""

from __future__ import annotations

import sys

from huey import SqliteHuey

from _worker import POLL_SECONDS, live_with_sampler, started

live_with_sampler()
queue = SqliteHuey("bench", filename=sys.argv[1], fsync=True, timeout=60)
queue.task(name="handle")(lambda payload: started())
queue.create_consumer(workers=1, periodic=False, initial_delay=POLL_SECONDS, backoff=1, max_delay=POLL_SECONDS).run()
