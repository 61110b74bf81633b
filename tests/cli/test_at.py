"""`holdfast show --at` and `holdfast stats --at`: the times that can be given, and what is shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.core.errors import InputError
from holdfast.core.journal import JournalRow
from holdfast.core.records import Execution
from holdfast.explain.times import past_moment
from holdfast.store import open_store
from tests.cli.commands import holdfast, process
from tests.cli.test_jobs import JOB_FIELDS, STATES

NOW = datetime(2026, 3, 14, 9, 26, 53, 589793, tzinfo=UTC)
MODES = pytest.mark.parametrize("mode", [[], ["--json"]], ids=["people", "json"])


# ---------------------------------------------------------------------------------------------------------------------
# Times as people give them


@pytest.mark.parametrize(
    "given, moment",
    [
        ("2026-03-14T09:26:53.589793Z", NOW),
        ("2026-03-14T10:26:53.589793+01:00", NOW),
        ("2026-03-14T09:26:53.589793", NOW),
        ("2026-03-14 09:26", NOW.replace(second=0, microsecond=0)),
        ("2026-03-14", datetime(2026, 3, 14, tzinfo=UTC)),
        ("20260314T092653Z", NOW.replace(microsecond=0)),
        ("2h ago", NOW - timedelta(hours=2)),
        ("-2h", NOW - timedelta(hours=2)),
        ("2 hours ago", NOW - timedelta(hours=2)),
        ("1d 2h30m ago", NOW - timedelta(days=1, hours=2, minutes=30)),
        ("-1.5min", NOW - timedelta(seconds=90)),
        ("3 weeks ago", NOW - timedelta(weeks=3)),
        ("0s ago", NOW),
        (" 1 Day AGO ", NOW - timedelta(days=1)),
    ],
)
def test_valid_forms_of_a_time(given: str, moment: datetime) -> None:
    assert past_moment(given, "--at", NOW) == moment


@pytest.mark.parametrize(
    "given",
    [
        "", " ", "now", "yesterday", "2h", "+2h", "ago", "-", "-h", "2 ago", "2h agoo", "2fortnights ago", "٢h ago",
        "2026-02-30", "2026-03-14T25:00", "1700000000", "-999999999999w", "0001-01-01T00:00:00+14:00", "2026-03-14Z",
        "-" + "9" * 400 + "s", "\udcff",
    ],
    ids=repr,
)  # fmt: skip
def test_an_invalid_time_is_refused(given: str) -> None:
    with pytest.raises(InputError) as caught:
        past_moment(given, "--at", NOW)
    assert caught.value.code == "bad_input"
    assert "'2h ago'" in caught.value.hint


# ---------------------------------------------------------------------------------------------------------------------
# show --at


def moments(url: str, job_id: int) -> list[str]:
    """Return the times of a job's own rows, as text."""
    shown = holdfast("show", str(job_id), "--db", url, "--json").json
    return [row["at"] for row in shown["journal"] if row["machine"] == "JOB"]


def test_show_at_has_the_fields_of_show_and_the_time(history: str) -> None:
    born, claimed, failed, *_ = moments(history, 2)
    shown = holdfast("show", "2", "--at", claimed, "--db", history, "--json").json
    assert list(shown) == ["at", "job", "executions", "journal", "unknown", "archived_before", "payload", "tracebacks"]
    assert (shown["at"], shown["archived_before"], shown["unknown"]) == (claimed, None, ["run_at"])
    assert list(shown["job"]) == JOB_FIELDS
    assert {name: shown["job"][name] for name in ("state", "version", "attempts", "updated_at", "run_at")} == {
        "state": "running", "version": 2, "attempts": 1, "updated_at": claimed, "run_at": None,
    }  # fmt: skip
    [execution] = shown["executions"]
    assert list(execution) == list(Execution.__struct_fields__)
    assert (execution["status"], execution["version"], execution["lease_expires_at"]) == ("IN_PROGRESS", 2, None)
    assert all(list(row) == list(JournalRow.__struct_fields__) for row in shown["journal"])
    assert [row["target"] for row in shown["journal"]] == ["pending", "LEASED", "IN_PROGRESS", "running"]
    then = holdfast("show", "2", "--at", failed, "--db", history, "--json").json
    assert (then["job"]["state"], then["job"]["last_error_code"]) == ("pending", "io_error")
    assert holdfast("show", "2", "--at", born, "--db", history, "--json").json["job"]["state"] == "pending"


def test_show_at_the_present_equals_a_plain_show(history: str) -> None:
    for job_id in ("1", "2", "3", "5"):
        plain = holdfast("show", job_id, "--db", history, "--json").json
        past = holdfast("show", job_id, "--at", "-0s", "--db", history, "--json").json
        assert {name: past[name] for name in plain} == plain
        assert past["unknown"] == []


def test_show_for_people(history: str) -> None:
    _, claimed, *_ = moments(history, 2)
    lines = holdfast("show", "2", "--at", claimed, "--db", history).out.splitlines()
    instant = claimed.replace("T", " ").removesuffix("Z")
    assert instant in lines[0]
    assert lines[1] == "job 2 running echo"
    assert any(re.fullmatch(r"run at +unknown *", line) for line in lines)
    assert any(re.search(r"1 +IN_PROGRESS +worker-1 .*unknown", line) for line in lines)
    assert "io_error" not in "\n".join(lines)


def test_archived_history_is_reported(history: str) -> None:
    *_, last = moments(history, 2)
    with (
        open_store(history) as store,
        store.transaction() as transaction,
        transaction.maintenance.open(who="gc", why="retention"),
    ):
        for text in (
            "DELETE FROM holdfast_journal WHERE machine = 'JOB' AND subject = 2 AND version < 6",
            "UPDATE holdfast_jobs SET history_from = 6 WHERE job_id = 2",
        ):
            transaction.execute(text)
    answer = holdfast("show", "2", "--at", last, "--db", history, "--json").json
    assert (answer["job"]["state"], answer["archived_before"]) == ("failed", last)
    instant = last.replace("T", " ").removesuffix("Z")
    people = holdfast("show", "2", "--at", last, "--db", history).out
    assert instant in people.splitlines()[-1]
    born = holdfast("jobs", "--db", history, "--json").json[-2]["created_at"]
    for command in (["show", "2"], ["stats"]):
        refused = holdfast(*command, "--at", born, "--db", history, "--json")
        assert (refused.code, refused.error_code) == (3, "history_archived")
        assert refused.json["context"]["known_from"] == last


# ---------------------------------------------------------------------------------------------------------------------
# stats --at


def test_stats_then_and_now(history: str) -> None:
    now = holdfast("stats", "--db", history, "--json").json
    past = holdfast("stats", "--at", "0s ago", "--db", history, "--json").json
    assert list(past) == ["at", "states", "operations"]
    assert {**{name: past[name] for name in past if name != "at"}, "paused": []} == now  # no history of pauses is kept
    jobs = holdfast("jobs", "--db", history, "--json").json
    submitted = max(job["created_at"] for job in jobs)
    then = holdfast("stats", "--at", submitted, "--db", history, "--json").json
    assert then["at"] == submitted
    first = min(job["created_at"] for job in jobs)
    before = (datetime.fromisoformat(first) - timedelta(microseconds=1)).isoformat()
    nothing = holdfast("stats", "--at", before, "--db", history, "--json").json
    assert (nothing["states"], nothing["operations"]) == (dict.fromkeys(STATES, 0), {})
    *_, last = moments(history, 2)
    just_before = (datetime.fromisoformat(last) - timedelta(microseconds=1)).isoformat()
    assert holdfast("stats", "--at", last, "--db", history, "--json").json["states"]["failed"] == 1
    assert holdfast("stats", "--at", just_before, "--db", history, "--json").json["states"]["failed"] == 0


def test_stats_for_people(history: str) -> None:
    lines = holdfast("stats", "--at", "-0s", "--db", history).out.splitlines()
    assert re.fullmatch(r".* \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} UTC", lines[0])
    assert lines[1].split() == ["OPERATION", *map(str.upper, STATES), "ALL"]
    assert lines[-1].split() == ["all", "1", "1", "1", "1", "1", "5"]
    assert process("stats", "--at", "-0s", "--db", history).out.splitlines()[1:] == lines[1:]


# ---------------------------------------------------------------------------------------------------------------------
# Times that are refused


@MODES
@pytest.mark.parametrize("command", [["show", "1"], ["stats"]], ids=["show", "stats"])
@pytest.mark.parametrize("given", ["tomorrow", "", "2h", "2099-01-01", "9999-12-31T23:59:59.999999Z", "-1x"])
def test_a_bad_time_is_refused(history: str, mode: list[str], command: list[str], given: str) -> None:
    refused = holdfast(*command, "--at", given, "--db", history, *mode)
    assert (refused.code, refused.error_code) == (2, "bad_input")


@MODES
def test_a_job_is_not_found_before_its_submission(history: str, mode: list[str]) -> None:
    born, *_ = moments(history, 1)
    refused = holdfast("show", "1", "--at", "2020-01-01", "--db", history, *mode)
    assert (refused.code, refused.error_code) == (1, "job_not_found")
    assert f"it was submitted at {born}" in refused.out + refused.err
    assert holdfast("show", "99", "--at", "-1s", "--db", history, *mode).error_code == "job_not_found"
