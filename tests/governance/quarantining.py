"""Jobs in quarantine, and grants for what is done to them: what the tests of quarantine and of switches share.

Invariants: everything is written through the ledger's own verbs; a role for the fork server waits for its gate, so that
those that race begin together, and writes one JSON line into its own file.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from holdfast.core.authority import Act, Wanted
from holdfast.core.commands import Fail, Quarantine
from holdfast.core.errors import HoldfastError
from holdfast.core.governed import Grant
from holdfast.core.machines import GrantState, JobState
from holdfast.core.records import Job
from holdfast.governance import release_runs, releases, switches
from holdfast.governance.approval import Identity, environment_of
from holdfast.governance.grants import approve, request
from holdfast.store import Declared, Lease, Store, Submission, open_store
from tests.support.trap import die

ANN: Any = {"operator": "ann", "reason": "the reader was mended"}
THROWER: Any = {"actor": "ann", "reason": "it eats disks"}
OPERATIONS = {name: Declared() for name in ("echo", "thumbnail")}


def submitted(store: Store[Any], *, n: int = 1, **fields: Any) -> list[int]:
    """Submit jobs and return their ids."""
    with store.transaction() as transaction:
        transaction.operations.declare(OPERATIONS)
        wanted = [Submission(**{"operation": "echo", "payload": "{}", **fields}) for _ in range(n)]
        return [admission.job_id for admission in transaction.jobs.submit(wanted, actor="client-1")]


def quarantined(
    store: Store[Any], code: str = "poison", *, n: int = 1, message: str = "bad", **fields: Any
) -> list[int]:
    """Submit jobs, put them into quarantine, and return their ids."""
    ids = submitted(store, n=n, **fields)
    with store.transaction() as transaction:
        rulings = [(job, Quarantine(code, message)) for job in transaction.jobs.get_many(ids)]
        transaction.rulings.rule(rulings, actor="operator-1", reason="looks wrong")
    return ids


def failed_once(store: Store[Any], code: str = "io_error", message: str = "the disk said no") -> None:
    """Claim the next due job, whatever it is, and fail it for good or as its budget says."""
    with store.transaction() as transaction:
        [attempt] = transaction.executions.claim(Lease(owner="worker-1", seconds=30))
        fail = Fail(attempt.execution.lease_token, code, message)
        transaction.executions.move([(attempt, fail)], actor="worker-1")


def job_of(store: Store[Any], job_id: int) -> Job:
    with store.reading() as reading:
        return reading.jobs.get(job_id)


def states(store: Store[Any], ids: list[int]) -> list[JobState]:
    with store.reading() as reading:
        return [job.state for job in reading.jobs.get_many(ids)]


def wanted(store: Store[Any], act: Act, target: str, executor: str = "ann") -> Wanted:
    with store.reading() as reading:
        return Wanted(act=act, target=target, environment=environment_of(reading), executor=executor)


def granted(store: Store[Any], act: Act, target: str, executor: str = "ann") -> int:
    """Request a grant as its executor, have it approved by another person, and return its id."""
    draft = request(
        store, wanted(store, act, target, executor), requester=executor, rollback_plan="quarantine it", reason="a test"
    )
    return approve(store, draft.grant_id, Identity(name="bob")).grant_id


def grants(store: Store[Any]) -> list[Grant]:
    """Return every grant, oldest first."""
    with store.reading() as reading:
        return reading.grants.page(limit=10_000)[::-1]


def grant_states(store: Store[Any]) -> list[tuple[str, str, GrantState]]:
    """Return the action, the target and the state of each grant."""
    return [(grant.action, grant.target, grant.state) for grant in grants(store)]


# ---------------------------------------------------------------------------------------------------------------------
# Roles


def _gone_through(gate: str) -> None:
    while not Path(gate).exists():
        time.sleep(0.0005)


def release_each(url: str, gate: str, answer_file: str, operator: str, work: list[tuple[int, int]]) -> None:
    """Release jobs one by one, each by a grant of its own; write which of them this process released."""
    with open_store(url) as store:
        _gone_through(gate)
        changed = [
            releases.release(store, job_id, operator=operator, reason="a race", grant_id=grant_id).changed
            for job_id, grant_id in work
        ]
    Path(answer_file).write_text(json.dumps(changed), encoding="utf-8")


def lift_each(url: str, gate: str, answer_file: str, operator: str, work: list[tuple[str, int]]) -> None:
    """Lift switches one by one, each by a grant of its own; write which of them this process lifted."""
    with open_store(url) as store:
        _gone_through(gate)
        changed = [
            switches.lift(store, name, actor=operator, reason="a race", grant_id=grant_id).changed
            for name, grant_id in work
        ]
    Path(answer_file).write_text(json.dumps(changed), encoding="utf-8")


def release_all(url: str, ids: list[int], grant_id: int, kill_at: int) -> None:
    """Release jobs together, and die at a statement."""
    with open_store(url) as store:
        left, run = kill_at, store.run

        def counted(connection: Any, name: str, params: Any) -> list[tuple[Any, ...]]:
            nonlocal left
            left -= 1
            if left < 0:
                die()
            return run(connection, name, params)

        store.run = counted  # type: ignore[method-assign]
        releases.release_many(store, ids, operator="ann", reason="a race", grant_id=grant_id)


def release_run(url: str, grant_id: int, kill_at: int) -> None:
    """Run the release of a grant in small batches, and die at a statement."""
    with open_store(url) as store:
        left, run = kill_at, store.run

        def counted(connection: Any, name: str, params: Any) -> list[tuple[Any, ...]]:
            nonlocal left
            left -= 1
            if left < 0:
                die()
            return run(connection, name, params)

        store.run = counted  # type: ignore[method-assign]
        release_runs.run_release(store, grant_id, operator="ann", reason="renewed", rate=2.0, batch_size=3)


def release_the_same(url: str, gate: str, answer_file: str, ids: list[int], grant_id: int) -> None:
    """Release jobs together, by a grant that another process uses too; write the result."""
    with open_store(url) as store:
        _gone_through(gate)
        try:
            releases.release_many(store, ids, operator="ann", reason="a race", grant_id=grant_id)
            said = "released"
        except HoldfastError as error:
            said = error.code
    Path(answer_file).write_text(json.dumps(said), encoding="utf-8")
