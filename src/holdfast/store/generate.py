"""Writes the triggers of both databases, `sqlite/triggers.sql` and `postgres/triggers.sql`, from the tables of rules.

    python -m holdfast.store.generate           write the files beside this module
    python -m holdfast.store.generate --check   exit 1 if a file differs

A ledger gets the triggers of these files, and opening one compares them; nothing is generated at run time. `{epoch}`
stands for the ledger's epoch, `{schema}` for the quoted schema on PostgreSQL.

Invariants: a file is exactly what the transition table and `store.tables` say; a test and `make verify` compare; a
transition table that contradicts itself is refused.
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.core.machine_flaws import require_sound
from holdfast.core.machines import MACHINES
from holdfast.store.postgres import triggers as postgres
from holdfast.store.postgres.functions import functions
from holdfast.store.sqlite import triggers as sqlite
from holdfast.store.sqlite.upkeep import digest_of_tables, expected_tables
from holdfast.store.statements import GOVERNED

HEAD = "-- Generated from core/machines.py and store/tables.py by `make golden`: do not edit.\n"
EPOCH, SCHEMA = "{epoch}", "{schema}"


def texts() -> dict[Path, str]:
    """Return what each file must hold."""
    here = Path(__file__).parent
    for machine in MACHINES.values():
        require_sound(machine)
    on_sqlite = [
        f"-- digest of the tables: {digest_of_tables(expected_tables())}\n",
        *(f"-- trigger: {name}\n{text};\n" for name, text in sqlite.triggers(EPOCH).items()),
        *(f"-- {GOVERNED}: {name}\n{text};\n" for name, text in sqlite.governed_triggers().items()),
        *(f"-- view: {name}\n{text};\n" for name, text in sqlite.views().items()),
    ]
    on_postgres = [
        f"-- function: {name}\nCREATE FUNCTION {name} LANGUAGE plpgsql AS $holdfast$\n{body}\n$holdfast$;\n"
        for name, body in functions(SCHEMA, EPOCH).items()
    ]
    on_postgres += [f"-- trigger: {table} {name}\n{text};\n" for (table, name), text in postgres.triggers().items()]
    governed = postgres.governed_triggers().items()
    on_postgres += [f"-- {GOVERNED}: {table} {name}\n{text};\n" for (table, name), text in governed]
    on_postgres += [f"-- view: {name}\n{text};\n" for name, text in postgres.views(SCHEMA).items()]
    return {
        here / "sqlite" / "triggers.sql": "\n".join((HEAD, *on_sqlite)),
        here / "postgres" / "triggers.sql": "\n".join((HEAD, *on_postgres)),
    }


def main() -> int:
    """Write the files, or check them; return the exit code."""
    differing = [
        (path, text) for path, text in texts().items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" not in sys.argv[1:]:
        for path, text in differing:
            path.write_text(text, encoding="utf-8")
        return 0
    for path, _ in differing:
        sys.stderr.write(f"{path.parent.name}/{path.name} is not what the rules generate. Run `make golden`.\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
