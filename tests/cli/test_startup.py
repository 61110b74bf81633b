"""What the common commands import: what a command does not need must not delay it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from holdfast.store import Submission, open_store
from tests.cli.commands import clean_environment, holdfast

PROGRAM = """
import contextlib, io, json, sys
from holdfast.cli import run
with contextlib.redirect_stdout(io.StringIO()):
    code = run(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]))
"""
SLOW = (
    "pydantic",
    "rich",
    "tomllib",
    "opentelemetry",
    "psycopg",
    "holdfast.engine.worker.worker",
    "holdfast.nodd.ingest",
)


@pytest.mark.parametrize(
    "command",
    ["stats", "jobs --state pending", "show 1", "explain 1", "check", "queues", "workers", "status", "health"],
)
def test_a_common_command_imports_nothing_slow(new_sqlite_ledger: str, command: str) -> None:
    with open_store(new_sqlite_ledger) as store, store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *command.split(), "--db", new_sqlite_ledger, "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=clean_environment() | {"PYTHONPATH": ":".join(sys.path)},
    )
    code, modules = json.loads(done.stdout)
    assert code in (0, 1)  # health warns of a job without a worker
    assert [name for name in modules if name.startswith(SLOW)] == []


@pytest.mark.parametrize(
    "wrong, nearest",
    [
        (["stat"], "stats"),
        (["quarantin", "list"], "quarantine"),
        (["quarantine", "lst"], "list"),
        (["jobs", "--stat", "pending"], "--state"),
        (["jobs", "--state", "pendin"], "pending"),
    ],
)
def test_an_unknown_word_suggests_the_nearest(wrong: list[str], nearest: str) -> None:
    refused = holdfast(*wrong, "--json")
    assert (refused.code, refused.error_code) == (2, "bad_input")
    assert nearest in refused.json["error_message"]
