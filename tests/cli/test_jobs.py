"""`holdfast jobs`, `show` and `stats`."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.cli.output import age
from holdfast.core.commands import Fail
from holdfast.core.journal import JournalRow
from holdfast.core.records import Execution
from holdfast.store import Lease, Submission, open_store
from holdfast.store.verbs.tracebacks import keep_tracebacks
from tests.cli.commands import PROGRAM, at, clean_environment, holdfast
from tests.cli.conftest import WORKER

JOB_FIELDS = [
    *("job_id", "operation", "client", "key", "queue", "state", "version", "attempts", "max_attempts", "priority"),
    *("run_at", "last_error_code", "last_error_message", "replay_reason", "result", "created_at", "updated_at"),
]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
STATES = ["pending", "running", "succeeded", "failed", "quarantined"]


# ---------------------------------------------------------------------------------------------------------------------
# jobs


def test_a_job_shows_exactly_these_fields(history: str) -> None:
    jobs = holdfast("jobs", "--db", history, "--json").json
    assert [job["job_id"] for job in jobs] == [5, 4, 3, 2, 1]
    for job in jobs:
        assert list(job) == JOB_FIELDS
        assert all(TIME.fullmatch(job[name]) for name in ("run_at", "created_at", "updated_at"))
    first = jobs[-1]
    created, updated = first.pop("created_at"), first.pop("updated_at")
    assert created < updated
    assert first == {
        "job_id": 1,
        "operation": "thumbnail",
        "client": "web",
        "key": "a.png@64",
        "queue": "default",
        "state": "succeeded",
        "version": 3,
        "attempts": 1,
        "max_attempts": 5,
        "priority": 0,
        "run_at": created,
        "last_error_code": None,
        "last_error_message": None,
        "replay_reason": None,
        "result": {"bytes": 312},
    }
    failed = jobs[3]
    assert (failed["state"], failed["attempts"], failed["last_error_code"]) == ("failed", 2, "io_error")
    assert failed["last_error_message"] == "the disk said no"


@pytest.mark.parametrize(
    "options, expected",
    [
        (["--state", "pending"], [5]),
        (["--state", "quarantined"], [3]),
        (["--operation", "echo"], [4, 3, 2]),
        (["--operation", "echo", "--state", "failed"], [2]),
        (["--queue", "slow"], [3]),
        (["--client", "web"], [2, 1]),
        (["--limit", "2"], [5, 4]),
        (["--limit", "2", "--before", "4"], [3, 2]),
        (["--before", "1"], []),
        (["--client", "nobody"], []),
    ],
)
def test_the_filters(history: str, options: list[str], expected: list[int]) -> None:
    assert [job["job_id"] for job in holdfast("jobs", *options, "--db", history, "--json").json] == expected


def test_jobs_for_people(history: str) -> None:
    lines = [re.split(r" {2,}", line.strip()) for line in holdfast("jobs", "--db", history).out.splitlines()]
    assert lines[0] == ["ID", "STATE", "OPERATION", "QUEUE", "CLIENT", "KEY", "ATTEMPTS", "AGE", "NOTE"]
    rows = {row[0]: row for row in lines[2:]}
    assert list(rows) == ["5", "4", "3", "2", "1"]
    assert rows["1"][:7] == ["1", "succeeded", "thumbnail", "default", "web", "a.png@64", "1/5"]
    assert rows["2"][-1] == "io_error"
    assert rows["3"][-1] == "cancelled"
    assert re.fullmatch(r"due in \d+ d", rows["5"][-1])
    more = holdfast("jobs", "--limit", "2", "--db", history).out.splitlines()
    assert more[-1].endswith("--before 4")
    assert holdfast("jobs", "--client", "nobody", "--db", history, "--json").json == []


def test_nothing_is_shortened_on_a_narrow_terminal(sqlite_ledger: str) -> None:
    key = "s3://bucket/" + "0123456789" * 20
    holdfast("submit", "noop", "--key", key, "--client", "a-client-with-a-long-name", "--db", sqlite_ledger)
    reader, terminal = pty.openpty()
    os.set_blocking(reader, True)
    child = subprocess.Popen(
        [*PROGRAM, "jobs", "--db", sqlite_ledger],
        stdout=terminal,
        stderr=subprocess.PIPE,
        env=clean_environment() | {"COLUMNS": "40", "TERM": "xterm-256color"},
    )
    os.close(terminal)
    raw = b""
    # The end of a terminal is an error to its reader, on Linux.
    try:
        while part := os.read(reader, 65536):
            raw += part
    except OSError:
        pass
    os.close(reader)
    assert child.wait(timeout=60) == 0
    assert child.communicate()[1] == b""
    text = raw.decode()
    assert "\x1b[36mpending" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    head, _, *rows = plain.splitlines()
    assert head.split() == ["ID", "STATE", "OPERATION", "QUEUE", "CLIENT", "KEY", "ATTEMPTS", "AGE"]
    assert {"1", "pending", "noop", "default", "a-client-with-a-long-name"} <= set(rows[0].split())
    column = head.index("KEY")
    assert "".join(row[column:].split()[0] for row in rows) == key


# ---------------------------------------------------------------------------------------------------------------------
# show


def test_show_prints_the_whole_history(history: str) -> None:
    shown = holdfast("show", "2", "--db", history, "--json").json
    assert list(shown) == ["job", "executions", "journal", "payload", "tracebacks"]
    assert list(shown["job"]) == JOB_FIELDS
    assert [list(execution) for execution in shown["executions"]] == [list(Execution.__struct_fields__)] * 2
    assert [execution["status"] for execution in shown["executions"]] == ["ABORTED", "ABORTED"]
    assert [execution["attempt"] for execution in shown["executions"]] == [1, 2]
    assert all(TIME.fullmatch(execution["lease_expires_at"]) for execution in shown["executions"])
    assert all(list(row) == list(JournalRow.__struct_fields__) for row in shown["journal"])
    assert all(TIME.fullmatch(row["at"]) for row in shown["journal"])
    of_job = [
        (row["version"], row["source"], row["target"], row["event"])
        for row in shown["journal"]
        if row["machine"] == "JOB"
    ]
    assert of_job == [
        (1, None, "pending", "submit"),
        (2, "pending", "running", "claim"),
        (3, "running", "failed", "retry"),
        (4, "failed", "pending", "retry"),
        (5, "pending", "running", "claim"),
        (6, "running", "failed", "fail"),
    ]
    of_executions = [(row["source"], row["target"]) for row in shown["journal"] if row["machine"] == "EXECUTION"]
    assert of_executions == [(None, "LEASED"), ("LEASED", "IN_PROGRESS"), ("IN_PROGRESS", "ABORTED")] * 2
    assert [row["seq"] for row in shown["journal"]] == sorted(row["seq"] for row in shown["journal"])


def test_show_for_people(history: str) -> None:
    text = holdfast("show", "2", "--db", history).out
    head, executions, journal = text.split("\n\n")
    assert head.splitlines()[0] == "job 2 failed echo"
    facts = dict(re.split(r" {2,}", line.strip(), maxsplit=1) for line in head.splitlines()[1:])
    assert (facts["client"], facts["key"], facts["attempts"]) == ("web", "b", "2 of 2")
    assert facts["last error"] == "io_error: the disk said no"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \((now|\d+ s ago)\)", facts["created"])
    assert executions.splitlines()[0] == "executions"
    attempts = [re.split(r" {2,}", line.strip()) for line in executions.splitlines()[3:]]
    assert [row[:3] for row in attempts] == [["1", "ABORTED", WORKER], ["2", "ABORTED", WORKER]]
    assert [row[-1] for row in attempts] == ["io_error: the disk said no"] * 2
    assert journal.splitlines()[0] == "journal"
    assert "attempt 2   IN_PROGRESS → ABORTED" in journal
    assert "job         running → failed" in journal


def test_show_has_the_payload_without_secrets_and_where_it_failed(ledger: str) -> None:
    payload = {"path": "a.png", "options": [{"api_key": "k-1", "url": "https://ann:pw@example.org/"}]}
    with open_store(ledger) as store, store.transaction() as transaction:
        submission = Submission(operation="noop", payload=json.dumps(payload), client="web", max_attempts=1)
        [admission] = transaction.jobs.submit([submission])
        [attempt] = transaction.executions.claim(Lease(owner=WORKER, seconds=30, n=1, queues=("default",), begin=True))
        transaction.executions.move([(attempt, Fail(attempt.token, "io_error", "no"))], actor=WORKER)
        text = '  File "jobs.py", line 7, in noop\n    open()\nOSError: no'
        keep_tracebacks(transaction, [(admission.job_id, 1, text)])
    shown = holdfast("show", "1", "--db", ledger, "--json").json
    assert shown["payload"] == {"path": "a.png", "options": [{"api_key": "***", "url": "https://ann:***@example.org/"}]}
    assert shown["tracebacks"] == [{"attempt": 1, "where": "jobs.py:7 in noop", "text": text}]
    past = holdfast("show", "1", "--at", shown["job"]["created_at"], "--db", ledger, "--json").json
    assert (past["payload"], past["tracebacks"]) == (shown["payload"], [])
    hidden = holdfast("show", "1", "--no-payload", "--db", ledger, "--json").json
    assert hidden["payload"] is None
    people = holdfast("show", "1", "--db", ledger).out
    assert '"api_key":"***"' in people
    assert "jobs.py:7 in noop" in people
    assert "OSError" not in people
    assert "OSError: no" in holdfast("show", "1", "--traceback", "--no-payload", "--db", ledger).out
    explained = holdfast("explain", "1", "--db", ledger, "--json").json
    assert explained["findings"][0]["evidence"]["where"] == "jobs.py:7 in noop"


def test_a_grant_a_reason_and_a_cancel_are_in_the_timeline(history: str) -> None:
    journal = holdfast("show", "3", "--db", history).out.partition("journal\n")[2]
    last = re.split(r" {2,}", journal.splitlines()[-1].strip())
    assert last[1:] == ["job", "pending → quarantined", "cancel", "tests", "not wanted"]


def test_control_characters_of_the_data_do_not_reach_the_terminal(sqlite_ledger: str) -> None:
    with open_store(sqlite_ledger) as store, store.transaction() as transaction:
        submission = Submission(operation="noop", payload="{}", client="\x1b[31mred\x07", key="[bold]k[/bold]")
        transaction.jobs.submit([submission], actor="\x9b2J")
    for command in (["jobs"], ["show", "1"]):
        text = holdfast(*command, "--db", sqlite_ledger).out
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
        assert "\\x1b[31mred\\x07" in text
        assert "[bold]k[/bold]" in text


def test_a_job_that_is_not_there(ledger: str) -> None:
    missing = holdfast("show", "7", "--db", ledger, "--json")
    assert (missing.code, missing.error_code) == (1, "job_not_found")
    assert missing.json["context"]["job_id"] == 7
    assert holdfast("show", "7", "--db", ledger) == (
        1,
        "",
        f"error: there is no job 7 (job_not_found)\nnext:  List jobs with `holdfast jobs {at(ledger)}`.\n",
    )
    assert holdfast("show", str(2**63 - 1), "--db", ledger).error_code == "job_not_found"


# ---------------------------------------------------------------------------------------------------------------------
# stats


def test_stats_count_by_state_and_operation(history: str) -> None:
    none = dict.fromkeys(STATES, 0)
    assert holdfast("stats", "--db", history, "--json").json == {
        "states": {"pending": 1, "running": 1, "succeeded": 1, "failed": 1, "quarantined": 1},
        "operations": {
            "echo": none | {"running": 1, "failed": 1, "quarantined": 1},
            "noop": none | {"pending": 1},
            "thumbnail": none | {"succeeded": 1},
        },
        "paused": [],
    }
    lines = [line.split() for line in holdfast("stats", "--db", history).out.splitlines()]
    assert lines[0] == ["OPERATION", *map(str.upper, STATES), "ALL"]
    assert lines[2:] == [
        ["echo", "0", "1", "0", "1", "1", "3"],
        ["noop", "1", "0", "0", "0", "0", "1"],
        ["thumbnail", "0", "0", "1", "0", "0", "1"],
        ["all", "1", "1", "1", "1", "1", "5"],
    ]


def test_stats_of_an_empty_ledger(ledger: str) -> None:
    empty = {"states": dict.fromkeys(STATES, 0), "operations": {}, "paused": []}
    assert holdfast("stats", "--db", ledger, "--json").json == empty
    assert holdfast("stats", "--db", ledger).out.splitlines()[-1].split() == ["all", *["0"] * 6]


# ---------------------------------------------------------------------------------------------------------------------
# ages


@pytest.mark.parametrize(
    "seconds, words",
    [
        (0, "now"),
        (0.9, "now"),
        (1, "1 s ago"),
        (59.9, "59 s ago"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (3600, "1 h ago"),
        (86399, "23 h ago"),
        (86400, "1 d ago"),
        (-90, "in 1 min"),
        (-7200, "in 2 h"),
    ],
)
def test_ages(seconds: float, words: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert age(now - timedelta(seconds=seconds), now) == words
