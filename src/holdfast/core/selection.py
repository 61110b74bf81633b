"""Which jobs a replay is about: the selection, as data, what is wrong with one, and which jobs it means.

Invariants: a selection and a ledger that has not changed give the same candidates in the same order; times have a zone;
two selections that mean the same have the same hash, however they were written down; `selection_fault` and `matches`
are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from holdfast.core.digest import canonical, sha256
from holdfast.core.environments import ENVIRONMENTS
from holdfast.core.errors import PayloadNotJsonError
from holdfast.core.machines import JobState
from holdfast.core.records import Job

API_VERSION = "kfm.nodd.replay/v1alpha1"
KIND = "ReplaySelection"
IN_PROGRESS = "in_progress"  # what a write-ahead record calls a job that runs
TEXT_BYTES_MAX = 1024  # what a queue, a key or a name may have at most
LIST_MAX = 1000
COUNT_MAX = 2**31 - 1


class ReplayMode(StrEnum):
    """What a replay does with a candidate."""

    FAILED_ONLY = "failed-only"
    REPAIR_AND_REPLACE = "repair-and-replace"
    BACKFILL = "backfill"


# Which states a mode can start from. What waits or runs is never replayed; another job that a selection finds is
# passed over, and counted.
REPLAYABLE: dict[ReplayMode, frozenset[JobState]] = {
    ReplayMode.FAILED_ONLY: frozenset({JobState.FAILED}),
    ReplayMode.REPAIR_AND_REPLACE: frozenset({JobState.SUCCEEDED, JobState.QUARANTINED}),
    ReplayMode.BACKFILL: frozenset({JobState.FAILED}),
}


class ReplayReason(StrEnum):
    """Why jobs are replayed, in one managed word."""

    DLQ_DRAIN = "dlq-drain"
    INCIDENT = "incident"
    BACKFILL = "backfill"
    TEST = "test"


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A span of time: from its start on, before its end."""

    start: datetime | None = None
    end: datetime | None = None


class Attempts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many attempts a job has spent: at least, at most."""

    min: int | None = None
    max: int | None = None


class SelectionFilters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job must be like. A dataset is a queue: the application keeps one for each."""

    datasets: tuple[str, ...] = ()
    datasets_exclude: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    status: tuple[JobState, ...] = (JobState.FAILED,)
    error_codes: tuple[str, ...] = ()
    event_time: Window | None = None
    created_at: Window | None = None
    time_range_overlap: Window | None = None
    attempts: Attempts | None = None
    wal_ids: tuple[str, ...] = ()  # job ids, or the keys of jobs


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much at most. None takes the default of the environment."""

    max_records: int | None = None
    batch_size: int | None = None
    max_batches: int | None = None


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What else was said."""

    dry_run: bool | None = None  # None: whoever takes it decides; True: it may never be run
    allow_repair_and_replace: bool = False
    respect_kill_switch: bool = True
    notes: str | None = None


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A whole selection: from a file, or from the flags of a command."""

    name: str
    env: str
    description: str | None = None
    labels: dict[str, str] = {}
    mode: ReplayMode = ReplayMode.FAILED_ONLY
    filters: SelectionFilters = SelectionFilters()
    limits: Limits = Limits()
    options: Options = Options()

    @property
    def hash(self) -> str:
        """Return the SHA-256 of what was asked for, however it was written down."""
        return sha256(canonical(_settled(msgspec.to_builtins(self, builtin_types=(datetime,)))))


class SelectionFault(NamedTuple):
    """What is wrong with a selection: the path of the field, as a spec file names it, and why."""

    path: str
    message: str


def candidates_hash(job_ids: list[int]) -> str:
    """Return what tells one set of candidates from another."""
    return sha256(canonical(job_ids))


def _settled(value: Any) -> Any:
    """Return a value in the one form it is hashed in: lists are sets here, and a moment is a moment in any zone."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, dict):
        return {name: _settled(item) for name, item in value.items()}
    return sorted({*value}) if isinstance(value, (list, tuple)) else value


# ---------------------------------------------------------------------------------------------------------------------
# What is wrong with one


def selection_fault(selection: Selection, *, to_replay: bool = True) -> SelectionFault | None:
    """Return the first thing that is wrong with a selection, or None if it can be taken: to replay, or to look at."""
    checks = (_text_faults, _window_faults, _number_faults, _contradictions)
    for check in (*checks, _not_to_replay) if to_replay else checks:
        for fault in check(selection):
            return fault
    return None


def _text_faults(selection: Selection) -> Iterator[SelectionFault]:
    filters = selection.filters
    if selection.env not in ENVIRONMENTS:
        yield SelectionFault("metadata.env", f"the environment is one of {', '.join(ENVIRONMENTS)}")
    yield from _bad_text("metadata.name", selection.name)
    for name in ("datasets", "datasets_exclude", "operations", "error_codes", "wal_ids"):
        words = getattr(filters, name)
        if len(words) > LIST_MAX:
            yield SelectionFault(f"spec.filters.{name}", f"it has {len(words)} entries; the limit is {LIST_MAX}")
        for i, word in enumerate(words):
            yield from _bad_text(f"spec.filters.{name}[{i}]", word)
    for path, text in (
        ("metadata.description", selection.description),
        ("spec.options.notes", selection.options.notes),
    ):
        if text is not None:
            yield from _bad_text(path, text, size_max=4 * TEXT_BYTES_MAX)
    for key, value in selection.labels.items():
        yield from _bad_text("metadata.labels", key)
        yield from _bad_text(f"metadata.labels.{key}", value)
    try:
        canonical(dict(selection.labels))
    except PayloadNotJsonError as error:
        yield SelectionFault("metadata.labels", error.message)
    reason = selection.labels.get("replay_reason")
    if reason is not None and reason not in list(ReplayReason):
        yield SelectionFault(
            "metadata.labels.replay_reason", f"a reason for replay is one of {', '.join(ReplayReason)}"
        )


def _bad_text(path: str, text: str, *, size_max: int = TEXT_BYTES_MAX) -> Iterator[SelectionFault]:
    size = len(text.encode(errors="surrogatepass"))
    if not text.strip():
        yield SelectionFault(path, "it is empty")
    elif size > size_max:
        yield SelectionFault(path, f"it has {size} bytes; the limit is {size_max}")
    elif "\x00" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        yield SelectionFault(path, "it is text that no database can hold")


def _window_faults(selection: Selection) -> Iterator[SelectionFault]:
    for name in ("event_time", "created_at", "time_range_overlap"):
        window: Window | None = getattr(selection.filters, name)
        if window is None:
            continue
        path = f"spec.filters.{name}"
        for end, moment in (("start", window.start), ("end", window.end)):
            if moment is not None and moment.utcoffset() is None:
                yield SelectionFault(f"{path}.{end}", "a time needs a zone: write it as 2030-01-31T12:00:00Z")
            elif moment is not None and not _in_range(moment):
                yield SelectionFault(f"{path}.{end}", "a time is in the years 1 to 9999 of UTC")
        if window.start is None and window.end is None:
            yield SelectionFault(path, "a span of time has a start or an end")
        elif window.start and window.end and window.start >= window.end:
            yield SelectionFault(f"{path}.end", "the span ends before it begins: nothing is in it")


def _in_range(moment: datetime) -> bool:
    try:
        moment.astimezone(UTC)
    except OverflowError:
        return False
    return True


def _number_faults(selection: Selection) -> Iterator[SelectionFault]:
    attempts = selection.filters.attempts
    if attempts is not None:
        for name, number in (("min", attempts.min), ("max", attempts.max)):
            if number is not None and not 0 <= number <= COUNT_MAX:
                yield SelectionFault(f"spec.filters.attempts.{name}", f"it is a whole number from 0 to {COUNT_MAX}")
        if attempts.min is None and attempts.max is None:
            yield SelectionFault("spec.filters.attempts", "attempts have a min or a max")
        elif attempts.min is not None and attempts.max is not None and attempts.min > attempts.max:
            yield SelectionFault("spec.filters.attempts.max", "the most is less than the least: no job is like that")
    for name in Limits.__struct_fields__:
        number = getattr(selection.limits, name)
        if number is not None and not 1 <= number <= COUNT_MAX:
            yield SelectionFault(f"spec.limits.{name}", f"it is a whole number from 1 to {COUNT_MAX}")


def _contradictions(selection: Selection) -> Iterator[SelectionFault]:
    both = set(selection.filters.datasets) & set(selection.filters.datasets_exclude)
    if both:
        yield SelectionFault("spec.filters.datasets_exclude", f"{min(both)} is asked for and left out at once")
    if not selection.filters.status:
        yield SelectionFault("spec.filters.status", "it names no state: no job is like that")


def _not_to_replay(selection: Selection) -> Iterator[SelectionFault]:
    mode, options, statuses = selection.mode, selection.options, selection.filters.status
    for i, status in enumerate(statuses):
        if status in (JobState.PENDING, JobState.RUNNING):
            yield SelectionFault(f"spec.filters.status[{i}]", f"no mode replays a job that is {status}")
    if REPLAYABLE[mode].isdisjoint(statuses):
        allowed = " or ".join(sorted(REPLAYABLE[mode]))
        yield SelectionFault("spec.filters.status", f"{mode} replays what is {allowed}, and nothing else")
    if mode == ReplayMode.REPAIR_AND_REPLACE and not options.allow_repair_and_replace:
        yield SelectionFault(
            "spec.options.allow_repair_and_replace", "repair-and-replace must be allowed here in so many words"
        )
    if selection.env == "prod" and not options.respect_kill_switch:
        yield SelectionFault("spec.options.respect_kill_switch", "in prod every kill switch is respected")
    if selection.env == "prod" and selection.labels.get("replay_reason") == ReplayReason.TEST:
        yield SelectionFault("metadata.labels.replay_reason", "nothing is replayed as a test in prod")


# ---------------------------------------------------------------------------------------------------------------------
# Which jobs it means


class _Told(msgspec.Struct):
    """What a payload may say about its job."""

    event_time: Any = None
    time_range_start: Any = None
    time_range_end: Any = None
    wal_id: Any = None


def matches(selection: Selection, job: Job) -> bool:
    """Tell whether a job is what a selection is about."""
    filters = selection.filters
    plain = (
        job.state in filters.status
        and (not filters.datasets or job.queue in filters.datasets)
        and job.queue not in filters.datasets_exclude
        and (not filters.operations or job.operation in filters.operations)
        and (not filters.error_codes or job.last_error_code in filters.error_codes)
        and _within(filters.created_at, job.created_at)
        and _counted(filters.attempts, job.spent)
    )
    if not plain or not (filters.event_time or filters.time_range_overlap or filters.wal_ids):
        return plain
    told = _told(job)
    return (
        _within(filters.event_time, _moment(told.event_time) or job.created_at)
        and _overlaps(filters.time_range_overlap, told)
        and (not filters.wal_ids or not {str(job.job_id), job.key, _text(told.wal_id)}.isdisjoint(filters.wal_ids))
    )


def _within(window: Window | None, moment: datetime) -> bool:
    """Tell whether a moment is in a span: its start is, its end is not."""
    if window is None:
        return True
    return (window.start is None or window.start <= moment) and (window.end is None or moment < window.end)


def _overlaps(window: Window | None, told: _Told) -> bool:
    """Tell whether what a payload is about was there during a span: from its start to its end, both included.

    Of what names no end, as a radar's sweep does, only the start is known.
    """
    if window is None:
        return True
    first = _moment(told.time_range_start)
    last = first if told.time_range_end is None else _moment(told.time_range_end)
    if first is None or last is None or last < first:
        return False
    return (window.start is None or window.start <= last) and (window.end is None or first < window.end)


def _counted(attempts: Attempts | None, spent: int) -> bool:
    if attempts is None:
        return True
    return (attempts.min is None or attempts.min <= spent) and (attempts.max is None or spent <= attempts.max)


def _told(job: Job) -> _Told:
    try:
        return _decode_told(job.payload or "null") or _Told()
    except msgspec.MsgspecError:
        return _Told()  # a payload may be any JSON value


_decode_told: Callable[[str], _Told | None] = msgspec.json.Decoder(_Told | None).decode


def _moment(told: object) -> datetime | None:
    """Return the time that a payload names, if it is one, with a zone."""
    if not isinstance(told, str):
        return None
    try:
        moment = msgspec.convert(told, datetime)
    except msgspec.ValidationError:
        return None
    return moment if moment.utcoffset() is not None else None


def _text(told: object) -> str | None:
    return told if isinstance(told, str) else None
