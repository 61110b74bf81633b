"""Runs of the catalogue that several tests of one module look at: each is explored once.

Invariants: a run is explored by `test_catalogue.py` or by the module that `SHARED` names, never by both; wherever it
is explored, its outcome is the expected one.
"""

from __future__ import annotations

from typing import Any

from holdfast.model.catalogue import RUNS, Run
from holdfast.model.checker import Graph

BY_NAME = {run.name: run for run in RUNS}
SHARED = {
    "published log, 1 client": "test_published.py",
    "log: effects in the ledger's own database": "test_log.py",
    "fleet: two workers, a reaper, an operator": "test_fleet.py",
    "fleet: no job is given back": "test_fleet.py",
    "fleet: a job is released": "test_fleet.py",
    "fleet: two reapers, two operators": "test_fleet.py",
    "grants: two jobs": "test_grants.py",
    "grants: two clerks": "test_grants.py",
    "guards: a job, its workers, a reaper, an operator": "test_guards.py",
    "guards: grants, a switch, a value": "test_guards.py",
    "limits: a queue and two keys": "test_limits.py",
    "flow: two jobs and one that waits for both": "test_flow.py",
    "flow: two jobs and one that is cancelled with either": "test_flow.py",
    "flow: two jobs and one that runs when both have ended": "test_flow.py",
}


def explored(name: str) -> Graph[Any]:
    """Explore a shared run, require the outcome that the catalogue expects, and return the graph."""
    assert name in SHARED
    run: Run = BY_NAME[name]
    graph = run.explored()
    assert run.outcome(graph) == run.expected
    return graph
