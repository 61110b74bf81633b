"""`holdfast simulate`: an application's handlers keep their promises under faults, and one that does not is found."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Execution, Ledger
from holdfast.core.errors import InputError
from holdfast.model import application
from holdfast.model.application import Schedule, Simulator
from tests.cli.commands import holdfast

pytestmark = pytest.mark.attack("faults")

APP = '''
import asyncio

from holdfast import Execution, Ledger, RetryPolicy, Strategy

ledger = Ledger("the-real-one.db")
SQL = "INSERT INTO charged (name) VALUES (:name)"


def setup(ledger):
    with ledger.store.transaction() as transaction:
        transaction.execute("CREATE TABLE charged (name text)")


def charged_once(ledger):
    with ledger.store.reading() as reading:
        rows = reading.execute("SELECT name, count(*) FROM charged GROUP BY name HAVING count(*) > 1")
    assert not rows, rows


@ledger.operation("sound", lease_s=30)
def sound(run: Execution, name: str) -> None:
    run.effect(SQL, {"name": name}, rows=1)


@ledger.operation("unsound", lease_s=30)
def unsound(run: Execution, name: str) -> None:
    """Writes its effect itself, before the commit boundary: a crash in between repeats it."""
    with ledger.store.transaction() as transaction:
        transaction.query(SQL, {"name": name})


@ledger.operation("waits", lease_s=30)
async def waits(run: Execution, name: str = "order-0") -> None:
    await asyncio.sleep(0)
    run.effect(SQL, {"name": name}, rows=1)


@ledger.operation("hurries", lease_s=30)
async def hurries(run: Execution, name: str) -> None:
    """As `unsound`, after a pause."""
    await asyncio.sleep(0)
    with ledger.store.transaction() as transaction:
        transaction.query(SQL, {"name": name})


def calls_of_waits():
    return [waits.call(name=f"order-{n}") for n in range(2)] + [sound.call(name="order-9").keyed("shop", "9")]


def calls_of_hurries():
    return tuple(hurries.call(name=f"order-{n}") for n in range(3))


def no_calls():
    return None
'''


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "simulated_app.py").write_text(APP, encoding="utf-8")
    for name in ("sound", "unsound"):
        calls = [{"operation": name, "payload": {"name": f"order-{n}"}} for n in range(3)]
        (tmp_path / f"{name}.json").write_text(json.dumps(calls), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("simulated_app", None)


HOW = ("simulate", "simulated_app:ledger", "--setup", "simulated_app:setup", "--promise", "simulated_app:charged_once")


def test_sound_handlers_keep_their_promises_and_their_own_ledger_is_not_touched(app: Path) -> None:
    done = holdfast(*HOW, "--calls", "sound.json", "--seeds", "4", "--json")
    assert (done.code, done.json["ok"], done.json["seeds"]) == (0, True, 4)
    assert sum(done.json["crashes"].values()) > 0
    assert not (app / "the-real-one.db").exists()


def test_a_handler_that_repeats_its_effect_is_found_shrunk_and_replayed(
    app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "SHRINK_MAX", 10)
    assert (app / "unsound.json").exists()
    found = holdfast(*HOW, "--calls", "unsound.json", "--seeds", "60", "--json")
    assert (found.code, found.json.get("ok")) == (1, False), found
    assert found.json["broken"].startswith("a promise of the application: AssertionError")
    assert not (app / "the-real-one.db").exists()
    schedule = found.json["schedule"]
    kept = schedule["steps"] - len(schedule["left_out"])
    assert kept <= 30  # of 60; more tries would find fewer
    without = ",".join(map(str, schedule["left_out"]))
    replay = (*HOW, "--calls", "unsound.json", "--first", str(schedule["seed"]), "--without", without)
    again = holdfast(*replay, "--json")
    assert (again.code, again.json["broken"], again.json["story"]) == (1, found.json["broken"], found.json["story"])
    # The command that is printed runs exactly this schedule again, with the same tables and the same promise.
    typed = shlex.split(holdfast(*replay).out.splitlines()[-1].removeprefix("next: "))
    assert typed[:2] == ["holdfast", "simulate"]
    assert holdfast(*typed[1:], "--json").json == again.json


def test_coroutines_are_simulated_and_one_that_repeats_its_effect_is_found(
    app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "SHRINK_MAX", 1)
    sound = holdfast(*HOW, "--calls", "simulated_app:calls_of_waits", "--seeds", "3", "--json")
    assert (sound.code, sound.json["ok"], sound.json["skipped"]) == (0, True, [])
    found = holdfast(*HOW, "--calls", "simulated_app:calls_of_hurries", "--seeds", "60", "--json")
    assert (found.code, found.json["ok"]) == (1, False)
    assert found.json["broken"].startswith("a promise of the application: AssertionError")
    assert not (app / "the-real-one.db").exists()


def test_without_calls_every_operation_that_needs_no_arguments_is_submitted(app: Path) -> None:
    done = holdfast(*HOW, "--seeds", "2", "--json")
    assert (done.code, done.json["ok"], done.json["skipped"]) == (0, True, ["sound", "unsound", "hurries"])
    (app / "other_app.py").write_text(
        'from holdfast import Ledger\nledger = Ledger("other.db")\n@ledger.operation("x")\ndef x(run, n: int): ...\n',
        encoding="utf-8",
    )
    refused = holdfast("simulate", "other_app:ledger", "--json")
    assert (refused.code, refused.error_code, refused.json["context"]["operations"]) == (2, "bad_input", ["x"])


def test_a_schedule_is_the_same_twice_and_a_step_that_is_left_out_changes_no_other() -> None:
    ledger = Ledger("nowhere.db")

    @ledger.operation("note", lease_s=30)
    def note(run: Execution, n: int) -> int:
        assert run.job.job_id
        return n

    simulator = Simulator(ledger, [note.call(n=1), note.call(n=2)])
    try:
        first, again = (simulator.run(Schedule(3)) for _ in range(2))
        assert first == again
        assert first.broken is None
        assert len(first.story) > 10
        fewer = simulator.run(Schedule(3, left_out=(59,)))
        assert fewer.story[:5] == first.story[:5]
    finally:
        simulator.close()


def test_limited_work_and_work_with_a_deadline_end_as_with_a_worker() -> None:
    ledger = Ledger("nowhere.db")

    @ledger.operation("limited", lease_s=30, limit=1, limit_key="customer")
    def limited(run: Execution, customer: str, n: int) -> int:
        if n == 1:
            run.after_commit(late.call())
        return n

    @ledger.operation("late", lease_s=30, deadline_s=10)
    def late(run: Execution) -> None: ...

    calls = [*(limited.call(customer="ann", n=n) for n in range(3)), late.call()]
    simulator = Simulator(ledger, calls)
    try:
        runs = [simulator.run(Schedule(seed)) for seed in range(8)]
        assert {run.broken for run in runs} == {None}
        assert sum(run.jobs for run in runs) > 8
    finally:
        simulator.close()


def test_an_application_that_cannot_be_simulated_is_refused(app: Path) -> None:
    (app / "bad.json").write_text('{"operation": 1}', encoding="utf-8")
    for calls in ("nothing.json", "bad.json", "simulated_app:nowhere", "simulated_app:no_calls"):
        refused = holdfast("simulate", "simulated_app:ledger", "--calls", calls, "--json")
        assert (refused.code, refused.error_code) == (2, "bad_input")
    unknown = holdfast(
        "simulate", "simulated_app:ledger", "--calls", "sound.json", "--setup", "simulated_app:no", "--json"
    )
    assert (unknown.code, unknown.error_code) == (2, "bad_input")
    with pytest.raises(InputError):
        Simulator(Ledger("nowhere.db"), [])
    # A call that the ledger would not take is refused before anything runs.
    (app / "unfit.json").write_text('[{"operation": "sound", "payload": {"nme": "x"}}]', encoding="utf-8")
    (app / "unknown.json").write_text('[{"operation": "nothing", "payload": {}}]', encoding="utf-8")
    for calls, name in (("unfit.json", "sound"), ("unknown.json", "nothing")):
        refused = holdfast("simulate", "simulated_app:ledger", "--calls", calls, "--json")
        assert (refused.code, refused.json["context"]["operation"]) == (2, name)
