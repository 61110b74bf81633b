"""The golden files of the commands' JSON: one answer of every command, from a small scenario on SQLite.

Invariants: every command without subcommands has an answer here; values that differ between runs (times, digests,
random ids, paths, the user, the machine) are placeholders such as `<time>`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from holdfast import Call, Ledger, Mode, run_procedure
from holdfast.cli.app import app
from holdfast.cli.nodd import replay as nodd_replay
from holdfast.nodd import samples
from holdfast.store import create_store, open_store
from holdfast.testing import Crash, VirtualClock, begin, virtual_world
from tests.cli.commands import Outcome, clean_environment, holdfast, process
from tests.cli.replaying import nodd as replay_for_nodd
from tests.governance.registries import value
from tests.governance.replays import fill
from tests.governance.shelves import crashing
from tests.nodd import aws
from tests.nodd.messages import GFS, event, record
from tests.support.golden_app import welcome
from tests.support.golden_text import Placeholders

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "tests/golden/json"
APP = "tests.support.golden_app"
BUCKET = "noaa-gfs-bdp-pds"
ANN = ("--operator", "ann", "--reason", "incident 7")
SINCE = ("--created-after", "2020-01-01T00:00:00Z")
ELSEWHERE = frozenset({"machines"})  # it has its own golden file
BEGUN = datetime(2026, 1, 1, 12, tzinfo=UTC)  # a lease of that day has expired


def answers() -> dict[str, str]:
    """Return the answers of all commands, one file for each command of the first level."""
    with _place() as folder:
        scenario = _Scenario(folder)
        scenario.play()
    missing = set(_commands()) - scenario.answers.keys() - ELSEWHERE
    assert not missing, f"no golden answer of {sorted(missing)}"
    files: dict[str, dict[str, Any]] = {}
    for command, answer in scenario.answers.items():
        name = "nodd-replay" if command.startswith("nodd-replay") else command.partition(" ")[0]
        files.setdefault(name, {})[command] = answer
    return {f"{FOLDER}/{name}.json": _text(found) for name, found in files.items()}


def _shape(value: Any) -> Any:
    """Return the fields of an answer without its values, which depend on the machine and the time."""
    if isinstance(value, dict):
        return {name: _shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shape(value[0])] if value else []
    return f"<{type(value).__name__}>" if value is not None else None


def _text(found: dict[str, Any]) -> str:
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def _commands() -> Iterator[str]:
    """Yield every command without subcommands."""
    for name in app.names():
        yield from _leaves(app.find(name), name)
    yield from _leaves(nodd_replay.app, "nodd-replay")


def _leaves(command: Any, path: str) -> Iterator[str]:
    if not hasattr(command, "find"):
        yield path
        return
    for name in command.names():
        yield from _leaves(command.find(name), f"{path} {name}")


@contextlib.contextmanager
def _place() -> Iterator[Path]:
    """Yield an empty directory, which is the current one, in an environment without any settings."""
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_EC2_METADATA_DISABLED": "true"}
    environment = {
        name: text for name, text in clean_environment().items() if not name.startswith(("KFM_", "AWS_"))
    } | keys
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-golden-") as folder,
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.object(sys, "path", [*sys.path]),  # a command that loads an application adds its directory
        contextlib.chdir(folder),
    ):
        yield Path(folder)


class _Scenario:
    """Runs the scenario, and keeps the answer of each command."""

    def __init__(self, folder: Path) -> None:
        self.answers: dict[str, Any] = {}
        self._folder = folder
        self._put = Placeholders(
            {str(folder): "<dir>"}, {"worker_id": "<worker>", "bytes": "<bytes>", "secret": "<secret>"}
        )

    def play(self) -> None:
        """Run every command at least once."""
        self._work()
        self._operate()
        self._keep()
        self._grant()
        self._procedure()
        self._registry()
        self._replay()
        self._quarantine()
        self._console()
        self._nodd()

    def _keep_answer(self, command: str, outcome: Outcome) -> Any:
        answer = json.loads(outcome.out)
        assert not isinstance(answer, dict) or answer.get("error_code") != "internal", f"{command}: {outcome.err}"
        self.answers[command] = {"exit": outcome.code, "answer": self._put.value(answer)}
        return answer

    def _run(self, command: str, *arguments: str, db: str | None = "work.db", stdin: bytes = b"") -> Any:
        """Run a command, keep its answer, and return it as it was."""
        where = () if db is None else ("--db", db)
        return self._keep_answer(command, holdfast(*command.split(), *arguments, *where, "--json", stdin=stdin))

    def _work(self) -> None:
        with Ledger("work.db", world=virtual_world(VirtualClock(BEGUN))) as ledger:
            fill(ledger.store, 1, queue="default", max_attempts=1)  # job 1, which failed
            begin(ledger, Call(operation="noop", payload={}))  # job 2, which stalls
            ledger.submit("noop")  # job 3
        self._run("init", db="other.db")
        holdfast("init", "--db", "raised.db")
        self._run("environment", "stage", "--reason", "going live", db="raised.db")
        self._run("migrate")
        self._run("submit", "noop", '{"n": 1}', "--client", "web", "--key", "a", "--queue", "slow")  # job 4
        self._run("jobs", "--limit", "2")
        self._run("show", "1")
        self._run("explain", "4")
        self._run("stats")
        self._run("queues")
        self._run("workers")
        self._run("config show", db=None)
        for command in ("status", "top", "health", "doctor"):
            self._run(command)
            self.answers[command]["answer"] = _shape(self.answers[command]["answer"])
        self._run("metrics")
        for row in self.answers["metrics"]["answer"]:
            row["value"] = "<seconds>" if row["name"].endswith("_seconds") else row["value"]

    def _operate(self) -> None:
        self._run("stalled")
        self._run("recover")
        self._run("cancel", "3", "--reason", "ordered twice")
        self._run("revoke", "1", "--reason", "it hangs")
        self._run("retry", "1", "--reason", "the disk is back")
        self._run("pause", "--queue", "slow", "--reason", "the service is down")
        self._run("resume", "--queue", "slow", "--reason", "the service is back")
        seen = {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
        done = process("worker", f"{APP}:ledger", "--until-idle", "--db", "work.db", "--json", env=seen)
        self._keep_answer("worker", done)
        Path("calls.json").write_text('[{"operation": "noop", "payload": {}}]', encoding="utf-8")
        self._run("simulate", f"{APP}:ledger", "--calls", "calls.json", "--seeds", "1", "--steps", "5", db=None)
        self._run("check")
        self._run("prove")
        self._run("repair")

    def _keep(self) -> None:
        head = self._run("audit head")
        Path("head.json").write_text(json.dumps(head), encoding="utf-8")
        self._run("audit verify", "--head", "head.json")
        self._run("audit keygen", "bob", db=None)
        self._run("audit export", "--out", "export.jsonl")
        self._run("snapshot create", "work.snapshot")
        self._run("snapshot verify", "work.snapshot", db=None)
        self._run("snapshot restore", "work.snapshot", *ANN, db="restored.db")
        self._run("snapshot diff", "work.snapshot", "restored.db", db=None)
        self._run("gc", "--set", "finished=30d", "--set", "quarantined=90d", *ANN)

    def _grant(self) -> None:
        wanted = (
            "ledger.repair",
            "ledger",
            "--executor",
            "ann",
            "--reason",
            "incident 7",
            "--rollback-plan",
            "restore",
        )
        self._run("grant approvers add", "bob", "--public-key", "bob.pub", "--as", "ann", "--reason", "on call")
        self._run("grant request", *wanted, "--as", "ann")
        self._run("grant sign", "2", "--key", "bob")
        self._run("grant approve", "2", "--key", "bob", "--as", "bob", "--reason", "looked")
        self._run("grant show", "2")
        self._run("grant revoke", "2", "--as", "eve", "--reason", "not needed")
        self._run("grant list")
        slip = ("--action", "snapshot.restore", "--target", "ab" * 32, "--executor", "ann", "--reason", "incident 7")
        self._run("grant slip", *slip, "--rollback-plan", "delete it", "--as", "bob", "--key", "bob", db=None)
        self._run("grant approvers revoke", "bob", "--reason", "left", "--as", "ann")
        self._run("grant approvers list")

    def _procedure(self) -> None:
        with open_store("work.db") as store:
            for root in ("r1", "r2"):
                with contextlib.suppress(Crash):
                    run_procedure(
                        store, welcome, {"guest": root}, root=root, actor="ann", reason="a test", mode=Mode.REAL_RUN,
                        world=crashing("after S2_GREET"),
                    )  # fmt: skip
        app = ("--app", f"{APP}:welcome")
        self._run("procedure run", "welcome", *app, "--root", "r3", "--params", '{"guest": "bob"}', *ANN)
        self._run("procedure resume", "r1", *app, *ANN)
        self._run("procedure undo", "r2", *app, *ANN)
        self._run("procedure show", "r1")
        self._run("procedure list")

    def _registry(self) -> None:
        holdfast("init", "--db", "governed.db", "--governed")
        self._run("registry draft", "--app", f"{APP}:ledger", "--authority", "board:7", db=None)
        manifest = {"collection": "operations", "values": [value("ship"), value("pack")]}
        Path("operations.json").write_text(json.dumps(manifest), encoding="utf-8")
        contract = {
            "disposition": "supersede", "target": "ship@1.0.0", "successor": "pack@1.0.0", "plan": "runbook 7",
            "audit": "supersession",
        }  # fmt: skip
        Path("contract.json").write_text(json.dumps(contract), encoding="utf-8")
        run, db = self._run, "governed.db"
        run("registry request", "operations.json", *ANN, "--rollback-plan", "supersede", db=db)
        holdfast("grant", "approve", "1", "--as", "bob", "--db", db)
        run("registry build", "operations.json", *ANN, "--mode", "REAL_RUN", "--grant", "1", db=db)
        run("registry list", db=db)
        run("registry show", "ship@1.0.0", db=db)
        run("registry verify", db=db)
        run("registry rollback-check", "contract.json", db=db)
        run("registry supersede", "ship", "1.0.0", "2.0.0", "--semantics", '{"description": "by air"}', *ANN, db=db)
        run("registry retire", "pack", "1.0.0", *ANN, db=db)
        run("registry dispatch", "DOT_C1_VOCAB_VERIFY", "--correlation", "release-7", "--operator", "ann", db=db)
        run("registry dismantle", "operations", *ANN, "--mode", "REAL_RUN", "--root", "dismantled", db=db)
        run("registry hold", "on", *ANN, db=db)

    def _replay(self) -> None:
        with create_store("replay.db") as store:
            fill(store, 2, max_attempts=1)
            fill(store, 1, queue="hrrr", max_attempts=1)
        goes, run, db = ("--queue", "goes-abi", *SINCE), self._run, "replay.db"
        run("replay select", *goes, "--save-spec", "spec.yaml", "--show-examples", "1", db=db)
        run("replay dry-run", *goes, "--operator", "ann", db=db)
        run("replay from-spec", "spec.yaml", "--dry-run", "--operator", "ann", db=db)
        done = run("replay run", *goes, *ANN, "--confirm", "--batch-size", "1", "--stop-after", "1", db=db)
        run("replay stop", done["run_id"], "--reason", "enough", db=db)
        run("replay inspect", done["run_id"], db=db)
        here = ("--env", "dev", "--db", db, "--json")
        hrrr = ("--dataset", "hrrr", *SINCE)
        for name, *arguments in (
            ("select", *hrrr, "--save-spec", "hrrr.yaml"),
            ("dry-run", *hrrr, "--operator", "ann"),
            ("from-spec", "hrrr.yaml", "--dry-run", "--operator", "ann"),
            ("run", *hrrr, *ANN, "--confirm"),
            ("inspect", "3"),
        ):
            self._keep_answer(f"nodd-replay {name}", replay_for_nodd(name, *arguments, *here))

    def _quarantine(self) -> None:
        holdfast("submit", "noop", "--db", "other.db")
        holdfast("submit", "noop", "--db", "other.db")
        run, db = self._run, "other.db"
        run("quarantine add", "1", "--code", "timeout", *ANN, db=db)
        holdfast("quarantine", "add", "2", "--code", "poison", *ANN, "--db", db)
        run("quarantine list", db=db)
        run("quarantine statistics", db=db)
        run("quarantine release", "1", *ANN, db=db)
        run("quarantine show", "2", db=db)
        run("quarantine history", db=db)
        run("quarantine purge", "--older-than", "30d", db=db)
        run("erase", "2", *ANN, db=db)
        run("limit", "--queue", "slow", "--depth", "100", db=db)
        run("switch throw", "operation:noop", *ANN, db=db)
        run("switch list", db=db)
        run("switch lift", "operation:noop", *ANN, db=db)
        why = ("--reason", "nightly work")
        run("schedules add", "nightly", "0 2 29 2 *", "noop", '{"full": true}', "--tz", "Europe/Berlin", *why, db=db)
        run("schedules trigger", "nightly", db=db)
        run("schedules pause", "nightly", *why, db=db)
        run("schedules list", db=db)
        run("schedules resume", "nightly", *why, db=db)
        run("schedules remove", "nightly", *why, db=db)
        run("schedules history", "nightly", db=db)
        run("limits set", "key:noop", "--running", "1", "--rate", "100/minute", "--path", "customer.id", *why, db=db)
        run("limits list", db=db)
        run("limits show", "key:noop", db=db)
        run("limits remove", "key:noop", *why, db=db)
        run("queues limit", "default", "--running", "3", *why, db=db)
        run("queues limit", "default", "--off", *why, db=db)
        run("queues weight", "default", "3", *why, db=db)
        run("queues step", "300", *why, db=db)
        run("queues history", "default", db=db)
        with Ledger(db) as ledger:
            ledger.batch([{"operation": "noop"}] * 2, then=Call(operation="noop", payload={}), name="nightly")
        run("batches list", db=db)
        run("batches show", "1", db=db)

    def _console(self) -> None:
        run, password = self._run, b"correct horse battery\n"
        roles = ("--role", "operator", "--role", "approver")
        run("console users add", "ann", *roles, "--password-stdin", db=None, stdin=password)
        run("console users list", db=None)
        run("console users key", "ann", "ann.pub", db=None)
        run("console tokens add", "shop", "--owner", "ann", "--role", "submitter", "--queue", "orders", db=None)
        run("console tokens list", db=None)
        run("console tokens revoke", "shop", db=None)
        run("console users passwd", "ann", "--password-stdin", db=None, stdin=password)
        run("console users disable", "ann", db=None)

    def _nodd(self) -> None:
        holdfast("init", "--db", "nodd.db")
        run, db = self._run, "nodd.db"
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it would print each request
        with aws.running() as cloud:
            data = samples.grib2(datetime(2026, 7, 26, tzinfo=UTC), 3)
            cloud.bucket(BUCKET)
            cloud.s3.put_object(Bucket=BUCKET, Key=GFS, Body=data, ACL="public-read")
            etag = cloud.s3.head_object(Bucket=BUCKET, Key=GFS)["ETag"].strip('"')
            dead = str(cloud.sqs.create_queue(QueueName="nodd-dlq")["QueueUrl"])
            cloud.sqs.send_message(QueueUrl=dead, MessageBody="garbage")
            there = ("--endpoint", cloud.endpoint)
            run("nodd datasets", db=None)
            run("nodd subscribe", "gfs", "--account", "123456789012", db=None)
            run("nodd reconcile", "gfs", "--date", "2026-07-26", *there, db=db)
            run("nodd admit", db=db, stdin=event(record(size=len(data), eTag=etag)).encode())
            run("nodd pause", "gfs", "--reason", "bad feed", db=db)
            run("nodd resume", "gfs", "--reason", "mended", db=db)
            run("nodd run", "--until-idle", *there, db=db)
            run("nodd backfill", "gfs", "--from", "2026-07-26", "--to", "2026-07-26", *there, db=db)
            run("nodd drain-dlq", "--queue", dead, *ANN, *there, db=db)
        run("nodd records", db=db)
        run("nodd rejected", db=db)
        run("nodd runs", "gfs", "--date", "2020-01-01", db=db)
        run("nodd ignored", db=db)
        run("nodd publish", "--catalog", "catalog", db=db)
        run("nodd doctor", db=db)
        run("nodd check", db=db)
