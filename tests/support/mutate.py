"""Mutation: small changes of the rules, one at a time, each of which a test must notice.

The tests are collected once. For every mutant a forked child exchanges the code of the one changed function and runs
the tests that call it, until one fails. Only functions are changed: tables and constants of a module are not. The
children share the PostgreSQL server of the run, which only the files that need it have.

Invariants: the sources are never written; a mutant is caught by a test that passes without it, in a child too; one that
no test calls counts as survived; one that does not end counts as caught.

The runs of each file are kept in `mutated.json`: the page has the last one of each, so files can be run one by one.

Usage: python -m tests.support.mutate [--only FILE…] [--sample N] [--write PAGE]
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import os
import random
import signal
import stat
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import NamedTuple

import msgspec
import pytest

from tests.support.mutants import ON_POSTGRES, REASONS, TARGETS
from tests.support.scorecard import ROOT, made, write

SOURCE = ROOT / "src" / "holdfast"
TIMEOUT_S = 60
SEED = 20261116
KEPT = Path(__file__).with_name("mutated.json")
SWAPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


class Mutant(NamedTuple):
    """One change: where it is, what it is, and the changed code of its function."""

    file: str
    function: str
    line: int
    what: str
    code: CodeType

    @property
    def name(self) -> str:
        return f"{self.file} {self.function}: {self.what}"


# ---------------------------------------------------------------------------------------------------------------------
# Making mutants


def mutants(file: str) -> Iterator[Mutant]:
    """Yield every mutant of the functions of a file."""
    path = SOURCE / file
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for name, function in _functions(tree, ""):
        for line, what, changed in _changes(tree, function):
            code = compile(ast.fix_missing_locations(changed), str(path), "exec")
            found = _code_of(code, name)
            if found is not None:
                yield Mutant(file, name, line, what, found)


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")


def _changes(tree: ast.Module, function: ast.FunctionDef) -> Iterator[tuple[int, str, ast.Module]]:
    """Yield the line, the words and the changed module of each change; the tree itself is as before after each.

    Only the body changes: the defaults of a function are not part of its code.
    """
    for parent in (function, *(node for statement in function.body for node in ast.walk(statement))):
        for name, value in ast.iter_fields(parent):
            if parent is function and name != "body":
                continue
            for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(child, ast.AST):
                    continue
                for what, new in _changed(child):
                    _set(parent, name, index, new)
                    yield getattr(child, "lineno", function.lineno), what, copy.deepcopy(tree)
                    _set(parent, name, index, child)


def _set(parent: ast.AST, name: str, index: int | None, new: ast.AST) -> None:
    if index is None:
        setattr(parent, name, new)
    else:
        getattr(parent, name)[index] = new


def _changed(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what a node may become instead: the words of the change, and the new node."""
    text = ast.unparse(node) if isinstance(node, ast.expr | ast.stmt) else ""
    short = text.split("\n")[0][:90]
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        new: ast.AST = ast.Compare(node.left, [SWAPS[type(node.ops[0])]()], node.comparators)
        yield f"`{short}` becomes `{ast.unparse(new)[:90]}`", new
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"`{short}` with {'or' if isinstance(other, ast.Or) else 'and'}", ast.BoolOp(other, node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"`{short}` without not", node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"`{short}` becomes `{not node.value}`", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield f"`{short}` becomes `{node.value + 1}`", ast.Constant(node.value + 1)
    elif isinstance(node, ast.Return) and node.value is not None and text != "return None":
        yield f"`{short}` becomes `return None`", ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Raise | ast.AugAssign) or (
        isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant | ast.Yield | ast.YieldFrom)
    ):
        yield f"`{short}` removed", ast.Pass()


def _code_of(code: CodeType, qualname: str) -> CodeType | None:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            if const.co_qualname == qualname:
                return const
            if qualname.startswith(f"{const.co_qualname}."):
                return _code_of(const, qualname)
    return None


def _module(mutant: Mutant) -> ModuleType:
    return import_module("holdfast." + mutant.file.removesuffix(".py").replace("/", "."))


def _live(mutant: Mutant) -> list[FunctionType]:
    """Return the functions that the mutant changes: in its module and its classes, also behind decorators."""
    module = _module(mutant)
    found, todo, seen = [], [*vars(module).values()], set[int]()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, FunctionType):
            code = one.__code__
            if (code.co_filename, code.co_qualname) == (str(SOURCE / mutant.file), mutant.function):
                found.append(one)
        elif isinstance(one, type) and one.__module__ == module.__name__:
            todo += vars(one).values()
        elif isinstance(one, dict):
            todo += one.values()
        inner = (getattr(one, name, None) for name in ("__wrapped__", "__func__", "fget", "func"))
        todo += [each for each in inner if each is not None]
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Trying them


class Plugin:
    """Takes the place of pytest's loop: which tests call which function, then each mutant in a child."""

    def __init__(self, wanted: Sequence[Mutant]) -> None:
        self._wanted = wanted
        self._files = {str(SOURCE / mutant.file) for mutant in wanted}
        memories = (one for mutant in wanted for one in vars(_module(mutant)).values() if hasattr(one, "__missing__"))
        self._kept = {id(one): dict(one) for one in memories if isinstance(one, dict)}  # as they are at the start
        self._failed = False
        self.survived: list[Mutant] = []
        self.caught = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        called = self._called(session)
        if self._is_caught(None, session.items):
            pytest.exit("the tests pass here, and not in a child that changes nothing", returncode=1)
        print(f"{len(session.items)} tests pass without a mutant", flush=True)
        began = time.monotonic()
        for done, mutant in enumerate(self._wanted, 1):
            items = called.get((str(SOURCE / mutant.file), mutant.function), [])
            caught = bool(items) and self._is_caught(mutant, items)
            self.caught += caught
            if not caught:
                self.survived.append(mutant)
                print(f"SURVIVED line {mutant.line} of {mutant.name} ({len(items)} tests)", flush=True)
            if done % 50 == 0:
                left = (time.monotonic() - began) / done * (len(self._wanted) - done)
                print(f"{done} of {len(self._wanted)}, {self.caught} caught, {left / 60:.0f} min left", flush=True)
        return True

    def _called(self, session: pytest.Session) -> dict[tuple[str, str], list[pytest.Item]]:
        """Run every test once, without a mutant, and return the tests that call each function, quickest first."""
        found: dict[tuple[str, str], dict[pytest.Item, float]] = defaultdict(dict)
        # After the last test comes the first one again, so that fixtures of the session, such as the server, remain.
        for item, after in zip(session.items, [*session.items[1:], session.items[0]], strict=True):
            began, seen = time.perf_counter(), set[tuple[str, str]]()

            def trace(frame: object, _event: str, _arg: object, seen: set[tuple[str, str]] = seen) -> None:
                code: CodeType = frame.f_code  # type: ignore[attr-defined]
                if code.co_filename in self._files:
                    seen.add((code.co_filename, code.co_qualname.partition(".<locals>")[0]))

            threading.settrace(trace)
            sys.settrace(trace)
            try:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            finally:
                sys.settrace(None)
                threading.settrace(None)
            if self._failed:
                pytest.exit(f"{item.nodeid} fails without a mutant", returncode=1)
            for key in seen:
                found[key][item] = time.perf_counter() - began
        return {key: sorted(items, key=items.__getitem__) for key, items in found.items()}

    def _is_caught(self, mutant: Mutant | None, items: Sequence[pytest.Item]) -> bool:
        """Return whether a test fails in a child with the mutant, or with no change at all."""
        child = os.fork()
        if not child:
            code = 1
            try:
                code = self._run(mutant, items)
            finally:  # whatever the mutant broke, the child does not end the parent's session
                os._exit(code)
        deadline = time.monotonic() + (TIMEOUT_S if mutant else 10 * TIMEOUT_S)
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                if mutant and os.waitstatus_to_exitcode(status) == 2:
                    pytest.exit(f"{mutant.function} of {mutant.file} is not in the module", returncode=2)
                return status != 0
            time.sleep(0.005)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return True

    def _run(self, mutant: Mutant | None, items: Sequence[pytest.Item]) -> int:
        null = os.open(os.devnull, os.O_WRONLY)
        for number in range(1, 20):  # pytest prints through copies of its output
            with contextlib.suppress(OSError):
                if os.isatty(number) or stat.S_ISFIFO(os.fstat(number).st_mode) or number < 3:
                    os.dup2(null, number)
        changed = mutant is None or self._change(mutant)
        # After the last test comes any other one, as in the parent: the fixtures of the session are the parent's.
        last = next((other for other in items[-1].session.items if other.path != items[-1].path), items[0])
        for item, after in zip(items, [*items[1:], last], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self._failed:
                return 1
        return 0 if changed else 2  # a function that is not found would survive everything

    def _change(self, mutant: Mutant) -> bool:
        """Put the mutant in the place of its function; return whether that was found."""
        changed = _live(mutant)
        for function in changed:
            function.__code__ = mutant.code
        for one in list(vars(_module(mutant)).values()):
            # It has the answers of the run without a mutant.
            if hasattr(one, "cache_clear"):
                one.cache_clear()
            elif id(one) in self._kept:
                one.clear()
                one.update(self._kept[id(one)])
        return bool(changed)


class FileRun(msgspec.Struct):
    """The last run of all mutants of one file."""

    made: str  # the day and the commit
    mutants: int
    survived: list[tuple[int, str]]  # the line and the name of each


def keep(tried: Sequence[Mutant], survived: Sequence[Mutant], path: Path = KEPT) -> dict[str, FileRun]:
    """Put the runs of these files in the place of their earlier ones; return the runs of all files."""
    runs = msgspec.json.decode(path.read_bytes(), type=dict[str, FileRun]) if path.exists() else {}
    day_and_commit = ", ".join(made().split(", ")[:2])
    for file, n in Counter(mutant.file for mutant in tried).items():
        left = [(mutant.line, mutant.name) for mutant in survived if mutant.file == file]
        runs[file] = FileRun(day_and_commit, n, left)
    runs = {file: runs[file] for file in TARGETS if file in runs}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(runs), indent=1) + b"\n")
    return runs


def section(runs: Mapping[str, FileRun]) -> str:
    """Return the section of the page."""
    n, left = sum(run.mutants for run in runs.values()), sum(len(run.survived) for run in runs.values())
    lines = [
        f"{n:,} mutants of {len(runs)} files, {n - left:,} caught ({100 * (n - left) / n:.1f} %). By `make mutate`.",
        "",
        "| file | mutants | caught | run |",
        "|---|---|---|---|",
    ]
    for file, run in runs.items():
        caught = run.mutants - len(run.survived)
        lines.append(f"| `{file}` | {run.mutants} | {caught} ({100 * caught / run.mutants:.0f} %) | {run.made} |")
    lines += ["", "| survivor | why |", "|---|---|"]
    for line, name in (one for run in runs.values() for one in run.survived):
        shown = name.replace("|", "\\|")
        lines.append(f"| line {line} of {shown} | {REASONS.get(name, 'no test notices it yet')} |")
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Try the mutants; exit with 1 if fewer than nine in ten are caught."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.mutate", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="FILE")
    parser.add_argument("--sample", type=int, metavar="N", help="so many mutants, chosen by a fixed seed; not recorded")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    given = parser.parse_args(arguments)
    wanted = [mutant for file in given.only for mutant in mutants(file)]
    whole = not given.sample or given.sample >= len(wanted)
    if not whole:
        wanted = sorted(random.Random(SEED).sample(wanted, given.sample), key=lambda one: (one.file, one.line))
    survived: list[Mutant] = []
    for marked, files in (("not slow and not pg", TARGETS.keys() - ON_POSTGRES), ("not slow", ON_POSTGRES)):
        if some := [mutant for mutant in wanted if mutant.file in files]:
            survived += _tried(some, marked)
    caught = len(wanted) - len(survived)
    print(f"\n{len(wanted)} mutants, {caught} caught, {len(survived)} survived")
    if given.write and whole:
        write(given.write, "mutation", section(keep(wanted, survived)))
    if caught < 0.9 * len(wanted):
        sys.exit("fewer than nine in ten were caught")


def _tried(wanted: Sequence[Mutant], marked: str) -> list[Mutant]:
    """Try mutants with the tests of their files that a marker expression selects; return those that survived."""
    tests = list(dict.fromkeys(test for file in {one.file: None for one in wanted} for test in TARGETS[file]))
    plugin = Plugin(wanted)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", marked, "--no-header", "--tb=no"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # the modules are imported before the tests
    if pytest.main([*options, *tests], plugins=[plugin]) not in (0, 1) or plugin.caught + len(plugin.survived) == 0:
        sys.exit("the mutants were not tried")
    return plugin.survived


if __name__ == "__main__":
    main()
