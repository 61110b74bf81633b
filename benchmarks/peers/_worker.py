"""What every peer's idle worker shares; it imports little, as the worker's memory is measured."""

from __future__ import annotations

import os
import sys
import threading
import time

POLL_SECONDS = 0.005  # For the peers that can only poll.


def started() -> None:
    """Called by the handler: tells the sampler when it was entered, on the machine's one clock."""
    os.write(1, b"%d\n" % time.monotonic_ns())


def live_with_sampler() -> None:
    """End this process when the sampler closes the pipe, also by dying."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
