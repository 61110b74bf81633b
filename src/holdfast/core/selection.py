"""A selection says which jobs to replay: its fields, its checks, and whether a job matches it.

Invariants: the same selection on an unchanged ledger gives the same candidates in the same order; every time has a
zone; two selections with the same meaning have the same hash, whatever the order of their lists and the zone of their
times; `selection_fault` and `matches` are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from shlex import quote
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.core.digest import canonical, is_storable, sha256
from holdfast.core.environments import ENVIRONMENTS
from holdfast.core.errors import PayloadNotJsonError
from holdfast.core.machines import JobState
from holdfast.core.records import Job

TEXT_BYTES_MAX = 1024  # of a queue, a key or a name
LIST_MAX = 1000
COUNT_MAX = 2**31 - 1

T = TypeVar("T")


class ReplayMode(StrEnum):
    """What a replay does with a candidate."""

    FAILED_ONLY = "failed-only"
    REPAIR_AND_REPLACE = "repair-and-replace"
    BACKFILL = "backfill"


# The states that a mode can start from. Pending and running jobs are never replayed; other jobs that match are skipped
# and counted.
REPLAYABLE: dict[ReplayMode, frozenset[JobState]] = {
    ReplayMode.FAILED_ONLY: frozenset({JobState.FAILED}),
    ReplayMode.REPAIR_AND_REPLACE: frozenset({JobState.SUCCEEDED, JobState.QUARANTINED}),
    ReplayMode.BACKFILL: frozenset({JobState.FAILED}),
}


class ReplayReason(StrEnum):
    """Why jobs are replayed, as one word of a fixed list."""

    DLQ_DRAIN = "dlq-drain"
    INCIDENT = "incident"
    BACKFILL = "backfill"
    TEST = "test"


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A time window: it includes its start and excludes its end."""

    start: datetime | None = None
    end: datetime | None = None


class Attempts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many attempts a job has used: at least `min`, at most `max`."""

    min: int | None = None
    max: int | None = None


class SelectionFilters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job must match. An empty filter matches every job."""

    queues: tuple[str, ...] = ()
    queues_exclude: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    status: tuple[JobState, ...] = (JobState.FAILED,)
    error_codes: tuple[str, ...] = ()
    event_time: Window | None = None
    created_at: Window | None = None
    time_range_overlap: Window | None = None
    attempts: Attempts | None = None
    jobs: tuple[str, ...] = ()  # job ids or keys
    id_field: str | None = None  # a text field of the payload that identifies the job too, for `jobs`


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Upper limits of a replay. None means the default of the environment."""

    max_records: int | None = None
    batch_size: int | None = None
    max_batches: int | None = None


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a replay."""

    dry_run: bool | None = None  # True: dry runs only; None: the command decides
    allow_repair_and_replace: bool = False
    respect_kill_switch: bool = True
    notes: str | None = None


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A complete selection, from a file or from the flags of a command."""

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
        """Return the SHA-256 of the selection in its normal form."""
        return sha256(canonical(_normal(msgspec.to_builtins(self, builtin_types=(datetime,)))))


class SelectionFault(NamedTuple):
    """What is wrong with a selection: the path of the field in a spec file, a message, and what to do instead."""

    path: str
    message: str
    next_step: str | None = None


def candidates_hash(job_ids: list[int]) -> str:
    """Return the SHA-256 of a set of candidates."""
    return sha256(canonical(job_ids))


def _normal(value: Any) -> Any:
    """Return a value in its normal form: lists sorted without duplicates, times in UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, dict):
        return {name: _normal(item) for name, item in value.items()}
    return sorted({*value}) if isinstance(value, (list, tuple)) else value


# ---------------------------------------------------------------------------------------------------------------------
# Checks


def selection_fault(selection: Selection, *, to_replay: bool = True) -> SelectionFault | None:
    """Return the first fault of a selection, or None. `to_replay=False` permits states that can only be inspected."""
    checks = (_text_faults, _window_faults, _number_faults, _contradictions)
    for check in (*checks, _not_to_replay) if to_replay else checks:
        for fault in check(selection):
            return fault
    return None


def _text_faults(selection: Selection) -> Iterator[SelectionFault]:
    filters = selection.filters
    if selection.env not in ENVIRONMENTS:
        yield SelectionFault(
            "metadata.env", f"{selection.env!r} is not an environment; use one of {', '.join(ENVIRONMENTS)}"
        )
    yield from _bad_text("metadata.name", selection.name)
    for name in ("queues", "queues_exclude", "operations", "error_codes", "jobs"):
        words = getattr(filters, name)
        if len(words) > LIST_MAX:
            yield SelectionFault(f"spec.filters.{name}", f"{len(words)} entries; the limit is {LIST_MAX}")
        for i, word in enumerate(words):
            yield from _bad_text(f"spec.filters.{name}[{i}]", word)
    for path, text in (
        ("metadata.description", selection.description),
        ("spec.options.notes", selection.options.notes),
        ("spec.filters.id_field", filters.id_field),
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
            "metadata.labels.replay_reason", f"{reason!r} is not a replay reason; use one of {', '.join(ReplayReason)}"
        )


def _bad_text(path: str, text: str, *, size_max: int = TEXT_BYTES_MAX) -> Iterator[SelectionFault]:
    size = len(text.encode(errors="surrogatepass"))
    if not text.strip():
        yield SelectionFault(path, "the text is empty")
    elif size > size_max:
        yield SelectionFault(path, f"{size} bytes; the limit is {size_max}")
    elif not is_storable(text):
        yield SelectionFault(path, "the text has a character that a database cannot store")


def _window_faults(selection: Selection) -> Iterator[SelectionFault]:
    for name in ("event_time", "created_at", "time_range_overlap"):
        window: Window | None = getattr(selection.filters, name)
        if window is None:
            continue
        path = f"spec.filters.{name}"
        for end, moment in (("start", window.start), ("end", window.end)):
            if moment is not None and moment.utcoffset() is None:
                yield SelectionFault(f"{path}.{end}", "the time needs a zone, such as 2026-11-15T12:00:00Z")
            elif moment is not None and not _in_range(moment):
                yield SelectionFault(f"{path}.{end}", "the time must be in the years 1 to 9999 UTC")
        if window.start is None and window.end is None:
            yield SelectionFault(path, "the window needs a start or an end")
        elif window.start and window.end and window.start >= window.end:
            yield SelectionFault(f"{path}.end", "the window must end after its start")


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
                yield SelectionFault(f"spec.filters.attempts.{name}", f"{number} is not in the range 0 to {COUNT_MAX}")
        if attempts.min is None and attempts.max is None:
            yield SelectionFault("spec.filters.attempts", "attempts need a min or a max")
        elif attempts.min is not None and attempts.max is not None and attempts.min > attempts.max:
            yield SelectionFault("spec.filters.attempts.max", f"max {attempts.max} is less than min {attempts.min}")
    for name in Limits.__struct_fields__:
        number = getattr(selection.limits, name)
        if number is not None and not 1 <= number <= COUNT_MAX:
            yield SelectionFault(f"spec.limits.{name}", f"{number} is not in the range 1 to {COUNT_MAX}")


def _contradictions(selection: Selection) -> Iterator[SelectionFault]:
    both = set(selection.filters.queues) & set(selection.filters.queues_exclude)
    if both:
        yield SelectionFault("spec.filters.queues_exclude", f"{min(both)!r} is both selected and excluded")
    if not selection.filters.status:
        yield SelectionFault("spec.filters.status", "the list is empty; name at least one state")


def _not_to_replay(selection: Selection) -> Iterator[SelectionFault]:
    mode, options, statuses = selection.mode, selection.options, selection.filters.status
    for i, status in enumerate(statuses):
        if status in (JobState.PENDING, JobState.RUNNING):
            yield SelectionFault(f"spec.filters.status[{i}]", f"a {status} job cannot be replayed")
    if REPLAYABLE[mode].isdisjoint(statuses):
        allowed = " or ".join(sorted(REPLAYABLE[mode]))
        step = f"Release them: `{release_command(selection.filters)}`." if JobState.QUARANTINED in statuses else None
        yield SelectionFault("spec.filters.status", f"mode {mode} replays {allowed} jobs only", step)
    if mode == ReplayMode.REPAIR_AND_REPLACE and not options.allow_repair_and_replace:
        yield SelectionFault(
            "spec.options.allow_repair_and_replace", "mode repair-and-replace requires allow_repair_and_replace: true"
        )
    if selection.env == "prod" and not options.respect_kill_switch:
        yield SelectionFault("spec.options.respect_kill_switch", "in prod it must be true")
    if selection.env == "prod" and selection.labels.get("replay_reason") == ReplayReason.TEST:
        yield SelectionFault("metadata.labels.replay_reason", "replay reason 'test' is not allowed in prod")


def release_command(filters: SelectionFilters) -> str:
    """Return the command that requests the release of the quarantined jobs of a selection."""
    named = (("--operation", filters.operations), ("--queue", filters.queues), ("--code", filters.error_codes))
    options = "".join(f" {option} {quote(values[0])}" for option, values in named if len(values) == 1)
    return f"holdfast quarantine release --all-matching{options} --request --rollback-plan TEXT --reason TEXT"


# ---------------------------------------------------------------------------------------------------------------------
# Matching


class _Times(msgspec.Struct):
    """The times that a payload may contain. Any other type than text is ignored."""

    event_time: Any = None
    time_range_start: Any = None
    time_range_end: Any = None


def matches(selection: Selection, job: Job) -> bool:
    """Return whether a job matches a selection."""
    filters = selection.filters
    return (
        job.state in filters.status
        and (not filters.queues or job.queue in filters.queues)
        and job.queue not in filters.queues_exclude
        and (not filters.operations or job.operation in filters.operations)
        and (not filters.error_codes or job.last_error_code in filters.error_codes)
        and _within(filters.created_at, job.created_at)
        and _counted(filters.attempts, job.spent)
        and (not filters.jobs or _named(filters, job))
        and (not (filters.event_time or filters.time_range_overlap) or _timely(filters, job))
    )


def _named(filters: SelectionFilters, job: Job) -> bool:
    names = {str(job.job_id), job.key}
    if filters.id_field is not None:
        payload = _decoded(msgspec.json.decode, job)
        name = payload.get(filters.id_field) if isinstance(payload, dict) else None
        names |= {name} if isinstance(name, str) else set()
    return not names.isdisjoint(filters.jobs)


def _timely(filters: SelectionFilters, job: Job) -> bool:
    times = _decoded(_decode_times, job) or _Times()
    event_time = _moment(times.event_time) or job.created_at
    return _within(filters.event_time, event_time) and _overlaps(filters.time_range_overlap, times)


def _within(window: Window | None, moment: datetime) -> bool:
    if window is None:
        return True
    return (window.start is None or window.start <= moment) and (window.end is None or moment < window.end)


def _overlaps(window: Window | None, times: _Times) -> bool:
    """Return whether the time range of a payload, both ends included, overlaps a window.

    A payload without a time_range_end, such as one sweep of a radar, counts at its start only.
    """
    if window is None:
        return True
    first = _moment(times.time_range_start)
    last = first if times.time_range_end is None else _moment(times.time_range_end)
    if first is None or last is None or last < first:
        return False
    return (window.start is None or window.start <= last) and (window.end is None or first < window.end)


def _counted(attempts: Attempts | None, spent: int) -> bool:
    if attempts is None:
        return True
    return (attempts.min is None or attempts.min <= spent) and (attempts.max is None or spent <= attempts.max)


def _decoded(decode: Callable[[str], T], job: Job) -> T | None:
    try:
        return decode(job.payload or "null")
    except msgspec.MsgspecError:
        return None  # a payload may be any JSON value


_decode_times: Callable[[str], _Times | None] = msgspec.json.Decoder(_Times | None).decode


def _moment(value: object) -> datetime | None:
    """Return the time in a payload, if it is text that is a time with a zone."""
    if not isinstance(value, str):
        return None
    try:
        moment = msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        return None
    return moment if moment.utcoffset() is not None else None
