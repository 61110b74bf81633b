"""A procedure that puts books on a shelf, and what there is to see afterwards: everything, and what matters of it.

Invariants: a shelf has no unique constraint, so that a book that is put there twice is seen; `everything` leaves
nothing out, neither of the ledger nor of the caller's own tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.engine.world import Crash, World
from holdfast.governance.runs.steps import Step, StepContext, StepFailed, procedure
from holdfast.store import Store
from tests.support.ledgers import new_store

WHO: Any = {"actor": "ann", "reason": "a test"}
BOOKS = ("A", "B", "C")

# What differs from one ledger to the next though the same was done: numbers given out, times, names of moves.
_DIFFER = ("step_id", "run_id", "grant_id", "seq", "subject", "xid", "at", "move_id", "requested_via")
_APART = ("holdfast_meta", "holdfast_migrations")


def make(url: str, clock: Any = None, **settings: Any) -> Store[Any]:
    """Make a ledger, and a shelf beside it."""
    store = new_store(url, clock, **settings)
    with store.transaction() as transaction:
        transaction.execute("CREATE TABLE shelf (book TEXT NOT NULL)")
    return store


def put(name: str) -> Step:
    def guard(at: StepContext) -> None:
        if at.params.get("guards") == name:
            raise StepFailed(f"there is no room for {name}")

    def action(at: StepContext) -> dict[str, object]:
        at.effect("INSERT INTO shelf (book) VALUES (:book)", {"book": name}, rows=1)
        return {"book": name}

    def verify(at: StepContext) -> None:
        if at.params.get("fails") == name or at.query("SELECT 1 FROM shelf WHERE book = :b", {"b": name}) == []:
            raise StepFailed(f"{name} fell down")

    def compensate(at: StepContext) -> None:
        at.effect("DELETE FROM shelf WHERE book = :book", {"book": at.outcomes[f"PUT_{name}"]["book"]}, rows=1)

    return Step(f"PUT_{name}", action, stop=f"COMP_{name}", guard=guard, verify=verify, compensate=compensate)


def look(at: StepContext) -> dict[str, object]:
    """See that the shelf is there, and that it is not full."""
    [found] = at.query("SELECT count(*) AS n FROM shelf")
    if found["n"] > at.params.get("room", 10):
        raise StepFailed("the shelf is full")
    return {"books": found["n"]}


LOOK = Step("S0_LOOK", look, stop="ABORT_LOOK")


@procedure("fill", governed=True, checks=(LOOK,))
def fill() -> Iterator[Step]:
    yield from map(put, BOOKS)


def books(store: Store[Any]) -> list[str]:
    with store.reading() as reading:
        return sorted(book for (book,) in reading.execute("SELECT book FROM shelf"))


def crashing(point: str) -> World:
    """Return a world in which everything ends at a point."""

    def die() -> None:
        raise Crash(point)

    return hooked(point, die)


def hooked(point: str, what: Callable[[], object]) -> World:
    """Return a world in which something happens when a point is reached for the first time."""
    left = [point]

    def reach(here: str) -> None:
        if here in left:
            left.remove(here)
            what()

    return World(reach=reach)


def tables(store: Store[Any]) -> list[str]:
    listing = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name",
        "postgres": "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename",
    }
    with store.reading() as reading:
        return [str(name) for (name,) in reading.execute(listing[store.dialect])]


def everything(store: Store[Any]) -> dict[str, list[str]]:
    """Return every row of every table."""
    names = tables(store)
    assert {"holdfast_jobs", "holdfast_journal", "holdfast_leases", "shelf"} <= set(names)
    with store.reading() as reading:
        return {name: sorted(map(repr, reading.execute(f"SELECT * FROM {name}"))) for name in names}


def essence(store: Store[Any]) -> dict[str, list[str]]:
    """Return every row of the ledger's tables and of the shelf, but for numbers, times and names of moves."""
    known = [name for name in tables(store) if name.startswith("holdfast_") and name not in _APART]
    parts = {name for name in known if name.startswith("holdfast_journal_")}  # of PostgreSQL; the whole is there too
    found = {}
    with store.reading() as reading:
        for table in sorted({"shelf", *known, "holdfast_journal"} - parts):
            columns, rows = reading.query(f"SELECT * FROM {table}", {})
            kept = [i for i, c in enumerate(columns) if not c.endswith("_at") and c not in _DIFFER]
            found[table] = sorted(repr(sorted((columns[i], row[i]) for i in kept)) for row in rows)
    return found
