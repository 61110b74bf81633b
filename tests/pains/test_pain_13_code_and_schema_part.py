"""Pain 13: half of a fleet is upgraded, and either half breaks the other."""

from __future__ import annotations

import pytest

from holdfast import Ledger
from holdfast.core.errors import SchemaVersionError
from holdfast.store import connect, migrations


def test_newer_code_waits_for_the_migration_and_older_code_is_kept_out(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger(empty_url) as ledger:
        kept = ledger.submit("noop", {})
    shipped = migrations.migrations
    further = migrations.Migration(len(shipped("sqlite")) + 1, "more", "CREATE TABLE holdfast_more (n integer);\n")
    with monkeypatch.context() as upgraded:
        upgraded.setattr(migrations, "migrations", lambda dialect: [*shipped(dialect), further])
        with pytest.raises(SchemaVersionError) as newer, Ledger(empty_url) as ledger:
            ledger.submit("noop", {})
        assert newer.value.hint == "Run `holdfast migrate`."
        with connect(empty_url) as store:
            with store.reading() as reading:
                planned = migrations.plan(store, reading.connection)
            assert planned.statements[0] == "CREATE TABLE holdfast_more (n integer)"  # seen before it is done
            assert migrations.migrate(store) == ("more",)
        with Ledger(empty_url) as ledger:
            assert ledger.job(kept.job_id).job_id == kept.job_id
    with pytest.raises(SchemaVersionError) as older, Ledger(empty_url) as ledger:
        ledger.submit("noop", {})
    assert older.value.hint == "Upgrade Holdfast on this machine."
