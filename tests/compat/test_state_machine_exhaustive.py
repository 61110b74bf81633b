"""Every status, every verb, every mode, by the holder and by another: all of it tried, and random sequences of it."""

from itertools import count, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.compat import (
    VALID_TRANSITIONS,
    IdempotentJobQueue,
    InvalidStateTransitionError,
    JobStatus,
    LeaseLostError,
    StateMachineValidator,
    StateTransitionRaceError,
)
from holdfast.core.errors import RefusedError
from tests.compat.actor import job
from tests.compat.support import JOBS, Database, everything, job_row, mark, put, rows

PENDING, RUNNING, SUCCEEDED, FAILED, QUARANTINED = JobStatus


def expected(source: JobStatus, target: JobStatus, *, holder: bool) -> type[Exception] | JobStatus:
    """Return what a strict call must do: raise, or leave the job in a status. Spelled out, not derived."""
    if source is target:
        return StateTransitionRaceError if source is RUNNING and not holder else source
    moves = {
        (PENDING, RUNNING), (PENDING, QUARANTINED), (RUNNING, SUCCEEDED), (RUNNING, FAILED), (FAILED, PENDING),
        (FAILED, QUARANTINED),
    }  # fmt: skip
    if (source, target) == (QUARANTINED, PENDING):
        return RefusedError
    if (source, target) not in moves:
        return InvalidStateTransitionError
    return target if holder or source is not RUNNING else LeaseLostError


@pytest.mark.req("G-02", "G-08", "G-13", "G-26", "K-64")
def test_state_machine_exhaustive(queue: IdempotentJobQueue, other: IdempotentJobQueue, database: Database) -> None:
    tried = 0
    for source, target, holder, idempotent in product(JobStatus, JobStatus, (True, False), (True, False)):
        tried += 1
        name = f"job-{tried}"
        put(queue, source, name)
        before = everything(database)
        actor = queue if holder else other
        outcome = expected(source, target, holder=holder)
        if isinstance(outcome, JobStatus) or idempotent:
            mark(actor, target, name, idempotent=idempotent)
        else:
            with pytest.raises(outcome) as raised:
                mark(actor, target, name, idempotent=False)
            assert type(raised.value) is outcome
        end = outcome if isinstance(outcome, JobStatus) else source
        assert job_row(database, name)["state"] == end
        assert (everything(database) == before) == (end is source)
    assert tried == 100


@pytest.mark.req("G-05", "G-02")
def test_all_pairs_through_the_validator() -> None:
    allowed = {(source, target) for source, targets in VALID_TRANSITIONS.items() for target in targets}
    assert len(allowed) == 12
    for source, target in product(JobStatus, JobStatus):
        if (source, target) in allowed:
            transition = StateMachineValidator().validate_transition("a", source, target)
            assert (transition.from_status, transition.to_status) == (source, target)
        else:
            with pytest.raises(InvalidStateTransitionError, match=f"^Invalid transition: {source} → {target}$"):
                StateMachineValidator().validate_transition("a", source, target)


_NAMES = count()


@pytest.mark.req("G-26", "G-08", "X-03", "X-06")
@settings(max_examples=25)
@given(steps=st.lists(st.tuples(st.sampled_from(JobStatus), st.booleans(), st.booleans()), max_size=12))
def test_random_sequences_end_where_the_table_says(
    database: Database,
    queue: IdempotentJobQueue,
    other: IdempotentJobQueue,
    steps: list[tuple[JobStatus, bool, bool]],
) -> None:
    workers = queue, other
    name = f"fuzz-{next(_NAMES)}"
    workers[0].enqueue(job(name))
    status, holder, version, attempts = PENDING, None, 1, 0
    for target, first, idempotent in steps:
        actor = workers[0] if first else workers[1]
        outcome = expected(status, target, holder=holder is actor)
        if isinstance(outcome, JobStatus) or idempotent:
            mark(actor, target, name, idempotent=idempotent)
        else:
            with pytest.raises(outcome):
                mark(actor, target, name, idempotent=False)
        if isinstance(outcome, JobStatus) and outcome is not status:
            status, version, attempts = outcome, version + 1, attempts + (outcome is RUNNING)
            holder = actor if outcome is RUNNING else None
        assert rows(
            database,
            f"SELECT state, version, attempts FROM {JOBS} WHERE key = '{name}'",
        ) == [(status, version, attempts)]
