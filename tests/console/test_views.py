"""What the pages show, on both databases, with exact values: the views are functions of a reading and filters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest

from holdfast import Ledger
from holdfast.console.views.activity import Activity
from holdfast.console.views.charts import Span, job_graph, ribbon, sparkline
from holdfast.console.views.failures import CLOSES, OPENS, failure_groups, group_hash, group_page, pattern_of
from holdfast.console.views.find import find_hits
from holdfast.console.views.grants import grant_view, grants_view
from holdfast.console.views.job import job_view
from holdfast.console.views.jobs import job_page, job_query
from holdfast.console.views.journal import checks_view, journal_view
from holdfast.console.views.machines import machines_view
from holdfast.console.views.next_steps import NextStep
from holdfast.console.views.overview import ledger_of, overview
from holdfast.console.views.quarantine import quarantine_view
from holdfast.console.views.queue import queue_view
from holdfast.console.views.queues import QueueStatus, percentiles
from holdfast.console.views.replays import draft_of, replay_look, run_view
from holdfast.console.views.schedules import schedule_rows
from holdfast.console.views.switches import switches_view
from holdfast.console.views.words import exact_span
from holdfast.console.views.workers import workers_view
from holdfast.core.errors import InputError, JobNotFoundError, QueueUnknownError, RecordNotFoundError
from holdfast.core.machines import JOB, JobState
from holdfast.store.transaction import Reading
from holdfast.store.verbs.alive import SILENT_S
from holdfast.store.verbs.watch import JobFilters, JobMoves, first_job_since, job_lines
from tests.console.scenes import NOW, Scene

T = TypeVar("T")
TIMES = "\N{MULTIPLICATION SIGN}"
Made = tuple[Ledger, Scene]


def read(made: Made, look: Callable[[Reading, datetime], T]) -> T:
    ledger, scene = made
    with ledger.store.reading() as reading:
        return look(reading, scene.clock())


# ---------------------------------------------------------------------------------------------------------------------
# The overview


def test_the_overview_names_what_needs_attention_the_most_decisive_first(scene: Made) -> None:
    view = read(scene, lambda r, now: overview(r, failure_groups(r, now), ledger_of(r, "sqlite:////x/weather.db"), now))
    assert [need.code for need in view.needs] == [
        "no_worker", "failing", "queue_paused", "switch_on", "taken_out", "grants_wait", "grant_approved",
    ]  # fmt: skip
    assert [need.tone for need in view.needs] == ["failed"] * 2 + ["attention"] * 5
    assert all(need.links for need in view.needs)
    assert (view.ledger.name, view.ledger.environment) == ("weather", "dev")
    assert view.counts == {"pending": 61, "running": 4, "succeeded": 451, "failed": 55, "quarantined": 5}
    assert (view.jobs, view.workers_alive, view.switches_on, view.drafts) == (576, 3, 1, 1)
    rows = {row.name: row for row in view.queues}
    assert rows["hrrr"].status is QueueStatus.NO_WORKER
    assert (rows["hrrr"].due, [lane.due for lane in rows["hrrr"].lanes]) == (12, [6, 6])
    assert rows["goes-abi"].status is QueueStatus.FAILING
    assert (rows["goes-abi"].running, rows["goes-abi"].slots) == (4, 8)
    assert rows["mail"].status is QueueStatus.SWITCHED_OFF
    assert rows["mrms"].status is QueueStatus.PAUSED
    assert view.tiles[0].n == 61
    assert [act.by for act in view.acts][:2] == ["bob", "ann"]


def test_an_empty_ledger_has_nothing_that_needs_attention(ledger_url: str) -> None:
    with Ledger(ledger_url, create=False) as ledger, ledger.store.reading() as reading:
        now = ledger.store.now()
        view = overview(reading, failure_groups(reading, now), ledger_of(reading, ledger_url), now)
        assert (view.needs, view.jobs, view.groups.groups) == ((), 0, ())
        assert job_page(reading, job_query({}), now).whole


# ---------------------------------------------------------------------------------------------------------------------
# Jobs


def test_pages_of_jobs_are_found_by_keyset_and_say_how_far_they_looked(scene: Made) -> None:
    first = read(scene, lambda r, now: job_page(r, job_query({"state": "failed"}), now))
    assert (len(first.lines), first.total, first.newest) == (50, 55, None)
    assert first.older == f"/jobs?state=failed&before={first.lines[-1].job_id}"
    second = read(
        scene, lambda r, now: job_page(r, job_query({"state": "failed", "before": str(first.looked_from)}), now)
    )
    assert (len(second.lines), second.older, second.looked_from) == (5, None, 1)
    ids = [line.job_id for line in (*first.lines, *second.lines)]
    assert ids == sorted(set(ids), reverse=True)


@pytest.mark.parametrize("state", [None, *JobState])
def test_a_list_has_exactly_the_jobs_that_match(scene: Made, state: JobState | None) -> None:
    def ids(reading: Reading, now: datetime) -> tuple[list[int], list[int]]:
        found = job_lines(reading, JobFilters(state=state, operation="nodd.ingest"), limit=1000)
        jobs = reading.lists.jobs(state=state, operation="nodd.ingest", limit=1000)
        assert not found.more
        return [line.job_id for line in found.lines], [job.job_id for job in jobs]

    ours, theirs = read(scene, ids)
    assert ours == theirs
    assert ours or state not in (None, JobState.FAILED)


def test_a_window_bounds_what_a_page_looks_at(scene: Made) -> None:
    def look(reading: Reading, _: datetime) -> Any:
        return job_lines(reading, JobFilters(operation="none.such"), before=500, window=100)

    found = read(scene, look)
    assert (found.lines, found.more, found.looked_from) == ([], True, 400)
    rest = read(scene, lambda r, _: job_lines(r, JobFilters(state=JobState.FAILED, code="no"), window=10))
    assert (rest.lines, rest.more) == ([], True)


def test_a_full_small_window_gives_the_same_page_as_the_whole_one(scene: Made) -> None:
    def look(reading: Reading, _: datetime) -> tuple[list[int], list[int], int | None]:
        found = job_lines(reading, JobFilters(state=JobState.SUCCEEDED), limit=5)
        jobs = reading.lists.jobs(state=JobState.SUCCEEDED, limit=5)
        return [line.job_id for line in found.lines], [job.job_id for job in jobs], found.looked_from

    ours, theirs, looked_from = read(scene, look)
    assert ours == theirs
    assert looked_from == ours[-1]


def test_a_job_that_follows_another_links_to_it_and_shows_its_deadline(ledger_url: str) -> None:
    with Ledger(ledger_url, create=False) as ledger:
        first = ledger.submit("noop", {}).job_id
        second = ledger.submit(ledger.operations.get("noop").call(), after=[first]).job_id  # type: ignore[union-attr]
        with ledger.store.reading() as reading:
            view = job_view(reading, second, ledger.store.now())
    assert view.follows is not None
    assert (view.follows.parents, view.follows.open) == (1, ((first, "pending"),))
    assert f"/jobs/{first}" in {step.href for step in view.steps if step}
    assert view.deadline_at is None


def test_times_of_submission_become_ids(scene: Made) -> None:
    def look(reading: Reading, _: datetime) -> tuple[int, int, list[datetime]]:
        moment = NOW - timedelta(minutes=10)
        first = first_job_since(reading, moment)
        jobs = reading.jobs.get_many([first - 1, first])
        later = first_job_since(reading, NOW + timedelta(days=1))
        return first, later, [job.created_at for job in sorted(jobs, key=lambda job: job.job_id)]

    first, after, (before, at) = read(scene, look)
    assert before < NOW - timedelta(minutes=10) <= at
    assert 1 < first < after == 577


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "dead"},
        {"before": "-1"},
        {"before": "9" * 30},
        {"queue": "x" * 201},
        {"code": "\x00"},
        {"before": "٣"},
    ],
)
def test_filters_that_are_not_valid_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(InputError):
        job_query(wrong)


def test_a_job_that_is_retried_shows_its_attempts_its_time_and_that_nothing_took_effect(scene: Made) -> None:
    view = read(scene, lambda r, now: job_view(r, scene[1].retried, now))
    assert (view.job.state, view.tone, view.effect.applied) == (JobState.PENDING, "pending", False)
    assert [segment.label for segment in view.ribbon.segments][:4] == ["waited", "attempt 1", "backoff", "attempt 2"]
    assert [segment.failed for segment in view.ribbon.segments][:4] == [False, True, False, True]
    found = [(one.execution.attempt, one.execution.error_code) for one in view.attempts]
    assert found == [(1, "connection_error"), (2, "connection_error")]
    assert view.attempts[0].traceback is not None
    assert view.payload is not None
    assert "tok_4242" not in view.payload.text
    assert view.payload.note.startswith("1 value hidden")
    walked = [edge.labels[0].text for edge in view.graph.edges if edge.walked and edge.labels]
    assert walked == ["submit", f"claim {TIMES}2", f"fail {TIMES}2", f"retry {TIMES}2"]
    assert [row.event for row in view.history if row.of == "job"] == ["retry", "claim", "retry", "claim", "submit"]
    assert [act.href for act in view.acts] == [f"/jobs/{scene[1].retried}/{act}" for act in ("cancel", "quarantine")]


def test_a_job_that_succeeded_took_effect_once(scene: Made) -> None:
    view = read(scene, lambda r, now: job_view(r, scene[1].succeeded, now))
    assert (view.effect.applied, view.acts, view.tone) == (True, (), "succeeded")
    assert view.result is not None
    assert '"receipt"' in view.result.text


def test_the_next_step_of_a_job_is_a_page(scene: Made) -> None:
    ids = scene[1]

    def look(job_id: int) -> NextStep | None:
        return read(scene, lambda reading, now: job_view(reading, job_id, now)).steps[0]

    steps = {job_id: look(job_id) for job_id in (ids.held, ids.failed, ids.quarantined, ids.running)}
    assert {job_id: step and step.href for job_id, step in steps.items()} == {
        ids.held: "/switches/operation%3Amail.send/lift",
        ids.failed: "/replays/new?operation=nodd.ingest&code=timeout_error&since=7d+ago",
        ids.quarantined: f"/jobs/{ids.quarantined}/release",
        ids.running: None,
    }


def test_a_job_as_it_was_after_a_move(scene: Made) -> None:
    job_id = scene[1].retried
    now = read(scene, lambda r, now: job_view(r, job_id, now))
    then = read(scene, lambda r, at: job_view(r, job_id, at, move=2))
    assert (now.move, len(now.moves)) == (5, 5)
    assert (then.job.state, then.move, then.explanation, then.acts) == (JobState.RUNNING, 2, None, ())
    assert read(scene, lambda r, at: job_view(r, job_id, at, move=5)).at is None
    with pytest.raises(InputError):
        read(scene, lambda r, at: job_view(r, job_id, at, move=6))
    with pytest.raises(JobNotFoundError):
        read(scene, lambda r, at: job_view(r, 999_999, at))


# ---------------------------------------------------------------------------------------------------------------------
# Failures


def plain(message: str) -> str:
    """Return the pattern of a message with brackets around the kinds of what differs."""
    return pattern_of(message).translate({ord(OPENS): "[", ord(CLOSES): "]"})


def test_messages_that_differ_only_in_values_have_one_pattern() -> None:
    texts = [
        "s3://noaa-goes19/ABI-L2/001/1.nc did not answer within 26 s",
        "s3://noaa-goes19/ABI-L2/999/7.nc did not answer within 5.5 s",
    ]
    assert {plain(text) for text in texts} == {"s3://noaa-goes19/[key] did not answer within [n] s"}
    assert plain("user 'ann' at 10.0.0.7:99 sent 0xdeadbeef") == "user [str] at [ip] sent [hex]"
    assert plain("2026-11-15T12:00:00Z: /var/lib/x is gone") == "[time]: [path] is gone"
    assert plain("bad 3f2b1c9e-1111-4222-8333-444455556666") == "bad [uuid]"
    assert plain("to k@example.org\nsecond line") == "to [email]"
    assert pattern_of(None) == ""
    assert len(pattern_of("x" * 900)) == 200


def test_failures_are_grouped_by_operation_code_and_pattern(scene: Made) -> None:
    groups = read(scene, failure_groups)
    [group] = groups.groups
    assert (group.operation, group.code, group.jobs, group.queues) == (
        "nodd.ingest",
        "timeout_error",
        55,
        ("goes-abi",),
    )
    assert group.hash == group_hash("nodd.ingest", "timeout_error", group.pattern)
    assert (group.last_hour, groups.jobs, groups.cut) == (55, 55, False)
    page = read(scene, lambda r, _: group_page(r, groups, group.hash))
    assert [job.job_id for job in page.samples] == sorted(group.samples)
    with pytest.raises(RecordNotFoundError):
        read(scene, lambda r, _: group_page(r, groups, "000000000000"))


# ---------------------------------------------------------------------------------------------------------------------
# Queues, workers, schedules, switches, grants, quarantine


def test_one_queue(scene: Made) -> None:
    groups = read(scene, failure_groups)
    view = read(scene, lambda r, now: queue_view(r, "goes-abi", groups, now))
    assert [row.operation for row in view.operations] == ["nodd.ingest"]
    assert view.operations[0].counts["failed"] == 55
    assert [worker.worker_id for worker in view.workers] == ["ingest-2/41c0", "ingest-3/9be2"]
    assert (len(view.held), len(view.groups), len(view.newest)) == (4, 1, 10)
    with pytest.raises(QueueUnknownError):
        read(scene, lambda r, now: queue_view(r, "none", groups, now))


def test_workers_that_run_come_first(scene: Made) -> None:
    view = read(scene, workers_view)
    assert [line.state for line in view.lines[:4]] == ["running", "running", "running", "stopped"]
    assert (view.running, view.slots, view.held, view.expired) == (3, 16, 4, 0)
    quiet = read(scene, lambda r, now: workers_view(r, now + timedelta(seconds=SILENT_S + 0.1)))
    assert (quiet.running, [line.state for line in quiet.lines[:3]]) == (3, ["silent"] * 3)
    late = read(scene, lambda r, now: workers_view(r, now + timedelta(seconds=60)))
    assert (late.running, late.expired) == (0, 4)
    assert late.lines[0].state == "lost"
    stranded = read(scene, lambda r, now: workers_view(r, now, queue="hrrr"))
    assert [line.worker.worker_id for line in stranded.lines] == ["old-1/0001"]


def test_schedules_with_their_next_ticks(scene: Made) -> None:
    rows = read(scene, schedule_rows)
    assert [row.name for row in rows] == ["sweep", "nightly", "monthly"]
    assert [tick.isoformat() for tick in rows[1].next_at] == [
        "2026-11-17T07:00:00+00:00", "2026-11-18T07:00:00+00:00", "2026-11-19T07:00:00+00:00",
    ]  # fmt: skip
    assert rows[2].next_at == ()


def test_switches_grants_and_quarantine(scene: Made) -> None:
    [switch] = read(scene, switches_view).rows
    assert (switch.switch.name, switch.on, switch.held) == ("operation:mail.send", True, 40)
    grants = read(scene, grants_view)
    assert [(row.grant.grant_id, row.words) for row in grants.rows] == [(2, "approved"), (1, "waits for approval")]
    assert [row.grant.grant_id for row in grants.drafts] == [1]
    late = read(scene, lambda r, now: grant_view(r, 1, now + timedelta(hours=3)))
    assert late.row.words == "expired"
    assert ("executor", "eve") in late.scope
    view = read(scene, lambda r, now: quarantine_view(r, {}, now))
    assert (view.total, len(view.lines)) == (5, 4)
    assert view.statistics is not None
    assert (view.statistics.total, view.statistics.cancelled) == (4, 1)
    assert len(read(scene, lambda r, now: quarantine_view(r, {"cancelled": "yes"}, now)).lines) == 5


# ---------------------------------------------------------------------------------------------------------------------
# Replays


def test_a_draft_has_absolute_times_and_its_dry_run_writes_nothing(scene: Made) -> None:
    ledger, made = scene
    draft = draft_of({"operation": "nodd.ingest", "since": "7d ago"}, made.clock())
    assert (draft.since, draft.until) == ("2026-11-09T14:31:28Z", "2026-11-16T14:32:00Z")
    before = read(scene, lambda r, _: r.counts.current())
    look = replay_look(ledger.store, draft, actor="ann")
    assert (look.run.total, look.run.ok, look.authorised) == (55, True, True)
    assert look.attempts == ((1, 55),)
    assert look.histogram is not None
    assert sum(bin_.n for bin_ in look.histogram.bins) == 55
    assert look.run.candidates_hash == replay_look(ledger.store, draft, actor="ann").run.candidates_hash
    assert read(scene, lambda r, _: r.counts.current()) == before
    for wrong in ({"since": "tomorrow-ish"}, {"since": "1h ago", "until": "2h ago"}, {"jobs": "x"}, {"limit": "0"}):
        with pytest.raises(InputError):
            draft_of(wrong, made.clock())


def test_a_run_shows_what_became_of_its_jobs(scene: Made) -> None:
    ledger, made = scene
    assert made.replay is not None
    view = run_view(ledger.store, made.replay, made.clock())
    assert (view.report.state, view.report.replayed, view.share, view.tone) == ("done", 5, 1.0, "succeeded")
    assert view.outcomes == (("pending", 5),)


# ---------------------------------------------------------------------------------------------------------------------
# Proof, machines, find


def test_the_journal_is_a_bounded_page(scene: Made) -> None:
    view = read(scene, lambda r, now: journal_view(r, {"machine": "GRANT"}, now))
    assert [(entry.row.event, entry.href) for entry in view.entries] == [
        ("approve", "/grants/2"), ("request", "/grants/2"), ("request", "/grants/1"),
    ]  # fmt: skip
    everything = read(scene, lambda r, now: journal_view(r, {}, now))
    assert len(everything.entries) == 100
    assert everything.older == f"/journal?before={everything.looked_to}"
    with pytest.raises(InputError):
        read(scene, lambda r, now: journal_view(r, {"machine": "X"}, now))


def test_seals_duties_and_quick_checks(scene: Made) -> None:
    ledger, made = scene
    view = checks_view(ledger.store, made.clock(), run=True)
    assert view.report is not None
    assert view.report.ok
    assert view.seal is not None
    assert {duty.name for duty in view.duties if duty.at is not None} == {"fold", "seal", "check"}
    assert checks_view(ledger.store, made.clock(), run=False).report is None


def test_every_edge_of_every_machine_is_drawn(scene: Made) -> None:
    view = read(scene, lambda r, _: machines_view(r))
    assert len(view.job.edges) == len(JOB.edges)
    assert {state.name: state.count for state in view.job.states}["failed"] == 55
    assert {one.name for one in view.drawings} >= {"EXECUTION", "GRANT", "SWITCH", "PROCEDURE"}
    assert all(len(one.arrows) == one.edges and one.states for one in view.drawings)


def test_the_find_box_finds_indexed_things(scene: Made) -> None:
    ids = scene[1]

    def hits(word: str) -> list[tuple[str, str]]:
        return [(hit.kind, hit.href) for hit in read(scene, lambda r, _: find_hits(r, word))]

    assert hits(str(ids.failed)) == [("job", f"/jobs/{ids.failed}")]
    assert hits("order-99213/charge") == [("key", f"/jobs/{ids.retried}")]
    assert ("grant", "/grants/1") in hits("grant 1")
    assert hits("timeout_error")[0][0] == "error code"
    assert ("queue", "/queues/hrrr") in hits("hrr")
    assert ("operation", "/jobs?operation=nodd.ingest") in hits("INGEST")
    assert hits("") == hits("no such thing") == []


# ---------------------------------------------------------------------------------------------------------------------
# Charts and numbers


def test_a_sparkline_stacks_failures_on_top() -> None:
    line = sparkline([2, 0, 1], "x", [0, 0, 1])
    assert line.bars == "M0 23v-22h3v22M8 23v-11h3v11"
    assert line.failures == "M8 12v-11h3v11"
    assert sparkline([0, 0], "x").bars == ""


def test_levels_are_computed_backwards_from_the_present() -> None:
    minute = NOW.replace(second=0, microsecond=0)
    buckets = [
        JobMoves(minute, "a", "q", None, "pending", "submit", None, 5),
        JobMoves(minute, "a", "q", "pending", "running", "claim", None, 2),
        JobMoves(minute - timedelta(minutes=1), "a", "q", "running", "succeeded", "succeed", None, 3),
        JobMoves(minute - timedelta(minutes=90), "a", "q", "running", "failed", "fail", "boom", 9),
    ]
    activity = Activity(buckets, NOW)
    assert activity.level(JobState.PENDING, 10)[-3:] == [7, 7, 10]
    assert activity.done("q")[-2:] == [3, 0]
    assert sum(activity.failed("q")) == 0


def test_a_ribbon_fits_its_width_and_leaves_out_the_middle() -> None:
    drawn = ribbon([Span("w", "waited", 2.0**n, "14:00:00") for n in range(30)])
    assert (len(drawn.segments), drawn.left_out) == (11, 19)
    last = drawn.segments[-1]
    assert 900 < last.x + last.width <= 912


def test_words_of_durations() -> None:
    assert [exact_span(s) for s in (0.2, 3.14, 59.9, 748, 7260, 90_000)] == [
        "200 ms", "3.1 s", "59 s", "12 min 28 s", "2 h 1 min", "1 d 1 h",
    ]  # fmt: skip
    assert percentiles([]) == (None, None)
    assert percentiles([1.0]) == (1.0, 1.0)
    assert job_graph([(None, "pending")], "pending").label.endswith("now pending.")
