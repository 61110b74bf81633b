"""Durations as text: 45s, 30m, 2h, 7d."""

import re

_AGE = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(text: str) -> float:
    """Return a duration in seconds; raise ValueError if the text is not one."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return float(found[1]) * _SECONDS[found[2]]
