"""The environment of the templates: escaping, and the filters that write numbers and times.

Invariants: every value is escaped for HTML, and characters that control a page or turn the direction of a text are
shown as escapes; an undefined name is an error; no template marks a text as safe.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from holdfast.console.views import links
from holdfast.console.views.job import AttemptRow
from holdfast.console.views.queues import QueueRow
from holdfast.console.views.words import clock, exact_span, number, pair_of_seconds
from holdfast.core.machines import ExecutionStatus
from holdfast.core.printable import clean
from holdfast.core.records import time_from, time_text
from holdfast.core.spans import age, counted, span
from holdfast.explain.values import tries

FEW = 10
ATTEMPT_TONES = {
    ExecutionStatus.LEASED: "pending",
    ExecutionStatus.IN_PROGRESS: "running",
    ExecutionStatus.COMMITTED: "succeeded",
    ExecutionStatus.DONE: "succeeded",
    ExecutionStatus.ABORTED: "failed",
}


def _printed(value: object) -> object:
    """Return what is printed for a value: of a text, unprintable characters are escaped."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _rate(a_minute: float) -> str:
    return number(round(a_minute)) if a_minute >= FEW or a_minute == 0 else f"{a_minute:.1f}"


def _percentiles(row: QueueRow) -> str:
    return "–" if row.p50 is None or row.p95 is None else pair_of_seconds(row.p50, row.p95)  # noqa: RUF001 - a dash


def _attempt_tone(row: AttemptRow) -> str:
    return "pending" if row.execution.excused else ATTEMPT_TONES[row.execution.status]


FILTERS: dict[str, Callable[..., str]] = {
    "n": number,
    "counted": counted,
    "clock": clock,
    "hms": lambda moment: moment.strftime("%H:%M:%S"),
    "ago": age,
    "iso": time_text,
    "span": span,
    "exact": exact_span,
    "rate": _rate,
    "percentiles": _percentiles,
    "tries": tries,
    "attempt_tone": _attempt_tone,
    "firstline": lambda text: (text or "").partition("\n")[0],
    "urlpart": links.part_of,
    "sh": shlex.quote,
    "text_clock": lambda text, now: clock(time_from(text), now),
}


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("holdfast.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printed,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.globals["links"] = links
    return made


def rendered(template: str, **values: object) -> str:
    """Return a part of a page, for a stream of events."""
    return environment().get_template(template).render(values)
