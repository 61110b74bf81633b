# mypy: ignore-errors
# The library is installed in this worker's own environment only.
"""An idle litequeue worker: a loop that polls at a fixed pace."""

from __future__ import annotations

import sys
import time

from litequeue import LiteQueue

from _worker import POLL_SECONDS, live_with_sampler, started

live_with_sampler()
queue = LiteQueue(sys.argv[1], timeout=60)
queue.conn.execute("PRAGMA synchronous=FULL")
while True:
    message = queue.pop()
    if message is None:
        time.sleep(POLL_SECONDS)
        continue
    started()
    queue.done(message.message_id, claim_id=message.claim_id)
