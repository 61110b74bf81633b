"""`make dist`: builds sdist and wheel, and checks that the wheel works in empty environments.

Invariants:
- the wheel is built from the unpacked sdist, so a file that the sdist lacks is noticed;
- nothing is built in isolation: hatchling comes from the lock;
- an environment of the check holds the wheel and the locked core dependencies, by hash, and nothing else.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

from packaging.markers import Environment, default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.11", "3.12", "3.13")
# What the container of deploy/Dockerfile has, and its Python.
CONTAINER = ("console", "postgres", "signing", "telemetry")
CONTAINER_PYTHON = "3.12"
_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==[^\n]*\n(?:[ ]+--hash[^\n]*\n)+", re.MULTILINE)


def locked(extras: tuple[str, ...], python: str, text: str) -> str:
    """Return the part of a lock that the package needs with these extras on a version of Python."""
    needed = set(_closure(extras, python))
    found = [(canonicalize_name(entry[1]), entry[0]) for entry in _ENTRY.finditer(text)]
    missing = needed - {name for name, _ in found}
    if missing:
        raise SystemExit(f"not in requirements.lock: {', '.join(sorted(missing))}")
    return "".join(entry for name, entry in found if name in needed)


def _closure(extras: tuple[str, ...], python: str) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    waiting = [("holdfast", extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        if name != "holdfast":
            yield name
        for line in requires(name) or ():
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate(_environment(python, extra)):
                waiting += [(canonicalize_name(wanted.name), each) for each in ("", *wanted.extras)]


def _environment(python: str, extra: str) -> dict[str, str]:
    here: Environment = default_environment()
    return {
        **{key: str(value) for key, value in here.items()},
        "python_version": python,
        "python_full_version": f"{python}.0",
        "extra": extra,
    }


def build(folder: Path) -> Path:
    """Build the sdist, and from it the wheel; return the wheel."""
    _hatch(ROOT, folder, "sdist")
    [sdist] = folder.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(sdist) as archive:
            if hasattr(tarfile, "data_filter"):  # not before Python 3.11.4
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(unpacked)  # noqa: S202 - made by the line above
        [source] = Path(unpacked).iterdir()
        _hatch(source, folder, "wheel")
    [wheel] = folder.glob("*.whl")
    return wheel


def _hatch(source: Path, folder: Path, target: str) -> None:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder], cwd=source, check=True)


def try_wheel(python: str, wheel: Path, lock: str) -> str:
    """Install the wheel into an empty environment, use it there, and return what its command says of its version."""
    with tempfile.TemporaryDirectory() as empty:
        folder = Path(empty)
        (folder / "core.lock").write_text(lock, encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HOLDFAST"))}

        def run(*words: str | Path) -> str:
            done = subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            return done.stdout.strip()

        run(python, "-m", "venv", folder / "venv")
        binaries = folder / "venv" / "bin"
        install = (binaries / "python", "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps")
        run(*install, wheel)
        run(*install, "--require-hashes", "-r", "core.lock")
        run(binaries / "python", "-m", "pip", "check")
        run(binaries / "python", "-c", "import holdfast; holdfast.Ledger")
        run(binaries / "holdfast", "init", "--db", "work.db")
        run(binaries / "holdfast", "submit", "noop", "--db", "work.db")
        run(binaries / "holdfast", "check", "--db", "work.db")
        return run(binaries / "holdfast", "--version")


def _runs(python: str) -> bool:
    """Whether there is such an interpreter; a name on the path can be a shim without one behind it."""
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "--version"], capture_output=True, check=False).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the files; it is emptied first")
    folder = parser.parse_args().out.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    wheel = build(folder)
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    (folder / "requirements.txt").write_text(locked(CONTAINER, CONTAINER_PYTHON, lock), encoding="utf-8")
    current = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version in PYTHONS:
        python = sys.executable if version == current else f"python{version}"
        if not _runs(python):
            print(f"Python {version}: NOT TESTED, there is no python{version} here")
            continue
        print(f"Python {version}: holdfast {try_wheel(python, wheel, locked((), version, lock))} installs and works")


if __name__ == "__main__":
    main()
