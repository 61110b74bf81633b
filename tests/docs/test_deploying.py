"""What is deployed: the guide's commands, and that units and compose file start what the command knows."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from holdfast.engine.worker.worker import DRAIN_S
from tests.cli.commands import holdfast
from tests.support.guides import DOCS, ROOT, run_console

DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def started() -> Iterator[tuple[str, list[str]]]:
    """Yield each command that a unit or a container starts, without the program, and where it is."""
    for unit in sorted((DEPLOY / "systemd").glob("*.service")):
        [line] = re.findall(
            r"^ExecStart=/opt/holdfast/bin/holdfast (.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE
        )
        yield unit.name, shlex.split(line)
    for name, service in COMPOSE["services"].items():
        if "command" in service:
            yield name, service["command"]


def test_deploying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(DEPLOY / "shop.py", tmp_path)
    run_console(DOCS / "deploying.md", tmp_path, monkeypatch, steps_min=10)


@pytest.mark.parametrize("where, words", list(started()), ids=lambda value: value if isinstance(value, str) else "")
def test_each_service_starts_a_command_with_existing_options(where: str, words: list[str]) -> None:
    shown = holdfast(words[0], "--help")
    assert shown.code == 0
    known = set(re.findall(r"--[a-z-]+", shown.out))
    assert {word for word in words if word.startswith("--")} <= known


def test_compose_starts_a_database_two_workers_and_a_console_on_loopback() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"database", "ledger", "worker", "console"}
    assert services["worker"]["deploy"]["replicas"] == 2
    assert all(port.startswith("127.0.0.1:") for service in services.values() for port in service.get("ports", ()))


def test_a_stop_gives_handlers_longer_than_the_drain() -> None:
    unit = (DEPLOY / "systemd" / "holdfast-worker@.service").read_text(encoding="utf-8")
    [stop_s] = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    grace_s = COMPOSE["services"]["worker"]["stop_grace_period"].removesuffix("s")
    assert min(int(stop_s), int(grace_s)) > DRAIN_S
