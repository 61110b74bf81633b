"""A new ledger of each kind, and one that has a history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.core.commands import Cancel, Complete, Fail
from holdfast.store import Declared, Lease, Submission, create_store
from tests.support.ledgers import Original

WORKER = "worker-1"
FAR = datetime(2099, 1, 31, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the machine reaches the command under test."""
    for name in ("HOLDFAST_URL", "HOLDFAST_DEBUG", "HOLDFAST_PAYLOAD_MAX_BYTES", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def ledger(ledger_url: str) -> str:
    """The URL of a new, empty ledger of each kind in turn."""
    return ledger_url


@pytest.fixture
def sqlite_ledger(new_sqlite_ledger: str) -> str:
    """The URL of a new, empty SQLite ledger."""
    return new_sqlite_ledger


def make(url: str) -> None:
    with create_store(url) as store:
        with store.transaction() as transaction:
            transaction.operations.declare({"echo": Declared(), "thumbnail": Declared()})
            for submission in (
                Submission(operation="thumbnail", payload='{"path":"a"}', client="web", key="a.png@64"),
                Submission(operation="echo", payload="[1]", client="web", key="b", max_attempts=2),
                Submission(operation="echo", payload="[2]", queue="slow", key="c"),
                Submission(operation="echo", payload="[3]", priority=-1),
                Submission(operation="noop", payload="{}", run_at=FAR),
            ):
                transaction.jobs.submit([submission], actor="tests")
            cancelled = transaction.jobs.get(3)
            transaction.rulings.rule([(cancelled, Cancel())], actor="tests", reason="not wanted")
        for _ in range(4):
            with store.transaction() as transaction:
                for attempt in transaction.executions.claim(Lease(owner=WORKER, seconds=3600)):
                    token = attempt.execution.lease_token
                    if attempt.job.job_id == 1:
                        transaction.executions.move([(attempt, Complete(token, '{"bytes":312}'))], actor=WORKER)
                    elif attempt.job.job_id == 2:
                        retry_at = datetime.now(UTC) - timedelta(seconds=60)
                        failure = Fail(token, "io_error", "the disk said no", retry_at=retry_at)
                        transaction.executions.move([(attempt, failure)], actor=WORKER)


HISTORY = Original(make, new_id=True)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def history(request: pytest.FixtureRequest) -> Iterator[str]:
    """A ledger with five jobs: succeeded, failed after a retry, cancelled, running, and one not due for long."""
    with HISTORY.each(request) as (url, _):
        yield url
