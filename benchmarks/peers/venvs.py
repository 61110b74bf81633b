"""Makes the peers' virtual environments on demand, under `.bench/venvs`, with plain pip.

Invariants:
- An environment is complete when its stamp names the pins and the interpreter it was made for.
- Nothing of it touches the project's own environment or lock.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
VENVS = HERE.parents[1] / ".bench" / "venvs"
PEERS = ("huey", "litequeue", "pgqueuer", "procrastinate")
NEEDS = {"litequeue": (3, 12)}


class PeerUnavailable(RuntimeError):
    """The peer cannot be installed here; the message says what is missing."""


def ensure(peer: str) -> Path:
    """The interpreter of the peer's environment, made or remade if need be."""
    if peer not in PEERS:
        raise PeerUnavailable(f"No such peer: {peer}. There are {', '.join(PEERS)}.")
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
    """This interpreter where it will do, as Holdfast runs on it too; else another one of the machine."""
    needed = NEEDS.get(peer, (3, 11))
    if sys.version_info[:2] >= needed:
        return getattr(sys, "_base_executable", sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    candidates = [str(path) for path in sorted(pyenv.glob("versions/3.*/bin/python"))]
    candidates += filter(None, (shutil.which(f"python3.{minor}") for minor in range(needed[1], needed[1] + 4)))
    check = f"import sys; sys.exit(sys.version_info < {needed})"
    for candidate in candidates:
        # A pyenv shim is there for versions that are not selected too: only running it tells.
        if subprocess.run([candidate, "-c", check], capture_output=True, check=False).returncode == 0:
            return candidate
    raise PeerUnavailable(f"{peer} needs Python {needed[0]}.{needed[1]} or newer, and none was found.")


def _run(peer: str, *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PeerUnavailable(f"{' '.join(command)} failed for {peer}:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    for name in sys.argv[1:] or PEERS:
        print(ensure(name))
