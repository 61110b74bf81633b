"""`nodd-replay`: its flags, its variables, its exit codes; the commands themselves are those of `holdfast replay`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.commands import at, clean_environment, holdfast
from tests.cli.replaying import (
    DO,
    GOES,
    NODD_GOES,
    NODD_SPEC,
    SINCE,
    WINDOW,
    counters_in,
    failed_jobs,
    nodd,
    refused,
    states_of,
    sum_of,
    written,
)

COMMANDS = ("select", "dry-run", "run", "from-spec", "inspect")
GLOBAL = ("--env", "--config", "--output", "--log-level", "--selection-file")
SELECTION = (
    "--dataset", "--dataset-in", "--status", "--error-code", "--error-code-in", "--event-time-start",
    "--event-time-end", "--created-after", "--created-before", "--attempts-max", "--limit",
)  # fmt: skip
FLAGS = {
    "select": (*SELECTION, "--mode", "--save-spec", "--show-examples"),
    "dry-run": (*SELECTION, "--batch-size", "--max-batches", "--mode"),
    "run": (*SELECTION, "--batch-size", "--max-batches", "--mode", "--confirm"),
    "from-spec": ("--mode", "--batch-size", "--max-batches", "--dry-run", "--run", "--confirm"),
    "inspect": (*SELECTION, "--show-fields"),
}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KFM_ENV", "KFM_WAL_DSN", "KFM_SQS_PRIMARY_QUEUE", "KFM_SQS_DLQ_QUEUE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def lite(sqlite_url: str) -> str:
    return failed_jobs(sqlite_url)


@pytest.mark.req("K-52")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_flags(command: str) -> None:
    shown = nodd(command, "--help")
    assert (shown.code, shown.err) == (0, "")
    words = set(re.findall(r"--[a-z-]+", shown.out))
    assert set(GLOBAL) | set(FLAGS[command]) <= words
    listed = nodd("--help").out
    assert set(GLOBAL) <= set(re.findall(r"--[a-z-]+", listed))
    assert re.search(rf"^  {command} ", listed, re.MULTILINE)


@pytest.mark.req("K-51", "K-52")
def test_a_selection_for_a_mode_is_rehearsed_in_that_mode(empty_url: str, tmp_path: Path) -> None:
    """A mode decides which jobs can be replayed, and a saved spec names it."""
    failed_jobs(empty_url)
    here = {"KFM_ENV": "dev", "KFM_WAL_DSN": empty_url}
    for job_id in ("1", "2"):
        assert holdfast("quarantine", "add", job_id, "--code", "bad", "--reason", "x", "--db", empty_url).code == 0
    spec = str(tmp_path / "s.yaml")
    wanted = (*NODD_GOES, "--status", "quarantined", "--mode", "repair-and-replace")
    selected = nodd("select", *wanted, "--save-spec", spec, "--json", env=here).json
    assert (selected["total"], selected["spec"]["spec"]["mode"]) == (2, "repair-and-replace")
    rehearsed = nodd("dry-run", *wanted, "--json", env=here).json
    from_spec = nodd("from-spec", spec, "--dry-run", "--json", env=here).json
    hashes = ("selection_hash", "candidates_hash")
    assert [[plan[name] for name in hashes] for plan in (rehearsed, from_spec)] == [[selected[n] for n in hashes]] * 2
    assert nodd("select", *NODD_GOES, "--mode", "sideways", "--json", env=here).error_code == "bad_input"


@pytest.mark.req("K-50", "K-52", "K-53", "K-57")
def test_select_rehearse_run_and_inspect(empty_url: str, tmp_path: Path) -> None:
    failed_jobs(empty_url)
    here = {"KFM_ENV": "dev", "KFM_WAL_DSN": empty_url}
    spec = str(tmp_path / "s.yaml")
    selected = nodd("select", *NODD_GOES, "--save-spec", spec, "--output", "json", env=here).json
    assert selected["total"] == 5
    rehearsed = nodd("from-spec", spec, "--dry-run", "--output", "yaml", env=here)
    assert (rehearsed.code, yaml.safe_load(rehearsed.out)["total"]) == (0, 5)
    # As existing scripts write it: no reason is required, and one is recorded.
    done = nodd(
        "from-spec", "--env", "dev", "--selection-file", spec, "--run", "--confirm", "--output", "json", env=here
    )
    assert (done.code, done.json["replayed"], done.json["state"]) == (0, 5, "done")
    assert (done.json["reason"], done.json["replay_reason"]) == ("nodd-replay run: incident", "incident")
    assert done.json["selection_hash"] == selected["selection_hash"]
    seen = nodd("inspect", done.json["run_id"], "--output", "json", env=here).json
    assert [batch["replayed"] for batch in seen["touched"]] == [[1, 2, 3, 4, 5]]
    assert states_of(empty_url) == {"failed": 3, "pending": 5}


@pytest.mark.req("K-52")
def test_flags_win_over_variables(lite: str) -> None:
    elsewhere = {"KFM_ENV": "prod", "KFM_WAL_DSN": "/nowhere/at/all.db"}
    outcome = nodd("select", *NODD_GOES, "--env", "dev", "--db", lite, "--json", env=elsewhere)
    assert outcome.json["total"] == 5
    assert nodd("--wal-dsn", lite, "--env", "dev", "select", *NODD_GOES, "--json", env=elsewhere).json["total"] == 5
    assert refused(nodd("select", *NODD_GOES, "--db", lite, "--json", env=elsewhere))[1] == "env_mismatch"
    assert nodd("select", *NODD_GOES, "--env", "dev", "--json", env=elsewhere).error_code == "store_unavailable"


def test_the_other_commands_variables_are_not_its_own(lite: str) -> None:
    assert nodd("select", "--env", "dev", "--json", env={"HOLDFAST_URL": lite}).error_code == "url_invalid"
    assert holdfast("replay", "select", "--db", lite, *GOES, "--json").code == 0


def test_a_missing_ledger_is_requested_by_the_flag_and_variable_of_the_program() -> None:
    outcome = nodd("select", "--env", "dev", *NODD_GOES, "--json", env={"HOLDFAST_URL": "x.db"})
    assert (outcome.code, outcome.error_code) == (2, "url_invalid")
    assert outcome.json["context"]["next_step"] == "Give --wal-dsn with a file or a URL, or set KFM_WAL_DSN."
    outcome = holdfast("replay", "select", *GOES, "--json")
    assert outcome.json["context"]["next_step"] == "Give --db with a file or a URL, or set HOLDFAST_URL."


def test_a_wal_id_that_no_record_has(lite: str) -> None:
    unknown = "d1e6671d-0363-5ed1-9595-12646b8bdf50"
    outcome = nodd("inspect", unknown, "--env", "dev", "--db", lite, "--json")
    assert (outcome.code, outcome.error_code) == (1, "record_not_found")
    assert unknown in outcome.json["error_message"]
    assert outcome.json["context"]["next_step"] == f"List the records with `holdfast nodd records {at(lite)}`."
    run = nodd("inspect", "replay-none", "--env", "dev", "--db", lite, "--json")
    assert run.error_code == "record_not_found"
    assert "replay-none" in run.json["error_message"]


def test_a_dry_run_and_a_run_at_once(lite: str, tmp_path: Path) -> None:
    before = sum_of(lite)
    for flags in (("--dry-run", "--run"), ("--run", "--dry-run", "--confirm")):
        outcome = nodd("from-spec", written(tmp_path, NODD_SPEC), *flags, "--env", "dev", "--db", lite, "--json")
        assert refused(outcome) == (2, "bad_input", "--run")
    assert sum_of(lite) == before


def test_a_dry_run_reports_an_unknown_dataset(empty_url: str, tmp_path: Path) -> None:
    failed_jobs(empty_url)
    here = ("--env", "dev", "--db", empty_url)
    rehearse = ("dry-run", *WINDOW, *here)
    outcome = nodd(*rehearse, "--dataset-in", "nosuch,hrrr", "--json")
    [note] = outcome.json["notes"]
    assert (outcome.code, outcome.json["total"]) == (0, 3)
    assert "nosuch" in note
    assert f"note:  {note}\n" in nodd(*rehearse, "--dataset", "nosuch").out
    kept = str(tmp_path / "kept.json")
    assert nodd(*rehearse, "--dataset", "hrrr", "--save", kept, "--json").json["notes"] == []
    assert nodd("run", "--dry-run-file", kept, "--confirm", *here, "--json").json["replayed"] == 3
    # A selection without any candidate left is another refusal.
    assert nodd(*rehearse, "--dataset", "hrrr", "--json").json["notes"] == []


@pytest.mark.req("K-52", "K-54")
@pytest.mark.parametrize("command", COMMANDS)
def test_an_environment_is_always_named(lite: str, tmp_path: Path, command: str) -> None:
    spec = [written(tmp_path, NODD_SPEC)] if command == "from-spec" else []
    outcome = nodd(command, *spec, "--db", lite, *(["--confirm"] if command == "run" else []), "--json")
    assert (outcome.code, outcome.error_code) == (2, "bad_input")
    assert "KFM_ENV" in outcome.json["context"]["next_step"]


@pytest.mark.req("K-54")
def test_a_spec_for_another_environment(lite: str, tmp_path: Path) -> None:
    spec = written(tmp_path, NODD_SPEC.replace("env: dev", "env: stage"))
    outcome = nodd("from-spec", spec, "--db", lite, "--output", "json", env={"KFM_ENV": "dev"})
    assert refused(outcome) == (2, "spec_invalid", "metadata.env")


@pytest.mark.req("K-55")
@pytest.mark.parametrize(
    "variable, flag", [("KFM_SQS_PRIMARY_QUEUE", "--primary-queue"), ("KFM_SQS_DLQ_QUEUE", "--dlq-queue")]
)
def test_queues_of_prod_are_refused_in_other_environments(lite: str, variable: str, flag: str) -> None:
    here = ("--db", lite, "--env", "dev", "--json")
    for queue in ("nodd-primary-prod", "https://sqs.us-east-1.amazonaws.com/1/prod_nodd", "PRODUCTION.nodd"):
        for outcome in (nodd("select", *here, env={variable: queue}), nodd("select", *here, flag, queue)):
            assert refused(outcome) == (3, "env_mismatch", "env_mismatch")
            assert outcome.json["context"]["flag"] == flag
    assert nodd("select", *here, flag, "nodd-primary-dev", env={variable: "nodd-primary-prod"}).code == 0
    assert nodd("select", *here, flag, "nodd-products").code == 0


def test_queues_of_prod_are_accepted_in_prod(sqlite_url: str) -> None:
    failed_jobs(sqlite_url, "prod")
    here = {"KFM_ENV": "prod", "KFM_WAL_DSN": sqlite_url, "KFM_SQS_PRIMARY_QUEUE": "nodd-prod"}
    outcome = nodd("dry-run", "--dataset", "goes-abi", *WINDOW, "--json", env=here)
    assert (outcome.code, outcome.json["environment"], outcome.json["grant_needed"]) == (0, "prod", True)
    narrow = nodd("dry-run", *NODD_GOES, "--json", env=here)  # a window with one end is too broad there
    assert [guard["guard_type"] for guard in narrow.json["guards"] if not guard["passed"]] == ["scope_too_broad"]
    glob = nodd("run", *WINDOW, "--confirm", "--json", env=here)
    assert refused(glob) == (3, "scope_too_broad", "scope_too_broad")


@pytest.mark.req("K-53")
@pytest.mark.parametrize("form", ["json", "yaml", "table"])
def test_exit_codes_and_errors(lite: str, tmp_path: Path, form: str) -> None:
    here = ("--db", lite, "--env", "dev", "--output", form)
    before = sum_of(lite)
    for code, error, arguments in (
        (0, None, ["select", *NODD_GOES, *here]),
        (1, "record_not_found", ["inspect", "replay-none", *here]),
        (2, "spec_invalid", ["select", "--created-after", "2026-01-01", *here]),
        (2, "bad_input", ["run", *NODD_GOES, *here]),
        (2, "bad_input", ["stop", "run", *here]),
        (3, "scope_too_broad", ["run", "--dataset", "goes-abi", *DO, *here]),
        (3, "env_mismatch", ["select", *NODD_GOES, *here[:2], "--env", "stage", *here[4:]]),
        (4, "store_unavailable", ["select", *NODD_GOES, "--db", str(tmp_path / "no" / "x.db"), *here[2:]]),
    ):
        outcome = nodd(*arguments)
        assert outcome.code == code
        if error is None:
            continue
        if form == "table":
            assert (outcome.out, outcome.error_code) == ("", error)
        else:
            value = yaml.safe_load(outcome.out)
            assert list(value) == ["error_code", "error_message", "context"]
            assert (value["error_code"], outcome.err) == (error, "")
            assert value["context"]["next_step"]
            assert value["context"].get("guard_type") == (error if code == 3 else None)
    assert sum_of(lite) == before


@pytest.mark.req("K-60", "K-61")
def test_telemetry_counts_the_call_and_its_results(lite: str) -> None:
    here = ("--db", lite, "--env", "dev", "--telemetry", "console", "--output", "json")
    done = nodd("run", *NODD_GOES, "--confirm", *here)
    assert (done.code, json.loads(done.out)["replayed"]) == (0, 5)
    assert counters_in(done.err) == {
        "replay_cli_invocations_total command=run env=dev": 1,
        "replay_batches_total env=dev replay_reason=incident": 1,
        "replay_batch_size env=dev": 1,
    }
    # A flag before the command's name is the same flag; an error is counted by its code, and a refusal by its guard.
    refused = nodd(*here, "run", "--dataset", "hrrr", "--confirm")
    assert (refused.code, json.loads(refused.out)["error_code"]) == (3, "scope_too_broad")
    assert counters_in(refused.err) == {
        "replay_cli_invocations_total command=run env=dev": 1,
        "replay_cli_failures_total command=run env=dev error_code=scope_too_broad": 1,
        "replay_guardrail_violations_total env=dev guard_type=scope_too_broad": 1,
    }
    wrong = nodd("select", *NODD_GOES, "--env", "moon", *here[:2], *here[4:])
    assert counters_in(wrong.err) == {
        "replay_cli_invocations_total command=select env=unknown": 1,
        "replay_cli_failures_total command=select env=unknown error_code=bad_input": 1,
    }


def test_without_telemetry_nothing_of_opentelemetry_is_imported(lite: str) -> None:
    code = (
        "import sys; from holdfast.cli.nodd.replay import run;"
        f"code = run(['select', '--env', 'dev', '--db', {lite!r}]);"
        "sys.exit(code or any(name.partition('.')[0] == 'opentelemetry' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_the_installed_command_is_this_one(lite: str) -> None:
    script = Path(sys.executable).with_name("nodd-replay")
    environment = clean_environment() | {"KFM_ENV": "dev", "KFM_WAL_DSN": lite}
    done = subprocess.run(
        [script, "run", *NODD_GOES, "--confirm", "--output", "json"], capture_output=True, env=environment, check=False
    )
    assert (done.returncode, json.loads(done.stdout)["replayed"], done.stderr) == (0, 5, b"")
    done = subprocess.run([script], capture_output=True, env=environment, check=False)
    assert done.returncode == 0
    assert b"nodd-replay" in done.stdout


@pytest.mark.req("K-52", "K-54", "K-55")
def test_the_applications_names_are_in_flags_files_answers_and_errors(lite: str, tmp_path: Path) -> None:
    here = ("--env", "dev", "--db", lite, "--output", "json")
    planned = nodd("dry-run", *NODD_GOES, *here).json
    assert planned["by_dataset"] == {"goes-abi": 5}
    assert "by_queue" not in planned
    assert planned["selection"]["filters"]["datasets"] == ["goes-abi"]
    assert not {"queues", "jobs", "id_field"} & set(planned["selection"]["filters"])
    assert refused(nodd("select", "--dataset-in", "a,", *here)) == (2, "spec_invalid", "spec.filters.datasets[1]")
    assert nodd("select", "--dataset-in", "a,", *here).json["context"]["flag"] == "--dataset"
    file = written(tmp_path, NODD_SPEC)
    other = nodd("select", "--selection-file", file, "--dataset", "hrrr", *here)
    assert refused(other) == (2, "bad_input", "spec.filters.datasets")
    assert nodd("select", "--queue", "hrrr", *here).error_code == "bad_input"
    for text in (NODD_SPEC.replace("datasets", "queues"), NODD_SPEC.replace("kfm.nodd.replay/v1alpha1", "kfm/v2")):
        assert nodd("select", "--selection-file", written(tmp_path, text, "x.yaml"), *here).code == 2


@pytest.mark.req("K-55")
def test_an_overlay_of_the_application(lite: str, tmp_path: Path) -> None:
    text = """
apiVersion: kfm.nodd.env/v1alpha1
kind: NoddEnvOverlay
metadata: {env: dev}
replay_defaults: {max_batch_size: 2}
safety_flags: {kill_switch_defaults: {hrrr: true}}
sqs: {queue_overrides: {}}
telemetry: {sampling_rate: 1}
"""
    here = ("--config", written(tmp_path, text), "--env", "dev", "--db", lite, "--output", "json")
    assert nodd("dry-run", *NODD_GOES, *here).json["batch_size"] == 2
    outcome = nodd("dry-run", "--dataset", "hrrr", *SINCE, *here)
    assert refused(outcome) == (3, "kill_switch_active", "kill_switch_active")
    assert outcome.json["context"]["dataset"] == "hrrr"
    other = written(tmp_path, text.replace("NoddEnvOverlay", "EnvOverlay"), "y.yaml")
    wrong = nodd("dry-run", "--config", other, *here[2:])
    assert refused(wrong) == (2, "spec_invalid", "kind")
