"""Which cases of long tables run on PostgreSQL in `make test`; `make prove` runs all of them.

Invariants: every case runs on SQLite; a test that runs on both databases runs on PostgreSQL with at least its first
case, except in the files of `TABLES`, which are tables of corruptions of one ledger; the tests of `store`, of `engine`
and of `enforcement`, where the databases differ most, and those that a named fault lists are not thinned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

# One in so many of all the cases of a file.
TABLES = {
    "audit/test_tampering.py": 4,
    "audit/test_repair.py": 8,
    "audit/test_check.py": 8,
    "cli/test_at.py": 4,
    "cli/test_explain.py": 2,
    "explain/test_explain.py": 2,
    "nodd/test_checking_corruptions.py": 4,
}
# The first case of each test of these folders, and one in three of its other cases.
FOLDERS = frozenset({"audit", "cli", "compat", "governance", "nodd"})
OTHERS = 3
# Files with tests that a named fault lists: tests/faults/test_catalogue.py compares.
WHOLE = frozenset(
    {
        "audit/test_repair_left.py",
        "audit/test_repair_records.py",
        "audit/test_seals.py",
        "governance/test_leases.py",
    }
)


def left_out(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the cases that do not run in `make test`."""
    ids = {item.nodeid for item in items}
    seen: Counter[str] = Counter()
    for item in items:
        if "postgres" not in getattr(getattr(item, "callspec", None), "id", ""):
            continue
        folder, _, name = item.nodeid.partition("::")[0].removeprefix("tests/").partition("/")
        file = f"{folder}/{name}"
        if file in TABLES:
            counted, every = file, TABLES[file]
        elif folder in FOLDERS and file not in WHOLE and item.nodeid.replace("postgres", "sqlite") in ids:
            counted, every = item.nodeid.partition("[")[0], OTHERS
        else:
            continue
        if seen[counted] % every:
            yield item
        seen[counted] += 1
