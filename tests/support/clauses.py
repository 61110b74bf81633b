"""The clauses of the requirements, as `clauses.toml` lists them: id, tag, and a title in our words.

Invariants:
- ids are unique and in the order K, G, L, M, W, X, then by number;
- a tag is one of those in `TAGS`.
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

    @property
    def source(self) -> str:
        return self.id[0]


def load(path: Path | None = None) -> list[Clause]:
    text = (path or Path(__file__).with_name("clauses.toml")).read_text(encoding="utf-8")
    listed = [Clause(id=key, tag=row[0], title=row[1]) for key, row in tomllib.loads(text)["clauses"].items()]
    expected = sorted(listed, key=lambda clause: (list(SOURCES).index(clause.source), clause.id))
    if listed != expected:
        raise ValueError("clauses.toml is out of order")
    for clause in listed:
        if not clause.title or not set(clause.tag.split("/")) <= TAGS.keys():
            raise ValueError(f"clauses.toml: {clause.id} has no title or an unknown tag")
    return listed
