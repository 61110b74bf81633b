"""What Prometheus scrapes from a worker, `holdfast metrics`, and the log as JSON."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

from holdfast import Ledger
from holdfast.cli.logs import JsonFormatter
from holdfast.core.errors import BrokenError, ExtraMissingError, InputError, StoreUnavailableError
from holdfast.telemetry import scrape
from holdfast.telemetry.metrics import EVENTS, PREFIX, STATE
from holdfast.telemetry.scrape import ScrapeSink, scraped
from tests.cli.commands import PROGRAM, clean_environment, holdfast
from tests.telemetry.test_prometheus import samples

APP = "from holdfast import Ledger\nledger = Ledger()\n"


def fetched(port: int, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def status(port: int, path: str = "/metrics") -> int:
    try:
        fetched(port, path)
    except urllib.error.HTTPError as error:
        with error:
            return int(error.code)
    return 200


def test_a_scrape_has_what_the_process_did_and_what_the_ledger_holds(ledger_url: str) -> None:
    with Ledger(ledger_url) as ledger, scraped(ledger, 0) as port:
        ledger.submit("noop")
        ledger.run_until_idle()
        deadline = time.monotonic() + 30
        ended = ("holdfast_job_attempts_count", (("operation", "noop"), ("outcome", "succeeded")))
        while (found := samples(fetched(port))).get(ended) != 1:
            assert time.monotonic() < deadline
        moved = (("event", "claim"), ("operation", "noop"), ("queue", "default"))
        assert found["holdfast_job_transitions_total", (*moved, ("source", "pending"), ("target", "running"))] == 1
        assert found["holdfast_commit_fsyncs_total", ()] >= 2
        assert found["holdfast_jobs", (("operation", "noop"), ("queue", "default"), ("state", "succeeded"))] == 1
        names = {name for name, _ in found}
        for row in (*EVENTS.values(), *STATE.values()):
            exposed = row.exposed(PREFIX)
            assert exposed in names or f"{exposed}_count" in names or row.labels


def test_only_metrics_are_served_and_only_on_loopback(new_sqlite_ledger: str) -> None:
    with Ledger(new_sqlite_ledger) as ledger, scraped(ledger, 0) as port:
        assert [status(port, path) for path in ("/metrics", "/metrics?a=1", "/", "/../etc/passwd")] == [
            200, 200, 404, 404,
        ]  # fmt: skip
        with pytest.raises(InputError) as used, scraped(ledger, port):
            pass
        assert used.value.context["port"] == port
        assert scrape.HOST == "127.0.0.1"


def test_a_ledger_out_of_reach_is_503(new_sqlite_ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_store: object) -> str:
        raise StoreUnavailableError("gone")

    monkeypatch.setattr(scrape, "exposition", gone)
    with Ledger(new_sqlite_ledger) as ledger, scraped(ledger, 0) as port:
        assert status(port) == 503


def test_labels_of_a_scrape_are_those_of_the_table() -> None:
    with pytest.raises(BrokenError, match=r"lease\.losses"):
        ScrapeSink().add("lease.losses", operation="noop")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ExtraMissingError) as refused:
        ScrapeSink()
    assert "holdfast[telemetry]" in refused.value.hint


def test_a_worker_of_the_command_serves_metrics_and_logs_json(new_sqlite_ledger: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    worker = subprocess.Popen(
        [*PROGRAM, "worker", "shop", "--db", new_sqlite_ledger, "--metrics", str(port), "--log", "json"],
        env=clean_environment() | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                found = samples(fetched(port))
            except OSError:
                found = {}
            if found.get(("holdfast_workers", ())) == 1:
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        worker.send_signal(signal.SIGTERM)
        _, err = worker.communicate(timeout=60)
    first = json.loads(err.splitlines()[0])
    assert (worker.returncode, first["level"], first["logger"]) == (0, "INFO", "holdfast")
    assert first["time"].endswith("Z")


def test_the_command_prints_the_state_once(ledger_url: str) -> None:
    printed = holdfast("metrics", "--db", ledger_url)
    assert (printed.code, samples(printed.out)["holdfast_workers", ()]) == (0, 0)
    rows = holdfast("metrics", "--db", ledger_url, "--json").json
    assert {"name": "holdfast_workers", "labels": {}, "value": 0} in rows
    assert {row["name"] for row in rows} <= {row.exposed(PREFIX) for row in STATE.values()}


def test_a_json_line_has_the_extras_the_trace_and_no_control_character() -> None:
    record = logging.makeLogRecord({"name": "holdfast", "levelname": "WARNING", "msg": "job %s\x1b", "args": (7,)})
    record.job_id = 7
    with TracerProvider().get_tracer("t").start_as_current_span("s") as span:
        line = JsonFormatter().format(record)
    value = json.loads(line)
    assert (value["job_id"], value["message"], value["trace_id"]) == (
        7, "job 7\x1b", f"{span.get_span_context().trace_id:032x}",
    )  # fmt: skip
    assert line.isprintable()
    try:
        raise ValueError("bad")
    except ValueError:
        record.exc_info = sys.exc_info()
    value = json.loads(JsonFormatter().format(record))
    assert "ValueError: bad" in value["exception"]
    assert "trace_id" not in value
