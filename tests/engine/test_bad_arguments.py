"""Every public function and method, given what it cannot use: a typed error with a code, and nothing is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Call,
    Cancel,
    Execution,
    Ledger,
    Operation,
    Operations,
    Procedure,
    Quarantine,
    RetryAfter,
    RetryPolicy,
    Snooze,
    Step,
    Worker,
    procedure,
    resume_procedure,
    run_procedure,
)
from holdfast.core.errors import HoldfastError, InputError, JobNotFoundError, PayloadTooDeepError, UnknownOperationError

pytestmark = pytest.mark.attack("input")


class Hostile:
    """A value that fails at every look."""

    __hash__ = None  # type: ignore[assignment]  # that is what makes it hostile

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __bool__(self) -> bool:
        raise RuntimeError("bool")


class TextOfAnother(str):
    """A subclass of str."""

    __slots__ = ()


def cyclic_list() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def cyclic_dict() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["a"] = value
    return value


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    return value


WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "bytes": lambda: b"x",
    "bytearray": lambda: bytearray(b"x"),
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "a huge integer": lambda: 10**400,
    "an integer of 64 bits": lambda: 2**63,
    "a negative number": lambda: -1,
    "a fraction": lambda: 1.5,
    "a boolean": lambda: True,
    "an empty text": str,
    "a long text": lambda: "x" * 3000,
    "a text with NUL": lambda: "a\0b",
    "half of a surrogate pair": lambda: "\ud800",
    "a time without a zone": lambda: datetime(2030, 1, 1),  # noqa: DTZ001 - that is the mistake
    "the end of time": lambda: datetime.max.replace(tzinfo=timezone(timedelta(hours=-23))),
    "a date": lambda: date(2030, 1, 1),
    "a decimal that is no number": lambda: Decimal("NaN"),
    "a complex number": lambda: 1j,
    "a list in itself": cyclic_list,
    "a dict in itself": cyclic_dict,
    "a deep list": deep,
    "a generator": lambda: (n for n in range(3)),
    "a set": lambda: {1, 2},
    "keys that are no text": lambda: {1: 2},
    "a dict": lambda: {"a": {1}},
    "an empty tuple": tuple,
    "an object": object,
    "a hostile object": Hostile,
    "a function": lambda: lambda: 1,
    "a type": lambda: int,
    "a subclass of str": lambda: TextOfAnother("ab"),
    "a list of None": lambda: [None],
    "an exception": lambda: Exception("x"),
}


def each(names: str, call: Callable[[str, Any], Any]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield the call with each of the names, which are separated by spaces."""
    for name in names.split():
        yield name, partial(call, name)


def printable(error: HoldfastError) -> bool:
    try:
        json.dumps(error.as_dict())
    except (TypeError, ValueError):
        return False
    return True


class Target:
    """A ledger with two operations, and everything that can be called with one wrong argument."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.plain = ledger.operation("plain")(lambda _run, name="x": name)
        self.free = ledger.operation("free")(lambda _run, **_arguments: None)
        self.done = ledger.submit(self.plain.call(name="a"))
        self.pending = ledger.submit(self.plain.call(name="a"), queue="never")
        ledger.run_until_idle(queues=["default"])
        self.steps = procedure("p")(lambda: [Step("a", lambda _context: 1, "S")])

    def calls(self) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        yield from self.submits()
        yield from self.of_jobs()
        yield from self.declaring()
        yield from self.working()
        yield from self.procedures()

    def submits(self) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        ledger, free = self.ledger, self.free
        yield "submit", ledger.submit
        yield "submit payload", lambda value: ledger.submit("free", value)
        yield "submit value", lambda value: ledger.submit("free", {"x": value})
        yield "submit connection", lambda value: ledger.submit("free", connection=value)
        settings = "client key run_at priority queue version"
        yield from each(settings, lambda name, value: ledger.submit("free", **{name: value}))
        yield from each(settings, lambda name, value: asyncio.run(ledger.submit_async("free", **{name: value})))
        yield from each(settings, lambda name, value: ledger.submit_many([{"operation": "free", name: value}]))
        yield from each(
            settings, lambda name, value: ledger.submit(Call(operation="free", payload={}, **{name: value}))
        )
        yield "async", lambda value: asyncio.run(ledger.submit_async(value))
        yield "async connection", lambda value: asyncio.run(ledger.submit_async("free", connection=value))
        yield "async payload", lambda value: asyncio.run(ledger.submit_async("free", value))
        yield "many", ledger.submit_many
        yield "many of", lambda value: ledger.submit_many([value])
        yield "many operation", lambda value: ledger.submit_many([{"operation": value}])
        yield "many payload", lambda value: ledger.submit_many([{"operation": "free", "payload": value}])
        yield "Call operation", lambda value: ledger.submit(Call(operation=value, payload={}))
        yield "Call payload", lambda value: ledger.submit(Call(operation="free", payload=value))
        yield "keyed client", lambda value: ledger.submit(free.call().keyed(value, "k"))
        yield "keyed key", lambda value: ledger.submit(free.call().keyed("c", value))
        yield "at", lambda value: ledger.submit(free.call().at(value))
        yield "call", lambda value: ledger.submit(self.plain.call(name=value))
        yield "checked", self.plain.checked
        yield "arguments", self.plain.arguments

    def of_jobs(self) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        ledger = self.ledger
        yield "job", ledger.job
        yield "receipt", ledger.receipt
        yield "wait", lambda value: ledger.wait(value, 0.001)
        yield "wait timeout", lambda value: self.pending.wait(_short(value))
        yield "wait_async timeout", lambda value: asyncio.run(self.pending.wait_async(_short(value)))
        yield "cancel", ledger.cancel
        yield "retry", ledger.retry
        yield "quarantine", lambda value: ledger.quarantine(value, "bad")
        yield "quarantine code", lambda value: ledger.quarantine(self.done.job_id, value)
        job_id, signature = self.done.job_id, "actor reason"
        yield from each(signature, lambda name, value: ledger.cancel(job_id, **{name: value}))
        yield from each(signature, lambda name, value: ledger.retry(job_id, **{name: value}))
        yield from each(signature, lambda name, value: ledger.pause("default", **{name: value}))
        yield from each(signature, lambda name, value: ledger.resume("default", **{name: value}))
        yield from each(signature, lambda name, value: ledger.quarantine(job_id, "bad", **{name: value}))
        yield "pause", ledger.pause
        yield "resume", ledger.resume

    def declaring(self) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        yield "Ledger url", Ledger
        yield "Ledger operations", lambda value: Ledger("x.db", value)
        yield "Ledger world", lambda value: Ledger("x.db", world=value)
        yield "bound_to", self.ledger.bound_to
        yield "operation name", lambda value: Operations().operation(value)(lambda _run: None)
        yield "operation handler", Operations().operation("a")
        yield "add", Operations().add
        yield "get", self.ledger.operations.get
        yield "get version", lambda value: self.ledger.operations.get("plain", value)
        yield "versions", self.ledger.operations.versions
        settings = "version max_attempts lease_s timeout_s retry queue classify unique deadline_s limit limit_key"
        yield from each(settings, lambda name, value: Operation(lambda _run: None, name="a", **{name: value}))
        yield from each(" ".join(RetryPolicy.__struct_fields__), lambda name, value: RetryPolicy(**{name: value}))
        yield "schedule", lambda value: Ledger("x.db").schedule(value)(self.plain)
        settings = "name arguments tz missed overlap queue"
        yield from each(settings, lambda name, value: Ledger("x.db").schedule("@daily", **{name: value})(self.plain))
        yield "subscribe", self.ledger.subscribe
        yield "Snooze", Snooze
        yield "RetryAfter", RetryAfter

    def working(self) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        ledger = self.ledger
        yield "Worker", Worker
        settings = "queues concurrency executor batch_max poll_s drain_s"
        yield from each(settings, lambda name, value: Worker(ledger, **{name: value}))
        with ledger.store.reading() as reading:
            [found] = reading.lists.executions(self.done.job_id)
            attempt = reading.lists.attempt(found.exec_id)
        assert attempt is not None
        run = Execution(ledger, attempt)
        yield "effect", run.effect
        yield "after_commit", run.after_commit
        yield "effect params", lambda value: run.effect("INSERT INTO t VALUES (?)", value)
        yield "effect rows", lambda value: run.effect("INSERT INTO t VALUES (1)", rows=value)
        yield "checkpoint name", lambda value: run.checkpoint(value, lambda: 1)
        yield "checkpoint value", lambda value: run.checkpoint("a", lambda: value)
        yield "progress", run.progress

    def procedures(self) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        store, steps = self.ledger.store, self.steps
        given: dict[str, Any] = {"root": "r", "actor": "a", "reason": "r"}
        yield "procedure name", lambda value: procedure(value)(lambda: [Step("a", lambda _context: 1, "S")])
        yield "procedure steps", lambda value: procedure("p")(lambda: value)
        yield "run_procedure params", lambda value: run_procedure(store, steps, value, **given)
        yield "run_procedure what", lambda value: run_procedure(store, value, {}, **given)
        yield "run_procedure store", lambda value: run_procedure(value, steps, {}, **given)
        names = "root actor reason mode"
        yield from each(names, lambda name, value: run_procedure(store, steps, {}, **{**given, name: value}))
        yield "resume_procedure root", lambda value: resume_procedure(store, steps, **{**given, "root": value})


def _short(timeout: Any) -> Any:
    """Return a timeout that a test can wait for, if it is one at all."""
    return 0.001 if timeout is None or (isinstance(timeout, int | float) and not timeout <= 1) else timeout


@pytest.mark.parametrize(
    "ledger_url, one_in",
    [
        ("sqlite", 1),
        pytest.param("postgres", 4, marks=pytest.mark.pg),
        pytest.param("postgres", 1, marks=[pytest.mark.pg, pytest.mark.slow]),
    ],
    indirect=["ledger_url"],
)
def test_no_wrong_argument_gets_a_bare_exception(
    ledger_url: str, one_in: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tried, bare = 0, []
    with Ledger(ledger_url) as ledger:
        for name, call in Target(ledger).calls():
            for kind, make in WRONG.items():
                tried += 1
                if tried % one_in:
                    continue
                try:
                    call(make())
                except HoldfastError as error:
                    if not printable(error):
                        bare.append((name, kind, "an error that cannot be printed as JSON"))
                    if not (error.code and error.hint):
                        bare.append((name, kind, "an error without a code or a next step"))
                except Exception as error:  # noqa: BLE001 - that is what is looked for
                    bare.append((name, kind, f"{type(error).__name__}: {error}"[:100]))
    assert not bare, bare
    assert tried > 3000
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".db"]


@pytest.mark.parametrize("name, value", [("client", 5), ("key", 0), ("queue", b"q"), ("priority", True), ("run_at", 5)])
def test_a_wrong_argument_is_named(ledger: Ledger, name: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        ledger.submit("noop", **{name: value})
    assert caught.value.context == {"argument": name, "given": type(value).__name__}
    assert ledger.counts() == []


@pytest.mark.parametrize(
    "name, near", [("ky", "key"), ("ques", "queue"), ("runat", "run_at"), ("deadline", "deadline_s")]
)
@pytest.mark.parametrize("call", ["noop", Call(operation="noop", payload={})])
def test_a_setting_that_does_not_exist_is_refused_with_the_nearest_name(
    ledger: Ledger, call: Call[Any] | str, name: str, near: str
) -> None:
    for submit in (ledger.submit, lambda *args, **settings: asyncio.run(ledger.submit_async(*args, **settings))):
        with pytest.raises(InputError) as caught:
            submit(call, **dict[str, Any]({name: "x"}))
        assert caught.value.context == {"argument": name, "nearest": near}
    assert ledger.counts() == []


@pytest.mark.parametrize(
    "name, near", [("max_attempt", "max_attempts"), ("lease", "lease_s"), ("limitkey", "limit_key")]
)
def test_a_setting_of_an_operation_that_does_not_exist_is_refused_with_the_nearest_name(name: str, near: str) -> None:
    for operation in (Operations().operation, Ledger("never-opened.db").operation):
        with pytest.raises(InputError) as caught:
            operation(name="own", **dict[str, Any]({name: 5}))(lambda run: None)
        assert caught.value.context == {"argument": name, "nearest": near}


@pytest.mark.parametrize(
    "make, name, near",
    [
        (RetryPolicy, "max_attempt", "max_attempts"),
        (Call, "prioritty", "priority"),
        (Ledger, "uri", "url"),
        (Snooze, "second", "seconds"),
        (RetryAfter, "second", "seconds"),
        (Cancel, "reasn", "reason"),
        (Quarantine, "reasn", "reason"),
        (Step, "guards", "guard"),
        (Procedure, "step", "steps"),
    ],
)
def test_an_argument_of_a_constructor_that_does_not_exist_is_refused_with_the_nearest_name(
    make: Callable[..., object], name: str, near: str
) -> None:
    with pytest.raises(InputError) as caught:
        make(**{name: 5})
    assert caught.value.context == {"argument": name, "nearest": near}


@pytest.mark.parametrize("reason", ["", " ", None, 3])
def test_a_quarantine_has_a_reason(reason: Any) -> None:
    with pytest.raises(InputError) as caught:
        Quarantine(reason)
    assert caught.value.context["argument"] == "reason"


@pytest.mark.parametrize(
    "call", [lambda ledger: ledger.run_until_idle(queues="default"), partial(Worker, queues="default")]
)
def test_a_text_is_not_a_list_of_queues(ledger: Ledger, call: Callable[..., object]) -> None:
    with pytest.raises(InputError) as caught:
        call(ledger)
    assert caught.value.context == {"argument": "queues", "given": "str"}


def test_a_subscriber_is_a_function(ledger: Ledger) -> None:
    for subscribe in (ledger.subscribe, ledger.subscribe_to_violations):
        with pytest.raises(InputError) as caught:
            subscribe("print")  # type: ignore[arg-type]  # that is the mistake
        assert caught.value.context == {"argument": "subscriber", "given": "str"}


@pytest.mark.parametrize(
    "setting, value", [("name", 5), ("arguments", [1]), ("tz", None), ("missed", [1]), ("overlap", 1), ("queue", b"q")]
)
def test_a_wrong_setting_of_a_schedule_is_named(setting: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        Ledger("never-opened.db").schedule("@daily", **{setting: value})  # type: ignore[arg-type]  # the same
    assert caught.value.context == {"argument": setting, "given": type(value).__name__}


@pytest.mark.parametrize("make", [cyclic_list, cyclic_dict, deep])
def test_a_recursive_or_too_deep_value_has_one_code(ledger: Ledger, make: Callable[[], Any]) -> None:
    with pytest.raises(PayloadTooDeepError):
        ledger.submit("noop", {"x": make()})


def test_a_secret_in_a_wrong_argument_is_not_repeated(ledger: Ledger) -> None:
    with pytest.raises(InputError) as caught:
        ledger.submit("noop", client=b"hunter2hunter2")  # type: ignore[arg-type]  # that is the mistake
    assert "hunter2" not in json.dumps(caught.value.as_dict())


def test_what_is_no_call_is_refused_where_it_is_submitted(ledger: Ledger) -> None:
    @ledger.operation("charge")
    def charge(run: Execution, cents: int = 1, wrong: bool = False) -> None:
        run.after_commit("charge" if wrong else charge)  # type: ignore[arg-type]  # that is the mistake

    wrong: Any
    for wrong, given in ((charge, "Operation"), (5, "int"), (None, "NoneType"), (lambda: 1, "function")):
        for submit in (ledger.submit, lambda call: asyncio.run(ledger.submit_async(call))):
            with pytest.raises(InputError) as caught:
                submit(wrong)
            assert caught.value.context == {"argument": "call", "given": given}
    with pytest.raises(InputError) as caught:
        ledger.submit_many(charge.call())  # type: ignore[arg-type]  # that is the mistake
    assert caught.value.context == {"argument": "calls", "given": "Call"}
    with pytest.raises(UnknownOperationError) as unknown:
        ledger.submit("chrage")
    assert unknown.value.context == {"operation": "chrage", "nearest": "charge"}
    assert ledger.counts() == []
    receipts = [ledger.submit(charge.call(wrong=wrong)) for wrong in (True, False)]
    ledger.run_until_idle()
    assert {ledger.job(receipt.job_id).last_error_code for receipt in receipts} == {"bad_input"}


def test_a_decorator_without_parentheses_is_refused_where_it_stands() -> None:
    for operation in (Operations().operation, Ledger("never-opened.db").operation):
        with pytest.raises(InputError) as caught:

            @operation  # type: ignore[arg-type]  # that is the mistake
            def own(run: Execution) -> None: ...

        assert caught.value.context == {"argument": "name", "given": "function"}


@pytest.mark.parametrize("timeout_s", [0, 0.0, -1, float("nan")])
def test_a_timeout_is_longer_than_nothing(timeout_s: float) -> None:
    with pytest.raises(InputError) as caught:
        Operations().operation("own", timeout_s=timeout_s)(lambda run: None)
    assert caught.value.context["argument"] == "timeout_s"


def test_an_empty_queue_is_not_the_default_queue(ledger: Ledger) -> None:
    for call in ("noop", Call(operation="noop", payload={}, queue="another")):
        with pytest.raises(InputError) as caught:
            ledger.submit(call, queue="")
        assert caught.value.context == {"argument": "queue"}
    assert ledger.counts() == []


def test_a_setting_of_a_batch_that_does_not_exist_is_refused_with_the_nearest_name(ledger: Ledger) -> None:
    with pytest.raises(InputError) as caught:
        ledger.batch([Call(operation="noop", payload={})], **dict[str, Any]({"nam": "nightly"}))
    assert caught.value.context == {"argument": "nam", "nearest": "name"}


def test_an_id_that_no_job_can_have_is_not_found(ledger: Ledger) -> None:
    ledger.submit("noop")  # an empty table is not looked at
    for look in (ledger.job, ledger.receipt, ledger.cancel, ledger.retry):
        for job_id in (0, -1, 2**63, 10**30):
            with pytest.raises(JobNotFoundError):
                look(job_id)


def test_an_error_that_no_argument_explains_stays_as_it_is(ledger: Ledger) -> None:
    def breaks() -> None:
        raise TypeError("of the user")

    @ledger.operation("own")
    def own(run: Execution) -> None:
        run.checkpoint("a", breaks)

    job_id = ledger.submit(own.call(), run_at=datetime(2000, 1, 1, tzinfo=UTC)).job_id
    ledger.run_until_idle()
    assert ledger.job(job_id).last_error_code == "type_error"
