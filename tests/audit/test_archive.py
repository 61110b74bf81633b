"""The archive file: equal history makes equal bytes, a complete file is read back, and any other is refused."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from holdfast.audit.files import archive
from holdfast.audit.files.archive import (
    ArchiveContents,
    ArchiveHeader,
    ArchiveWriter,
    Row,
    WrittenArchive,
    read,
    require_directory,
    verify,
)
from holdfast.audit.seals.sealer import genesis, seal_hash
from holdfast.core.errors import ArchiveInvalidError, ArchiveUnwritableError, BrokenError, SealsBrokenError
from holdfast.core.seals import Seal
from tests.cli.commands import heed_permissions

pytestmark = pytest.mark.attack("files")

LEDGER_ID = "5ea1" * 8
AT = "2026-03-14T09:26:53.589793Z"
EXECUTIONS: list[dict[str, Any]] = [
    {
        "exec_id": 1,
        "status": "DONE",
        "excused": False,
        "progress": 0.5,
        "error_message": 'a "b" \u2028 é',
        "note": None,
    },
    {"exec_id": 2, "status": "ABORTED", "excused": True, "progress": None, "error_message": None, "note": "x"},
]


def row(seq: int, **changes: object) -> Row:
    values: dict[str, object] = {
        "seq": seq, "epoch": 1, "xid": 0, "machine": "JOB", "subject": seq, "version": 1, "source": None,
        "target": "pending", "event": "submit", "actor": "c", "reason": "why ☂ not", "attempt": 0, "move_id": f"m{seq}",
        "grant_id": None, "maintenance_id": None, "at": AT, "status_from": None, "status_to": None, **changes,
    }  # fmt: skip
    return tuple(values.values())  # type: ignore[return-value]


BLOCKS = [
    [row(1), row(2), row(3)],
    [row(4, source="pending", target="running", status_to="IN_PROGRESS")],
    [row(5), row(7)],
]


def sealed(blocks: list[list[Row]], ledger_id: str = LEDGER_ID) -> list[Seal]:
    """Seal blocks by the format that every Holdfast must agree on: written out here, not called."""
    seals: list[Seal] = []
    for seal_id, rows in enumerate(blocks, start=1):
        lines = b"".join(json.dumps(list(r), ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for r in rows)
        draft = Seal(
            seal_id, 2, 1, 0, rows[-1][0], rows[0][0], rows[-1][0], len(rows), hashlib.sha256(lines).hexdigest(),
            seals[-1].hash if seals else genesis(ledger_id), "", AT, 0, rows[-1][0],
        )  # fmt: skip
        seals.append(replace(draft, hash=seal_hash(draft)))
    return seals


def written(directory: Path, ledger_id: str = LEDGER_ID) -> WrittenArchive:
    with ArchiveWriter(directory, ledger_id, sealed(BLOCKS, ledger_id)) as writer:
        for rows in BLOCKS:
            writer.add_rows(rows[:1])
            writer.add_rows(rows[1:])
            writer.end_block()
        for execution in EXECUTIONS:
            writer.add_execution(execution)
        return writer.finish()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def lines_of(path: Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).splitlines(keepends=True)


# ---------------------------------------------------------------------------------------------------------------------
# Writing and reading


def test_an_archive_reads_back_as_written(tmp_path: Path) -> None:
    made = written(tmp_path)
    path = tmp_path / "journal-1-3.jsonl.gz"
    assert made == WrittenArchive(path.name, hashlib.sha256(path.read_bytes()).hexdigest(), rows=6, executions=2)
    header = ArchiveHeader(2, LEDGER_ID, 1, 3, tuple(sealed(BLOCKS)))
    assert verify(path, sha256=made.sha256) == header
    assert read(path, sha256=made.sha256) == ArchiveContents(header, [r for rows in BLOCKS for r in rows], EXECUTIONS)
    assert names(tmp_path) == [path.name]


def test_the_lines_are_plain_json_that_others_can_read(tmp_path: Path) -> None:
    written(tmp_path)
    first, *rest, last = [json.loads(line) for line in lines_of(tmp_path / "journal-1-3.jsonl.gz")]
    assert list(first) == ["holdfast_archive", "ledger_id", "first_seal", "last_seal", "seals"]
    assert first["seals"] == [asdict(seal) for seal in sealed(BLOCKS)]
    assert rest == [
        *({"journal": list(r)} for rows in BLOCKS for r in rows),
        *({"execution": execution} for execution in EXECUTIONS),
    ]
    assert last == {"rows": 6, "executions": 2}


def test_the_same_history_makes_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = written(tmp_path / "a")
    assert written(tmp_path / "b") == first
    [one, other] = [(tmp_path / name / first.file).read_bytes() for name in "ab"]
    assert one == other
    assert one[4:8] == b"\0\0\0\0"  # no time in it


# ---------------------------------------------------------------------------------------------------------------------
# Damaged files


def test_an_archive_that_was_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / written(tmp_path).file
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ArchiveInvalidError):
            read(path)


def test_a_byte_that_was_altered_anywhere_is_refused(tmp_path: Path) -> None:
    made = written(tmp_path)
    path = tmp_path / made.file
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ArchiveInvalidError) as refused:
            read(path, sha256=made.sha256)
        assert refused.value.context["kind"] == "sha256"


def rewritten(n: int, **changes: object) -> Callable[[list[bytes]], list[bytes]]:
    """Return what changes fields of the object on line n."""

    def rewrite(lines: list[bytes]) -> list[bytes]:
        value = {**json.loads(lines[n]), **changes}
        lines[n] = json.dumps(value).encode() + b"\n"
        return lines

    return rewrite


def with_seals(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[list[bytes]], list[bytes]]:
    """Return what changes the seals of the header."""

    def rewrite(lines: list[bytes]) -> list[bytes]:
        header = json.loads(lines[0])
        change(header["seals"])
        lines[0] = json.dumps(header).encode() + b"\n"
        return lines

    return rewrite


ALTERED: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "a row edited": (rewritten(2, journal=list(row(2, actor="mallory"))), "rows_changed"),
    "a row's number edited": (rewritten(2, journal=list(row(9))), "rows_changed"),
    "a row removed": (lambda x: x[:2] + x[3:], "rows_changed"),
    "a row added": (lambda x: [*x[:4], x[3], *x[4:]], "rows_changed"),
    "two rows swapped": (lambda x: [x[0], x[2], x[1], *x[3:]], "rows_changed"),
    "the last rows removed": (lambda x: [*x[:5], *x[7:]], "bad_line"),
    "an execution removed": (lambda x: [*x[:7], *x[8:]], "counts"),
    "an execution added": (lambda x: [*x[:8], x[7], *x[8:]], "counts"),
    "its end edited": (rewritten(-1, rows=7), "counts"),
    "its end removed": (lambda x: x[:-1], "cut_short"),
    "something after its end": (lambda x: [*x, x[-1]], "trailing_data"),
    "a line without its end": (lambda x: [*x[:-1], x[-1].rstrip(b"\n")], "line_without_end"),
    "a row with a word too few": (rewritten(1, journal=list(row(1))[:-1]), "bad_line"),
    "a row of other types": (rewritten(1, journal=list(row(1, subject="x"))), "bad_line"),
    "a field that is unknown": (rewritten(1, more=1), "bad_line"),
    "half a character": (lambda x: [x[0], x[1].replace("☂".encode(), b"\xe2"), *x[2:]], "bad_line"),
    "an earlier version": (rewritten(0, holdfast_archive=1), "version"),
    "a later version": (rewritten(0, holdfast_archive=3), "version"),
    "another last seal": (rewritten(0, last_seal=4), "seal_range"),
    "another ledger": (rewritten(0, ledger_id="0" * 32), "ledger"),
    "no seals": (rewritten(0, seals=[], first_seal=1, last_seal=0), "seal_range"),
    "a seal removed": (with_seals(lambda seals: seals.pop(1)), "seal_range"),
    "a seal's time edited": (with_seals(lambda s: s[1].update(sealed_at="2020")), "seal_changed"),
    "a seal that follows another": (
        with_seals(lambda s: s[1].update(previous="0" * 64)),
        "seal_order",
    ),
    "nothing in it": (lambda _: [], "bad_line"),
}


@pytest.mark.parametrize("altered", ALTERED)
def test_an_archive_that_was_altered_and_packed_again_is_refused(tmp_path: Path, altered: str) -> None:
    path = tmp_path / written(tmp_path).file
    change, kind = ALTERED[altered]
    path.write_bytes(gzip.compress(b"".join(change(lines_of(path)))))
    for look in (read, verify):
        with pytest.raises(ArchiveInvalidError) as refused:
            look(path)
        assert refused.value.context == {"file": str(path), "kind": kind}


def test_an_archive_that_is_missing_or_no_archive_is_refused(tmp_path: Path) -> None:
    text, missing = tmp_path / "text", tmp_path / "missing"
    text.write_text("a file of another kind")
    for path, kind in ((missing, "unreadable"), (tmp_path, "unreadable"), (text, "not_compressed")):
        with pytest.raises(ArchiveInvalidError) as refused:
            verify(path)
        assert refused.value.context["kind"] == kind


def test_a_line_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / written(tmp_path).file
    monkeypatch.setattr(archive, "LINE_BYTES_MAX", 200)
    with pytest.raises(ArchiveInvalidError) as refused:
        verify(path)
    assert refused.value.context["kind"] == "line_without_end"


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_refused_or_changes_no_history(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = tmp_path / written(tmp_path).file
    plain = bytearray(gzip.decompress(path.read_bytes()))
    for _ in range(chance.randint(1, 4)):
        plain[chance.randrange(len(plain))] = chance.randrange(256)
    path.write_bytes(gzip.compress(bytes(plain)))
    try:
        contents = read(path)
    except ArchiveInvalidError:
        return
    # Without its SHA-256, a change of what no seal covers is not seen; a change of history is.
    assert contents.journal == [r for rows in BLOCKS for r in rows]
    assert [seal.hash for seal in contents.header.seals] == [seal.hash for seal in sealed(BLOCKS)]


# ---------------------------------------------------------------------------------------------------------------------
# Errors of writing


@pytest.mark.parametrize(
    "rows, kind",
    [
        (BLOCKS[0][:2], "row_count"),
        ([row(1), row(2, actor="mallory"), row(3)], "rows_changed"),
    ],
)
def test_rows_that_are_not_what_was_sealed_are_never_archived(tmp_path: Path, rows: list[Row], kind: str) -> None:
    with ArchiveWriter(tmp_path, LEDGER_ID, sealed(BLOCKS)) as writer:
        writer.add_rows(rows)
        with pytest.raises(SealsBrokenError) as refused:
            writer.end_block()
    assert refused.value.context == {"seal_id": 1, "kind": kind}
    assert names(tmp_path) == []


def test_an_archive_without_all_of_its_blocks_is_never_finished(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path, LEDGER_ID, sealed(BLOCKS)) as writer:
        writer.add_rows(BLOCKS[0])
        writer.end_block()
        with pytest.raises(BrokenError):
            writer.finish()
    assert names(tmp_path) == []


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, errno in (("missing", "ENOENT"), ("file", "ENOTDIR"), ("file/below", "ENOENT")):
        for attempt in (require_directory, written):
            with pytest.raises(ArchiveUnwritableError) as refused:
                attempt(tmp_path / name)
            if attempt is require_directory:
                assert refused.value.context == {"path": str(tmp_path / name), "errno": errno}
    assert names(tmp_path) == ["file"]


def child(code: str, directory: Path, before: Callable[[], None] | None = None) -> str:
    """Run a line of this module in a process of its own, and return what it printed."""
    program = f"from tests.audit.test_archive import *\nd = Path({str(directory)!r})\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True, preexec_fn=before
    )
    return done.stdout.strip()


PRINTS_ERROR = "try:\n    {}(d)\nexcept ArchiveUnwritableError as error:\n    print(error.context['errno'])"


def test_a_directory_without_write_permission_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    both = "\n".join(PRINTS_ERROR.format(name) for name in ("require_directory", "written"))
    assert child(both, tmp_path, heed_permissions).split() == ["EACCES", "EACCES"]
    assert names(tmp_path) == []


def test_a_full_disk_is_reported_and_leaves_no_file(tmp_path: Path) -> None:
    """A limit on the size of files simulates a full disk: the same write fails in the same way."""
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({}, resource.RLIM_INFINITY))\n"
    tries = [limit.format(room) + PRINTS_ERROR.format("written") + "\nprint(names(d))" for room in (0, 5, 300)]
    assert child("\n".join(tries), tmp_path).splitlines() == ["EFBIG", "[]"] * 3
    assert names(tmp_path) == []


def test_the_files_of_a_killed_writer_are_replaced_and_swept(tmp_path: Path) -> None:
    old, new = (tmp_path / f".journal-1-3.{letter * 32}.part" for letter in "ab")
    theirs = tmp_path / ".journal-1-3.mine.part"
    for draft in (old, new, theirs):
        draft.write_bytes(b"half of it")
    for draft in (old, theirs):
        os.utime(draft, (time.time() - 3700, time.time() - 3700))
    (tmp_path / "journal-1-3.jsonl.gz").touch()  # nothing is lost with it
    require_directory(tmp_path)
    made = written(tmp_path)
    assert verify(tmp_path / made.file, sha256=made.sha256).last_seal == 3
    assert names(tmp_path) == sorted([new.name, theirs.name, made.file])
    assert written(tmp_path) == made  # a complete file is kept
    path = tmp_path / made.file
    path.write_bytes(path.read_bytes()[:-20])  # a truncated file is recognised by its first line
    assert written(tmp_path) == made
    assert verify(path, sha256=made.sha256).last_seal == 3


@pytest.mark.parametrize("left", [-1, -20, -100])
def test_the_history_of_another_ledger_is_never_replaced_though_it_was_cut_off(tmp_path: Path, left: int) -> None:
    path = tmp_path / written(tmp_path).file
    path.write_bytes(path.read_bytes()[:left])
    before = path.read_bytes()
    with pytest.raises(ArchiveUnwritableError) as refused:
        written(tmp_path, "another" * 4)
    assert refused.value.context["ledger_id"] == LEDGER_ID
    assert (path.read_bytes(), names(tmp_path)) == (before, [path.name])


@pytest.mark.parametrize(
    "data",
    [b"cut off", gzip.compress(b"a file of another kind\n"), gzip.compress(b"{}"), gzip.compress(b"\n" * 100)[:15]],
    ids=["no archive", "another kind", "no end", "cut off at once"],
)
def test_a_file_that_is_not_an_archive_is_never_replaced(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "journal-1-3.jsonl.gz"
    path.write_bytes(data)
    with pytest.raises(ArchiveUnwritableError) as refused:
        written(tmp_path)
    assert refused.value.context.keys() == {"file", "why"}
    assert str(path) in refused.value.hint
    assert (path.read_bytes(), names(tmp_path)) == (data, [path.name])


def test_the_history_of_another_ledger_is_never_replaced(tmp_path: Path) -> None:
    made = written(tmp_path)
    before = (tmp_path / made.file).read_bytes()
    with pytest.raises(ArchiveUnwritableError) as refused:
        written(tmp_path, "another" * 4)
    assert refused.value.context["ledger_id"] == LEDGER_ID
    assert (tmp_path / made.file).read_bytes() == before
    assert names(tmp_path) == [made.file]
