"""specs/: the TLA+ files are those of the table; the rules of the log hold, and fail when BUGGY; TLC, where it is."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.core.machines import MACHINES
from holdfast.model.checker import Kept, Model, Promise, explore, kept
from holdfast.model.specs import LIVENESS, NOTHING, RUNS, files, main

SPECS = Path(__file__).parents[2] / "specs"
LOG = (SPECS / "WriteAheadLog.tla").read_text(encoding="utf-8")
JAR = os.environ.get("TLA2TOOLS_JAR")
needs_tlc = pytest.mark.skipif(JAR is None, reason="TLA2TOOLS_JAR is not set")


def test_the_files_are_up_to_date(tmp_path: Path) -> None:
    main(["--check", str(SPECS)])
    with pytest.raises(SystemExit):
        main(["--check", str(tmp_path)])
    assert {path.name for path in SPECS.iterdir()} == {*files(), "WriteAheadLog.tla"}


def test_the_edges_of_the_module_are_those_of_the_table() -> None:
    text = (SPECS / "Machines.tla").read_text(encoding="utf-8")

    def sets(name: str) -> dict[str, set[tuple[str, ...]]]:
        body = text.partition(f"{name} == [\n")[2].partition("]\n")[0]
        return {
            machine: {tuple(re.findall(r'"(\w+)"', pair)) for pair in re.findall(r"<<(.*?)>>", members)}
            for machine, members in re.findall(r"(\w+) \|-> \{(.*?)\}(?:,\n|$)", body)
        }

    edges, governed = sets("Edges"), sets("Governed")
    for machine in MACHINES.values():
        assert edges[machine.name] == {(edge.source or NOTHING, edge.target) for edge in machine.edges}
        assert governed[machine.name] == {(edge.source or NOTHING, edge.target) for edge in machine.governed_edges}
        assert all(edge in machine.governed_edges for edge in machine.edges if edge.source in machine.final)


@pytest.mark.req("W-11", "W-12")
@pytest.mark.parametrize("name", RUNS)
def test_a_configuration_names_what_the_module_defines(name: str) -> None:
    text = (SPECS / f"WriteAheadLog_{name}.cfg").read_text(encoding="utf-8")
    declared = re.search(r"^CONSTANTS (.*)$", LOG, re.MULTILINE)
    assert declared
    assert re.findall(r"^  (\w+) =", text, re.MULTILINE) == declared[1].split(", ")
    for one in re.findall(r"^(?:INVARIANT|PROPERTY|SPECIFICATION) (\w+)$", text, re.MULTILINE):
        assert re.search(rf"^{one} ==", LOG, re.MULTILINE), one
    assert ("BUGGY = TRUE" in text) is (name == "buggy")
    assert "BUGGY \\/ ~Known(c, k)" in LOG  # the switch is in the module, and not only in the configuration


# ---------------------------------------------------------------------------------------------------------------------
# The rules of the module, explored by our own checker

Entry = tuple[int, int, int, str]  # id, client, key, status


class State(NamedTuple):
    wal: frozenset[Entry] = frozenset()
    effects: frozenset[tuple[int, int, int]] = frozenset()  # entry, client, key
    next_key: tuple[int, ...] = (1,)
    crashed: bool = False
    recovering: bool = False
    next_id: int = 1
    crashes: int = 0

    @property
    def pending(self) -> list[Entry]:
        return sorted(entry for entry in self.wal if entry[3] == "Pending")


def appended(run: dict[str, int], state: State) -> Iterator[tuple[str, State]]:
    if state.crashed or state.recovering or state.next_id > run["entries"]:
        return
    for client, newest in enumerate(state.next_key):
        for key in range(1, min(newest, run["operations"]) + 1):
            if run["buggy"] or not any(entry[1:3] == (client, key) for entry in state.wal):
                keys = tuple(n + (c == client and key == n) for c, n in enumerate(state.next_key))
                wal = state.wal | {(state.next_id, client, key, "Pending")}
                yield "AppendToWal", state._replace(wal=wal, next_key=keys, next_id=state.next_id + 1)


def ended(state: State, entry: Entry, status: str) -> State:
    effects = state.effects | ({entry[:3]} if status == "Completed" else set())
    return state._replace(wal=state.wal - {entry} | {(*entry[:3], status)}, effects=effects)


def steps(run: dict[str, int], state: State) -> Iterator[tuple[str, State]]:
    yield from appended(run, state)
    for entry in () if state.crashed else state.pending:
        yield "CompleteOperation", ended(state, entry, "Completed")
        yield "FailOperation", ended(state, entry, "Failed")
    if state.recovering and state.pending:
        yield "RecoverEntry", ended(state, state.pending[0], "Completed")
    if not state.crashed and state.crashes < run["crashes"]:
        yield "Crash", state._replace(crashed=True, recovering=False, crashes=state.crashes + 1)
    if state.crashed:
        yield "StartRecovery", state._replace(crashed=False, recovering=True)
    if state.recovering and not state.pending:
        yield "CompleteRecovery", state._replace(recovering=False)


def once(state: State) -> bool:
    return len({effect[1:] for effect in state.effects}) == len(state.effects)


def model(run: dict[str, int]) -> Model[State]:
    return Model(
        initial=State(next_key=(1,) * run["clients"]),
        steps=partial(steps, run),
        invariants={
            "TypeOK": lambda state: not (state.crashed and state.recovering),
            "Idempotency": lambda state: len({entry[1:3] for entry in state.wal}) == len(state.wal),
            "OneEffect": once,
            "Durability": lambda state: all(e[:3] in state.effects for e in state.wal if e[3] == "Completed"),
        },
        promises={
            "EventualRecovery": Promise(
                lambda state: state.crashed, lambda state: not (state.crashed or state.recovering or state.pending)
            ),
            "EventualCompletion": Promise(lambda state: bool(state.pending), lambda state: not state.pending),
            "ProgressUnderCrash": Promise(lambda state: state.crashed, lambda state: not state.crashed),
            "NoStarvation": Promise(
                lambda state: any(entry[1] == 0 for entry in state.pending),
                lambda state: not any(entry[1] == 0 for entry in state.pending),
            ),
        },
        fair=frozenset({"CompleteOperation", "RecoverEntry", "StartRecovery", "CompleteRecovery"}),
        faults=frozenset({"Crash"}),
    )


@pytest.mark.req("W-08", "W-09", "W-11", "W-12")
@pytest.mark.parametrize("name", RUNS)
def test_the_rules_of_the_log_hold_and_fail_when_buggy(name: str) -> None:
    run = RUNS[name]
    graph = explore(model({key: int(value) for key, value in run.items()}), keep_edges=bool(run["liveness"]))
    if run["buggy"]:
        assert graph.broken is not None
        assert graph.broken.name == "Idempotency"
        return
    assert graph.broken is None
    assert graph.distinct > 1000
    if run["liveness"]:
        assert {one: kept(graph, one) for one in LIVENESS} == dict.fromkeys(LIVENESS, Kept.ALWAYS)


def tlc(module: str, name: str, specs: Path, metadata: Path) -> str:
    """Run TLC and return what it prints. `-deadlock`: a log or a life that has ended makes no more steps."""
    command = ["java", "-XX:+UseParallelGC", "-cp", str(JAR), "tlc2.TLC", "-deadlock", "-metadir", str(metadata)]
    done = subprocess.run(
        [*command, "-config", f"{name}.cfg", f"{module}.tla"],
        cwd=specs,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return done.stdout


@needs_tlc
@pytest.mark.req("W-11", "W-12")
@pytest.mark.parametrize("name", RUNS)
def test_tlc_agrees(name: str, tmp_path: Path) -> None:
    printed = tlc("WriteAheadLog", f"WriteAheadLog_{name}", SPECS, tmp_path)
    if RUNS[name]["buggy"]:
        assert "Invariant Idempotency is violated" in printed, printed
        return
    graph = explore(model({key: int(value) for key, value in RUNS[name].items()}))
    assert "Model checking completed. No error has been found." in printed, printed
    assert f"{graph.generated} states generated, {graph.distinct} distinct states found" in printed, printed


@needs_tlc
@pytest.mark.parametrize("seeded", [False, True])
def test_tlc_finds_a_final_state_that_is_left_without_a_grant(seeded: bool, tmp_path: Path) -> None:
    text = (SPECS / "Machines.tla").read_text(encoding="utf-8")
    if seeded:
        text = text.replace('SWITCH |-> {<<"on", "off">>}', "SWITCH |-> {}")
        text = text.replace(
            '{<<"on", "off">>, <<"null", "on">>}', '{<<"on", "off">>, <<"off", "on">>, <<"null", "on">>}'
        )
    (tmp_path / "Machines.tla").write_text(text, encoding="utf-8")
    (tmp_path / "Machines.cfg").write_text((SPECS / "Machines.cfg").read_text(encoding="utf-8"), encoding="utf-8")
    printed = tlc("Machines", "Machines", tmp_path, tmp_path / "metadata")
    edges = sum(len(machine.edges) for machine in MACHINES.values())
    if seeded:
        assert "Action property FinalIsLeftByAGrant is violated" in printed, printed
    else:
        assert "Model checking completed. No error has been found." in printed, printed
        assert f"{edges + len(MACHINES)} states generated" in printed, printed
