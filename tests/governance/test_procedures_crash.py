"""A run that dies anywhere is taken up again under its root, and ends as if it had never died."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from holdfast.engine.world import Crash, World
from holdfast.governance.runs.procedure import resume, run, undo
from holdfast.governance.runs.steps import Mode
from holdfast.store import Store
from tests.governance.shelves import WHO, books, crashing, essence, fill, make

pytestmark = pytest.mark.attack("faults")

REAL: Any = {**WHO, "mode": Mode.REAL_RUN}
FAILS = {"fails": "C"}

FORWARD = ["before checks", *(f"{when} {step}" for step in fill.names[1:] for when in ("before", "inside", "after"))]
BACK = [
    *(f"{when} COMP_C" for when in ("before", "inside", "after")),
    *(f"{when} undoing {step}" for step in reversed(fill.names[:-1]) for when in ("before", "inside", "after")),
    *(f"{when} stopping" for when in ("before", "inside", "after")),
]


@pytest.fixture
def store(ledger_url: str) -> Iterator[Store[Any]]:
    with make(ledger_url) as store:
        yield store


@cache
def uninterrupted(**params: str) -> dict[str, list[str]]:
    """Return what a run leaves that nothing disturbs: on SQLite, and PostgreSQL must come to the same."""
    with TemporaryDirectory() as directory, make(str(Path(directory) / "ledger.db")) as store:
        run(store, fill, params, root="r", **REAL)
        return essence(store)


def points(params: dict[str, str], store: Store[Any]) -> list[str]:
    """Return the points that a run passes, in order."""
    passed: list[str] = []
    run(store, fill, params, root="r", world=World(reach=passed.append), **REAL)
    return passed


@pytest.mark.req("L-08", "L-21")
def test_a_run_passes_the_points_at_which_it_is_made_to_die(store: Store[Any]) -> None:
    assert points({}, store) == FORWARD
    assert essence(store) == uninterrupted()


@pytest.mark.req("L-08", "L-21")
def test_a_compensation_passes_the_points_at_which_it_is_made_to_die(store: Store[Any]) -> None:
    assert points(FAILS, store) == [*FORWARD[:-2], *BACK]
    assert essence(store) == uninterrupted(**FAILS)


# On PostgreSQL every third of them always, and all of them in `make prove`.
CASES: list[tuple[str, dict[str, str]]] = [(point, {}) for point in FORWARD] + [(point, FAILS) for point in BACK]


def on_each_database() -> list[Any]:
    listed = []
    for number, (point, params) in enumerate(CASES):
        name = f"{point.replace(' ', '-')}{'-back' if params else ''}"
        rare = [pytest.mark.slow] if number % 3 else []
        listed.append(pytest.param("sqlite", point, params, id=f"sqlite-{name}"))
        listed.append(pytest.param("postgres", point, params, id=f"postgres-{name}", marks=[pytest.mark.pg, *rare]))
    return listed


@pytest.mark.req("L-08", "L-09", "L-10", "L-21")
@pytest.mark.parametrize("ledger_url, point, params", on_each_database(), indirect=["ledger_url"])
def test_a_crash_anywhere_is_resumed_to_the_same_end(store: Store[Any], point: str, params: dict[str, str]) -> None:
    with pytest.raises(Crash):
        run(store, fill, params, root="r", world=crashing(point), **REAL)
    done_already = point == "after stopping"  # then another attempt would begin it again
    report = None if done_already else run(store, fill, params, root="r", **REAL)
    assert report is None or report.verdict == ("COMP_C" if params else "DONE")
    assert books(store) == ([] if params else ["A", "B", "C"])
    assert essence(store) == uninterrupted(**params)
    with store.reading() as reading:
        assert [(grant.state, grant.version) for grant in reading.grants.page()] == [("consumed", 3)]
        assert [lease.token for lease in reading.leases.all().values()] == [1]


@pytest.mark.req("L-08", "L-21")
@pytest.mark.parametrize("way", ["forward", "back"])
def test_a_run_that_crashes_at_every_point_in_turn_has_the_same_result(store: Store[Any], way: str) -> None:
    """Each attempt lives a little longer: it dies where the one before it did not come to."""
    params = FAILS if way == "back" else {}
    for point in [*FORWARD[:-2], *BACK] if params else FORWARD:
        with pytest.raises(Crash):
            run(store, fill, params, root="r", world=crashing(point), **REAL)
    if not params:
        assert resume(store, fill, root="r", **WHO).counts == {"skipped": 5}
    assert essence(store) == uninterrupted(**params)


@pytest.mark.req("L-21")
def test_a_requested_undo_survives_crashes_too(store: Store[Any]) -> None:
    with pytest.raises(Crash):
        run(store, fill, {}, root="r", world=crashing("inside PUT_C"), **REAL)
    for when in ("before", "inside", "after"):
        with pytest.raises(Crash):
            undo(store, fill, root="r", world=crashing(f"{when} COMP_BY_OPERATOR"), **WHO)
    for step in reversed(fill.names[:-1]):
        with pytest.raises(Crash):
            undo(store, fill, root="r", world=crashing(f"inside undoing {step}"), **WHO)
    report = undo(store, fill, root="r", **WHO)
    assert (report.verdict, report.state, books(store)) == ("COMP_BY_OPERATOR", "stopped", [])
    with store.reading() as reading:
        known = reading.runs.get("r")
        assert known is not None
        assert [(step.name, str(step.state), step.version) for step in reading.runs.steps(known.run_id)] == [
            (name, "undone", 2) for name in fill.names[:-1]
        ]
