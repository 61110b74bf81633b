"""`holdfast prove`: every journal that the ledger writes follows the model, and one that was changed is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.files.snapshot import create
from holdfast.audit.seals.export import export_file
from holdfast.audit.seals.sealer import seal
from holdfast.core.commands import Fail
from holdfast.core.errors import InputError
from holdfast.core.machines import EXEC_IDS
from holdfast.engine.upkeep.retention import Retention, gc
from holdfast.model.trace import TraceReport, prove_files, prove_ledger
from holdfast.store import Lease, connect, create_store, open_store
from holdfast.testing import VirtualClock
from tests.audit.corruptions import corrupt
from tests.audit.rich import Rich
from tests.audit.sealing import submit
from tests.cli.commands import holdfast

pytestmark = pytest.mark.attack("files")

Lines = list[list[Any]]  # the journal rows of a file
MACHINE, SUBJECT, VERSION, EVENT, ACTOR = 4, 5, 6, 9, 10  # where they are in a line of a snapshot


def steps(report: TraceReport) -> set[tuple[str, str, int]]:
    assert report.ok == (not report.wrong)
    return {(step.code, step.machine, step.subject) for step in report.wrong}


def test_a_journal_with_every_kind_of_move_follows_the_model_in_the_ledger_and_in_files(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock, tmp_path: Path
) -> None:
    url, _ = rich_ledger
    with open_store(url, rich_clock) as store:
        seal(store)
        live = prove_ledger(store)
        create(store, tmp_path / "snapshot")
        exported = export_file(store, tmp_path / "export")
        with store.reading() as reading:
            [[jobs]] = reading.execute("SELECT count(*) FROM holdfast_jobs")
    assert steps(live) == set()
    assert (live.jobs, live.begun_earlier) == (jobs, 0)
    assert live.records > 5
    assert prove_files([tmp_path / "snapshot"]) == live
    assert exported.rows == live.rows
    assert prove_files([tmp_path / "export"]) == live


CORRUPTIONS: dict[str, Callable[[Rich], tuple[str, str, int]]] = {
    "a_journal_row_that_is_gone": lambda rich: ("gap", "JOB", rich.done_late),
    "a_history_that_is_gone": lambda rich: ("gap", "JOB", rich.waiting),
    "a_last_row_that_is_gone": lambda rich: ("record", "JOB", rich.failed),
    "two_rows_that_changed_places": lambda rich: ("gap", "JOB", rich.failed),
    "a_success_that_is_moved_on": lambda rich: ("second_commit", "JOB", rich.done),
    "a_commit_that_the_journal_does_not_know": lambda rich: ("record", "EXECUTION", rich.running * EXEC_IDS + 1),
    "a_source_that_was_edited": lambda rich: ("source", "JOB", rich.failed),
    "a_target_that_was_edited": lambda rich: ("edge", "JOB", rich.waiting),
    "attempts_that_shrink_in_the_journal": lambda rich: ("attempt", "JOB", rich.done_late),
    "a_token_that_was_lowered": lambda rich: ("token", "JOB", rich.done_late),
    "a_release_without_a_grant": lambda rich: ("grant", "JOB", rich.released),
    "a_switch_lifted_without_a_grant": lambda rich: ("grant", "SWITCH", rich.lifted_switch),
    "a_way_out_under_maintenance_that_never_was": lambda rich: ("maintenance", "JOB", rich.poisoned),
    "a_time_that_goes_back": lambda rich: ("time", "JOB", rich.failed),
    "a_history_cut_by_hand": lambda rich: ("gap", "JOB", rich.failed),
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_ledger_whose_journal_was_changed_is_refused_at_the_first_wrong_step(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock, name: str
) -> None:
    url, rich = rich_ledger
    corrupt(url, rich, name)
    with connect(url, rich_clock) as store:
        assert steps(prove_ledger(store)) == {CORRUPTIONS[name](rich)}


# ---------------------------------------------------------------------------------------------------------------------
# Files that were changed


def rows_of(lines: Lines, subject: int) -> list[int]:
    """Return where the rows of a job are."""
    rows = (n for n, line in enumerate(lines) if line[:1] == ["journal"])
    return [n for n in rows if (lines[n][MACHINE], lines[n][SUBJECT]) == ("JOB", subject)]


def drop(lines: Lines, rich: Rich) -> None:
    del lines[rows_of(lines, rich.done_late)[2]]


def swap(lines: Lines, rich: Rich) -> None:
    first, second = rows_of(lines, rich.done_late)[1:3]
    a, b = lines[first], lines[second]
    lines[first], lines[second] = [*a[:7], *b[7:]], [*b[:7], *a[7:]]  # what happened changes places; the numbers stay


def complete_twice(lines: Lines, rich: Rich) -> None:
    last = lines[rows_of(lines, rich.done)[-1]]
    again = ["journal", 10**6, *last[2:]]
    again[VERSION] += 1
    lines.append(again)


def repeat(lines: Lines, rich: Rich) -> None:
    last = lines[rows_of(lines, rich.done)[-1]]
    lines.append(["journal", 10**6, *last[2:]])


def complete_by_another(lines: Lines, rich: Rich) -> None:
    lines[rows_of(lines, rich.done)[-1]][ACTOR] = "another-worker"


def end_otherwise(lines: Lines, rich: Rich) -> None:
    """Let the last row of a job say what takes one edge more than it has."""
    lines[rows_of(lines, rich.done)[-1]][EVENT] = "retry"


def spend_more(lines: Lines, rich: Rich) -> None:
    """Give the job one attempt less than it took."""
    call = next(line for line in lines if line[:2] == ["calls", rich.retried])
    call[7] = 1


FORGERIES: dict[str, tuple[Callable[[Lines, Rich], None], Callable[[Rich], tuple[str, int]]]] = {
    "a row is gone": (drop, lambda rich: ("gap", rich.done_late)),
    "two rows changed places": (swap, lambda rich: ("source", rich.done_late)),
    "a job is completed twice": (complete_twice, lambda rich: ("second_commit", rich.done)),
    "a row is there twice": (repeat, lambda rich: ("twice", rich.done)),
    "another worker completes an attempt": (complete_by_another, lambda rich: ("fence", rich.done)),
    "a move of more edges than versions": (end_otherwise, lambda rich: ("version", rich.done)),
    "an attempt too many": (spend_more, lambda rich: ("edge", rich.retried)),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_snapshot_that_was_changed_is_refused_at_the_first_wrong_step(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock, tmp_path: Path, forgery: str
) -> None:
    url, rich = rich_ledger
    forge, expected = FORGERIES[forgery]
    with open_store(url, rich_clock) as store:
        create(store, tmp_path / "snapshot")
    header, *lines, trailer = map(json.loads, gzip.decompress((tmp_path / "snapshot").read_bytes()).splitlines())
    forge(lines, rich)
    text = (
        "\n".join(json.dumps(line) for line in (header, *lines, trailer)).replace('", ', '",').replace(", ", ",") + "\n"
    )
    (tmp_path / "forged").write_bytes(gzip.compress(text.encode()))
    refused = holdfast("prove", "--trace", str(tmp_path / "forged"), "--json")
    assert refused.code == 1
    [wrong] = refused.json["wrong"]
    assert (wrong["code"], wrong["job_id"]) == expected(rich)
    assert (refused.json["ok"], wrong["machine"], wrong["subject"]) == (False, "JOB", wrong["job_id"])
    assert wrong["version"] > 1
    shown = holdfast("prove", "--trace", str(tmp_path / "forged"))
    assert (shown.code, f"JOB {wrong['job_id']}" in shown.out, wrong["code"] in shown.out) == (1, True, True)


def test_an_export_without_its_end_a_file_of_another_kind_and_two_ledgers_are_refused(
    tmp_path: Path, sqlite_url: str
) -> None:
    with create_store(sqlite_url) as store, create_store(str(tmp_path / "other.db")) as other:
        for place, name in ((store, "whole"), (other, "others")):
            submit(place, 3)
            seal(place)
            export_file(place, tmp_path / name)
    lines = (tmp_path / "whole").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut").write_bytes(b"".join(lines[:-1]))
    (tmp_path / "text").write_text("no trace\n", encoding="utf-8")
    assert prove_files([tmp_path / "whole"]).rows == 3
    for names, kind in ((["cut"], "counts"), (["text"], "header"), (["absent"], "unreadable")):
        with pytest.raises(InputError) as refused:
            prove_files([tmp_path / name for name in names])
        assert refused.value.context["kind"] == kind
    with pytest.raises(InputError) as refused:
        prove_files([tmp_path / "whole", tmp_path / "others"])
    assert str(refused.value.context["ledgers"]).count(", ") == 1
    doubled = prove_files([tmp_path / "whole", tmp_path / "whole"])
    assert {step.code for step in doubled.wrong} == {"twice"}


def test_an_archive_and_the_ledger_that_it_came_from_follow_the_model(ledger_url: str, tmp_path: Path) -> None:
    clock = VirtualClock()
    with create_store(ledger_url, clock) as store:
        submit(store, 3)
        with store.transaction() as transaction:
            made = transaction.executions.claim(Lease(owner="w", seconds=60, n=3))
            fails = [(one, Fail(one.execution.lease_token, "code", "text", permanent=True)) for one in made]
            transaction.executions.move(fails, actor="w")
        seal(store)
        clock.advance(3600)
        policy = Retention(quarantined_s=60, history_s=60, archive_dir=str(tmp_path))
        assert gc(store, policy, clock(), who="ann").archives
        submit(store, 1)
        live = prove_ledger(store)
    [archive] = tmp_path.glob("journal-*.jsonl.gz")
    kept = prove_files([archive])
    assert (steps(live), steps(kept)) == (set(), set())
    assert kept.rows == 9


def test_the_command_proves_a_ledger(ledger_url: str) -> None:
    with create_store(ledger_url) as store:
        submit(store, 3)
    done = holdfast("prove", "--db", ledger_url, "--json")
    assert (done.code, done.json["ok"], done.json["rows"], done.json["jobs"]) == (0, True, 3, 3)
    assert holdfast("prove", "--db", ledger_url).tells(3, 3)
