"""The long proof: faults of many kinds, as many as fit into a budget of time, each kind with a control that must fail.

Each kind works in small units, and the kind that has used the least time goes next. A control is the same unit on a
copy of the sources with one safeguard taken out: if it finds nothing wrong, the kind proves nothing.

Invariants: what was done is saved after every unit, and a later run of the same commit continues there; the page is
written from what was saved; only units that ended are counted.

Usage: python -m tests.support.prove --budget 2h [--only KIND…] [--state FILE] [--write PAGE]
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.explain.times import duration
from holdfast.model.simulation import Broken, simulate
from holdfast.model.trace import prove_ledger
from holdfast.store import open_store
from tests.crash.aftermath import make_template
from tests.crash.test_io_errors import Attempt
from tests.crash.test_postgres_restarts import LEASE_S, Fleet, crash, disturb
from tests.crash.test_power_loss import Recording, cut
from tests.faults.catalogue import FAULTS
from tests.faults.seeded import Patch, SeededFault, copy_with
from tests.support.forkserver import ForkServer
from tests.support.postgres import Server, tmpfs_directory
from tests.support.roles import counting_ledger, create_effects
from tests.support.scorecard import ROOT, made, write

STATE = ROOT / "build" / "prove.json"
IMAGES, SEEDS, STOPS = 50, 10, 3
KILLED = ("pwrite64", "pread64", "fdatasync", "fcntl")
FAILED = ("pwrite64", "fdatasync")
ERRORS = ("EIO", "ENOSPC")
KEPT = 5  # failures that are kept with their words
CONTROL_UNITS = 500  # at most
CONTROL_TIMEOUT_S = 900


class Unit(NamedTuple):
    """What came of one unit: how many faults it made, how many of them broke a promise, and how."""

    tried: int
    bad: int = 0
    how: str = ""


class Rig(ExitStack):
    """What the units of one run share; `weak` in a control, where the settings of the databases are weakened too."""

    def __init__(self, *, weak: bool = False) -> None:
        super().__init__()
        self.weak = weak
        temporary = tempfile.TemporaryDirectory(prefix="holdfast-prove-", dir=tmpfs_directory())
        self.root = Path(self.enter_context(temporary))
        self.calls = cache(self._calls)

    def folder(self, name: str) -> Path:
        path = self.root / name
        path.mkdir(exist_ok=True)
        return path

    @cached_property
    def recording(self) -> Recording:
        return Recording(self.folder("power"), "NORMAL" if self.weak else "FULL")

    @cached_property
    def reference(self) -> Path:
        """The folder with the ledger that reference runs start from."""
        make_template(self.folder("reference"))
        return self.folder("reference")

    def _calls(self, call: str) -> int:
        """Return how often the reference run makes a system call."""
        return Attempt(self.reference, call, "", None).calls

    @cached_property
    def disk_faults(self) -> list[tuple[str, str, int]]:
        """Each write and sync of the reference run with each error, in an order that is the same every time.

        It is shuffled: a run that is stopped early has tried every part of the reference run.
        """
        faults = [(call, error, n + 1) for call in FAILED for error in ERRORS for n in range(self.calls(call))]
        random.Random(0).shuffle(faults)
        return faults

    @cached_property
    def server(self) -> Server:
        weak = {"synchronous_commit": "off", "wal_writer_delay": "10s"} if self.weak else {}
        return self.enter_context(Server(settings=weak))


# ---------------------------------------------------------------------------------------------------------------------
# The units


def power_cuts(rig: Rig, seed: int) -> Unit:
    bad = cut(rig.recording, IMAGES, rig.folder("image"), seed)
    return Unit(IMAGES, bad, f"{bad} images of seed {seed}" if bad else "")


def schedules(rig: Rig, seed: int) -> Unit:
    """Run seeds of the simulation on a new ledger, and prove its journal."""
    path = rig.folder("simulated") / "ledger.db"
    for old in path.parent.iterdir():
        old.unlink()
    first = seed * SEEDS
    try:
        simulate(str(path), range(first, first + SEEDS))
        with open_store(str(path)) as store:
            wrong = prove_ledger(store).wrong
    except Broken as broken:
        return Unit(broken.seed - first + 1, 1, f"seed {broken.seed}: {broken.what}")
    return Unit(SEEDS, len(wrong), f"seeds {first} to {first + SEEDS - 1}: {wrong[0]}" if wrong else "")


def kills(rig: Rig, seed: int) -> Unit:
    chance = random.Random(seed)
    call = chance.choice(KILLED)
    return _attempt(rig, call, "signal=KILL", chance.randint(1, rig.calls(call)))


def disk_errors(rig: Rig, seed: int) -> Unit | None:
    """Let one write or sync of the reference run fail; None after the last."""
    if seed >= len(rig.disk_faults):
        return None
    call, error, when = rig.disk_faults[seed]
    return _attempt(rig, call, f"error={error}", when)


def _attempt(rig: Rig, call: str, fault: str, when: int) -> Unit:
    try:
        Attempt(rig.reference, call, fault, when).require_honest()
    except AssertionError as error:
        return Unit(1, 1, f"{fault} at {call} {when}: {error}")
    return Unit(1)


def server_stops(rig: Rig, seed: int) -> Unit:
    """Stop PostgreSQL as a crash would while a fleet works."""
    rig.server.start()
    url = rig.server.create_database()
    folder = Path(tempfile.mkdtemp(dir=rig.root))
    try:
        with ForkServer("tests.support.roles", "psycopg") as forks, counting_ledger(url, lease_s=LEASE_S) as ledger:
            create_effects(ledger)
            fleet = Fleet(forks, url, folder, jobs=60 * STOPS, pause_ms_max=24)
            fleet.require_at_work(ledger)
            disturb(seed, STOPS, 0.8, lambda: crash(rig.server, 0.1))
            fleet.require_all_done(ledger)
            fleet.require_alive()
    except AssertionError as error:
        return Unit(STOPS, 1, f"seed {seed}: {str(error)[:400]}")
    rig.server.drop_database(url)
    return Unit(STOPS)


# ---------------------------------------------------------------------------------------------------------------------
# The kinds


class Kind(NamedTuple):
    """A kind of fault: what one of them is, how a unit is made, and the safeguards that its controls take out."""

    what: str
    unit: Callable[[Rig, int], Unit | None]
    controls: dict[str, tuple[Patch, ...]]


def _patches(*ids: str) -> tuple[Patch, ...]:
    return tuple(patch for fault in FAULTS if fault.id in ids for patch in fault.patches)


SQLITE = "store/sqlite/executions.sql"
FENCE = (
    *_patches("decide.token_not_compared", "decide.expired_lease_accepted"),
    Patch(SQLITE, "complete_jobs", "AND lease_token = r.value ->> 1 AND lease_owner = :actor", ""),
    Patch(SQLITE, "move_attempts", "AND j.lease_token = k.token AND j.lease_owner = k.owner", ""),
)
APART = _patches("engine.effects_after_the_commit")
ONE_TRANSACTION = "one transaction for an end and its effects"
KINDS = {
    "power": Kind("power cuts: images of the disk", power_cuts, {"synchronous=FULL (it is NORMAL)": ()}),
    "simulation": Kind(
        "schedules of the simulation, and their journals against the model",
        schedules,
        {
            "the fence: tokens and owners of leases": FENCE,
            "the look for a key": _patches("store.key_not_looked_up"),
        },
    ),
    "kill": Kind("SIGKILL at a system call of a reference run", kills, {ONE_TRANSACTION: APART}),
    "disk": Kind("EIO or ENOSPC at a write or sync", disk_errors, {ONE_TRANSACTION: APART}),
    "postgres": Kind(
        "immediate stops of PostgreSQL under a fleet",
        server_stops,
        {
            "synchronous_commit=on (it is off, and not refused)": (
                Patch("store/postgres/store.py", "", "if found.synchronous_commit not in", "if [] and found not in"),
            )
        },
    ),
}


# ---------------------------------------------------------------------------------------------------------------------
# The run


class Done(msgspec.Struct):
    """What was done of one kind."""

    units: int = 0
    tried: int = 0
    bad: int = 0
    seconds: float = 0.0  # of the units
    control_seconds: float = 0.0
    ended: bool = False
    how: list[str] = []
    controls: dict[str, list[int]] = {}  # by the safeguard taken out: how many were tried, and how many were bad


class State(msgspec.Struct):
    """What was done so far, of one commit."""

    made: str
    kinds: dict[str, Done] = {}


def load(path: Path) -> State:
    """Return the state of an earlier run of this commit, or a new one."""
    state = State(made())
    if path.exists():
        earlier = msgspec.json.decode(path.read_bytes(), type=State)
        if earlier.made == state.made:
            return earlier
        print(f"{path} is of another run ({earlier.made}): starting anew", file=sys.stderr)
    return state


def save(state: State, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
    draft.replace(path)


def control(name: str, without: str) -> list[int]:
    """Run a kind with a safeguard taken out, until something is bad; return how many were tried and how many bad."""
    fault = SeededFault(id=f"prove.{name}", meaning=without, patches=KINDS[name].controls[without], tests=())
    with tempfile.TemporaryDirectory(prefix="holdfast-control-", dir=tmpfs_directory()) as directory:
        source = copy_with(fault, Path(directory))
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.prove", "--control", name],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join((str(source), str(ROOT)))},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=CONTROL_TIMEOUT_S,
        )
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=list[int])


def run_control(name: str) -> None:
    """In a process of its own, on the weakened copy: run units until one is bad, and print the counts."""
    tried, bad, how = 0, 0, ""
    with Rig(weak=True) as rig:
        for seed in range(CONTROL_UNITS):
            try:
                unit = _made(name, rig, seed)
            except (HoldfastError, AssertionError) as error:  # of the weakened ledger
                unit = Unit(1, 1, repr(error))
            if unit is None:
                break
            tried, bad, how = tried + unit.tried, bad + unit.bad, unit.how
            if bad:
                break
    print(how, file=sys.stderr)
    print(msgspec.json.encode([tried, bad]).decode())


def _made(name: str, rig: Rig, seed: int) -> Unit | None:
    """Return what came of a unit; one that a busy machine did not finish in time counts for nothing."""
    try:
        return KINDS[name].unit(rig, seed)
    except (subprocess.TimeoutExpired, TimeoutError):
        return Unit(0)


def prove(state: State, path: Path, names: Sequence[str], budget_s: float) -> None:
    """Run units until the budget is spent, always of the kind that has used the least time."""
    began = time.monotonic()
    with Rig() as rig:
        while (spent := time.monotonic() - began) < budget_s:
            open_ = [name for name in names if not state.kinds.setdefault(name, Done()).ended]
            if not open_:
                return
            name = min(open_, key=lambda one: state.kinds[one].seconds)
            done, at = state.kinds[name], time.monotonic()
            left = [without for without in KINDS[name].controls if without not in done.controls]
            if left:
                # Not counted as time of the kind: a slow control would keep its kind from ever being tried.
                done.controls[left[0]] = control(name, left[0])
                done.control_seconds += time.monotonic() - at
            else:
                unit = _made(name, rig, done.units)
                if unit is None:
                    done.ended = True
                else:
                    done.units, done.tried, done.bad = done.units + 1, done.tried + unit.tried, done.bad + unit.bad
                    done.how = [*done.how, *filter(None, [unit.how])][:KEPT]
                done.seconds += time.monotonic() - at
            save(state, path)
            show(state, budget_s - spent)


def show(state: State, left_s: float) -> None:
    """Print one line of progress; on a terminal over the last one."""
    counts = ", ".join(f"{name} {done.tried:,} ({done.bad} bad)" for name, done in state.kinds.items())
    line = f"{max(0, left_s) / 60:.0f} min left: {counts}"
    print(f"\r\x1b[K{line}" if sys.stderr.isatty() else line, end="" if sys.stderr.isatty() else "\n", file=sys.stderr)


def failures(state: State) -> list[str]:
    """Return what broke, and the controls that found nothing."""
    found = [f"{name}: {how}" for name, done in state.kinds.items() for how in done.how]
    return found + [
        f"{name}: without {without}, nothing was found in {tried}"
        for name, done in state.kinds.items()
        for without, (tried, bad) in done.controls.items()
        if not bad
    ]


def section(state: State) -> str:
    """Return the section of the page."""
    hours = sum(done.seconds + done.control_seconds for done in state.kinds.values()) / 3600
    lines = [
        f"{hours:.1f} hours of one core; {state.made}. `make prove BUDGET=2h` continues where it was stopped.",
        "",
        "| kind | made | broke a promise | minutes | controls |",
        "|---|---|---|---|---|",
    ]
    for name, done in state.kinds.items():
        kind = KINDS[name]
        whole = " (all there are)" if done.ended else ""
        found = "; ".join(
            f"without {without}: {f'found after {tried:,}' if bad else f'NOT FOUND in {tried:,}'}"
            for without, (tried, bad) in done.controls.items()
        )
        minutes = f"{(done.seconds + done.control_seconds) / 60:.0f}"
        lines.append(f"| {kind.what} | {done.tried:,}{whole} | {done.bad} | {minutes} | {found} |")
    return "\n".join([*lines, *(f"\n{one}" for one in failures(state)), ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the proof; exit with 1 if something broke, or if a control found nothing."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.prove", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--budget", default="2h", help="such as 30m or 2h")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    parser.add_argument("--control", choices=KINDS, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    logging.disable(logging.ERROR)  # crashes and lost leases are what it is about
    if given.control:
        run_control(given.control)
        return
    state = load(given.state)
    try:
        prove(state, given.state, given.only, duration(given.budget, "--budget").total_seconds())
    except KeyboardInterrupt:
        print("\nStopped; the same command continues here.", file=sys.stderr)
    if given.write:
        write(given.write, "prove", section(state))
    if failed := failures(state):
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
