"""The statement of a whole turn of a worker: it completes jobs, then claims the next ones, and commits by itself.

It is made of `complete_jobs` and `claim_jobs`, so that what they check is written once.

Invariants: the jobs are completed before the first one is claimed, so that a claim holds no lock while an end waits for
one; the parameters of `complete_jobs` have the prefix `done_`, but for the time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.core.errors import invariant

TURN = "turn"
_PARAMETER = re.compile(r"(?<!:):(?!now\b)([a-z_]+)\b")
_FIRST = "0 * (SELECT count(*) FROM done)"  # the claim waits for the number of its jobs, and this for all ends


def turn_text(texts: Mapping[str, tuple[str, ...]]) -> str:
    """Return the statement: a row for each claimed job, or one of NULLs; the last column is the number of ends."""
    [complete], [claim] = texts["complete_jobs"], texts["claim_jobs"]
    ends, _ = _PARAMETER.sub(r":done_\1", complete).removeprefix("WITH ").rsplit("\nSELECT", 1)
    invariant(claim.count(":n::bigint") == 2, "a claim has two limits")
    claims, columns = (
        claim.replace(":n::bigint", f":n::bigint + {_FIRST}").removeprefix("WITH RECURSIVE").rsplit("\nSELECT", 1)
    )
    # The order of the claim is kept, because there is one row to join it with.
    return (
        f"WITH RECURSIVE {ends},{claims}\nSELECT w.*, d.n FROM (SELECT count(*) AS n FROM done) d"
        f" LEFT JOIN (SELECT{columns}) w ON true"
    )
