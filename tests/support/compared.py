"""Opens PostgreSQL ledgers faster in tests: the enforcement of equal catalogues is compared once.

Opening a ledger reads back its triggers, functions, views and indexes, which takes 20 ms of CPU. Copies of one
ledger have equal catalogues, and tests open each several times.

Invariants: a catalogue counts as equal only if it has the same rows, written by the same transactions; only a catalogue
without differences is remembered; the tests that are about enforcement (`ALWAYS`) compare always.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from holdfast.store.migrations import Rules
from holdfast.store.postgres.store import PostgresStore

# Every change to one of these makes a new version of its row, with the id of the transaction that wrote it.
FINGERPRINT = """
SELECT md5(string_agg(f, ',' ORDER BY f)) FROM (
  SELECT 't' || t.oid || ':' || t.xmin AS f FROM pg_trigger t
  UNION ALL SELECT 'p' || p.oid || ':' || p.xmin FROM pg_proc p WHERE p.oid >= 16384
  UNION ALL SELECT 'c' || c.oid || ':' || c.xmin FROM pg_class c WHERE c.oid >= 16384
  UNION ALL SELECT 'i' || i.indexrelid || ':' || i.xmin FROM pg_index i WHERE i.indexrelid >= 16384
  UNION ALL SELECT 'r' || r.oid || ':' || r.xmin FROM pg_rewrite r WHERE r.oid >= 16384
  UNION ALL SELECT 'd' || d.objoid || ':' || d.xmin FROM pg_description d WHERE d.objoid >= 16384
  UNION ALL SELECT 'h' || h.inhrelid || ':' || h.xmin FROM pg_inherits h
  UNION ALL SELECT 'n' || n.oid || ':' || n.xmin FROM pg_namespace n WHERE n.oid = to_regnamespace(quote_ident(%s))
) facts"""
ALWAYS = ("tests/enforcement/", "tests/store/", "tests/engine/test_partitions.py")

_without_differences: set[tuple[str, str, Rules]] = set()


@contextmanager
def once(file: str) -> Iterator[None]:
    """Compare equal catalogues once in a block, unless the tests of this file are about enforcement."""
    if file.startswith(ALWAYS):
        yield
        return
    compare = PostgresStore.enforcement_drift

    def enforcement_drift(self: PostgresStore, connection: Any, rules: Rules) -> list[str]:
        [[fingerprint]] = connection.execute(FINGERPRINT, (self.schema,)).fetchall()
        catalogue = fingerprint, self.schema, rules
        if catalogue in _without_differences:
            return []
        found = compare(self, connection, rules)
        if not found:
            _without_differences.add(catalogue)
        return found

    with mock.patch.object(PostgresStore, "enforcement_drift", enforcement_drift):
        yield
