"""`holdfast replay`: from a selection to a recorded run; guards, output formats and prompts."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import termios
import threading
import time
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.store import Store, create_store, open_store
from tests.cli.commands import BARS_AT_ONCE, PROGRAM, at, clean_environment, holdfast, typed
from tests.cli.replaying import (
    DO,
    GOES,
    SINCE,
    SPEC,
    WINDOW,
    failed_jobs,
    refused,
    replay,
    states_of,
    sum_of,
    written,
)
from tests.governance.replays import fill, replays, work

HASH = re.compile(r"[0-9a-f]{64}")


@pytest.fixture
def ledger(ledger_url: str) -> str:
    return failed_jobs(ledger_url)


@pytest.fixture
def lite(sqlite_url: str) -> str:
    return failed_jobs(sqlite_url)


def journal(url: str, event: str = "replay") -> list[tuple[Any, ...]]:
    with open_store(url) as store, store.reading() as reading:
        statement = "SELECT subject, actor, reason FROM holdfast_journal WHERE machine = 'JOB' AND event = '{}'"
        return sorted(tuple(row) for row in reading.execute(statement.format(event)))


# ---------------------------------------------------------------------------------------------------------------------
# From a selection to a run


@pytest.mark.req("K-50", "K-52", "K-54", "K-57")
def test_from_a_selection_to_a_run_on_record(ledger: str, tmp_path: Path) -> None:
    before = sum_of(ledger)
    spec, saved = str(tmp_path / "s.yaml"), str(tmp_path / "d.json")
    selected = replay(ledger, "select", *GOES, "--save-spec", spec, "--show-examples", "2", "--json").json
    assert (selected["total"], selected["skipped"], selected["more"]) == (5, {}, False)
    assert (selected["by_queue"], selected["by_error"]) == ({"goes-abi": 5}, {"io_error": 5})
    assert [job["job_id"] for job in selected["examples"]] == [1, 2]
    assert yaml.safe_load(Path(spec).read_text()) == selected["spec"]

    planned = replay(ledger, "dry-run", "--selection-file", spec, "--save", saved, "--json")
    assert planned.code == 0
    assert planned.json["selection_hash"] == selected["selection_hash"]
    assert planned.json["candidates_hash"] == selected["candidates_hash"]
    assert (planned.json["total"], planned.json["batches"], planned.json["ok"]) == (5, 1, True)
    assert [guard["passed"] for guard in planned.json["guards"]] == [True] * 6
    assert sum_of(ledger) == before

    done = replay(ledger, "run", "--dry-run-file", saved, *DO, "--operator", "ann", "--json")
    assert done.code == 0
    report = done.json
    assert (report["state"], report["replayed"], report["batches"], report["skipped"]) == ("done", 5, 1, {})
    assert (report["selection_hash"], report["candidates_hash"]) == (
        selected["selection_hash"],
        selected["candidates_hash"],
    )
    assert (report["actor"], report["reason"], report["replay_reason"]) == ("ann", "the disk was full", "incident")
    why = f"replay {report['run_id']}: the disk was full"
    assert journal(ledger) == [(number, "ann", why) for number in (1, 2, 3, 4, 5)]
    assert states_of(ledger) == {"failed": 3, "pending": 5}

    seen = replay(ledger, "inspect", report["run_id"], "--json").json
    assert [batch["replayed"] for batch in seen["touched"]] == [[1, 2, 3, 4, 5]]
    assert seen["selection"] == report["selection"]


@pytest.mark.req("K-50", "K-64")
def test_the_same_selection_twice_is_safe(ledger: str) -> None:
    first = replay(ledger, "run", *GOES, *DO, "--json").json
    again = replay(ledger, "run", *GOES, *DO, "--json").json
    assert (first["replayed"], again["replayed"], again["state"]) == (5, 0, "done")
    assert first["run_id"] != again["run_id"]
    assert len(journal(ledger)) == 5


@pytest.mark.req("K-55")
def test_a_saved_dry_run_whose_candidates_have_drifted_is_refused(ledger: str, tmp_path: Path) -> None:
    saved = str(tmp_path / "d.json")
    assert replay(ledger, "dry-run", *GOES, "--save", saved).code == 0
    assert holdfast("retry", "3", "--db", ledger).code == 0
    before = sum_of(ledger)
    stale = replay(ledger, "run", "--dry-run-file", saved, *DO, "--json")
    assert (stale.code, stale.error_code) == (3, "plan_stale")
    assert sum_of(ledger) == before


def test_the_next_step_of_a_dry_run_that_was_not_saved_is_the_whole_command(ledger: str, tmp_path: Path) -> None:
    spec = written(tmp_path, SPEC, "a spec.yaml")
    ran = []
    for command, arguments in (
        ("run", ["dry-run", *GOES, "--batch-size", "2", "--operator", "ann b"]),
        ("from-spec", ["from-spec", spec, "--batch-size", "2", "--dry-run"]),
    ):
        shown = replay(ledger, *arguments)
        assert shown.code == 0, shown
        step = shown.out.splitlines()[-1].removeprefix("next:  ")
        assert shlex.split(step)[:3] == ["holdfast", "replay", command]
        answer = typed(f"{step.replace('TEXT', 'a-test')} --confirm --stop-after 1 --json")
        assert answer.code in (0, 1), answer
        ran.append((answer.json["replayed"], answer.json["batches"], answer.json["actor"] == "ann b"))
    assert ran == [(2, 1, True), (2, 1, False)]


@pytest.mark.req("K-64", "K-52")
def test_select_inspect_and_dry_run_change_nothing(ledger: str, tmp_path: Path) -> None:
    spec = written(tmp_path, SPEC)
    before = sum_of(ledger)
    for arguments in (
        ["select", *GOES, "--show-examples", "5"],
        ["dry-run", *GOES, "--save", str(tmp_path / "d.json")],
        ["from-spec", spec],
        ["from-spec", spec, "--dry-run", "--batch-size", "2"],
        ["inspect", "1"],
        ["inspect", *GOES],
        ["run", *GOES, "--reason", "not confirmed"],
        ["run", "--queue", "goes-abi", *DO],  # no time: a guard refuses
        ["run", *GOES, *DO, "--batch-size", "99999"],
    ):
        assert replay(ledger, *arguments, "--json").code in (0, 2, 3)
    assert sum_of(ledger) == before


@pytest.mark.req("K-55")
def test_a_run_is_stopped_and_continued(ledger: str) -> None:
    begun = replay(ledger, "run", *GOES, *DO, "--batch-size", "2", "--stop-after", "1", "--json")
    assert (begun.code, begun.json["state"], begun.json["stop_reason"]) == (0, "stopped", "STOPPED_BY_OPERATOR")
    assert (begun.json["replayed"], begun.json["batches"], begun.json["batches_planned"]) == (2, 1, 3)
    run_id = begun.json["run_id"]
    shown = replay(ledger, "inspect", run_id)
    step = f"holdfast replay run {at(ledger)} --continue {run_id} --reason TEXT --confirm"
    assert shown.out.splitlines()[-1] == f"next:  {step}"
    going = replay(ledger, "run", "--continue", run_id, "--confirm", "--reason", "more", "--stop-after", "1", "--json")
    assert (going.json["state"], going.json["replayed"]) == ("stopped", 4)
    ended = replay(ledger, "run", "--continue", run_id, "--confirm", "--reason", "the rest", "--json")
    assert (ended.json["state"], ended.json["replayed"], ended.json["batches"]) == ("done", 5, 3)
    assert len(journal(ledger)) == 5


def test_a_run_is_stopped_by_another_process(lite: str) -> None:
    run_id = replay(lite, "run", *GOES, *DO, "--batch-size", "2", "--stop-after", "1", "--json").json["run_id"]
    again = replay(lite, "stop", run_id, "--reason", "enough", "--json")
    assert (again.code, again.error_code) == (3, "invalid_state_transition")
    assert replay(lite, "stop", "no-such-run", "--reason", "x", "--json").error_code == "record_not_found"


def test_a_switch_that_is_thrown_half_way_ends_a_run(lite: str) -> None:
    with open_store(lite) as store:
        fill(store, 60, queue="slow", max_attempts=1)

    def throw() -> None:
        with open_store(lite) as store:
            while not states_now(store).get("pending"):
                time.sleep(0.005)
            with store.transaction() as transaction:
                transaction.switches.throw("replay:slow", actor="bob", reason="upstream is down")

    thrower = threading.Thread(target=throw)
    thrower.start()
    outcome = replay(lite, "run", "--queue", "slow", *SINCE, *DO, "--batch-size", "1", "--json")
    thrower.join()
    assert refused(outcome) == (3, "kill_switch_active", "kill_switch_active")
    context = outcome.json["context"]
    report = context["report"]
    assert (report["state"], report["stop_reason"]) == ("stopped", "KILL_SWITCH")
    assert 0 < report["replayed"] < 60
    again = f"holdfast replay run {at(lite)} --continue {report['run_id']}"
    assert f"`{again}`" in context["next_step"]
    assert len(journal(lite)) == report["replayed"]
    still = replay(lite, "run", "--continue", report["run_id"], "--confirm", "--reason", "x", "--json")
    assert refused(still) == (3, "kill_switch_active", "kill_switch_active")


def states_now(store: Store[Any]) -> dict[str, int]:
    with store.reading() as reading:
        return dict(reading.execute("SELECT state, count(*) FROM holdfast_jobs GROUP BY state"))


# ---------------------------------------------------------------------------------------------------------------------
# Guards


def _throw(url: str, name: str) -> None:
    with open_store(url) as store, store.transaction() as transaction:
        transaction.switches.throw(name, actor="bob", reason="upstream is down")


def _spend(url: str) -> None:
    """Let every job of goes-abi use all its attempts."""
    with create_store(url) as store:
        fill(store, 2, max_attempts=1, replay_attempts=0)


def _wait(url: str) -> None:
    """Leave a job that has been due for long."""
    assert holdfast("submit", "noop", "--queue", "goes-abi", "--run-at", "2020-01-01T00:00:00Z", "--db", url).code == 0


@pytest.mark.req("K-55", "K-53", "K-64")
@pytest.mark.parametrize("command", ["dry-run", "run"])
@pytest.mark.parametrize(
    "guard, prepare, arguments",
    [
        ("scope_too_broad", None, ["--queue", "goes-abi"]),
        ("selection_too_large", None, [*GOES, "--batch-size", "5001"]),
        ("attempts_exceeded", _spend, [*GOES, "--status", "failed,quarantined"]),
        ("kill_switch_active", lambda url: _throw(url, "replay"), GOES),
        ("kill_switch_active", lambda url: _throw(url, "replay:goes-abi"), GOES),
        ("kill_switch_active", lambda url: _throw(url, "operation:noop"), GOES),
        ("slo_risk", _wait, GOES),
    ],
)
def test_a_refusal_names_its_guard(
    sqlite_url: str, guard: str, prepare: Any, arguments: list[str], command: str
) -> None:
    if prepare is not _spend:
        failed_jobs(sqlite_url)
    if prepare:
        prepare(sqlite_url)
    before = sum_of(sqlite_url)
    outcome = replay(sqlite_url, command, *arguments, *(DO if command == "run" else ()), "--json")
    assert outcome.code == 3
    if command == "run":
        assert refused(outcome) == (3, guard, guard)
        assert outcome.json["context"]["env"] == "dev"
        assert HASH.fullmatch(outcome.json["context"]["selection_hash"])
    else:
        assert [g["guard_type"] for g in outcome.json["guards"] if not g["passed"]] == [guard]
        assert outcome.json["ok"] is False
        people = replay(sqlite_url, command, *arguments)
        assert people.code == 3
        assert f"{guard:21} REFUSED" in people.out
        assert people.out.splitlines()[-1].startswith("next:  ")
    assert sum_of(sqlite_url) == before


@pytest.mark.req("K-55")
@pytest.mark.parametrize("command", ["select", "dry-run", "run", "inspect"])
def test_another_environment_than_the_ledgers_is_refused(lite: str, command: str) -> None:
    outcome = replay(
        lite, command, *WINDOW, "--queue", "a", "--env", "prod", "--json", *(DO if command == "run" else ())
    )
    assert refused(outcome) == (3, "env_mismatch", "env_mismatch")


@pytest.mark.req("K-55", "K-51")
def test_in_stage_and_prod_a_grant_is_needed(empty_url: str) -> None:
    failed_jobs(empty_url, "prod")
    arguments = ("run", "--queue", "goes-abi", *WINDOW, *DO, "--operator", "ann", "--json")
    planned = replay(empty_url, "dry-run", "--queue", "goes-abi", *WINDOW, "--json").json
    assert (planned["grant_needed"], planned["authority"], planned["ok"]) == (True, "REJECT_AUTH_MISSING", True)
    outcome = replay(empty_url, *arguments)
    assert (outcome.code, outcome.error_code) == (3, "REJECT_AUTH_MISSING")
    assert replay(empty_url, *arguments, "--grant", "7").error_code == "REJECT_AUTH_NOT_FOUND"
    assert states_of(empty_url) == {"failed": 8}


@pytest.mark.req("K-51", "K-55")
def test_the_grant_request_of_a_dry_run_can_be_pasted(sqlite_url: str, tmp_path: Path) -> None:
    failed_jobs(sqlite_url, "stage")
    with open_store(sqlite_url) as store:
        fill(store, 2, permanent=True, prefix="q")
    saved = str(tmp_path / "d.json")
    chosen = ("--status", "quarantined", "--mode", "repair-and-replace", "--queue", "goes-abi", *SINCE)
    planned = replay(sqlite_url, "dry-run", *chosen, "--operator", "ann lee", "--save", saved)
    assert planned.code == 0
    assert re.search(r"^grant +needed \(REJECT_AUTH_MISSING\)", planned.out, re.MULTILINE)
    run = ("run", "--dry-run-file", saved, *DO, "--operator", "ann lee", "--json")
    assert replay(sqlite_url, *run).error_code == "REJECT_AUTH_MISSING"

    step = planned.out.splitlines()[-1].removeprefix("next:  ")
    answer = holdfast(*shlex.split(step)[1:], "--db", sqlite_url, "--as", "ann lee", "--json").json
    approved = holdfast("grant", "approve", str(answer["grant_id"]), "--as", "bob", "--db", sqlite_url, "--json")
    assert approved.json["state"] == "active"
    planned = replay(sqlite_url, "dry-run", *chosen, "--operator", "ann lee", "--json").json
    assert (planned["grant_needed"], planned["authority"]) == (True, "GO")
    done = replay(sqlite_url, *run)
    assert (done.code, done.json["replayed"], done.json["grant_id"]) == (0, 2, answer["grant_id"])
    with open_store(sqlite_url) as store, store.reading() as reading:
        replaced = reading.execute("SELECT replaces FROM holdfast_calls WHERE replaces > 0 ORDER BY replaces")
        assert [tuple(row) for row in replaced] == [(9,), (10,)]


@pytest.mark.req("K-50")
def test_a_run_that_is_interrupted_is_continued(lite: str) -> None:
    with open_store(lite) as store:
        fill(store, 24, queue="slow", max_attempts=1)
    arguments = ["replay", "run", "--db", lite, "--queue", "slow", *SINCE, *DO, "--batch-size", "1", "--json"]
    with subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.PIPE, env=clean_environment()) as child:
        while not states_of(lite).get("pending"):
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    report = json.loads(out)
    assert (child.returncode, report["state"]) == (1, "stopped")
    assert 0 < report["replayed"] < 24
    with open_store(lite) as store:
        assert len(replays(store)) == report["replayed"]
    ended = replay(lite, "run", "--continue", report["run_id"], "--confirm", "--reason", "on", "--json").json
    assert (ended["state"], ended["replayed"]) == ("done", 24)
    with open_store(lite) as store:
        assert set(replays(store).values()) == {1}


# ---------------------------------------------------------------------------------------------------------------------
# Reasons and operators


def test_a_run_needs_a_reason(lite: str, tmp_path: Path) -> None:
    outcome = replay(lite, "run", *GOES, "--confirm", "--json")
    assert (outcome.code, outcome.error_code) == (2, "bad_input")
    noted = written(tmp_path, SPEC + "  options: {notes: as the ticket says}\n")
    done = replay(lite, "run", "--selection-file", noted, "--confirm", "--json").json
    assert (done["reason"], done["replay_reason"]) == ("as the ticket says", "incident")


@pytest.mark.req("K-64", "K-14")
def test_the_replay_reason_comes_from_flag_label_or_mode(lite: str, tmp_path: Path) -> None:
    labelled = written(tmp_path, SPEC.replace("env: dev}", "env: dev, labels: {replay_reason: dlq-drain}}"))
    outcome = replay(lite, "run", "--selection-file", labelled, *DO, "--replay-reason", "test", "--json")
    assert refused(outcome) == (2, "bad_input", "metadata.labels.replay_reason")
    done = replay(lite, "run", "--selection-file", labelled, *DO, "--limit", "1", "--json").json
    assert done["replay_reason"] == "dlq-drain"
    assert replay(lite, "inspect", "1", "--json").json["replay_reason"] == "dlq-drain"
    backfill = replay(lite, "run", "--queue", "hrrr", *SINCE, *DO, "--mode", "backfill", "--json").json
    assert (backfill["replay_reason"], backfill["mode"]) == ("backfill", "backfill")
    assert replay(lite, "run", *GOES, *DO, "--replay-reason", "boredom", "--json").error_code == "bad_input"
    assert replay(lite, "run", *GOES, *DO, "--replay-reason", "test", "--json").json["replay_reason"] == "test"


def test_nothing_is_replayed_as_a_test_in_prod(sqlite_url: str, tmp_path: Path) -> None:
    failed_jobs(sqlite_url, "prod")
    outcome = replay(sqlite_url, "run", *GOES, *DO, "--replay-reason", "test", "--json")
    assert refused(outcome) == (2, "bad_input", "--replay-reason")
    labelled = SPEC.replace("env: dev}", "env: prod, labels: {replay_reason: test}}")
    outcome = replay(sqlite_url, "run", "--selection-file", written(tmp_path, labelled), *DO, "--json")
    assert refused(outcome) == (2, "spec_invalid", "metadata.labels.replay_reason")


# ---------------------------------------------------------------------------------------------------------------------
# Confirming


@pytest.mark.req("K-52")
@pytest.mark.parametrize("form", ["table", "json", "yaml"])
@pytest.mark.parametrize(
    "command", [["run", *GOES], ["run", "--continue", "replay-1"], ["from-spec", "{spec}", "--run"]]
)
def test_without_a_terminal_a_run_must_be_confirmed_by_a_flag(
    lite: str, tmp_path: Path, form: str, command: list[str]
) -> None:
    spec = written(tmp_path, SPEC)
    outcome = replay(lite, *(word.format(spec=spec) for word in command), "--reason", "x", "--output", form)
    assert outcome.code == 2
    assert "bad_input" in outcome.out + outcome.err
    assert "--confirm" in outcome.out + outcome.err
    assert states_of(lite) == {"failed": 8}


def at_a_terminal(arguments: list[str], answer: bytes) -> tuple[int, str]:
    """Run the real command at a terminal of 80 columns, type an answer, and return its exit code and what it showed."""
    main, side = pty.openpty()
    ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    environment = {**clean_environment(), "TERM": "xterm", "NO_COLOR": "1"}
    command = [PROGRAM[0], "-c", BARS_AT_ONCE, *arguments]
    with subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=environment) as child:
        os.close(side)
        shown = b""
        while True:
            try:
                piece = os.read(main, 4096)
            except OSError:  # the other side has closed
                break
            shown += piece
            if piece and answer and b"[y/N]" in shown:
                os.write(main, answer)
                answer = b""
        code = child.wait(timeout=60)
    os.close(main)
    return code, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).replace("\r\n", "\n")


@pytest.mark.req("K-52")
@pytest.mark.parametrize("answer, replayed", [(b"y\n", 5), (b"\n", 0)])
def test_at_a_terminal_a_run_is_confirmed_by_a_prompt(lite: str, answer: bytes, replayed: int) -> None:
    code, shown = at_a_terminal(["replay", "run", "--db", lite, *GOES, "--reason", "x", "--batch-size", "2"], answer)
    assert "Replay 5 jobs in the dev ledger? [y/N]:" in shown
    assert states_of(lite) == ({"failed": 3, "pending": 5} if replayed else {"failed": 8})
    if replayed:
        assert code == 0
        assert "replaying" in shown  # the bar
        assert "5 of 5 jobs in 3 of 3 batches" in shown
    else:
        assert code == 1
        assert "5 of 5 jobs" not in shown
    assert [line for line in shown.replace("\r", "\n").splitlines() if len(line.rstrip()) > 80] == []


def test_the_output_at_a_terminal_fits_eighty_columns(lite: str) -> None:
    code, shown = at_a_terminal(["replay", "select", *SINCE, "--show-examples", "9", "--db", lite], b"")
    assert code == 0
    assert [line for line in shown.splitlines() if len(line.rstrip()) > 80] == []


# ---------------------------------------------------------------------------------------------------------------------
# Looking


def test_inspect_shows_a_job(ledger: str) -> None:
    shown = replay(ledger, "inspect", "1", "--show-fields", "object_uri,token,queue,no_such", "--json").json
    assert (shown["job_id"], shown["state"], shown["queue"], shown["last_error_code"]) == (
        1, "failed", "goes-abi", "io_error",
    )  # fmt: skip
    assert (shown["object_uri"], shown["token"], shown["queue"], shown["no_such"]) == (
        "s3://noaa/a", "***", "goes-abi", None,
    )  # fmt: skip
    people = replay(ledger, "inspect", "1", "--show-fields", "object_uri,token")
    assert re.search(r"^object_uri +s3://noaa/a *$", people.out, re.MULTILINE)
    assert "hunter2" not in people.out


@pytest.mark.req("K-52")
def test_inspect_shows_the_jobs_of_a_selection_in_any_state(ledger: str) -> None:
    with open_store(ledger) as store:
        assert replay(ledger, "run", *GOES, *DO, "--limit", "3").code == 0
        while not work(store, n=1):
            pass  # by the clock of a server the jobs may be due a moment later
    seen = replay(ledger, "inspect", "--status", "pending,succeeded", "--show-fields", "object_uri", "--json").json
    assert [(job["job_id"], job["state"]) for job in seen] == [(1, "succeeded"), (2, "pending"), (3, "pending")]
    assert {job["object_uri"] for job in seen} == {"s3://noaa/a"}
    assert [j["job_id"] for j in replay(ledger, "inspect", "--limit", "2", "--json").json] == [4, 5]
    table = replay(ledger, "inspect", "--queue", "hrrr", "--show-fields", "operation").out.splitlines()
    assert re.split(" {3,}", table[0].strip()) == [
        "JOB ID", "QUEUE", "STATUS", "ATTEMPTS", "LAST ERROR CODE", "CREATED AT", "OPERATION",
    ]  # fmt: skip
    assert [line.split()[:5] for line in table[2:]] == [
        [str(n), "hrrr", "failed", "1", "schema_mismatch"] for n in (6, 7, 8)
    ]


@pytest.mark.parametrize(
    "target, expected",
    [("99", (1, "job_not_found")), ("0", (1, "job_not_found")), ("9" * 30, (1, "job_not_found")),
     ("replay-none", (1, "record_not_found")), ("٣", (1, "record_not_found"))],
)  # fmt: skip
def test_inspect_without_a_matching_job(lite: str, target: str, expected: tuple[int, str]) -> None:
    outcome = replay(lite, "inspect", target, "--json")
    assert (outcome.code, outcome.error_code) == expected


def test_inspect_needs_exactly_one_target(lite: str) -> None:
    assert replay(lite, "inspect", "1", *GOES, "--json").error_code == "bad_input"
    assert replay(lite, "inspect", "1", "--show-fields", "a,,b", "--json").error_code == "bad_input"


# ---------------------------------------------------------------------------------------------------------------------
# Output formats


@pytest.mark.req("K-52", "K-53")
def test_yaml_and_json_have_the_same_content(lite: str) -> None:
    for arguments in (
        ["select", *GOES, "--show-examples", "1"],
        ["inspect", "1"],
        ["inspect", *GOES],
        ["select", "--status", "pending"],
        ["run", "--queue", "goes-abi", *DO],
        ["select", "--nonsense"],
    ):
        as_json, as_yaml = (replay(lite, *arguments, "--output", form) for form in ("json", "yaml"))
        assert as_json.code == as_yaml.code
        assert as_yaml.err == ""
        assert yaml.safe_load(as_yaml.out) == as_json.json
        assert replay(lite, *arguments, "--json") == as_json


def test_two_output_formats_are_refused(lite: str) -> None:
    outcome = replay(lite, "select", "--json", "--output", "yaml")
    assert (outcome.code, outcome.error_code) == (2, "bad_input")
    assert replay(lite, "select", "--output", "xml").error_code == "bad_input"
    assert replay(lite, "select", "--json", "--output", "json", *GOES).code == 0


def test_global_flags_are_accepted_anywhere(lite: str) -> None:
    outcome = holdfast("replay", "--db", lite, "--output", "json", "--env", "dev", "select", *GOES)
    assert outcome.json["total"] == 5
    assert holdfast("replay", "--env", "dev", "select", "--env", "dev", "--db", lite, *GOES, "--json").code == 0
    twice = holdfast("replay", "--env", "dev", "select", "--env", "prod", "--db", lite, *GOES, "--json")
    assert (twice.code, twice.error_code) == (2, "bad_input")


@pytest.mark.req("K-54")
def test_the_hash_of_a_selection_is_logged(lite: str) -> None:
    quiet = replay(lite, "select", *GOES, "--json")
    outcome = replay(lite, "select", *GOES, "--json", "--log-level", "info")
    assert quiet.err == ""
    assert f"INFO select: selection {json.loads(outcome.out)['selection_hash']}" in outcome.err
    assert replay(lite, "run", *GOES, *DO, "--json", "--log-level", "debug").err.count(" batch 1 of 1: 5 jobs") == 1
    assert replay(lite, "select", "--log-level", "loud").error_code == "bad_input"


def test_a_ledger_that_is_not_there(tmp_path: Path) -> None:
    for command in (["select", *GOES], ["run", *GOES, *DO], ["inspect", "1"]):
        outcome = replay(str(tmp_path / "no" / "ledger.db"), *command, "--json")
        assert (outcome.code, outcome.error_code) == (4, "store_unavailable")
    assert holdfast("replay", "select", "--json").error_code == "url_invalid"
