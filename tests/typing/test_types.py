"""A type checker proves the types: correct use passes, and every misuse is found on its own line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent

_FOUND = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]$", re.MULTILINE)
_EXPECTED = re.compile(r"# E: (?P<code>[\w-]+)$")


def mypy(file: Path) -> tuple[int, str]:
    """Return what mypy says, by the project's own settings; the cache of the project makes it quick."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_correct_use_passes() -> None:
    assert mypy(HERE / "good.py") == (0, "")


def test_every_misuse_is_found_and_nothing_else(tmp_path: Path) -> None:
    source = (HERE / "bad.txt").read_text()
    lines = enumerate(source.splitlines(), start=1)
    expected = {number: match["code"] for number, line in lines if (match := _EXPECTED.search(line))}
    assert len(expected) == 25
    file = tmp_path / "bad.py"
    file.write_text(source)
    code, said = mypy(file)
    found = [(int(match["line"]), match["code"]) for match in _FOUND.finditer(said)]
    assert code == 1, said
    assert dict(found) == expected, said
    assert len(found) == len(expected), said
    compile(source, "bad.txt", "exec")  # the mistakes are of types, not of syntax


@pytest.mark.parametrize("name", ["py.typed", "testing.py", "pytest_plugin.py"])
def test_the_package_says_that_it_is_typed(name: str) -> None:
    import holdfast

    assert Path(holdfast.__file__ or "").with_name(name).is_file()
