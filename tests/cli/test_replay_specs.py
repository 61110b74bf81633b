"""Spec files and flags together: what a file means, what a flag may add, and which bad input leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.replay.overlays import overlay_of
from holdfast.core.errors import SpecInvalidError
from holdfast.governance.replay.guards import policy_of
from tests.cli.replaying import DO, GOES, SINCE, SPEC, failed_jobs, refused, replay, states_of, sum_of, written

pytestmark = pytest.mark.attack("input")


@pytest.fixture
def lite(sqlite_url: str) -> str:
    return failed_jobs(sqlite_url)


# ---------------------------------------------------------------------------------------------------------------------
# from-spec


@pytest.mark.req("K-52", "K-54")
@pytest.mark.parametrize("name", ["s.yaml", "s.json"])
def test_a_spec_is_rehearsed_and_run(ledger_url: str, tmp_path: Path, name: str) -> None:
    failed_jobs(ledger_url)
    spec = str(tmp_path / name)
    selected = replay(ledger_url, "select", *GOES, "--save-spec", spec, "--json").json
    rehearsed = replay(ledger_url, "from-spec", spec, "--json").json
    assert (rehearsed["total"], rehearsed["ok"]) == (5, True)
    assert rehearsed["selection_hash"] == selected["selection_hash"]
    done = replay(ledger_url, "from-spec", "--selection-file", spec, "--run", *DO, "--json").json
    assert (done["state"], done["replayed"], done["selection_hash"]) == ("done", 5, selected["selection_hash"])
    assert states_of(ledger_url) == {"failed": 3, "pending": 5}


def test_a_spec_decides_whether_it_is_run(lite: str, tmp_path: Path) -> None:
    dry = written(tmp_path, SPEC + "  options: {dry_run: true}\n", "dry.yaml")
    wet = written(tmp_path, SPEC + "  options: {dry_run: false}\n", "wet.yaml")
    assert replay(lite, "from-spec", dry, "--json").json["total"] == 5
    for command in (["from-spec", dry, "--run"], ["run", "--selection-file", dry]):
        outcome = replay(lite, *command, *DO, "--json")
        assert refused(outcome) == (2, "spec_invalid", "spec.options.dry_run")
    assert replay(lite, "from-spec", wet, "--dry-run", "--json").json["total"] == 5
    assert replay(lite, "from-spec", wet, "--json").error_code == "bad_input"  # it would run, and --confirm is missing
    assert states_of(lite) == {"failed": 8}
    assert replay(lite, "from-spec", wet, *DO, "--json").json["replayed"] == 5


def test_two_selection_files_are_refused(lite: str, tmp_path: Path) -> None:
    one, other = written(tmp_path, SPEC, "1.yaml"), written(tmp_path, SPEC, "2.yaml")
    assert replay(lite, "from-spec", "--json").error_code == "bad_input"
    assert replay(lite, "from-spec", one, "--selection-file", other, "--json").error_code == "bad_input"
    assert replay(lite, "from-spec", one, "--selection-file", one, "--json").code == 0


def test_a_spec_is_never_overwritten(lite: str, tmp_path: Path) -> None:
    there = written(tmp_path, "precious")
    outcome = replay(lite, "select", *GOES, "--save-spec", there, "--json")
    assert (outcome.code, outcome.error_code) == (2, "file_exists")
    outcome = replay(lite, "dry-run", *GOES, "--save", there, "--json")
    assert (outcome.code, outcome.error_code) == (2, "file_exists")
    assert Path(there).read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


# ---------------------------------------------------------------------------------------------------------------------
# A file and flags


@pytest.mark.req("K-52")
@pytest.mark.parametrize(
    "flags, path",
    [
        (["--queue", "hrrr"], "spec.filters.queues"),
        (["--queue-in", "goes-abi,hrrr"], "spec.filters.queues"),
        (["--created-after", "2020-01-02T00:00:00Z"], "spec.filters.created_at.start"),
        (["--created-after", "yesterday"], "spec.filters.created_at.start"),
        (["--status", "quarantined"], "spec.filters.status"),
        (["--error-code", "schema_mismatch"], "spec.filters.error_codes"),
        (["--attempts-max", "4"], "spec.filters.attempts.max"),
        (["--limit", "6"], "spec.limits.max_records"),
    ],
)
def test_a_flag_that_contradicts_the_file_is_refused(lite: str, tmp_path: Path, flags: list[str], path: str) -> None:
    full = (
        SPEC + "    status: [failed]\n    error_codes: [io_error]\n    attempts: {max: 3}\n  limits: {max_records: 5}\n"
    )
    file = written(tmp_path, full)
    for command in ("select", "dry-run", "inspect"):
        outcome = replay(lite, command, "--selection-file", file, *flags, "--json")
        assert refused(outcome) == (2, "bad_input", path)
        assert outcome.json["context"]["flag"].split("-in")[0] == flags[0].split("-in")[0]


@pytest.mark.req("K-52")
def test_a_flag_that_agrees_with_the_file_is_taken(lite: str, tmp_path: Path) -> None:
    file = written(tmp_path, SPEC + "    error_codes: [io_error, other]\n")
    alone = replay(lite, "dry-run", "--selection-file", file, "--json").json
    same = ["--queue-in", "goes-abi", "--created-after", "2020-01-01T06:00:00+06:00"]
    same += ["--error-code-in", "other,io_error"]
    beside = replay(lite, "dry-run", "--selection-file", file, *same, "--json").json
    assert beside["selection_hash"] == alone["selection_hash"]


@pytest.mark.req("K-52")
def test_a_flag_fills_in_what_the_file_leaves_open(lite: str, tmp_path: Path) -> None:
    file = written(tmp_path, SPEC)
    more = ["--created-before", "2099-01-01T00:00:00Z", "--error-code", "io_error", "--attempts-max", "1"]
    answer = replay(
        lite, "dry-run", "--selection-file", file, *more, "--limit", "3", "--batch-size", "2", "--json"
    ).json
    assert (answer["total"], answer["batches"]) == (3, 2)
    selection = answer["selection"]
    assert selection["filters"]["created_at"] == {"start": "2020-01-01T00:00:00Z", "end": "2099-01-01T00:00:00Z"}
    assert (selection["filters"]["error_codes"], selection["filters"]["attempts"]["max"]) == (["io_error"], 1)
    assert selection["limits"] == {"max_records": 3, "batch_size": 2, "max_batches": None}
    assert (selection["name"], selection["filters"]["queues"]) == ("goes", ["goes-abi"])


@pytest.mark.parametrize("what", ["created_at: []", "created_at: 5", "created_at: {start: 5}"])
def test_a_wrong_field_of_the_file_is_refused_although_a_flag_sets_it(lite: str, tmp_path: Path, what: str) -> None:
    file = written(tmp_path, SPEC.replace("created_at: {start: 2020-01-01T00:00:00Z}", what))
    outcome = replay(lite, "select", "--selection-file", file, "--created-before", "2099-01-01T00:00:00Z", "--json")
    assert refused(outcome)[1:] == ("spec_invalid", "spec.filters.created_at" + (".start" if "start" in what else ""))
    assert outcome.json["context"]["file"] == file


@pytest.mark.req("K-54")
def test_a_file_for_another_environment(lite: str, tmp_path: Path) -> None:
    file = written(tmp_path, SPEC.replace("env: dev", "env: prod"))
    for command in (["select", "--selection-file", file], ["from-spec", file, "--run", *DO]):
        outcome = replay(lite, *command, "--env", "dev", "--json")
        assert refused(outcome) == (2, "spec_invalid", "metadata.env")
        outcome = replay(lite, *command, "--json")
        assert refused(outcome) == (3, "env_mismatch", "env_mismatch")


# ---------------------------------------------------------------------------------------------------------------------
# Bad input

BAD_FLAGS: list[tuple[list[str], str | None]] = [
    (["--created-after", "2026-01-01T00:00:00"], "spec.filters.created_at.start"),
    (["--created-before", "2026-01-01"], "spec.filters.created_at.end"),
    (["--event-time-start", "2h"], "spec.filters.event_time.start"),
    (["--event-time-end", ""], "spec.filters.event_time.end"),
    ([*SINCE, "--created-before", "2020-01-01T00:00:00Z"], "spec.filters.created_at.end"),
    (["--queue", ""], "spec.filters.queues[0]"),
    (["--queue-in", "a,,b"], "spec.filters.queues[1]"),
    (["--queue", "\udcff"], "spec.filters.queues[0]"),
    (["--operation", "o" * 1025], "spec.filters.operations[0]"),
    (["--status", "lost"], "spec.filters.status[0]"),
    (["--status", "failed,running"], "spec.filters.status[1]"),
    (["--status", "quarantined"], "spec.filters.status"),
    (["--error-code-in", ","], "spec.filters.error_codes[0]"),
    (["--attempts-max", "-1"], None),
    (["--attempts-max", "many"], None),
    (["--limit", "0"], None),
    (["--limit", str(2**31)], None),
    (["--env", "test"], "--env"),
    (["--selection-file", "{dir}/none.yaml"], None),
    (["--selection-file", "{dir}"], None),
    (["--config", "{dir}/none.yaml"], None),
    (["--nonsense"], None),
    (["something"], None),
]


@pytest.mark.req("K-53")
@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("flags, path", BAD_FLAGS, ids=[" ".join(map(repr, flags))[:50] for flags, _ in BAD_FLAGS])
def test_flags_that_cannot_be_taken(
    sqlite_url: str, tmp_path: Path, flags: list[str], path: str | None, form: str
) -> None:
    given = [word.format(dir=tmp_path) for word in flags]
    # There is no ledger: wrong arguments are refused before it is opened.
    outcome = replay(sqlite_url, "select", *given, "--output", form)
    assert outcome.code == 2
    assert outcome.error_code in ("bad_input", "spec_invalid")
    if form == "json":
        assert refused(outcome)[2] == path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ["run", "--continue", "r", *GOES],
        ["run", "--continue", "r", "--batch-size", "5"],
        ["run", "--continue", "r", "--dry-run-file", "{dir}/d.json"],
        ["run", "--dry-run-file", "{dir}/d.json", "--mode", "backfill"],
        ["run", "--dry-run-file", "{dir}/d.json", "--selection-file", "{dir}/s.yaml"],
        ["run", *GOES, "--stop-after", "0"],
        ["run", *GOES, "--grant", "0"],
        ["run", *GOES, "--mode", "everything"],
        ["run", *GOES, "--batch-size", "0"],
        ["run", *GOES, "--max-batches", "x"],
        ["dry-run", *GOES, "--mode", "repair-and-replace"],  # of failed jobs
        ["select", "--show-examples", "-1"],
        ["stop", "r"],
    ],
    ids=lambda command: " ".join(command)[:60],
)
def test_commands_that_cannot_be_taken(lite: str, tmp_path: Path, command: list[str]) -> None:
    before = sum_of(lite)
    given = [word.format(dir=tmp_path) for word in command]
    outcome = replay(lite, *given, *(DO if given[0] == "run" else ()), "--json")
    assert outcome.code == 2
    assert outcome.error_code in ("bad_input", "spec_invalid")
    assert sum_of(lite) == before


@pytest.mark.parametrize(
    "text, path",
    [
        ("[]", "(document)"),
        ("{}", "selection"),
        ('{"selection": {"name": "s", "env": "dev", "filters": {"queues": ["a"], "queue": 1}}}',
         "selection.filters.queue"),
    ],
)  # fmt: skip
def test_a_dry_run_that_was_not_saved_here(lite: str, tmp_path: Path, text: str, path: str) -> None:
    outcome = replay(lite, "run", "--dry-run-file", written(tmp_path, text, "d.json"), *DO, "--json")
    assert refused(outcome) == (2, "spec_invalid", path)


def test_a_dry_run_that_was_changed_by_hand_is_refused(lite: str, tmp_path: Path) -> None:
    saved = tmp_path / "d.json"
    assert replay(lite, "dry-run", *GOES, "--save", str(saved)).code == 0
    saved_plan = json.loads(saved.read_bytes())
    for change, expected in (
        ({"filters": {**saved_plan["selection"]["filters"], "queues": ["goes-abi", "hrrr"]}}, (3, "plan_stale", None)),
        ({"filters": {**saved_plan["selection"]["filters"], "status": ["pending"]}},
         (2, "spec_invalid", "spec.filters.status[0]")),
        ({"env": "prod"}, (3, "env_mismatch", "env_mismatch")),
    ):  # fmt: skip
        saved.write_text(json.dumps({**saved_plan, "selection": {**saved_plan["selection"], **change}}))
        assert refused(replay(lite, "run", "--dry-run-file", str(saved), *DO, "--json")) == expected
    assert states_of(lite) == {"failed": 8}


def test_a_dry_run_of_another_ledger_is_refused(lite: str, tmp_path: Path) -> None:
    saved = str(tmp_path / "d.json")
    assert replay(lite, "dry-run", *GOES, "--save", saved).code == 0
    other = failed_jobs(lite.replace("ledger.db", "other.db"))
    outcome = replay(other, "run", "--dry-run-file", saved, *DO, "--json")
    assert (outcome.code, outcome.error_code) == (3, "plan_stale")
    assert states_of(other) == {"failed": 8}


# ---------------------------------------------------------------------------------------------------------------------
# Overlays


def overlay(env: str = "dev", **sections: Any) -> dict[str, Any]:
    head = {"apiVersion": "holdfast.env/v1", "kind": "EnvOverlay", "metadata": {"env": env}}
    return {**head, **sections}


def test_an_overlay_sets_limits() -> None:
    made = overlay_of(
        overlay(
            replay_defaults={
                "max_attempts": 3,
                "max_batch_size": 50,
                "max_batches": 7,
                "max_selection_records": 200,
                "rate_limits": {"max_records_per_second": 0.5, "max_batches_per_minute": 6},
            },
            safety_flags={"allow_global_replay": False, "kill_switch_defaults": {"hrrr": True, "gfs": False}},
        )
    )
    policy = made.policy
    assert (policy.max_batch_size, policy.batch_size, policy.max_batches, policy.max_selection_records) == (
        50, 50, 7, 200,
    )  # fmt: skip
    assert (policy.max_records_per_second, policy.max_batches_per_minute) == (0.5, 6)
    assert (policy.allow_global_replay, made.attempts_max, made.stopped) == (False, 2, frozenset({"hrrr"}))
    assert overlay_of(overlay()).policy == policy_of("dev")
    assert overlay_of(overlay("prod", replay_defaults={"max_batches": 100})).policy.max_batches == 100


@pytest.mark.req("K-55")
@pytest.mark.parametrize(
    "tree, path",
    [
        (overlay() | {"apiVersion": "kfm.nodd.env/v1alpha1"}, "apiVersion"),
        (overlay() | {"kind": "ReplaySelection"}, "kind"),
        (overlay("test"), "metadata.env"),
        (overlay() | {"metadata": {}}, "metadata.env"),
        (overlay(everything={}), "everything"),
        (overlay(replay_defaults={"lease_s": 1}), "replay_defaults.lease_s"),
        (overlay(replay_defaults={"grant_above": 10**9}), "replay_defaults.grant_above"),
        (overlay(replay_defaults={"rate_limits": {"max": 1}}), "replay_defaults.rate_limits.max"),
        (overlay(replay_defaults={"rate_limits": {"max_records_per_second": 0}}),
         "replay_defaults.rate_limits.max_records_per_second"),
        (overlay(replay_defaults={"rate_limits": {"max_records_per_second": float("inf")}}),
         "replay_defaults.rate_limits.max_records_per_second"),
        (overlay(replay_defaults={"max_batches": 0}), "replay_defaults.max_batches"),
        (overlay(replay_defaults={"max_batch_size": 2.5}), "replay_defaults.max_batch_size"),
        (overlay(replay_defaults={"max_attempts": 0}), "replay_defaults.max_attempts"),
        (overlay(safety_flags={"allow_ignoring_switches": True}), "safety_flags.allow_ignoring_switches"),
        (overlay(safety_flags={"kill_switch_defaults": {"hrrr": "on"}}), "safety_flags.kill_switch_defaults.hrrr"),
        # In prod nothing is loosened.
        (overlay("prod", safety_flags={"allow_global_replay": True}), "safety_flags.allow_global_replay"),
        (overlay("prod", replay_defaults={"max_batches": 101}), "replay_defaults.max_batches"),
        (overlay("prod", replay_defaults={"rate_limits": {"max_records_per_second": 50.5}}),
         "replay_defaults.rate_limits.max_records_per_second"),
    ],
)  # fmt: skip
def test_an_overlay_overrides_only_what_is_declared(tree: dict[str, Any], path: str) -> None:
    with pytest.raises(SpecInvalidError) as caught:
        overlay_of(tree)
    assert caught.value.context["path"] == path


def test_the_limits_of_an_overlay_hold(lite: str, tmp_path: Path) -> None:
    tight = written(tmp_path, json.dumps(overlay(replay_defaults={"max_batch_size": 2, "max_batches": 2})), "o.json")
    planned = replay(lite, "dry-run", *GOES, "--config", tight, "--json")
    assert (planned.code, planned.json["batch_size"], planned.json["batches"]) == (3, 2, 3)
    assert refused(replay(lite, "run", *GOES, *DO, "--config", tight, "--json"))[1] == "selection_too_large"
    assert refused(replay(lite, "run", *GOES, *DO, "--config", tight, "--batch-size", "3", "--json"))[1] == (
        "selection_too_large"
    )
    assert replay(lite, "run", *GOES, *DO, "--config", tight, "--limit", "4", "--json").json["batches"] == 2
    assert refused(replay(lite, "select", *GOES, "--config", tight, "--env", "prod", "--json")) == (
        2, "spec_invalid", "metadata.env",
    )  # fmt: skip


def test_an_overlay_leaves_out_jobs_with_too_many_attempts(lite: str, tmp_path: Path) -> None:
    once = written(tmp_path, json.dumps(overlay(replay_defaults={"max_attempts": 1})), "1.json")
    twice = written(tmp_path, json.dumps(overlay(replay_defaults={"max_attempts": 2})), "2.json")
    answer = replay(lite, "dry-run", *GOES, "--config", once, "--json").json
    assert (answer["selection"]["filters"]["attempts"], answer["total"]) == ({"min": None, "max": 0}, 0)
    assert replay(lite, "dry-run", *GOES, "--config", twice, "--json").json["total"] == 5
    assert replay(lite, "dry-run", *GOES, "--config", twice, "--attempts-max", "0", "--json").json["total"] == 0
    more = replay(lite, "run", *GOES, *DO, "--config", twice, "--attempts-max", "2", "--json")
    assert refused(more) == (3, "attempts_exceeded", "attempts_exceeded")
    assert len(replay(lite, "inspect", *GOES, "--config", once, "--json").json) == 5


@pytest.mark.req("K-55")
def test_the_kill_switches_of_an_overlay(lite: str, tmp_path: Path) -> None:
    flags = {"kill_switch_defaults": {"hrrr": True, "goes-abi": False}}
    config = written(tmp_path, json.dumps(overlay(safety_flags=flags)), "o.json")
    for command in (["dry-run"], ["run", *DO]):
        outcome = replay(lite, *command, "--queue", "hrrr", *SINCE, "--config", config, "--json")
        assert refused(outcome) == (3, "kill_switch_active", "kill_switch_active")
    broad = replay(lite, "run", *SINCE, *DO, "--config", config, "--json").json
    assert broad["replayed"] == 5
    assert states_of(lite) == {"failed": 3, "pending": 5}
    ignoring = written(tmp_path, SPEC.replace("goes-abi", "hrrr") + "  options: {respect_kill_switch: false}\n")
    assert replay(lite, "dry-run", "--selection-file", ignoring, "--config", config, "--json").json["total"] == 3
