"""The common parts of the idle workers; it imports little, because the worker's memory is measured."""

from __future__ import annotations

import os
import sys
import threading
import time

POLL_SECONDS = 0.005  # For the peers that can only poll.


def started() -> None:
    """Print the time at which the handler was entered, for the sampler; both use the same monotonic clock."""
    os.write(1, b"%d\n" % time.monotonic_ns())


def live_with_sampler() -> None:
    """End this process when the sampler closes the pipe or ends."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
