"""Commands that are printed can be pasted: they name the ledger as it was typed, and never a password."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import psycopg
import pytest
import yaml

import holdfast as package
from holdfast.cli.shell import NEEDED, LedgerFlags
from holdfast.store.urls import has_password
from tests.cli.commands import at, holdfast, process, typed
from tests.cli.replaying import DO, GOES, NODD_GOES, SINCE, failed_jobs, nodd
from tests.support.ledgers import new_store

NOTE = "First set HOLDFAST_URL to the URL of the ledger. The URL contains a password and is not printed."
SECRET = "hunter2"  # noqa: S105 - of a server that asks for none


def commands_in(text: str) -> list[str]:
    """Return the commands that a text says to type: in backticks, or after a `next:` or alone on a line."""
    return re.findall(r"`(holdfast [^`]+)`", text) or re.findall(r"(?:: {1,2}|^ +)(holdfast .+)$", text, re.MULTILINE)


def with_password(url: str) -> str:
    """Return the URL of a server that asks for no password, with one."""
    return re.sub(r"://([^@/]*)@", rf"://\1:{SECRET}@", url)


# ---------------------------------------------------------------------------------------------------------------------
# What is printed works


@pytest.mark.req("G-25")
def test_the_next_step_of_an_error_can_be_pasted(ledger: str) -> None:
    for mode in ((), ("--json",)):
        said = holdfast("show", "9", "--db", ledger, *mode)
        [command] = commands_in(said.json["context"]["next_step"] if mode else said.err)
        assert command == f"holdfast jobs {at(ledger)}"
        assert typed(command).code == 0


@pytest.mark.req("G-25")
def test_each_command_out_of_quarantine_can_be_pasted(empty_url: str) -> None:
    """In stage: a grant is requested, approved and used by the printed commands, with names filled in."""
    new_store(empty_url, environment="stage").close()
    for arguments in (("submit", "noop"), ("quarantine", "add", "1", "--code", "timeout", "--reason", "it hangs")):
        assert holdfast(*arguments, "--db", empty_url).code == 0
    [explained] = commands_in(holdfast("explain", "1", "--db", empty_url).out)
    ask, release = commands_in(holdfast("quarantine", "show", "1", "--db", empty_url).out)
    assert (explained, holdfast("quarantine", "show", "1", "--db", empty_url, "--json").json["next"]) == (
        ask, [ask, release],
    )  # fmt: skip
    outcome = typed(ask.replace("NAME", "ann"))
    assert outcome.tells("rant 1", "draft")
    [approve] = commands_in(outcome.out)
    assert typed(approve.replace("NAME", "bob")).code == 0
    released = typed(release.replace("ID", "1") + " --operator ann")
    assert released.tells(1, "pending", "grant 1")


@pytest.mark.req("K-52")
def test_a_stopped_replay_is_continued_by_the_printed_command(ledger_url: str) -> None:
    failed_jobs(ledger_url)
    begun = holdfast(
        "replay", "--db", ledger_url, "run", *GOES, *DO, "--batch-size", "2", "--stop-after", "1"
    )  # the flag is before the name of the command: it is remembered too
    [command] = commands_in(begun.out)
    assert command.startswith(f"holdfast replay run {at(ledger_url)} --continue ")
    assert "5 of 5 jobs" in typed(command).out


@pytest.mark.req("K-52")
def test_the_commands_of_nodd_replay_have_its_environment_too(sqlite_url: str, tmp_path: Path) -> None:
    failed_jobs(sqlite_url)
    stop = (*NODD_GOES, "--confirm", "--batch-size", "2", "--stop-after", "1")
    begun = nodd("run", "--wal-dsn", sqlite_url, "--env", "dev", *stop)
    step = begun.out.splitlines()[-1].removeprefix("next:  ")
    assert step.startswith(f"nodd-replay run {at(sqlite_url)} --env dev --continue replay-")
    assert nodd(*shlex.split(step)[1:]).code == 0
    # This program's variable is not read by the other program: its command gets a flag.
    here = {"KFM_ENV": "dev", "KFM_WAL_DSN": sqlite_url}
    outcome = nodd("inspect", "d1e6671d-0363-5ed1-9595-12646b8bdf50", "--json", env=here)
    assert outcome.json["context"]["next_step"] == 'List the records with `holdfast nodd records --db "$KFM_WAL_DSN"`.'
    save = tmp_path / "a plan.json"
    rehearsed = nodd("dry-run", "--dataset", "hrrr", *SINCE, "--save", str(save), env=here)
    assert rehearsed.out.splitlines()[-1] == f"next:  nodd-replay run --dry-run-file '{save}' --reason TEXT"


def test_a_step_in_yaml_can_be_pasted_too(sqlite_url: str) -> None:
    failed_jobs(sqlite_url)
    outcome = holdfast("replay", "inspect", "99", "--db", sqlite_url, "--output", "yaml")
    assert yaml.safe_load(outcome.out)["context"]["next_step"] == f"List jobs with `holdfast jobs {at(sqlite_url)}`."


def test_a_name_of_a_file_is_quoted_for_the_shell(tmp_path: Path) -> None:
    name = "it's a `ledger`; $HOME.db"
    assert process("init", "--db", name, cwd=tmp_path).code == 0
    assert process("submit", "noop", f"--db={name}", cwd=tmp_path).code == 0
    assert process("pause", "--queue", "default", "--db", name, cwd=tmp_path).code == 0
    shown = process("explain", "1", "--db", name, "--json", cwd=tmp_path).json["findings"][0]["next"]
    assert shown == f"holdfast resume {at(name)} --queue default"
    [command] = re.findall(r"with `(.*)`\.$", process("show", "2", "--db", name, cwd=tmp_path).err.strip())
    assert process(*shlex.split(command)[1:], "--json", cwd=tmp_path).json[0]["job_id"] == 1


@pytest.mark.pg
def test_a_schema_is_named_too(pg_url: str) -> None:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA shop")
    assert holdfast("init", "--db", pg_url, "--schema", "shop").code == 0
    [command] = commands_in(holdfast("show", "1", "--db", pg_url, "--schema", "shop").err)
    assert command == f"holdfast jobs {at(pg_url)} --schema shop"
    assert typed(command).code == 0


# ---------------------------------------------------------------------------------------------------------------------
# Texts that stay unchanged


def test_a_value_from_the_environment_is_not_repeated_as_a_flag(history: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", history)
    assert holdfast("explain", "2").out.endswith("\n  next: holdfast retry 2\n")
    assert holdfast("show", "9").err.endswith("\nnext:  List jobs with `holdfast jobs`.\n")
    assert holdfast("explain", "2", "--json").json["findings"][0]["next"] == "holdfast retry 2"
    # The flags of one command do not reach the next.
    assert "--db" in holdfast("explain", "2", "--db", history).out
    assert "--db" not in holdfast("explain", "2").out


def test_data_is_not_touched(sqlite_ledger: str) -> None:
    words = "`holdfast check` said so"
    payload = json.dumps({"next": "holdfast check", "next_step": words, "findings": [{"next": "holdfast check"}]})
    holdfast("submit", "noop", payload, "--key", "holdfast check", "--db", sqlite_ledger)
    holdfast("pause", "--queue", "default", "--reason", words, "--db", sqlite_ledger)
    holdfast("quarantine", "add", "1", "--code", "x", "--reason", words, "--db", sqlite_ledger)
    assert holdfast("jobs", "--db", sqlite_ledger, "--json").json[0]["key"] == "holdfast check"
    answer = holdfast("explain", "1", "--db", sqlite_ledger, "--json").json["findings"][0]
    assert answer["evidence"]["reason"] == words
    shown = holdfast("quarantine", "show", "1", "--db", sqlite_ledger, "--json").json
    assert (shown["why"], shown["moves"][0]["reason"]) == (words, words)


@pytest.mark.parametrize(
    "text, whole",
    [
        ("holdfast check", "holdfast check --db x.db"),
        ("Run `holdfast gc`; or `holdfast check`.", "Run `holdfast gc --db x.db`; or `holdfast check --db x.db`."),
        ("next: holdfast recover, or wait", "next: holdfast recover --db x.db, or wait"),
        ("  holdfast grant request ledger.repair ledger", "  holdfast grant request --db x.db ledger.repair ledger"),
        ("a\n  holdfast grant approvers revoke bob", "a\n  holdfast grant approvers revoke --db x.db bob"),
        ("next:  nodd-replay run, with more", "next:  nodd-replay run --db x.db --env dev, with more"),
        ("`holdfast replay inspect`", "`holdfast replay inspect --db x.db`"),
        ("`holdfast nodd datasets`", "`holdfast nodd datasets --db x.db`"),
        ("`holdfast init --db y.db` or `holdfast check`", "`holdfast init --db y.db` or `holdfast check --db x.db`"),
        # No flag where there is none to take it, for help, or where another ledger is named.
        *(
            (text, text)
            for text in (
                "`holdfast audit keygen PATH`", "`holdfast machines`",
                "`holdfast grant request --help`", "`holdfast grant approvers`", "`holdfast grant`",
                "`holdfast snapshot restore`", "`holdfast nodd backfill` a new ledger", "`holdfast`",
                "`holdfast sing`", "`holdfast grant sing`", "`nodd-replay sing`", "upgrade holdfast check",
                "my-holdfast check", "./holdfast check",
            )
        ),
    ],
)  # fmt: skip
def test_the_flags_of_the_ledger_are_inserted_after_the_command(text: str, whole: str) -> None:
    place = LedgerFlags()
    assert place.text(text) == text
    place.name("--db", "x.db")
    place.name("--env", "dev")
    assert place.text(text) == whole


def test_every_command_suggested_in_the_source_exists() -> None:
    """Each gets the flag, or is one of those without it: a removed command would be neither."""
    without = {
        "audit keygen", "console tokens", "console users", "grant approvers", "grant slip", "machines", "nodd backfill",
        "nodd subscribe", "registry draft", "simulate", "snapshot restore",
    }  # fmt: skip
    place = LedgerFlags()
    place.name("--db", "x.db")
    said = set()
    for path in Path(package.__file__).parent.rglob("*.py"):
        said |= set(re.findall(r"`(holdfast [a-z][^`{\n]*)", path.read_text(encoding="utf-8")))
    assert len(said) > 40
    left = {step for step in said if " --db " not in place.text(f"`{step}") and "--help" not in step}
    assert {step for step in left if not any(step.startswith(f"holdfast {name}") for name in without)} <= {
        "holdfast head v1", "holdfast slip v1", "holdfast nodd", "holdfast replay", "holdfast audit",
        "holdfast grant", "holdfast registry", "holdfast quarantine", "holdfast switch", "holdfast procedure",
        "holdfast snapshot", "holdfast schedules", "holdfast batches", "holdfast limits",
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Passwords


@pytest.mark.pg
def test_a_password_is_never_printed_and_the_variable_to_set_is_named_once(
    pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = with_password(pg_url)
    assert SECRET in url
    new_store(url, environment="stage").close()
    for arguments in (("submit", "noop"), ("quarantine", "add", "1", "--code", "timeout", "--reason", "it hangs")):
        assert holdfast(*arguments, "--db", url).code == 0
    error = holdfast("show", "9", "--db", url)
    assert error.err.splitlines() == [
        "error: there is no job 9 (job_not_found)", f"note:  {NOTE}", "next:  List jobs with `holdfast jobs`.",
    ]  # fmt: skip
    assert holdfast("show", "9", "--db", url, "--json").json["context"] == {
        "job_id": 9, "next_step": "List jobs with `holdfast jobs`.", NEEDED: NOTE,
    }  # fmt: skip
    shown = holdfast("quarantine", "show", "1", "--db", url)
    assert shown.out.endswith(f"\nnote: {NOTE}\n")
    value = holdfast("quarantine", "show", "1", "--db", url, "--json")
    assert value.json[NEEDED] == NOTE
    explained = holdfast("explain", "1", "--db", url)
    in_json = holdfast("explain", "1", "--db", url, "--json")
    assert [list(found) for found in in_json.json["findings"]] == [["code", "message", "evidence", "next", NEEDED]]
    for outcome in (error, shown, value, explained, in_json):
        assert (outcome.out + outcome.err).count(NOTE) == 1
        assert SECRET not in outcome.out + outcome.err
        assert "--db" not in outcome.out + outcome.err
    # Without a command to type, no variable is named.
    assert NOTE not in holdfast("jobs", "--db", url).out
    # With the variable set, the printed commands work.
    monkeypatch.setenv("HOLDFAST_URL", url)
    ask, _ = commands_in(shown.out.replace(f"note: {NOTE}\n", ""))
    assert typed(ask.replace("NAME", "ann")).tells("rant 1", "draft")


def test_nodd_replay_names_its_own_variables() -> None:
    place = LedgerFlags()
    place.name("--db", "postgresql://me:hunter2@db/x")
    assert place.text("`nodd-replay run --continue r`, or `holdfast check`") == (
        "`nodd-replay run --continue r`, or `holdfast check`"
    )
    assert place.note() == NOTE.replace("HOLDFAST_URL", "KFM_WAL_DSN and HOLDFAST_URL")
    assert place.note() is None


@pytest.mark.parametrize(
    "url, secret",
    [
        ("work.db", False),
        ("/home/me/secret/password.db", False),
        ("sqlite:////home/me/my-password.db", False),
        ("postgresql://db/x", False),
        ("postgresql://me@db:5432/x", False),
        ("postgresql://me@/x?host=/run/postgresql&port=5433", False),
        ("postgresql://me:hunter2@db/x", True),
        ("postgres://me:hun/ter2@db/x", True),
        ("postgresql://me:hun?ter2@db/x", True),
        ("postgresql://me:hun%40ter2@db/x", True),
        ("postgresql://me%3Ahunter2@db/x", True),
        ("postgresql://me:@db/x", True),
        ("postgresql://db/x?user=me&password=hunter2", True),
        ("postgresql://db/x?PassWord=hunter2", True),
        ("postgresql://db/x?pass%77ord=hunter2", True),
        ("postgresql://db/x?sslpassword=hunter2", True),
        ("postgresql://db/x?oauth_client_secret=hunter2", True),
        ("host=db password=hunter2", True),
        ("host=db Password = hunter2", True),
    ],
)
def test_urls_with_and_without_a_password(url: str, *, secret: bool) -> None:
    assert has_password(url) is secret
