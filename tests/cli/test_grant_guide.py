"""The guide to grants is run: every `console` block, in order, in one directory."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.cli.test_guide import BLOCK, _run

GUIDE = Path(__file__).parents[2] / "docs" / "grants.md"


def test_the_guide_tells_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    steps = [step for block in BLOCK.findall(GUIDE.read_text(encoding="utf-8")) for step in block.split("\n$ ")]
    steps = [step.removeprefix("$ ") for step in steps]
    assert len(steps) == 13
    for step in steps:
        command, _, expected = step.rstrip("\n").partition("\n")
        if command.startswith("export "):
            monkeypatch.setenv(*command.removeprefix("export ").split("="))
            continue
        said = "\n".join(line.rstrip() for line in _run(command).splitlines())
        pattern = r"(.|\n)*?".join(map(re.escape, expected.split("…")))
        assert re.fullmatch(f"{pattern}(.|\n)*" if expected.endswith("…") else pattern, said), f"{command}\n{said}"
