"""The tutorial, as a newcomer follows it: its program, its commands, and the console that it starts."""

from __future__ import annotations

import shlex
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cli.commands import PROGRAM
from tests.console.serving import free_port
from tests.support.guides import DOCS, blocks, run_console

TUTORIAL = DOCS / "tutorial.md"


def test_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [program] = blocks(TUTORIAL, "python")
    (tmp_path / "app.py").write_text(program, encoding="utf-8")
    run_console(TUTORIAL, tmp_path, monkeypatch, steps_min=12)
    port = free_port()
    command = shlex.split(blocks(TUTORIAL, "sh")[-1])
    assert command[:2] == ["holdfast", "console"]
    serving = subprocess.Popen([*PROGRAM, *command[1:], "--port", str(port)], cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        assert "convert" in page(serving, f"http://127.0.0.1:{port}/jobs/1")
    finally:
        serving.terminate()
        serving.communicate(timeout=60)


def page(serving: subprocess.Popen[bytes], address: str) -> str:
    """Return a page of the console once it answers; fail if its process ends first."""
    end = time.monotonic() + 60
    while serving.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - loopback
                return str(answer.read().decode())
        except urllib.error.URLError:
            time.sleep(0.1)
    pytest.fail(f"the console did not answer; exit code {serving.poll()}")
