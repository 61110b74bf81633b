"""Creates the virtual environments of the peers when they are needed, under `.bench/venvs`, with plain pip.

Invariants:
- An environment is complete when its stamp names the pins and the interpreter it was made for.
- The project's own environment and lock are never changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
VENVS = HERE.parents[1] / ".bench" / "venvs"
ON_SQLITE = ("huey", "litequeue")
ON_POSTGRES = ("pgqueuer", "procrastinate", "oban", "awa", "absurd", "dbos")
ON_REDIS = ("celery", "dramatiq", "taskiq")
REDIS = "redis_server"  # an environment with the server's binary
PEERS = (*ON_SQLITE, *ON_POSTGRES, *ON_REDIS)
NEEDS = {"litequeue": (3, 12), "oban": (3, 12)}


class PeerUnavailable(RuntimeError):
    """The peer cannot be installed here; the message says what is missing."""


def ensure(peer: str) -> Path:
    """Return the interpreter of the peer's environment; create the environment if it is missing or out of date."""
    if peer not in (*PEERS, REDIS):
        raise PeerUnavailable(f"Unknown peer {peer}; known: {', '.join(PEERS)}.")
    pins = HERE / f"{peer}.requirements.txt"
    base = _interpreter(peer)
    directory = VENVS / peer
    python = directory / "bin" / "python"
    stamp = directory / ".made-for"
    wanted = f"{base}\n{pins.read_text()}"
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    VENVS.mkdir(parents=True, exist_ok=True)
    (VENVS.parent / ".gitignore").write_text("*\n")
    _run(peer, base, "-m", "venv", "--clear", str(directory))
    _run(peer, str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", str(pins))
    stamp.write_text(wanted)
    return python


def _interpreter(peer: str) -> str:
    """Return this interpreter if it is new enough, because Holdfast uses it too; else another one of the machine."""
    needed = NEEDS.get(peer, (3, 11))
    if sys.version_info[:2] >= needed:
        return getattr(sys, "_base_executable", sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    candidates = [str(path) for path in sorted(pyenv.glob("versions/3.*/bin/python"))]
    candidates += filter(None, (shutil.which(f"python3.{minor}") for minor in range(needed[1], needed[1] + 4)))
    check = f"import sys; sys.exit(sys.version_info < {needed})"
    for candidate in candidates:
        # pyenv has shims for versions that are not selected too, so the candidate must be run.
        if subprocess.run([candidate, "-c", check], capture_output=True, check=False).returncode == 0:
            return candidate
    raise PeerUnavailable(f"{peer} needs Python {needed[0]}.{needed[1]} or newer, and none was found.")


def _run(peer: str, *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PeerUnavailable(f"{' '.join(command)} failed for {peer}:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    for name in sys.argv[1:] or (*PEERS, REDIS):
        print(ensure(name))
