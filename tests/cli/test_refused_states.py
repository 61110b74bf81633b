"""Commands of next steps that need a ledger in a certain state, pasted in that state; see test_commands_in_texts."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from holdfast.engine.world import Crash
from holdfast.governance.runs.procedure import run
from holdfast.governance.runs.steps import Mode
from holdfast.nodd.tables import prepare
from holdfast.testing import VirtualClock
from tests.audit.sealing import guards_off, shift_xids
from tests.cli.commands import Outcome, clean_environment, holdfast
from tests.cli.test_procedure import shelving
from tests.governance.quarantining import failed_once, quarantined, submitted
from tests.governance.shelves import WHO, crashing, make
from tests.nodd.aws import Cloud
from tests.nodd.aws import cloud as cloud  # noqa: PLC0414 - a fixture
from tests.nodd.s3 import loopback_s3
from tests.support.ledgers import new_store

REQUEST = ("--executor", "ann", "--rollback-plan", "undo", "--reason", "a test", "--as", "ann")
APP = ("--app", "tests.cli.test_procedure:shelving")
PASSWORD = b"correct horse battery\n"


class Place(NamedTuple):
    """The URL of a ledger that is not made yet, which HOLDFAST_URL names, and the current directory."""

    url: str
    folder: Path

    def made(self, environment: str = "dev") -> None:
        new_store(self.url, environment=environment).close()

    def prod(self) -> None:
        """Make a prod ledger with the approver bob, whose key is in the file `bob`."""
        self.made("prod")
        typed("audit", "keygen", "bob")
        added = ("approvers", "add", "bob", "--public-key", "bob.pub", "--reason", "first", "--bootstrap")
        typed("grant", *added)


def typed(*words: str, stdin: bytes = b"") -> Any:
    """Run a command that must succeed; return its JSON value."""
    done = holdfast(*words, "--json", stdin=stdin)
    assert done.code == 0, (words, done)
    return done.json


def refused(*words: str) -> list[str]:
    """Run a command that must be refused; return the commands of its next step."""
    done = holdfast(*words)
    assert done.code != 0, words
    return [part for index, part in enumerate(done.err.rpartition("next:")[2].split("`")) if index % 2]


def switch_lift(place: Place) -> list[str]:
    place.made()
    typed("switch", "throw", "operation:noop", "--reason", "a test")
    return ["holdfast switch lift operation:noop --reason TEXT"]


def grant_revoke(place: Place) -> list[str]:
    place.made()
    number = typed("grant", "request", "ledger.repair", "ledger", *REQUEST)["grant_id"]
    typed("grant", "approve", str(number), "--as", "bob")
    return refused("environment", "stage", "--reason", "a test")


def approver_revoke(place: Place) -> list[str]:
    place.prod()
    typed("audit", "keygen", "other")
    added = ("approvers", "add", "bob", "--public-key", "other.pub", "--reason", "again", "--bootstrap")
    return refused("grant", *added)


def grant_sign(place: Place) -> list[str]:
    place.prod()
    number = typed("grant", "request", "ledger.repair", "ledger", *REQUEST)["grant_id"]
    return [f"holdfast grant sign {number} --key bob"]


def grant_slip(place: Place) -> list[str]:
    place.prod()
    words = "--executor NAME --rollback-plan TEXT --reason TEXT --as bob --key bob"
    return [f"holdfast grant slip --action snapshot.restore --target ledger:new {words}"]


def release_many(place: Place) -> list[str]:
    with new_store(place.url, environment="stage") as store:
        quarantined(store, "http_401", n=3, operation="noop")
    words = ("release", "--all-matching", "--code", "http_401", "--request", "--rollback-plan", "undo", "--reason", "x")
    number = typed("quarantine", *words)["grant_id"]
    typed("grant", "approve", str(number), "--as", "bob")
    return [f"holdfast quarantine release --grant {number} --reason TEXT"]


def replay_inspect(place: Place) -> list[str]:
    with new_store(place.url) as store:
        submitted(store, n=1, operation="noop", max_attempts=1)
        failed_once(store)
    selected = ("--operation", "noop", "--created-after", "2h ago")
    report = typed("replay", "run", *selected, "--reason", "a test", "--confirm")
    return [f"holdfast replay inspect {report['run_id']}"]


def unfinished(place: Place) -> list[str]:
    """Leave a run unfinished; return what the refusal of the next run of its target advises."""
    with make(place.url, VirtualClock()) as store, pytest.raises(Crash):  # long ago: its lease has expired
        run(store, shelving, {}, root="r", mode=Mode.REAL_RUN, world=crashing("after PUT_A"), **WHO)
    return refused("procedure", "run", "shelving", *APP, "--root", "s", "--reason", "x", "--mode", "REAL_RUN")


def epoch_behind(place: Place) -> list[str]:
    """Let the ledger come from a database with higher transaction ids; return what the refusal of a seal advises."""
    place.made()
    typed("submit", "noop")
    typed("audit", "head")
    with guards_off(place.url) as client:
        shift_xids(client, 1_000_000)
    return refused("audit", "head")


def with_accounts(*words: str) -> Callable[[Place], list[str]]:
    def prepared(place: Place) -> list[str]:
        place.made()
        typed("console", "users", "add", "ann", "--role", "operator", "--password-stdin", stdin=PASSWORD)
        return [shlex.join(("holdfast", "console", *words))]

    return prepared


def with_nodd(*words: str) -> Callable[[Place], list[str]]:
    def prepared(place: Place) -> list[str]:
        with new_store(place.url) as store:
            prepare(store)
        return [shlex.join(("holdfast", "nodd", *words))]

    return prepared


PREPARED: dict[str, Callable[[Place], list[str]]] = {
    "holdfast console tokens list": with_accounts("tokens", "list"),
    "holdfast console users list": with_accounts("users", "list"),
    "holdfast grant approvers revoke {name} --reason TEXT": approver_revoke,
    "holdfast grant revoke {active[0]} --reason TEXT": grant_revoke,
    "holdfast grant sign {grant.grant_id} --key FILE": grant_sign,
    "holdfast grant slip --action {wanted.act} --target {wanted.target} --executor NAME --rollback-plan TEXT"
    " --reason TEXT --as NAME --key FILE > slip.json": grant_slip,
    "holdfast migrate --new-epoch": epoch_behind,
    "holdfast nodd ignored --reason {UNKNOWN_BUCKET}": with_nodd("ignored", "--reason", "unknown_bucket"),
    "holdfast nodd records": with_nodd("records"),
    "holdfast nodd rejected": with_nodd("rejected"),
    "holdfast nodd resume {name} --reason TEXT": with_nodd("resume", "gfs", "--reason", "TEXT"),
    "holdfast procedure resume --reason TEXT {shlex.quote(root)}": lambda place: unfinished(place)[:1],
    "holdfast procedure undo --reason TEXT {shlex.quote(root)}": lambda place: unfinished(place)[1:],
    "holdfast quarantine release --grant {grant_id} --reason TEXT": release_many,
    "holdfast replay inspect {run_id}": replay_inspect,
    "holdfast switch lift {shlex.quote(switch.name)} --reason TEXT": switch_lift,
}


@pytest.mark.req("G-25")
@pytest.mark.parametrize("step", PREPARED)
def test_a_command_of_a_next_step_succeeds_in_the_state_that_it_is_for(
    step: str, empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_URL", empty_url)
    monkeypatch.setenv("HOLDFAST_CONSOLE_ACCOUNTS", str(tmp_path / "accounts.db"))
    commands = PREPARED[step](Place(empty_url, tmp_path))
    assert commands
    for command in commands:
        done: Outcome = holdfast(*shlex.split(command)[1:])
        assert done.code == 0, (command, done)


# ---------------------------------------------------------------------------------------------------------------------
# Commands that ask for a password, at a terminal

TYPED = {
    "holdfast console users add NAME --role operator": "console users add ann --role operator",
    "holdfast console users add NAME --role approver": "console users add bob --role approver",
    "holdfast console users passwd NAME": "console users passwd ann",
    "holdfast console users passwd {name}": "console users passwd bob",
}
EACH = "import sys; from holdfast.cli import run; sys.exit(sum(run(line.split()) for line in sys.argv[1:]))"


@pytest.mark.req("G-25")
def test_commands_that_ask_for_a_password_succeed_at_a_terminal(tmp_path: Path) -> None:
    environment = {**clean_environment(), "HOLDFAST_CONSOLE_ACCOUNTS": str(tmp_path / "accounts.db")}
    words = [sys.executable, "-c", EACH, *TYPED.values()]
    terminal, inside = pty.openpty()
    with subprocess.Popen(words, env=environment, preexec_fn=lambda: os.login_tty(inside)) as child:  # noqa: PLW1509
        os.close(inside)
        shown = b""
        for times in range(1, 2 * len(TYPED) + 1):  # each asks for the password, and for the same one again
            while len(re.findall(rb"assword: |confirmation: ", shown)) < times:
                shown += os.read(terminal, 1024)
            os.write(terminal, PASSWORD)
        assert child.wait(60) == 0
    os.close(terminal)
    assert PASSWORD.strip() not in shown


# ---------------------------------------------------------------------------------------------------------------------
# The commands that list a bucket and drain a queue, with a server on loopback instead of the one of AWS

LISTED = "holdfast nodd reconcile {dataset} --date {last}"
DRAINED = "holdfast nodd drain-dlq --queue {dead.url} --reason TEXT"
LISTING = (
    b'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>false</IsTruncated><Contents>'
    b"<Key>gfs.20260802/00/atmos/gfs.t00z.pgrb2.0p25.f000</Key><Size>9</Size><ETag>&quot;e&quot;</ETag>"
    b"<LastModified>2026-08-02T03:30:00.000Z</LastModified></Contents></ListBucketResult>"
)


@pytest.mark.req("G-25")
def test_a_command_that_lists_a_bucket_succeeds(sqlite_ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", sqlite_ledger)
    with loopback_s3() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        server.put("noaa-gfs-bdp-pds", "", LISTING)
        server.everywhere = "noaa-gfs-bdp-pds/"
        command = LISTED.format(dataset="gfs", last="2026-08-02")
        [found] = typed(*shlex.split(command)[1:])
    assert found["missing"] == found["listed"] > 0


@pytest.mark.req("G-25")
def test_a_command_that_drains_a_queue_succeeds(
    sqlite_ledger: str, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", sqlite_ledger)
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    url, _ = cloud.queue()
    cloud.sqs.send_message(QueueUrl=url, MessageBody="garbage")
    command = DRAINED.format(dead=SimpleNamespace(url=url))
    assert typed(*shlex.split(command)[1:])["fates"] == {"rejected": 1}
