"""Files appear under their names whole or not at all, and no file is replaced by accident."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from holdfast.core.errors import FileThereError, InputError
from holdfast.store.files import Draft, new_file, replace_file

pytestmark = pytest.mark.attack("files")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "report"
    with new_file(path) as file:
        file.write(b"all of it")
        assert not path.exists()
    assert (path.read_bytes(), names(tmp_path)) == (b"all of it", ["report"])


def test_an_error_in_the_block_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "report"):
        raise ZeroDivisionError
    assert names(tmp_path) == []


def test_a_new_file_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_bytes(b"before")
    with pytest.raises(FileThereError) as refused, new_file(path):
        pytest.fail("the block is not entered")
    assert refused.value.context == {"path": str(path)}
    assert (path.read_bytes(), names(tmp_path)) == (b"before", ["report"])


def test_a_new_file_does_not_replace_one_that_appears_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "report"
    with pytest.raises(FileThereError), new_file(path):
        path.write_bytes(b"theirs")
    assert (path.read_bytes(), names(tmp_path)) == (b"theirs", ["report"])


def test_a_new_file_does_not_follow_a_broken_link(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileThereError), new_file(path):
        pytest.fail("the block is not entered")
    assert names(tmp_path) == ["report"]


def test_a_file_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "report"
    with pytest.raises(InputError) as refused, new_file(path):
        pytest.fail("the block is not entered")
    assert refused.value.context == {"path": str(path)}


def test_a_mode_holds_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with new_file(tmp_path / "shared", mode=0o644) as file:
            file.write(b"public key")
        with new_file(tmp_path / "usual") as file:
            file.write(b"by the umask")
    finally:
        os.umask(before)
    assert (mode_of(tmp_path / "shared"), mode_of(tmp_path / "usual")) == (0o644, 0o600)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "catalogue"
    replace_file(path, b"first")
    replace_file(path, b"second")
    assert (path.read_bytes(), names(tmp_path)) == (b"second", ["catalogue"])

    def no_space(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError) as caught:
        replace_file(path, b"third")
    assert caught.value.errno == errno.ENOSPC
    assert (path.read_bytes(), names(tmp_path)) == (b"second", ["catalogue"])


def test_file_and_name_are_on_disk_when_it_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append(f"{kind}, {'named' if (tmp_path / 'report').exists() else 'not named'}")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    for replace in (False, True):
        draft = Draft(tmp_path / "report")
        draft.file.write(b"all of it")
        draft.publish(replace=replace)
        draft.discard()
    assert synced == ["file, not named", "directory, named", "file, named", "directory, named"]
    assert names(tmp_path) == ["report"]
