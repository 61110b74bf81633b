"""A thread beside a worker's loop that does one thing again and again: heartbeats, recovery, the keeper's duties.

Invariants: a turn that fails is logged, and the next turn comes after the same pause; a helper ends with its worker.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

from holdfast.core.errors import HoldfastError

logger = logging.getLogger("holdfast")

STOP_S = 5.0


class Helper(ABC):
    """A thread that takes a turn after every pause, until it is stopped."""

    name: str

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"holdfast-{self.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take no more turns; wait for the present one."""
        self._stopped.set()
        self._thread.join(timeout=STOP_S)

    @abstractmethod
    def pause_s(self) -> float:
        """Return how long to wait before the next turn."""

    @abstractmethod
    def turn(self) -> None:
        """Do the work once."""

    def _run(self) -> None:
        while not self._stopped.wait(self.pause_s()):
            try:
                self.turn()
            except HoldfastError as error:
                logger.warning("%s failed and is tried again in %g s: %s", self.name, self.pause_s(), error)
            except Exception:
                logger.exception("%s failed and is tried again in %g s", self.name, self.pause_s())
