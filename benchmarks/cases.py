"""The cases of the comparison with their sizes and targets, and what was met.

Invariants: a target is stated here and nowhere else; a verdict is computed from the figures of one run; a peer that is
faster is named as faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from benchmarks.peers import venvs

HOLDFAST, BARE = "holdfast", "bare"
SYSTEMS = {
    "sqlite": (HOLDFAST, *venvs.ON_SQLITE, BARE),
    "postgres": (HOLDFAST, *venvs.ON_POSTGRES),
    "redis-always": venvs.ON_REDIS,
    "redis-everysec": venvs.ON_REDIS,
}
RIVALS = (HOLDFAST, "huey", "litequeue", "pgqueuer")  # in every case, and as often as Holdfast
JOBS_PER_SECOND = {  # about: it decides how many jobs a drain has
    HOLDFAST: 20_000, "huey": 700, "litequeue": 380, "pgqueuer": 14_000, "procrastinate": 220, "oban": 2_000,
    "awa": 2_000, "absurd": 380, "dbos": 400, "celery": 250, "dramatiq": 1_800, "taskiq": 1_000,
}  # fmt: skip
DRAIN_S = 1.5
SLOW_IDLE = ("absurd", "dbos")  # they poll every 0.25 s and every second
KIB, MIB = 1 << 10, 1 << 20

Figure = dict[str, Any]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What Holdfast must reach in a case.

    `ratio`: its rate over that of `of`, a peer or "best", at least `limit`. `own`: over its own rate in the case `of`.
    `most`, `least`: its figure `of`. `below`: its figure `of` under that of every peer.
    """

    kind: Literal["ratio", "own", "most", "least", "below"]
    of: str
    limit: float = 0.0
    on: tuple[str, ...] = ("sqlite", "postgres")

    def __str__(self) -> str:
        match self.kind:
            case "ratio":
                return f"≥ {self.limit:g} times {'the best peer' if self.of == 'best' else self.of}"
            case "own":
                return f"≥ {self.limit:g} of its {self.of}"
            case "below":
                return f"{UNITS.get(self.of, self.of)} below every peer"
            case _:
                return f"{UNITS.get(self.of, self.of)} {'≤' if self.kind == 'most' else '≥'} {self.limit:g}"


UNITS = {
    "p50_ms": "p50 ms", "fsyncs_per_job": "fsyncs a job", "life_wal_per_job": "WAL bytes a job",
    "life_disk_per_job": "disk bytes a job", "least_share": "least share of a process", "rss_mb": "memory MB",
}  # fmt: skip


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table; `n` and `peer_n` are 0 where the speed of the system decides."""

    scenario: str
    n: int = 0
    peer_n: int = 0
    callers: int = 1
    processes: int = 1
    payload: int = 0
    rate: int = 0
    rounds: int = 1
    only_rivals: bool = False
    only: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()

    @property
    def name(self) -> str:
        words = [self.scenario.replace("drain-effect", "drain, one effect each").replace("-failing", ", 20 % fail")]
        if self.scenario == "submit":
            words.append("1 caller" if self.callers == 1 else f"{self.callers} callers")
        if self.scenario == "drain" and not self.payload:
            words.append("1 process" if self.processes == 1 else f"{self.processes} processes")
        if self.scenario == "mixed":
            words.append(f"{self.rate} jobs a second" if self.rate else "half of its capacity")
        if self.payload:
            words.append(f"{self.payload // MIB} MiB" if self.payload >= MIB else f"{self.payload // KIB} KiB")
        return ", ".join(words)

    def jobs(self, system: str, *, quick: bool) -> int:
        """Return the number of jobs or samples of a system in this case."""
        if self.scenario == "idle":
            n = 15 if system in SLOW_IDLE else self.n
            return 5 if quick else n
        n = self.n if system in (HOLDFAST, BARE) else self.peer_n
        n = n or int(JOBS_PER_SECOND[system] * DRAIN_S)
        return max(10, n // 20) if quick else n

    def systems(self, database: str) -> list[str]:
        wanted = [s for s in SYSTEMS[database] if not self.only or s in self.only]
        wanted = [s for s in wanted if s != BARE or self.scenario == "bulk"]
        return [s for s in wanted if s in RIVALS] if self.only_rivals else wanted


def _ratio(of: str, limit: float, *on: str) -> Target:
    return Target(kind="ratio", of=of, limit=limit, on=on or ("sqlite", "postgres"))


def _most(of: str, limit: float, *on: str) -> Target:
    return Target(kind="most", of=of, limit=limit, on=on or ("sqlite", "postgres"))


ENGINE = (
    Case(scenario="submit", n=1000, peer_n=1000, rounds=3, targets=(_ratio("best", 0.95),)),
    Case(scenario="submit", n=5000, peer_n=1000, callers=10, only_rivals=True),
    Case(scenario="submit", n=20_000, peer_n=1500, callers=100, rounds=3, targets=(_ratio("best", 15),)),
    Case(
        scenario="bulk", n=20_000, peer_n=10_000, rounds=3,
        targets=(_ratio("pgqueuer", 0.9, "postgres"), _ratio(BARE, 0.6, "sqlite")),
    ),
    Case(
        scenario="drain", rounds=3,
        targets=(
            _ratio("pgqueuer", 1.5, "postgres"), _ratio("huey", 30, "sqlite"), _ratio("litequeue", 60, "sqlite"),
            _most("fsyncs_per_job", 0.01), _most("life_wal_per_job", 2048, "postgres"),
            _most("life_disk_per_job", 2048, "postgres"),
        ),
    ),
    Case(scenario="drain", processes=2, only_rivals=True),
    Case(
        scenario="drain", processes=4, rounds=3, only_rivals=True,
        targets=(
            _ratio("pgqueuer", 2, "postgres"), Target(kind="own", of="drain, 1 process", limit=0.9, on=("sqlite",)),
            Target(kind="least", of="least_share", limit=0.5, on=("sqlite",)),
        ),
    ),
    Case(scenario="drain-effect", rounds=3, targets=(_ratio("pgqueuer", 2, "postgres"),)),
    Case(
        scenario="idle", n=50, rounds=3,
        targets=(
            _most("p50_ms", 4.5, "postgres"), _most("p50_ms", 3.5, "sqlite"), Target(kind="below", of="p50_ms"),
        ),
    ),
)  # fmt: skip

_LOADED = (*RIVALS, "oban")
LOAD = (
    Case(scenario="mixed"),
    Case(scenario="mixed", rate=100),
    Case(scenario="drain-failing"),
    *(
        Case(scenario=scenario, payload=payload, n=n, peer_n=min(n, 500), only=_LOADED)
        for payload, n in ((KIB, 10_000), (64 * KIB, 1000), (MIB, 60))
        for scenario in ("bulk", "drain")
    ),
)
BROKERS = (
    Case(scenario="submit", n=1000, peer_n=1000),
    Case(scenario="submit", n=20_000, peer_n=3000, callers=100),
    Case(scenario="drain"),
    Case(scenario="drain", processes=4),
    Case(scenario="mixed"),
    Case(scenario="idle", n=50),
)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether Holdfast met one target of one case."""

    database: str
    case: str
    target: str
    value: float
    met: bool
    peer: str = ""  # which one, if the target does not name it


def verdicts(database: str, cases: Sequence[Case], figures: Sequence[Figure]) -> list[Verdict]:
    """Return a verdict for each target whose figures exist."""
    found = []
    for case in cases:
        for target in case.targets:
            if database not in target.on:
                continue
            reached = _reached(target, case, [f for f in figures if f["database"] == database])
            if reached is not None:
                value, peer = reached
                met = value <= target.limit if target.kind == "most" else value >= target.limit
                met = value <= 1 if target.kind == "below" else met
                words = {"database": database, "case": case.name, "target": str(target), "peer": peer}
                found.append(Verdict(**words, value=value, met=met))
    return found


def _reached(target: Target, case: Case, figures: Sequence[Figure]) -> tuple[float, str] | None:
    """Return what Holdfast reached, and beside which peer if the target names none; None without figures."""
    rows = {figure["system"]: figure for figure in figures if figure["case"] == case.name}
    ours = rows.get(HOLDFAST)
    if ours is None:
        return None
    match target.kind:
        case "most" | "least":
            return (ours[target.of], "") if target.of in ours else None
        case "below":
            peers = {s: row[target.of] for s, row in rows.items() if s != HOLDFAST and target.of in row}
            nearest = min(peers, key=lambda system: peers[system], default="")
            return (ours[target.of] / peers[nearest], nearest) if peers else None
        case "own":
            other = [f for f in figures if f["case"] == target.of and f["system"] == HOLDFAST]
            return (ours["per_second"] / other[0]["per_second"], "") if other else None
        case "ratio":
            names = [s for s in rows if s not in (HOLDFAST, BARE)] if target.of == "best" else [target.of]
            rates = [(rate, system) for system in names for rate in _rates(system, case, figures)]
            best, system = max(rates, default=(0.0, ""))
            return (ours["per_second"] / best, system if target.of == "best" else "") if rates else None


def _rates(system: str, case: Case, figures: Sequence[Figure]) -> Iterator[float]:
    """Yield the rates of a peer: of a drain with several processes also those with fewer, which may be faster."""
    fewer = {c.name for c in ENGINE if c.scenario == case.scenario == "drain" and c.processes <= case.processes}
    for figure in figures:
        if figure["system"] == system and figure["case"] in fewer | {case.name} and figure.get("per_second"):
            yield figure["per_second"]
