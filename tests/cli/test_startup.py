"""What the common commands import: what a command does not need must not delay it.

Invariants: no time is measured here, because that depends on the machine; the number of modules is what a start costs.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from holdfast.store import Submission, open_store
from tests.cli.commands import clean_environment, holdfast

# Each command in a fork of a process that has imported nothing of Holdfast: as text for a terminal, and as JSON.
PROGRAM = """
import io, json, os, sys
db, commands = sys.argv[1], json.loads(sys.argv[2])

class Terminal(io.StringIO):
    def isatty(self):
        return True

for command in commands:
    for words in ([], ["--json"]):
        ours, theirs = os.pipe()
        if os.fork() == 0:
            from holdfast.cli import run
            sys.stdout = Terminal()
            code = run([*command.split(), *words, "--db", db])
            os.write(theirs, json.dumps([" ".join([command, *words]), code, sorted(sys.modules)]).encode() + b"\\n")
            os._exit(0)
        os.close(theirs)
        with open(ours) as answer:
            print(answer.read(), end="", flush=True)
        os.wait()
"""
COMMON = ("stats", "jobs --state pending", "show 1", "explain 1", "check", "queues", "workers", "status", "health")
SLOW = frozenset({
    "pydantic", "rich", "tomllib", "opentelemetry", "psycopg", "asyncio", "concurrent", "email", "importlib.metadata",
    "importlib.resources", "tempfile", "ctypes", "ssl", "socket", "multiprocessing", "subprocess", "dataclasses",
    "difflib", "secrets", "http", "litestar", "holdfast.engine.worker.worker", "holdfast.nodd.ingest",
})  # fmt: skip
# A check of a sound dev ledger without grants needs neither the rules about grants nor the columns of the tables.
SLOW_FOR_CHECK = frozenset({
    "holdfast.audit.check.approval_rules", "holdfast.core.authority", "holdfast.core.governed",
    "holdfast.core.selection", "holdfast.audit.seals.keys", "holdfast.store.verbs.approvals",
    "holdfast.store.verbs.grants", "holdfast.store.tables", "holdfast.core.limit_texts",
    "holdfast.store.urls",
})  # fmt: skip
MODULES_MAX = 240  # of a command, those of Python and click among them
OWN_MAX = 88


def test_a_common_command_imports_nothing_slow(new_sqlite_ledger: str) -> None:
    with open_store(new_sqlite_ledger) as store, store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, new_sqlite_ledger.removeprefix("sqlite:///"), json.dumps(COMMON)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=clean_environment() | {"PYTHONPATH": ":".join(sys.path)},
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 2 * len(COMMON)
    for command, code, modules in answers:
        assert code in (0, 1), command  # health warns of a job without a worker
        slow = {name for name in modules if name in SLOW or name.partition(".")[0] in SLOW}
        assert slow == set(), command
        assert not (command.startswith("check") and SLOW_FOR_CHECK.intersection(modules)), command
        own = [name for name in modules if name.partition(".")[0] == "holdfast"]
        assert (len(modules) <= MODULES_MAX, len(own) <= OWN_MAX) == (True, True), (command, len(modules), len(own))


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
