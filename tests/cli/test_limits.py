"""`holdfast limits`: set, list, show and remove; each change is journalled."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Ledger
from tests.cli.commands import Outcome, holdfast


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with Ledger(url) as ledger:
        ledger.submit("noop")
    return url


def limits(url: str, *given: str) -> Outcome:
    return holdfast("limits", *given, "--db", url, "--json")


def test_limits_are_set_listed_shown_and_removed(url: str) -> None:
    made = limits(url, "set", "queue:default", "--running", "2", "--rate", "100/minute", "--reason", "slow")
    assert made.json == {
        "limit": "queue:default", "changed": True, "running": 2, "rate": "100/m", "burst": None, "path": None,
    }  # fmt: skip
    [listed] = limits(url, "list").json
    assert (listed["limit"], listed["held"], listed["waiting"]) == ("queue:default", 0, 0)
    shown = limits(url, "show", "queue:default").json
    assert [(each["state"], each["reason"]) for each in shown["history"]] == [("active", "slow")]
    gone = limits(url, "remove", "queue:default", "--reason", "quick again")
    assert gone.json["changed"]
    assert limits(url, "list").json == []


@pytest.mark.parametrize(
    "given, code",
    [
        (["set", "queue:default", "--running", "0", "--reason", "r"], "limit_invalid"),
        (["set", "queue:default", "--rate", "often", "--reason", "r"], "limit_invalid"),
        (["set", "fleet", "--running", "1", "--reason", "r"], "limit_invalid"),
        (["remove", "queue:default", "--reason", "r"], "record_not_found"),
        (["show", "queue:default"], "record_not_found"),
    ],
)
def test_a_wrong_limit_is_refused_with_a_code(url: str, given: list[str], code: str) -> None:
    done = limits(url, *given)
    assert done.error_code == code


def test_a_queue_gets_a_weight_and_loses_it(url: str) -> None:
    why = ("--reason", "more", "--db", url, "--json")
    assert holdfast("queues", "weight", "default", "3", *why).json == {"queue": "default", "weight": 3, "changed": True}
    [listed] = holdfast("queues", "--db", url, "--json").json
    assert listed["weight"] == 3
    assert holdfast("queues", "weight", "default", "--off", *why).json["changed"]
    assert holdfast("queues", "weight", "default", *why).error_code == "bad_input"
    assert holdfast("queues", "weight", "default", "0", *why).error_code == "flow_invalid"


def test_a_schedule_of_an_operation_that_no_process_has_declared_is_refused(ledger: str) -> None:
    wrong = holdfast("schedules", "add", "nightly", "@daily", "nop", "--reason", "typo", "--db", ledger, "--json")
    assert (wrong.code, wrong.error_code) == (2, "operation_unknown")
    assert wrong.json["context"]["nearest"] == "noop"
    assert holdfast("schedules", "list", "--db", ledger, "--json").json == []


def test_a_limit_of_an_operation_that_no_process_has_declared_says_so(ledger: str) -> None:
    for subject, lines in (("operation:nop", 2), ("operation:noop", 1), ("queue:new", 1)):
        done = holdfast("limits", "set", subject, "--running", "1", "--reason", "before the deploy", "--db", ledger)
        assert (done.code, len(done.out.splitlines())) == (0, lines)
