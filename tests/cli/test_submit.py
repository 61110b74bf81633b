"""`holdfast submit`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.core.records import Job
from holdfast.store import open_store
from tests.cli.commands import holdfast, process


def stored(url: str, job_id: int) -> Job:
    with open_store(url) as store, store.reading() as reading:
        return reading.jobs.get(job_id)


def test_a_submission_is_recorded_as_it_was_given(ledger: str) -> None:
    receipt = holdfast(
        *("submit", "noop", '{"b": [1, 2.0], "a": "é"}', "--client", "web", "--key", "k/1", "--queue", "slow"),
        *("--priority", "-7", "--run-at", "2030-01-31T13:00:00+01:00", "--max-attempts", "3", "--db", ledger, "--json"),
    )
    assert receipt.code == 0
    assert receipt.json == {"job_id": 1, "is_new": True, "state": "pending", "result": None}
    job = stored(ledger, 1)
    assert (job.operation, job.payload, job.client, job.key) == ("noop", '{"a":"é","b":[1,2]}', "web", "k/1")
    assert (job.queue, job.priority, job.max_attempts) == ("slow", -7, 3)
    assert job.run_at == datetime(2030, 1, 31, 12, tzinfo=UTC)


def test_the_defaults(ledger: str) -> None:
    assert holdfast("submit", "noop", "--db", ledger) == (0, "job 1  pending  (new)\n", "")
    job = stored(ledger, 1)
    assert (job.payload, job.client, job.key, job.queue) == ("{}", "local", None, "default")
    assert (job.priority, job.max_attempts) == (0, 5)
    assert job.run_at == job.created_at


def test_the_journal_names_who_submitted(sqlite_ledger: str) -> None:
    holdfast("submit", "noop", "--db", sqlite_ledger)
    [birth] = holdfast("show", "1", "--db", sqlite_ledger, "--json").json["journal"]
    assert birth["actor"].startswith("cli:")
    assert len(birth["actor"]) > len("cli:")


def test_the_same_work_under_the_same_key_is_recorded_once(ledger: str) -> None:
    first = holdfast("submit", "noop", '{"a": 1, "b": 2}', "--key", "k", "--db", ledger, "--json").json
    again = holdfast("submit", "noop", ' {"b":2,"a":1.0} ', "--key", "k", "--db", ledger, "--json").json
    assert again == {**first, "is_new": False}
    assert holdfast("submit", "noop", '{"b":2,"a":1}', "--key", "k", "--db", ledger).tells(1, "pending", "already")
    other = holdfast("submit", "noop", '{"a": 2}', "--key", "k", "--db", ledger, "--json")
    assert (other.code, other.error_code) == (2, "idempotency_conflict")
    elsewhere = holdfast("submit", "noop", '{"a": 2}', "--key", "k", "--client", "other", "--db", ledger, "--json")
    assert elsewhere.json["is_new"] is True
    assert len(holdfast("jobs", "--db", ledger, "--json").json) == 2


def test_the_reserved_client_name_is_refused(ledger: str) -> None:
    refused = holdfast("submit", "noop", "--client", "holdfast", "--key", "999/1", "--db", ledger, "--json")
    assert (refused.code, refused.json["error_code"]) == (2, "bad_input")
    assert refused.json["context"] == {"client": "holdfast", "next_step": refused.json["context"]["next_step"]}
    assert holdfast("jobs", "--db", ledger, "--json").json == []
    assert holdfast("check", "--db", ledger).code == 0


def test_a_repeat_gives_the_stored_result(history: str) -> None:
    same = ("submit", "thumbnail", '{"path": "a"}', "--client", "web", "--key", "a.png@64", "--db", history)
    assert holdfast(*same, "--json").json == {
        "job_id": 1,
        "is_new": False,
        "state": "succeeded",
        "result": {"bytes": 312},
    }
    assert holdfast(*same).tells(1, "succeeded", "already")


def test_the_payload_may_come_from_standard_input_or_a_file(sqlite_ledger: str, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_bytes(b'\xef\xbb\xbf{"from": "a file"}\n')
    assert process("submit", "noop", "-", "--db", sqlite_ledger, stdin=b'["from a pipe"]').code == 0
    assert holdfast("submit", "noop", "-", "--db", sqlite_ledger, stdin=b'["in process"]').code == 0
    assert holdfast("submit", "noop", f"@{file}", "--db", sqlite_ledger).code == 0
    texts = [stored(sqlite_ledger, job_id).payload for job_id in (1, 2, 3)]
    assert texts == ['["from a pipe"]', '["in process"]', '{"from":"a file"}']


def test_the_limit_of_the_payload(sqlite_ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = json.dumps("x" * ((1 << 20) - 2)).encode()
    assert len(exact) == 1 << 20
    assert holdfast("submit", "noop", "-", "--db", sqlite_ledger, stdin=exact).code == 0
    monkeypatch.setenv("HOLDFAST_PAYLOAD_MAX_BYTES", "6")
    assert holdfast("submit", "noop", '"1234"', "--db", sqlite_ledger).code == 0
    over = holdfast("submit", "noop", '"12345"', "--db", sqlite_ledger, "--json")
    assert (over.code, over.error_code) == (2, "payload_too_large")
    assert over.json["context"]["limit"] == 6
    monkeypatch.setenv("HOLDFAST_PAYLOAD_MAX_BYTES", str(2 << 20))
    assert holdfast("submit", "noop", "-", "--db", sqlite_ledger, stdin=b" " * (1 << 20) + exact).code == 0


@pytest.mark.parametrize("value", ["0", "-1", "many", "1e6", "1.5"])
def test_an_invalid_limit_is_refused(sqlite_ledger: str, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HOLDFAST_PAYLOAD_MAX_BYTES", value)
    refused = holdfast("submit", "noop", "--db", sqlite_ledger, "--json")
    assert (refused.code, refused.error_code) == (2, "configuration_invalid")
    assert refused.json["context"]["origin"] == "HOLDFAST_PAYLOAD_MAX_BYTES"
