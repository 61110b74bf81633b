"""Procedures: done once, stopped by name with everything undone, refused in one order; a dry run leaves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import pytest

from holdfast.core.errors import (
    GovernanceError,
    HoldfastError,
    IdempotencyConflictError,
    InputError,
    InvalidStateTransitionError,
    PayloadNotJsonError,
    PlanStaleError,
    RecordNotFoundError,
    RuntimeLeaseError,
)
from holdfast.core.machines import PROCEDURE, STEP
from holdfast.engine.world import Crash
from holdfast.governance.runs.procedure import resume, run, undo
from holdfast.governance.runs.status import run_status
from holdfast.governance.runs.steps import Mode, Procedure, ProcedureReport, Step, StepContext, StepFailed, procedure
from holdfast.store import Store, Submission
from tests.governance.shelves import LOOK, WHO, books, crashing, everything, fill, make, put

REAL: Any = {**WHO, "mode": Mode.REAL_RUN}


@pytest.fixture
def store(ledger_url: str) -> Iterator[Store[Any]]:
    with make(ledger_url) as store:
        yield store


def fates(report: ProcedureReport) -> dict[str, str]:
    return {step.name: step.fate for step in report.steps}


def journal(store: Store[Any], root: str) -> list[tuple[str, str, str, str | None]]:
    """Return the journal of a run and its steps: event, state, actor and reason."""
    with store.reading() as reading:
        known = reading.runs.get(root)
        assert known is not None
        rows = reading.journal.of(known.run_id, PROCEDURE.name)
        for step in reading.runs.steps(known.run_id):
            rows += reading.journal.of(step.step_id, STEP.name)
        return [(row.event, row.target, row.actor, row.reason) for row in sorted(rows, key=lambda row: row.seq)]


# ---------------------------------------------------------------------------------------------------------------------
# A run that goes well


@pytest.mark.req("L-01", "L-08", "L-09")
def test_a_run_is_done_once(store: Store[Any]) -> None:
    report = run(store, fill, {}, root="r", **REAL)
    assert (report.verdict, report.state, report.ok, books(store)) == ("DONE", "done", True, ["A", "B", "C"])
    assert (report.persistent_state, report.seal, report.authority) == ("RECORDED", "JOURNALLED", "GO")
    assert report.counts == {"performed": 5}
    assert journal(store, "r") == [
        ("plan", "planned", "ann", "a test"),
        ("run", "running", "ann", "a test"),
        *[("perform", "performed", "ann", "a test")] * 5,
        ("finish", "done", "ann", "a test"),
    ]
    with store.reading() as reading:
        known = reading.runs.get("r")
        assert known is not None
        assert (known.step, known.stop_state, known.failure, known.plan) == (4, None, None, fill.plan_of({}))
    before = everything(store)
    again = run(store, fill, {}, root="r", **REAL)
    assert (again.verdict, fates(again)) == ("DONE", dict.fromkeys(fill.names, "skipped"))
    assert resume(store, fill, root="r", **WHO).counts == {"skipped": 5}
    assert everything(store) == before


def test_a_step_sees_what_the_steps_before_it_left_as_json(store: Store[Any]) -> None:
    seen: list[Any] = []

    @procedure("counting", checks=(Step("LOOK", lambda _: [1.0, "é"], stop="ABORT"),))
    def counting() -> Iterator[Step]:
        yield Step("ONE", lambda at: {"n": len(at.outcomes)}, stop="X")
        yield Step(
            "TWO", lambda at: seen.append(dict(at.outcomes)), stop="X", verify=lambda at: seen.append(at.outcomes)
        )

    report = run(store, counting, {"a": 1}, root="r", **REAL)
    assert (report.verdict, report.authority, report.grant_id) == ("DONE", "NOT_NEEDED", None)
    [before, after] = seen
    names = ["LOOK", "S1_RESERVED", "ONE", "TWO"]
    assert before == {"LOOK": [1, "é"], "S1_RESERVED": {"version": "1.0.0", "steps": names}, "ONE": {"n": 2}}
    assert after == {**before, "TWO": None}


def test_a_job_submitted_by_a_step_commits_with_the_step(store: Store[Any]) -> None:
    def submit(at: StepContext) -> int:
        [admission] = at.transaction.jobs.submit(
            [Submission(operation="noop", payload="{}", key=at.root)], actor=at.actor
        )
        return int(admission.job_id)

    what = Procedure(name="p", version="1", steps=(Step("TELL", submit, stop="X"), put("A")))
    run(store, what, {}, root="r", **WHO)
    with pytest.raises(Crash):
        run(store, what, {}, root="r", world=crashing("inside TELL"), **REAL)
    with store.reading() as reading:
        assert reading.lists.jobs() == []
    assert run(store, what, {}, root="r", **REAL).verdict == "DONE"
    with store.reading() as reading:
        assert [(job.operation, job.key) for job in reading.lists.jobs()] == [("noop", "r")]


# ---------------------------------------------------------------------------------------------------------------------
# Modes that write nothing


@pytest.mark.req("L-25", "L-22")
def test_a_dry_run_is_the_default_and_leaves_nothing_at_all(store: Store[Any]) -> None:
    run(store, fill, {"room": 3}, root="before", **REAL)
    before = everything(store)
    report = run(store, fill, {"room": 3}, root="r", **WHO)
    assert (report.mode, report.verdict, report.ok, report.state) == (Mode.DRY_RUN, "GO", True, "none")
    assert (report.persistent_state, report.seal) == ("NONE", "WITHHELD_DRY_RUN")
    assert (report.authority, report.grant_id) == ("REJECT_AUTH_MISSING", None)
    assert report.counts == {"performed": 5}
    assert [step.outcome for step in report.steps if step.name.startswith("PUT")] == [{"book": b} for b in "ABC"]
    assert report.plan == fill.plan_of({"room": 3})
    assert everything(store) == before

    failing = run(store, fill, {"fails": "B"}, root="r", **WHO)
    assert (failing.verdict, failing.stop_state, failing.ok) == ("COMP_B", "COMP_B", False)
    assert failing.failure == "StepFailed: B fell down"
    assert fates(failing) == {
        "S0_LOOK": "performed", "S1_RESERVED": "performed", "PUT_A": "performed", "PUT_B": "failed", "PUT_C": "open",
    }  # fmt: skip
    full = run(store, fill, {"room": 2}, root="r", **WHO)
    assert (full.verdict, full.failure, full.counts) == (
        "ABORT_LOOK",
        "StepFailed: the shelf is full",
        {"failed": 1, "open": 4},
    )
    assert everything(store) == before


@pytest.mark.req("L-25")
def test_a_dry_run_of_a_run_that_was_interrupted_rehearses_the_rest(store: Store[Any]) -> None:
    with pytest.raises(Crash):
        run(store, fill, {}, root="r", world=crashing("after PUT_A"), **REAL)
    before = everything(store)
    report = run(store, fill, {}, root="r", **WHO)
    assert (report.verdict, report.state, report.counts) == ("GO", "running", {"skipped": 3, "performed": 2})
    assert everything(store) == before

    undo(store, fill, root="r", **WHO)
    with pytest.raises(Crash):
        run(store, fill, {"fails": "C"}, root="s", world=crashing("after undoing PUT_B"), **REAL)
    before = everything(store)
    report = run(store, fill, {"fails": "C"}, root="s", **WHO)
    assert (report.verdict, report.state) == ("COMP_C", "compensating")
    assert report.counts == {"undone": 4, "failed": 1}
    assert everything(store) == before


@pytest.mark.req("L-11")
def test_a_plan_does_not_read_the_ledger() -> None:
    report = run(cast("Any", None), fill, {"room": 5}, root="r", mode=Mode.PLAN_ONLY, **WHO)
    assert (report.verdict, report.authority, report.persistent_state) == ("GO", "NOT_ASKED", "NONE")
    assert (report.plan, report.target) == (fill.plan_of({"room": 5}), "procedure:fill")
    assert fates(report) == dict.fromkeys(fill.names, "open")


@pytest.mark.req("L-11")
def test_verification_compares_steps_with_their_checks_and_writes_nothing(store: Store[Any]) -> None:
    look: Any = {**WHO, "mode": Mode.VERIFY_ONLY}
    before = everything(store)
    report = run(store, fill, {}, root="r", **look)
    assert (report.verdict, report.authority, fates(report)["S0_LOOK"]) == ("GO", "REJECT_AUTH_MISSING", "passed")
    assert run(store, fill, {"room": -1}, root="r", **look).verdict == "ABORT_LOOK"
    assert everything(store) == before

    with pytest.raises(Crash):
        run(store, fill, {}, root="r", world=crashing("after PUT_B"), **REAL)
    report = run(store, fill, {}, root="r", **look)
    assert (report.verdict, report.state, report.authority) == ("GO", "running", "GO")
    assert fates(report) == {
        "S0_LOOK": "skipped", "S1_RESERVED": "skipped", "PUT_A": "passed", "PUT_B": "passed", "PUT_C": "open",
    }  # fmt: skip

    run(store, fill, {}, root="r", **REAL)
    assert run(store, fill, {}, root="r", **look).verdict == "DONE"
    with store.transaction() as transaction:
        transaction.execute("DELETE FROM shelf WHERE book = 'B'")
    before = everything(store)
    report = run(store, fill, {}, root="r", **look)
    assert (report.verdict, report.failure) == ("COMP_B", "StepFailed: B fell down")
    assert (fates(report)["PUT_A"], fates(report)["PUT_B"]) == ("passed", "failed")
    assert everything(store) == before


# ---------------------------------------------------------------------------------------------------------------------
# Failures


@pytest.mark.req("L-01", "L-20", "L-21")
def test_a_failure_undoes_everything_and_stops_by_name(store: Store[Any]) -> None:
    report = run(store, fill, {"fails": "B"}, root="r", **REAL)
    assert (report.verdict, report.stop_state, report.state, books(store)) == ("COMP_B", "COMP_B", "stopped", [])
    assert (report.ok, report.failure) == (False, "StepFailed: B fell down")
    assert fates(report) == {
        "S0_LOOK": "undone", "S1_RESERVED": "undone", "PUT_A": "undone", "PUT_B": "failed", "PUT_C": "open",
    }  # fmt: skip
    assert journal(store, "r")[5:] == [
        ("compensate", "compensating", "ann", "StepFailed: B fell down"),
        *[("undo", "undone", "ann", "a test")] * 3,
        ("stop", "stopped", "ann", "a test"),
    ]
    with store.reading() as reading:
        assert [lease for lease in reading.leases.all().values() if lease.expires_at > reading.now()] == []


@pytest.mark.req("L-08", "L-10")
def test_a_stopped_run_restarts_under_its_own_grant(store: Store[Any]) -> None:
    stubborn = {"n": 0}

    def verify(_: StepContext) -> None:
        stubborn["n"] += 1
        if stubborn["n"] == 1:
            raise StepFailed("not yet")

    @procedure("twice", governed=True)
    def twice() -> Iterator[Step]:
        yield put("A")
        yield Step("LATE", lambda _: None, stop="COMP_LATE", verify=verify)

    assert run(store, twice, {}, root="r", **REAL).verdict == "COMP_LATE"
    report = resume(store, twice, root="r", **WHO)
    assert (report.verdict, report.counts, books(store)) == ("DONE", {"performed": 3}, ["A"])
    with store.reading() as reading:
        assert [(grant.state, grant.consumed_by) for grant in reading.grants.page()] == [("consumed", "ann")]
    assert [event for event, *_ in journal(store, "r")] == [
        "plan", "run", "perform", "perform", "compensate", "undo", "undo", "stop",
        "resume", "perform", "perform", "perform", "finish",
    ]  # fmt: skip


def _raising(error: Exception) -> Callable[[StepContext], None]:
    def fail(_: StepContext) -> None:
        raise error

    return fail


FAILURES: dict[str, tuple[Any, str]] = {
    "a guard": (Step("B", lambda _: None, stop="STOP", guard=_raising(StepFailed("no"))), "StepFailed: no"),
    "a check afterwards": (Step("B", lambda _: None, stop="STOP", verify=_raising(StepFailed("no"))), "StepFailed: no"),
    "an error of Holdfast": (Step("B", _raising(GovernanceError("no", code="X")), stop="STOP"), "GovernanceError: no"),
    "the lease of another holder": (Step("B", _raising(RuntimeLeaseError("no")), stop="STOP"), "RuntimeLeaseError: no"),
    "any error": (Step("B", lambda _: 1 // 0, stop="STOP"), "ZeroDivisionError: integer division or modulo by zero"),
    "an error with a secret": (
        Step("B", _raising(OSError("password=hunter2")), stop="STOP"),
        "OSError: password=***",
    ),
    "an effect on other rows": (
        Step("B", lambda at: at.effect("DELETE FROM shelf WHERE book = 'Z'", rows=1), stop="STOP"),
        "EffectError: an effect changed 0 rows instead of 1",
    ),
    "a query that writes": (
        Step("B", lambda at: at.query("DELETE FROM shelf"), stop="STOP"),
        "EffectError: a query must begin with SELECT, WITH or VALUES",
    ),
    "an outcome that is no JSON": (
        Step("B", lambda _: {1, 2}, stop="STOP"),
        "PayloadNotJsonError: set is not a JSON type",
    ),
    "an outcome that JSON cannot carry": (
        Step("B", lambda _: float("nan"), stop="STOP"),
        "PayloadNotJsonError: nan is not JSON",
    ),
    "an outcome beyond all limits": (
        Step("B", lambda _: "x" * (1 << 20), stop="STOP"),
        "PayloadTooLargeError: the payload has 1048578 bytes; the limit is 1048576",
    ),
}  # fmt: skip


@pytest.mark.req("L-01", "L-21")
def test_any_exception_of_a_step_is_its_failure(store: Store[Any]) -> None:
    for case, (step, failure) in FAILURES.items():
        what = Procedure(name="p", version="1.0.0", steps=(put("A"), step, put("C")))
        report = run(store, what, {}, root=case, **REAL)
        assert (report.verdict, report.state, report.failure) == ("STOP", "stopped", failure), case
        assert fates(report) == {"S1_RESERVED": "undone", "PUT_A": "undone", "B": "failed", "PUT_C": "open"}
        rehearsed = run(store, what, {}, root=f"{case}, rehearsed", **WHO)
        assert (rehearsed.verdict, rehearsed.failure, rehearsed.persistent_state) == ("STOP", failure, "NONE")
        assert books(store) == []


def test_a_refusal_of_the_database_fails_the_step_even_if_hidden_or_at_commit(
    store: Store[Any],
) -> None:
    with store.transaction() as transaction:
        transaction.execute("CREATE TABLE author (name TEXT PRIMARY KEY)")
        transaction.execute(
            "CREATE TABLE work (author TEXT REFERENCES author (name) DEFERRABLE INITIALLY DEFERRED, title TEXT)"
        )

    def orphan(at: StepContext) -> None:
        at.effect("INSERT INTO work (author, title) VALUES ('nobody', 'x')", rows=1)

    what = Procedure(name="p", version="1.0.0", steps=(put("A"), Step("B", orphan, stop="STOP"), put("C")))
    report = run(store, what, {}, root="r", **REAL)
    assert (report.verdict, report.state, books(store)) == ("STOP", "stopped", [])
    assert report.failure is not None
    assert report.failure.startswith("RefusedByDatabaseError: ")
    with store.reading() as reading:
        assert reading.execute("SELECT count(*) FROM work") == [(0,)]

    def hides(at: StepContext) -> None:
        at.effect("INSERT INTO shelf (book) VALUES ('half')", rows=1)
        with suppress(Exception):  # a careless step hides the error
            at.query("SELECT * FROM nowhere")

    what = Procedure(name="p", version="1.0.0", steps=(put("A"), Step("B", hides, stop="STOP")))
    report = run(store, what, {}, root="s", **REAL)
    # PostgreSQL has aborted the transaction by then; SQLite undoes only the statement.
    expected = ("STOP", []) if store.dialect == "postgres" else ("DONE", ["A", "half"])
    assert (report.verdict, books(store)) == expected


def test_an_interrupt_is_raised_and_the_run_can_be_resumed(store: Store[Any]) -> None:
    calls = []

    def interrupted(at: StepContext) -> None:
        at.effect("INSERT INTO shelf (book) VALUES ('half')", rows=1)
        calls.append(at)
        if len(calls) == 1:
            raise KeyboardInterrupt

    step = Step("B", interrupted, stop="STOP")
    what = Procedure(name="p", version="1.0.0", steps=(put("A"), step))
    with pytest.raises(KeyboardInterrupt):
        run(store, what, {}, root="r", **REAL)
    assert books(store) == ["A"]
    report = resume(store, what, root="r", **WHO)
    assert (report.verdict, report.counts, books(store)) == ("DONE", {"skipped": 2, "performed": 1}, ["A", "half"])


@pytest.mark.req("L-21")
def test_a_failed_compensation_is_recorded_and_retried(store: Store[Any]) -> None:
    broken = [True, True, True]

    def take_away(at: StepContext) -> None:
        at.effect("DELETE FROM shelf WHERE book = 'B'", rows=1)
        if broken and broken.pop():
            raise StepFailed("B is nailed to the shelf")

    sticky = Step("PUT_B", put("B").action, stop="COMP_B", compensate=take_away)
    what = Procedure(name="p", version="1.0.0", steps=(put("A"), sticky, put("C")))
    report = run(store, what, {"fails": "C"}, root="r", **REAL)
    failure = "StepFailed: C fell down\nPUT_B could not be undone: StepFailed: B is nailed to the shelf"
    assert (report.verdict, report.state, report.failure) == ("COMP_C", "compensating", failure)
    assert fates(report) == {"S1_RESERVED": "performed", "PUT_A": "performed", "PUT_B": "stuck", "PUT_C": "failed"}
    assert books(store) == ["A", "B"]

    rehearsed = run(store, what, {"fails": "C"}, root="r", **WHO)
    assert (rehearsed.verdict, rehearsed.state, rehearsed.failure) == ("COMP_C", "compensating", failure)
    assert fates(rehearsed)["PUT_B"] == "stuck"
    report = resume(store, what, root="r", **WHO)
    assert (report.state, report.failure, books(store)) == ("compensating", failure, ["A", "B"])
    assert fates(report) == {"S1_RESERVED": "performed", "PUT_A": "performed", "PUT_B": "stuck", "PUT_C": "failed"}
    report = resume(store, what, root="r", **WHO)
    assert (report.verdict, report.state, books(store)) == ("COMP_C", "stopped", [])
    assert report.failure == "StepFailed: C fell down"
    assert fates(report) == {"S1_RESERVED": "undone", "PUT_A": "undone", "PUT_B": "undone", "PUT_C": "failed"}
    assert [event for event, *_ in journal(store, "r")] == [
        "plan", "run", "perform", "perform", "perform", "compensate", "undo", "undo", "undo", "stop",
    ]  # fmt: skip


def test_a_compensation_sees_the_outcomes_of_performed_steps(store: Store[Any]) -> None:
    seen = []

    def step(name: str, verify: Any = None) -> Step:
        undo_it = lambda at: seen.append((name, sorted(at.outcomes)))  # noqa: E731 - a word for it
        return Step(name, lambda _: name, stop="X", verify=verify, compensate=undo_it)

    what = Procedure(name="p", version="1", steps=(step("A"), step("B"), step("C", _raising(StepFailed("no")))))
    run(store, what, {}, root="r", **REAL)
    assert seen == [("B", ["A", "B", "S1_RESERVED"]), ("A", ["A", "S1_RESERVED"])]


@pytest.mark.req("L-03")
def test_an_abort_by_a_check_has_written_nothing(store: Store[Any]) -> None:
    before = everything(store)
    report = run(store, fill, {"room": -1}, root="r", **REAL)
    assert (report.verdict, report.state, report.persistent_state) == ("ABORT_LOOK", "none", "NONE")
    assert (report.failure, report.seal) == ("StepFailed: the shelf is full", "WITHHELD_DRY_RUN")
    writes = Step("S0", lambda at: at.effect("INSERT INTO shelf (book) VALUES ('Z')"), stop="ABORT")
    what = Procedure(name="p", version="1.0.0", checks=(LOOK, writes), steps=(put("A"),))
    for mode in (Mode.VERIFY_ONLY, Mode.DRY_RUN, Mode.REAL_RUN):
        report = run(store, what, {}, root="r", **{**WHO, "mode": mode})
        assert (report.verdict, report.failure) == ("ABORT", "EffectError: a check must not write")
        assert fates(report) == {"S0_LOOK": "passed", "S0": "failed", "S1_RESERVED": "open", "PUT_A": "open"}
    assert everything(store) == before


# ---------------------------------------------------------------------------------------------------------------------
# What is refused before anything happens


def _given(**changed: Any) -> dict[str, Any]:
    return {
        "what": fill,
        "params": {},
        "root": "r",
        "actor": "ann",
        "reason": "a test",
        "mode": Mode.REAL_RUN,
        **changed,
    }


# In the order of the checks: each case breaks its own rule and every rule after it.
REFUSALS: list[tuple[dict[str, Any], type[HoldfastError], str, str | None]] = [
    ({"mode": ["REAL_RUN"]}, GovernanceError, "REJECT_BAD_MODE", "mode"),
    ({"mode": "FULL_SPEED"}, GovernanceError, "REJECT_BAD_MODE", "mode"),
    ({"root": " "}, InputError, "bad_input", "root"),
    ({"actor": None}, InputError, "bad_input", "actor"),
    ({"reason": ""}, InputError, "bad_input", "reason"),
    ({"params": [1]}, InputError, "bad_input", "params"),
    ({"params": {"n": float("inf")}}, PayloadNotJsonError, "payload_not_json", None),
]


@pytest.mark.req("L-11", "L-13")
def test_a_run_is_refused_in_one_order_and_writes_nothing(store: Store[Any]) -> None:
    before = everything(store)
    for index, (_, kind, code, field) in enumerate(REFUSALS):
        broken: dict[str, Any] = {}
        for case, *_ in reversed(REFUSALS[index:]):
            broken.update(case)
        given = _given(**broken)
        with pytest.raises(kind) as caught:
            run(store, given.pop("what"), given.pop("params"), **given)
        assert (type(caught.value), caught.value.code, caught.value.context.get("field")) == (kind, code, field)
        assert caught.value.hint
    for word in ("r\0", "\ud800", "x" * 1025):
        with pytest.raises(InputError):
            run(store, fill, {}, root=word, **REAL)
    assert everything(store) == before


@pytest.mark.req("L-08", "L-13")
def test_a_root_belongs_to_one_run_permanently(store: Store[Any]) -> None:
    run(store, fill, {"room": 9}, root="r", **REAL)
    before = everything(store)
    other = Procedure(name="other", version="1.0.0", steps=fill.steps)
    newer = Procedure(name="fill", version="1.0.1", steps=fill.steps, checks=fill.checks, act=fill.act)
    longer = Procedure(name="fill", version="1.0.0", steps=(*fill.steps, put("D")), checks=fill.checks, act=fill.act)
    for mode in (Mode.VERIFY_ONLY, Mode.DRY_RUN, Mode.REAL_RUN):
        how: Any = {**WHO, "mode": mode}
        with pytest.raises(IdempotencyConflictError):
            run(store, fill, {"room": 8}, root="r", **how)
        with pytest.raises(IdempotencyConflictError):
            run(store, other, {"room": 9}, root="r", **how)
        for changed in (newer, longer):
            with pytest.raises(PlanStaleError):
                run(store, changed, {"room": 9}, root="r", **how)
    for changed in (newer, longer):
        with pytest.raises(PlanStaleError):
            resume(store, changed, root="r", **WHO)
    with pytest.raises(InputError) as caught:
        resume(store, other, root="r", **WHO)
    assert (caught.value.code, caught.value.context) == ("bad_input", {"procedure": "fill"})
    with pytest.raises(RecordNotFoundError):
        resume(store, fill, root="nobody's", **WHO)
    assert everything(store) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": ()},
        {"steps": (put("A"), put("A"))},
        {"steps": (put("A"),), "reserve": "PUT_A"},
        {"steps": (Step("A", lambda _: None, stop=" "),)},
        {"steps": (put("A"),), "name": ""},
        {"steps": (put("A"),), "lease_s": 0},
        {"steps": (put("A"),), "lease_s": float("nan")},
    ],
)
def test_a_procedure_that_contradicts_itself_is_refused_when_it_is_declared(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Procedure(**{"name": "p", "version": "1.0.0", **wrong})


def test_parameters_that_do_not_fit_are_refused(store: Store[Any]) -> None:
    before = everything(store)
    what = Procedure(name="p", version="1", steps=(put("A"),), target=lambda params: f"shelf:{params['shelf']}")
    with pytest.raises(InputError) as refused:
        run(store, what, {}, root="r", **REAL)
    assert refused.value.context == {"field": "params"}
    assert isinstance(refused.value.__cause__, KeyError)
    what = Procedure(name="p", version="1", steps=(put("A"),), target=lambda params: params["shelf"])
    for shelf in ("", 7):
        with pytest.raises(InputError):
            run(store, what, {"shelf": shelf}, root="r", **REAL)
    assert everything(store) == before


# ---------------------------------------------------------------------------------------------------------------------
# Undo and status


@pytest.mark.req("L-21")
def test_an_interrupted_run_can_be_undone_instead(store: Store[Any]) -> None:
    with pytest.raises(Crash):
        run(store, fill, {}, root="r", world=crashing("after PUT_B"), **REAL)
    report = undo(store, fill, root="r", actor="ann", reason="wrong shelf")
    assert (report.verdict, report.state, books(store)) == ("COMP_BY_OPERATOR", "stopped", [])
    assert report.failure == "undone by ann: wrong shelf"
    assert fates(report) == {**dict.fromkeys(fill.names, "undone"), "PUT_C": "open"}
    before = everything(store)
    assert undo(store, fill, root="r", **WHO).verdict == "COMP_BY_OPERATOR"
    assert everything(store) == before
    assert resume(store, fill, root="r", **WHO).verdict == "DONE"
    before = everything(store)
    with pytest.raises(InvalidStateTransitionError):
        undo(store, fill, root="r", **WHO)
    with pytest.raises(RecordNotFoundError):
        undo(store, fill, root="s", **WHO)
    assert everything(store) == before


@pytest.mark.req("L-09")
def test_the_status_of_a_run_is_derived_from_its_records(store: Store[Any]) -> None:
    def status_of(root: str) -> tuple[str, dict[str, str], str | None]:
        with store.reading() as reading:
            found = run_status(reading, root)
        assert found.version == "1.0.0"
        holder = found.lease.holder if found.lease else None
        return str(found.run.state), {step.name: step.fate for step in found.steps}, holder

    with pytest.raises(Crash):
        run(store, fill, {}, root="r", world=crashing("after S1_RESERVED"), **REAL)
    with store.reading() as reading:
        assert run_status(reading, "r").run.step == 1
    with pytest.raises(Crash):
        run(store, fill, {}, root="r", world=crashing("after PUT_A"), **REAL)
    assert status_of("r") == (
        "running",
        {"S0_LOOK": "performed", "S1_RESERVED": "performed", "PUT_A": "performed", "PUT_B": "open", "PUT_C": "open"},
        "ann/r",
    )
    resume(store, fill, root="r", **WHO)
    assert status_of("r") == ("done", dict.fromkeys(fill.names, "performed"), None)
    with store.transaction() as transaction:
        transaction.execute("DELETE FROM shelf")
    with pytest.raises(Crash):
        run(store, fill, {"fails": "C"}, root="s", world=crashing("after undoing PUT_B"), **REAL)
    assert status_of("s") == (
        "compensating",
        {
            "S0_LOOK": "performed",
            "S1_RESERVED": "performed",
            "PUT_A": "performed",
            "PUT_B": "undone",
            "PUT_C": "failed",
        },
        "ann/s",
    )
    with store.reading() as reading:
        found = run_status(reading, "s")
        assert [(step.number, step.actor) for step in found.steps] == [
            (0, "ann"),
            (1, "ann"),
            (2, "ann"),
            (3, "ann"),
            (4, None),
        ]
        assert found.grant is not None
        assert (found.grant.state, found.grant.consumed_by) == ("consumed", "ann")
        assert [row.event for row in found.history] == ["plan", "run", "compensate"]
        assert (found.failure, found.trouble) == ("StepFailed: C fell down", None)
        with pytest.raises(RecordNotFoundError):
            run_status(reading, "t")
