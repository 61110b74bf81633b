"""The rich ledger of the audit's tests: its journal is a trace with every kind of move."""

from tests.audit.conftest import rich_clock, rich_ledger  # noqa: F401 - fixtures
