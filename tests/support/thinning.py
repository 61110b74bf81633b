"""Which cases of long tables run on PostgreSQL in `make test`; `make prove` runs all of them.

Invariants: every case runs on SQLite; a test that runs on both databases and shows a clause runs on PostgreSQL with at
least its first case, except in the files of `TABLES`, which are tables of corruptions of one ledger; the tests of
folders that `FOLDERS` does not name, such as `store` and `enforcement`, and those that a named fault lists run whole.

On PostgreSQL a test takes four times the CPU that it takes on SQLite: each new session compiles the triggers again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
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
# Of each test of these folders that runs on PostgreSQL: the first case, and one in three of its other cases.
OTHERS = 3
# Of the tests of a file that show no clause: the first, and one in so many of the others. Most that a command does is
# done by other packages.
FOLDERS = {"audit": 2, "cli": 3, "compat": 2, "engine": 2, "governance": 2, "nodd": 2}
# Files with tests that a named fault lists: tests/faults/test_catalogue.py compares.
WHOLE = frozenset(
    {
        "audit/test_repair_left.py",
        "audit/test_repair_records.py",
        "audit/test_seals.py",
        "engine/test_committer.py",
        "engine/test_error_messages.py",
        "engine/test_execution.py",
        "governance/test_leases.py",
    }
)


def left_out(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the cases that do not run in `make test`."""
    ids = {item.nodeid for item in items}
    seen: Counter[str] = Counter()
    unclaimed: defaultdict[str, dict[str, int]] = defaultdict(dict)  # the tests of a file that show no clause, numbered
    for item in items:
        if "postgres" not in getattr(getattr(item, "callspec", None), "id", ""):
            continue
        folder, _, name = item.nodeid.partition("::")[0].removeprefix("tests/").partition("/")
        file, test = f"{folder}/{name}", item.nodeid.partition("[")[0]
        if file in TABLES:
            counted, every = file, TABLES[file]
        elif folder in FOLDERS and file not in WHOLE and item.nodeid.replace("postgres", "sqlite") in ids:
            counted, every = test, OTHERS
            if item.get_closest_marker("req") is None:
                numbers = unclaimed[file]
                if numbers.setdefault(test, len(numbers)) % FOLDERS[folder]:
                    yield item
                    continue
        else:
            continue
        if seen[counted] % every:
            yield item
        seen[counted] += 1
