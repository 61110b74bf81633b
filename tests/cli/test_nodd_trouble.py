"""`holdfast nodd` where something is wrong: a service out of reach, an unknown word, no directory."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.cli.commands import at, holdfast, typed
from tests.nodd.messages import event, record

UNREACHABLE = "http://127.0.0.1:1"  # nothing listens there
BUCKET = "noaa-gfs-bdp-pds"
ACCOUNT = ("--account", "123456789012")


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")


@pytest.mark.parametrize(
    "command",
    [
        ("reconcile", "gfs", "--date", "2026-11-14"),
        ("backfill", "gfs", "--from", "2026-11-14", "--to", "2026-11-15"),
    ],
)
def test_an_unreachable_bucket_exits_as_an_unreachable_backend(sqlite_ledger: str, command: tuple[str, ...]) -> None:
    outcome = holdfast("nodd", *command, "--endpoint", UNREACHABLE, "--db", sqlite_ledger, "--json")
    assert (outcome.code, outcome.error_code) == (4, "store_unavailable")
    assert "EndpointConnectionError" in outcome.json["error_message"]
    assert outcome.json["context"]["bucket"] == BUCKET


@pytest.mark.parametrize("status, why", [(403, "access denied"), (501, "S3 answered 501")])
def test_a_bucket_that_refuses_access_exits_as_unreachable(sqlite_ledger: str, status: int, why: str) -> None:
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing on standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        ask = ("nodd", "reconcile", "gfs", "--date", "2026-11-14", "--endpoint", endpoint, "--db", sqlite_ledger)
        outcome = holdfast(*ask, "--json")
        server.shutdown()
    assert (outcome.code, outcome.error_code) == (4, "store_unavailable")
    assert outcome.json["error_message"].endswith(f": {why}")
    assert outcome.json["context"]["bucket"] == BUCKET


def test_a_subscription_without_credentials() -> None:
    outcome = holdfast("nodd", "subscribe", "goes-abi", *ACCOUNT, "--apply", "--endpoint", UNREACHABLE, "--json")
    assert (outcome.code, outcome.error_code) == (4, "store_unavailable")
    assert "NoCredentialsError" in outcome.json["error_message"]


@pytest.mark.usefixtures("credentials")
def test_a_subscription_to_an_unreachable_endpoint(sqlite_ledger: str) -> None:
    outcome = holdfast("nodd", "subscribe", "gfs", *ACCOUNT, "--apply", "--endpoint", UNREACHABLE, "--json")
    assert (outcome.code, outcome.error_code) == (4, "store_unavailable")
    assert "EndpointConnectionError" in outcome.json["error_message"]
    target = ("--subscription", "arn:aws:sns:us-east-1:123456789012:t:x", "--endpoint", UNREACHABLE)
    outcome = holdfast("nodd", "doctor", *target, "--db", sqlite_ledger, "--json")
    assert (outcome.code, outcome.error_code) == (4, "store_unavailable")
    queue = ("--queue", f"{UNREACHABLE}/123456789012/q", "--endpoint", UNREACHABLE)
    outcome = holdfast("nodd", "drain-dlq", *queue, "--reason", "r", "--db", sqlite_ledger, "--json")
    assert (outcome.code, outcome.error_code) == (4, "store_unavailable")
    assert "EndpointConnectionError" in outcome.json["error_message"]


@pytest.mark.parametrize(
    "flags, profile, why",
    [
        (("--endpoint", "http://ann:hunter2@no host"), None, "ValueError: Invalid endpoint: http://ann:***@no host"),
        (("--region", "no region"), None, "InvalidRegionError: "),
        ((), "nobody", "ProfileNotFound: "),
    ],
)
def test_settings_of_which_no_client_can_be_made(
    sqlite_ledger: str, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], profile: str | None, why: str
) -> None:
    if profile:
        monkeypatch.setenv("AWS_PROFILE", profile)
    here = ("--db", sqlite_ledger, *flags, "--json")
    commands = [("drain-dlq", "--queue", f"{UNREACHABLE}/1/q", "--reason", "r"), ("run", "--until-idle")]
    for command in commands:
        outcome = holdfast("nodd", *command, *here)
        assert (outcome.code, outcome.error_code) == (2, "bad_input")
        assert why in outcome.json["error_message"]
        assert "hunter2" not in outcome.out


@pytest.mark.parametrize("account", ["abc", "12345678901", "1234567890123", "", "١٢٣٤٥٦٧٨٩٠١٢"])
def test_an_account_is_twelve_digits(account: str) -> None:
    outcome = holdfast("nodd", "subscribe", "goes-abi", "--account", account, "--json")
    assert (outcome.code, outcome.error_code) == (2, "bad_input")
    assert outcome.json["context"]["account"] == account


def test_a_catalogue_needs_a_directory(sqlite_ledger: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine", encoding="utf-8")
    for directory, why in ((str(file), "Not a directory"), ("/proc/nope", "No such file or directory")):
        outcome = holdfast("nodd", "publish", "--catalog", directory, "--db", sqlite_ledger, "--json")
        assert (outcome.code, outcome.error_code) == (2, "bad_input")
        assert outcome.json["error_message"] == f"{directory} cannot be written: {why}"
        assert outcome.json["context"]["directory"] == directory
    assert file.read_text(encoding="utf-8") == "mine"


def test_an_unknown_status_or_dataset_is_refused(ledger: str, tmp_path: Path) -> None:
    ask = ("nodd", "records", "--db", ledger)
    assert holdfast(*ask).tells("o records")
    assert holdfast(*ask, "--json").json == []
    status = holdfast(*ask, "--status", "bogus", "--json")
    assert (status.code, status.error_code) == (2, "bad_input")
    assert "quarantined" in status.json["error_message"]
    dataset = holdfast(*ask, "--dataset", "bogus", "--json")
    assert (dataset.code, dataset.error_code) == (2, "bad_input")
    assert dataset.json["context"]["dataset"] == "bogus"
    text = (Path(__file__).parents[2] / "src/holdfast/nodd/datasets/gfs.toml").read_text(encoding="utf-8")
    (tmp_path / "gfs.toml").write_text(text, encoding="utf-8")
    assert holdfast(*ask, "--dataset", "gfs", "--datasets", str(tmp_path)).tells("o records")


def test_the_table_of_records_names_their_jobs(ledger: str) -> None:
    notice = event(record()).encode()
    assert holdfast("nodd", "admit", "--db", ledger, "--json", stdin=notice).json[0]["fate"] == "admitted"
    ask = ("nodd", "records", "--dataset", "gfs", "--db", ledger)
    [found] = holdfast(*ask, "--status", "pending", "--json").json
    head, _, row, *_ = holdfast(*ask, "--status", "pending").out.splitlines()
    assert head.split() == ["JOB", "STATUS", "DATASET", "OBJECT"]  # a column without any value is left out
    assert row.split()[:3] == [str(found["ext_job_id"]), "pending", "gfs"]
    for status in ("in_progress", "succeeded", "failed", "quarantined"):
        assert holdfast(*ask, "--status", status, "--json").json == []


def test_the_doctor_advises_an_existing_command(sqlite_ledger: str) -> None:
    holdfast("nodd", "admit", "--db", sqlite_ledger, stdin=b"garbage")
    [finding] = holdfast("nodd", "doctor", "--db", sqlite_ledger, "--json").json["findings"]
    command = f"holdfast nodd rejected {at(sqlite_ledger)}"
    assert f"`{command}`" in finding["next_step"]
    assert typed(command).code == 0
    assert f"`{command}`" in holdfast("nodd", "doctor", "--db", sqlite_ledger).out
