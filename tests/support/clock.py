"""A clock that moves only when a test says so.

Invariants: it answers aware times in UTC; two readings without an `advance` between them are equal.
"""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 14, 9, 26, 53, 589793, tzinfo=UTC)


class VirtualClock:
    """Give it to `create_store(url, clock)`: leases, due times and the journal then follow it on both databases."""

    def __init__(self, start: datetime = START) -> None:
        self.time = start

    def __call__(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> datetime:
        """Move the clock, backwards if the seconds are negative, and return the new time."""
        self.time += timedelta(seconds=seconds)
        return self.time

    def after(self, seconds: float) -> datetime:
        """Return a time from now, without moving the clock."""
        return self.time + timedelta(seconds=seconds)
