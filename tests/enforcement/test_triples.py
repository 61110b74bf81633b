"""Every (state, event, state) triple of every machine: the table, `decide` and both databases give one verdict.

Invariants: births are triples from ∅; an event and a state that no machine knows are tried too; a triple is tried with
every number of edges up to one more than the longest path, so that only the right one can pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.core.machine import Machine, Path
from holdfast.core.machines import EXECUTION, JOB, MACHINES
from holdfast.store.enforcement import Refusal
from tests.core.asking import asked, unasked
from tests.enforcement.raw import GUARDED_BY_NAME, Hand, Statement

NOWHERE = "nowhere"
UNHEARD = "unheard"
EDGES_TRIED = (1, 2, 3)
GOVERNED_MOVE = "governed-move"

Triple = tuple[str | None, str, str]
Edges = list[tuple[int, str | None, str]]

every_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


def triples(machine: Machine, source: str | None) -> Iterator[Triple]:
    return ((source, event, target) for event in (*machine.events, UNHEARD) for target in (*machine.states, NOWHERE))


def lawful(machine: Machine, triple: Triple) -> Path | None:
    """Return the path of the table that a triple names, if there is one."""
    source, event, target = triple
    path = machine.path(event, source) if machine.allows(event, source) else None
    return path if path and path.target == target else None


def edges_of(path: Path, version: int) -> Edges:
    """Return what the journal must say of a path that begins at a version."""
    return [(version + step, edge.source, edge.target) for step, edge in enumerate(path.edges, start=1)]


class Trial:
    """A record of one machine in one state, which is moved by hand again and again and put back."""

    def __init__(self, hand: Hand, machine: Machine, source: str | None) -> None:
        self.client, self.machine, self.hand = hand.client, machine, hand
        # A grant in hand for every try, so that a wrong edge is refused for its own sake.
        governed = any(path.governed for path in machine.paths)
        self.signature = (
            {"move_id": GOVERNED_MOVE, "grant_id": self.hand.consumed_grant(GOVERNED_MOVE)} if governed else {}
        )
        self.subject = None if source is None else self.hand.put(machine, source)
        self.version = 0
        if self.subject is not None:
            guarded = GUARDED_BY_NAME[machine.name]
            sql = f"SELECT version FROM {guarded.table} WHERE {guarded.id} = ?"
            [[self.version]] = self.client.run(sql, self.subject)

    def write(self, event: str, target: str, edges: int) -> Statement:
        if self.subject is None:
            return self.hand.birth(self.machine, event, target, edges, **self.signature)
        return self.hand.move(self.machine, self.subject, event, target, edges, **self.signature)

    def refusal(self, event: str, target: str, edges: int) -> str | None:
        """Return the code that a write is refused with; None if it passes. Nothing is left of it."""
        with self.client.undone():
            return self.client.refusal(*self.write(event, target, edges))

    def journalled(self, event: str, target: str, edges: int) -> Edges:
        """Carry out a write that is not refused; return the edges it is journalled with, and leave nothing of it."""
        with self.client.undone():
            rows = self.client.run(*self.write(event, target, edges))
            subject = self.subject or rows[0][0]
            journal = self.client.journal(self.machine.name, subject)
            assert all(row["event"] == event for row in journal if row["version"] > self.version)
            return [(row["version"], row["source"], row["target"]) for row in journal if row["version"] > self.version]

    def verdict(self, event: str, target: str) -> Edges | set[str | None]:
        """Try a triple; return its journal, or the codes it was refused with however many edges it claimed."""
        answers = {edges: self.refusal(event, target, edges) for edges in EDGES_TRIED}
        passed = [edges for edges, refusal in answers.items() if refusal is None]
        assert len(passed) <= 1, f"{event} to {target} passes with {passed} edges"
        return self.journalled(event, target, passed[0]) if passed else set(answers.values())


@every_machine
@pytest.mark.req("X-01", "K-10", "K-11", "K-16", "K-18", "K-19", "G-02", "G-03", "M-03", "M-04")
def test_every_triple_gets_the_same_verdict_from_the_table_from_decide_and_from_the_database(
    hand: Hand, machine: Machine
) -> None:
    disagreements = []
    taken = 0
    for source in (None, *machine.states):
        trial = Trial(hand, machine, source)
        illegal = {str(Refusal.ILLEGAL_BIRTH if source is None else Refusal.ILLEGAL_EDGE)}
        for triple in triples(machine, source):
            _, event, target = triple
            path = lawful(machine, triple)
            step = asked(machine, source, event)
            decided = bool(step and step.target == target)
            written = trial.verdict(event, target)
            expected = edges_of(path, trial.version) if path else illegal
            taken += path is not None
            if written != expected or (decided != bool(path) and event not in unasked(machine)):
                disagreements.append((triple, path and str(path), decided, written))
    assert disagreements == []
    assert taken == len(machine.paths)


@pytest.mark.req("K-18", "K-19", "X-04")
@pytest.mark.parametrize(
    "machine, event, source, edges",
    [
        (JOB, "expire", "running", [("running", "failed"), ("failed", "pending")]),
        (JOB, "retry", "running", [("running", "failed"), ("failed", "pending")]),
        (JOB, "give_back", "running", [("running", "failed"), ("failed", "pending")]),
        (JOB, "quarantine", "running", [("running", "failed"), ("failed", "quarantined")]),
        (JOB, "cancel", "running", [("running", "failed"), ("failed", "quarantined")]),
        (EXECUTION, "begin", None, [(None, "LEASED"), ("LEASED", "IN_PROGRESS")]),
        (EXECUTION, "complete", "IN_PROGRESS", [("IN_PROGRESS", "COMMITTED"), ("COMMITTED", "DONE")]),
    ],
)
def test_one_write_along_several_edges_is_journalled_edge_by_edge(
    hand: Hand, machine: Machine, event: str, source: str | None, edges: list[tuple[str | None, str]]
) -> None:
    trial = Trial(hand, machine, source)
    first = trial.version + 1
    journal = trial.journalled(event, edges[-1][1], len(edges))
    assert journal == [(version, *edge) for version, edge in enumerate(edges, start=first)]


def test_no_other_path_has_several_edges() -> None:
    """The list above is whole: a new long path must be added to it."""
    long = {(m.name, p.event, p.source) for m in MACHINES.values() for p in m.paths if len(p.edges) > 1}
    assert long == {
        ("JOB", "expire", "running"),
        ("JOB", "retry", "running"),
        ("JOB", "give_back", "running"),
        ("JOB", "quarantine", "running"),
        ("JOB", "cancel", "running"),
        ("EXECUTION", "begin", None),
        ("EXECUTION", "complete", "IN_PROGRESS"),
    }


@every_machine
def test_a_listed_move_with_any_other_version_is_refused(hand: Hand, machine: Machine) -> None:
    """Each edge adds exactly 1: not fewer, not more, and a version never stands still or goes back."""
    wrong = []
    for source in machine.states:
        trial = Trial(hand, machine, source)
        for path in (path for path in machine.moves() if path.source == source):
            for edges in range(1 - trial.version, len(path.edges) + 4):
                refusal = trial.refusal(path.event, path.target, edges)
                expected = (
                    Refusal.NOT_MONOTONE if edges < 0 else Refusal.UNSIGNED if edges == 0 else Refusal.ILLEGAL_EDGE
                )
                if refusal != (None if edges == len(path.edges) else expected):
                    wrong.append((str(path), path.event, edges, refusal))
    assert wrong == []
