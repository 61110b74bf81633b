"""Data never controls a terminal: control characters and direction marks are escaped."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from holdfast.cli.documents import yaml_text
from holdfast.cli.logs import CleanFormatter
from holdfast.cli.output import clean
from holdfast.core.commands import Fail, Quarantine
from holdfast.store import Declared, Lease, Submission, open_store
from tests.cli.commands import Outcome, holdfast, process

pytestmark = pytest.mark.attack("input")

CHARACTERS = (
    "\x1b", "\x07", "\x08", "\r", "\x7f", "\x85", "\x9b", "\xad", "\u061c", "\u200b", "\u200e", "\u200f", "\u2028",
    "\u2029", "\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069", "\ufeff",
    "\U000e0001",
)  # fmt: skip
EVIL = "a" + "".join(CHARACTERS) + "z"


def assert_harmless(outcome: Outcome) -> None:
    for text in (outcome.out, outcome.err):
        assert text.replace("\n", "").isprintable(), ascii(text)


@pytest.fixture
def evil_ledger(ledger: str) -> str:
    """A ledger whose texts hold control characters."""
    with open_store(ledger) as store, store.transaction() as transaction:
        evil = Submission(operation=EVIL, payload="{}", client=EVIL, key=EVIL, queue=EVIL, operation_version=EVIL)
        transaction.operations.declare({EVIL: Declared(queue=EVIL)})
        transaction.jobs.submit([evil], actor=EVIL)
        transaction.jobs.submit([Submission(operation="noop", payload="{}", queue=EVIL) for _ in range(3)], actor=EVIL)
        [first, second] = transaction.executions.claim(Lease(owner=EVIL, seconds=60, n=2, queues=(EVIL,)))
        token = first.execution.lease_token
        transaction.executions.move([(first, Fail(token, EVIL, EVIL, permanent=True))], actor=EVIL)
        transaction.rulings.rule([(transaction.jobs.get(4), Quarantine(EVIL, EVIL))], actor=EVIL, reason=EVIL)
        transaction.queues.pause(EVIL, actor=EVIL, reason=EVIL)
        transaction.workers.seen(EVIL, [EVIL], [EVIL], 1)
        assert second.job.job_id == 2
    return ledger


@pytest.mark.parametrize(
    "command",
    [
        "jobs", "show 1", "show 2", "show 3", "show 4", "explain 1", "explain 2", "explain 3", "explain 4", "stats",
        "stalled", "quarantine list", "quarantine show 1", "quarantine show 4", "quarantine statistics", "check",
        "audit verify",
        "replay select --created-after -9h", "replay select --created-after -9h --output yaml",
        "switch list", "cancel 3",
        "retry 4", "queues", "workers",
    ],
)  # fmt: skip
def test_control_characters_of_a_ledger_do_not_reach_the_terminal(evil_ledger: str, command: str) -> None:
    assert_harmless(holdfast(*command.split(), "--db", evil_ledger))


@pytest.mark.parametrize(
    "command",
    [
        ["show", EVIL], [EVIL], ["jobs", "--" + EVIL], ["submit", EVIL], ["submit", "noop", "--key", EVIL],
        ["submit", "noop", "--queue", EVIL], ["submit", "noop", EVIL], ["pause", "--queue", EVIL],
        ["jobs", "--db", EVIL],
        ["resume", "--queue", EVIL, "--reason", EVIL], ["quarantine", "add", "3", "--code", EVIL],
        ["cancel", "3", "--reason", EVIL], ["replay", "show", EVIL], ["explain", EVIL], ["worker", EVIL],
        ["snapshot", "verify", EVIL], ["procedure", "show", EVIL], ["switch", "on", EVIL, "--reason", EVIL],
    ],
)  # fmt: skip
def test_control_characters_of_arguments_do_not_reach_the_terminal(
    evil_ledger: str, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_harmless(holdfast(*command, *([] if "--db" in command else ["--db", evil_ledger])))


def test_the_log_of_a_worker_does_not_control_the_terminal(sqlite_ledger: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import logging\nfrom holdfast import Ledger\nledger = Ledger()\n"
        f"@ledger.operation('noisy')\ndef noisy(run):\n    logging.getLogger('holdfast').error({EVIL!r})\n"
        f"    raise ValueError({EVIL!r})\nledger.submit('noisy', queue={EVIL.replace(chr(13), '')!r})\n",
        encoding="utf-8",
    )
    env = {"HOLDFAST_URL": sqlite_ledger}
    done = process("worker", "shop:ledger", "--until-idle", "--db", sqlite_ledger, cwd=tmp_path, env=env)
    assert done.code == 0
    assert "\\u202e" in done.err
    assert_harmless(done)


@pytest.mark.parametrize("character", CHARACTERS)
def test_each_character_is_escaped_once(character: str) -> None:
    shown = clean(f"a{character}b\nc")
    assert shown == clean(shown) == f"a{shown[1:-3]}b\nc"
    assert shown[1] == "\\"
    record = logging.LogRecord("x", logging.INFO, "x", 1, "%s", (character,), None)
    assert CleanFormatter().format(record).isprintable()
    assert yaml_text({"a": character}).replace("\n", "").isprintable()


def test_text_of_other_languages_is_not_escaped() -> None:
    for text in ("Grüße, naïve café", "日本語", "עברית", "العربية", "🙂"):
        assert clean(text) == text
        assert text in yaml_text({"a": text})
