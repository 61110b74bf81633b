"""The pages whose commands are run: what the page shows is what the commands print."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.documents import parse_tree
from holdfast.cli.replay.overlays import overlay_of
from holdfast.cli.replay.spec_files import selection_of
from tests.cli.commands import holdfast
from tests.cli.replaying import failed_jobs
from tests.support.guides import DOCS, blocks, run_console

SPEC_HEAD = "apiVersion: holdfast.replay/v1\nkind: ReplaySelection\nmetadata: {name: s, env: dev}\n"


def test_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_console(DOCS / "cli.md", tmp_path, monkeypatch, steps_min=40)


def test_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_console(DOCS / "console.md", tmp_path, monkeypatch, steps_min=9)


def test_schedules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_console(DOCS / "schedules.md", tmp_path, monkeypatch, steps_min=8)


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_console(DOCS / "limits.md", tmp_path, monkeypatch, steps_min=9)


def test_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_console(DOCS / "sqlite.md", tmp_path, monkeypatch, steps_min=5)


def test_erasing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_console(DOCS / "erasing.md", tmp_path, monkeypatch, steps_min=8)


def test_unique(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_console(DOCS / "unique.md", tmp_path, monkeypatch, steps_min=5)


def test_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_console(DOCS / "flow.md", tmp_path, monkeypatch, steps_min=7)


def test_grants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_console(DOCS / "grants.md", tmp_path, monkeypatch, steps_min=13)


@pytest.mark.req("G-21", "G-25", "G-28")
def test_quarantine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_console(DOCS / "quarantine.md", tmp_path, monkeypatch, steps_min=30)


@pytest.mark.req("K-52", "K-54")
def test_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed_jobs(str(tmp_path / "work.db"))
    run_console(DOCS / "replay.md", tmp_path, monkeypatch, steps_min=12)


def test_the_files_of_the_page_on_replay_can_be_read() -> None:
    spec, overlay = blocks(DOCS / "replay.md", "yaml")
    assert selection_of(parse_tree((SPEC_HEAD + spec).encode())).filters.jobs == ("17", "a.png")
    assert overlay_of(parse_tree(overlay.encode())).env == "stage"


@pytest.mark.req("L-12")
def test_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("init", "submit noop", "submit noop", "audit head"):
        assert holdfast(*command.split(), "--db", "work.db").code == 0
    assert holdfast("init", "--env", "stage", "--db", "stage.db").code == 0
    run_console(DOCS / "snapshots.md", tmp_path, monkeypatch, steps_min=8)
