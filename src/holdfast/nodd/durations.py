"""Spans of time as people write them: 45s, 30m, 2h, 7d."""

import re

_AGE = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(text: str) -> float:
    """Return how many seconds a span has; raise ValueError if it is none."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return float(found[1]) * _SECONDS[found[2]]
