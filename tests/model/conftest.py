"""The rich ledger of the audit's tests: its journal is a trace with every kind of move."""

from tests.audit.conftest import (  # noqa: F401 - fixtures
    rich_clock,
    rich_ledger,
    rich_postgres,
    rich_sqlite,
)
