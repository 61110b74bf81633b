"""The file: its rows are exact, every column travels, and whatever was altered, cut off or mixed up is refused."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.audit.files.snapshot import SnapshotFile, create, line_of, row_of
from holdfast.audit.files.snapshot_verify import verify
from holdfast.audit.seals.sealer import seal
from holdfast.core.errors import (
    FileThereError,
    InputError,
    SealsBrokenError,
    SnapshotInvalidError,
)
from holdfast.store import create_store
from holdfast.store.migrations import migrations
from holdfast.store.tables import STAYS, TABLES, Column, Kind, Row, Table
from holdfast.testing import VirtualClock
from tests.audit.rich import make_rich
from tests.audit.snapshots import TRAVELLING, forge, lines_of, pack
from tests.enforcement.raw import Client
from tests.support.postgres import tmpfs_directory

pytestmark = pytest.mark.attack("files")

TABLE = {table.name: table for table in TABLES}


# ---------------------------------------------------------------------------------------------------------------------
# Rows

_VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.TEXT: st.text(st.characters(exclude_categories=["Cs"])),
    Kind.WHOLE: st.integers(-(2**63), 2**63 - 1),
    Kind.REAL: st.floats(allow_nan=False, allow_infinity=False),
    Kind.TIME: st.datetimes().map(lambda moment: moment.isoformat(timespec="microseconds") + "Z"),
    Kind.FLAG: st.sampled_from([0, 1]),
}


def _value(column: Column) -> st.SearchStrategy[Any]:
    return _VALUES[column.kind] | st.none() if column.nullable else _VALUES[column.kind]


@st.composite
def rows(draw: st.DrawFn) -> tuple[Table, Row]:
    table = draw(st.sampled_from(TABLES))
    return table, tuple(draw(_value(column)) for column in table.columns)


@given(rows())
def test_a_row_reads_back_exactly_as_it_was_written(drawn: tuple[Table, Row]) -> None:
    table, row = drawn
    line = line_of(table, row)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert json.loads(line) == [table.name, *row]
    back = row_of(table, line)
    assert back == row
    assert [type(value) for value in back] == [type(value) for value in row]
    assert line_of(table, back) == line


@given(rows(), st.data())
def test_a_row_of_another_shape_is_refused(drawn: tuple[Table, Row], data: st.DataObject) -> None:
    table, row = drawn
    index = data.draw(st.integers(0, len(row) - 1))
    column = table.columns[index]
    wrong = {
        Kind.TEXT: [1, 1.5, True, [], {}],
        Kind.WHOLE: ["1", 1.5, True, [1], 2**63, -(2**63) - 1],
        Kind.REAL: ["1", True, [1]],
        Kind.TIME: ["yesterday", 1, "2026-03-14T09:26:53Z", "2026-03-14 09:26:53.589793+00", True],
        Kind.FLAG: [2, -1, "1", True],
    }[column.kind]
    value = data.draw(st.sampled_from(wrong if column.nullable else [*wrong, None]))
    changed = [*row[:index], value, *row[index + 1 :]]
    for other in (changed, [*row, None], list(row[:-1])):
        with pytest.raises(msgspec.ValidationError):
            row_of(table, json.dumps([table.name, *other]).encode())


@pytest.mark.req("K-63")
def test_every_column_is_in_the_snapshot_or_declared_as_left_out(ledger_url: str) -> None:
    create_store(ledger_url).close()
    client = Client(ledger_url)
    found: dict[str, set[str]] = {}
    for name in _tables(client):
        cursor = client.connection.execute(f"SELECT * FROM {name}")
        found[name.removeprefix("holdfast_")] = {column[0] for column in cursor.description}
    client.close()
    assert found.keys() - STAYS.keys() == TABLE.keys() == set(TRAVELLING)
    for name, columns in found.items():
        if name in TABLE:
            stays = {place.partition(".")[2] for place in STAYS if place.startswith(f"{name}.")}
            assert {column.name for column in TABLE[name].columns} == columns - stays
    assert {place.partition(".")[0] for place in STAYS} <= found.keys()


def _tables(client: Client) -> list[str]:
    if client.dialect == "sqlite":
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'holdfast%'"
    else:
        query = (
            "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
            " AND relnamespace = current_schema()::regnamespace AND relname LIKE 'holdfast%'"
        )
    return [name for (name,) in client.run(query)]


def test_a_nullable_column_is_nullable_in_both_databases(ledger_url: str) -> None:
    create_store(ledger_url).close()
    client = Client(ledger_url)
    for table in TABLES:
        if client.dialect == "sqlite":
            info = client.run(f"PRAGMA table_info({table.full_name})")
            required = {row[1] for row in info if row[3] or row[5]}
        else:
            info = client.run(
                "SELECT attname::text FROM pg_attribute WHERE attrelid = ?::regclass AND attnum > 0 AND attnotnull",
                table.full_name,
            )
            required = {name for (name,) in info}
        assert {column.name for column in table.columns if not column.nullable} <= required, table.name
        assert {column.name for column in table.columns if column.nullable}.isdisjoint(required), table.name
    client.close()


# ---------------------------------------------------------------------------------------------------------------------
# Files


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of a rich ledger, with five rows sealed in each block."""
    directory = tmp_path_factory.mktemp("sound", numbered=True)
    clock = VirtualClock()
    with create_store(str(directory / "ledger.db"), clock) as store:
        make_rich(store, clock)
        seal(store, block_rows=5)
        make_rich_later(store, clock)
        create(store, directory / "sound.snapshot")
    return directory / "sound.snapshot"


def make_rich_later(store: Any, clock: VirtualClock) -> None:
    """Leave something unsealed."""
    with store.transaction() as transaction, transaction.maintenance.open(who="keeper", why="a look"):
        clock.advance(1)


def test_a_sound_snapshot_is_found_sound(sound: Path) -> None:
    found = verify(sound)
    counted = {table: sum(line.startswith(f'["{table}",'.encode()) for line in lines_of(sound)) for table in TRAVELLING}
    assert found.trailer.rows == counted
    assert (found.sealed, found.unsealed) == (counted["journal"] - 2, 2)
    assert found.seals == counted["seals"] > 10
    assert found.given_out["maintenance"] == 2
    assert found.given_out["calls"] == counted["calls"] == counted["jobs"]
    assert found.bytes == sound.stat().st_size


# Each takes the lines of a sound snapshot and returns others.
MIXED_UP: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "no lines": lambda lines: [],
    "only a header": lambda lines: lines[:1],
    "no header": lambda lines: lines[1:],
    "no trailer": lambda lines: lines[:-1],
    "a trailer too many": lambda lines: [*lines, lines[-1]],
    "a row after the trailer": lambda lines: [*lines, lines[5]],
    "white space after the trailer": lambda lines: [*lines, b"\n"],
    "a row lost": lambda lines: [*lines[:20], *lines[21:]],
    "a row twice": lambda lines: [*lines[:20], lines[19], *lines[20:]],
    "two rows swapped": lambda lines: [*lines[:20], lines[21], lines[20], *lines[22:]],
    "an empty line": lambda lines: [*lines[:20], b"\n", *lines[20:]],
    "an unknown table": lambda lines: [*lines[:-1], b'["spies",1]\n', lines[-1]],
    "a table out of order": lambda lines: [*lines[:-1], lines[1], lines[-1]],
    "a row that is no JSON": lambda lines: [*lines[:20], b'["jobs",\n', *lines[20:]],
    "a row that is no UTF-8": lambda lines: [*lines[:2], b'["meta","a","\xff"]\n', *lines[2:]],
    "a last line without its end": lambda lines: [*lines[:-1], lines[-1].rstrip()],
    "a header of another kind": lambda lines: [b"[1]\n", *lines[1:]],
    "a header without fields": lambda lines: [b'{"holdfast_snapshot":2}\n', *lines[1:]],
    "a header of something else": lambda lines: [b'{"name":"x"}\n', *lines[1:]],
    "a trailer without a digest": lambda lines: [*lines[:-1], b'{"rows":{}}\n'],
}


@pytest.mark.parametrize("how", MIXED_UP)
def test_a_snapshot_that_was_mixed_up_is_refused(sound: Path, tmp_path: Path, how: str) -> None:
    altered = pack(tmp_path / "altered", MIXED_UP[how](lines_of(sound)))
    with pytest.raises(SnapshotInvalidError) as caught:
        verify(altered)
    assert caught.value.exit_code == 2
    assert caught.value.code == "snapshot_invalid"


NEWEST = max(migration.number for migration in migrations("sqlite"))


def _nothing(rows: list[list[Any]]) -> None: ...


@pytest.mark.parametrize(
    "header, context",
    [
        ({"holdfast_snapshot": 1}, {"kind": "format", "format": 1}),
        ({"holdfast_snapshot": 3}, {"kind": "format", "format": 3}),
        ({"holdfast_snapshot": 0}, {"kind": "format", "format": 0}),
        ({"holdfast_snapshot": "1"}, {"kind": "header"}),
        ({"schema": NEWEST + 1}, {"kind": "schema", "schema": NEWEST + 1, "holdfast": NEWEST}),
        ({"schema": 0}, {"kind": "schema", "schema": 0, "holdfast": NEWEST}),
        ({"tables": {}}, {"kind": "tables"}),
        ({"epoch": 2**31}, {"kind": "header"}),
        ({"sequences": {"calls": 2**63}}, {"kind": "header"}),
        ({"epoch": "1"}, {"kind": "header"}),
    ],
)
def test_a_snapshot_of_another_version_is_refused(
    sound: Path, tmp_path: Path, header: dict[str, Any], context: dict[str, Any]
) -> None:
    forged = forge(tmp_path / "forged", sound, _nothing, **header)
    with pytest.raises(SnapshotInvalidError) as caught:
        verify(forged)
    assert caught.value.context == context


def test_a_snapshot_that_was_forged_with_care_is_sound_as_far_as_a_file_can_tell(sound: Path, tmp_path: Path) -> None:
    assert verify(forge(tmp_path / "forged", sound, _nothing)).header == verify(sound).header


def _rows_of(rows: list[list[Any]], table: str) -> list[list[Any]]:
    return [row for row in rows if row[0] == table]


def _edit(table: str, index: int, column: str, value: object, rows: list[list[Any]]) -> None:
    _rows_of(rows, table)[index][1 + TABLE[table].names.index(column)] = value


def _drop(table: str, index: int, rows: list[list[Any]]) -> None:
    rows.remove(_rows_of(rows, table)[index])


def _sealed(seal_id: int, nth: int, rows: list[list[Any]]) -> list[Any]:
    """Return the nth row of a block."""
    low = _rows_of(rows, "seals")[seal_id - 1][1 + TABLE["seals"].names.index("low_seq")]
    [row] = [row for row in _rows_of(rows, "journal") if row[1] == low + nth]
    return row


def _edit_row(rows: list[list[Any]]) -> None:
    _sealed(7, 2, rows)[1 + TABLE["journal"].names.index("actor")] = "nobody"


def _lose_row(rows: list[list[Any]]) -> None:
    rows.remove(_sealed(8, 0, rows))


def _swap_rows(rows: list[list[Any]]) -> None:
    one, other = _sealed(9, 3, rows), _sealed(9, 4, rows)
    one[2:], other[2:] = other[2:], one[2:]


# The digest and the counts agree: only the seals differ.
TAMPERED: dict[str, tuple[Callable[[list[list[Any]]], None], tuple[str, int | None]]] = {
    "an edited row": (_edit_row, ("rows", 7)),
    "a lost row": (_lose_row, ("count", 8)),
    "two rows swapped": (_swap_rows, ("rows", 9)),
    "an edited seal": (partial(_edit, "seals", 1, "sealed_at", "2020"), ("hash", 2)),
    "a lost seal": (partial(_drop, "seals", 3), ("order", 5)),
    "the last seal cut off": (partial(_drop, "seals", -1), ("head", None)),  # the last one that is left
    "another ledger": (partial(_edit, "seals", 0, "previous", "0" * 64), ("order", 1)),
}


def first_flaw(error: SealsBrokenError) -> tuple[str, int]:
    """Return the kind of the first flaw that an error names, and the seal."""
    flaws: Any = error.context["flaws"]
    return flaws[0]["kind"], flaws[0]["seal_id"]


@pytest.mark.req("K-63")
@pytest.mark.parametrize("how", TAMPERED)
def test_a_snapshot_whose_history_breaks_its_seals_is_found(sound: Path, tmp_path: Path, how: str) -> None:
    change, (kind, seal_id) = TAMPERED[how]
    forged = forge(tmp_path / "forged", sound, change)
    with pytest.raises(SealsBrokenError) as caught:
        verify(forged)
    assert first_flaw(caught.value) == (kind, seal_id or verify(sound).seals - 1)
    assert caught.value.exit_code == 1


def test_rows_of_an_archived_block_may_be_gone(sound: Path, tmp_path: Path) -> None:
    archive = ["archives", 1, 1, 4, "journal-1-4.jsonl.gz", "0" * 64, 10, 0, "2026-03-14T09:26:53.589793Z"]

    def archived(rows: list[list[Any]]) -> None:
        end = _sealed(4, 3, rows)[1]  # three blocks, and some of the next
        for row in _rows_of(rows, "journal"):
            if row[1] < end:
                rows.remove(row)
        rows.insert(rows.index(_rows_of(rows, "journal")[0]), archive)

    found = verify(forge(tmp_path / "forged", sound, archived))
    assert found.sealed == verify(sound).sealed

    def too_much(rows: list[list[Any]]) -> None:
        rows.remove(_sealed(5, 0, rows))
        archived(rows)

    with pytest.raises(SealsBrokenError) as caught:
        verify(forge(tmp_path / "forged-2", sound, too_much))
    assert first_flaw(caught.value) == ("count", 5)


@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_no_changed_byte_goes_unnoticed(sound: Path, data: st.DataObject) -> None:
    text = b"".join(lines_of(sound))
    position = data.draw(st.integers(0, len(text) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != text[position]))
    changed = text[:position] + bytes([byte]) + text[position + 1 :]
    with _written(gzip.compress(changed, 1)) as path, pytest.raises(SnapshotInvalidError):
        verify(path)


@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_no_changed_or_missing_byte_of_the_packed_file_goes_unnoticed(sound: Path, data: st.DataObject) -> None:
    packed = sound.read_bytes()
    # The ten first bytes are gzip's own: a flag, a time and a system that no reader uses.
    position = data.draw(st.integers(10, len(packed) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != packed[position]))
    for wrong in (packed[:position], packed[:position] + bytes([byte]) + packed[position + 1 :]):
        with _written(wrong) as path:
            if _unpacked(wrong) == _unpacked(packed):
                # One change in ten thousand: the compressed bytes differ and unpack to the same content.
                assert verify(path).head == verify(sound).head
            else:
                with pytest.raises(SnapshotInvalidError):
                    verify(path)


def _unpacked(packed: bytes) -> bytes | None:
    try:
        return gzip.decompress(packed)
    except (OSError, EOFError, zlib.error):
        return None


class _written:  # noqa: N801 - used like a function
    """A file with these bytes, for a block."""

    def __init__(self, content: bytes) -> None:
        self._path = tmpfs_directory() / f"holdfast-{id(self)}.snapshot"
        self._content = content

    def __enter__(self) -> Path:
        self._path.write_bytes(self._content)
        return self._path

    def __exit__(self, *_: object) -> None:
        self._path.unlink()


@pytest.mark.parametrize("what", ["nothing", "a directory", "text", "an empty file", "an empty gzip", "a database"])
def test_a_file_that_is_not_a_snapshot_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "file"
    if what == "a directory":
        path.mkdir()
    elif what == "a database":
        create_store(str(path)).close()
    elif what != "nothing":
        path.write_bytes({"text": b"hello\n", "an empty file": b"", "an empty gzip": gzip.compress(b"")}[what])
    with pytest.raises(SnapshotInvalidError):
        verify(path)


def test_an_endless_line_is_refused_before_it_fills_the_memory(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.audit.files.snapshot.LINE_MAX", 10_000)
    monkeypatch.setattr("holdfast.audit.files.snapshot.ESCAPED_MAX", 0)
    lines = lines_of(sound)
    endless = pack(tmp_path / "endless", [*lines[:2], b'["meta","a","' + b"x" * 10_000 + b'"]\n', *lines[2:]])
    with pytest.raises(SnapshotInvalidError) as caught:
        verify(endless)
    assert caught.value.context == {"kind": "line_without_end"}


# ---------------------------------------------------------------------------------------------------------------------
# Writing


def test_a_snapshot_replaces_nothing(ledger_url: str, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with create_store(ledger_url) as store:
        for path in (taken, tmp_path, tmp_path / "dangling", tmp_path / "no" / "where", tmp_path / ("é" * 200)):
            with pytest.raises(InputError):
                create(store, path)
    assert taken.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "taken"]


def test_a_name_that_was_taken_meanwhile_is_not_replaced(
    ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.audit.files.snapshot.PROGRESS_ROWS", 1)
    path = tmp_path / "a"
    with create_store(ledger_url) as store:
        with store.transaction() as transaction:
            transaction.settings.set("x", "y")

        def another_process(*_: object) -> None:
            path.write_text("mine")

        with pytest.raises(FileThereError):
            create(store, path, progress=another_process)
    assert path.read_text() == "mine"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_a_snapshot_that_cannot_be_finished_leaves_nothing(
    ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.audit.files.snapshot.PROGRESS_ROWS", 1)
    with create_store(ledger_url) as store:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with pytest.raises(InputError) as caught:
            create(store, tmp_path / "a", progress=full)
        assert caught.value.context == {"path": str(tmp_path / "a")}
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == 28
        assert list(tmp_path.iterdir()) == []
        assert create(store, tmp_path / "a").trailer.rows["jobs"] == 0


def test_progress_is_reported(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.audit.files.snapshot.PROGRESS_ROWS", 10)
    heard: list[tuple[str, int, int]] = []

    def progress(*words: Any) -> None:
        heard.append(words)

    verify(sound, progress=progress)
    size = sound.stat().st_size
    assert {(what, total) for what, _, total in heard} == {("verifying", size)}
    assert [done for _, done, _ in heard] == sorted(done for _, done, _ in heard)
    heard.clear()
    with create_store(str(sound.parent / "ledger.db"), VirtualClock()) as store:
        made = create(store, tmp_path / "again", progress=progress)
    rows = sum(made.trailer.rows.values())
    assert heard == [("writing", n, rows) for n in range(10, rows + 1, 10)]


def test_the_reader_holds_one_line(sound: Path) -> None:
    with SnapshotFile(sound) as snapshot:
        for table in TABLES:
            seen: Iterator[Row] = snapshot.rows(table)
            assert all(len(row) == len(table.columns) for row in seen)
        assert snapshot.finish().header.ledger_id == snapshot.header.ledger_id


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(SnapshotInvalidError) as caught:
        verify(tmp_path / "missing")
    assert caught.value.context == {"kind": "unreadable", "path": str(tmp_path / "missing")}
