"""`holdfast doctor`: looks for problems of this machine and of the database. It only reads."""

from typing import Any

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.text import Column
from holdfast.explain.doctor import diagnose
from holdfast.store import Store


@command(Location.open)
def doctor(store: Store[Any]) -> Answer:
    """Look for problems of this machine and of the database.

    Clock, disk space, write-ahead log, versions, dead rows, pooler, durability, workers and queues; each finding has a
    code and a next step. Exit code 1 if there is a finding.
    """
    found = diagnose(store)
    value = {"ok": not found.findings, **msgspec.to_builtins(found)}

    def human() -> None:
        output.fields(_shown(name, fact) for name, fact in found.facts.items())
        if not found.findings:
            output.line("No problems found.")
            return
        output.table(
            [Column("CODE"), Column("FINDING", folds=True), Column("NEXT", steps=True)],
            [(each.code, each.message, each.next) for each in found.findings],
        )

    return Answer(value, human, 1 if found.findings else 0)


def _shown(name: str, fact: object) -> tuple[str, str]:
    """Return the name and the text of a fact: a size and a time have their unit in the text, not in the name."""
    if isinstance(fact, bool):
        return name, "yes" if fact else "no"
    if isinstance(fact, int) and name.endswith("_bytes"):
        return name.removesuffix("_bytes").replace("_", " "), output.size(fact)
    if isinstance(fact, float) and name.endswith("_s"):
        return name.removesuffix("_s").replace("_", " "), f"{fact:g} s"
    return name, str(fact)
