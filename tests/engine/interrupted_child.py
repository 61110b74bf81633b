"""A process whose main thread is interrupted by a signal handler while it submits and waits.

Usage: python -m tests.engine.interrupted_child URL KIND ROUNDS SEED. KIND is the exception that the handler raises
(`keyboard`, `error` or `exit`), or `use`: the handler uses the ledger, each time in another way (USES). It prints one
line of JSON: what was acknowledged, how many interruptions there were, and what the handlers got. A process in
which a write does not return within PATIENCE_S prints the stack of every thread and ends with an error.
"""

from __future__ import annotations

import faulthandler
import json
import random
import signal
import sys
import threading
from collections import Counter
from contextlib import suppress
from types import FrameType

from holdfast import Ledger
from holdfast.core.errors import WaitTimeoutError

AGAIN_S = 3.0
PATIENCE_S = 20
OTHERS = 2
USES = ("submit", "transaction", "read", "wait")
KINDS: dict[str, type[BaseException]] = {"keyboard": KeyboardInterrupt, "error": TimeoutError, "exit": SystemExit}


class HandledError(Exception):
    """Ends a round in which the handler raised nothing."""


class Submitter:
    """Submits, waits a moment for some jobs, and notes what was acknowledged."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.stopping = False
        self.acknowledged: list[int] = []
        self.unknown: list[str] = []

    def submit(self) -> None:
        receipt = self._ledger.submit("noop", {})
        self.acknowledged.append(receipt.job_id)
        if receipt.job_id % 5 == 0:
            try:
                receipt.wait(0.001)
            except WaitTimeoutError:
                return

    def use(self, kind: str) -> None:
        """Use the ledger in a signal handler."""
        if kind == "submit":
            self.acknowledged.append(self._ledger.submit("noop", {}).job_id)
        elif kind == "transaction":
            with self._ledger.store.transaction() as transaction:
                transaction.jobs.get(self.acknowledged[0])
        elif kind == "read":
            self._ledger.job(self.acknowledged[0])
        else:
            with suppress(WaitTimeoutError):
                self._ledger.receipt(self.acknowledged[0]).wait(0.001)

    def run(self) -> None:
        """Submit until it is stopped."""
        while not self.stopping:
            try:
                self.submit()
            except Exception as error:  # noqa: BLE001 - what it is, is the test's to judge
                self.unknown.append(getattr(error, "code", repr(error)))


def main(url: str, kind: str, rounds: int, seed: int) -> dict[str, object]:
    interruption = KINDS.get(kind, HandledError)
    submitter = Submitter(Ledger(url))
    outcomes: dict[str, Counter[str]] = {use: Counter() for use in USES}
    handled = 0

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal handled
        if kind in KINDS:
            raise interruption
        use = USES[handled % len(USES)]
        try:
            submitter.use(use)
            outcomes[use]["ok"] += 1
        except BaseException as error:  # noqa: BLE001 - what it is, is the test's to judge
            outcomes[use][getattr(error, "code", repr(error))] += 1
        handled += 1

    signal.signal(signal.SIGALRM, interrupt)
    while len(submitter.acknowledged) < 5:
        submitter.submit()  # now all modules are imported: an import that is interrupted keeps Python's own locks
    threads = [threading.Thread(target=submitter.run, daemon=True) for _ in range(OTHERS)]
    for thread in threads:
        thread.start()
    chance = random.Random(seed)
    interrupted = 0
    while interrupted < rounds:
        faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
        try:
            # Again after a while, if need be: Python drops an exception that is raised in a destructor.
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00002, 0.004), AGAIN_S if kind in KINDS else 0)
            while kind in KINDS or handled == interrupted:
                submitter.submit()
            raise HandledError
        except interruption:
            signal.setitimer(signal.ITIMER_REAL, 0)
            # While the exception is handled it refers to all that was going on: none of it may still be held.
            interrupted += 1
            submitter.submit()
    submitter.stopping = True
    for thread in threads:
        thread.join(PATIENCE_S)
    submitter.submit()
    return {
        "interrupted": interrupted,
        "acknowledged": sorted(submitter.acknowledged),
        "outcomes": outcomes,
        "unknown": sorted(set(submitter.unknown)),
        "alive": sum(thread.is_alive() for thread in threads),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))), flush=True)
