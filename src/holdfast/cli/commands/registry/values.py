"""`holdfast registry list | show | verify`: show and verify the values of the registry. They only read.

Invariants: `verify` exits with 1 if it finds a fault.
"""

import json
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import argument, option
from holdfast.cli.options import word
from holdfast.cli.text import Column
from holdfast.core.errors import RecordNotFoundError
from holdfast.core.governed import RegistryValue
from holdfast.core.machines import VALUE
from holdfast.core.protocol import ranked
from holdfast.explain.values import row_value
from holdfast.store import Store

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.governance.registry.registry import RegistryFault

STYLES = {"in force": "green", "staged": "yellow", "withheld": "red", "active": "green", "superseded": "yellow"}


@command(Location.open)
def list_values(
    store: Store[Any],
    *,
    collection: Annotated[str | None, word("--collection", "List only values of this collection.")] = None,
    every: Annotated[bool, option("--all", help="Include staged and withheld values.")] = False,
) -> Answer:
    """List the values in force, by code and version."""
    from holdfast.governance.registry.preflight import all_values  # noqa: PLC0415 - see above

    with store.reading() as reading:
        rows = all_values(reading, collection=collection) if every else reading.registry.values_in_force(collection)
    rows.sort(key=lambda row: (row.operation_code, ranked(row.protocol_version) or ()))
    return Answer([row_value(row) for row in rows], lambda: _print_values(rows))


def _print_values(rows: list[RegistryValue]) -> None:
    names = ("CODE", "VERSION", "STATE", "STATUS", "COLLECTION", "ACT TYPE")
    output.table(
        [*(Column(name) for name in names), Column("SUCCESSOR"), Column("AUTHORITY", folds=True)],
        [
            (
                row.operation_code, row.protocol_version, _styled(row.state), _styled(row.status), row.collection,
                row.act_type, _successor(row), row.authority_ref,
            )
            for row in rows
        ],
        none="No values in force.",
    )  # fmt: skip


def _styled(word: str) -> Any:
    return output.styled(word, STYLES.get(word, ""))


def _successor(row: RegistryValue) -> str:
    return f"{row.successor_code}@{row.successor_version}" if row.successor_code else ""


@command(Location.open)
def show(
    store: Store[Any],
    *,
    value: Annotated[
        str, argument(metavar="CODE[@VERSION]", help="Code of a value; without a version, all its versions.")
    ],
) -> Answer:
    """Show a value in any state: its meaning, its authority and its history."""
    from holdfast.governance.registry.preflight import all_values  # noqa: PLC0415 - see above

    code, _, version = value.partition("@")
    with store.reading() as reading:
        rows = all_values(reading, operation_code=code)
        rows = [row for row in rows if version in ("", row.protocol_version)]
        if not rows:
            raise RecordNotFoundError(f"The registry has no value {value}.", context={"value": value})
        values = [
            {
                **row_value(row),
                "semantics": json.loads(row.semantics),
                "journal": [row_value(entry) for entry in reading.journal.of(row.value_id, VALUE.name)],
            }
            for row in rows
        ]
    return Answer(values, lambda: _print_shown(values))


def _print_shown(values: list[dict[str, Any]]) -> None:
    for number, row in enumerate(values):
        if number:
            output.line("")
        output.fields(
            (name, json.dumps(found, ensure_ascii=False) if name == "semantics" else str(found))
            for name, found in row.items()
            if found is not None and name not in ("journal", "version")
        )
        columns = [Column("TIME"), Column("EVENT"), Column("STATE"), Column("ACTOR"), Column("GRANT", right=True)]
        output.table(
            [*columns, Column("REASON", folds=True)],
            [
                (entry["at"], entry["event"], entry["target"], entry["actor"], entry["grant_id"], entry["reason"] or "")
                for entry in row["journal"]
            ],
        )


@command(Location.open)
def verify(store: Store[Any]) -> Answer:
    """Verify the registry against its digests, guards, grants, builds and their evidence.

    The exit code is 1 if there is a fault.
    """
    from holdfast.governance.registry.registry import faults  # noqa: PLC0415 - see above

    with store.reading() as reading:
        found, values = faults(reading), len(reading.registry.values_in_force())
    value = {"ok": not found, "in_force": values, "faults": [msgspec.to_builtins(fault) for fault in found]}
    return Answer(value, lambda: _print_faults(found, values), 1 if found else 0)


def _print_faults(found: "list[RegistryFault]", values: int) -> None:
    output.line(f"{'NOT OK' if found else 'ok'}: {values} values in force")
    if found:
        output.table(
            [Column("CODE"), Column("SUBJECT"), Column("DETAIL", folds=True)],
            [(fault.code, fault.subject, fault.detail) for fault in found],
        )
