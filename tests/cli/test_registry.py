"""`holdfast registry`: drafting, requesting, building, listing, verifying and holding, by the command alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.manifest import read_manifest
from tests.cli.commands import Outcome, holdfast
from tests.governance.registries import STATES, by_hand, value

APP = '''
from holdfast import Execution, Ledger, Operations

ledger = Ledger("nowhere.db")
bare = Operations()
empty = Operations()


@ledger.operation("thumbnail", version="1.2.0")
def thumbnail(run: Execution, path: str, width: int = 64) -> None:
    """Make a small picture
    of a large one."""


@bare.operation("notify")
def notify(run: Execution, url: str) -> None: ...
'''

MANIFEST = {"collection": "operations", "values": [value("thumbnail"), value("notify", "2.1.0")]}
REAL = ("--mode", "REAL_RUN", "--operator", "ann", "--reason", "release 7", "--json")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "operations.json"
    path.write_text(json.dumps(MANIFEST), encoding="utf-8")
    return str(path)


def registry(url: str, command: str, *arguments: str) -> Outcome:
    return holdfast("registry", command, "--db", url, *arguments)


def governed(url: str, environment: str = "dev") -> str:
    assert holdfast("init", "--db", url, "--governed", "--env", environment).code == 0
    return url


# ---------------------------------------------------------------------------------------------------------------------
# Building


@pytest.mark.req("L-22", "L-25")
def test_a_build_is_a_dry_run_by_default(empty_url: str, file: str) -> None:
    url, wanted = governed(empty_url), read_manifest(MANIFEST)
    shown = registry(url, "build", file, "--reason", "release 7", "--json")
    assert shown.code == 0
    answer = shown.json
    assert {name: answer[name] for name in (
        "ok", "collection", "manifest_hash", "op_count", "preflight", "mode", "verdict", "state", "authority",
        "persistent_state", "seal", "code", "failure", "root",
    )} == {
        "ok": True, "collection": "operations", "manifest_hash": wanted.digest, "op_count": 2, "preflight": "GO",
        "mode": "DRY_RUN", "verdict": "GO", "state": "none", "authority": "REJECT_AUTH_MISSING",
        "persistent_state": "NONE", "seal": "WITHHELD_DRY_RUN", "code": None, "failure": None,
        "root": f"operations:{wanted.digest[:16]}",
    }  # fmt: skip
    assert [gate["verdict"] for gate in answer["gates"]] == ["GO"] * 9
    assert registry(url, "list", "--json").json == []
    assert registry(url, "list", "--all", "--json").json == []
    assert registry(url, "list").tells("in force")

    done = registry(url, "build", file, "--expect", wanted.digest, *REAL)
    assert (done.code, done.json["verdict"], done.json["state"]) == (0, "DONE", "done")
    assert [step["name"] for step in done.json["steps"]] == list(STATES)
    rows = registry(url, "list", "--json").json
    assert [(row["operation_code"], row["protocol_version"], row["state"], row["status"]) for row in rows] == [
        ("notify", "2.1.0", "active", "in force"), ("thumbnail", "1.0.0", "active", "in force"),
    ]  # fmt: skip
    verified = registry(url, "verify", "--json")
    assert (verified.code, verified.json) == (0, {"ok": True, "in_force": 2, "faults": []})
    assert holdfast("check", "--db", url, "--json").json["ok"] is True
    again = registry(url, "build", file, *REAL)
    assert (again.code, {step["fate"] for step in again.json["steps"]}) == (0, {"skipped"})


@pytest.mark.req("L-04", "L-15")
def test_in_stage_a_build_needs_a_grant_for_exactly_this_manifest(sqlite_url: str, file: str) -> None:
    url = governed(sqlite_url, "stage")
    refused = registry(url, "build", file, *REAL)
    assert (refused.code, refused.error_code) == (3, "REJECT_AUTH_MISSING")
    # The request that it prints can be typed.
    command = refused.json["context"]["next_step"].partition("`")[2].partition("`")[0].split()
    assert command[-4:] == ["--rollback-plan", "TEXT", "--reason", "TEXT"]
    rehearsed = registry(url, "build", file, "--operator", "ann", "--reason", "release 7")
    assert rehearsed.out.splitlines()[-1] == f"next: {' '.join(command)}"
    answer = holdfast(*command[1:], "--operator", "ann", "--db", url, "--json").json
    assert (answer["action"], answer["target"], answer["state"]) == ("registry.build", "registry:operations", "draft")
    scope = json.loads(answer["scope"])
    assert (scope["manifest"], scope["executor"], scope["actions"]) == (
        read_manifest(MANIFEST).digest, "ann", sorted(STATES),
    )  # fmt: skip
    number = str(answer["grant_id"])
    assert holdfast("grant", "approve", number, "--as", "bob", "--db", url).code == 0
    assert registry(url, "build", file, "--grant", number, *REAL).json["verdict"] == "DONE"
    used = registry(url, "build", file, "--grant", number, "--root", "again", *REAL)
    assert (used.code, used.error_code) == (3, "REJECT_AUTH_ALREADY_CONSUMED")


@pytest.mark.req("L-08")
def test_the_run_of_a_build_is_listed_by_procedure(sqlite_url: str, file: str) -> None:
    url = governed(sqlite_url)
    registry(url, "build", file, "--root", "release-7", *REAL)
    shown = holdfast("procedure", "show", "release-7", "--db", url, "--json")
    assert shown.code == 0
    assert "registry.build" in shown.out


def test_people_see_what_a_build_would_do(sqlite_url: str, file: str) -> None:
    url = governed(sqlite_url, "prod")
    shown = registry(url, "build", file, "--reason", "release 7")
    assert shown.code == 3
    assert "ABORT_PREFLIGHT" in shown.out
    [gate] = [line for line in shown.out.splitlines() if line.startswith("PF1")]
    assert gate.split()[:4] == ["PF1", "collection", "NO_GO", "REJECT_PRODUCTION_TARGET"]
    done = registry(governed(f"{sqlite_url}2"), "build", file, "--reason", "release 7", "--mode", "REAL_RUN")
    assert done.code == 0
    assert "S7_FINALIZE" in done.out


# ---------------------------------------------------------------------------------------------------------------------
# Manifests


@pytest.mark.parametrize(
    "name, text",
    [
        ("m.json", json.dumps(MANIFEST)),
        ("m.txt", json.dumps(MANIFEST)),
        ("m.toml", 'collection = "operations"\n' + "".join(
            f'[[values]]\noperation_code = "{code}"\nprotocol_version = "{version}"\nact_type = "operation"\n'
            'governing_authority_ref = "board:7"\nsemantics_frozen = {description = "does it"}\n'
            for code, version in (("thumbnail", "1.0.0"), ("notify", "2.1.0"))
        )),
        ("m.yaml", "collection: operations\nvalues:\n" + "".join(
            f"- operation_code: {code}\n  protocol_version: {version}\n  act_type: operation\n"
            '  governing_authority_ref: "board:7"\n  semantics_frozen: {description: does it}\n'
            for code, version in (("thumbnail", "1.0.0"), ("notify", "2.1.0"))
        )),
    ],
    ids=["json", "any", "toml", "yaml"],
)  # fmt: skip
def test_a_manifest_is_the_same_in_any_form(sqlite_url: str, tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    answer = registry(governed(sqlite_url), "build", str(path), "--reason", "x", "--mode", "PLAN_ONLY", "--json").json
    assert (answer["manifest_hash"], answer["preflight"]) == (read_manifest(MANIFEST).digest, "NOT_ASKED")


BAD: dict[str, tuple[str | bytes, int, str, str | None]] = {
    "m.json": ("{", 2, "spec_invalid", "(document)"),
    "twice.json": ('{"collection": "c", "collection": "d"}', 2, "spec_invalid", "(document)"),
    "list.json": ("[]", 2, "spec_invalid", "$"),
    "bytes.toml": (b"\xff", 2, "spec_invalid", "(document)"),
    "m.toml": ("values = ", 2, "spec_invalid", "(document)"),
    "m.yaml": ("- 1", 2, "spec_invalid", "(document)"),
    "field.json": ('{"values": [], "more": 1}', 2, "spec_invalid", "more"),
    "deep.json": (json.dumps({"values": [{**value("a"), "operation_code": 7}]}), 2, "spec_invalid",
                  "values[0].operation_code"),
    "none.json": ('{"values": []}', 3, "REJECT_MISSING_PLAN", None),
    "version.json": (json.dumps({"values": [value("a", "1")]}), 3, "REJECT_BAD_PROTOCOL_VERSION",
                     "values[0].protocol_version"),
}  # fmt: skip


@pytest.mark.req("L-13")
@pytest.mark.parametrize("name", BAD)
def test_bad_manifests_are_refused_with_the_path_of_the_field(sqlite_url: str, tmp_path: Path, name: str) -> None:
    text, code, error, path = BAD[name]
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    refused = registry(governed(sqlite_url), "build", str(file), *REAL)
    assert (refused.code, refused.error_code) == (code, error)
    assert refused.json["context"].get("path") == path


@pytest.mark.req("L-13")
def test_bad_input_has_its_code_and_leaves_nothing(sqlite_url: str, file: str, tmp_path: Path) -> None:
    url = governed(sqlite_url)
    for arguments, code, error in (
        ((file, "--mode", "FORCE"), 3, "REJECT_BAD_MODE"),
        ((file, "--expect", "0" * 64), 3, "REJECT_MANIFEST_HASH_MISMATCH"),
        ((file, "--grant", "77"), 3, "REJECT_AUTH_NOT_FOUND"),
        ((file, "--root", " "), 2, "bad_input"),
        ((str(tmp_path / "missing.json"),), 2, "bad_input"),
        ((str(tmp_path),), 2, "bad_input"),
    ):
        refused = registry(url, "build", *REAL, *arguments)
        assert (refused.code, refused.error_code) == (code, error), arguments
    assert registry(url, "build", file, "--json").error_code == "bad_input"  # no reason
    assert registry(url, "list", "--all", "--json").json == []


# ---------------------------------------------------------------------------------------------------------------------
# Looking


def test_a_value_is_shown_with_its_history(sqlite_url: str, file: str) -> None:
    url = governed(sqlite_url)
    registry(url, "build", file, *REAL)
    [value] = registry(url, "show", "notify@2.1.0", "--json").json
    assert (value["operation_code"], value["authority_ref"], value["semantics"]) == (
        "notify", "board:7", {"description": "does it"},
    )  # fmt: skip
    [entry] = value["journal"]
    assert (entry["event"], entry["target"], entry["actor"], entry["reason"]) == (
        "admit", "active", "ann", "release 7",
    )  # fmt: skip
    assert [row["protocol_version"] for row in registry(url, "show", "notify", "--json").json] == ["2.1.0"]
    shown = registry(url, "show", "notify").out
    assert "board:7" in shown
    assert "release 7" in shown
    missing = registry(url, "show", "notify@9.9.9", "--json")
    assert (missing.code, missing.error_code) == (1, "record_not_found")


def test_a_changed_value_is_found(empty_url: str, file: str) -> None:
    url = governed(empty_url)
    registry(url, "build", file, *REAL)
    by_hand(url, "UPDATE holdfast_collections SET schema = '{}'")
    found = registry(url, "verify", "--json")
    assert (found.code, found.json["ok"]) == (1, False)
    [fault] = found.json["faults"]
    assert (fault["code"], fault["subject"]) == ("REJECT_WRONG_CARRIER", "operations")
    assert set(fault) == {"code", "subject", "detail"}
    assert registry(url, "verify").out.startswith("NOT OK: 2 values in force\n")


# ---------------------------------------------------------------------------------------------------------------------
# Holding


@pytest.mark.req("L-22")
def test_the_hold_is_thrown_without_a_grant_and_lifted_with_a_reason(empty_url: str, file: str) -> None:
    url = governed(empty_url)
    assert registry(url, "hold", "--json").json == {"held": False, "changed": False, "switch": None}
    thrown = registry(url, "hold", "on", "--operator", "bob", "--reason", "an incident", "--json").json
    assert (thrown["held"], thrown["changed"], thrown["switch"]["reason"]) == (True, True, "an incident")
    assert registry(url, "hold").tells("REGISTRATION_HOLD", "on", "bob", "an incident")
    assert registry(url, "hold", "off", "--json").error_code == "bad_input"
    refused = registry(url, "build", file, *REAL)
    assert (refused.code, refused.error_code) == (3, "C1_PROD_REAL_RUN_BLOCKED")
    lifted = registry(url, "hold", "off", "--operator", "bob", "--reason", "over", "--json").json
    assert (lifted["held"], lifted["changed"], lifted["switch"]["state"]) == (False, True, "off")
    assert registry(url, "build", file, *REAL).code == 0


@pytest.mark.req("L-22")
def test_a_governed_prod_ledger_is_on_hold_and_reports_it(sqlite_url: str) -> None:
    url = governed(sqlite_url, "prod")
    assert registry(url, "hold").tells("REGISTRATION_HOLD", "on", "default")
    refused = registry(url, "hold", "off", "--reason", "release 7", "--json")
    assert (refused.code, refused.error_code) == (3, "REJECT_AUTH_MISSING")


# ---------------------------------------------------------------------------------------------------------------------
# Drafting


def test_a_manifest_is_drafted_from_an_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "drafted_app.py").write_text(APP, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def draft(name: str, *arguments: str) -> Outcome:
        return holdfast("registry", "draft", "--app", f"drafted_app:{name}", "--authority", "board:7", *arguments)

    written = draft("ledger", "--env", "stage", "--out", "m.json", "--json")
    assert written.code == 0
    document: dict[str, Any] = json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))
    made = read_manifest(document)
    assert written.json == {"file": "m.json", "manifest_hash": made.digest, "op_count": 1}
    assert (made.collection, made.environment, [each.name for each in made.values]) == (
        "operations", "stage", ["thumbnail@1.2.0"],
    )  # fmt: skip
    assert made.values[0].semantics_frozen["description"] == "Make a small picture of a large one."
    assert draft("ledger", "--out", "m.json", "--json").error_code == "file_exists"
    printed = draft("bare")
    assert read_manifest(json.loads(printed.out)).values[0].name == "notify@1.0.0"
    assert draft("empty", "--json").error_code == "bad_input"
    assert draft("nothing", "--json").error_code == "bad_input"
    assert not (tmp_path / "nowhere.db").exists()


# ---------------------------------------------------------------------------------------------------------------------
# Dispatching and dismantling


@pytest.mark.req("L-11")
def test_a_request_is_validated_and_observed_and_not_carried_out(empty_url: str, file: str) -> None:
    url = governed(empty_url)
    how = ("--correlation", "release-7", "--operator", "ann", "--manifest", file, "--root", "DRYRUN-NS:r7", "--json")
    valid = registry(url, "dispatch", "DOT_C1_VOCAB_BUILD", "--mode", "DRY_RUN", "--observe", *how)
    assert (valid.code, valid.json["validated"], valid.json["true_dry_run_possible"]) == (0, True, True)
    again = registry(url, "dispatch", "DOT_C1_VOCAB_BUILD", "--mode", "DRY_RUN", "--observe", *how)
    assert again.json == valid.json
    unknown = registry(url, "dispatch", "DOT_C1_NOTHING", *how)
    assert (unknown.code, unknown.json["blocker"]) == (3, "REJECT_CONTRACT_UNKNOWN")
    bad = Path(file).with_name("bad.json")
    for text in ('{"values": []}', '{"values": 1}', '["values"]', '{"values": [{"operation_code": 1}]}'):
        bad.write_text(text, encoding="utf-8")
        wrong = ("--correlation", "r", "--manifest", str(bad), "--root", "DRYRUN-NS:r8", "--json")
        invalid = registry(url, "dispatch", "DOT_C1_VOCAB_BUILD", "--mode", "DRY_RUN", *wrong)
        assert (invalid.code, invalid.json["blocker"]) == (3, "REJECT_FIXTURE_INVALID")
        refused = registry(url, "dispatch", "DOT_C1_VOCAB_BUILD", "--mode", "REAL_RUN", *wrong)
        assert (refused.code, refused.error_code) == (3, "C1_PROD_REAL_RUN_BLOCKED")
    real = registry(url, "dispatch", "DOT_C1_VOCAB_BUILD", "--mode", "REAL_RUN", *how)
    assert (real.code, real.error_code) == (3, "C1_PROD_REAL_RUN_BLOCKED")
    assert registry(url, "dispatch", "DOT_C1_VOCAB_VERIFY", "--correlation", "r").tells("validated", "True")
    assert registry(url, "list", "--all", "--json").json == []


@pytest.mark.req("L-20")
def test_a_dev_collection_is_dismantled_and_built_again(empty_url: str, file: str) -> None:
    url = governed(empty_url)
    registry(url, "build", file, *REAL)
    assert registry(url, "dismantle", "operations", "--reason", "rehearse").tells("DRY_RUN", "GO")
    assert len(registry(url, "list", "--json").json) == 2
    done = registry(url, "dismantle", "operations", *REAL)
    assert (done.code, done.json["verdict"]) == (0, "DONE")
    assert registry(url, "list", "--json").json == []
    assert len(registry(url, "list", "--all", "--json").json) == 2
    assert registry(url, "verify", "--json").json["ok"]
    assert holdfast("check", "--db", url, "--json").json["ok"] is True
    assert registry(url, "build", file, *REAL).code == 0
    assert len(registry(url, "list", "--json").json) == 2
