"""Limits failed logins, by account and by address.

Invariants: a login is refused before its password is looked at, once an account or an address has failed too often;
what is remembered is bounded.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from holdfast.core.errors import GovernanceError

WINDOW_S = 900.0
ACCOUNT_MAX, ADDRESS_MAX = 5, 20
REMEMBERED_MAX = 10_000


class LoginLimiter:
    """Counts failed logins of the last quarter of an hour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def begin(self, account: str, address: str) -> None:
        """Count a login that begins; raise GovernanceError if the account or the address has failed too often.

        It is counted before the password is checked, so that concurrent logins cannot exceed the limit.
        """
        keys = (("account", account), ("address", address))
        with self._lock:
            for key, most in zip(keys, (ACCOUNT_MAX, ADDRESS_MAX), strict=True):
                failures = self._recent(key)
                if len(failures) >= most:
                    wait_s = max(1, int(failures[0] + WINDOW_S - self._clock()) + 1)
                    raise GovernanceError(
                        f"Too many failed logins. The next one is possible in {wait_s} s.",
                        code="too_many_logins",
                        next_step="Wait, then log in again.",
                        context={"by": key[0], "retry_after_s": wait_s},
                    )
            for key in keys:
                failures = self._recent(key)
                failures.append(self._clock())
                self._failures[key] = failures
                self._failures.move_to_end(key)
            while len(self._failures) > REMEMBERED_MAX:
                self._failures.popitem(last=False)

    def succeeded(self, account: str, address: str) -> None:
        """Forget the failures of an account that has logged in, and the login that was counted for the address."""
        with self._lock:
            self._failures.pop(("account", account), None)
            of_address = self._failures.get(("address", address))
            if of_address:
                of_address.pop()

    def _recent(self, key: tuple[str, str]) -> deque[float]:
        failures = self._failures.get(key, deque())
        while failures and failures[0] <= self._clock() - WINDOW_S:
            failures.popleft()
        return failures
