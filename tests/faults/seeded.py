"""What a named fault is: its meaning, the patch that switches it on, and the tests that must then fail.

Invariants: a patch names the one place that it changes, so a patch whose place is gone or is there twice is an error
that says so, and never a fault that quietly does nothing.
"""

from __future__ import annotations

import ast
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
BOTH = ("sqlite", "postgres")


class PatchError(Exception):
    """A patch does not apply; the message names the file and the text that was looked for."""


class Patch(msgspec.Struct, frozen=True):
    """A change to one file under src/holdfast: `old` occurs once in the file, or once in the part that is named.

    The part is a function or method of a Python file (`submit`, `Committer._isolate`) or a statement of an SQL file.
    """

    file: str
    part: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """Return the text of the file with the change made; raise PatchError if the place is not found once."""
        first, last = _lines_of(self.file, self.part, text)
        lines = text.splitlines(keepends=True)
        section = "".join(lines[first:last])
        found = section.count(self.old)
        if found != 1:
            where = f"{self.file}, {self.part}" if self.part else self.file
            raise PatchError(f"{where}: the text to change occurs {found} times, not once:\n{self.old}")
        return "".join(lines[:first]) + section.replace(self.old, self.new) + "".join(lines[last:])


class Broken(msgspec.Struct, frozen=True):
    """A run of a model, and the invariant or promise that must fail in it while the fault is on."""

    run: str
    invariant: str


class SeededFault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. Its id is `area.name`; at least one listed test must fail, and one for each database named."""

    id: str
    meaning: str
    patches: tuple[Patch, ...]
    tests: tuple[str, ...]
    databases: tuple[str, ...] = ()
    postgres: bool = True  # False: it is the same on both databases, so its tests run on SQLite alone
    guards: tuple[tuple[str, str], ...] = ()  # of decide: the functions and refusal codes that the fault takes out
    breaks: Broken | None = None

    @property
    def area(self) -> str:
        return self.id.partition(".")[0]


def plain(id_: str, meaning: str, patch: Patch, *tests: str) -> SeededFault:
    """Return a fault of one place, above the database; its tests run on SQLite alone."""
    return SeededFault(id=id_, meaning=meaning, patches=(patch,), tests=tests, postgres=False)


def patched_files(fault: SeededFault) -> dict[str, str]:
    """Return the changed text of each file that a fault changes; raise PatchError if a patch does not apply."""
    texts: dict[str, str] = {}
    for patch in fault.patches:
        path = SOURCE / "holdfast" / patch.file
        if patch.file not in texts and not path.is_file():
            raise PatchError(f"{fault.id}: there is no file src/holdfast/{patch.file}")
        try:
            texts[patch.file] = patch.applied(texts.get(patch.file) or path.read_text(encoding="utf-8"))
        except PatchError as error:
            raise PatchError(f"{fault.id}: {error}") from None
    return texts


def copy_with(fault: SeededFault, directory: Path) -> Path:
    """Copy src/ into a directory, with the fault switched on, and return the copy's path for PYTHONPATH."""
    copy = directory / "src"
    # The compiled modules go with their times, so that a run compiles only what the fault changes.
    shutil.copytree(SOURCE, copy)
    for file, text in patched_files(fault).items():
        path = copy / "holdfast" / file
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()
        path.write_text(text, encoding="utf-8")
    # A ledger gets its triggers from files that are generated from the rules: a fault of a rule must reach them.
    environment = os.environ | {"PYTHONPATH": str(copy)}
    subprocess.run([sys.executable, "-m", "holdfast.store.generate"], env=environment, check=True)
    return copy


def _lines_of(file: str, part: str, text: str) -> tuple[int, int]:
    """Return the first line of a part, and the one after its last."""
    if not part:
        return 0, text.count("\n") + 1
    found = list(_statements(part, text) if file.endswith(".sql") else _functions(part, text))
    if len(found) != 1:
        raise PatchError(f"{file}: there are {len(found)} parts named {part}, not one")
    return found[0]


def _functions(name: str, text: str) -> Iterator[tuple[int, int]]:
    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[int, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                if prefix + child.name == name:
                    yield child.lineno - 1, child.end_lineno or child.lineno
                yield from walk(child, f"{prefix}{child.name}.")

    return walk(ast.parse(text), "")


def _statements(name: str, text: str) -> Iterator[tuple[int, int]]:
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("-- name:")]
    for here, after in itertools.pairwise([*heads, len(lines)]):
        if lines[here].removeprefix("-- name:").strip() == name:
            yield here, after
