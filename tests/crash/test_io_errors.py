"""The disk fails at any write or sync of one reference run: the caller gets an error, and acknowledged work is kept.

The calls of an unmodified process are made to fail by `strace`; nothing of the program is changed.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.aftermath import make_template, require_sound
from tests.support.power import STRACE
from tests.support.roles import noted

SEED = 20261115
CALLS = ("pwrite64", "fdatasync")
SAMPLE = 3
PROGRAM = """
import sys
from holdfast.core.errors import HoldfastError
from tests.crash.reference_run import run
from tests.support.roles import note
url, notes = sys.argv[1:]
try:
    run(url, notes=notes, counted=notes + ".count")
except HoldfastError as error:
    note(notes + ".error", error.code)
"""

pytestmark = [
    pytest.mark.skipif(STRACE is None, reason="strace is not installed: no disk can be made to fail"),
    pytest.mark.attack("faults"),
]


class Attempt:
    """One reference run in which one call fails (`error=EIO`) or kills the process (`signal=KILL`), or none."""

    def __init__(self, folder: Path, call: str, fault: str, when: int | None) -> None:
        assert STRACE is not None
        self.path = folder / "failing.db"
        for old in folder.glob("failing.*"):
            old.unlink()
        shutil.copyfile(folder / "template.db", self.path)
        notes = folder / "failing.notes"
        inject = [] if when is None else ["-e", f"inject={call}:{fault}:when={when}"]
        trace = folder / "failing.trace"
        done = subprocess.run(
            [
                STRACE,
                "-f",
                "-o",
                str(trace),
                "-e",
                f"trace={call}",
                *inject,
                sys.executable,
                "-c",
                PROGRAM,
                str(self.path),
                str(notes),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.killed = done.returncode == -signal.SIGKILL
        assert done.returncode == 0 or self.killed, done.stderr  # anything but a typed error
        self.calls = trace.read_text(encoding="utf-8").count(f"{call}(")
        self.notes = noted(notes) if notes.exists() else []
        self.finished = (folder / "failing.notes.count").exists()
        error_file = folder / "failing.notes.error"
        self.codes = noted(error_file) if error_file.exists() else []

    def require_honest(self) -> None:
        """Fail unless the run ended, was killed or said why not, and every answer is true of what it left."""
        assert self.finished or self.killed or self.codes, "it neither ended nor said why"
        require_sound(self.path, self.notes)


@pytest.fixture
def folder(sqlite_url: str) -> Path:
    folder = Path(sqlite_url.removeprefix("sqlite:///")).parent
    make_template(folder)
    return folder


def fail_at(folder: Path, call: str, error: str, n: int | None) -> set[str]:
    """Let one call fail, each in turn or `n` of them; return the codes of the errors that callers got."""
    every = range(1, Attempt(folder, call, "", None).calls + 1)
    points = list(every) if n is None else sorted(random.Random(SEED).sample(every, min(n, len(every))))
    codes: set[str] = set()
    for point in points:
        attempt = Attempt(folder, call, f"error={error}", point)
        attempt.require_honest()
        codes.update(attempt.codes)
    return codes


@pytest.mark.req("M-11", "M-20")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "error, n",
    [
        ("EIO", SAMPLE),
        pytest.param("EIO", None, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
        pytest.param("ENOSPC", None, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
    ],
)
def test_a_failing_disk_is_reported_and_loses_no_acknowledged_job(
    call: str, error: str, n: int | None, folder: Path
) -> None:
    assert fail_at(folder, call, error, n) != set()
