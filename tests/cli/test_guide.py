"""The guide of the command is run: every `console` block, in order, in one directory."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import holdfast

GUIDE = Path(__file__).parents[2] / "docs" / "cli.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT = '; echo "exit $?"'


def test_the_guide_tells_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    steps = [step for block in BLOCK.findall(GUIDE.read_text(encoding="utf-8")) for step in block.split("$ ")[1:]]
    assert len(steps) > 15
    for step in steps:
        command, _, expected = step.partition("\n")
        if command.startswith("export "):
            monkeypatch.setenv(*command.removeprefix("export ").split("="))
            continue
        said = _run(command)
        pattern = ".*".join(map(re.escape, expected.split("…")))
        assert re.fullmatch(pattern, said), f"$ {command}\n{said}\n--- expected\n{expected}"


def _run(command: str) -> str:
    """Return what a command says: through a shell where it needs one, else in this process, which is quicker."""
    if set(command.removesuffix(EXIT)) & set("|<>;"):
        done = subprocess.run(["sh", "-c", f"exec 2>&1; {command}"], capture_output=True, timeout=60, check=False)
        return done.stdout.decode()
    code, out, err = holdfast(*shlex.split(command.removesuffix(EXIT))[1:])
    return out + err + (f"exit {code}\n" if command.endswith(EXIT) else "")
