"""Submitting many calls that differ only in payload and key: as columns, with what one call after the other has."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from itertools import product
from threading import Thread
from typing import Any

import pytest

from holdfast import Call, Execution, Ledger
from holdfast.core.digest import DEPTH_MAX, INTEGER_BITS_MAX
from holdfast.core.errors import HoldfastError, IdempotencyConflictError
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.engine.bulk import BulkCalls, calls_from, have_keys, prepared
from holdfast.engine.events import Transition
from holdfast.engine.submit import call_from, prepare
from holdfast.store import Submission
from holdfast.store.verbs.bulk import Bulk

N = 150
AT = datetime(2030, 1, 1, tzinfo=UTC)


class Colour(str, Enum):  # noqa: UP042 - of Python 3.11 too
    RED = "red"


@pytest.fixture(autouse=True)
def operations(ledger: Ledger) -> None:
    @ledger.operation("free", version="1.2.0", queue="letters", priority=3, max_attempts=4)
    def free(run: Execution, /, **more: Any) -> None: ...

    @ledger.operation("typed")
    def typed(run: Execution, n: int, text: str = "", at: datetime | None = None) -> None: ...


def typed_calls(n: int = N) -> list[dict[str, Any]]:
    return [{"operation": "typed", "payload": {"n": i, "text": f"żółw {i}"}} for i in range(n)]


def outcome(submit: Callable[[], Any]) -> Any:
    """Return what a submit returns, or the type, code and context of its error."""
    try:
        return submit()
    except HoldfastError as error:
        return type(error), error.code, error.context


def one_by_one(ledger: Ledger, calls: Sequence[dict[str, Any] | Call[Any]]) -> list[Submission]:
    """Return what the store records for each call, each prepared alone."""
    return [prepare(call, ledger.known) for call in [call_from(call) for call in calls]]


def without_ids(job: Job) -> list[object]:
    return [getattr(job, name) for name in Job.__struct_fields__ if name not in ("job_id", "key")]


SHARED: list[dict[str, Any]] = [
    {},
    {"client": "web", "priority": 7, "queue": "q", "version": "1.2.0"},
    {"run_at": AT},
]


def test_jobs_of_a_bulk_are_those_of_one_call_after_the_other(ledger: Ledger) -> None:
    for case, (shared, keys, as_call) in enumerate(product(SHARED, ("none", "all", "some"), (False, True))):
        require_alike(ledger, shared, keys, f"{case}/", as_call=as_call)


def require_alike(ledger: Ledger, shared: dict[str, Any], keys: str, prefix: str, *, as_call: bool) -> None:
    calls = [{"operation": "free", "payload": {"n": n, "deep": [{"a": None}, "ż"]}, **shared} for n in range(N)]
    for n, call in enumerate(calls):
        if keys != "none":
            call["key"] = f"{prefix}{n * 7919 % N}" if keys == "all" or n % 3 else None
    given = [Call(**call) for call in calls] if as_call else calls
    assert isinstance(calls_from(given), BulkCalls)
    assert have_keys(calls_from(given)) == (keys == "all") == have_keys([*calls_from(given)])
    receipts = ledger.submit_many(given)
    assert [(receipt.is_new, receipt.state, receipt.result) for receipt in receipts] == [
        (True, JobState.PENDING, None)
    ] * N
    ones = [ledger.submit(call_from({**call, "key": None})) for call in calls]
    for receipt, one, call in zip(receipts, ones, calls, strict=True):
        job = ledger.job(receipt.job_id)
        assert without_ids(job) == without_ids(ledger.job(one.job_id))
        assert job.key == call.get("key")


def test_plain_calls_are_columns_and_others_are_not(ledger: Ledger) -> None:
    ledger.counts()  # opens it
    plain = typed_calls()
    for given in (plain, [Call(**call) for call in plain]):
        assert isinstance(prepared(calls_from(given), ledger.known, ()), Bulk)
    foreign = [{"operation": "noop", "payload": {"n": n}} for n in range(N)]
    assert isinstance(prepared(calls_from(foreign), ledger.known, ()), Bulk)
    others: list[list[Any]] = [
        [*plain, {"operation": "free", "payload": {}}], [*plain, {"operation": "typed"}], plain[:1],
        [*plain, {**plain[0], "priority": 1}], [{**call, "priority": n} for n, call in enumerate(plain)],
        [*plain, Call(**plain[0])], [{**call, "run_at": AT if n else None} for n, call in enumerate(plain)],
    ]  # fmt: skip
    for other in others:
        found = calls_from(other)
        assert isinstance(found, list)
        assert found == [call_from(call) for call in other]


ODD: dict[str, Any] = {
    "NaN": {"n": 1, "text": "", "at": math.nan}, "float": {"n": 1.0}, "large integer": {"n": 1 << INTEGER_BITS_MAX},
    "integer": {"n": 1 << 64}, "surrogate": {"n": 1, "text": "\ud800"}, "zero": {"n": 1, "text": "a\0b"},
    "deep": {"n": 1, "text": [[[[[[[]]]]]]]}, "not NFC": {"n": 1, "text": "e\u0301"}, "time": {"n": 1, "at": AT},
    "enumeration": {"n": 1, "text": Colour.RED}, "integer as key": {"n": 1, 1: 2}, "set": {"n": 1, "text": {1}},
    "bytes": {"n": 1, "text": b"a"}, "object": {"n": object()}, "missing": {"text": ""}, "unknown": {"n": 1, "m": 1},
    "wrong": {"n": "1"}, "boolean": {"n": True}, "long": {"n": 1, "text": "z" * (1 << 20)}, "None": None, "list": [1],
    "tuple": {"n": 1, "text": (1, 2)}, "text": "n", "half long": {"n": 1, "text": "ż" * 600_000},
}  # fmt: skip
value: dict[str, Any] = {"n": 1}
for _ in range(DEPTH_MAX):
    value = {"n": value}
ODD["too deep"] = value


@pytest.mark.attack("input")
@pytest.mark.parametrize("operation", ["typed", "free", "noop", "unknown"])
def test_an_odd_payload_is_stored_or_refused_as_alone(ledger: Ledger, operation: str) -> None:
    ledger.counts()  # opens it
    jobs = 0
    for name, odd in ODD.items():
        calls = [{**call, "operation": operation} for call in typed_calls()]
        calls[100]["payload"] = odd
        for given in (calls, [Call(**call) for call in calls]):
            alone = outcome(partial(one_by_one, ledger, given))
            assert outcome(lambda given=given: [*prepared(calls_from(given), ledger.known, ())]) == alone, name  # type: ignore[misc]
        found = outcome(partial(ledger.submit_many, calls))
        jobs += 0 if isinstance(found, tuple) else N
        assert sum(count.n for count in ledger.counts()) == jobs, name


BAD: list[dict[str, Any]] = [
        {"client": 5}, {"client": []}, {"client": "holdfast"}, {"queue": ""}, {"priority": 1 << 40},
        {"priority": True}, {"priority": "1"}, {"version": "1"}, {"version": []}, {"run_at": AT.replace(tzinfo=None)},
        {"client": "a\0"}, {"client": "ż" * 1000}, {"operation": 5}, {"operation": []}, {"unique": 5}, {"after": [0]},
        {"deadline_s": -1}, {"colour": 1},
]  # fmt: skip


@pytest.mark.attack("input")
def test_a_bad_setting_of_all_is_refused_as_alone(ledger: Ledger) -> None:
    for bad in BAD:
        calls = [{**call, **bad} for call in typed_calls(3)]
        alone = outcome(partial(ledger.submit_many, calls[:1]))
        assert isinstance(alone, tuple), bad
        assert outcome(partial(ledger.submit_many, calls)) == alone, bad
    assert [count for count in ledger.counts() if count.n] == []


@pytest.mark.attack("input")
def test_a_bad_key_of_one_is_refused_as_alone(ledger: Ledger) -> None:
    ledger.counts()  # opens it
    keys: list[Any] = ["", 5, "a\0", "\ud800", "ż" * 1000, [], "k" * 250, "k" * 1024, "k" * 1025]
    for key in keys:
        calls = [{**call, "key": f"{n}"} for n, call in enumerate(typed_calls())]
        calls[70]["key"] = key
        alone = outcome(partial(one_by_one, ledger, calls))
        assert outcome(lambda calls=calls: [*prepared(calls_from(calls), ledger.known, ())]) == alone, key  # type: ignore[misc]


@pytest.mark.parametrize("by_name", [False, True])
def test_each_payload_of_a_bulk_needs_the_key_of_its_limit(ledger: Ledger, *, by_name: bool) -> None:
    @ledger.operation(limit=1, limit_key="customer.id")
    def order(run: Execution, /, **more: Any) -> None: ...

    calls: list[dict[str, Any]] = [{"operation": "order", "payload": {"customer": {"id": n}}} for n in range(N)]
    assert len(ledger.submit_many(calls)) == N
    calls[70]["payload"] = {"customer": {}}
    submitting = Ledger(ledger.url) if by_name else ledger
    with submitting:
        alone = outcome(lambda: submitting.submit("order", {"customer": {}}))
        assert isinstance(alone, tuple)
        assert outcome(lambda: submitting.submit_many(calls)) == alone
        assert sum(count.n for count in submitting.counts()) == N


@pytest.mark.req("W-03", "W-18", "W-20")
def test_a_bulk_repeats_keys_and_conflicts_as_one_call_after_the_other(ledger: Ledger) -> None:
    calls = [{**call, "client": "web", "key": f"{n}"} for n, call in enumerate(typed_calls(20))]
    before = [ledger.submit(call_from(call)) for call in calls[5:8]]
    receipts = ledger.submit_many([*calls, *calls[:3]])
    assert [receipt.is_new for receipt in receipts] == [n not in (5, 6, 7) for n in range(20)] + [False] * 3
    assert [receipt.job_id for receipt in receipts[5:8]] == [receipt.job_id for receipt in before]
    assert [receipt.job_id for receipt in receipts[20:]] == [receipt.job_id for receipt in receipts[:3]]
    again = ledger.submit_many(calls)
    assert [receipt.job_id for receipt in again] == [receipt.job_id for receipt in receipts[:20]]
    assert not any(receipt.is_new for receipt in again)
    jobs = sum(count.n for count in ledger.counts())
    more = [{**call, "key": f"more {n}"} for n, call in enumerate(calls)]
    for place, key in ((12, "0"), (12, "more 3")):
        clashing = [*more]
        clashing[place] = {**calls[12], "key": key}
        with pytest.raises(IdempotencyConflictError) as caught:
            ledger.submit_many(clashing)
        assert caught.value.context == {"client": "web", "key": key}
    assert sum(count.n for count in ledger.counts()) == jobs


def test_a_bulk_runs_and_is_published(ledger: Ledger) -> None:
    seen: list[Transition] = []
    subscription = ledger.subscribe(seen.append)
    receipts = ledger.submit_many(typed_calls())
    assert ledger.run_until_idle() == N
    subscription.close()
    submitted = [event.job_id for event in seen if event.event == "submit"]
    assert submitted == [receipt.job_id for receipt in receipts]
    assert {receipt.wait(5).state for receipt in receipts} == {JobState.SUCCEEDED}


def test_bulks_that_share_a_transaction_get_their_own_jobs(ledger: Ledger) -> None:
    found: dict[int, list[int]] = {}

    def submit(n: int) -> None:
        calls = [{"operation": "free", "payload": {"by": n, "n": i}} for i in range(30)]
        found[n] = [receipt.job_id for receipt in ledger.submit_many(calls)]

    threads = [Thread(target=submit, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, ids in found.items():
        assert [ledger.job(job_id).payload for job_id in ids] == [f'{{"by":{n},"n":{i}}}' for i in range(30)]


def test_a_payload_with_a_line_break_stays_one_row(ledger: Ledger) -> None:
    """None that the engine writes has one; a submission of the store may."""
    payloads = [f'{{"n":\n{n}}}' for n in range(5)] + ['{"n":5}']
    ledger.counts()  # opens it
    first = prepare(call_from({"operation": "free"}), ledger.known)
    receipts = ledger.perform(lambda tx: tx.jobs.submit(Bulk(first, payloads, [None] * 6)))
    assert [ledger.job(receipt.job_id).payload for receipt in receipts] == payloads
    assert [payload.payload for payload in Bulk(first, payloads, [None] * 6)[4:]] == payloads[4:]


def test_no_calls_are_no_jobs(ledger: Ledger) -> None:
    assert ledger.submit_many([]) == []
    assert ledger.submit_many(iter(typed_calls(3))) != []  # type: ignore[arg-type]  # whatever can be walked once
