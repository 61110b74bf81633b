"""What limits cost: nothing while a ledger has none, and no more with many parked jobs than with few."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.commands import Complete
from holdfast.core.limits import Limit
from holdfast.core.records import time_text
from holdfast.store import Submission
from holdfast.store.statements import statements
from tests.store.verbs import Verbs

PARKED, PARKED_SLOW = 20_000, 100_000
OF_LIMITS = re.compile(r"holdfast_slots|holdfast_buckets|limit_key")


def recorded(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the statements that the store runs from here on."""
    names: list[str] = []
    run = verbs.store.run

    def noting(connection: Any, name: str, params: Any) -> list[tuple[Any, ...]]:
        names.append(name)
        return run(connection, name, params)

    monkeypatch.setattr(verbs.store, "run", noting)
    return names


def work(verbs: Verbs, n: int) -> None:
    verbs.submit_all([Submission(operation="echo", payload="{}") for _ in range(n)])
    found = verbs.claim(n)
    assert len(found) == n
    verbs.work_all([(attempt, Complete(attempt.token, "1")) for attempt in found])


def test_a_ledger_without_limits_runs_no_statement_of_theirs(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs.store.limited = None  # as in a new process
    names = recorded(verbs, monkeypatch)
    work(verbs, 10)
    with verbs.store.reading() as reading:
        reading.jobs.outlook(["default"])
    own = ["last_call", "insert_jobs", "claim_jobs"]
    own += ["claimed_jobs"] if verbs.store.dialect == "sqlite" else []
    own += [] if verbs.store.dialect == "sqlite" else ["complete_jobs"]  # SQLite completes without a name
    plain = [name for name in names if name not in ("get_meta", "known_operations")]
    assert [name for name in plain if name != "last_call"] == [*own[1:], "next_due"]
    texts = statements(verbs.store.dialect)
    assert not [name for name in plain if any(OF_LIMITS.search(text) for text in texts[name]) if name != "rule_jobs"]


def test_a_limited_claim_is_few_statements(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    with verbs.store.transaction() as transaction:
        transaction.limits.set("key:echo", Limit(running=1, path="who"), actor="o", reason="r")
    verbs.submit_all([Submission(operation="echo", payload=f'{{"who":{n}}}') for n in range(20)])
    names = recorded(verbs, monkeypatch)
    assert len(verbs.claim(10)) == 10
    own = ["lock_limits", "limited_jobs", "used_slots", "take_slots", "claim_these"]
    assert names == own + (["claimed_jobs"] if verbs.store.dialect == "sqlite" else [])
    assert sum(len(statements(verbs.store.dialect)[name]) for name in own) == len(own)


def test_limited_jobs_have_the_journal_rows_of_others(verbs: Verbs) -> None:
    def rows() -> list[tuple[Any, ...]]:
        with verbs.store.reading() as reading:
            return reading.execute(
                "SELECT event, source, target, count(*) FROM holdfast_journal WHERE machine = 'JOB'"
                " GROUP BY event, source, target ORDER BY 1"
            )

    work(verbs, 5)
    plain = rows()
    with verbs.store.transaction() as transaction:
        transaction.limits.set("queue:default", Limit(running=5), actor="o", reason="r")
    work(verbs, 5)
    assert [(*kind, 2 * n) for *kind, n in plain] == [tuple(row) for row in rows()]


# -- with many parked jobs --------------------------------------------------------------------------------------------


def park_many(verbs: Verbs, keys: int, parked: int) -> None:
    """Write parked jobs as one set each into calls and jobs, with the columns of a submitted job."""
    now, last = time_text(verbs.clock()), 999 + parked
    series, source = "", f"generate_series(1000, {last}) n (i)"
    if verbs.store.dialect == "sqlite":
        series = f"WITH RECURSIVE n (i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < {last}) "
        source = "n"
    with verbs.store.transaction() as transaction:
        transaction.execute(
            f"{series}INSERT INTO holdfast_calls (job_id, operation_version, client, max_attempts, replay_attempts,"
            f" payload, digest, created_at) SELECT i, '1.0.0', 'local', 1, 1, '{{}}', 'd', '{now}' FROM {source}"
        )
        transaction.execute(
            f"{series}INSERT INTO holdfast_jobs (job_id, operation, queue, priority, run_at, due_at, state, version,"
            " updated_at, event, actor, move_id, parked, limit_key)"
            f" SELECT i, 'echo', 'default', i % 3, '{now}', '{now}', 'pending', 1, '{now}', 'submit', 'local', 'm',"
            f" 'limit', 'key:echo=' || (i % {keys}) FROM {source}"
        )


def _sqlite_steps(verbs: Verbs, name: str, params: dict[str, object]) -> int:
    [sql] = statements("sqlite")[name]
    ran = 0

    def count() -> int:
        nonlocal ran
        ran += 1
        return 0

    with verbs.store.transaction() as transaction:
        connection = transaction.connection
        connection.set_progress_handler(count, 1)
        connection.execute(sql, params).fetchall()
        connection.set_progress_handler(None, 0)
    return ran


def _postgres_rows(verbs: Verbs, name: str, params: dict[str, object]) -> int:
    [sql] = verbs.store._statements[name]  # type: ignore[attr-defined]
    with verbs.store.transaction() as transaction:
        transaction.execute("ANALYZE holdfast_jobs")
        rows = transaction.connection.execute(f"EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF) {sql}", params).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert "Seq Scan on holdfast_jobs" not in plan, plan
    return max(int(n) for n in re.findall(r"rows=(\d+)", plan))


READS: dict[str, Callable[[Verbs, str, dict[str, object]], int]] = {"sqlite": _sqlite_steps, "postgres": _postgres_rows}


@pytest.mark.parametrize("parked", [PARKED, pytest.param(PARKED_SLOW, marks=pytest.mark.slow)])
@pytest.mark.parametrize("one_key", [True, False])
def test_parked_jobs_cost_a_claim_nothing(verbs: Verbs, one_key: bool, parked: int) -> None:
    dialect, keys = verbs.store.dialect, 1 if one_key else parked
    park_many(verbs, keys, parked)
    claim = {
        "state": "running", "status": "IN_PROGRESS", "edges": 1, "event": "claim", "owner": "w", "lease_s": 1.0,
        "queues": '["default"]', "leases": "{}", "begins": True, "n": 10, "move_id": "n", "token": 1, "payload_max": 9,
        "durable": True,
    }  # fmt: skip
    now = verbs.clock() if dialect == "postgres" else time_text(verbs.clock())
    due = {"queues": '["default"]', "n": 100, "now": now}
    assert READS[dialect](verbs, "claim_jobs", claim | {"now": now, "expires": now, "started": now}) < 500
    assert READS[dialect](verbs, "limited_jobs", due) < 500
    next_one = {"rows": f'[["key:echo={5 % keys}", 1]]', "most": 1}
    assert READS[dialect](verbs, "admit_parked", next_one) < 2000
    with verbs.store.reading() as reading:
        [[free]] = reading.execute("SELECT count(*) FROM holdfast_jobs WHERE parked IS NULL")
    assert free == 1  # the one that was let go
