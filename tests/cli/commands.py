"""Runs the command, and returns its exit code and output.

Invariants: `holdfast` runs it in this process, `process` as a child; both answer the exit code and all output; no
output of either ever holds a traceback.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from holdfast.cli import run

PROGRAM = (sys.executable, "-m", "holdfast.cli")
# The command whose progress bars are shown from the start, not after two seconds.
BARS_AT_ONCE = "from holdfast.cli import main, output; output.SHOWN_AFTER_S = 0; main()"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value on standard output; standard error must be empty."""
        assert self.err == ""
        assert self.out.endswith("\n")
        return json.loads(self.out)

    def tells(self, *facts: object) -> bool:
        """Whether it succeeded, and its text has these ids, names and numbers, in this order."""
        words = [re.escape(str(fact)) for fact in facts]
        return self.code == 0 and re.search(r"\b.*?\b".join(words), self.out, re.DOTALL) is not None

    @property
    def error_code(self) -> str:
        """The code of the error, from JSON or from the line for people, whichever it is."""
        if self.out:
            value = self.json
            assert list(value) == ["error_code", "error_message", "context"]
            assert value["error_message"]
            assert value["context"]["next_step"]
            return str(value["error_code"])
        first, *rest = self.err.splitlines()
        assert first.startswith("error: ")
        assert rest[-1].startswith("next:  ")
        return first.rpartition("(")[2].removesuffix(")")


def holdfast(*arguments: str, stdin: bytes = b"") -> Outcome:
    """Run the command in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    given = io.TextIOWrapper(io.BytesIO(stdin))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), mock.patch.object(sys, "stdin", given):
        code = run(arguments)
    return _outcome(code, _written(out), _written(err))


def at(db: str) -> str:
    """How a printed command names a ledger that was named on the command line."""
    return f"--db {shlex.quote(db)}"


def typed(command: str) -> Outcome:
    """Run a command as it was printed."""
    program, *words = shlex.split(command)
    assert program == "holdfast"
    return holdfast(*words)


def process(
    *arguments: str | bytes,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    before: Callable[[], None] | None = None,
) -> Outcome:
    """Run the command as a child; `before` is called in it first."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        input=stdin,
        env=clean_environment() | dict(env or {}),
        cwd=cwd,
        capture_output=True,
        timeout=60,
        check=False,
        preexec_fn=before,
    )
    return _outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def clean_environment() -> dict[str, str]:
    """This process's environment without variables that the command reads."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "NO_COLOR", "FORCE"))
    }


def heed_permissions() -> None:
    """Let a child of root be bound by the permissions of files, as other users are."""
    if os.geteuid() == 0:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            if prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP
                raise OSError(ctypes.get_errno(), "the capability could not be dropped")


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    raw = stream.buffer
    assert isinstance(raw, io.BytesIO)
    return raw.getvalue().decode()


def _outcome(code: int, out: str, err: str) -> Outcome:
    assert "Traceback" not in out + err
    return Outcome(code, out, err)
