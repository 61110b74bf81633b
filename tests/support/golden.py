"""The golden files: the interfaces of Holdfast for people and programs as text, so that each change shows as a diff.

Invariants: a golden file depends only on the code, not on the clock, a path, a random name or a terminal;
`tests/golden/` contains only golden files.

Usage: python -m tests.support.golden --check | --write. With `--check` nothing is written; differences are printed as a
unified diff, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support import golden_api, golden_files, golden_help, golden_json, golden_sql

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path("tests/golden")

MAKERS: tuple[Callable[[], dict[str, str]], ...] = (
    golden_sql.triggers,
    golden_sql.database_errors,
    golden_help.machines,
    golden_help.help_pages,
    golden_api.package,
    golden_api.store,
    golden_json.answers,
    golden_files.files,
)
"""Each returns the text of some golden files, by their paths from the root."""


def wanted() -> dict[str, str]:
    """Return the text of every golden file by its path from the root."""
    return {path: text for make in MAKERS for path, text in make().items()}


def kept() -> dict[str, str]:
    """Return the golden files that exist: all files of the folder, and those next to their code."""
    inside = {str(path.relative_to(ROOT)) for path in (ROOT / FOLDER).rglob("*") if path.is_file()}
    beside = {str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("triggers.sql")}
    beside |= {str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("database-errors.md")}
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in inside | beside}


def differences() -> Iterator[str]:
    """Yield a unified diff from the existing files to the generated ones."""
    new, old = wanted(), kept()
    for path in sorted(new.keys() | old.keys()):
        before, after = old.get(path, "").splitlines(keepends=True), new.get(path, "").splitlines(keepends=True)
        yield from difflib.unified_diff(before, after, f"{path} (kept)", f"{path} (generated)")


def write() -> list[str]:
    """Write the golden files, remove those that are no longer generated, and return the paths that changed."""
    new, old = wanted(), kept()
    changed = [path for path in sorted(new.keys() | old.keys()) if new.get(path) != old.get(path)]
    for path in changed:
        if path in new:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(new[path], encoding="utf-8")
        else:
            (ROOT / path).unlink()
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(description="Check or rewrite the golden files.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="print the differences, and exit with 1 if there are any")
    what.add_argument("--write", action="store_true", help="write the files again")
    if parser.parse_args().write:
        print("".join(f"{path}\n" for path in write()), end="")
        return 0
    found = "".join(differences())
    if found:
        print(found, end="")
        print("The golden files differ. If the change is intended, run `make golden` and commit them.", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
