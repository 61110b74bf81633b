"""The guide to quarantine and switches is run: every `console` block, in order, in one directory."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.cli.test_guide import BLOCK, _run

GUIDE = Path(__file__).parents[2] / "docs" / "quarantine.md"


@pytest.mark.req("G-21", "G-25", "G-28")
def test_the_guide_tells_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    steps = [step for block in BLOCK.findall(GUIDE.read_text(encoding="utf-8")) for step in block.split("$ ")[1:]]
    assert len(steps) > 25
    for step in steps:
        command, _, expected = step.partition("\n")
        if command.startswith("export "):
            monkeypatch.setenv(*command.removeprefix("export ").split("="))
            continue
        said = _run(command)
        pattern = ".*".join(map(re.escape, expected.split("…")))
        assert re.fullmatch(pattern, said), f"$ {command}\n{said}\n--- expected\n{expected}"
