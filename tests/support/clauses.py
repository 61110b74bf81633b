"""The clauses of the requirements, as `clauses.toml` lists them: id, tag, and a title in our words.

Invariants:
- ids are unique and in the order K, G, L, M, W, X, then by number;
- a tag is one of those in `TAGS`;
- what is not owed has a reason, and an own fault names the test that shows it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

SOURCES = {
    "K": "the write-ahead record of an ingest unit",
    "G": "the hardened job state machine",
    "L": "the atomic failure model",
    "M": "jobs derived from executions",
    "W": "the write-ahead log",
    "X": "decisions where the sources disagree",
}
TAGS = {
    "S": "stated in the source",
    "D": "from a sibling document of the source",
    "F": "a finding: a contradiction or defect in the source, and what to do about it",
    "X": "a decision",
}


@dataclass(frozen=True, slots=True)
class Clause:
    id: str
    tag: str
    title: str
    not_owed: str | None = None  # why the whole clause is not owed
    part_not_owed: str | None = None  # which part of it is not, and why
    own_faults: tuple[str, ...] = ()  # tests that show it broken without its guard, as path::function

    @property
    def source(self) -> str:
        return self.id[0]


def load(path: Path | None = None) -> list[Clause]:
    text = (path or Path(__file__).with_name("clauses.toml")).read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    not_owed, parts, own = (tables.get(name, {}) for name in ("not_owed", "parts_not_owed", "own_faults"))
    listed = [
        Clause(
            id=key,
            tag=row[0],
            title=row[1],
            not_owed=not_owed.pop(key, None),
            part_not_owed=parts.pop(key, None),
            own_faults=tuple(own.pop(key, ())),
        )
        for key, row in tables["clauses"].items()
    ]
    if not_owed or parts or own:
        raise ValueError(f"clauses.toml names unknown clauses: {', '.join((*not_owed, *parts, *own))}")
    expected = sorted(listed, key=lambda clause: (list(SOURCES).index(clause.source), clause.id))
    if listed != expected:
        raise ValueError("clauses.toml is out of order")
    for clause in listed:
        if not clause.title or not set(clause.tag.split("/")) <= TAGS.keys():
            raise ValueError(f"clauses.toml: {clause.id} has no title or an unknown tag")
    return listed
