"""A fleet: nothing that must hold breaks in any order of steps, and every way to build it wrongly is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model import fleet as fleet_module
from holdfast.model.catalogue import RUNS
from holdfast.model.checker import Graph, Kept, Model, explore, kept, unkept
from holdfast.model.fleet import KINDS, Flaw, Fleet, Kind, State
from holdfast.model.rules import Guard
from tests.model.runs import explored

SOUND = {
    "fleet: two workers, a reaper, an operator": Fleet(),
    "fleet: a job is released": Fleet(max_attempts=1, replay_attempts=0, releases=1),
    "fleet: two reapers, two operators": Fleet(
        workers=1, reapers=2, operators=2, lease=1, max_attempts=1, excused=0, releases=1
    ),
}
LARGEST = {"fleet: two workers, a reaper, an operator": pytest.mark.slow}
REAPED_BY_TWO = Fleet(reapers=2, max_attempts=1, excused=0)
PROMISES = ("every job ends or rests", "a committed execution is finished")
OPEN_RUNS = "a job runs while an execution is open"
LEASES = {"a lost lease changes nothing", "a live lease is not taken"}


def counts(graph: Graph[State]) -> tuple[int, int, str | None]:
    """Return how many states there are, generated and distinct, and what broke."""
    return graph.generated, graph.distinct, graph.broken.name if graph.broken else None


def asking_only(model: Model[State], names: set[str]) -> Model[State]:
    """Return the model with these invariants alone."""
    return replace(model, invariants={name: model.invariants[name] for name in names})


def actions(graph: Graph[State]) -> list[str]:
    """Return the way to what broke."""
    assert graph.broken is not None
    return [action for action, _ in graph.broken.trace[1:]]


# ---------------------------------------------------------------------------------------------------------------------
# Sound


@pytest.mark.req("M-06", "M-07", "M-08", "M-09", "M-18", "X-07")
@pytest.mark.parametrize("name", [pytest.param(name, marks=LARGEST.get(name, ())) for name in SOUND])
def test_nothing_breaks_and_every_action_is_taken(name: str) -> None:
    graph = explored(name)
    assert graph.broken is None
    assert graph.states[0] == SOUND[name].model().initial
    assert set(graph.taken) == possible(SOUND[name])


@pytest.mark.req("M-06", "M-07", "M-08", "M-09", "M-18", "X-07")
def test_nothing_breaks_and_every_action_is_taken_by_two_workers() -> None:
    """The largest run with one automatic attempt: the same actions, in a quarter of the states."""
    fleet = Fleet(max_attempts=1)
    graph = explore(fleet.model())
    assert graph.broken is None
    assert set(graph.taken) == possible(fleet) == possible(SOUND["fleet: two workers, a reaper, an operator"])


def possible(fleet: Fleet) -> set[str]:
    """Return the actions that this size of a fleet has: what is missing needs another actor, or something to count."""
    verbs = set(KINDS)
    refused = set(KINDS)
    if not fleet.releases:
        verbs -= {"release"}
    if not fleet.excused:
        verbs -= {"give back"}
    if not fleet.replay_attempts:
        verbs -= {"retry", "replay"}
    if fleet.reapers == 1:
        refused -= {"expire"}  # no other worker may change an expired execution
    if fleet.operators == 1:
        refused -= {"retry", "replay", "release"}  # no other actor moves what rests
    beat = {"beat"} if fleet.lease > 1 else set()
    return (
        {f"decide to {verb}" for verb in verbs}
        | verbs
        | {f"{verb} refused" for verb in verbs & refused}
        | {"tick", "let go", "crash"}
        | beat
    )


@pytest.mark.req("M-09")
def test_every_job_ends_if_crashes_end_and_an_endless_loop_writes_nothing() -> None:
    graph = explored("fleet: no job is given back")
    for name in PROMISES:
        assert kept(graph, name) is Kept.IF_FAULTS_END
        endless = unkept(graph, name)
        assert endless is not None
        assert len({state.jobs for state in endless.cycle}) == 1  # an actor crashes before each write


def test_symmetry_reduction_loses_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Fleet(max_attempts=1, excused=0, lease=1)
    sort = fleet_module._in_order
    by_orbit = set(explore(small.model()).states)
    monkeypatch.setattr(fleet_module, "_in_order", lambda hands: hands)
    apart = explore(small.model())
    assert len(apart.states) > len(by_orbit)
    assert {state._replace(crews=tuple(map(sort, state.crews))) for state in apart.states} == by_orbit


# ---------------------------------------------------------------------------------------------------------------------
# Flawed

FOUND = {run.name: run.expected.fault for run in RUNS if run.name.startswith("fleet: ") and not run.expected.sound}


def test_every_flaw_is_in_the_catalogue_and_every_invariant_is_broken_by_one() -> None:
    assert set(FOUND) == {f"fleet: {flaw}" for flaw in Flaw}
    broken = {*FOUND.values(), *(name for _, name, _ in COMES_TO)}
    assert broken - set(PROMISES) == set(Fleet().model().invariants)


RETRIED = ["tick", "tick", "decide to expire", "expire", "decide to retry", "retry", "decide to begin", "begin"]
COMES_TO = [
    (Flaw.EFFECT_FIRST, "one effect a job", ["decide to complete", *RETRIED, "decide to complete"]),
    (Flaw.BLIND_REAPER, "one effect a job", ["decide to commit", "commit", *RETRIED, "decide to complete", "complete"]),
    (
        Flaw.LATE_FINISH,
        "one execution commits",
        [*RETRIED[:4], "finish", *RETRIED[4:], "decide to complete", "complete"],
    ),
    (Flaw.TORN_WRITE, "the state is what its history adds up to", ["decide to complete", "complete"]),
]


@pytest.mark.req("M-07")
@pytest.mark.parametrize("flaw, name, way", COMES_TO)
def test_each_invariant_that_a_flaw_breaks_is_broken_alone(flaw: Flaw, name: str, way: list[str]) -> None:
    """A flaw breaks several invariants; checked alone, each of them is broken too."""
    graph = explore(asking_only(Fleet(max_attempts=1, flaw=flaw).model(), {name}))
    assert actions(graph) == ["decide to begin", "begin", *way]


# ---------------------------------------------------------------------------------------------------------------------
# Which guards stand alone


def without(kind: Kind, *guards: Guard) -> Model[State]:
    """Return the model in which writes of one kind leave out some guards."""
    return REAPED_BY_TWO._replace(unchecked=frozenset((kind, guard) for guard in guards)).model()


@pytest.mark.parametrize(
    "kind, guards",
    [
        (Kind.WORK, {Guard.JOB, Guard.EXECUTION, Guard.TOKEN}),
        (Kind.FINISH, {Guard.JOB, Guard.TOKEN}),
        (Kind.FINISH, {Guard.EXECUTION, Guard.TOKEN}),
        (Kind.REAP, {Guard.JOB, Guard.TOKEN, Guard.LEASE}),
        (Kind.REAP, {Guard.EXECUTION, Guard.TOKEN, Guard.LEASE}),
    ],
)
def test_removing_a_redundant_guard_reaches_no_new_state(kind: Kind, guards: set[Guard]) -> None:
    """Without them not one state more is reached: a live lease, or one version, refuses all that they would."""
    assert counts(explore(without(kind, *guards))) == (74_280, 11_499, None)


@pytest.mark.req("M-06")
def test_the_lease_and_the_version_each_keep_a_late_worker_out() -> None:
    """Without the lease a late worker is only first to write; without the version as well it writes over others."""
    model = without(Kind.WORK, Guard.LEASE)
    names = set(model.invariants) - LEASES
    assert counts(explore(asking_only(model, names)))[1:] == (19_379, None)
    graph = explore(asking_only(without(Kind.WORK, Guard.LEASE, Guard.EXECUTION), {OPEN_RUNS}))
    assert actions(graph)[2:] == ["decide to commit", *RETRIED[:4], "commit"]


def test_two_reapers_need_one_version_to_match() -> None:
    """Without, a reaper that stalled puts back the job of a worker that came after, and leaves its execution open."""
    graph = explore(asking_only(without(Kind.REAP, Guard.JOB, Guard.EXECUTION), {OPEN_RUNS}))
    begun, both_decide = ["decide to begin", "begin"], ["decide to expire", "decide to expire"]
    again = ["expire", "decide to retry", "retry", *begun, "expire"]
    assert actions(graph) == [*begun, "tick", "tick", *both_decide, *again]


def test_a_hasty_reaper_breaks_no_invariant_but_those_of_leases() -> None:
    """Safety does not rest on clocks: a worker that lost a live lease is refused, and the work is done again."""
    model = Fleet(max_attempts=1, excused=0, flaw=Flaw.HASTY_REAPER).model()
    assert explore(asking_only(model, set(model.invariants) - LEASES)).broken is None
