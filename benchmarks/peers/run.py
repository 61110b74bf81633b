"""Measures one system: runs its driver as a child in its own environment, and returns its result.

Invariants:
- The driver's figures cover only the measured work, never the creation of the environment.
- The simulated disk is the caller's: `env` carries its preload and counter, and for a server the counter is the one
  that the server counts in.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.peers import venvs

ROOT = venvs.HERE.parents[1]
TIMEOUT_S = 300
OWN = ("holdfast", "bare")  # drivers that run in this environment


class MeasureError(RuntimeError):
    """The driver failed; the message contains its output."""


def measure(system: str, scenario: str, env: Mapping[str, str] | None = None, **options: object) -> dict[str, Any]:
    """Return one result; `options` are those of the driver's command line, and None leaves one out.

    Without `concurrency` a drain tries the system's usual settings and reports the best, with all in `tried`.
    """
    if system in OWN:
        command = [sys.executable, "-m", f"benchmarks.{system}_driver", scenario]
    else:
        command = [str(venvs.ensure(system)), str(venvs.HERE / f"{system}_driver.py"), scenario]
    command += [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    environment = dict(os.environ if env is None else env)
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            stdout, stderr = child.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            stdout, stderr = child.communicate()
            stderr += f"\nended after {TIMEOUT_S} s"
    if child.returncode != 0:
        raise MeasureError(f"{system} {scenario} failed with {child.returncode}:\n{stdout}{stderr}")
    result: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    return result
