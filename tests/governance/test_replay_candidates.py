"""Candidates of a replay: the boundaries of a selection, one reason for each job that is passed over, and keeping."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.candidates import packed, unpacked
from holdfast.core.commands import Cancel, Replay
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.core.selection import Attempts, Limits, ReplayMode, Window, candidates_hash
from holdfast.governance.replay import candidates as replay_candidates
from holdfast.governance.replay import replay
from holdfast.governance.replay.candidates import ReplayRules, is_lower
from holdfast.governance.replay.guards import policy_of
from holdfast.store import Store
from holdfast.testing import START, VirtualClock
from tests.governance.replays import claim, fail, fill, selection, work


def ids(store: Store[Any], **settings: Any) -> list[int]:
    return replay.select(store, selection(store, **settings)).job_ids


@pytest.mark.req("K-54", "K-64")
def test_a_selection_finds_exactly_what_is_within_its_bounds(store: Store[Any], clock: VirtualClock) -> None:
    one = fill(store, 3, code="io_error")
    clock.advance(60)
    two = fill(store, 2, queue="hrrr", code="schema_mismatch")
    clock.advance(60)
    three = fill(store, 1, prefix="late")
    assert ids(store) == one + three
    assert ids(store, queues=("hrrr",)) == two
    assert ids(store, queues=(), filters={"queues_exclude": ("hrrr",)}) == one + three
    assert ids(store, queues=("hrrr", "goes-abi")) == one + two + three
    assert ids(store, queues=("gfs",)) == []
    assert ids(store, queues=(), filters={"error_codes": ("schema_mismatch",)}) == two
    assert ids(store, filters={"operations": ("other",)}) == []
    # A window takes its start in and leaves its end out.
    begin = START
    for start, end, found in [
        (begin, begin + timedelta(seconds=120), one),
        (begin, begin + timedelta(seconds=120, microseconds=1), one + three),
        (begin + timedelta(microseconds=1), None, three),
        (begin + timedelta(seconds=120), None, three),
        (begin + timedelta(seconds=120, microseconds=1), None, []),
    ]:
        assert ids(store, filters={"created_at": Window(start, end)}) == found
    assert ids(store, filters={"attempts": Attempts(max=0)}) == []
    assert ids(store, filters={"attempts": Attempts(min=1, max=1)}) == one + three
    assert ids(store, filters={"attempts": Attempts(min=2)}) == []
    assert ids(store, filters={"jobs": (str(one[1]), "lategoes-abi0")}) == [one[1], *three]


@pytest.mark.req("K-54")
def test_limits_take_the_lowest_ids_and_say_that_there_are_more(store: Store[Any]) -> None:
    made = fill(store, 7)
    for limits, n, more in [
        (Limits(), 7, False),
        (Limits(max_records=7), 7, False),
        (Limits(max_records=6), 6, True),
        (Limits(batch_size=2, max_batches=2), 4, True),
        (Limits(batch_size=2, max_batches=2, max_records=3), 3, True),
        (Limits(max_batches=1), 7, False),
    ]:
        found = replay.select(store, selection(store), limits=limits, examples=2)
        assert (found.job_ids, found.more, found.total) == (made[:n], more, n)
        assert found.hash == candidates_hash(made[:n])
        assert replay.select(store, selection(store, limits=limits)).hash == found.hash
        assert [job.job_id for job in found.examples] == made[:2]
        assert (found.by_queue, found.by_error, found.versions) == ({"goes-abi": n}, {"io_error": n}, [3] * n)


@pytest.mark.req("K-50", "K-54")
def test_candidates_come_in_order_page_by_page_over_all_states(
    store: Store[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_candidates, "PAGE", 2)
    made = [
        job_id
        for number in range(5)
        for permanent in (False, True)
        for job_id in fill(store, 1, permanent=permanent, prefix=f"{number}{permanent}")
    ]
    both: Any = {"filters": {"status": (JobState.QUARANTINED, JobState.FAILED)}}
    found = replay.select(store, selection(store, **both))
    assert (found.job_ids, found.skipped) == (made[::2], {"quarantined": 5})
    replaced = selection(store, mode=ReplayMode.REPAIR_AND_REPLACE, **both)
    found = replay.select(store, replaced)
    assert (found.job_ids, found.skipped) == (made[1::2], {"not_replaceable": 5})


@pytest.mark.req("K-14", "X-06", "K-55", "K-58")
def test_every_job_that_is_passed_over_is_counted_under_one_reason(store: Store[Any]) -> None:
    good = fill(store, 2)
    fill(store, 3, prefix="spent", max_attempts=1, replay_attempts=0)  # it fails once, and has no attempt left
    fill(store, 1, prefix="gone", permanent=True)
    succeeds = fill(store, 1, prefix="ok")
    with store.transaction() as transaction:
        transaction.rulings.rule([(transaction.jobs.get(succeeds[0]), replay_command(store))], actor="a")
    assert work(store) == 1
    waits = fill(store, 1, prefix="waits")
    with store.transaction() as transaction:
        transaction.rulings.rule([(transaction.jobs.get(waits[0]), replay_command(store))], actor="a")
    every = replay.select(store, selection(store, filters={"status": tuple(JobState)}))
    assert every.job_ids == good
    assert every.skipped == {"attempts_exceeded": 3, "quarantined": 1, "replay_hit": 1, "state_changed": 1}


def replay_command(store: Store[Any]) -> object:
    return Replay("test", store.now())


@pytest.mark.req("K-51")
def test_cancelled_and_slimmed_jobs_are_not_replaced(store: Store[Any], clock: VirtualClock) -> None:
    kept_ids = fill(store, 2, permanent=True)
    slim = fill(store, 1, permanent=True, prefix="slim")
    [cancelled] = fill(store, 1, prefix="cancelled")
    clock.advance(1)
    with store.transaction() as transaction:
        transaction.rulings.rule([(transaction.jobs.get(cancelled), Cancel())], actor="a")
        with transaction.maintenance.open(who="gc", why="a test"):
            assert transaction.retention.slim(slim, before=store.now()) == slim
    chosen = selection(
        store, mode=ReplayMode.REPAIR_AND_REPLACE, filters={"status": (JobState.QUARANTINED, JobState.SUCCEEDED)}
    )
    found = replay.select(store, chosen)
    assert (found.job_ids, found.skipped) == (kept_ids, {"cancelled": 1, "slimmed": 1})


# ---------------------------------------------------------------------------------------------------------------------
# The rules of replay, as a table


def job(**settings: Any) -> Job:
    base = Job(
        job_id=1, operation="op", operation_version="1.2.0", client="c", key=None, queue="goes-abi",
        state=JobState.FAILED, version=3, attempts=5, excused=0, max_attempts=5, replay_attempts=5, priority=0,
        run_at=START, payload="{}", digest="", result=None, last_attempt_at=None, last_error_code="io_error",
        last_error_message=None, quarantine_code=None, replay_reason=None, replaces=None, created_at=START,
        updated_at=START,
    )  # fmt: skip
    return msgspec.structs.replace(base, **settings)


SUCCEEDED, QUARANTINED = {"state": JobState.SUCCEEDED}, {"state": JobState.QUARANTINED}
REPLAY, REPLACE = ReplayMode.FAILED_ONLY, ReplayMode.REPAIR_AND_REPLACE


@pytest.mark.req("K-14", "K-16", "K-51", "K-55", "K-58")
@pytest.mark.parametrize(
    "mode, settings, policy, declared, reason",
    [
        (REPLAY, {}, {}, "1.2.0", None),
        (REPLAY, {"attempts": 9}, {}, "1.2.0", None),
        (REPLAY, {"attempts": 10}, {}, "1.2.0", "attempts_exceeded"),
        (REPLAY, {"attempts": 11, "excused": 2}, {}, "1.2.0", None),
        (REPLAY, {"attempts": 10, **QUARANTINED}, {}, "1.2.0", "attempts_exceeded"),
        (REPLAY, QUARANTINED, {}, "1.2.0", "quarantined"),
        (REPLAY, SUCCEEDED, {}, "1.2.0", "replay_hit"),
        (REPLAY, {"state": JobState.PENDING}, {}, "1.2.0", "state_changed"),
        (REPLAY, {"state": JobState.RUNNING}, {}, "1.2.0", "state_changed"),
        (REPLAY, {}, {}, "1.1.9", "version_downgrade"),
        (REPLAY, {}, {"allow_downgrade": True}, "1.1.9", None),
        (REPLAY, {}, {}, "1.10.0", None),
        (REPLAY, {}, {"never_errors": ("io_error",)}, "1.2.0", "policy"),
        (REPLAY, {}, {"never_queues": ("goes-abi",)}, "1.2.0", "policy"),
        (REPLAY, {}, {"never_queues": ("hrrr",)}, "1.2.0", None),
        (REPLACE, {}, {}, "1.2.0", "not_replaceable"),
        (REPLACE, QUARANTINED, {}, "1.2.0", None),
        (REPLACE, {"attempts": 10, **QUARANTINED}, {}, "1.2.0", None),
        (REPLACE, {"quarantine_code": "cancelled", **QUARANTINED}, {}, "1.2.0", "cancelled"),
        (REPLACE, {"payload": None, **QUARANTINED}, {}, "1.2.0", "slimmed"),
        (REPLACE, SUCCEEDED, {}, "1.2.0", "replay_hit"),
        (REPLACE, SUCCEEDED, {"allow_same_version": True}, "1.2.0", None),
        (REPLACE, SUCCEEDED, {}, "1.3.0", None),
        (REPLACE, SUCCEEDED, {}, "1.1.0", "version_downgrade"),
        (REPLACE, {"state": JobState.RUNNING}, {}, "1.2.0", "state_changed"),
        (REPLACE, QUARANTINED, {}, None, "not_in_force"),
        (REPLAY, {}, {}, None, None),
    ],
)
def test_one_job_has_one_verdict(
    mode: ReplayMode, settings: dict[str, Any], policy: dict[str, Any], declared: str | None, reason: str | None
) -> None:
    rules = ReplayRules(mode, msgspec.structs.replace(policy_of("dev"), **policy), {"op": declared}.get)
    assert rules.skip(job(**settings)) == reason


def test_a_job_is_replaced_once() -> None:
    rules = ReplayRules(REPLACE, policy_of("dev"), {"op": "1.2.0"}.get)
    assert rules.skip(job(**QUARANTINED), replaced=True) == "already_replaced"
    assert rules.skip(job(**QUARANTINED), replaced=False) is None


@pytest.mark.parametrize(
    "version, than, lower",
    [("1.0.0", "1.0.1", True), ("1.0.0", "1.0.0", False), ("2.0.0", "1.9.9", False), ("1.9.0", "1.10.0", True),
     ("one", "1.0.0", False), ("1.0.0", "two", False)],
)  # fmt: skip
def test_versions_are_compared_by_their_numbers(version: str, than: str, lower: bool) -> None:
    assert is_lower(version, than) is lower


# ---------------------------------------------------------------------------------------------------------------------
# Keeping


@given(st.dictionaries(st.integers(1, 10**7), st.integers(1, 40)))
def test_candidates_are_kept_and_read_back(versions: dict[int, int]) -> None:
    job_ids = sorted(versions)
    of_each = [versions[job_id] for job_id in job_ids]
    text = msgspec.json.encode(packed(job_ids, of_each)).decode()
    assert unpacked(text) == (job_ids, of_each)


def test_candidates_are_kept_as_ranges() -> None:
    assert packed([1, 2, 3, 5, 8, 9], [3, 3, 3, 3, 5, 5]) == {"3": "1-3,5", "5": "8-9"}
    assert packed([], []) == {}
    assert unpacked("{}") == ([], [])


def test_a_job_without_attempts_left_is_counted_as_skipped(store: Store[Any]) -> None:
    """Through its whole budget by the ordinary way: automatic attempts, then replays, then no more."""
    [job_id] = fill(store, 1, max_attempts=2, replay_attempts=2)
    for spent in (2, 3, 4):
        with store.transaction() as transaction:
            transaction.rulings.rule([(transaction.jobs.get(job_id), replay_command(store))], actor="a")
            fail(transaction, claim(transaction, [job_id]))
        with store.reading() as reading:
            assert reading.jobs.get(job_id).spent == spent
    found = replay.select(store, selection(store, filters={"status": (JobState.FAILED, JobState.QUARANTINED)}))
    assert (found.total, found.skipped) == (0, {"attempts_exceeded": 1})
