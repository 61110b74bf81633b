"""A process that is one worker with a random history: `python -m tests.compat.actor URL SEED STEPS JOB...`.

It prints what it was told that it did, as JSON.
"""

import sys

import msgspec

from tests.compat.support import actor

if __name__ == "__main__":
    url, seed, steps, *job_ids = sys.argv[1:]
    sys.stdout.buffer.write(msgspec.json.encode(actor(url, int(seed), int(steps), job_ids)))
