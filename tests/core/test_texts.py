"""Texts that the core makes and reads: escapes, durations, numbers, places in tracebacks, logs, ranges of ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.core.candidates import packed, unpacked
from holdfast.core.frames import where
from holdfast.core.log_names import log_of
from holdfast.core.printable import clean
from holdfast.core.spans import age, counted, instant, span
from tests.core.asking import job

NOW = datetime(2026, 11, 16, 9, 30, 15, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(
    "code, shown",
    [
        (0x41, "A"),
        (0x0A, "\n"),
        (0x1B, r"\x1b"),
        (0x9F, r"\x9f"),
        (0xFFFE, r"\ufffe"),
        (0x202E, r"\u202e"),
        (0xE0001, r"\U000e0001"),
        (0x110000 - 1, r"\U0010ffff"),
        (0xE9, "é"),
    ],
)
def test_what_cannot_be_printed_is_shown_as_its_escape(code: int, shown: str) -> None:
    assert clean(f"a{chr(code)}\nb") == f"a{shown}\nb"


def test_more_characters_than_are_remembered_are_escaped_too() -> None:
    codes = range(0xE000, 0xE000 + 5000)  # private characters: none can be printed
    assert clean("".join(map(chr, codes))) == "".join(rf"\u{code:04x}" for code in codes)


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0 ms"), (0.0129, "12 ms"), (0.9999, "999 ms"), (1, "1 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"),
        (3600, "1 h"), (86_399, "23 h"), (86_400, "1 d"), (200_000, "2 d"),
    ],
)  # fmt: skip
def test_a_duration_is_rounded_down_in_its_largest_unit(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    "seconds, text", [(0.9, "now"), (-0.9, "now"), (1, "1 s ago"), (-1, "in 1 s"), (0, "now"), (7200, "2 h ago")]
)
def test_a_time_is_said_relative_to_now(seconds: float, text: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == text


def test_instants_and_numbers() -> None:
    assert (instant(NOW), instant(NOW, parts="minutes")) == ("2026-11-16 09:30:15", "2026-11-16 09:30")
    assert [counted(n, "job") for n in (0, 1, 2, 1204)] == ["0 jobs", "1 job", "2 jobs", "1,204 jobs"]
    assert [counted(n, "entry", "entries") for n in (1, 2)] == ["1 entry", "2 entries"]


OWN = '  File "/app/work.py", line 7, in pay\n    send()\n'
LIBRARY = '  File "/usr/lib/python3.11/site-packages/x/y.py", line 9, in send\n    raise E\n'


@pytest.mark.parametrize(
    "traceback, place",
    [
        (OWN + LIBRARY, "/app/work.py:7 in pay"),
        (LIBRARY, "/usr/lib/python3.11/site-packages/x/y.py:9 in send"),
        (OWN + OWN.replace("7", "8"), "/app/work.py:8 in pay"),
        ("E: no frame", None),
        (None, None),
    ],
)
def test_a_failure_is_placed_in_the_application_if_it_has_a_frame(traceback: str | None, place: str | None) -> None:
    found = where(traceback)
    assert (None if found is None else str(found)) == place


@pytest.mark.parametrize(
    "queue, operation, log", [("wal:a", "wal.put", "a"), ("wal:a", "put", None), ("a", "wal.put", None)]
)
def test_an_entry_of_a_log_has_both_prefixes(queue: str, operation: str, log: str | None) -> None:
    assert log_of(job(queue=queue, operation=operation)) == log


def test_ids_and_versions_are_packed_into_ranges() -> None:
    stored = packed([1, 2, 3, 5, 8, 9], [1, 1, 1, 1, 2, 1])
    assert stored == {"1": "1-3,5,9", "2": "8"}
    with pytest.raises(ValueError, match="zip"):
        packed([1, 2], [1])
    assert unpacked('{"1":"1-3,5,9","2":"8","3":""}') == ([1, 2, 3, 5, 8, 9], [1, 1, 1, 1, 2, 1])
