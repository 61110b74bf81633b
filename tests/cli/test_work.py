"""`holdfast worker` and the commands that act on work, on both databases."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from holdfast.store import Lease, Submission, create_store, open_store
from tests.cli.commands import PROGRAM, at, clean_environment, holdfast, process

APP = """
import sys, time
from holdfast import Execution, Ledger, Operations

operations = Operations()
ledger = Ledger("elsewhere.db", operations)
unnamed = Ledger(operations=operations)


@operations.operation("greet")
def greet(run: Execution, name: str) -> str:
    return f"hello {name}"


@operations.operation("sleep", lease_s=5)
def sleep(run: Execution, seconds: float) -> None:
    print("started", flush=True)
    time.sleep(seconds)


not_a_ledger = 3
"""
BROKEN = {
    "syn": "ledger = = 1\n",
    "raises": "raise KeyError('PGPASSWORD=hunter2')\n",
    "exits": "import sys\nsys.exit(3)\n",
    "elsewhere": "from holdfast import Ledger\nledger = Ledger('nowhere://x')\nledger.store\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP, encoding="utf-8")
    for name, text in BROKEN.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_worker_runs_what_was_submitted(ledger: str, folder: Path) -> None:
    made = process("worker", "shop:ledger", "--until-idle", "--db", ledger, "--json", cwd=folder)
    assert (made.code, made.json["attempts"]) == (0, 0)
    receipt = holdfast("submit", "greet", '{"name":"you"}', "--db", ledger, "--json").json
    made = process("worker", "shop:operations", "--until-idle", "--db", ledger, "--json", cwd=folder)
    assert made.json["attempts"] == 1
    job = holdfast("show", str(receipt["job_id"]), "--db", ledger, "--json").json["job"]
    assert (job["state"], job["result"]) == ("succeeded", "hello you")


@pytest.mark.parametrize(
    "app, flag, variable, served",
    [
        ("shop:ledger", False, True, "elsewhere.db"),  # the URL in the application wins over HOLDFAST_URL
        ("shop:ledger", True, True, "typed.db"),  # --db wins over both
        ("shop:ledger", True, False, "typed.db"),
        ("shop:ledger", False, False, "elsewhere.db"),
        ("shop:unnamed", False, True, "variable.db"),  # HOLDFAST_URL wins over the default
        ("shop:unnamed", True, True, "typed.db"),
        ("shop:unnamed", False, False, "holdfast.db"),
        ("shop:operations", False, True, "variable.db"),
        ("shop:operations", True, True, "typed.db"),
    ],
)
def test_an_option_wins_over_the_environment_and_that_over_the_default(
    folder: Path, app: str, flag: bool, variable: bool, served: str
) -> None:
    names = ("typed.db", "variable.db", "elsewhere.db", "holdfast.db")
    for name in names:
        create_store(str(folder / name)).close()
    made = process(
        "worker", app, "--until-idle", "--json", *(["--db", "typed.db"] if flag else []),
        env={"HOLDFAST_URL": "variable.db"} if variable else None, cwd=folder,
    )  # fmt: skip
    assert made.json["ledger"] == str(folder / served)
    for name in names:
        with open_store(str(folder / name)) as store, store.reading() as reading:
            assert ("greet" in reading.operations.declared()) is (name == served)


@pytest.mark.parametrize(
    "app, variable",
    [
        ("shop:ledger", "other.db"),
        ("shop:ledger", None),
        ("shop:unnamed", "work.db"),
        ("shop:unnamed", None),
        ("shop:operations", "work.db"),
    ],
)
@pytest.mark.attack("files")
def test_a_worker_in_the_wrong_folder_makes_no_ledger_and_says_how_to(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, app: str, variable: str | None
) -> None:
    wrong = tmp_path_factory.mktemp("wrong")
    modules = os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))
    environment = {"PYTHONPATH": modules} | ({"HOLDFAST_URL": variable} if variable else {})
    words = ("worker", app, "--until-idle", "--json")
    made = process(*words, env=environment, cwd=wrong)
    assert (made.code, made.error_code) == (4, "not_a_ledger")
    assert [entry.name for entry in wrong.iterdir()] == []
    [command] = re.findall("`holdfast (.*?)`", made.json["context"]["next_step"])
    assert process(*shlex.split(command), env=environment, cwd=wrong).code == 0
    assert process(*words, env=environment, cwd=wrong).code == 0


def test_the_first_line_of_a_worker_says_what_it_serves(ledger: str, folder: Path) -> None:
    made = process(
        "worker", "shop:ledger", "--until-idle", "--db", ledger, "--queue", "a", "--queue", "b", "--concurrency", "3",
        cwd=folder,
    )  # fmt: skip
    first = made.err.splitlines()[0]
    place = ledger.rpartition("@")[2].removeprefix("sqlite:///")
    for fact in (place, "a, b", "greet@1.0.0", "sleep@1.0.0", "concurrency 3"):
        assert fact in first
    assert "worker-" in first


@pytest.mark.parametrize(
    "app, said",
    [
        ("nowhere:ledger", "No module named 'nowhere'"),
        ("shop:nothing", "has no attribute 'nothing'"),
        ("shop:not_a_ledger", "is a int, not a Ledger"),
        ("syn:ledger", "'syn:ledger': SyntaxError: "),
        ("raises:ledger", "'raises:ledger': KeyError: 'PGPASSWORD=***'"),
        ("exits:ledger", "'exits:ledger': SystemExit: 3"),
    ],
)
def test_an_application_that_cannot_be_loaded_is_reported(
    sqlite_ledger: str, folder: Path, app: str, said: str
) -> None:
    outcome = process("worker", app, "--db", sqlite_ledger, "--json", cwd=folder)
    assert (outcome.code, outcome.error_code) == (2, "bad_input")
    assert said in outcome.json["error_message"]
    assert ("(at " in outcome.json["error_message"]) == app.startswith(("raises", "exits"))


def test_an_error_of_the_ledger_in_an_application_keeps_its_code(sqlite_ledger: str, folder: Path) -> None:
    outcome = process("worker", "elsewhere:ledger", "--db", sqlite_ledger, "--json", cwd=folder)
    assert (outcome.code, outcome.error_code) == (2, "url_invalid")


@pytest.mark.req("K-31")
@pytest.mark.parametrize("signals, spent", [(1, 0), (2, 1)])
def test_a_worker_returns_its_lease_on_sigterm_and_stops_at_once_on_the_second(
    ledger: str, folder: Path, signals: int, spent: int
) -> None:
    process("worker", "shop:ledger", "--until-idle", "--db", ledger, cwd=folder)
    job_id = holdfast("submit", "sleep", '{"seconds":60}', "--db", ledger, "--json").json["job_id"]
    drain = "0.2" if signals == 1 else "60"
    command = [*PROGRAM, "worker", "shop:ledger", "--db", ledger, "--drain", drain]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"started\n"
        worker.send_signal(signal.SIGTERM)
        if signals == 2:
            while worker.poll() is None:  # two signals that come together count as one
                time.sleep(0.3)
                worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=30) == (0 if signals == 1 else 130)
    with create_store(ledger) as store, store.reading() as reading:
        job = reading.jobs.get(job_id)
        assert (job.attempts, job.spent) == (1, spent)
        assert job.state == ("pending" if signals == 1 else "running")


def test_cancel_and_retry(history: str) -> None:
    cancelled = holdfast("cancel", "5", "--reason", "too late", "--db", history, "--json").json
    assert cancelled == {"job_id": 5, "state": "quarantined", "stop_requested": False}
    assert holdfast("cancel", "5", "--db", history, "--json").json["state"] == "quarantined"
    answer = holdfast("cancel", "4", "--db", history, "--json").json
    assert answer == {"job_id": 4, "state": "running", "stop_requested": True}
    assert holdfast("retry", "2", "--db", history, "--json").json == {"job_id": 2, "state": "pending"}
    refused = holdfast("retry", "1", "--db", history, "--json")
    assert (refused.code, refused.error_code) == (3, "invalid_state_transition")
    quarantined = holdfast("retry", "5", "--db", history)
    assert (quarantined.code, quarantined.error_code) == (3, "invalid_state_transition")
    [command] = re.findall("`(.*?)`", quarantined.err)  # one next step, and it can be pasted
    words = shlex.split(command.replace(f" {at(history)}", ""))
    assert words == ["holdfast", "quarantine", "release", "5", "--reason", "TEXT"]
    missing = holdfast("cancel", "999", "--db", history, "--json")
    assert (missing.code, missing.error_code) == (1, "job_not_found")


def test_a_command_does_not_create_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    for command in (
        ["cancel", "1"], ["retry", "1"], ["pause", "--queue", "q"], ["resume", "--queue", "q"], ["stalled"],
        ["recover"],
    ):  # fmt: skip
        outcome = holdfast(*command, "--db", str(path), "--json")
        assert (outcome.code, outcome.error_code) == (4, "not_a_ledger"), command
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - the names are the assertion


def test_no_job_of_a_paused_queue_is_claimed(ledger: str, folder: Path) -> None:
    assert holdfast("pause", "--queue", "default", "--db", ledger, "--json").json == {
        "queue": "default",
        "paused": True,
    }
    job_id = str(holdfast("submit", "noop", "--db", ledger, "--json").json["job_id"])
    run = ("worker", "shop:ledger", "--until-idle", "--db", ledger, "--json")
    assert process(*run, cwd=folder).json["attempts"] == 0
    assert holdfast("resume", "--queue", "default", "--db", ledger, "--json").json["paused"] is False
    assert process(*run, cwd=folder).json["attempts"] == 1
    assert holdfast("show", job_id, "--db", ledger, "--json").json["job"]["state"] == "succeeded"


def test_jobs_of_a_dead_worker_are_listed_and_recovered(ledger: str) -> None:
    assert holdfast("stalled", "--db", ledger, "--json").json == []
    with create_store(ledger) as store, store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}")])
        [attempt] = transaction.executions.claim(Lease(owner="worker-dead", seconds=0.001))
    time.sleep(0.01)
    [row] = holdfast("stalled", "--db", ledger, "--json").json
    assert (row["job_id"], row["lease_owner"], row["status"]) == (attempt.job.job_id, "worker-dead", "IN_PROGRESS")
    assert "worker-dead" in holdfast("stalled", "--db", ledger).out
    report = holdfast("recover", "--db", ledger, "--json").json
    assert (report["reopened"], report["job_ids"]) == (1, [attempt.job.job_id])
    assert holdfast("stalled", "--db", ledger, "--json").json == []


def test_a_worker_runs_its_upkeep_in_a_process_of_its_own(sqlite_ledger: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        """
import os, time
from pathlib import Path
from holdfast import Ledger

ledger = Ledger("elsewhere.db")

@ledger.operation("look")
def look(run) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for path in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if parent == os.getpid() and b"holdfast.engine.upkeep.child" in (path / "cmdline").read_bytes():
                    return int(path.name)
            except OSError:
                pass
        time.sleep(0.05)
    raise LookupError("the worker has no such child")
""",
        encoding="utf-8",
    )
    worker = ("worker", "shop:ledger", "--until-idle", "--upkeep-process", "--db", sqlite_ledger, "--json")
    assert process(*worker, cwd=tmp_path).json["attempts"] == 0  # declares the operation
    assert process("submit", "look", "--db", sqlite_ledger).code == 0
    assert process(*worker, cwd=tmp_path).json["attempts"] == 1
    with open_store(sqlite_ledger) as store, store.reading() as reading:
        job = reading.jobs.get(1)
    assert job.state == "succeeded"
    assert not Path(f"/proc/{job.result}").exists()


@pytest.mark.attack("files")
def test_a_worker_ends_when_its_ledger_is_replaced(sqlite_ledger: str, folder: Path) -> None:
    path = Path(sqlite_ledger.removeprefix("sqlite:///"))
    process("worker", "shop:ledger", "--until-idle", "--db", sqlite_ledger, cwd=folder)  # declares the operations
    assert holdfast("submit", "sleep", '{"seconds": 0}', "--db", sqlite_ledger).code == 0
    command = [*PROGRAM, "worker", "shop:ledger", "--db", sqlite_ledger, "--json"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()
    ) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "started\n"
            path.rename(path.with_name("moved.db"))
            out, _ = worker.communicate(timeout=60)
        finally:
            worker.kill()
    assert worker.returncode == 4
    assert json.loads(out)["error_code"] == "ledger_file_changed"
