"""`holdfast procedure`: run, resume, undo, show, list; what is printed, and what the exit code says."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast.diagrams.run import FINE, PLAIN, run_lines
from holdfast.engine.world import Crash
from holdfast.governance.runs.procedure import run, undo
from holdfast.governance.runs.status import run_status
from holdfast.governance.runs.steps import Mode, Step, procedure
from holdfast.store import Store, open_store
from tests.cli.commands import PROGRAM, Outcome, at, clean_environment, holdfast
from tests.governance.shelves import WHO, books, crashing, everything, fill, make, put

HERE = "tests.cli.test_procedure"
APP = ("--app", f"{HERE}:shelving")
SAID = ("--operator", "ann", "--reason", "a test")
REAL: Any = {**WHO, "mode": Mode.REAL_RUN}


@procedure("shelving", target=lambda params: f"shelf:{params.get('shelf', 'one')}")
def shelving() -> Any:
    yield put("A")
    yield put("B")


NAILED: set[str] = set()


def nailed(name: str) -> Step:
    whole = put(name)

    def compensate(at: Any) -> None:
        if name in NAILED:
            raise OSError("it is nailed to the shelf")
        assert whole.compensate is not None
        whole.compensate(at)

    return Step(whole.name, whole.action, stop=whole.stop, verify=whole.verify, compensate=compensate)


@pytest.fixture
def shop(ledger_url: str) -> str:
    make(ledger_url).close()
    return ledger_url


def printed(outcome: Outcome) -> str:
    """Return what was printed, without times."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE", outcome.out)
    return re.sub(r"\d\d:\d\d:\d\d", "TIME", re.sub(r"[ ]+\n", "\n", text))


def on_shelf(url: str) -> list[str]:
    with open_store(url) as store:
        return books(store)


# ---------------------------------------------------------------------------------------------------------------------
# run


@pytest.mark.req("L-22", "L-25")
def test_a_run_is_a_rehearsal_by_default(shop: str) -> None:
    with open_store(shop) as store:
        before = everything(store)
    shown = holdfast("procedure", "run", "shelving", *APP, "--root", "r", *SAID, "--db", shop, "--json")
    value = shown.json
    assert (shown.code, value["mode"], value["verdict"], value["persistent_state"]) == (0, "DRY_RUN", "GO", "NONE")
    assert (value["seal"], value["counts"], value["authority"]) == ("WITHHELD_DRY_RUN", {"performed": 3}, "NOT_NEEDED")
    assert value["plan"] == shelving.plan_of({})
    with open_store(shop) as store:
        assert everything(store) == before

    people = printed(holdfast("procedure", "run", "shelving", *APP, "--root", "r", *SAID, "--db", shop))
    assert people.startswith("GO: shelving 1.0.0, dry run; nothing was written\nroot       r\n")
    assert people.endswith("\nnext: the same command with --mode REAL_RUN\n")


@pytest.mark.req("L-01", "L-08")
def test_a_real_run_is_done_once_and_drawn(shop: str) -> None:
    given = ("shelving", *APP, "--root", "r", *SAID, "--mode", "REAL_RUN", "--db", shop)
    done = holdfast("procedure", "run", *given)
    assert done.code == 0
    assert printed(done) == (
        "run        r\n"
        "procedure  shelving 1.0.0\n"
        "state      done\n"
        "begun      DATE by ann\n"
        "reason     a test\n"
        "moved      DATE by ann\n"
        "target     shelf:one\n"
        "lease      free\n"
        "\n"
        "  ●  S1_RESERVED  performed  TIME  ann\n"
        "  │\n"
        "  ●  PUT_A        performed  TIME  ann\n"
        "  │\n"
        "  ●  PUT_B        performed  TIME  ann\n"
    )
    again = holdfast("procedure", "run", *given, "--json")
    assert (again.code, again.json["verdict"], again.json["counts"]) == (0, "DONE", {"skipped": 3})
    assert on_shelf(shop) == ["A", "B"]


@pytest.mark.req("L-01", "L-21")
def test_a_run_that_stops_exits_with_3_and_shows_how_it_was_undone(shop: str) -> None:
    given = ("shelving", *APP, "--root", "r", *SAID, "--mode", "REAL_RUN", "--params", '{"fails": "B"}', "--db", shop)
    stopped = holdfast("procedure", "run", *given)
    assert (stopped.code, on_shelf(shop)) == (3, [])
    assert printed(stopped).partition("failure")[2].lstrip() == (
        "StepFailed: B fell down\n"
        "\n"
        "  ◌  S1_RESERVED  undone     TIME  ann  ▲\n"
        "  │                                         │\n"
        "  ◌  PUT_A        undone     TIME  ann  │\n"
        "  │                                         │\n"
        "  ✖  PUT_B        failed ───────────────────╯ COMP_B\n"
        "\n"
        "next: everything was undone; to run it again:\n"
        "  holdfast procedure resume --help\n"
    )
    again = holdfast("procedure", "resume", "r", *APP, *SAID, "--db", shop, "--json")
    assert (again.code, again.json["verdict"], again.json["stop_state"]) == (3, "COMP_B", "COMP_B")


@pytest.mark.req("L-11")
def test_a_plan_needs_no_ledger_and_parameters_come_from_the_command_line_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "given.json"
    file.write_text('{"shelf": "é"}', encoding="utf-8")
    plan = ("procedure", "run", "shelving", *APP, "--root", "r", *SAID, "--mode", "PLAN_ONLY", "--json")
    for params in (str(file), f"@{file}", '{"shelf": "é"}', ' {"shelf":"\\u00e9"}'):
        value = holdfast(*plan, "--params", params).json
        assert (value["target"], value["plan"]) == ("shelf:é", shelving.plan_of({"shelf": "é"}))


def test_without_an_operator_the_journal_names_the_user_of_the_command(shop: str) -> None:
    given = ("shelving", "--app", HERE, "--root", "r", "--reason", "why not", "--mode", "REAL_RUN", "--db", shop)
    assert holdfast("procedure", "run", *given).code == 0
    [row, *_] = holdfast("procedure", "show", "r", "--db", shop, "--json").json["journal"]
    assert row["actor"].startswith("cli:")
    assert row["reason"] == "why not"


# ---------------------------------------------------------------------------------------------------------------------
# show, resume, undo, list


def interrupted(url: str, point: str, what: Any = shelving, **params: str) -> None:
    with open_store(url) as store, pytest.raises(Crash):
        run(store, what, params, root="r", world=crashing(point), **REAL)


@pytest.mark.req("L-09")
def test_show_prints_everything_about_an_interrupted_run(shop: str) -> None:
    interrupted(shop, "after PUT_A", fill, fails="Z")
    value = holdfast("procedure", "show", "r", "--db", shop, "--json").json
    assert list(value) == ["run", "version", "steps", "failure", "trouble", "lease", "grant", "journal"]
    run_, steps = value["run"], value["steps"]
    assert (run_["idempotency_root"], run_["state"], run_["params"]) == ("r", "running", {"fails": "Z"})
    assert [(step["number"], step["name"], step["fate"], step["actor"]) for step in steps] == [
        (0, "S0_LOOK", "performed", "ann"), (1, "S1_RESERVED", "performed", "ann"), (2, "PUT_A", "performed", "ann"),
        (3, "PUT_B", "open", None), (4, "PUT_C", "open", None),
    ]  # fmt: skip
    assert steps[2]["outcome"] == {"book": "A"}
    assert (value["lease"]["holder"], value["lease"]["name"]) == ("ann/r", "procedure:fill")
    assert (value["grant"]["state"], value["grant"]["consumed_by"]) == ("consumed", "ann")
    assert [row["event"] for row in value["journal"]] == ["plan", "run"]

    people = printed(holdfast("procedure", "show", "r", "--db", shop))
    assert "\nlease      ann/r, until DATE\n" in people
    assert "\ngrant      1, consumed: requested by ann, approved by ann\n" in people
    assert people.partition("PUT_A")[2] == (
        "        performed  TIME  ann\n"
        "  ┊\n"
        "  ○  PUT_B        open\n"
        "  ┊\n"
        "  ○  PUT_C        open\n"
        "\n"
        "next: it may be running; if its process has crashed, continue it:\n"
        "  holdfast procedure resume --help\n"
        "or undo it:\n"
        "  holdfast procedure undo --help\n"
    )


def test_an_interrupted_run_is_resumed_or_undone(shop: str) -> None:
    interrupted(shop, "after PUT_A")
    before = holdfast("procedure", "resume", "r", *APP, "--operator", "bob", "--reason", "x", "--db", shop, "--json")
    assert (before.code, before.error_code) == (3, "lease_held")
    resumed = holdfast("procedure", "resume", "r", *APP, *SAID, "--db", shop, "--json")
    assert (resumed.code, resumed.json["counts"]) == (0, {"skipped": 2, "performed": 1})
    refused = holdfast("procedure", "undo", "r", *APP, *SAID, "--db", shop, "--json")
    assert (refused.code, refused.error_code) == (3, "invalid_state_transition")


def test_undo_exits_with_0(shop: str) -> None:
    interrupted(shop, "after PUT_A")
    undone = holdfast("procedure", "undo", "r", *APP, *SAID, "--db", shop)
    assert (undone.code, on_shelf(shop)) == (0, [])
    assert printed(undone).partition("failure")[2].lstrip().startswith(
        "undone by ann: a test\n"
        "\n"
        "  ◌  S1_RESERVED  undone     TIME  ann  ▲\n"
        "  │                                         │\n"
        "  ◌  PUT_A        undone     TIME  ann  │\n"
        "  ┊ ────────────────────────────────────────╯ COMP_BY_OPERATOR\n"
        "  ○  PUT_B        open\n"
    )  # fmt: skip


def test_runs_are_listed_newest_first(shop: str) -> None:
    listing = ("procedure", "list", "--db", shop)
    assert (holdfast(*listing).out, holdfast(*listing, "--json").json) == ("No runs.\n", [])
    with open_store(shop) as store:
        run(store, shelving, {}, root="one", **REAL)
        run(store, fill, {"fails": "A"}, root="two", **REAL)
    rows = holdfast(*listing, "--json").json
    assert [(row["idempotency_root"], row["procedure"], row["state"]) for row in rows] == [
        ("two", "fill", "stopped"), ("one", "shelving", "done"),
    ]  # fmt: skip
    for flags, roots in (
        (["--state", "done"], ["one"]), (["--procedure", "fill"], ["two"]), (["--limit", "1"], ["two"]),
        (["--before", str(rows[0]["run_id"])], ["one"]), (["--state", "running"], []),
    ):  # fmt: skip
        assert [row["idempotency_root"] for row in holdfast(*listing, *flags, "--json").json] == roots
    people = holdfast(*listing).out
    assert "stopped" in people
    assert "COMP_A" in people


# ---------------------------------------------------------------------------------------------------------------------
# The picture


def picture(store: Store[Any], root: str) -> list[str]:
    with store.reading() as reading:
        found = run_status(reading, root)
    lines = [re.sub(r"\d\d:\d\d:\d\d", "TIME", text) for text, _ in run_lines(found, PLAIN)]
    assert all(line.isascii() for line in lines)
    assert len(run_lines(found, FINE)) == len(lines) == 2 * len(found.steps) - 1
    return lines


def test_the_picture_of_a_step_that_could_not_be_undone(sqlite_url: str) -> None:
    NAILED.clear()

    @procedure("nailing")
    def nailing() -> Any:
        yield from (put("A"), nailed("B"), put("C"), put("D"))

    with make(sqlite_url) as store:
        NAILED.add("B")
        run(store, nailing, {"fails": "D"}, root="r", **REAL)
        assert picture(store, "r") == [
            "  +  S1_RESERVED  performed  TIME  ann",
            "  |",
            "  +  PUT_A        performed  TIME  ann",
            "  |",
            "  !  PUT_B        stuck      TIME  ann",
            "  |",
            "  -  PUT_C        undone     TIME  ann  ^",
            "  |                                         |",
            "  x  PUT_D        failed -------------------+ COMP_D",
        ]
        shown = holdfast("procedure", "show", "r", "--db", sqlite_url)
        assert "PUT_B could not be undone: OSError: it is nailed to the shelf" in shown.out
        assert "  holdfast procedure resume --help" in shown.out
        NAILED.clear()


def test_the_picture_of_a_run_before_its_first_undo(sqlite_url: str) -> None:
    with make(sqlite_url) as store, pytest.raises(Crash):
        run(store, shelving, {"fails": "A"}, root="r", world=crashing("after COMP_A"), **REAL)
    with open_store(sqlite_url) as store:
        assert picture(store, "r") == [
            "  +  S1_RESERVED  performed  TIME  ann",
            "  |",
            "  x  PUT_A        failed -------------------> COMP_A",
            "  :",
            "  .  PUT_B        open",
        ]
        undo(store, shelving, root="r", **WHO)
        assert picture(store, "r")[0] == "  -  S1_RESERVED  undone     TIME  ann  ^"


def test_the_picture_fits_a_terminal_and_has_colours_there(sqlite_url: str) -> None:
    make(sqlite_url).close()
    interrupted(sqlite_url, "after undoing PUT_B", fill, fails="C")
    reader, terminal = pty.openpty()
    environment = {**clean_environment(), "COLUMNS": "80", "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    command = [*PROGRAM, "procedure", "show", "r", "--db", sqlite_url]
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment) as child:
        os.close(terminal)
        seen = b""
        while True:
            try:
                seen += os.read(reader, 4096)
            except OSError:  # the other end is closed
                break
        assert child.wait(60) == 0
    os.close(reader)
    text = seen.decode()
    assert "\x1b[31m  ✖  PUT_C        failed " in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "")
    assert max(len(line) for line in plain.splitlines() if not line.startswith("  holdfast ")) <= 80
    assert " COMP_C\n" in plain


# ---------------------------------------------------------------------------------------------------------------------
# Bad input


RUN = ("run", "shelving", *APP, "--root", "r", *SAID)
BAD: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no such mode": ((*RUN, "--mode", "FULL_SPEED"), 2, "bad_input"),
    "no root": (("run", "shelving", *APP, *SAID), 2, "bad_input"),
    "an empty root": (("run", "shelving", *APP, "--root", " ", *SAID), 2, "bad_input"),
    "no reason": (("run", "shelving", *APP, "--root", "r"), 2, "bad_input"),
    "an empty reason": (("run", "shelving", *APP, "--root", "r", "--reason", ""), 2, "bad_input"),
    "no name": (("run", *APP, "--root", "r", *SAID), 2, "bad_input"),
    "another name": (("run", "nothing", *APP, "--root", "r", *SAID), 2, "bad_input"),
    "no app": (("run", "shelving", "--root", "r", *SAID), 2, "bad_input"),
    "an app that is not there": (("run", "shelving", "--app", "no_such_module", "--root", "r", *SAID), 2, "bad_input"),
    "an app without that": (("run", "shelving", "--app", f"{HERE}:nobody", "--root", "r", *SAID), 2, "bad_input"),
    "an app that is no name": (("run", "shelving", "--app", ":", "--root", "r", *SAID), 2, "bad_input"),
    "parameters that are no JSON": ((*RUN, "--params", "{'a': 1}"), 2, "payload_not_json"),
    "parameters that are no object": ((*RUN, "--params", "LIST"), 2, "spec_invalid"),
    "parameters from nowhere": ((*RUN, "--params", "/nowhere/at/all"), 2, "bad_input"),
    "no parameters": ((*RUN, "--params", ""), 2, "bad_input"),
    "a grant that is no number": ((*RUN, "--grant", "x"), 2, "bad_input"),
    "a run that is not there": (("resume", "nobody's", *APP, *SAID), 1, "record_not_found"),
    "nothing to undo": (("undo", "nobody's", *APP, *SAID), 1, "record_not_found"),
    "nothing to show": (("show", "nobody's"), 1, "record_not_found"),
    "no such state": (("list", "--state", "asleep"), 2, "bad_input"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_has_a_code_and_an_exit_code_and_leaves_nothing(sqlite_url: str, tmp_path: Path, case: str) -> None:
    arguments, exit_code, code = BAD[case]
    (tmp_path / "list.json").write_text("[1]", encoding="utf-8")
    given = [str(tmp_path / "list.json") if word == "LIST" else word for word in arguments]
    with make(sqlite_url) as store:
        before = everything(store)
        for as_json in ([], ["--json"]):
            outcome = holdfast("procedure", *given, "--db", sqlite_url, *as_json)
            assert (outcome.code, outcome.error_code) == (exit_code, code)
        assert everything(store) == before


def test_an_unknown_procedure_is_refused_with_the_list_of_procedures(shop: str) -> None:
    context = holdfast("procedure", "run", "x", *APP, "--root", "r", *SAID, "--db", shop, "--json").json["context"]
    assert context["procedures"] == ["registry.build", "registry.dismantle", "shelving"]
    assert "registry.build, registry.dismantle, shelving" in context["next_step"]


@pytest.mark.req("L-08", "L-10", "L-13")
def test_refusals_exit_with_3_and_leave_nothing(empty_url: str) -> None:
    from tests.cli.test_commands_in_texts import parsed  # it imports this module

    with make(empty_url, environment="stage") as store:
        before = everything(store)
        governed = ("procedure", "run", "fill", "--app", "tests.governance.shelves", "--root", "r", *SAID)
        real = (*governed, "--mode", "REAL_RUN", "--db", empty_url)
        for flags, code in (([], "REJECT_AUTH_MISSING"), (["--grant", "99"], "REJECT_AUTH_NOT_FOUND")):
            outcome = holdfast(*real, *flags, "--json")
            assert (outcome.code, outcome.error_code) == (3, code)
        full = holdfast(*real, "--params", '{"room": -1}', "--json")
        assert (full.code, full.json["verdict"], full.json["state"]) == (3, "ABORT_LOOK", "none")
        rehearsed = holdfast(*governed, "--db", empty_url)
        assert rehearsed.code == 0
        ask = f"  holdfast grant request {at(empty_url)} procedure.run"
        assert f"\n{ask}" in rehearsed.out
        [request] = [line for line in rehearsed.out.splitlines() if line.startswith(ask)]
        parsed(shlex.split(request)[1:])  # every required option is there
        assert everything(store) == before
        plain = ("run", "shelving", *APP, "--root", "r", *SAID, "--mode", "REAL_RUN", "--db", empty_url, "--json")
        assert holdfast("procedure", *plain).code == 0
        other = holdfast("procedure", *plain, "--params", '{"shelf": "two"}')
        assert (other.code, other.error_code) == (2, "idempotency_conflict")
