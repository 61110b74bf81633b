"""A process that is one worker with a random history: `python -m tests.compat.actor URL SEED STEPS JOB...`.

It says that it is ready, waits for a line, and prints what it was told that it did, as JSON.
"""

import logging
import sys

import msgspec

from tests.compat.support import actor
from tests.support.children import wait_for_start

if __name__ == "__main__":
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # refusals are the point
    url, seed, steps, *job_ids = sys.argv[1:]
    sys.stdout.buffer.write(msgspec.json.encode(actor(url, int(seed), int(steps), job_ids, wait_for_start)))
