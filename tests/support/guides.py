"""Runs the code of a documentation page: its Python blocks as one program, its console blocks command by command.

Invariants:
- blocks run in the order of the page, in one directory and, for Python, in one namespace;
- the output of a command must match the page; `…` on the page matches any text in its line, and alone in a line any
  number of lines;
- `holdfast` and `nodd-replay` run in this process, which is faster; a line that needs a shell runs in one, and so does
  a worker, which imports the modules of the page.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import holdfast
from tests.cli.replaying import nodd

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EXIT = '; echo "exit $?"'
RUN_ID = re.compile(r"replay-[0-9a-f]{12}")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MODULE = re.compile(r"# (\w+\.py)\n")
_PROMPT = re.compile(r"^\$ ", re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in one language."""
    return [text for found, text in _BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]


def run_python(page: Path, directory: Path) -> None:
    """Run all Python blocks of a page as one program; fail with its error output.

    A block that begins with the name of a file, such as `# shop.py`, is that module.
    """
    program, found = directory / "document.py", blocks(page, "python")
    for block in found:
        if named := _MODULE.match(block):
            (directory / named[1]).write_text(block, encoding="utf-8")
    program.write_text("\n\n".join(block for block in found if not _MODULE.match(block)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", program], cwd=directory, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def run_console(page: Path, directory: Path, monkeypatch: pytest.MonkeyPatch, *, steps_min: int) -> None:
    """Run every command of a page in a directory and compare its output; the page has at least `steps_min` commands."""
    monkeypatch.chdir(directory)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    found = [step for block in blocks(page, "console") for step in _PROMPT.split(block)[1:]]
    assert len(found) >= steps_min
    run_id = ""
    for step in found:
        command, _, expected = step.partition("\n")
        if command.startswith("export "):
            monkeypatch.setenv(*command.removeprefix("export ").split("="))
            continue
        command = RUN_ID.sub(run_id, command)  # the page shows the id of another run
        printed = "".join(f"{line.rstrip()}\n" for line in _printed(command).splitlines())
        run_id = (RUN_ID.findall(printed) or [run_id])[0]
        assert re.fullmatch(_pattern(expected), printed), f"$ {command}\n{printed}\n--- expected\n{expected}"


def _pattern(expected: str) -> str:
    lines = (".*".join(map(re.escape, line.split("…"))) + "\n" for line in expected.splitlines())
    return "".join(r"(.*\n)*?" if line == ".*\n" else line for line in lines)


def _printed(command: str) -> str:
    plain = command.removesuffix(EXIT)
    program, *arguments = shlex.split(plain)
    if program not in ("holdfast", "nodd-replay") or set(plain) & set("|<>;") or "worker" in arguments[:1]:
        done = subprocess.run(["sh", "-c", f"exec 2>&1; {command}"], capture_output=True, timeout=60, check=False)
        return done.stdout.decode()
    code, out, err = holdfast(*arguments) if program == "holdfast" else nodd(*arguments)
    return out + err + (f"exit {code}\n" if command.endswith(EXIT) else "")
