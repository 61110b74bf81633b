"""`holdfast config show`: prints the settings of this process and where each value comes from. It only reads."""

from typing import Any

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command, group
from holdfast.cli.text import Column
from holdfast.store.configuration import misspelt, resolved, variable_of
from holdfast.store.urls import has_password, shown

config = group("Show the settings of this process.", "configuration")


@config.subcommand()
@command(Location.unopened)
def show(location: Location) -> Answer:
    """Show each setting, its value and where the value comes from.

    Arguments win over the environment, that over holdfast.toml or [tool.holdfast] of pyproject.toml. A URL with a
    password is shown without it. A HOLDFAST_ variable that is nearly a setting is listed last, without its value.
    """
    found, origins = resolved({"url": location.db, "schema": location.schema_given})
    rows: list[dict[str, Any]] = [
        {"setting": name, "value": _masked(value), "origin": origins[name], "variable": variable_of(name)}
        for name, value in msgspec.structs.asdict(found).items()
    ]
    rows += [
        {"setting": None, "value": None, "origin": f"not a setting; the nearest is {near}", "variable": name}
        for name, near in misspelt().items()
    ]

    def human() -> None:
        columns = [Column("SETTING"), Column("VALUE", folds=True), Column("ORIGIN", folds=True), Column("VARIABLE")]
        output.table(
            columns,
            [
                (row["setting"] or "", "" if row["value"] is None else row["value"], row["origin"], row["variable"])
                for row in rows
            ],
        )

    return Answer(rows, human)


def _masked(value: object) -> object:
    return shown(value) if isinstance(value, str) and has_password(value) else value
