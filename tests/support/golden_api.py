"""The golden files of the Python API: every public name with its signature, without the module it is defined in.

Invariants: the module of a name is not shown, so that moving code changes nothing here; members are sorted by name.
"""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import holdfast
from tests.support.guides import DOCS, blocks

FOLDER = "tests/golden"
GUIDE = DOCS / "guide.md"
USED = re.compile(r"\b(store|transaction|reading(?:\.journal)?|row)\.(?!journal\b)(\w+)")
UNSET = object()
SPECIAL = ("__call__", "__enter__", "__exit__")


def package() -> dict[str, str]:
    """Return the names of `holdfast.__all__`, classes with their public members."""
    lines = (line for name in sorted(holdfast.__all__) for line in _described(name, getattr(holdfast, name)))
    return {f"{FOLDER}/api.txt": "".join(f"{line}\n" for line in lines)}


def store() -> dict[str, str]:
    """Return the members of stores, transactions, readings and rows that the guide uses."""
    used = sorted(set(USED.findall("\n".join(blocks(GUIDE, "python")))))
    with tempfile.TemporaryDirectory() as folder, holdfast.Ledger(Path(folder) / "guide.db") as ledger:
        ledger.submit("noop")
        with ledger.store.transaction() as transaction:
            kinds: dict[str, type] = {"store": type(ledger.store), "transaction": type(transaction)}
        with ledger.store.reading() as reading:
            kinds |= {"reading": type(reading), "row": type(reading.journal.of(1)[0])}
            kinds["reading.journal"] = type(reading.journal)
    lines = [line for owner, name in used for line in _member(f"{owner}.{name}", kinds[owner], name)]
    return {f"{FOLDER}/store_api.txt": "".join(f"{line}\n" for line in lines)}


def _described(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, type):
        yield from _class(name, value)
    elif callable(value):
        yield f"{name}{_signature(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _class(name: str, kind: type) -> Iterator[str]:
    bases = [base.__name__ for base in kind.__mro__[1:] if base is not object and not base.__name__.startswith("_")]
    if issubclass(kind, Enum):
        yield f"class {name}({', '.join(bases[:1])})"
        yield from (f"    {member.name} = {member.value!r}" for member in kind)
        return
    yield f"class {name}({', '.join(base for base in bases if base.endswith(('Error', 'Exception')))})"
    with suppress(ValueError):  # an exception without its own constructor
        yield f"    {_signature(kind)}"
    public = {
        member
        for base in kind.__mro__
        if base.__module__.startswith("holdfast")
        for member in vars(base)
        if not member.startswith("_") or member in SPECIAL
    }
    public |= _assigned(kind)
    for member in sorted(public):
        yield from (f"    {line}" for line in _member(member, kind, member))


def _assigned(kind: type) -> set[str]:
    """Return the public attributes that a constructor assigns."""
    made = (vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base))
    sources = [inspect.getsource(init) for init in made if inspect.isfunction(init)]
    return {name for source in sources for name in re.findall(r"self\.([a-z]\w*)(?:: [^=\n]+)? = ", source)}


def _member(label: str, kind: type, name: str) -> Iterator[str]:
    value = inspect.getattr_static(kind, name, UNSET)
    if isinstance(value, property) and value.fget:
        yield f"{label}: {_plain(inspect.signature(value.fget).return_annotation)}"
    elif isinstance(value, cached_property):
        yield f"{label}: {_plain(inspect.signature(value.func).return_annotation)}"
    elif isinstance(value, classmethod | staticmethod):
        yield f"{type(value).__name__} {label}{_signature(getattr(kind, name))}"
    elif callable(value):
        yield f"{label}{_signature(value)}"
    elif value is UNSET:
        yield label
    else:
        yield f"{label}: {_plain(_annotation(kind, name, value))}"


def _annotation(kind: type, name: str, value: object) -> object:
    found = (vars(base)["__annotations__"] for base in kind.__mro__ if "__annotations__" in vars(base))
    return next((annotations[name] for annotations in found if name in annotations), type(value))


def _signature(value: Any) -> str:
    return _plain(str(inspect.signature(value)))


def _plain(annotation: object) -> str:
    """Return a type or a signature without quotes around types, and without the modules of names."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    text = re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", text)
    text = re.sub(r"<function ([\w.]+) at 0x[0-9a-f]+>", r"\1", text)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(\w)", r"\1", text)
