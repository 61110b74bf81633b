"""The audit logger: transitions from the journal, and a chain of operators' events in which any change is found."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.compat import (
    AuditEvent,
    AuditLogger,
    AuditProblem,
    JobStatus,
    StateMachineValidator,
)
from holdfast.compat.audit_chain import FILE_BYTES_MAX, GENESIS, RETENTION
from holdfast.core.digest import canonical, digest
from holdfast.core.errors import InputError, RefusedError, SealsBrokenError, StoreUnavailableError
from holdfast.testing import START, VirtualClock
from tests.compat.actor import job
from tests.compat.audit_run import AT, event
from tests.compat.conftest import Open
from tests.compat.support import put, rows
from tests.support.forkserver import ForkServer, shared_server
from tests.support.roles import noted

HASH = hashlib.sha256(b"secret").hexdigest()
FIRST = "audit-00000000000000000001.jsonl"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ledger(sqlite_url: str) -> Iterator[Ledger]:
    with Ledger(sqlite_url) as ledger:
        yield ledger


@pytest.fixture
def audit(ledger: Ledger, tmp_path: Path, clock: VirtualClock) -> AuditLogger:
    return AuditLogger(ledger, tmp_path / "audit", clock=clock)


@pytest.fixture
def file(audit: AuditLogger, tmp_path: Path) -> Path:
    """The file of a log with six events."""
    for n in range(1, 7):
        assert audit.log(event(n, metadata={"n": n})) == n
    return tmp_path / "audit" / FIRST


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with shared_server("tests.compat.audit_run") as server:
        yield server


# ---------------------------------------------------------------------------------------------------------------------
# One record of each transition


@pytest.mark.req("G-05", "G-12", "G-23")
def test_transitions_are_the_journals_and_are_not_written_twice(
    opened: Open, ledger_url: str, clock: VirtualClock, tmp_path: Path
) -> None:
    watcher = opened()
    audit = AuditLogger(watcher, tmp_path / "audit", clock=clock)
    queue = opened(StateMachineValidator(audit, clock=clock))
    queue.enqueue(job("a"))
    clock.advance(1)
    queue.claim("a")
    clock.advance(1)
    queue.mark_failed("a", error_code="timeout")
    queue.reschedule("a", operator="ada", reason="network is back")
    queue.cancel_job("a", operator="bob")
    put(queue, JobStatus.SUCCEEDED, "b")

    def audited(job_id: str | int) -> list[tuple[object, ...]]:
        return [
            (e.action, e.metadata["event"], e.metadata["operator"], e.metadata["reason"], e.attempt, e.timestamp)
            for e in audit.events(job_id)
        ]

    second, third = START + timedelta(seconds=1), START + timedelta(seconds=2)
    a = [
        ("job_enqueued", "job_enqueued", None, None, 0, START),
        ("transition_pending_to_running", "job_started", None, None, 1, second),
        ("transition_running_to_failed", "job_failed", None, None, 1, third),
        ("transition_failed_to_pending", "job_retry_scheduled", "ada", "network is back", 1, third),
        ("transition_pending_to_quarantined", "job_cancelled", "bob", None, 1, third),
    ]
    assert audited("a") == a
    assert [action for action, *_ in audited("b")][1:] == [
        "transition_pending_to_running",
        "transition_running_to_succeeded",
    ]
    [(ledger_id,)] = rows(ledger_url, "SELECT job_id FROM holdfast_calls WHERE key = 'a'")
    assert audited(ledger_id) == a
    assert {(e.source, e.status) for e in audit.events("a")} == {("state_machine", "validated")}
    assert audit.events("nobody") == []
    # None of it is in the files: there is no second log that could differ from the journal.
    assert audit.head() == (0, GENESIS)
    assert list((tmp_path / "audit").glob("*.jsonl")) == []
    for name in ("job_started", "state_transition", "transition_running_to_succeeded"):
        assert audit.log(AuditEvent(job_id="b", source="state_machine", action=name, status="ok", timestamp=AT)) is None
    never = AuditEvent(
        job_id="b", source="state_machine", action="transition_running_to_failed", status="ok", timestamp=AT
    )
    with pytest.raises(RefusedError):
        audit.log(never)
    assert audit.head() == (0, GENESIS)


@pytest.mark.req("G-23")
def test_events_of_an_operator_are_listed_with_the_transitions(
    opened: Open, clock: VirtualClock, tmp_path: Path
) -> None:
    queue = opened()
    audit = AuditLogger(queue, tmp_path, clock=clock)
    put(queue, JobStatus.PENDING, "a")
    clock.advance(5)
    consent = AuditEvent(
        job_id="a",
        source="operator_cli",
        action="jobs_cancel",
        status="ok",
        timestamp=clock(),
        sha256=HASH,
        redacted_path="~/…/notes.md",
        path_hash=HASH[:16],
        attempt=0,
        operator_action="cancel",
        consent_token_hash=HASH,
        metadata={"ticket": "OPS-7", "nested": [1, None, "é"]},
    )
    assert audit.record(consent) == 1
    clock.advance(5)
    queue.cancel_job("a", operator="ada")
    assert [e.action for e in audit.events("a")] == ["job_enqueued", "jobs_cancel", "transition_pending_to_quarantined"]
    assert audit.events("a")[1] == consent
    # An event may name a transition that happened, and no other.
    kept = AuditEvent(
        job_id="a",
        source="operator_cli",
        action="transition_pending_to_quarantined",
        status="ok",
        timestamp=clock(),
        consent_token_hash=HASH,
    )
    assert audit.log(kept) == 2
    for false in ("transition_pending_to_succeeded", "transition_quarantined_to_pending"):
        with pytest.raises(RefusedError) as caught:
            audit.log(AuditEvent(job_id="a", source="cli", action=false, status="ok", timestamp=clock()))
        assert caught.value.context == {"job_id": "a", "action": false}
    with pytest.raises(RefusedError) as caught:
        audit.log(AuditEvent(job_id="b", source="cli", action=kept.action, status="ok", timestamp=clock()))
    assert caught.value.context == {"job_id": "b", "action": "transition_pending_to_quarantined"}
    invalid = AuditEvent(
        job_id="a", source="state_machine", action="state_transition_invalid", status="refused", timestamp=clock()
    )
    assert audit.log(invalid) == 3
    assert audit.verify()


# ---------------------------------------------------------------------------------------------------------------------
# The chain


@pytest.mark.req("G-23")
def test_the_hash_chain_can_be_recomputed(audit: AuditLogger, file: Path) -> None:
    report = audit.verify()
    assert (bool(report), report.events, report.problems) == (True, 6, ())
    previous = GENESIS
    for n, line in enumerate(file.read_text().splitlines(), start=1):
        record = json.loads(line)
        assert list(record) == ["chain_hash", "chain_prev", "event", "logged_at", "seq"]
        assert (record["seq"], record["chain_prev"], record["event"]["metadata"]) == (n, previous, {"n": n})
        previous = record.pop("chain_hash")
        text = json.dumps(record, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        assert previous == hashlib.sha256(text.encode()).hexdigest()
    assert audit.head() == (6, previous)
    assert file.stat().st_mode & 0o777 == 0o600


def tampered(file: Path, lines: list[bytes]) -> None:
    file.write_bytes(b"".join(lines))


def rehashed(line: bytes, **changes: Any) -> bytes:
    """Return a line with other contents and a hash that fits them."""
    record = {**json.loads(line), **changes}
    record.pop("chain_hash")
    return (canonical({**record, "chain_hash": digest(record)}) + "\n").encode()


TAMPERING: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int]] = {
    "an edit": (lambda lines: [*lines[:2], lines[2].replace(b'"n":3', b'"n":9'), *lines[3:]], 3),
    "an edit with its hash": (lambda lines: [*lines[:2], rehashed(lines[2], logged_at="x"), *lines[3:]], 4),
    "an edit of the last with its hash": (lambda lines: [*lines[:5], rehashed(lines[5], logged_at="x")], 6),
    "white space": (lambda lines: [*lines[:2], lines[2].replace(b'"seq":3', b'"seq": 3'), *lines[3:]], 3),
    "the first removed": (lambda lines: lines[1:], 1),
    "one removed": (lambda lines: [*lines[:3], *lines[4:]], 4),
    "the last removed": (lambda lines: lines[:5], 5),
    "the last three removed": (lambda lines: lines[:3], 3),
    "all removed": (lambda _lines: [], 1),
    "one repeated": (lambda lines: [*lines[:4], lines[3], *lines[4:]], 5),
    "the last repeated": (lambda lines: [*lines, lines[5]], 7),
    "one inserted": (lambda lines: [*lines[:3], rehashed(lines[3], seq=4, logged_at="x"), *lines[3:]], 5),
    "one appended": (
        lambda lines: [*lines, rehashed(lines[5], seq=7, chain_prev=json.loads(lines[5])["chain_hash"])],
        7,
    ),
    "two swapped": (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], 3),
    "garbage": (lambda lines: [*lines[:3], b"garbage\n", *lines[3:]], 4),
    "an empty line": (lambda lines: [*lines[:3], b"\n", *lines[3:]], 4),
    "not UTF-8": (lambda lines: [*lines[:3], b"\xff\xfe\n", *lines[3:]], 4),
    "deep nesting": (lambda lines: [*lines[:3], b"[" * 100_000 + b"\n", *lines[3:]], 4),
}


@pytest.mark.req("G-23")
@pytest.mark.parametrize("kind", TAMPERING)
def test_tampering_is_found_and_located(audit: AuditLogger, file: Path, kind: str) -> None:
    change, line = TAMPERING[kind]
    tampered(file, change(file.read_bytes().splitlines(keepends=True)))
    report = audit.verify()
    assert not report
    assert (report.problems[0].file, report.problems[0].line) == (FIRST, line), report


@pytest.mark.req("G-23")
@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_any_changed_byte_and_any_other_order_is_found(audit: AuditLogger, file: Path, step: int) -> None:
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    ends = [sum(map(len, lines[:n])) for n in range(1, 7)]
    for offset in range(0, len(whole), step):
        for flip in (0x01, 0x20):
            file.write_bytes(whole[:offset] + bytes([whole[offset] ^ flip]) + whole[offset + 1 :])
            problems = audit.verify().problems
            assert problems, f"byte {offset} ^ {flip}"
            at = next(n for n, end in enumerate(ends, start=1) if offset < end)
            assert problems[0].line in (at, at + 1), (offset, problems)
    for order in list(permutations(range(6)))[1::step]:
        tampered(file, [lines[n] for n in order])
        assert not audit.verify()
    file.write_bytes(whole)
    assert audit.verify()


@pytest.mark.req("G-23")
def test_a_changed_file_or_head_is_found(ledger: Ledger, tmp_path: Path, clock: VirtualClock) -> None:
    whole = tmp_path / "whole"
    audit = AuditLogger(ledger, whole, clock=clock, file_bytes_max=900)
    for n in range(1, 10):
        audit.log(event(n))
    names = sorted(path.name for path in whole.glob("audit-*"))
    assert len(names) >= 3

    def problems(change: Callable[[Path], object]) -> list[AuditProblem]:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole, copy)
        change(copy)
        return list(AuditLogger(ledger, copy, clock=clock, file_bytes_max=900).verify().problems)

    def edit_head(directory: Path, **changes: object) -> None:
        head = json.loads((directory / "head.json").read_text())
        (directory / "head.json").write_text(json.dumps({**head, **changes}))

    assert problems(lambda _: None) == []
    for n, name in enumerate(names):
        [first, *_] = problems(lambda copy: (copy / name).unlink())  # noqa: B023 - called at once
        later = n + 1 < len(names)
        assert first.file == (names[n + 1] if later else names[n - 1])
        [first, *_] = problems(lambda copy: (copy / name).rename(copy / name.replace("audit-0", "audit-9")))  # noqa: B023
        assert first.what
    assert problems(lambda copy: (copy / "head.json").unlink())[0].file == "head.json"
    assert problems(lambda copy: (copy / "head.json").write_text("{"))[0].file == "head.json"
    assert problems(lambda copy: edit_head(copy, extra=1))[0].file == "head.json"
    for changes in ({"seq": 8}, {"seq": 10}, {"chain_hash": GENESIS}, {"first_seq": 2}, {"first_prev": HASH}):
        assert problems(lambda copy: edit_head(copy, **changes)), changes  # noqa: B023
    # The whole log and its head can be rewritten: only a head saved elsewhere shows that.
    kept = audit.head()
    other = AuditLogger(ledger, tmp_path / "other", clock=clock, file_bytes_max=900)
    for n in range(1, 10):
        other.log(event(n, status="forged"))
    assert other.verify()
    assert not other.verify(kept)
    assert audit.verify(kept)
    audit.log(event(10))
    assert audit.verify(kept)
    for path in tmp_path.glob("other/*"):
        path.unlink()
    other.log(event(1))
    assert [problem.what for problem in other.verify(kept).problems] == ["ends the log before event 9, which is known"]


@pytest.mark.req("G-23")
@pytest.mark.parametrize("change", [lambda text: text + b"x\n", lambda text: text[:-20] + b"x" * 20, lambda _: b""])
def test_nothing_is_added_to_a_log_that_was_changed_at_its_end(
    audit: AuditLogger, file: Path, change: Callable[[bytes], bytes]
) -> None:
    changed = change(file.read_bytes())
    file.write_bytes(changed)
    with pytest.raises(SealsBrokenError) as caught:
        audit.log(event(7))
    assert (caught.value.code, caught.value.context["file"]) == ("seals_broken", FIRST)
    assert file.read_bytes() == changed
    (file.parent / "head.json").unlink()
    with pytest.raises(SealsBrokenError):
        audit.log(event(7))


def test_events_of_a_damaged_log_are_not_passed_over(audit: AuditLogger, file: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    tampered(file, [lines[0], b"garbage\n", *lines[2:]])
    with pytest.raises(SealsBrokenError) as caught:
        audit.events("job-5")
    assert caught.value.context == {"file": FIRST, "line": 2}


# ---------------------------------------------------------------------------------------------------------------------
# Crashes


@pytest.mark.req("G-23")
def test_a_torn_last_line_is_reported_and_repaired(
    audit: AuditLogger, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = file.read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    for size in (*range(start, len(whole), 25), len(whole) - 1):
        file.write_bytes(whole[:size])
        report = audit.verify()
        assert [problem.line for problem in report.problems] == ([5] if size == start else [6, 6])
        assert report.problems[0].what == (
            "is torn"
            if size > start
            else "is not followed by event 6, which the head has: the next append writes it again"
        )
        assert audit.events("job-6")[0].metadata == {"n": 6}  # it is not lost
    with caplog.at_level(logging.WARNING):
        assert audit.log(event(7)) == 7
    size = len(whole) - start
    assert [record.args for record in caplog.records] == [(size - 1, size)]
    assert file.read_bytes().startswith(whole)
    assert (audit.verify().events, audit.verify().problems) == (7, ())


@pytest.mark.req("G-23")
@pytest.mark.parametrize("file_bytes_max", [FILE_BYTES_MAX, 1])
def test_a_kill_at_any_step_loses_no_event_that_was_answered(
    server: ForkServer, ledger: Ledger, sqlite_url: str, tmp_path: Path, file_bytes_max: int
) -> None:
    ledger.queues()  # makes it

    def killed(at: int | None) -> tuple[Path, list[str]]:
        directory, notes = tmp_path / f"audit-{at}", tmp_path / f"notes-{at}"
        child = server.spawn(
            "tests.compat.audit_run:log_and_die",
            url=sqlite_url,
            directory=str(directory),
            notes=str(notes),
            kill_at=at,
            file_bytes_max=file_bytes_max,
        )
        assert child.wait(30) == (0 if at is None else -9), server.log
        return directory, noted(notes)

    *_, last = killed(None)[1]
    steps = int(last.split()[1])
    assert steps > 20
    for at in range(1, steps + 1):
        directory, answered = killed(at)
        audit = AuditLogger(ledger, directory, file_bytes_max=file_bytes_max)
        assert answered == [str(n) for n in range(1, len(answered) + 1)]
        events = [audit.events(f"job-{n}") for n in range(3)]
        assert [len(found) for found in events[: len(answered)]] == [1] * len(answered)
        before = audit.verify()
        assert all("torn" in p.what or "which the head has" in p.what for p in before.problems), before
        number = audit.log(event("after"))
        assert number in (len(answered) + 1, len(answered) + 2)
        after = audit.verify()
        assert (after.events, after.problems) == (number, ())
        assert [len(audit.events(f"job-{n}")) for n in range(3)] == [int(n < (number or 0) - 1) for n in range(3)]


@pytest.mark.req("G-23")
def test_processes_take_turns(server: ForkServer, ledger: Ledger, sqlite_url: str, tmp_path: Path) -> None:
    ledger.queues()
    children = [
        server.spawn(
            "tests.compat.audit_run:log_many",
            url=sqlite_url,
            directory=str(tmp_path / "audit"),
            name=name,
            n=40,
            notes=str(tmp_path / name),
            file_bytes_max=3000,
        )
        for name in ("one", "two", "three")
    ]
    assert [child.wait(60) for child in children] == [0, 0, 0], server.log
    numbers = [int(line) for name in ("one", "two", "three") for line in noted(tmp_path / name)]
    assert sorted(numbers) == list(range(1, 121))
    audit = AuditLogger(ledger, tmp_path / "audit")
    assert (audit.verify().events, audit.verify().problems) == (120, ())


# ---------------------------------------------------------------------------------------------------------------------
# Rotation and retention


@pytest.mark.req("G-23")
def test_a_full_file_is_followed_by_another(ledger: Ledger, tmp_path: Path, clock: VirtualClock) -> None:
    assert FILE_BYTES_MAX == 5 * 1024 * 1024
    assert timedelta(days=30) == RETENTION
    audit = AuditLogger(ledger, tmp_path, clock=clock)
    large = {"text": "x" * 700_000}
    for n in range(1, 17):
        audit.log(event(n, metadata=large))
    files = sorted(tmp_path.glob("audit-*.jsonl"))
    assert [path.name for path in files] == [FIRST, FIRST.replace("01.", "08."), FIRST.replace("01.", "15.")]
    assert all(path.stat().st_size <= FILE_BYTES_MAX for path in files)
    assert [path.stat().st_size + 700_000 > FILE_BYTES_MAX for path in files] == [True, True, False]
    report = audit.verify()
    assert (report.events, report.problems) == (16, ())
    assert audit.events("job-15")[0].metadata == large


@pytest.mark.req("G-23")
def test_files_are_kept_for_thirty_days(ledger: Ledger, tmp_path: Path, clock: VirtualClock) -> None:
    audit = AuditLogger(ledger, tmp_path, clock=clock, file_bytes_max=1)  # a file for each event
    for n in range(1, 41):
        audit.log(event(n))
        clock.advance(86_400)

    def kept() -> list[int]:
        return [int(path.stem.removeprefix("audit-")) for path in sorted(tmp_path.glob("audit-*.jsonl"))]

    # The newest was logged when the tenth was exactly thirty days old: no older than that is there.
    assert kept() == list(range(10, 41))
    report = audit.verify()
    assert (report.events, report.problems) == (31, ())
    assert audit.events("job-9") == []
    assert len(audit.events("job-10")) == 1
    # What was changed is not removed, however old: it is evidence.
    changed = tmp_path / FIRST.replace("01.", "12.")
    changed.write_bytes(changed.read_bytes().replace(b'"ok"', b'"no"'))
    clock.advance(365 * 86_400)
    audit.log(event(41))
    assert kept() == list(range(12, 42))
    assert [(problem.file, problem.line) for problem in audit.verify().problems] == [(changed.name, 1)]


@pytest.mark.req("G-23")
def test_a_purge_that_was_cut_short_is_finished_by_the_next(
    ledger: Ledger, tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = AuditLogger(ledger, tmp_path, clock=clock, file_bytes_max=1)
    audit.log(event(1))
    audit.log(event(2))
    clock.advance(31 * 86_400)

    def died(path: Path, **_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", died)
        with pytest.raises(KeyboardInterrupt):
            audit.log(event(3))
    assert len(list(tmp_path.glob("audit-*.jsonl"))) == 3
    assert (audit.verify().events, audit.verify().problems) == (2, ())  # the head says where the chain begins
    audit.log(event(4))
    assert sorted(path.name for path in tmp_path.glob("audit-*.jsonl")) == [
        FIRST.replace("01.", f"0{n}.") for n in (3, 4)
    ]
    assert audit.verify()


# ---------------------------------------------------------------------------------------------------------------------
# Bad input


LOOP: dict[str, Any] = {}
LOOP["itself"] = LOOP


@pytest.mark.req("G-23")
@pytest.mark.parametrize(
    "given",
    [
        {"source": ""},
        {"action": ""},
        {"status": ""},
        {"timestamp": AT.replace(tzinfo=None)},
        {"sha256": "not a hash"},
        {"path_hash": "/home/ada/notes.md"},
        {"consent_token_hash": "the token itself"},
        {"metadata": {"when": float("nan")}},
        {"metadata": {"half": "\ud800"}},
        {"metadata": {"x": object()}},
        {"metadata": {1: "a number as a name"}},
        {"metadata": "no mapping"},
        {"metadata": LOOP},
        {"timestamp": "2026-03-14"},
        {"sha256": 7},
        {"action": 7},
        {"attempt": "first"},
        {"metadata": {"deep": json.loads("[" * 70 + "]" * 70)}},
    ],
)
def test_bad_input_is_a_typed_error_and_leaves_nothing(
    audit: AuditLogger, tmp_path: Path, given: dict[str, Any]
) -> None:
    with pytest.raises(InputError):
        audit.log(event(1, **given))
    assert audit.head() == (0, GENESIS)
    assert [path.name for path in (tmp_path / "audit").iterdir()] == ["audit.lock"]
    assert audit.log(event(1)) == 1
    assert audit.verify()


def test_a_summary_of_an_error_is_cut(audit: AuditLogger) -> None:
    audit.log(event(1, metadata={"error_summary": "e" * 500, "kept": "k" * 500}))
    assert audit.events("job-1")[0].metadata == {"error_summary": "e" * 200, "kept": "k" * 500}


def test_a_directory_that_cannot_be_used_is_a_typed_error(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailableError):
        AuditLogger(ledger, tmp_path / "file")
    audit = AuditLogger(ledger, tmp_path / "audit")
    (tmp_path / "audit").rmdir()
    with pytest.raises(StoreUnavailableError):
        audit.log(event(1))
    with pytest.raises(InputError):
        AuditLogger(ledger, tmp_path, file_bytes_max=0)
