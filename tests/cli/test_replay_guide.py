"""The guide of replay is run: every `console` block, in order, in one directory; its files are read."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from holdfast.cli.documents import parse_tree
from holdfast.cli.replay.overlays import overlay_of
from holdfast.cli.replay.spec_files import selection_of
from tests.cli.commands import holdfast
from tests.cli.replaying import failed_jobs, nodd

GUIDE = Path(__file__).parents[2] / "docs" / "replay.md"
BLOCK = re.compile(r"^```(console|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT = '; echo "exit $?"'
RUN = re.compile(r"replay-[0-9a-f]{12}")
HEAD = "apiVersion: holdfast.replay/v1\nkind: ReplaySelection\nmetadata: {name: s, env: dev}\n"


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(GUIDE.read_text(encoding="utf-8")) if found == kind]


@pytest.mark.req("K-52", "K-54")
def test_the_guide_tells_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed_jobs("work.db")
    steps = [step for block in blocks("console") for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    assert len(steps) > 12
    run_id = ""
    for step in steps:
        command, _, expected = step.partition("\n")
        if command.startswith("export "):
            monkeypatch.setenv(*command.removeprefix("export ").split("="))
            continue
        command = RUN.sub(run_id, command)
        said = "".join(f"{line.rstrip()}\n" for line in _run(command).splitlines())
        run_id = (RUN.findall(said) or [run_id])[0]
        pattern = ".*".join(map(re.escape, expected.split("…")))
        assert re.fullmatch(pattern, said), f"$ {command}\n{said}\n--- expected\n{expected}"


def _run(command: str) -> str:
    """Return what a command says: of ours in this process, which is quicker; of others through a shell."""
    program, *arguments = shlex.split(command.removesuffix(EXIT))
    if program not in ("holdfast", "nodd-replay"):
        done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60, check=True)
        return done.stdout.decode()
    code, out, err = holdfast(*arguments) if program == "holdfast" else nodd(*arguments)
    return out + err + (f"exit {code}\n" if command.endswith(EXIT) else "")


def test_the_files_of_the_guide_can_be_read() -> None:
    spec, overlay = blocks("yaml")
    assert selection_of(parse_tree((HEAD + spec).encode())).filters.jobs == ("17", "a.png")
    assert overlay_of(parse_tree(overlay.encode())).env == "stage"
