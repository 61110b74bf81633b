"""Measures a peer: runs its driver as a child in its own environment, and returns its result.

Invariants:
- The driver's time and fsyncs cover only the measured work, never the creation of the environment.
- The simulated disk is the caller's: `env` carries its preload and counter, and for PostgreSQL the counter is
  the one that the server counts in.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any

from benchmarks.peers import venvs

SCENARIOS = ("submit", "bulk", "drain", "drain-effect", "idle")
TIMEOUT_S = 900


class MeasureError(RuntimeError):
    """The driver failed; the message contains its output."""


def measure(
    peer: str,
    scenario: str,
    *,
    url: str,
    n: int,
    concurrency: int | None = None,
    callers: int = 1,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return one result: `per_second`, None if the peer lacks the feature; `fsyncs` if `env` names a counter.

    Without `concurrency` a drain tries the peer's usual settings and reports the best, with all in `tried`.
    """
    command = [str(venvs.ensure(peer)), str(venvs.HERE / f"{peer}_driver.py"), scenario]
    command += ["--url", url, "--n", str(n), "--callers", str(callers)]
    if concurrency is not None:
        command += ["--concurrency", str(concurrency)]
    done = subprocess.run(
        command,
        env=dict(os.environ if env is None else env),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise MeasureError(f"{peer} {scenario} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=venvs.PEERS)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--url", required=True)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--concurrency", type=int)
    parser.add_argument("--callers", type=int, default=1)
    args = parser.parse_args()
    print(json.dumps(measure(**vars(args))))


if __name__ == "__main__":
    main()
