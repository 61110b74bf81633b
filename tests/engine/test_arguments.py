"""Arguments are checked against the handler's annotations at submit, and arrive with the annotated types."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from holdfast import Call, Ledger, Receipt
from holdfast.core.errors import ArgumentsError, HoldfastError, PayloadNotJsonError, PayloadTooDeepError
from holdfast.core.machines import JobState
from holdfast.testing import drain
from tests.engine.database import Database

if TYPE_CHECKING:
    from decimal import Context  # a name that is not there at run time

    from holdfast import Execution  # the same, as linters recommend

pytestmark = pytest.mark.attack("input")


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict):
    quality: int
    note: NotRequired[str]


class Crop(msgspec.Struct, frozen=True):
    left: int
    colours: list[Colour] = []


class Address(pydantic.BaseModel):
    street: str
    since: date


Width = Annotated[int, msgspec.Meta(ge=1, le=1000)]

WHEN = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)
ID = UUID("12345678-1234-5678-1234-567812345678")


def plain(run: Execution, path: str, width: Width) -> None: ...
def optional(run: Execution, value: int | None) -> None: ...
def dated(run: Execution, value: datetime) -> None: ...
def pointed(run: Execution, value: Point) -> None: ...
def typed(run: Execution, value: Options) -> None: ...
def cropped(run: Execution, value: Crop) -> None: ...
def addressed(run: Execution, value: Address) -> None: ...
def listed(run: Execution, value: list[Point]) -> None: ...
def paired(run: Execution, value: tuple[int, str]) -> None: ...
def named(run: Execution, value: dict[str, float]) -> None: ...
def coloured(run: Execution, value: Colour) -> None: ...
def one_of(run: Execution, value: Literal["a", "b"]) -> None: ...
def identified(run: Execution, value: UUID) -> None: ...
def exact(run: Execution, value: Decimal) -> None: ...
def lasting(run: Execution, value: timedelta) -> None: ...
def many(run: Execution, value: list[Address]) -> None: ...
def raw(run: Execution, value: bytes) -> None: ...


FITTING: list[tuple[Callable[..., None], Any]] = [
    (optional, 1),
    (optional, None),
    (dated, WHEN),
    (pointed, Point(1, 2)),
    (typed, {"quality": 3}),
    (typed, {"quality": 3, "note": "n"}),
    (cropped, Crop(1, [Colour.RED])),
    (addressed, Address(street="Mill Lane", since=date(2001, 2, 3))),
    (listed, [Point(1, 2), Point(3)]),
    (paired, (1, "one")),
    (named, {"a": 1.5}),
    (coloured, Colour.BLUE),
    (one_of, "b"),
    (identified, ID),
    (exact, Decimal("1.10")),
    (lasting, timedelta(hours=1, seconds=2)),
    (many, [Address(street="Mill Lane", since=date(2001, 2, 3))]),
    (raw, b"\x00\xff"),
]


@pytest.mark.parametrize("handler, value", FITTING)
def test_valid_arguments_reach_the_handler_unchanged(sqlite_url: str, handler: Callable[..., None], value: Any) -> None:
    arrived: list[Any] = []

    def recording(run: Execution, value: Any) -> None:
        arrived.append(value)

    recording.__annotations__ = dict(handler.__annotations__)
    with Ledger(sqlite_url) as ledger:
        operation = ledger.operation("take")(recording)
        receipts = [
            ledger.submit(operation.call(value=value), client="c", key="k"),
            ledger.submit(operation.call(value), client="c", key="k"),
        ]
        assert receipts[1].job_id == receipts[0].job_id
        assert ledger.run_until_idle() == 1
        assert receipts[0].wait(5).state is JobState.SUCCEEDED
    assert arrived == [value]
    assert type(arrived[0]) is type(value)


WRONG: list[tuple[Callable[..., None], dict[str, Any], str]] = [
    (plain, {"path": 1, "width": 2}, "Expected `str`, got `int` - at `$.path`"),
    (plain, {"path": "a", "width": "2"}, "Expected `int`, got `str` - at `$.width`"),
    (plain, {"path": "a", "width": True}, "Expected `int`, got `bool` - at `$.width`"),
    (plain, {"path": "a", "width": 0}, "Expected `int` >= 1 - at `$.width`"),
    (plain, {"path": "a"}, "width"),
    (plain, {"path": "a", "width": 1, "height": 2}, "height"),
    (optional, {"value": "x"}, "Expected `int | null`, got `str` - at `$.value`"),
    (dated, {"value": "yesterday"}, "Invalid RFC3339 encoded datetime - at `$.value`"),
    (pointed, {"value": {"y": 1}}, "Object missing required field `x` - at `$.value`"),
    (typed, {"value": {"note": "n"}}, "Object missing required field `quality` - at `$.value`"),
    (cropped, {"value": {"left": 1, "colours": ["green"]}}, "Invalid enum value 'green'"),
    (addressed, {"value": {"street": "Mill Lane", "since": "no date"}}, "since"),
    (listed, {"value": [{"x": 1}, {"x": "2"}]}, "at `$.value[1].x`"),
    (paired, {"value": [1]}, "length 2"),
    (coloured, {"value": "green"}, "Invalid enum value 'green'"),
    (one_of, {"value": "c"}, "Invalid enum value 'c'"),
    (identified, {"value": "x"}, "Invalid UUID"),
    (many, {"value": [{"street": "Mill Lane"}]}, "since"),
    (plain, {"path": object(), "width": 1}, "object cannot be stored as JSON"),
]


@pytest.mark.parametrize("handler, arguments, says", WRONG)
def test_invalid_arguments_are_refused_at_submit(
    sqlite_url: str, handler: Callable[..., None], arguments: dict[str, Any], says: str
) -> None:
    with Ledger(sqlite_url) as ledger:
        operation = ledger.operation("take")(handler)
        for submit in (
            lambda: ledger.submit(operation.call(**arguments)),
            lambda: ledger.submit("take", arguments),
            lambda: ledger.submit_many([{"operation": "noop"}, {"operation": "take", "payload": arguments}]),
        ):
            with pytest.raises(ArgumentsError) as refused:
                submit()
            assert says in refused.value.message
            assert refused.value.context == {"operation": "take"}
        assert ledger.counts() == []


def test_positional_arguments_defaults_and_names(sqlite_url: str) -> None:
    with Ledger(sqlite_url) as ledger:
        seen: list[tuple[Any, ...]] = []

        @ledger.operation("take")
        def take(run: Execution, first: int, second: list[int] | None = None, *, third: str = "3") -> None:
            seen.append((first, second, third))

        for call in (take.call(1), take.call(1, [2], third="x"), take.call(first=1, third="y")):
            ledger.submit(call)
        ledger.run_until_idle(concurrency=1)
        assert seen == [(1, None, "3"), (1, [2], "x"), (1, None, "y")]
        assert take.call(1).payload == {"first": 1}
        with pytest.raises(ArgumentsError) as refused:
            take.call(1, first=2)  # type: ignore[misc]
        assert refused.value.context == {"operation": "take"}


def test_any_keywords_are_taken_unchecked_where_the_handler_says_so(sqlite_url: str) -> None:
    with Ledger(sqlite_url) as ledger:
        seen: list[dict[str, Any]] = []

        @ledger.operation("take")
        def take(run: Execution, /, **anything: Any) -> None:
            seen.append(anything)

        ledger.submit(take.call(a=1, b=(2, [3])))
        ledger.run_until_idle()
        assert seen == [{"a": 1, "b": [2, [3]]}]


def test_a_name_that_only_a_type_checker_sees_hides_no_other(sqlite_url: str) -> None:
    with Ledger(sqlite_url) as ledger:

        @ledger.operation("take")
        def take(run: Execution, context: Context, width: int) -> None: ...

        assert take.call(context="anything", width=1).payload == {"context": "anything", "width": 1}  # type: ignore[arg-type]
        with pytest.raises(ArgumentsError) as refused:
            take.call(context="anything", width="1")  # type: ignore[arg-type]
        assert refused.value.context == {"operation": "take"}


def _nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value, error",
    [
        (float("nan"), PayloadNotJsonError),
        (float("inf"), PayloadNotJsonError),
        (1 << 2000, PayloadNotJsonError),
        ("\ud800", PayloadNotJsonError),
        (_nested(100), PayloadTooDeepError),
    ],
)
def test_an_argument_that_json_cannot_represent_is_refused(
    sqlite_url: str, value: Any, error: type[HoldfastError]
) -> None:
    with Ledger(sqlite_url) as ledger:

        @ledger.operation("take")
        def take(run: Execution, value: Any) -> None: ...

        with pytest.raises(error):
            ledger.submit(take.call(value=value))
        assert ledger.counts() == []


def test_a_stored_payload_that_no_longer_fits_is_quarantined_not_retried(
    ledger: Ledger, ledger_url: str, database: Database
) -> None:
    @ledger.operation("take")
    def before(run: Execution, width: int) -> None: ...

    receipt = ledger.submit(before.call(width=1))
    with Ledger(ledger_url, world=ledger.world) as later:

        @later.operation("take")
        def after(run: Execution, width: int, height: int) -> None: ...

        assert drain(later) == 1
        job = later.job(receipt.job_id)
    assert (job.state, job.quarantine_code, job.attempts) == (JobState.QUARANTINED, "arguments_invalid", 1)
    assert job.last_error_message == "ArgumentsError: take: Object missing required field `height`"


@pytest.mark.parametrize("given", ["one", "many", "named", "mapping"])
def test_arguments_are_checked_however_a_call_is_given(ledger: Ledger, given: str) -> None:
    """A Call that the application made itself has arguments that no handler has seen yet."""

    @ledger.operation("crop")
    def crop(run: Execution, width: Width, when: datetime | None = None) -> None: ...

    def submit(payload: dict[str, Any]) -> Receipt[Any]:
        if given == "one":
            return ledger.submit(Call(operation="crop", payload=payload))
        if given == "named":
            return ledger.submit("crop", payload)
        of_many: Any = (
            {"operation": "crop", "payload": payload} if given == "mapping" else Call(operation="crop", payload=payload)
        )
        return ledger.submit_many([of_many])[0]

    for wrong in ({"width": 0}, {"width": 1, "by": 2}, {"width": 1.0, "when": "soon"}):
        with pytest.raises(ArgumentsError):
            submit(wrong)
    if given in ("one", "many"):  # what a Call holds is JSON
        with pytest.raises(PayloadNotJsonError):
            submit({"width": 1, "when": WHEN})
    when: Any = WHEN if given in ("named", "mapping") else "2031-02-03T04:05:06Z"
    assert ledger.job(submit({"width": 1, "when": when}).job_id).payload == '{"when":"2031-02-03T04:05:06Z","width":1}'


@pytest.mark.parametrize("price, text", [(1.5, "1.5"), (2.0, "2")])
def test_what_a_caller_changes_after_a_submit_in_an_event_loop_is_not_stored(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, price: float, text: str
) -> None:
    """Another thread makes the text of the arguments, perhaps after the caller's task has gone on."""

    @ledger.operation("keep")
    def keep(run: Execution, lines: list[dict[str, float]]) -> None: ...

    ledger.counts()
    opened, changed = ledger._open(), threading.Event()
    prepared = opened.prepared
    monkeypatch.setattr(opened, "prepared", lambda calls: changed.wait(20) and prepared(calls))

    async def submitted() -> int:
        lines = [{"price": price}]
        submit = asyncio.ensure_future(ledger.submit_async("keep", {"lines": lines}))
        await asyncio.sleep(0)
        lines[0]["price"] = 99.5
        changed.set()
        return (await submit).job_id

    assert ledger.job(asyncio.run(submitted())).payload == f'{{"lines":[{{"price":{text}}}]}}'
