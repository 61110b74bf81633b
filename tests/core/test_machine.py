"""The transition table: what is refused, and what the declared machines say, edge by edge.

Invariants: the expectations here are written out by hand, as the design draws them, and never computed from the table.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from holdfast.core.entries import ENTRY_STATUS, entry_edges
from holdfast.core.errors import BrokenError, InvalidStateTransitionError, MachineError
from holdfast.core.machine import Edge, Machine, Row, Rule
from holdfast.core.machine_flaws import require_sound
from holdfast.core.machines import (
    COMMITTED,
    EXECUTION,
    GRANT,
    JOB,
    MACHINES,
    OPEN,
    PROCEDURE,
    STEP,
    SWITCH,
    TABLE,
    VALUE,
    ExecutionStatus,
    JobState,
    StepState,
    SwitchState,
)
from holdfast.core.pairing import joint_moves
from holdfast.store import generate

# -- what is refused --------------------------------------------------------------------------------------------------


def declared(*rows: tuple[str, str] | tuple[str, str, Rule], final: str = "end") -> Machine:
    return Machine("M", [Row("M", *row) for row in rows], final=final.split())


SOUND: tuple[tuple[str, str], ...] = (("make", "∅ → here"), ("go", "here → there"), ("stop", "there → end"))

FLAWS: dict[str, tuple[list[tuple[str, str] | tuple[str, str, Rule]], str, str]] = {
    "an event with two paths from one state": (
        [*SOUND, ("go", "here → end"), ("leave", "here → end")],
        "end",
        "M: 'go' is ambiguous from here",
    ),
    "an event with two births": (
        [*SOUND, ("make", "∅ → there")],
        "end",
        "M: 'make' is ambiguous from ∅",
    ),
    "two paths between the same ends": (
        [*SOUND, ("leap", "here → end"), ("walk", "here → there → end")],
        "end",
        "M: here to end is ambiguous: two paths share these ends",
    ),
    "two ways to be born in one state": (
        [*SOUND, ("leap", "∅ → there"), ("walk", "∅ → here → there")],
        "end",
        "M: ∅ to there is ambiguous: two paths share these ends",
    ),
    "a state that nothing leads to": (
        [*SOUND, ("leave", "island → end")],
        "end",
        "M: island is unreachable from ∅",
    ),
    "a final state that nothing leads to": (
        [*SOUND],
        "end nirvana",
        "M: nirvana is called final but no path leads there",
    ),
    "a state that leads nowhere": (
        [*SOUND, ("fall", "here → pit")],
        "end",
        "M: pit is a dead end: it is not final and reaches nothing final",
    ),
    "a circle without a way out": (
        [*SOUND, ("fall", "here → pit"), ("dig", "pit → hole"), ("climb", "hole → pit")],
        "end",
        "M: pit is a dead end: it is not final and reaches nothing final",
    ),
    "a final state that can be left in routine work": (
        [*SOUND, ("again", "end → here")],
        "end",
        "M: end is called final but has a routine exit",
    ),
    "a path that visits a state twice": (
        [*SOUND, ("back", "there → here"), ("turn", "here → there → here")],
        "end",
        "M: 'turn' visits a state twice: here → there → here",
    ),
    "an edge from a state to itself": (
        [*SOUND, ("stay", "here → here")],
        "end",
        "M: 'stay' visits a state twice: here → here",
    ),
    "a long path over an edge that is not listed alone": (
        [*SOUND, ("skip", "here → nowhere → end"), ("leave", "nowhere → end")],
        "end",
        "M: 'skip' takes the edge here → nowhere, which is not listed alone",
    ),
    "a governed path of two edges": (
        [("make", "∅ → here"), ("go", "here → there", Rule.GOVERNED), ("stop", "there → end", Rule.GOVERNED),
         ("leap", "here → there → end", Rule.GOVERNED)],
        "end",
        "M: 'leap' is governed and longer than one edge",
    ),
    "a routine path over a governed edge": (
        [("make", "∅ → here"), ("go", "here → there"), ("stop", "there → end", Rule.GOVERNED),
         ("leap", "here → there → end")],
        "end",
        "M: 'leap' is routine and takes a governed edge",
    ),
    "a routine event on a governed edge": (
        [*SOUND, ("halt", "there → end", Rule.GOVERNED)],
        "end",
        "M: 'stop' is routine and takes a governed edge",
    ),
}  # fmt: skip


def test_a_sound_table_is_taken() -> None:
    machine = declared(*SOUND)
    require_sound(machine)
    assert machine.states == ("here", "there", "end")
    assert machine.edges == (Edge(None, "here"), Edge("here", "there"), Edge("there", "end"))
    assert machine.events == ("make", "go", "stop")
    assert machine.final == {"end"}
    assert machine.governed_edges == frozenset()


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flawed_table_is_refused(flaw: str) -> None:
    rows, final, message = FLAWS[flaw]
    machine = declared(*rows, final=final)
    with pytest.raises(MachineError) as caught:
        require_sound(machine)
    assert str(caught.value) == message
    assert caught.value.as_dict()["error_code"] == "machine_invalid"
    assert caught.value.context == {"machine": "M"}


@pytest.mark.parametrize("names, agree", [(("end", "here", "there"), True), (("here", "there"), False)])
def test_the_named_states_are_those_of_the_table(names: tuple[str, ...], agree: bool) -> None:
    rows = [Row("M", *row) for row in SOUND]
    if agree:
        assert set(Machine("M", rows, final={"end"}, names=names).states) == set(names)
    else:
        with pytest.raises(BrokenError):
            Machine("M", rows, final={"end"}, names=names)


@pytest.mark.parametrize(
    "path", ["", "here", "→", "here →", "→ here", "here → → end", "here → ∅", "∅ → here → ∅", "here -> end"]
)
def test_a_text_that_is_not_a_path_is_refused(path: str) -> None:
    with pytest.raises(MachineError) as caught:
        declared(*SOUND, ("odd", path))
    assert str(caught.value) == f"M.odd: {path!r} is not a path"


def test_a_governed_exit_of_a_final_state_is_allowed() -> None:
    machine = declared(*SOUND, ("release", "end → here", Rule.GOVERNED))
    require_sound(machine)
    assert machine.governed_edges == {Edge("end", "here")}
    assert machine.path("release", "end").governed


def test_rows_of_other_machines_are_not_looked_at() -> None:
    rows = [*(Row("M", *row) for row in SOUND), Row("OTHER", "odd", "not a path")]
    assert Machine("M", rows, final={"end"}).events == ("make", "go", "stop")


@pytest.mark.parametrize("name", MACHINES)
def test_every_table_is_sound(name: str) -> None:
    require_sound(MACHINES[name])


def test_no_triggers_are_generated_from_a_flawed_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, final, _ = FLAWS["a circle without a way out"]
    monkeypatch.setitem(MACHINES, "M", declared(*rows, final=final))
    with pytest.raises(MachineError):
        generate.texts()


# -- looking paths up -------------------------------------------------------------------------------------------------


@pytest.mark.req("G-09")
def test_an_event_that_a_state_does_not_have_is_an_invalid_transition() -> None:
    with pytest.raises(InvalidStateTransitionError) as caught:
        JOB.path("succeed", "pending")
    assert str(caught.value) == "JOB has no event 'succeed' from pending"
    assert caught.value.context == {"machine": "JOB", "event": "succeed", "source": "pending"}
    with pytest.raises(InvalidStateTransitionError) as caught:
        JOB.path("claim", None)
    assert caught.value.context == {"machine": "JOB", "event": "claim", "source": None}


def test_a_path_is_found_by_its_event_and_by_its_ends() -> None:
    path = JOB.path("expire", "running")
    assert (path.source, path.target, str(path), path.governed) == (
        "running", "pending", "running → failed → pending", False,
    )  # fmt: skip
    between = JOB.between("running", "pending")
    assert between is not None
    assert between.edges == path.edges
    assert JOB.between("pending", "succeeded") is None
    assert JOB.allows("claim", "pending")
    assert not JOB.allows("claim", "running")
    assert [path.event for path in EXECUTION.births()] == ["lease", "begin"]
    assert len([*EXECUTION.births(), *EXECUTION.moves()]) == len(EXECUTION.paths)


# -- the declared machines --------------------------------------------------------------------------------------------

EDGES = {
    "JOB": """
        ∅ → pending
        pending → running
        running → succeeded
        running → failed
        failed → pending
        failed → quarantined
        pending → quarantined
        quarantined → pending""",
    "EXECUTION": """
        ∅ → LEASED
        LEASED → IN_PROGRESS
        IN_PROGRESS → COMMITTED
        COMMITTED → DONE
        LEASED → ABORTED
        IN_PROGRESS → ABORTED""",
    "GRANT": """
        ∅ → draft
        draft → active
        active → consumed
        draft → revoked
        active → revoked
        active → expired""",
    "PROCEDURE": """
        ∅ → planned
        planned → running
        running → done
        planned → stopped
        running → stopped
        running → compensating
        compensating → stopped
        stopped → running""",
    "STEP": """
        ∅ → performed
        performed → undone""",
    "VALUE": """
        ∅ → active
        active → superseded
        active → retired""",
    "REQUEST": """
        ∅ → requested""",
    "SWITCH": """
        ∅ → on
        on → off""",
    "SETTING": """
        ∅ → active
        active → replaced
        active → removed""",
}

EVENTS = {
    "JOB": {
        "submit": {"∅ → pending"},
        "claim": {"pending → running"},
        "succeed": {"running → succeeded"},
        "fail": {"running → failed"},
        "retry": {"running → failed → pending", "failed → pending"},
        "expire": {"running → failed → pending"},
        "revoke": {"running → failed → pending"},
        "give_back": {"running → failed → pending"},
        "replay": {"failed → pending"},
        "quarantine": {"running → failed → quarantined", "failed → quarantined", "pending → quarantined"},
        "cancel": {"running → failed → quarantined", "failed → quarantined", "pending → quarantined"},
        "lapse": {"pending → quarantined"},
        "release": {"quarantined → pending"},
    },
    "EXECUTION": {
        "lease": {"∅ → LEASED"},
        "begin": {"∅ → LEASED → IN_PROGRESS"},
        "start": {"LEASED → IN_PROGRESS"},
        "commit": {"IN_PROGRESS → COMMITTED"},
        "finish": {"COMMITTED → DONE"},
        "complete": {"IN_PROGRESS → COMMITTED → DONE"},
        "abort": {"LEASED → ABORTED", "IN_PROGRESS → ABORTED"},
    },
    "GRANT": {
        "request": {"∅ → draft"},
        "approve": {"draft → active"},
        "consume": {"active → consumed"},
        "revoke": {"draft → revoked", "active → revoked"},
        "expire": {"active → expired"},
    },
    "PROCEDURE": {
        "plan": {"∅ → planned"},
        "run": {"planned → running"},
        "finish": {"running → done"},
        "abort": {"planned → stopped", "running → stopped"},
        "compensate": {"running → compensating"},
        "stop": {"compensating → stopped"},
        "resume": {"stopped → running"},
    },
    "STEP": {
        "perform": {"∅ → performed"},
        "undo": {"performed → undone"},
    },
    "VALUE": {
        "admit": {"∅ → active"},
        "supersede": {"active → superseded"},
        "retire": {"active → retired"},
    },
    "REQUEST": {"request_cancel": {"∅ → requested"}},
    "SWITCH": {
        "throw": {"∅ → on"},
        "lift": {"on → off"},
    },
    "SETTING": {
        "set": {"∅ → active"},
        "replace": {"active → replaced"},
        "remove": {"active → removed"},
    },
}


@pytest.mark.req("X-01", "K-10", "K-11", "K-16", "K-18", "K-19", "G-02", "G-03", "M-03", "M-04")
@pytest.mark.parametrize("name", EDGES)
def test_a_machine_has_these_edges_and_no_more(name: str) -> None:
    expected = [line.strip() for line in EDGES[name].strip().splitlines()]
    assert sorted(str(edge) for edge in MACHINES[name].edges) == sorted(expected)


def test_a_job_has_eight_edges() -> None:
    assert len(JOB.edges) == 8


@pytest.mark.req("X-01", "K-18", "K-19", "G-03", "M-03")
@pytest.mark.parametrize("name", EVENTS)
def test_an_event_takes_these_paths_and_no_more(name: str) -> None:
    machine = MACHINES[name]
    found: dict[str, set[str]] = {event: set() for event in machine.events}
    for path in machine.paths:
        found[path.event].add(str(path))
    assert found == EVENTS[name]
    assert len(machine.paths) == sum(len(paths) for paths in EVENTS[name].values())


def test_the_table_has_no_machine_but_these() -> None:
    assert set(MACHINES) == set(EDGES) == {row.machine for row in TABLE}
    assert [machine.name for machine in MACHINES.values()] == list(MACHINES)


@pytest.mark.req("X-01", "K-16", "K-17")
def test_final_states_and_governed_edges() -> None:
    assert {name: set(machine.final) for name, machine in MACHINES.items()} == {
        "JOB": {"succeeded", "quarantined"},
        "EXECUTION": {"DONE", "ABORTED"},
        "REQUEST": {"requested"},
        "GRANT": {"consumed", "revoked", "expired"},
        "PROCEDURE": {"done"},
        "STEP": {"undone"},
        "VALUE": {"superseded", "retired"},
        "SWITCH": {"off"},
        "SETTING": {"replaced", "removed"},
    }
    assert {name: {str(edge) for edge in machine.governed_edges} for name, machine in MACHINES.items()} == {
        "JOB": {"quarantined → pending"},
        "EXECUTION": set(),
        "REQUEST": set(),
        "GRANT": set(),
        "PROCEDURE": set(),
        "STEP": set(),
        "VALUE": {"∅ → active", "active → superseded", "active → retired"},
        "SWITCH": {"on → off"},
        "SETTING": set(),
    }


@pytest.mark.req("G-01")
def test_the_states_are_words_that_a_person_can_read() -> None:
    assert [str(state) for state in JobState] == ["pending", "running", "succeeded", "failed", "quarantined"]
    assert all(isinstance(state, str) for state in JobState)
    assert set(EXECUTION.states) == {"LEASED", "IN_PROGRESS", "COMMITTED", "DONE", "ABORTED"}
    assert set(GRANT.states) == {"draft", "active", "consumed", "revoked", "expired"}
    assert set(PROCEDURE.states) == {"planned", "running", "compensating", "stopped", "done"}
    assert set(VALUE.states) == {"active", "superseded", "retired"}
    assert (list(StepState), list(SwitchState)) == (["performed", "undone"], ["on", "off"])
    assert (set(STEP.states), set(SWITCH.states)) == (set(StepState), set(SwitchState))


def test_open_and_committed_statuses_of_an_execution() -> None:
    assert {ExecutionStatus.LEASED, ExecutionStatus.IN_PROGRESS, ExecutionStatus.COMMITTED} == OPEN
    assert {ExecutionStatus.COMMITTED, ExecutionStatus.DONE} == COMMITTED


# -- the entry of the write-ahead log, seen through the job -----------------------------------------------------------


@pytest.mark.req("X-02")
def test_an_entry_is_a_view_of_a_job() -> None:
    assert {str(state): str(status) for state, status in ENTRY_STATUS.items()} == {
        "pending": "Pending", "running": "Pending", "failed": "Pending",
        "succeeded": "Completed", "quarantined": "Failed",
    }  # fmt: skip
    assert sorted(str(edge) for edge in entry_edges()) == ["Pending → Completed", "Pending → Failed", "∅ → Pending"]


# -- digests ----------------------------------------------------------------------------------------------------------


def digest_of(*rows: tuple[str, str] | tuple[str, str, Rule], final: str = "end") -> str:
    return declared(*rows, final=final).digest


def test_a_digest_changes_with_every_row_and_with_nothing_else() -> None:
    sound = digest_of(*SOUND)
    assert digest_of(*SOUND) == sound
    make, go, stop = SOUND
    others = [
        digest_of(*SOUND, ("leave", "here → end")),
        digest_of(make, ("walk", "here → there"), stop),
        digest_of(make, go, ("stop", "there → end", Rule.GOVERNED)),
        digest_of(make, stop, go),
        digest_of(make, go, ("stop", "there → finish"), final="finish"),
        Machine("N", [Row("N", *row) for row in SOUND], final={"end"}).digest,
    ]
    assert len({sound, *others}) == 1 + len(others)


def test_a_final_state_is_part_of_the_digest() -> None:
    make, go, _ = SOUND
    up = ("up", "there → end", Rule.GOVERNED)
    assert digest_of(make, go, up, final="end") != digest_of(make, go, up, final="end there")


def test_digests_are_the_same_in_every_process() -> None:
    """The ledger keeps them, so they may not depend on hash seeds or on the order of a set."""
    program = "from holdfast.core.machines import MACHINES; print(*(m.digest for m in MACHINES.values()))"
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [machine.digest for machine in MACHINES.values()]


def test_every_machine_has_a_digest_of_its_own() -> None:
    assert len({machine.digest for machine in MACHINES.values()}) == len(MACHINES)


def test_a_job_and_its_attempt_move_together() -> None:
    resting = {
        ("cancel", "failed"), ("cancel", "pending"), ("lapse", "pending"), ("quarantine", "failed"),
        ("quarantine", "pending"), ("release", "quarantined"), ("replay", "failed"), ("retry", "failed"),
    }  # fmt: skip
    ended = {
        (event, "running", source, "abort")
        for event in ("cancel", "expire", "fail", "give_back", "quarantine", "retry", "revoke")
        for source in ("IN_PROGRESS", "LEASED")
    }
    found = [
        (move.event, move.job.source if move.job else None)
        + ((move.execution.source, move.execution.event) if move.execution else ())
        for move in joint_moves()
    ]
    assert sorted(found, key=str) == sorted(
        [
            *resting,
            *ended,
            ("claim", "pending", None, "begin"),
            ("claim", "pending", None, "lease"),
            ("start", None, "LEASED", "start"),
            ("commit", None, "IN_PROGRESS", "commit"),
            ("succeed", "running", "COMMITTED", "finish"),
            ("succeed", "running", "IN_PROGRESS", "complete"),
        ],
        key=str,
    )
