"""What holds for every command: exit codes, clean streams, no traceback, a quick start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli.app import COMMANDS, INTERRUPTED, app
from holdfast.cli.commands.worker import STOPPED_AT_ONCE
from holdfast.cli.declare import Group
from holdfast.core import errors, feature_errors
from holdfast.core.errors import BrokenError, HoldfastError
from tests.cli.commands import PROGRAM, Outcome, clean_environment, holdfast, process

# ---------------------------------------------------------------------------------------------------------------------
# As a process, on both databases


@pytest.mark.req("K-53")
def test_exit_codes_and_streams_of_the_real_command(empty_url: str) -> None:
    assert process("init", "--db", empty_url, "--json").json["created"] is True
    setting = {"HOLDFAST_URL": empty_url}
    receipt = process("submit", "noop", "-", "--key", "k", "--json", env=setting, stdin=b"[1]")
    assert (receipt.code, receipt.json["job_id"]) == (0, 1)
    listed = process("jobs", env=setting)
    assert (listed.code, listed.err) == (0, "")
    assert "\x1b" not in listed.out
    missing = process("show", "9", "--json", env=setting)
    assert (missing.code, missing.error_code) == (1, "job_not_found")
    conflict = process("submit", "noop", "[2]", "--key", "k", env=setting)
    assert (conflict.code, conflict.out, conflict.error_code) == (2, "", "idempotency_conflict")
    refused = process("init", "--env", "prod", env=setting)
    assert (refused.code, refused.out, refused.error_code) == (3, "", "refused")
    nowhere = process("stats", "--db", "/nowhere/at/all.db", "--json", env=setting)
    assert (nowhere.code, nowhere.error_code) == (4, "store_unavailable")
    counted = process("stats", "--json", env=setting)
    assert counted.json["states"]["pending"] == 1


def test_the_table_of_exit_codes_has_them_all() -> None:
    document = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    table = document.partition("| exit code | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    listed = {int(row.split("|")[1]) for row in table.splitlines()}
    known = [*vars(errors).values(), *vars(feature_errors).values()]
    kinds = [kind for kind in known if isinstance(kind, type) and issubclass(kind, HoldfastError)]
    assert listed == {0, INTERRUPTED, STOPPED_AT_ONCE, *(kind.exit_code for kind in kinds)} == {0, 1, 2, 3, 4, 130}


def test_the_installed_command_is_this_one(sqlite_url: str) -> None:
    script = Path(sys.executable).with_name("holdfast")
    done = subprocess.run(
        [script, "init", "--db", sqlite_url, "--json"], capture_output=True, env=clean_environment(), check=False
    )
    assert (done.returncode, json.loads(done.stdout)["created"], done.stderr) == (0, True, b"")


def test_bytes_that_are_no_text(sqlite_ledger: str) -> None:
    refused = process("submit", "noop", "--client", b"\xff\xfe", "--db", sqlite_ledger, "--json")
    assert (refused.code, refused.error_code) == (2, "bad_input")
    payload = process("submit", "noop", b'"\xff"', "--db", sqlite_ledger, "--json")
    assert (payload.code, payload.error_code) == (2, "payload_not_json")


def test_a_terminal_that_knows_only_ascii(sqlite_ledger: str) -> None:
    assert holdfast("submit", "noop", '"é"', "--client", "zoë", "--db", sqlite_ledger).code == 0
    for locale in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        shown = process("show", "1", "--db", sqlite_ledger, env=locale)
        assert (shown.code, shown.err) == (0, "")
        assert shown.out.isascii()
        assert "zo\\xeb" in shown.out
        assert "\\u2192 pending" in shown.out
        assert process("jobs", "--json", "--db", sqlite_ledger, env=locale).json[0]["client"] == "zoë"


def test_a_reader_of_the_output_may_close_its_pipe(sqlite_ledger: str) -> None:
    for _ in range(3):
        holdfast("submit", "noop", "--db", sqlite_ledger)
    child = subprocess.Popen(
        [*PROGRAM, "machines", "--format", "svg"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    assert (child.wait(timeout=60), child.stderr.read()) == (1, b"")
    child.stderr.close()


def test_output_that_cannot_be_written_is_an_error(sqlite_ledger: str) -> None:
    for mode in ([], ["--json"]):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [*PROGRAM, "stats", "--db", sqlite_ledger, *mode],
                stdout=full,
                stderr=subprocess.PIPE,
                env=clean_environment(),
                check=False,
            )
        assert done.returncode == 1
        assert done.stderr.startswith(b"error: Unexpected OSError")


def test_closed_streams(sqlite_ledger: str) -> None:
    quiet = process("submit", "noop", "--db", sqlite_ledger, "--json", before=lambda: os.close(1))
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    mute = process("submit", "nope", "--db", sqlite_ledger, before=lambda: os.close(2))
    assert (mute.code, mute.out, mute.err) == (2, "", "")


def test_an_interrupt_ends_it_quietly(sqlite_ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("holdfast.cli.commands.submit._read", interrupt)
    outcome = holdfast("submit", "noop", "-", "--json", "--db", sqlite_ledger)
    assert (outcome.code, outcome.json["error_code"]) == (130, "interrupted")
    people = holdfast("submit", "noop", "-", "--db", sqlite_ledger)
    assert (people.code, people.out) == (130, "")
    assert people.err.endswith("(interrupted)\n")
    assert holdfast("jobs", "--db", sqlite_ledger, "--json").json == []


# ---------------------------------------------------------------------------------------------------------------------
# Unexpected errors


def broken(monkeypatch: pytest.MonkeyPatch, error: Exception, *mode: str) -> Outcome:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("holdfast.cli.command.open_store", fail)
    return holdfast("stats", "--db", "x.db", *mode)


def test_an_unexpected_error_is_reported_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = broken(monkeypatch, RuntimeError("password=hunter2"), "--json")
    assert (outcome.code, outcome.error_code) == (1, "internal")
    assert outcome.json["context"]["exception"] == "builtins.RuntimeError"
    assert "hunter2" not in outcome.out
    people = broken(monkeypatch, RuntimeError("password=hunter2"))
    assert (people.code, people.out, people.error_code) == (1, "", "internal")
    assert "HOLDFAST_DEBUG" in people.err
    assert "hunter2" not in people.err


def test_a_broken_promise_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = broken(monkeypatch, BrokenError("a job was leased that could not be claimed"), "--json")
    assert (outcome.code, outcome.error_code) == (1, "broken")


def test_debugging_shows_the_traceback(sqlite_ledger: str) -> None:
    done = subprocess.run(
        [*PROGRAM, "show", "9", "--db", sqlite_ledger, "--json"],
        capture_output=True,
        env=clean_environment() | {"HOLDFAST_DEBUG": "1"},
        check=False,
    )
    assert json.loads(done.stdout)["error_code"] == "job_not_found"
    assert b"Traceback" in done.stderr
    assert b"JobNotFoundError" in done.stderr


# ---------------------------------------------------------------------------------------------------------------------
# Help, and a quick start


def test_help_lists_every_command_and_imports_none() -> None:
    program = (
        "import sys; from holdfast.cli import run; code = run(['--help']);"
        "print(code, sorted(name for name in sys.modules if name.startswith('holdfast.cli')), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=clean_environment(), check=False
    )
    for name, command in COMMANDS.items():
        assert name in done.stdout
        assert command.summary in done.stdout
    imported = ["holdfast.cli", *(f"holdfast.cli.{name}" for name in ("app", "declare", "output", "text"))]
    assert done.stderr == f"0 {imported}\n"


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_line_of_help_is_the_first_of_the_command(name: str) -> None:
    command = app.find(name)
    assert command is not None
    assert (command.help or "").splitlines()[0] == COMMANDS[name].summary
    shown = holdfast(name, "--help")
    assert (shown.code, shown.err) == (0, "")
    assert COMMANDS[name].summary in shown.out
    assert "--json" in shown.out


def test_without_arguments_the_help_is_printed() -> None:
    assert holdfast() == holdfast("--help")
    assert holdfast("--version").out.strip().count(".") == 2


def test_the_command_is_a_module_too() -> None:
    command = [sys.executable, "-m", "holdfast", "--version"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=clean_environment())
    assert found.stdout == holdfast("--version").out


def test_a_submit_on_sqlite_imports_nothing_heavy(sqlite_ledger: str) -> None:
    program = (
        "import sys; from holdfast.cli import run; code = run(sys.argv[1:]);"
        "print(code, [name for name in ('psycopg', 'pydantic', 'rich') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "submit", "noop", "{}", "--key", "k", "--db", sqlite_ledger, "--json"],
        capture_output=True,
        text=True,
        env=clean_environment(),
        check=False,
    )
    assert (json.loads(done.stdout)["job_id"], done.stderr) == (1, "0 []\n")


def test_an_option_that_needs_converting_is_converted(sqlite_ledger: str) -> None:
    submitted = holdfast("submit", "noop", "--priority", "3", "--max-attempts", "2", "--db", sqlite_ledger, "--json")
    assert submitted.code == 0
    [job] = holdfast("jobs", "--limit", "1", "--db", sqlite_ledger, "--json").json
    assert (job["priority"], job["max_attempts"]) == (3, 2)


def test_a_word_after_two_dashes_is_an_argument(sqlite_ledger: str) -> None:
    taken = holdfast("submit", "--db", sqlite_ledger, "noop", "--", "-1")
    assert (taken.code, taken.out) == (0, "job 1  pending  (new)\n")
    refused = holdfast("submit", "--db", sqlite_ledger, "noop", "--", "--json")
    assert (refused.code, refused.out, refused.error_code) == (2, "", "payload_not_json")


def test_every_command_is_there() -> None:
    assert {"init", "migrate", "machines", "submit", "jobs", "show", "stats"} <= COMMANDS.keys()


def test_a_group_that_lists_its_things_does_so_when_no_command_is_named(sqlite_ledger: str) -> None:
    groups = [name for name in COMMANDS if isinstance(found := app.find(name), Group) and "list" in found.names()]
    assert {"schedules", "limits", "grant", "quarantine", "switch", "batches"} <= {*groups}
    for name in groups:
        unnamed = holdfast(name, "--db", sqlite_ledger, "--json")
        assert (unnamed.code, unnamed.json) == (0, holdfast(name, "list", "--db", sqlite_ledger, "--json").json), name
    assert holdfast("schedules", "--help").out != holdfast("schedules", "list", "--help").out
