"""`holdfast audit` on both databases: verify, head, export, keygen, and what can be wrong with their input."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.store import open_store
from tests.audit.sealing import as_hashed, guards_off, rewrite_all, seals
from tests.cli.commands import BARS_AT_ONCE, PROGRAM, clean_environment, holdfast, process
from tests.enforcement.schema import everything_in


@pytest.fixture
def sealed(history: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A ledger with a history, sealed, and a directory to work in."""
    monkeypatch.chdir(tmp_path)
    assert holdfast("audit", "head", "--db", history).code == 0
    return history


def rows_of(url: str) -> int:
    with open_store(url) as store, store.reading() as reading:
        return int(reading.execute("SELECT count(*) FROM holdfast_journal")[0][0])


def keep(url: str, name: str, *options: str) -> dict[str, object]:
    """Keep the head of a ledger in a file, and return it."""
    said = holdfast("audit", "head", "--json", "--db", url, *options)
    Path(name).write_text(said.out)
    value: dict[str, object] = said.json
    return value


# ---------------------------------------------------------------------------------------------------------------------
# head, verify


@pytest.mark.req("G-23")
def test_head_seals_the_journal_and_verify_reports_it(history: str) -> None:
    rows = rows_of(history)
    before = holdfast("audit", "verify", "--json", "--db", history)
    assert (before.code, before.json["sealed"], before.json["unsealed"]) == (0, 0, rows)
    assert before.json["head"] == {
        "ledger_id": before.json["head"]["ledger_id"],
        "epoch": 1,
        "seal": 0,
        "hash": hashlib.sha256(f"holdfast:{before.json['head']['ledger_id']}".encode()).hexdigest(),
        "rows": 0,
        "sealed_at": None,
    }
    head = holdfast("audit", "head", "--json", "--db", history)
    assert list(head.json) == ["ledger_id", "epoch", "seal", "hash", "rows", "sealed_at"]
    assert (head.code, head.json["seal"], head.json["rows"]) == (0, 1, rows)
    after = holdfast("audit", "verify", "--json", "--db", history)
    assert after.code == 0
    assert after.json == {
        "ok": True, "sealed": rows, "unsealed": 0, "archived": 0, "head": head.json, "problems": [],
    }  # fmt: skip


def test_verify_and_head_print_the_facts_as_text(sealed: str) -> None:
    head = keep(sealed, "head.json")
    said = holdfast("audit", "verify", "--db", sealed)
    assert said.tells("ok", head["rows"], 0, "seal 1", head["hash"])
    with_head = holdfast("audit", "verify", "--head", "head.json", "--db", sealed)
    assert with_head.tells("ok", "seal 1", "seal 1", "not signed")
    shown = holdfast("audit", "head", "--db", sealed)
    assert [line.split() for line in shown.out.splitlines()] == [[name, str(value)] for name, value in head.items()]


@pytest.mark.req("G-23")
def test_tampering_ends_with_exit_code_1_and_its_place(sealed: str) -> None:
    with guards_off(sealed) as client:
        client.run("UPDATE holdfast_journal SET actor = 'some\x1bbody' WHERE seq = 3")
        [row] = client.run("SELECT min(seq), max(seq), min(at), max(at) FROM holdfast_journal")
    low, high, first, last = as_hashed(row)
    found = holdfast("audit", "verify", "--json", "--db", sealed)
    assert (found.code, found.json["ok"]) == (1, False)
    [problem] = found.json["problems"]
    assert list(problem) == ["kind", "seal", "seq", "to_seq", "at", "to_at", "detail"]
    assert (problem["kind"], problem["seal"]) == ("block_differs", 1)
    assert (problem["seq"], problem["to_seq"], problem["at"], problem["to_at"]) == (low, high, first, last)
    people = holdfast("audit", "verify", "--db", sealed)
    assert (people.code, people.err) == (1, "")
    assert people.out.startswith("NOT OK: ")
    assert f"block_differs      1   {low} to {high}" in people.out


def test_a_chain_that_was_cut_off_is_not_sealed_over(sealed: str) -> None:
    with guards_off(sealed) as client:
        client.run("DELETE FROM holdfast_seals")
    refused = holdfast("audit", "head", "--json", "--db", sealed)
    assert (refused.code, refused.error_code) == (1, "seals_broken")
    found = holdfast("audit", "verify", "--json", "--db", sealed)
    assert (found.code, [p["kind"] for p in found.json["problems"]]) == (1, ["seal_missing"])


# ---------------------------------------------------------------------------------------------------------------------
# Kept heads and keys


@pytest.mark.req("G-23")
def test_a_full_rewrite_is_found_through_a_head_signed_or_not(sealed: str) -> None:
    assert holdfast("audit", "keygen", "key", "--json").json == {"private_key": "key", "public_key": "key.pub"}
    keep(sealed, "plain.json")
    signed = keep(sealed, "signed.json", "--sign", "key")
    assert list(signed)[-2:] == ["signature", "public_key"]
    good = holdfast("audit", "verify", "--head", "signed.json", "--public-key", "key.pub", "--db", sealed)
    assert (good.code, good.out.splitlines()[-1]) == (
        0, f"saved head: seal 1 is in the chain, signed by {signed['public_key']}",
    )  # fmt: skip
    with guards_off(sealed) as client:
        client.run("UPDATE holdfast_journal SET actor = 'somebody' WHERE seq = 3")
        rewrite_all(client)
    assert holdfast("audit", "verify", "--db", sealed).code == 0
    for options in (["--head", "plain.json"], ["--head", "signed.json", "--public-key", "key.pub"]):
        found = holdfast("audit", "verify", "--json", "--db", sealed, *options)
        assert (found.code, [(p["kind"], p["seal"]) for p in found.json["problems"]]) == (1, [("head_differs", 1)])


def test_heads_that_were_kept_line_by_line_are_all_compared(sealed: str) -> None:
    """As the guide has it: `audit head --json >> heads.jsonl`, every hour."""
    heads = Path("heads.jsonl")
    for _ in range(2):
        with heads.open("a") as kept:
            kept.write(holdfast("audit", "head", "--json", "--db", sealed).out)
        assert holdfast("submit", "noop", "{}", "--db", sealed).code == 0
    said = holdfast("audit", "verify", "--head", "heads.jsonl", "--db", sealed)
    assert said.tells("saved heads", 2, "seal 2", "not signed")
    first, second = heads.read_text().splitlines()
    heads.write_text(json.dumps({**json.loads(first), "seal": 2}) + "\n" + second + "\n")
    found = holdfast("audit", "verify", "--head", "heads.jsonl", "--json", "--db", sealed)
    assert (found.code, [(p["kind"], p["seal"]) for p in found.json["problems"]]) == (1, [("head_differs", 2)])


def test_bad_heads_and_keys_are_refused_with_a_code(sealed: str, sqlite_url: str) -> None:
    for name in ("key", "other"):
        assert holdfast("audit", "keygen", name).code == 0
    keep(sealed, "head.json", "--sign", "key")
    text = Path("head.json").read_text()
    Path("short.json").write_text(text[:100])
    Path("altered.json").write_text(text.replace('"seal": 1', '"seal": 2'))
    Path("plain.json").write_text(json.dumps(holdfast("audit", "head", "--json", "--db", sealed).json))
    Path("alien.json").write_text(json.dumps(json.loads(Path("plain.json").read_text()) | {"ledger_id": "0" * 32}))
    before = everything_in(sealed)
    for options, code in (
        (["--head", "nowhere.json"], "head_invalid"),
        (["--head", "short.json"], "head_invalid"),
        (["--head", "altered.json"], "head_invalid"),
        (["--head", "alien.json"], "head_invalid"),
        (["--head", "plain.json", "--public-key", "key.pub"], "head_invalid"),
        (["--head", "head.json", "--public-key", "other.pub"], "head_invalid"),
        (["--head", "head.json", "--public-key", "key"], "key_invalid"),
        (["--head", "head.json", "--public-key", "nowhere.pub"], "key_invalid"),
        (["--public-key", "key.pub"], "bad_input"),
        (["--archives", "nowhere"], "bad_input"),
        (["--archives", "key"], "bad_input"),
    ):
        for mode in ([], ["--json"]):
            refused = holdfast("audit", "verify", "--db", sealed, *options, *mode)
            assert (refused.code, refused.error_code) == (2, code), options
    refused = holdfast("audit", "head", "--sign", "key.pub", "--json", "--db", sealed)
    assert (refused.code, refused.error_code) == (2, "key_invalid")
    assert everything_in(sealed) == before


def test_a_key_is_looked_at_before_anything_is_sealed(history: str, tmp_path: Path) -> None:
    refused = holdfast("audit", "head", "--sign", str(tmp_path / "nowhere"), "--json", "--db", history)
    assert (refused.code, refused.error_code) == (2, "key_invalid")
    with open_store(history) as store:
        assert seals(store) == []


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert holdfast("audit", "keygen", str(path)).code == 0
    before = path.read_bytes()
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    for mode in ([], ["--json"]):
        refused = holdfast("audit", "keygen", str(path), *mode)
        assert (refused.code, refused.error_code) == (2, "file_exists")
    assert path.read_bytes() == before
    refused = holdfast("audit", "keygen", str(tmp_path / "no" / "key"), "--json")
    assert (refused.code, refused.error_code) == (2, "bad_input")


def test_without_the_extra_the_command_says_what_to_install(sqlite_ledger: str, tmp_path: Path) -> None:
    """A real process in which the package cannot be imported."""
    (tmp_path / "cryptography.py").write_text("raise ImportError('not installed')\n")
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    for arguments in (["keygen", str(tmp_path / "key")], ["head", "--sign", "key", "--db", sqlite_ledger]):
        refused = process("audit", *arguments, "--json", env=env)
        assert (refused.code, refused.error_code) == (2, "extra_missing")
        assert "pip install 'holdfast[signing]'" in refused.json["context"]["next_step"]
    assert not (tmp_path / "key").exists()
    assert process("audit", "verify", "--db", sqlite_ledger, env=env).code == 0


# ---------------------------------------------------------------------------------------------------------------------
# export


def recomputed(text: bytes) -> tuple[int, int, str]:
    """Recompute an export with the standard library alone; return its seals, its rows and its last hash."""
    header, *lines, end = [json.loads(line) for line in text.splitlines()]
    previous, block, rows, seals, all_rows = header["previous"], hashlib.sha256(), 0, 0, 0
    for line in lines:
        if "journal" in line:
            assert len(line["journal"]) == 18
            block.update(json.dumps(line["journal"], separators=(",", ":"), ensure_ascii=False).encode() + b"\n")
            rows += 1
            continue
        seal = line["seal"]
        fields = {name: value for name, value in seal.items() if name != "hash"}
        text = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
        assert (seal["digest"], seal["previous"], seal["rows"]) == (block.hexdigest(), previous, rows)
        assert seal["hash"] == hashlib.sha256(text).hexdigest()
        assert line["exported_rows"] == rows
        previous, block = seal["hash"], hashlib.sha256()
        seals, all_rows, rows = seals + 1, all_rows + rows, 0
    assert end == {"end": {"seals": seals, "rows": all_rows}}
    assert (header["holdfast_export"], header["to_seal"] - header["from_seal"] + 1) == (2, seals)
    return seals, all_rows, previous


def grow(url: str, times: int) -> None:
    """Submit a job and seal, so many times."""
    for _ in range(times):
        assert holdfast("submit", "noop", "--db", url).code == 0
        assert holdfast("audit", "head", "--db", url).code == 0


@pytest.mark.req("G-23")
def test_an_export_is_enough_to_recompute_everything(sealed: str) -> None:
    first = keep(sealed, "first.json")
    grow(sealed, 3)
    head = keep(sealed, "head.json")
    printed = holdfast("audit", "export", "--db", sealed)
    assert printed.code == 0
    assert recomputed(printed.out.encode()) == (4, head["rows"], head["hash"])
    written = holdfast("audit", "export", "--out", "all.jsonl", "--json", "--db", sealed)
    assert written.json == {"file": "all.jsonl", "from_seal": 1, "to_seal": 4, "seals": 4, "rows": head["rows"]}
    assert Path("all.jsonl").read_bytes() == printed.out.encode()
    part = holdfast("audit", "export", "--from-seal", "2", "--to-seal", "3", "--db", sealed)
    assert recomputed(part.out.encode())[:2] == (2, 2)
    assert json.loads(part.out.splitlines()[0])["previous"] == first["hash"]
    assert sorted(path.name for path in Path().iterdir()) == ["all.jsonl", "first.json", "head.json"]


def test_an_export_of_an_empty_journal(ledger: str) -> None:
    printed = holdfast("audit", "export", "--db", ledger)
    assert [list(json.loads(line)) for line in printed.out.splitlines()][1:] == [["end"]]
    assert recomputed(printed.out.encode())[:2] == (0, 0)


def test_bad_exports_are_refused_and_leave_nothing(sealed: str) -> None:
    Path("there.jsonl").write_text("mine")
    for options, code in (
        (["--out", "there.jsonl"], "file_exists"),
        (["--out", "no/such/place.jsonl"], "bad_input"),
        (["--from-seal", "3"], "bad_input"),
        (["--to-seal", "2"], "bad_input"),
        (["--from-seal", "2", "--to-seal", "1"], "bad_input"),
        (["--from-seal", "0"], "bad_input"),
        (["--to-seal", "one"], "bad_input"),
    ):
        refused = holdfast("audit", "export", "--db", sealed, *options)
        assert (refused.code, refused.out, refused.error_code) == (2, "", code), options
    assert holdfast("audit", "export", "--json", "--db", sealed).error_code == "bad_input"
    assert [path.name for path in Path().iterdir()] == ["there.jsonl"]
    assert Path("there.jsonl").read_text() == "mine"


def test_a_reader_of_an_export_may_close_its_pipe(sqlite_ledger: str) -> None:
    grow(sqlite_ledger, 1)
    with subprocess.Popen(
        [*PROGRAM, "audit", "export", "--db", sqlite_ledger],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert (child.wait(timeout=60), child.stderr.read()) == (1, b"")
    silent = process("audit", "export", "--db", sqlite_ledger, before=lambda: os.close(1))
    assert (silent.code, silent.out, silent.err) == (0, "", "")


# ---------------------------------------------------------------------------------------------------------------------
# For people


def test_progress_is_shown_on_a_terminal(sqlite_ledger: str) -> None:
    grow(sqlite_ledger, 2)
    mine, theirs = pty.openpty()
    said: list[bytes] = []

    def listen() -> None:
        try:
            while chunk := os.read(mine, 4096):
                said.append(chunk)
        except OSError:
            pass  # the other end has closed

    listener = threading.Thread(target=listen)
    listener.start()
    done = subprocess.run(
        [PROGRAM[0], "-c", BARS_AT_ONCE, "audit", "verify", "--db", sqlite_ledger],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=clean_environment() | {"TERM": "xterm"},
        check=False,
    )
    os.close(theirs)
    listener.join()
    os.close(mine)
    assert done.returncode == 0
    assert done.stdout.startswith(b"ok: 2 rows sealed, 0 ")
    assert b"verifying" in b"".join(said)
    quiet = process("audit", "verify", "--db", sqlite_ledger)
    assert quiet.err == ""


def test_the_group_lists_its_commands() -> None:
    shown = holdfast("audit", "--help")
    assert shown.code == 0
    for name in ("verify", "head", "export", "keygen"):
        assert name in shown.out
    for arguments in ([], ["nonsense"]):
        refused = holdfast("audit", *arguments)
        assert (refused.code, refused.out, refused.error_code) == (2, "", "bad_input")
    assert holdfast("audit", "verify", "--db", "/nowhere/at/all.db", "--json").error_code == "store_unavailable"
