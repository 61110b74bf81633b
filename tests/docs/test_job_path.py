"""The path of one job: what a fresh process imports to submit one job on SQLite and run it, and how long that is.

The claim of a ledger that has limits is part of it.
"""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
LINES_MAX = 5_000
ELSEWHERE = ("governance", "audit", "nodd", "compat", "model", "cli", "explain", "telemetry", "demo", "diagrams")
TRIES = 5
# The keeper of a worker looks for due duties after one second: a run that took that long shows more than one job.
PROGRAM = """
import json, sys, time
from holdfast import Ledger

ledger = Ledger("work.db")

@ledger.operation("double", version="1.0.0")
def double(run, x: int) -> int:
    return 2 * x

receipt = ledger.submit(double.call(x=21), client="test", key="once")
began = time.monotonic()
ledger.run_until_idle()
took_s = time.monotonic() - began
assert receipt.wait(1).result == 42
ledger.close()
own = [module for name, module in sys.modules.items() if name.split(".")[0] == "holdfast"]
print(json.dumps({"took_s": took_s, "files": [module.__file__ for module in own if module.__file__]}))
"""
SET_LIMIT = """
from holdfast import Ledger
from holdfast.scheduling import Limits

with Ledger("work.db") as ledger:
    Limits(ledger).set("queue:default", running=1, actor="test", reason="test")
"""
SKIPPED = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(text: str) -> int:
    """Return how many lines of a module have code: no comments, docstrings or blank lines."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SKIPPED:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines -= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return len(lines)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Return the modules that a process has imported after one job, as paths below the package, with their lines."""
    return imported(tmp_path_factory)


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory, path: dict[str, int]) -> dict[str, int]:
    """Return the same of a ledger that has limits, without the modules of `path`."""
    found = imported(tmp_path_factory, SET_LIMIT)
    return {name: lines for name, lines in found.items() if name not in path}


def imported(tmp_path_factory: pytest.TempPathFactory, *before: str) -> dict[str, int]:
    """Run programs one after the other, and PROGRAM last; return the modules that it has imported, with their lines."""
    for _ in range(TRIES):
        where = tmp_path_factory.mktemp("one_job")
        done = [
            subprocess.run(
                [sys.executable, "-c", program], cwd=where, capture_output=True, text=True, timeout=60, check=True
            )
            for program in (*before, PROGRAM)
        ]
        said = json.loads(done[-1].stdout)
        if said["took_s"] < 0.8:
            return {name: lines for name, lines in map(_counted, said["files"]) if lines}
    raise AssertionError(f"the one job took too long in each of {TRIES} tries")


@cache
def _counted(file: str) -> tuple[str, int]:
    found = Path(file).resolve()
    return str(found.relative_to(SOURCE / "holdfast")), code_lines(found.read_text(encoding="utf-8"))


def test_the_path_of_one_job_is_short_with_the_claim_of_a_ledger_that_has_limits(
    path: dict[str, int], limited: dict[str, int]
) -> None:
    assert set(limited) == {"core/limits.py", "store/verbs/slots.py"}
    assert sum((path | limited).values()) <= LINES_MAX, path | limited


def test_the_path_of_one_job_imports_no_layer_above_or_beside_the_engine(path: dict[str, int]) -> None:
    assert [name for name in path if name.split("/", maxsplit=1)[0].removesuffix(".py") in ELSEWHERE] == []


def test_the_architecture_lists_the_path_of_one_job(path: dict[str, int], limited: dict[str, int]) -> None:
    section = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## The path of one job\n")[2]
    named = re.findall(r"`([\w/]+\.(?:py|sql))`", section.partition("\n## ")[0])
    assert len(named) == len(set(named))
    assert {name for name in named if name.endswith(".py")} == {*path, *limited}
    statements = [name for name in named if name.endswith(".sql")]
    assert "jobs.sql" in {Path(name).name for name in statements}
    assert [name for name in statements if not (SOURCE / "holdfast" / name).is_file()] == []


def test_lines_of_code_are_counted_without_comments_docstrings_and_blank_lines() -> None:
    assert (
        code_lines('"""Module."""\n\nx = 1  # why\n# a comment\ndef f():\n    """Do."""\n    return """a\n\nb"""\n')
        == 5
    )
