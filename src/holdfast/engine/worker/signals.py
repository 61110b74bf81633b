"""What a handler may raise to decide what follows: snooze, retry later, cancel, or quarantine its job.

Invariants: a delay is a number of seconds from 0 to a year.
"""

from holdfast.core.errors import InputError
from holdfast.core.guarded import guarded

DELAY_S_MAX = 366 * 86_400


@guarded
def _delay(seconds: float) -> float:
    if not 0 <= seconds <= DELAY_S_MAX:
        raise InputError(f"seconds must be between 0 and {DELAY_S_MAX}")
    return float(seconds)


class Snooze(Exception):
    """Raised by a handler: not now; try again after `seconds`, at no cost to the job's budget."""

    @guarded
    def __init__(self, seconds: float, reason: str = "snoozed") -> None:
        super().__init__(reason)
        self.seconds = _delay(seconds)
        self.reason = reason


class RetryAfter(Exception):
    """Raised by a handler: this attempt failed; try again after `seconds`, if the budget allows.

    With `hold` no other job of the same rate starts before that: for an answer such as 429, which is meant for all. Of
    several rates that the job is under, it is the narrowest; a job without a rate holds nothing.
    """

    @guarded
    def __init__(self, seconds: float, reason: str = "retry later", *, hold: bool = False) -> None:
        super().__init__(reason)
        self.seconds = _delay(seconds)
        self.reason = reason
        self.hold = hold


class Cancel(Exception):
    """Raised by a handler: cancel this job."""

    @guarded
    def __init__(self, reason: str = "") -> None:
        super().__init__(*([reason] if reason else []))


class Quarantine(Exception):
    """Raised by a handler: no retry will help; take the job out of automatic flows for this reason."""

    @guarded
    def __init__(self, reason: str, message: str = "") -> None:
        if not reason.strip():
            raise InputError(
                "the reason must not be empty: it is the code of the quarantine",
                next_step="Give a reason such as parse_error.",
                context={"argument": "reason"},
            )
        super().__init__(message or reason)
        self.reason = reason
