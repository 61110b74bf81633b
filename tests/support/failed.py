"""Print the tests that failed in the last run: `python -m tests.support.failed`, before `make again` runs them alone.

Invariants: more than `FAILED_MAX` failed tests are a defect, not a busy machine, and get no second run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

FAILED_MAX = 5
CACHE = Path(".pytest_cache/v/cache/lastfailed")


def main(cache: Path = CACHE) -> int:
    """Print the failed tests; return 1 when a second run would not be honest: none failed, or too many."""
    failed = sorted(json.loads(cache.read_text())) if cache.exists() else []
    print(f"{len(failed)} tests failed in the last run:", *failed, sep="\n  ")
    if 0 < len(failed) <= FAILED_MAX:
        return 0
    print(f"Only 1 to {FAILED_MAX} failed tests are run again. Run: make test", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
