"""`holdfast explain`: its JSON, its text, and invalid ids."""

from __future__ import annotations

import re

import pytest

from tests.cli.commands import at, holdfast, process, typed
from tests.cli.conftest import WORKER

FAR = r"2099-01-31 12:00:00 UTC \(in \d+ d\)"


def test_explain_prints_json(history: str) -> None:
    value = holdfast("explain", "5", "--db", history, "--json").json
    assert list(value) == ["job_id", "state", "verdict", "findings"]
    assert (value["job_id"], value["state"], value["verdict"]) == (5, "pending", "blocked")
    assert [list(finding) for finding in value["findings"]] == [["code", "message", "evidence", "next"]] * 2
    assert [finding["code"] for finding in value["findings"]] == ["no_worker", "not_due"]
    no_worker, not_due = value["findings"]
    assert not_due["evidence"]["run_at"] == "2099-01-31T12:00:00.000000Z"
    assert not_due["next"] == f"holdfast show {at(history)} 5"
    assert no_worker["evidence"] == {"queue": "default", "last_seen_at": None, "living_workers": []}
    assert no_worker["next"] == "holdfast worker --help"


@pytest.mark.parametrize(
    "job_id, state, verdict, codes",
    [
        (1, "succeeded", "finished", ["succeeded"]),
        (2, "failed", "blocked", ["attempts_spent"]),
        (3, "quarantined", "finished", ["cancelled"]),
        (4, "running", "running", ["running"]),
    ],
)
def test_each_job_of_a_history(history: str, job_id: int, state: str, verdict: str, codes: list[str]) -> None:
    value = holdfast("explain", str(job_id), "--db", history, "--json").json
    assert (value["state"], value["verdict"]) == (state, verdict)
    assert [finding["code"] for finding in value["findings"]] == codes


def test_the_text_output(history: str) -> None:
    code, out, err = holdfast("explain", "5", "--db", history)
    assert (code, err) == (0, "")
    assert re.fullmatch(
        "job 5 pending: needs action\n"
        "- No running worker serves queue default; none was ever started."
        " Start one: holdfast worker MODULE:LEDGER --queue default\n"
        "  next: holdfast worker --help\n"
        rf"- The job is due at {FAR}\.\n"
        f"  next: holdfast show {re.escape(at(history))} 5\n",
        out,
    )
    failed = holdfast("explain", "2", "--db", history).out
    assert failed == (
        "job 2 failed: needs action\n"
        "- The job failed and is not retried automatically (2 of 2 automatic attempts used; 5 replays left);"
        " last error: io_error: the disk said no\n"
        f"  next: holdfast retry {at(history)} 2\n"
    )
    running = holdfast("explain", "4", "--db", history).out.splitlines()
    assert running[0] == f"job 4 running: running on {WORKER}"
    assert running[1].startswith(f"- Attempt 1 is running on {WORKER} since ")
    assert holdfast("explain", "1", "--db", history).out.startswith(
        "job 1 succeeded: finished\n- The job succeeded at "
    )
    assert "by tests at" in holdfast("explain", "3", "--db", history).out


def test_the_suggested_command_works(history: str) -> None:
    """The command that it names is the way out: once typed, that finding is gone."""
    [finding] = holdfast("explain", "2", "--db", history, "--json").json["findings"]
    assert typed(finding["next"]).tells(2, "pending")
    assert "attempts_spent" not in holdfast("explain", "2", "--db", history, "--json").out
    assert holdfast("pause", "--queue", "default", "--db", history, "--reason", "the service is down").code == 0
    first, *_ = holdfast("explain", "2", "--db", history, "--json").json["findings"]
    assert (first["code"], first["next"]) == ("queue_paused", f"holdfast resume {at(history)} --queue default")
    assert first["evidence"]["reason"] == "the service is down"
    assert typed(first["next"]).code == 0
    codes = [finding["code"] for finding in holdfast("explain", "2", "--db", history, "--json").json["findings"]]
    assert codes == ["no_worker", "failed_before"]


def test_a_reason_stays_in_its_line(sqlite_ledger: str) -> None:
    holdfast("submit", "noop", "--db", sqlite_ledger)
    holdfast("pause", "--queue", "default", "--reason", "one\ntwo \x1b[31m [bold]", "--db", sqlite_ledger)
    out = holdfast("explain", "1", "--db", sqlite_ledger).out
    assert len(out.splitlines()) == 5
    assert out.splitlines()[1].endswith(": one two \\x1b[31m [bold]")


def test_a_key_names_its_job_whichever_client_has_used_it(ledger: str) -> None:
    for client, key in (("web", "order-1"), ("web", "both"), ("shop", "both"), ("web", "7")):
        assert holdfast("submit", "noop", "--client", client, "--key", key, "--db", ledger).code == 0
    for command in ("show", "explain"):
        assert holdfast(command, "order-1", "--db", ledger).code == 0
        assert holdfast(command, "both", "--client", "shop", "--db", ledger).out.startswith("job 3 ")
        assert holdfast(command, "7", "--client", "web", "--db", ledger).out.startswith("job 4 ")
        several = holdfast(command, "both", "--db", ledger, "--json")
        assert (several.code, several.error_code) == (2, "bad_input")
        assert several.json["context"]["clients"] == ["shop", "web"]
        for missing in (["nothing"], ["order-1", "--client", "shop"]):
            assert holdfast(command, *missing, "--db", ledger).error_code == "job_not_found"


def test_it_runs_as_a_process(history: str) -> None:
    assert process("explain", "2", "--db", history, "--json").json["verdict"] == "blocked"


@pytest.mark.parametrize("mode", [[], ["--json"]], ids=["people", "json"])
@pytest.mark.parametrize(
    "arguments, exit_code, error_code",
    [
        (["99"], 1, "job_not_found"),
        ([str(2**63 - 1)], 1, "job_not_found"),
        (["0"], 2, "bad_input"),
        (["--", "-1"], 2, "bad_input"),
        ([str(2**63)], 2, "bad_input"),
        (["one"], 1, "job_not_found"),
        ([], 2, "bad_input"),
        (["1", "2"], 2, "bad_input"),
    ],
    ids=str,
)
def test_invalid_ids_are_refused(
    history: str, mode: list[str], arguments: list[str], exit_code: int, error_code: str
) -> None:
    refused = holdfast("explain", *mode, "--db", history, *arguments)
    assert (refused.code, refused.error_code) == (exit_code, error_code)
