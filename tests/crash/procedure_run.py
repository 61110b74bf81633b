"""Processes that run a procedure and can be killed at any moment of it.

Invariants: a book on the shelf has no unique constraint, so that one put there twice is seen; a run that has ended is
left alone, so that the next process ends what was killed and begins nothing anew.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.core.errors import AuthorityError
from holdfast.core.machines import ProcedureState
from holdfast.governance.runs.procedure import run
from holdfast.governance.runs.steps import Mode, Step, StepContext, StepFailed, procedure
from holdfast.store import Store, create_store, open_store
from tests.crash.gc_run import watched
from tests.support.roles import note, wait_until

BOOKS = ("A", "B", "C", "D", "E")
WHO: Any = {"actor": "ann", "reason": "a test", "mode": Mode.REAL_RUN}


def make(url: str, **settings: Any) -> Store[Any]:
    """Make a ledger, and shelves beside it."""
    store = create_store(url, **settings)
    with store.transaction() as transaction:
        transaction.execute("CREATE TABLE shelf (root TEXT NOT NULL, book TEXT NOT NULL)")
    return store


def put(name: str) -> Step:
    def action(at: StepContext) -> dict[str, str]:
        at.effect("INSERT INTO shelf (root, book) VALUES (:root, :book)", {"root": at.root, "book": name}, rows=1)
        pause()
        return {"book": name}

    def verify(at: StepContext) -> None:
        if at.params.get("fails") == name:
            raise StepFailed(f"{name} fell down")

    def compensate(at: StepContext) -> None:
        at.effect("DELETE FROM shelf WHERE root = :root AND book = :book", {"root": at.root, "book": name}, rows=1)
        pause()

    return Step(f"PUT_{name}", action, stop=f"COMP_{name}", verify=verify, compensate=compensate)


def pause() -> None:
    time.sleep(random.uniform(0, 0.004))


@procedure("fill", governed=True, target=lambda params: f"shelf:{params['shelf']}")
def fill() -> Iterator[Step]:
    yield from map(put, BOOKS)


# ---------------------------------------------------------------------------------------------------------------------
# Roles


def bring_to_end(url: str, *, root: str, params: dict[str, str], begun: str, notes: str) -> None:
    """Run a procedure under a root, or end what others have begun, and note the result."""
    with open_store(url) as store:
        note(begun, root)
        note(notes, f"{root} {ended(store, root, params)}")


def run_until(url: str, *, root: str, params: dict[str, str], notes: str, kill_at: int | None = None) -> None:
    """Do the same, and be killed at the statement numbered `kill_at`; note how many there were."""
    trap = watched(kill_at)
    with open_store(url) as store:
        trap.armed = True
        verdict = ended(store, root, params)
        trap.armed = False
        note(notes, f"{verdict} {trap.count}")


def ended(store: Store[Any], root: str, params: dict[str, str]) -> str:
    """Bring a run to its end, and return its verdict; one that has ended is left alone."""
    with store.reading() as reading:
        known = reading.runs.get(root)
    if known is not None and known.state in (ProcedureState.DONE, ProcedureState.STOPPED):
        return known.stop_state or "DONE"
    return run(store, fill, params, root=root, **WHO).verdict


def race(url: str, *, root: str, grant_id: int, start: str, notes: str) -> None:
    """Wait for the others, run under a grant that all of them name, and note the result."""
    with open_store(url) as store:
        note(notes, f"ready {root}")
        wait_until(Path(start).exists, 30, "all processes are ready")
        try:
            report = run(store, fill, {"shelf": "one"}, root=root, grant_id=grant_id, **WHO)
            note(notes, f"{root} {report.verdict}")
        except AuthorityError as error:
            note(notes, f"{root} {error.code}")
