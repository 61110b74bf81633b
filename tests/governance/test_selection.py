"""Selections: which jobs they mean, to the microsecond; what is wrong with one; what their hash says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.decide import REPLAY_REASONS
from holdfast.core.machines import JobState
from holdfast.core.records import time_text
from holdfast.core.selection import (
    LIST_MAX,
    REPLAYABLE,
    TEXT_BYTES_MAX,
    Attempts,
    Limits,
    Options,
    ReplayMode,
    ReplayReason,
    Selection,
    SelectionFilters,
    Window,
    candidates_hash,
    matches,
    release_command,
    selection_fault,
)
from tests.core.asking import NOW, TICK, job

HOUR = timedelta(hours=1)
KANSAS = timezone(timedelta(hours=-6))


def about(**filters: Any) -> Selection:
    return Selection(name="s", env="dev", filters=SelectionFilters(**filters))


def failed(**fields: Any) -> Any:
    return job(JobState.FAILED, **fields)


# ---------------------------------------------------------------------------------------------------------------------
# Which jobs it means


@pytest.mark.req("K-64")
@pytest.mark.parametrize(
    "filters, fields, expected",
    [
        ({}, {}, True),
        ({"queues": ("goes-abi",)}, {"queue": "goes-abi"}, True),
        ({"queues": ("goes-abi", "hrrr")}, {"queue": "hrrr"}, True),
        ({"queues": ("goes-abi",)}, {"queue": "goes"}, False),
        ({"queues_exclude": ("hrrr",)}, {"queue": "hrrr"}, False),
        ({"queues_exclude": ("hrrr",)}, {"queue": "goes-abi"}, True),
        ({"operations": ("ingest",)}, {"operation": "ingest"}, True),
        ({"operations": ("ingest",)}, {"operation": "ingest2"}, False),
        ({"error_codes": ("io_error",)}, {"last_error_code": "io_error"}, True),
        ({"error_codes": ("io_error",)}, {"last_error_code": "io_error_upstream"}, False),
        ({"error_codes": ("io_error",)}, {"last_error_code": None}, False),
        ({"attempts": Attempts(max=2)}, {"attempts": 2}, True),
        ({"attempts": Attempts(max=2)}, {"attempts": 3}, False),
        ({"attempts": Attempts(max=2)}, {"attempts": 4, "excused": 2}, True),
        ({"attempts": Attempts(min=2)}, {"attempts": 1}, False),
        ({"attempts": Attempts(min=2)}, {"attempts": 2}, True),
        ({"attempts": Attempts(min=2)}, {"attempts": 3, "excused": 2}, False),
        ({"attempts": Attempts(min=1, max=1)}, {"attempts": 1}, True),
        ({"jobs": ("7",)}, {"job_id": 7}, True),
        ({"jobs": ("07",)}, {"job_id": 7}, False),
        ({"jobs": ("a.png",)}, {"key": "a.png"}, True),
        ({"jobs": ("a.png",)}, {"key": None}, False),
        ({"jobs": ("w-1",), "id_field": "wal_id"}, {"payload": '{"wal_id":"w-1"}'}, True),
        ({"jobs": ("w-1",), "id_field": "other"}, {"payload": '{"wal_id":"w-1"}'}, False),
        ({"jobs": ("w-1",)}, {"payload": '{"wal_id":"w-1"}'}, False),
        ({"jobs": ("7",), "id_field": "wal_id"}, {"payload": '{"wal_id":7}', "job_id": 1}, False),
        ({"jobs": ("w-1",), "id_field": "wal_id"}, {"payload": None}, False),
        ({"jobs": ("w-1",), "id_field": "wal_id"}, {"payload": '["wal_id","w-1"]'}, False),
        ({"queues": ("a",), "error_codes": ("e",)}, {"queue": "a", "last_error_code": "f"}, False),
    ],
)
def test_a_job_is_compared_with_every_filter(filters: Any, fields: Any, expected: bool) -> None:
    assert matches(about(**filters), failed(**fields)) is expected


@pytest.mark.parametrize("state", JobState)
def test_a_status_is_one_of_those_that_are_named(state: JobState) -> None:
    assert matches(about(), job(state)) is (state is JobState.FAILED)
    assert matches(about(status=(JobState.SUCCEEDED, JobState.QUARANTINED)), job(state)) is (
        state in (JobState.SUCCEEDED, JobState.QUARANTINED)
    )


@pytest.mark.req("K-64")
@pytest.mark.parametrize("name", ["created_at", "event_time"])
@pytest.mark.parametrize("zone", [UTC, KANSAS])
def test_a_window_has_its_start_in_it_and_its_end_not(name: str, zone: Any) -> None:
    start, end = NOW.astimezone(zone), (NOW + HOUR).astimezone(zone)
    selection = about(**{name: Window(start=start, end=end)})

    def at(moment: datetime) -> bool:
        if name == "created_at":
            return matches(selection, failed(created_at=moment))
        # The payload's own time counts, not when the job was made.
        payload = f'{{"event_time":"{time_text(moment)}"}}'
        return matches(selection, failed(payload=payload, created_at=NOW - 5 * HOUR))

    assert [at(m) for m in (NOW - TICK, NOW, NOW + HOUR - TICK, NOW + HOUR)] == [False, True, True, False]
    open_ended = about(**{name: Window(start=start)}), about(**{name: Window(end=end)})
    assert [matches(s, failed(created_at=NOW + 100 * HOUR)) for s in open_ended] == [True, False]
    assert [matches(s, failed(created_at=NOW - 100 * HOUR)) for s in open_ended] == [False, True]


@pytest.mark.parametrize(
    "payload",
    [
        None, "null", "[]", '"2030"', "{}", '{"event_time":null}', '{"event_time":1893553445}',
        '{"event_time":"2020-01-01T00:00:00"}', '{"event_time":"2020-01-01"}', '{"event_time":"yesterday"}',
        '{"event_time":["2020-01-01T00:00:00Z"]}',
    ],
)  # fmt: skip
def test_without_a_time_of_its_own_a_job_is_as_old_as_its_record(payload: str | None) -> None:
    there = about(event_time=Window(start=NOW, end=NOW + TICK))
    assert matches(there, failed(payload=payload, created_at=NOW))
    assert not matches(there, failed(payload=payload, created_at=NOW + TICK))


@pytest.mark.parametrize(
    "first, last, expected",
    [
        (-2, -1, False),
        (-2, 0, True),  # its last moment is the first of the window
        (0, 0, True),  # instantaneous
        (0, 1, True),
        (1, 2, True),
        (-5, 5, True),
        (3, 3, True),
        (4, 4, False),  # the end of the window is not in it
        (4, 9, False),
        (2, 1, False),  # it ends before it begins
    ],
)
def test_ranges_that_overlap(first: int, last: int, expected: bool) -> None:
    ends = [time_text(NOW + hours * HOUR) for hours in (first, last)]
    payload = f'{{"time_range_start":"{ends[0]}","time_range_end":"{ends[1]}"}}'
    selection = about(time_range_overlap=Window(start=NOW, end=NOW + 4 * HOUR))
    assert matches(selection, failed(payload=payload)) is expected
    assert matches(about(time_range_overlap=Window(start=NOW)), failed(payload=payload)) is (0 <= last >= first)


@pytest.mark.parametrize(
    "payload",
    [
        "{}", '{"time_range_end":"2030-01-02T03:04:05Z"}', '{"time_range_start":"2030-01-02T03:04:05"}',
        '{"time_range_start":"2030-01-02T03:04:05","time_range_end":"2030-01-02T03:04:05"}',
        '{"time_range_start":"2030-01-02T03:04:05Z","time_range_end":"2030-01-02T03:04:05"}',
        '{"time_range_start":"2030-01-02T03:04:05Z","time_range_end":7}', None,
    ],
)  # fmt: skip
def test_a_range_has_times_with_a_zone(payload: str | None) -> None:
    assert not matches(
        about(time_range_overlap=Window(start=datetime(2000, 1, 1, tzinfo=UTC))), failed(payload=payload)
    )


@pytest.mark.req("K-54")
@pytest.mark.parametrize("end", ["", ',"time_range_end":null'])
def test_a_time_range_without_an_end_matches_by_its_start(end: str) -> None:
    payload = f'{{"time_range_start":"{time_text(NOW)}"{end}}}'
    assert matches(about(time_range_overlap=Window(start=NOW, end=NOW + TICK)), failed(payload=payload))
    assert not matches(about(time_range_overlap=Window(start=NOW + TICK)), failed(payload=payload))
    assert not matches(about(time_range_overlap=Window(end=NOW)), failed(payload=payload))


@given(
    st.integers(-3, 3), st.integers(-3, 3), st.integers(-3, 3), st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"])
)
def test_every_filter_only_narrows(start: int, end: int, created: int, queue: str, code: str) -> None:
    window = Window(start=NOW + start * HOUR, end=NOW + end * HOUR)
    one = failed(queue=queue, last_error_code=code, created_at=NOW + created * HOUR)
    each = [about(queues=("a",)), about(error_codes=("x",)), about(created_at=window)]
    together = about(queues=("a",), error_codes=("x",), created_at=window)
    assert matches(together, one) is all(matches(s, one) for s in each)
    assert matches(each[2], one) is (start <= created < end)


# ---------------------------------------------------------------------------------------------------------------------
# What is wrong with one


def with_fields(**fields: Any) -> Selection:
    return msgspec.structs.replace(about(queues=("a",)), **fields)


NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - that it has no zone is the point
FAULTS: list[tuple[Selection, str]] = [
    (with_fields(env="test"), "metadata.env"),
    (with_fields(name=" "), "metadata.name"),
    (with_fields(name="n" * (TEXT_BYTES_MAX + 1)), "metadata.name"),
    (with_fields(description="\x00"), "metadata.description"),
    (with_fields(labels={"": "x"}), "metadata.labels"),
    (with_fields(labels={"team": "\ud800"}), "metadata.labels.team"),
    (with_fields(labels={"\u00e9": "1", "e\u0301": "2"}), "metadata.labels"),
    (with_fields(labels={"replay_reason": "boredom"}), "metadata.labels.replay_reason"),
    (with_fields(env="prod", labels={"replay_reason": "test"}), "metadata.labels.replay_reason"),
    (about(queues=("a", "")), "spec.filters.queues[1]"),
    (about(operations=("\udfff",)), "spec.filters.operations[0]"),
    (about(jobs=tuple(map(str, range(LIST_MAX + 1)))), "spec.filters.jobs"),
    (about(queues=("a", "b"), queues_exclude=("b",)), "spec.filters.queues_exclude"),
    (about(status=()), "spec.filters.status"),
    (about(status=(JobState.FAILED, JobState.PENDING)), "spec.filters.status[1]"),
    (about(status=(JobState.RUNNING,)), "spec.filters.status[0]"),
    (about(status=(JobState.QUARANTINED,)), "spec.filters.status"),
    (about(created_at=Window()), "spec.filters.created_at"),
    (about(created_at=Window(start=NAIVE)), "spec.filters.created_at.start"),
    (about(event_time=Window(start=NOW, end=NAIVE)), "spec.filters.event_time.end"),
    (about(event_time=Window(start=NOW, end=NOW)), "spec.filters.event_time.end"),
    (about(time_range_overlap=Window(start=NOW, end=NOW - TICK)), "spec.filters.time_range_overlap.end"),
    (about(created_at=Window(start=datetime(1, 1, 1, tzinfo=timezone(HOUR)))), "spec.filters.created_at.start"),
    (about(attempts=Attempts()), "spec.filters.attempts"),
    (about(attempts=Attempts(min=-1)), "spec.filters.attempts.min"),
    (about(attempts=Attempts(min=3, max=2)), "spec.filters.attempts.max"),
    (about(attempts=Attempts(max=2**31)), "spec.filters.attempts.max"),
    (with_fields(limits=Limits(max_records=0)), "spec.limits.max_records"),
    (with_fields(limits=Limits(batch_size=-5)), "spec.limits.batch_size"),
    (with_fields(limits=Limits(max_batches=2**31)), "spec.limits.max_batches"),
    (with_fields(mode=ReplayMode.REPAIR_AND_REPLACE), "spec.filters.status"),
    (
        msgspec.structs.replace(about(status=(JobState.SUCCEEDED,)), mode=ReplayMode.REPAIR_AND_REPLACE),
        "spec.options.allow_repair_and_replace",
    ),
    (with_fields(env="prod", options=Options(respect_kill_switch=False)), "spec.options.respect_kill_switch"),
    (with_fields(options=Options(notes="")), "spec.options.notes"),
]


@pytest.mark.req("K-54")
@pytest.mark.parametrize("selection, path", FAULTS, ids=[f"{i}-{path}" for i, (_, path) in enumerate(FAULTS)])
def test_a_wrong_selection_is_refused_with_the_place_of_the_fault(selection: Selection, path: str) -> None:
    fault = selection_fault(selection)
    assert fault is not None
    assert fault.path == path
    assert fault.message


def test_a_selection_with_every_field_is_valid() -> None:
    everything = Selection(
        name="s",
        env="stage",
        description="d",
        labels={"replay_reason": "test", "incident_id": "7"},
        mode=ReplayMode.REPAIR_AND_REPLACE,
        filters=SelectionFilters(
            queues=("a",),
            queues_exclude=("b",),
            operations=("o",),
            status=(JobState.SUCCEEDED, JobState.FAILED),
            error_codes=("e",),
            event_time=Window(start=NOW),
            created_at=Window(end=NOW),
            time_range_overlap=Window(start=NOW, end=NOW + TICK),
            attempts=Attempts(min=0, max=0),
            jobs=("1",),
        ),
        limits=Limits(max_records=1, batch_size=1, max_batches=1),
        options=Options(allow_repair_and_replace=True, respect_kill_switch=False, notes="n"),
    )
    assert selection_fault(everything) is None
    assert selection_fault(about()) is None


@pytest.mark.parametrize(
    "selection",
    [
        with_fields(name="n" * TEXT_BYTES_MAX),
        with_fields(description="d" * 4 * TEXT_BYTES_MAX),
        about(jobs=tuple(map(str, range(LIST_MAX)))),
        about(attempts=Attempts(min=1)),
        about(attempts=Attempts(max=2**31 - 1)),
        with_fields(limits=Limits(max_records=2**31 - 1)),
    ],
    ids=["name", "description", "jobs", "min alone", "max alone", "max_records"],
)
def test_a_selection_at_a_bound_is_valid(selection: Selection) -> None:
    assert selection_fault(selection) is None


def test_the_texts_of_options_are_bounded() -> None:
    fault = selection_fault(with_fields(description="d" * (4 * TEXT_BYTES_MAX + 1)))
    assert fault is not None
    assert fault.path == "metadata.description"


def test_the_refusal_of_quarantined_jobs_names_the_command_that_releases_them() -> None:
    one = about(status=(JobState.QUARANTINED,), operations=("pay out",), queues=("a", "b"), error_codes=("e",))
    assert release_command(one.filters) == (
        "holdfast quarantine release --all-matching --operation 'pay out' --code e"
        " --request --rollback-plan TEXT --reason TEXT"
    )
    fault, other = selection_fault(one), selection_fault(about(status=(JobState.SUCCEEDED,)))
    assert fault is not None
    assert fault.next_step == f"Release them: `{release_command(one.filters)}`."
    assert other is not None
    assert other.next_step is None


def test_an_inspection_may_select_jobs_in_any_state() -> None:
    for state in JobState:
        assert selection_fault(about(status=(state,)), to_replay=False) is None
    assert selection_fault(about(status=()), to_replay=False) is not None


def test_no_mode_replays_pending_or_running_jobs() -> None:
    assert REPLAYABLE.keys() == set(ReplayMode)
    assert not {JobState.PENDING, JobState.RUNNING} & frozenset.union(*REPLAYABLE.values())


@pytest.mark.req("K-64")
def test_the_reasons_are_those_that_the_machine_takes() -> None:
    assert set(ReplayReason) == REPLAY_REASONS


# ---------------------------------------------------------------------------------------------------------------------
# What its hash says


@pytest.mark.req("K-54")
def test_selections_that_mean_the_same_have_the_same_hash() -> None:
    one = about(queues=("a", "b"), created_at=Window(start=NOW))
    assert one.hash == about(queues=("b", "a", "b"), created_at=Window(start=NOW.astimezone(KANSAS))).hash
    assert len(one.hash) == 64


def test_every_field_is_part_of_the_hash() -> None:
    one = about()
    others: list[Selection] = [
        msgspec.structs.replace(one, name="t"),
        msgspec.structs.replace(one, env="prod"),
        msgspec.structs.replace(one, description="d"),
        msgspec.structs.replace(one, labels={"a": "b"}),
        msgspec.structs.replace(one, mode=ReplayMode.BACKFILL),
        msgspec.structs.replace(one, limits=Limits(max_records=1)),
        msgspec.structs.replace(one, options=Options(dry_run=True)),
        about(queues=("a",)),
        about(queues_exclude=("a",)),
        about(operations=("a",)),
        about(status=(JobState.FAILED, JobState.SUCCEEDED)),
        about(error_codes=("a",)),
        about(event_time=Window(start=NOW)),
        about(created_at=Window(start=NOW)),
        about(created_at=Window(end=NOW)),
        about(created_at=Window(start=NOW + TICK)),
        about(time_range_overlap=Window(start=NOW)),
        about(attempts=Attempts(max=1)),
        about(attempts=Attempts(min=1)),
        about(jobs=("a",)),
    ]
    assert len({selection.hash for selection in [one, *others]}) == len(others) + 1


def test_a_hash_survives_json() -> None:
    one = about(queues=("a",), created_at=Window(start=NOW.astimezone(KANSAS)), attempts=Attempts(max=3))
    back = msgspec.json.decode(msgspec.json.encode(one), type=Selection)
    assert (back, back.hash) == (one, one.hash)


def test_the_hash_of_candidates_is_of_the_ids_in_order() -> None:
    assert candidates_hash([1, 2, 3]) == candidates_hash([1, 2, 3])
    assert len({candidates_hash(ids) for ids in ([], [1], [1, 2], [2, 1], [12], [1, 2, 3])}) == 6
