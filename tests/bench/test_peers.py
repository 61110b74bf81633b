"""The comparison measures what it says: every job once, targets judged from one run, drivers for every system."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases import BROKERS, ENGINE, HOLDFAST, LOAD, SYSTEMS, Case, Target, verdicts
from benchmarks.engine_bench import _median, latencies, place, ratio
from benchmarks.peers import _common, venvs
from benchmarks.peers._common import PAYLOAD_BYTES, call_all, cpu_ns, payload_of, payloads
from benchmarks.peers._peer import FAILS, Peer
from benchmarks.peers.run import MeasureError, measure
from holdfast.core.digest import payload_text


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.pg, pytest.mark.slow])])
def somewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        yield str(tmp_path / "bench.db"), None
    else:
        with place("postgres", {}) as (url, env):
            yield url, {**os.environ, **env}


def test_the_look_at_the_server_is_not_counted_as_work_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(_server: int) -> int:
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
        return 0

    monkeypatch.setenv("HOLDFAST_BENCH_SERVER", "1")
    monkeypatch.setattr(_common, "cpu_ns", look)
    watch = _common.Stopwatch()
    watch.start()
    watch.stop()
    assert watch.figures(1)["client_us"] < 25_000


def test_every_scenario_measures_holdfast(somewhere: tuple[str, Mapping[str, str] | None]) -> None:
    url, env = somewhere

    def figures(scenario: str, n: int, **options: object) -> dict[str, Any]:
        return measure(HOLDFAST, scenario, env, url=url, n=n, **options)

    submitted = figures("submit", 40, callers=4)
    assert (submitted["n"], submitted["callers"]) == (40, 4)
    assert submitted["per_second"] > 0
    assert submitted["client_us"] > 0
    assert figures("bulk", 300)["per_second"] > 0
    drained = figures("drain", 400, processes=2)
    assert drained["processes"] == 2
    assert 0 <= drained["least_share"] <= 1
    assert drained["life_disk_per_job"] > PAYLOAD_BYTES
    assert figures("drain-effect", 100)["rss_mb"] > 10
    assert figures("drain-failing", 100)["per_second"] > 0
    assert figures("drain", 3, payload=1 << 20)["life_disk_per_job"] > 100_000
    idle = figures("idle", 3)
    assert 0 < idle["p50_ms"] < 5000
    mixed = figures("mixed", 0, seconds=0.6)
    assert mixed["p50_ms"] <= mixed["p99_ms"] <= mixed["p99.9_ms"]
    assert mixed["rate"] > mixed["jobs"] / 0.6 / 2
    steady = figures("mixed", 0, seconds=0.6, rate=50)
    assert steady["rate"] == 50
    assert 5 < steady["jobs"] < 90


@pytest.mark.pg
def test_a_drain_on_postgresql_measures_its_server_and_its_log() -> None:
    with place("postgres", {}) as (url, env):
        drained = measure(HOLDFAST, "drain", {**os.environ, **env}, url=url, n=200, processes=2)
    assert drained["processes"] == 2
    assert drained["life_disk_per_job"] > PAYLOAD_BYTES
    assert drained["server_us"] > 0
    assert drained["life_wal_per_job"] > drained["wal_per_job"] > 0


def test_bare_inserts_are_measured_as_a_bulk(tmp_path: Path) -> None:
    figures = measure("bare", "bulk", url=str(tmp_path / "bench.db"), n=2000)
    assert figures["per_second"] > 1000
    assert figures["disk_per_job"] > PAYLOAD_BYTES


def test_a_driver_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="invalid choice: 'nothing'"):
        measure(HOLDFAST, "nothing", url=str(tmp_path / "bench.db"), n=1)


def test_every_peer_has_a_driver_and_pins() -> None:
    for peer in venvs.PEERS:
        assert (venvs.HERE / f"{peer}_driver.py").exists()
        pins = (venvs.HERE / f"{peer}.requirements.txt").read_text().splitlines()
        assert all("==" in pin or pin.startswith("#") for pin in pins), peer
    assert {system for systems in SYSTEMS.values() for system in systems} == {HOLDFAST, "bare", *venvs.PEERS}


def test_cases_have_names_and_sizes_of_their_own() -> None:
    for cases in (ENGINE, LOAD, BROKERS):
        names = [case.name for case in cases]
        assert len(set(names)) == len(names)
        for case in cases:
            for database in SYSTEMS:
                for system in case.systems(database):
                    assert case.jobs(system, quick=True) <= case.jobs(system, quick=False)


def test_payloads_have_their_size_and_a_fifth_fails() -> None:
    assert [len(payload_text(payload_of(size))) for size in (0, 1024, 1 << 20)] == [227, 1024, 1 << 20]
    chunks = list(payloads(2500, 0, failing=True))
    assert [len(chunk) for chunk in chunks] == [1000, 1000, 500]
    assert sum(payload["note"].startswith(FAILS) for chunk in chunks for payload in chunk) == 500
    assert {len(chunk) for chunk in payloads(8, 1 << 20)} == {4}


def test_callers_share_the_turns() -> None:

    taken: list[int] = []
    turns = iter([({"amount": n}, 0.0) for n in range(100)])
    asyncio.run(call_all(Peer(), lambda payload: taken.append(payload["amount"]), 7, turns))
    assert sorted(taken) == list(range(100))


def test_cpu_of_a_process_grows() -> None:

    before = cpu_ns(os.getpid())
    sum(range(2_000_000))
    assert cpu_ns(os.getpid()) > before > 0


def _figure(case: str, system: str, **more: float) -> dict[str, Any]:
    return {"database": "sqlite", "case": case, "system": system, "version": "1", **more}


def test_verdicts_name_what_was_met_and_by_how_much() -> None:
    one = Case(scenario="drain", targets=(
        Target(kind="ratio", of="huey", limit=3), Target(kind="ratio", of="best", limit=3),
        Target(kind="most", of="fsyncs_per_job", limit=0.01), Target(kind="ratio", of="pgqueuer", on=("postgres",)),
    ))  # fmt: skip
    four = Case(scenario="drain", processes=4, targets=(
        Target(kind="ratio", of="huey", limit=2), Target(kind="own", of="drain, 1 process", limit=0.9),
        Target(kind="below", of="p50_ms"),
    ))  # fmt: skip
    figures = [
        _figure("drain, 1 process", HOLDFAST, per_second=300, fsyncs_per_job=0.02),
        _figure("drain, 1 process", "huey", per_second=100),
        _figure("drain, 1 process", "litequeue", per_second=120),
        _figure("drain, 4 processes", HOLDFAST, per_second=270, p50_ms=2.0),
        _figure("drain, 4 processes", "huey", per_second=80, p50_ms=4.0),
    ]
    found = [(v.case, v.target, v.peer, v.value, v.met) for v in verdicts("sqlite", (one, four), figures)]
    assert found == [
        ("drain, 1 process", "≥ 3 times huey", "", 3.0, True),
        ("drain, 1 process", "≥ 3 times the best peer", "litequeue", 2.5, False),
        ("drain, 1 process", "fsyncs a job ≤ 0.01", "", 0.02, False),
        ("drain, 4 processes", "≥ 2 times huey", "", 2.7, True),  # its best is with one process
        ("drain, 4 processes", "≥ 0.9 of its drain, 1 process", "", 0.9, True),
        ("drain, 4 processes", "p50 ms below every peer", "huey", 0.5, True),
    ]


def test_a_median_leaves_out_failed_rounds() -> None:
    rounds: list[dict[str, Any]] = [
        {"per_second": 1.0, "setting": None},
        {"failed": "no"},
        {"per_second": 3.0, "setting": None},
    ]
    assert _median(rounds) == {"per_second": 2.0, "setting": None, "rounds": 2}
    assert _median([{"failed": "no"}]) == {"failed": "no", "rounds": 1}
    assert ratio({"per_second": 5.0}, {"per_second": 10.0}) == "0.50 times"
    assert latencies({"p50_ms": 1.5, "p99_ms": 200.0}) == "1.5 / 200"
