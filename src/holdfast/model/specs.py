"""Writes `specs/`: the machines as TLA+, from the transition table, and the configurations of the write-ahead log.

`specs/WriteAheadLog.tla` is written by hand; this module writes the files that depend on the table or on the bounds of
a run.

    python -m holdfast.model.specs specs            # write
    python -m holdfast.model.specs --check specs    # exit with 1 if a file differs

Invariants: the same table gives the same files; a configuration names only what its module defines.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from holdfast.core.machine import Edge
from holdfast.core.machines import MACHINES

NOTHING = "null"
SAFETY = ("TypeOK", "Idempotency", "OneEffect", "Durability")
LIVENESS = ("EventualRecovery", "EventualCompletion", "ProgressUnderCrash", "NoStarvation")
RUNS = {
    "safe": {"clients": 2, "entries": 4, "operations": 2, "crashes": 3, "buggy": False, "liveness": False},
    "liveness": {"clients": 2, "entries": 4, "operations": 2, "crashes": 2, "buggy": False, "liveness": True},
    "buggy": {"clients": 1, "entries": 3, "operations": 3, "crashes": 1, "buggy": True, "liveness": False},
}
"""The configurations of the log: bounds, whether append forgets to look for the key, and what is checked."""


def machines_module() -> str:
    """Return the module of all machines: their edges, the governed ones, and the final states."""
    names = ", ".join(f'"{name}"' for name in MACHINES)
    return "\n".join(
        [
            f"{' MODULE Machines ':-^77}",
            "(* Written by `python -m holdfast.model.specs` from the transition table; not edited by hand. *)",
            "VARIABLES machine, state",
            "",
            f"Names == {{{names}}}",
            "",
            _function("Edges", (_pairs(one.edges) for one in MACHINES.values())),
            _function("Governed", (_pairs(one.governed_edges) for one in MACHINES.values())),
            _function("Final", (_words(one.final) for one in MACHINES.values())),
            _function("States", (_words({NOTHING, *map(str, one.states)}) for one in MACHINES.values())),
            f'Init == machine \\in Names /\\ state = "{NOTHING}"',
            "",
            "Next == \\E edge \\in Edges[machine] : edge[1] = state /\\ state' = edge[2] /\\ machine' = machine",
            "",
            "Spec == Init /\\ [][Next]_<<machine, state>>",
            "",
            "TypeOK == state \\in States[machine]",
            "",
            "FinalIsLeftByAGrant == [][(state \\in Final[machine]) => <<state, state'>> \\in Governed[machine]]_state",
            "=" * 77,
            "",
        ]
    )


def _function(name: str, sets: Iterable[str]) -> str:
    cases = ",\n".join(f"  {machine} |-> {members}" for machine, members in zip(MACHINES, sets, strict=True))
    return f"{name} == [\n{cases}]\n"


def _pairs(edges: Iterable[Edge]) -> str:
    return "{" + ", ".join(f'<<"{edge.source or NOTHING}", "{edge.target}">>' for edge in sorted(edges, key=str)) + "}"


def _words(words: Iterable[str]) -> str:
    return "{" + ", ".join(f'"{word}"' for word in sorted(words)) + "}"


def configuration(name: str) -> str:
    run = RUNS[name]
    clients = ", ".join(f"c{number}" for number in range(1, run["clients"] + 1))
    lines = [
        "\\* Written by `python -m holdfast.model.specs`; not edited by hand.",
        "SPECIFICATION Spec",
        "CONSTANTS",
        f"  Clients = {{{clients}}}",
        f"  MaxEntries = {run['entries']}",
        f"  MaxOperations = {run['operations']}",
        f"  MaxCrashes = {run['crashes']}",
        f"  BUGGY = {'TRUE' if run['buggy'] else 'FALSE'}",
        *(f"INVARIANT {one}" for one in SAFETY),
        *(f"PROPERTY {one}" for one in LIVENESS if run["liveness"]),
    ]
    return "\n".join(lines) + "\n"


def files() -> dict[str, str]:
    """Return every file that is written, by its name."""
    return {
        "Machines.tla": machines_module(),
        "Machines.cfg": "SPECIFICATION Spec\nINVARIANT TypeOK\nPROPERTY FinalIsLeftByAGrant\n",
        **{f"WriteAheadLog_{name}.cfg": configuration(name) for name in RUNS},
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m holdfast.model.specs", description="Write the TLA+ files.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    given = parser.parse_args(arguments)
    for name, text in files().items():
        path = given.directory / name
        if not given.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{name} is out of date: run `python -m holdfast.model.specs {given.directory}`")


if __name__ == "__main__":
    main()
